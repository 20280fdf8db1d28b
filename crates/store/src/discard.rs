//! Free space goes back to the device, or to the host of an image: by a thread of its own, and when it is asked for.
//!
//! ```text
//!  a commit or checkpoint frees blocks -> their pieces are stale -> they stay untouched for a while
//!    -> set aside -> discard, no lock held -> free again, or hidden until the host is asked
//! ```
//!
//! A discard is no promise: whatever becomes of it, the volume is what it was, and only space is lost that a later
//! one finds ([`Inner::trim`]). So nothing waits for it but a caller that finds no space at all, and its
//! errors stop nothing. A thread that dies in one has given its blocks back ([`Aside`]).

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::clock::{Deadline, Stopwatch};
use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::wait;
use holdfast_device::{DeviceError, Discards};
use holdfast_format::limits::GROUP_BLOCKS;
use holdfast_sync::atomic::{AtomicBool, Ordering};
use holdfast_sync::thread::JoinHandle;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::options::Discard;
use crate::space::discard::{DiscardRule, Discarding, LEAST_BLOCKS, Scope};
use crate::{Inner, OpenOptions, Result};

/// Blocks that stay free in an image beside what is promised and reserved: 4 MiB.
const SPARE_BLOCKS: u64 = 1024;
/// The longest rest between two calls in the background.
const REST_MAX: Duration = Duration::from_millis(200);
/// A discard waits for callers that find too little space, but no longer.
const WANTED_MAX: Duration = Duration::from_secs(1);
/// So long a volume goes on with discards when it is closed.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// What a call of [`Store::trim`](crate::Store::trim) has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// Ranges that were discarded.
    pub ranges: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Block groups that were looked at.
    pub groups: u64,
    /// Block groups that there are to look at.
    pub groups_all: u64,
}

/// When free space goes back by itself.
#[derive(Debug)]
pub(crate) struct Discarder {
    is_on: AtomicBool,
    /// What became free waits so long; zero: it is given back at once, in ranges of any length.
    delay: Duration,
    /// Held by the caller that discards.
    one: Mutex<()>,
    /// Nothing is discarded any more. Set under that lock.
    is_closed: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
    said: Mutex<String>,
}

#[derive(Debug, Default)]
struct State {
    ended: bool,
    /// Something became free since the last round began.
    freed: bool,
    /// A round is under way, or to come.
    is_busy: bool,
    is_running: bool,
}

impl Discarder {
    /// As `options` say of a device with these discards. `has_holes`: it is an image that its host has not given whole.
    pub(crate) fn new(options: &OpenOptions, discards: Discards, has_holes: bool) -> Discarder {
        let is_on = !options.read_only
            && match (options.discard, discards) {
                (Discard::Off, _) | (_, Discards::Refused) => false,
                (Discard::On, _) => true,
                (Discard::Auto, Discards::OfHost { .. }) => has_holes,
                (Discard::Auto, Discards::OfDevice { .. }) => false,
            };
        Discarder {
            is_on: AtomicBool::new(is_on),
            delay: options.discard_delay,
            one: Mutex::default(),
            is_closed: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
            said: Mutex::default(),
        }
    }

    /// Whether free space goes back by itself.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// No discard is under way while it is held. Taken before the locks of the store.
    pub(crate) fn no_discard(&self) -> MutexGuard<'_, ()> {
        self.one.lock()
    }

    /// Something became free.
    fn freed(&self) {
        let mut state = self.state.lock();
        if !std::mem::replace(&mut state.freed, true) {
            state.is_busy = true;
            self.changed.notify_all();
        }
    }

    /// The thread ends.
    pub(crate) fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }

    /// Waits until something has become free; false at the end.
    fn wait_for_work(&self) -> bool {
        let mut state = self.state.lock();
        while !state.freed && !state.ended {
            state.is_busy = false;
            self.changed.notify_all();
            self.changed.wait(&mut state);
        }
        state.freed = false;
        !state.ended
    }

    /// Waits so long; false at the end.
    fn rest(&self, time: Duration) -> bool {
        let until = Deadline::after(time);
        let mut state = self.state.lock();
        while !state.ended && !until.is_over() {
            let _ = self.changed.wait_for(&mut state, until.left());
        }
        !state.ended
    }

    /// Says an error in the log, once.
    fn say(&self, error: &DeviceError) {
        let why = error.to_string();
        let mut said = self.said.lock();
        if *said != why {
            tracing::warn!("free space does not go back: {why}");
            *said = why;
        }
    }
}

