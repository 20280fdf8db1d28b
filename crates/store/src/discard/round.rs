//! A round of discards: group by group, and what is discarded lies aside meanwhile.

use std::time::Duration;

use holdfast_base::clock::{Deadline, Stopwatch};
use holdfast_base::units::BLOCK_BYTES;
use holdfast_device::{DeviceError, Discards};
use holdfast_format::limits::GROUP_BLOCKS;
use holdfast_sync::atomic::Ordering;
use parking_lot::MutexGuard;

use crate::Inner;
use crate::space::discard::{DiscardRule, Discarding, LEAST_BLOCKS, Scope};

/// Blocks that stay free in an image beside what is promised and reserved: 4 MiB.
const SPARE_BLOCKS: u64 = 1024;
/// The longest rest between two calls in the background.
const REST_MAX: Duration = Duration::from_millis(200);
/// A discard waits for callers that find too little space, but no longer.
const WANTED_MAX: Duration = Duration::from_secs(1);

/// How a round of discards ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    /// Nothing is left to look at until something becomes free.
    Done,
    /// Something was touched lately.
    Left,
    /// The store ends, or its device takes no discards.
    Over,
}

/// Blocks that are set aside for a discard. Dropping it gives them back: also when the thread dies.
struct Aside<'a> {
    inner: &'a Inner,
    discarding: Option<Discarding>,
    /// Not all of it has gone.
    has_failed: bool,
}

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        if let Some(discarding) = self.discarding.take() {
            self.inner.space.lock().end_discard(discarding, self.has_failed);
            self.inner.host_answered.notify_all();
        }
    }
}

impl Inner {
    /// Gives back what became free, or all that is. `go_on` hears what a call took, and says whether to go on.
    pub(super) fn discard_round(
        &self,
        scope: Scope,
        go_on: &mut dyn FnMut(Duration) -> bool,
    ) -> Round {
        let Some(mut rule) = self.discard_rule(None) else {
            return Round::Over;
        };
        let scope = match scope {
            Scope::Quiet if self.discarder.delay.is_zero() => Scope::Discardable,
            scope => scope,
        };
        if scope != Scope::Quiet {
            // No file comes that could use it.
            rule.spare = 0;
        }
        let mut groups = self.space.lock().due_groups(scope);
        if rule.to_host && !groups.is_empty() {
            let one = self.discarder.one.lock();
            let is_closed = self.discarder.is_closed.load(Ordering::Acquire);
            if is_closed || self.take_back_reserve(&mut || go_on(Duration::ZERO)).is_none() {
                return Round::Over;
            }
            drop(one);
            // What the host gave for that and a reserve does not need goes back at once.
            groups = self.space.lock().due_groups(scope);
        }
        // From the end, so that what a reserve keeps lies at the begin, where nodes look first.
        for index in groups.into_iter().rev() {
            let one = self.discarder.one.lock();
            match self.discard_group(&one, index, scope, &rule, go_on, &mut |_| {}) {
                Ok(true) => {}
                Ok(false) => return Round::Over,
                Err(error) => {
                    if error.is_unsupported() {
                        self.discarder.is_on.store(false, Ordering::Relaxed);
                        tracing::info!(
                            "the device takes no discards: what is freed stays with the volume"
                        );
                    }
                    return Round::Over;
                }
            }
        }
        let waiting = self.space.lock().discardable_bytes();
        self.counters.discard_waiting_bytes.set(waiting);
        if waiting > 0 { Round::Left } else { Round::Done }
    }

    /// What may be discarded, in ranges of `least` bytes at least; `None`: the device takes no discards.
    pub(super) fn discard_rule(&self, least: Option<u64>) -> Option<DiscardRule> {
        let discards = self.device.discards();
        let unit = discards.unit()?.div_ceil(BLOCK_BYTES).next_power_of_two();
        let to_host = matches!(discards, Discards::OfHost { .. });
        let at_once = self.discarder.delay.is_zero();
        let least = match (least, at_once) {
            (Some(bytes), _) => bytes.div_ceil(BLOCK_BYTES),
            (None, true) => 1,
            (None, false) => LEAST_BLOCKS,
        };
        let spare = if to_host && !at_once { SPARE_BLOCKS } else { 0 };
        Some(DiscardRule { unit, least: least.max(unit), to_host, spare })
    }

    /// Discards what is due of a group. `tell` hears what became of each range. False if it was not to go on, or the volume is
    /// closed. Fails if the device takes no discards, or no more calls.
    pub(super) fn discard_group(
        &self,
        _one: &MutexGuard<'_, ()>,
        index: u64,
        scope: Scope,
        rule: &DiscardRule,
        go_on: &mut dyn FnMut(Duration) -> bool,
        tell: &mut dyn FnMut(std::result::Result<u64, DeviceError>),
    ) -> std::result::Result<bool, DeviceError> {
        if self.discarder.is_closed.load(Ordering::Acquire) {
            return Ok(false);
        }
        let mut loading = self.loading();
        loading.bring(&[index]);
        let due = self.space.lock().due_pieces(index, scope, rule);
        let mut below = Some(GROUP_BLOCKS);
        while let Some(end) = below {
            // Callers come to need more of the reserve while this goes on, and it may lie in what would go next.
            let lacks = match rule.to_host {
                true => self.take_back_reserve(&mut || go_on(Duration::ZERO)),
                false => Some(u64::MAX),
            };
            let Some(lacks) = lacks else {
                self.space.lock().due_again(index, due);
                return Ok(false);
            };
            let until = Deadline::after(WANTED_MAX);
            let mut space = self.space.lock();
            while space.is_wanted() && !until.is_over() {
                let _ = self.host_answered.wait_for(&mut space, until.left());
            }
            if space.reserve_lacks() > lacks {
                continue;
            }
            let begun = space.begin_discard(index, due, end, rule);
            drop(space);
            let Some(discarding) = begun else { break };
            below = discarding.goes_on_below();
            let time = Stopwatch::start();
            self.discard_aside(discarding, tell)?;
            // A rest, with nothing set aside.
            if !go_on(time.elapsed().min(REST_MAX)) {
                self.space.lock().due_again(index, due);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Discards what is set aside. A range that fails keeps no other from being tried.
    fn discard_aside(
        &self,
        discarding: Discarding,
        tell: &mut dyn FnMut(std::result::Result<u64, DeviceError>),
    ) -> std::result::Result<(), DeviceError> {
        let ranges = discarding.blocks().to_vec();
        let mut aside = Aside { inner: self, discarding: Some(discarding), has_failed: true };
        let mut has_failed = false;
        for range in ranges {
            let len = range.count * BLOCK_BYTES;
            match self.device.discard(range.start.0 * BLOCK_BYTES, len) {
                Ok(()) => {
                    self.counters.discard_ranges.increment();
                    self.counters.discarded_bytes.add(len);
                    tell(Ok(len));
                }
                Err(error @ (DeviceError::Stopped(_) | DeviceError::TakenOver { .. })) => {
                    return Err(error);
                }
                Err(error) if error.is_unsupported() => return Err(error),
                Err(error) => {
                    has_failed = true;
                    self.counters.discard_failures.increment();
                    self.discarder.say(&error);
                    tell(Err(error));
                }
            }
        }
        aside.has_failed = has_failed;
        Ok(())
    }
}
