//! The records and bitmaps of block groups on their way into the space tree (M1).
//!
//! A group's record is compared as a whole with what the tree holds; if it is
//! equal the tree is not touched. Bitmaps have a mark of their own: a block
//! freed and another taken leave the record equal, and the bitmap not.
//!
//! Carrying a group takes and frees nodes, which makes groups dirty again; each
//! node is copied once in an epoch, so it ends.

use holdfast_base::clock::Stopwatch;
use holdfast_base::mutants::{self, Mutant};
use holdfast_format::Key;
use holdfast_format::item::GroupItem;
use holdfast_format::item::group::bitmap_key;
use holdfast_format::limits::BITMAPS_PER_GROUP;

use crate::apply::{Halt, Slots};
use crate::room::slots_at_most;
use crate::space::Wants;
use crate::space::alloc::Space;
use crate::space::record::Step;
use crate::space::slots::NodeSlots;
use crate::tree::{Forest, Missing, MissingSet, TreeNo};
use crate::{Inner, Result};

/// Groups carried under one hold of the lock, before commit begin stops all operations.
const AT_ONCE: usize = 16;
/// Groups of which it is said together what they miss.
const MISSED_MAX: usize = 256;

/// What the next dirty groups miss, as far as it is known before one of them is carried.
fn add_missing(forest: &Forest, space: &mut Space, most: usize, missing: &mut MissingSet) {
    let next: Vec<u64> = space.groups.all_dirty().take(most.min(MISSED_MAX)).collect();
    for index in next {
        if space.groups.is_away(index) {
            missing.add_group(index);
            continue;
        }
        if space.groups.is_lost(index) {
            continue;
        }
        let pieces: Vec<Key> =
            space.group(index).dirty_pieces().map(|piece| bitmap_key(index, piece)).collect();
        for key in pieces.iter().chain([&GroupItem::key(index)]) {
            let looked = forest.get(TreeNo::SPACE, key);
            if looked.is_err_and(|one| !missing.add(one)) {
                return;
            }
        }
    }
}

impl Inner {
    /// Carries most of the dirty groups while writers go on between, so that little is left for the
    /// time in which they are frozen; and reads the nodes that it needs.
    pub(crate) fn carry_groups_early(&self) -> Result<()> {
        let time = Stopwatch::start();
        self.load_ahead();
        // Writers make groups dirty meanwhile; the freeze takes care of those.
        let rounds = self.space.lock().groups.dirty_count() / AT_ONCE + 1;
        for _ in 0..rounds {
            self.stop_changers(|forest, space| {
                self.check_damage(space)?;
                self.carry_groups(forest, space, AT_ONCE).map_err(Halt::Missing)
            })?;
        }
        self.counters.early_groups_ns.add(time.nanos());
        Ok(())
    }

    /// Carries up to `most` dirty groups into the space tree. Where one misses something, it says as well what others miss: they are read together.
    pub(crate) fn carry_groups(
        &self,
        forest: &mut Forest,
        space: &mut Space,
        most: usize,
    ) -> std::result::Result<(), MissingSet> {
        for carried in 0..most {
            let Some(index) = space.groups.next_dirty() else {
                return Ok(());
            };
            if let Err(mut missing) = self.carry_group(forest, space, index) {
                add_missing(forest, space, most - carried, &mut missing);
                return Err(missing);
            }
        }
        Ok(())
    }