/// How a round of discards ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// Nothing is left to look at until something becomes free.
    Done,
    /// Something was touched lately.
    Left,
    /// The store ends, or its device takes no discards.
    Over,
}

/// A caller that finds too little space, until it has got it or goes away.
pub(crate) struct Wanting<'a>(&'a Inner);

impl<'a> Wanting<'a> {
    pub(crate) fn begin(inner: &'a Inner) -> Wanting<'a> {
        inner.space.lock().wants_space(true);
        Wanting(inner)
    }
}

impl Drop for Wanting<'_> {
    fn drop(&mut self) {
        self.0.space.lock().wants_space(false);
        self.0.host_answered.notify_all();
    }
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

/// Starts the thread that gives free space back, and adds it to `threads`. Without it the volume does all else: the
/// space goes back when the volume is closed, or [asked for](Inner::trim). The same if it panics.
pub(crate) fn start(inner: &Arc<Inner>, threads: &mut Vec<JoinHandle<()>>) {
    if !inner.discarder.is_on() {
        return;
    }
    inner.discarder.state.lock().is_running = true;
    let started = {
        let ends = Ends(inner.clone());
        holdfast_sync::start("discard", move || {
            let ends = ends;
            work(&ends.0);
        })
    };
    match started {
        Ok(thread) => threads.push(thread),
        Err(error) => tracing::warn!(
            "the system gives no thread for discards ({error}): free space goes back when the volume is closed"
        ),
    }
}

fn work(inner: &Inner) {
    let discarder = &inner.discarder;
    while discarder.wait_for_work() {
        loop {
            let before = inner.work_of_rings();
            if !discarder.rest(discarder.delay) {
                return;
            }
            match inner.discard_round(Scope::Quiet, &mut |took| discarder.rest(took)) {
                Round::Done => {
                    if inner.work_of_rings() == before
                        && let Err(error) = inner.shorten_rings()
                    {
                        tracing::warn!("the rings stay as they are: {error}");
                    }
                    break;
                }
                Round::Left if discarder.delay.is_zero() => break,
                Round::Left => {}
                Round::Over => return,
            }
        }
    }
}

/// A thread that has ended, in whatever way, has no waiters.
struct Ends(Arc<Inner>);

impl Drop for Ends {
    fn drop(&mut self) {
        let discarder = &self.0.discarder;
        let mut state = discarder.state.lock();
        (state.is_running, state.is_busy) = (false, false);
        discarder.changed.notify_all();
    }
}

impl Inner {
    /// What a commit or a checkpoint has freed may go back.
    pub(crate) fn space_was_freed(&self) {
        if !self.discarder.is_on() {
            return;
        }
        let waiting = self.space.lock().stale_bytes();
        self.counters.discard_waiting_bytes.set(waiting);
        if waiting > 0 {
            self.discarder.freed();
        }
    }

    /// Without threads, and without a delay: what became free goes back now. No lock is held.
    pub(crate) fn discard_alone(&self) {
        if !self.discarder.is_on() || !self.discarder.delay.is_zero() || self.throttle.has_threads()
        {
            return;
        }
        // Another caller is at it: the next operation looks again.
        if self.discarder.one.is_locked() {
            return;
        }
        if std::mem::take(&mut self.discarder.state.lock().freed) {
            self.discard_round(Scope::Stale, &mut |_| true);
        }
    }

