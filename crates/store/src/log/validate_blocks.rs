//! Where the blocks come from that a batch gives back: whether they are its branch's own (S1).
//!
//! ```text
//!  taken by the log:               of no snapshot, as every snapshot is older than the log
//!  of the tree before the log:     with the birth, and at the place, that the tree has
//!  named by the log alone:         never given back
//! ```
//!
//! The birth of an extent that a batch puts counts for nothing: what it was before the log is carried along, however extents
//! were cut and joined since. So a batch that lies about a birth frees nothing that a snapshot has.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{Epoch, InodeNo};
use holdfast_format::Key;
use holdfast_format::item::Extent;
use holdfast_format::log::Dropped;

/// First block of a range, and the first behind it.
pub(super) type Span = (u64, u64);

/// Blocks that the tree of a branch had before the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) birth: Epoch,
    inode: InodeNo,
    /// Where in the file the first of them lies.
    offset: u64,
}

impl Part {
    /// Those of an extent at a key of a tree.
    pub(super) fn of(key: &Key, extent: &Extent) -> Option<Part> {
        let (start, end) = (extent.blocks.start.0, extent.blocks.end()?.0);
        Some(Part { start, end, birth: extent.birth, inode: key.inode, offset: key.offset })
    }

    /// Where in the file a block of it lies.
    fn place(&self, block: u64) -> u64 {
        self.offset.saturating_add(block.saturating_sub(self.start).saturating_mul(BLOCK_BYTES))
    }

    /// What of it lies in a range.
    fn within(&self, (start, end): Span) -> Option<Part> {
        let (from, to) = (self.start.max(start), self.end.min(end));
        let offset = self.place(from);
        (from < to).then_some(Part { start: from, end: to, offset, ..*self })
    }

    /// What of it another extent has, where the tree had it.
    fn kept_by(&self, key: &Key, span: Span) -> Option<Part> {
        let part = self.within(span)?;
        let behind = part.start.saturating_sub(span.0).saturating_mul(BLOCK_BYTES);
        let is_there = (part.inode, part.offset) == (key.inode, key.offset.saturating_add(behind));
        is_there.then_some(part)
    }
}

/// What the keys of one branch hold that a batch changes: in the order of the blocks, none twice.
#[derive(Debug, Default)]
pub(super) struct Parts(Vec<Part>);

impl Parts {
    /// Of all parts. In a damaged tree they may lie over one another: then a block is the first one's that has it, in the order
    /// that FORMAT.md says.
    pub(super) fn of(mut all: Vec<Part>) -> Parts {
        all.sort_unstable_by_key(|of| (of.start, of.end, of.inode, of.offset, of.birth));
        let mut parts: Vec<Part> = Vec::with_capacity(all.len());
        for part in all {
            let done = parts.last().map_or(0, |last| last.end);
            parts.extend(part.within((done, u64::MAX)));
        }
        Parts(parts)
    }

    /// Those that have a block of a range.
    fn overlapping(&self, (start, end): Span) -> impl Iterator<Item = &Part> {
        let from = self.0.partition_point(|part| part.end <= start);
        self.0.iter().skip(from).take_while(move |part| part.start < end)
    }

    /// What new extents keep of them, by their keys. Each part goes to one extent: no two of a file have one block, and where
    /// they claim one all the same, it is the first one's, in the order of blocks, ends and keys.
    pub(super) fn kept<'a>(
        &self,
        extents: impl Iterator<Item = (&'a Key, Span)>,
    ) -> BTreeMap<Key, Vec<Part>> {
        let mut extents: Vec<(Span, &Key)> = extents.map(|(key, span)| (span, key)).collect();
        extents.sort_unstable();
        let mut kept: BTreeMap<Key, Vec<Part>> = BTreeMap::new();
        let mut done = 0;
        for (span, key) in extents {
            let mut parts = Vec::new();
            for part in self.overlapping((span.0.max(done), span.1)) {
                parts
                    .extend(part.within((done, u64::MAX)).and_then(|part| part.kept_by(key, span)));
            }
            done = done.max(span.1);
            kept.insert(*key, parts);
        }
        kept
    }