    fn carry_group(
        &self,
        forest: &mut Forest,
        space: &mut Space,
        index: u64,
    ) -> std::result::Result<(), MissingSet> {
        if space.groups.is_away(index) {
            // Nodes were freed there.
            return Err(Wants(index).into());
        }
        if space.groups.is_lost(index) {
            space.groups.take_dirty();
            return Ok(());
        }
        let tree = TreeNo::SPACE;
        space.expect_slots(slots_at_most(forest, tree, BITMAPS_PER_GROUP as usize + 1))?;
        let group_key = GroupItem::key(index);
        let piece_key = |piece| bitmap_key(index, piece);
        let step = space.step(index, self.accounting);
        // First everything that can fail: from here on the record is as the tree holds it, or written.
        let of_record = match step {
            Step::Skip => None,
            Step::Put(_) => Some(forest.prepare(tree, &group_key, false)?),
            Step::Delete => Some(forest.prepare(tree, &group_key, true)?),
        };
        let of_pieces = (space.group(index).dirty_pieces())
            .map(|piece| forest.prepare(tree, &piece_key(piece), true))
            .collect::<std::result::Result<Vec<_>, Missing>>()?;
        let taken = space.groups.take_dirty();
        assert_eq!(taken, Some(index), "nobody else takes groups under this lock");
        let pieces = space.group(index).take_dirty();
        if let Some(prepared) = of_record {
            self.counters.group_records_written.increment();
            let before = space.group(index).record;
            space.group(index).record.begin();
            let slots = &mut Slots { space, promised: &mut NodeSlots::none() };
            match &step {
                Step::Put(item) => forest.put(tree, &group_key, &item.bytes(), prepared, slots),
                Step::Delete | Step::Skip => forest.delete(tree, &group_key, prepared, slots),
            }
            space.group(index).record.finish(step);
            if mutants::is(Mutant::RecordStale) {
                space.group(index).record = before;
            }
        } else {
            self.counters.group_records_skipped.increment();
        }
        for ((piece, bytes), prepared) in pieces.into_iter().zip(of_pieces) {
            let slots = &mut Slots { space, promised: &mut NodeSlots::none() };
            match bytes {
                Some(bytes) => forest.put(tree, &piece_key(piece), &bytes, prepared, slots),
                None => forest.delete(tree, &piece_key(piece), prepared, slots),
            }
        }
        Ok(())
    }

    /// Reads every record back and compares it with the remembered one (R6). Fails if a leaf is not in memory.
    #[cfg(debug_assertions)]
    pub(crate) fn compare_groups(
        &self,
        forest: &Forest,
        space: &mut Space,
    ) -> std::result::Result<(), MissingSet> {
        use crate::space::record::Record;
        for index in space.groups.in_memory() {
            let found = match forest.get(TreeNo::SPACE, &GroupItem::key(index))? {
                None => Record::Absent,
                Some(item) => Record::InTree(
                    holdfast_format::item::GroupItem::decode(item).expect("the program wrote it"),
                ),
            };
            let remembered = space.group(index).record;
            assert_eq!(remembered, found, "group {index} is remembered wrongly (R6)");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use holdfast_base::{BlockNo, BlockRange};
    use holdfast_format::limits::{BITMAP_BLOCKS, GROUP_BLOCKS};

    use super::*;
    use crate::lineage::lies_tests::made_of;

    /// Groups with neither rings nor nodes in them.
    const GROUPS: std::ops::Range<u64> = 8..32;

    /// A block of each group comes into use.
    fn take_one_of_each(inner: &Inner, at: u64) {
        for index in GROUPS {
            let one = BlockRange::new(BlockNo(index * GROUP_BLOCKS + 77 + at), 1);
            let mut space = inner.space.lock();
            assert!(space.claim(one));
            space.publish(one);
        }
    }

    /// Nothing is in memory of the leaves of many dirty groups: they come together, and not each with a try of its own.
    #[test]
    fn what_dirty_groups_miss_is_read_together() {
        let (_, store) = made_of((GROUPS.end + 1) * GROUP_BLOCKS * 4096);
        let inner = &store.inner;
        (0..BITMAPS_PER_GROUP).for_each(|piece| take_one_of_each(inner, piece * BITMAP_BLOCKS));
        store.checkpoint().unwrap();
        take_one_of_each(inner, 9);
        let mut tries = 0;
        let carry = |forest: &mut Forest, space: &mut Space| {
            tries += 1;
            forest.cache.evict_all();
            inner.carry_groups(forest, space, usize::MAX).map_err(Halt::Missing)
        };
        inner.stop_changers(carry).unwrap();
        let levels = usize::from(inner.forest.read().root(TreeNo::SPACE).level) + 1;
        assert!(tries <= 2 * levels + 1, "{tries} tries in a tree of {levels} levels");
        assert_eq!(inner.space.lock().groups.dirty_count(), 0);
    }
}
