//! What is known of blocks: whether they are free, in use, and as what. They may come from a damaged disk.

use std::collections::BTreeMap;

use holdfast_base::BlockRange;

use super::away::{BitmapState, Present};
use super::{Groups, by_group};

impl Groups {
    /// A group as far as its bitmap is in memory.
    fn present(&self, index: u64) -> Present<'_> {
        match self.get(index) {
            Some(group) => Present::Here(group),
            None if self.away.state(index) == BitmapState::Empty => Present::Empty,
            None => Present::Unknown,
        }
    }

    /// Whether every part of `range`, which may come from a damaged disk, lies in the data zone and in a group that
    /// `is_so` says it of.
    fn all(&self, range: BlockRange, is_so: impl Fn(Present<'_>, BlockRange) -> bool) -> bool {
        self.geometry.holds_data(range)
            && by_group(range).all(|(index, part)| is_so(self.present(index), part))
    }

    /// Whether every block of `range`, which may come from a damaged disk, is known to be free.
    pub(in crate::space) fn is_free(&self, range: BlockRange) -> bool {
        self.all(range, |group, part| match group {
            Present::Here(group) => group.all_free(part),
            Present::Empty => true,
            Present::Unknown => false,
        })
    }

    /// Whether every block of `range`, which may come from a damaged disk, is in use and not a
    /// block outside the data zone, as far as its group is known.
    pub(in crate::space) fn is_used(&self, range: BlockRange) -> bool {
        self.all(range, |group, part| match group {
            Present::Here(group) => group.all_used(part, true),
            Present::Empty => false,
            Present::Unknown => !self.away.has_freed(part),
        })
    }

    /// Whether no block of `range` may be given away: each is in use, or was taken, or nothing is known of it.
    pub(in crate::space) fn is_busy(&self, range: BlockRange) -> bool {
        self.all(range, |group, part| match group {
            Present::Here(group) => group.all_busy(part),
            Present::Empty => false,
            Present::Unknown => true,
        })
    }

    /// Whether all of `ranges`, which do not overlap and are in use, can be data: each group has that much
    /// beside its nodes, as far as it knows.
    pub(in crate::space) fn can_be_data(&self, ranges: &[BlockRange]) -> bool {
        self.have(ranges, |used, nodes| used - nodes)
    }

    /// The same for nodes: each group counts that many of them.
    pub(in crate::space) fn can_be_nodes(&self, ranges: &[BlockRange]) -> bool {
        self.have(ranges, |_, nodes| nodes)
    }

    /// Whether each group has as many blocks of a sort as `ranges` have in it.
    fn have(&self, ranges: &[BlockRange], blocks: impl Fn(u64, u64) -> u64) -> bool {
        let mut of_group = BTreeMap::new();
        for (index, part) in ranges.iter().flat_map(|range| by_group(*range)) {
            *of_group.entry(index).or_insert(0) += part.count;
        }
        let has = |(index, count)| {
            let (used, nodes) = match self.get(index) {
                Some(group) => (group.used_blocks, group.node_blocks),
                // What is freed there counts for nothing.
                None if self.away.state(index) == BitmapState::Lost => return true,
                None => self.away.used_in(index),
            };
            blocks(used, nodes) >= count
        };
        of_group.into_iter().all(has)
    }
}