    /// Those that are younger than a parent of this epoch (0: there is none).
    pub(super) fn younger(&self, parent: Epoch) -> impl Iterator<Item = Span> {
        let is_own = move |part: &&Part| parent == Epoch(0) || part.birth > parent;
        self.0.iter().filter(is_own).map(|part| (part.start, part.end))
    }

    /// Those that are as old as a record says, where it says.
    pub(super) fn as_said(&self, of: &Dropped, span: Span) -> impl Iterator<Item = Span> {
        let fits = move |part: &&Part| part.birth == of.birth;
        let parts = self.overlapping(span).filter(fits);
        parts.filter_map(move |part| part.kept_by(&of.at, span)).map(|part| (part.start, part.end))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects)]

    use super::*;
    use holdfast_base::{BlockNo, BlockRange};
    use holdfast_format::ItemKind;

    fn key(block: u64) -> Key {
        Key::new(InodeNo(20), ItemKind::Extent, block * BLOCK_BYTES)
    }

    fn part(first: u64, start: u64, count: u64, birth: u64) -> Part {
        let blocks = BlockRange::new(BlockNo(start), count);
        let extent = Extent { birth: Epoch(birth), ..Extent::new(blocks, Vec::new()) };
        Part::of(&key(first), &extent).unwrap()
    }

    /// An extent is cut, and its end is joined with others: each block keeps its birth, and what the log adds has none.
    #[test]
    fn what_is_cut_and_joined_is_as_old_as_it_was() {
        let parts = Parts::of(vec![part(4, 100, 8, 5), part(12, 108, 2, 7)]);
        let (cut, joined, moved) = (key(4), key(9), key(40));
        let kept = parts
            .kept([(&cut, (100, 103)), (&joined, (105, 120)), (&moved, (103, 105))].into_iter());
        assert_eq!(kept[&cut], [part(4, 100, 3, 5)]);
        assert_eq!(kept[&joined], [part(9, 105, 3, 5), part(12, 108, 2, 7)]);
        assert_eq!(kept[&moved], [], "no block moves within a file");
        let again = Parts::of(kept[&joined].clone());
        assert_eq!(again.younger(Epoch(5)).collect::<Vec<_>>(), [(108, 110)]);
        assert_eq!(again.younger(Epoch(0)).collect::<Vec<_>>(), [(105, 108), (108, 110)]);
        let dropped = |first: u64, start: u64, count, birth| Dropped {
            blocks: BlockRange::new(BlockNo(start), count),
            birth: Epoch(birth),
            at: key(first),
        };
        let said = |of: Dropped| {
            let span = (of.blocks.start.0, of.blocks.start.0 + of.blocks.count);
            again.as_said(&of, span).collect::<Vec<_>>()
        };
        assert_eq!(said(dropped(10, 106, 2, 5)), [(106, 108)]);
        assert_eq!(said(dropped(10, 106, 2, 6)), []);
        assert_eq!(said(dropped(11, 106, 2, 5)), []);
        assert_eq!(said(dropped(9, 105, 5, 7)), [(108, 110)]);
    }

    /// However many extents claim a block, one gets it, and nothing grows with their product.
    #[test]
    fn what_many_claim_is_given_once() {
        let parts = Parts::of((0..100).map(|n| part(n, 1000 + n, 1, 5)).collect());
        let keys: Vec<Key> = (0..100).map(key).collect();
        let kept = parts.kept(keys.iter().map(|key| (key, (1000, 1100))));
        assert_eq!(kept.values().map(Vec::len).sum::<usize>(), 100);
        let twice = Parts::of(vec![part(0, 10, 8, 5), part(50, 12, 2, 9), part(60, 16, 4, 9)]);
        assert_eq!(twice.younger(Epoch(4)).collect::<Vec<_>>(), [(10, 18), (18, 20)]);
    }
}
