//! The words for a discard: what is to go back to the device, and what is on its way.
//!
//! Knows nothing of promises, nor of what is given what is free.

use holdfast_base::BlockRange;

use super::group::Run;
use super::unbacked::PIECE_BLOCKS;

/// Shorter runs are not discarded in the background: each hole costs the host a record. 64 KiB.
pub(crate) const LEAST_BLOCKS: u64 = 16;

/// Blocks that are set aside at a time, about: 16 MiB. A caller that finds nothing else waits for these.
pub(crate) const GO_BLOCKS: u64 = 4096;

/// Which free space of a group is to be discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// What became free, in pieces untouched since the last look.
    Quiet,
    /// What became free.
    Discardable,
    /// All of it.
    All,
}

/// Pieces of a group, one bit each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    /// Those that are to be discarded.
    pub(super) pieces: u32,
    /// Of these, the ones that were discardable: they are again, if they cannot be discarded now.
    pub(super) discardable: u32,
    /// Of these, the ones that may hold more than a reserve kept when they were looked at last.
    pub(super) fresh: u32,
}

/// What a device gives back, and where it is then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiscardRule {
    /// Blocks that are given back together.
    pub(crate) unit: u64,
    /// Shorter runs are not worth a call.
    pub(crate) least: u64,
    /// The host has to be asked for the space again.
    pub(crate) to_host: bool,
    /// Blocks that stay free beside what is promised and reserved, so that a small file asks no host.
    pub(crate) spare: u64,
}

/// Free blocks of a group that are being discarded. Given back to `Space::end_discard`.
#[derive(Debug)]
#[must_use = "nobody is given these blocks until it ends"]
pub(crate) struct Discarding {
    pub(super) index: u64,
    pub(super) runs: Vec<Run>,
    /// They were unbacked, or taken.
    pub(super) to_host: bool,
    /// More lies before it, which can be discarded when this is free again.
    pub(super) goes_on: bool,
    pub(super) blocks: Vec<BlockRange>,
}

impl Discarding {
    /// The first block of it in its group, if more is to be discarded before that.
    pub(crate) fn goes_on_below(&self) -> Option<u64> {
        let first = self.runs.first().filter(|_| self.goes_on);
        first.map(|run| run.at)
    }

    /// The blocks, in order.
    pub(crate) fn blocks(&self) -> &[BlockRange] {
        &self.blocks
    }
}

/// How far discards are.
#[derive(Debug, Default)]
pub(crate) struct Discards {
    /// Blocks that are being discarded, and were free.
    pub(super) blocks: u64,
    pub(super) is_under_way: bool,
    /// How many have come to their end.
    pub(super) ended: u64,
    /// Callers that find too little space. No discard begins beside them.
    pub(super) wanting: u64,
}

impl Run {
    /// What of it lies before a block of its group.
    pub(super) fn before(self, below: u64) -> Option<Run> {
        let end = (self.at + self.len).min(below);
        (end > self.at).then(|| Run { at: self.at, len: end - self.at })
    }
}

/// Cuts a run at the borders of pieces; the last part comes first.
pub(super) fn by_piece_back(run: Run) -> impl Iterator<Item = Run> {
    let (first, mut end) = (run.at, run.at + run.len);
    std::iter::from_fn(move || {
        if end <= first {
            return None;
        }
        let at = ((end - 1) / PIECE_BLOCKS * PIECE_BLOCKS).max(first);
        let part = Run { at, len: end - at };
        end = at;
        Some(part)
    })
}

/// Puts a run in front of those that lie behind it.
pub(super) fn join_front(runs: &mut Vec<Run>, part: Run) {
    match runs.last_mut() {
        Some(next) if part.at + part.len == next.at => {
            *next = Run { at: part.at, len: part.len + next.len };
        }
        _ => runs.push(part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_run_come_from_its_end_and_are_joined_again() {
        let run = Run { at: 1000, len: 2 * PIECE_BLOCKS };
        let parts: Vec<Run> = by_piece_back(run).collect();
        let ends: Vec<u64> = parts.iter().map(|part| part.at).collect();
        assert_eq!(ends, [2 * PIECE_BLOCKS, PIECE_BLOCKS, 1000]);
        let mut joined = vec![Run { at: 9000, len: 1 }];
        parts.into_iter().for_each(|part| join_front(&mut joined, part));
        assert_eq!(joined, [Run { at: 9000, len: 1 }, run]);
    }
}
