//! All free space goes back when it is asked for.

use std::ops::Range;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_device::DeviceError;
use holdfast_format::limits::GROUP_BLOCKS;

use crate::space::discard::Scope;
use crate::{Inner, Result};

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

impl Inner {
    /// As [`Store::trim`](crate::Store::trim), of those 128 MiB of the volume that begin in `part` of its bytes.
    pub fn trim_part(
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
            let waiting = self.space.lock().discardable_bytes();
            self.counters.discard_waiting_bytes.set(waiting);
        }
        Ok(trimmed)
    }
}