    /// The last discards of a volume that is closed. When this returns none is under way, and none begins: another program may have
    /// the device, and those blocks, as soon as the volume is left.
    pub(crate) fn discard_at_close(&self) {
        self.discarder.end();
        // The thread gives up what it has not begun, which is stale again.
        drop(self.discarder.one.lock());
        if self.discarder.is_on() {
            let until = Deadline::after(CLOSE_MAX);
            let all_may_go = self.space.lock().all_may_go();
            let scope = if all_may_go { Scope::All } else { Scope::Stale };
            self.discard_round(scope, &mut |_| !until.is_over());
        }
        let _one = self.discarder.one.lock();
        self.discarder.is_closed.store(true, Ordering::Release);
    }

    /// Waits until the thread that gives free space back has nothing to do but wait. At once if there is none.
    pub(crate) fn wait_for_discards(&self) {
        let mut state = self.discarder.state.lock();
        while state.is_running && state.is_busy && !state.ended {
            wait::will_wait();
            self.discarder.changed.wait(&mut state);
        }
    }

    /// Gives back what became free, or all that is. `go_on` hears what a call took, and says whether to go on.
    fn discard_round(&self, scope: Scope, go_on: &mut dyn FnMut(Duration) -> bool) -> Round {
        let Some(mut rule) = self.discard_rule(None) else {
            return Round::Over;
        };
        let scope = match scope {
            Scope::Quiet if self.discarder.delay.is_zero() => Scope::Stale,
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
        let waiting = self.space.lock().stale_bytes();
        self.counters.discard_waiting_bytes.set(waiting);
        if waiting > 0 { Round::Left } else { Round::Done }
    }

    /// What may be discarded, in ranges of `least` bytes at least; `None`: the device takes no discards.
    fn discard_rule(&self, least: Option<u64>) -> Option<DiscardRule> {
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
    fn discard_group(
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

    /// See [`crate::Store::trim`].
    pub(crate) fn trim(
        &self,
        part: Range<u64>,
        least: u64,
        mut progress: impl FnMut(&Trimmed) -> bool,
    ) -> Result<Trimmed> {
        self.check_running()?;
        let rule = self.discard_rule(Some(least));
        let rule = rule.ok_or_else(|| DeviceError::unsupported("discard"))?;
        if rule.to_host {
            self.shorten_rings()?;
        }
        let begin = |at: u64| at.div_ceil(GROUP_BLOCKS * BLOCK_BYTES);
        let groups = begin(part.start)..begin(part.end).min(self.space.lock().group_count());
        let groups_all = groups.end.saturating_sub(groups.start);
        let mut trimmed = Trimmed { groups_all, ..Trimmed::default() };
        let mut failed = None;
        // As a round goes: from the end.
        for index in groups.rev() {
            let one = self.discarder.one.lock();
            let mut tell = |done| match done {
                Ok(bytes) => {
                    trimmed.ranges += 1;
                    trimmed.bytes += bytes;
                }
                Err(error) => failed = failed.take().or(Some(error)),
            };
            let mut go_on = |_| !self.discarder.state.lock().ended;
            let whole =
                self.discard_group(&one, index, Scope::All, &rule, &mut go_on, &mut tell)?;
            drop(one);
            trimmed.groups += u64::from(whole);
            if !whole || !progress(&trimmed) {
                break;
            }
        }
        if let Some(error) = failed {
            return Err(error.into());
        }
        if self.discarder.is_on() {
            let waiting = self.space.lock().stale_bytes();
            self.counters.discard_waiting_bytes.set(waiting);
        }
        Ok(trimmed)
    }

    /// Waits for the end of a discard, if one is under way: what it holds is free then, or can be asked for. Says whether it did.
    pub(crate) fn wait_for_discard(&self) -> bool {
        let mut space = self.space.lock();
        let Some(ended) = space.discard_under_way() else {
            return false;
        };
        wait::will_wait();
        self.host_answered.wait_while(&mut space, |space| space.discards_ended() == ended);
        true
    }
}
