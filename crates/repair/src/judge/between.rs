//! What a snapshot before a tree and one that grew out of the tree both have, it had too.
//!
//! Blocks that two of three have in a row the one between them has as well, and it must: else the deletion of the one before
//! would free what the one behind still reaches (S1, docs/BRANCHES.md). And an inode whose item is the same in both has not
//! changed between them, as each change of it counts in its item: so all of its items are the same.
//!
//! Several trees in a row may have the damaged node. The one before has its items back already when one is judged; of those behind, the
//! search goes on until each has been asked that does not lack them.

use std::collections::BTreeSet;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, BlockRange, InodeNo};
use holdfast_format::item::Extent;
use holdfast_format::limits::EXTENT_BLOCKS_MAX;
use holdfast_format::{ItemKind, Key};

use super::Judge;
use crate::walk::{Edits, TreeWork, get, items};

impl Judge<'_, '_> {
    /// Items that are proven come back in place of those that were lost.
    pub(super) fn put_back(&mut self) {
        if self.state.lost.is_empty() || self.state.is_cut {
            return;
        }
        let Some(before) = self.before.iter().find(|of| of.root.id == self.state.root.parent)
        else {
            return;
        };
        let mut edits = Edits::new();
        for lost in &self.state.lost {
            let range = (lost.place.low, lost.place.high);
            for behind in self.behind(range) {
                let mut same = (InodeNo(0), false);
                items(self.reading, before, range, &mut |_, key, value| {
                    if key.inode.0 == 0 || self.state.edits.contains_key(&key) {
                        return;
                    }
                    if same.0 != key.inode {
                        let item = |of| get(self.reading, of, &Key::inode(key.inode));
                        let was = item(before);
                        same = (key.inode, was.is_some() && was == item(behind));
                    }
                    if same.1 {
                        edits.insert(key, Some(value.to_vec()));
                    } else if key.kind == ItemKind::Extent
                        && let Ok(extent) = Extent::decode(value)
                    {
                        self.parts(behind, &key, &extent, &mut edits);
                    }
                });
            }
        }
        edits.retain(|key, _| self.state.may_be_lost(key));
        self.merge(edits);
    }

    /// Trees that grew out of this one and may have items in a range: of those that lack some of it, also those that grew out of them.
    fn behind(&self, range: (Key, Option<Key>)) -> Vec<&TreeWork> {
        let (mut found, mut lacking) = (Vec::new(), BTreeSet::from([self.state.root.id]));
        // Each tree stands behind the one that it grew out of.
        for state in self.behind.iter().filter(|of| !of.is_cut) {
            if lacking.contains(&state.root.parent) {
                found.push(state);
                if !state.lost_in(&range.0, range.1.as_ref()).is_empty() {
                    lacking.insert(state.root.id);
                }
            }
        }
        found
    }

    /// The parts of an extent that another tree has as well.
    fn parts(&self, behind: &TreeWork, key: &Key, extent: &Extent, edits: &mut Edits) {
        let bytes = |blocks: u64| blocks.saturating_mul(BLOCK_BYTES);
        let (start, end) = (key.offset, key.offset.saturating_add(bytes(extent.blocks.count)));
        let low = Key { offset: start.saturating_sub(bytes(EXTENT_BLOCKS_MAX)), ..*key };
        let high = Key { offset: end, ..*key };
        items(self.reading, behind, (low, Some(high)), &mut |_, at, value| {
            let Ok(other) = Extent::decode(value) else { return };
            let from = at.offset.max(start);
            let to = at.offset.saturating_add(bytes(other.blocks.count)).min(end);
            if from >= to || other.birth != extent.birth {
                return;
            }
            let skip = (from - start) / BLOCK_BYTES;
            let there = (from - at.offset) / BLOCK_BYTES;
            let block = extent.blocks.start.0 + skip;
            if other.blocks.start.0 + there != block {
                return;
            }
            let count = (to - from) / BLOCK_BYTES;
            let sums = extent.sums.iter().skip(skip as usize).take(count as usize).copied();
            let part = Extent {
                blocks: BlockRange::new(BlockNo(block), count),
                sums: sums.collect(),
                birth: extent.birth,
            };
            let key = Key { offset: from, ..*key };
            edits.entry(key).or_insert_with(|| Some(part.encode()));
        });
    }
}
