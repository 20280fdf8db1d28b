//! The bitmaps of block groups, as callers see them: which are wanted before something is done, and those that come.

use holdfast_base::{BlockNo, BlockRange};
use holdfast_format::Stored;
use holdfast_format::item::GroupItem;

use super::alloc::Space;
use super::groups::{Pieces, Wants, by_group};
use super::promise::{Floor, Wanted};
use super::slots::NodeSlots;

impl Space {
    /// Fills in what the record of a group says, which comes from the disk.
    pub(crate) fn record(&mut self, index: u64, item: &GroupItem) -> Result<(), String> {
        if index >= self.groups.count() {
            return Err(format!("group {index} lies behind the end of the volume"));
        }
        self.groups.record(index, item)?;
        self.promises.nodes = self.nodes();
        Ok(())
    }

    /// Groups of blocks that come from a disk: none of blocks outside the data zone.
    pub(crate) fn groups_of(&self, range: BlockRange) -> impl Iterator<Item = u64> + use<> {
        let range = match self.geometry().holds_data(range) && !self.is_unknown() {
            true => range,
            false => BlockRange::new(range.start, 0),
        };
        by_group(range).map(|(index, _)| index)
    }

    /// Fails unless the bitmaps of all of `ranges` are in memory, with those that are not.
    pub(crate) fn expect_bitmaps(
        &self,
        ranges: impl IntoIterator<Item = BlockRange>,
    ) -> Result<(), Vec<Wants>> {
        let groups = ranges.into_iter().flat_map(|range| self.groups_of(range));
        let mut away: Vec<u64> = groups.filter(|index| self.groups.is_away(*index)).collect();
        away.sort_unstable();
        away.dedup();
        if away.is_empty() { Ok(()) } else { Err(away.into_iter().map(Wants).collect()) }
    }

    /// Fails unless [`Space::take_node`] finds room for so many nodes in groups whose bitmaps are in memory, with a group that has some.
    pub(crate) fn expect_slots(&self, slots: NodeSlots) -> Result<(), Wants> {
        if self.is_unknown() {
            return Ok(());
        }
        let kept = self.promises.kept_now(Floor::Grow).twice;
        let wanted = self.groups.wanted_for_slots(slots, kept);
        wanted.map_or(Ok(()), |index| Err(Wants(index)))
    }

    /// The group that data goes to next, or nodes, if it has to be loaded first and the ones before it are nearly full.
    pub(crate) fn wanted_soon(&self) -> Option<Wants> {
        self.groups.wanted_soon(self.data_next().0)
    }

    /// Groups that may have more free slots than their records say, if there are too few for `wanted` above `floor`.
    pub(crate) fn unsure_for(&self, wanted: Wanted, floor: Floor, most: usize) -> Vec<Wants> {
        match self.promises.has_slots(self.room(), wanted, floor) {
            true => Vec::new(),
            false => self.unsure(most),
        }
    }

    /// Groups that may have more free slots than their records say.
    pub(crate) fn unsure(&self, most: usize) -> Vec<Wants> {
        self.groups.unsure(most).into_iter().map(Wants).collect()
    }

    /// Takes the bitmap of a group in, which comes from the disk. Fails, and the group counts as full, if it cannot be.
    pub(crate) fn load(&mut self, index: u64, pieces: &Pieces<'_>) -> Result<(), String> {
        let unbacked = self.groups.unbacked_in(index);
        match self.groups.load(index, pieces) {
            Ok(()) => {
                self.may_have_slots(index);
                if let Some(all) = &mut self.unbacked {
                    all.are_known(index, self.groups.unbacked_pieces(index));
                }
                Ok(())
            }
            Err(why) => {
                self.is_not_free(index, unbacked);
                Err(why)
            }
        }
    }

    /// Those of `nodes` that are not marked as in use: they were read before the bitmap of their group.
    pub(crate) fn not_used(&self, nodes: impl Iterator<Item = (BlockNo, Stored)>) -> Vec<BlockNo> {
        let strangers = nodes.filter(|(block, stored)| !self.is_used_by_node(*block, *stored));
        strangers.map(|(block, _)| block).collect()
    }

    /// The bitmap of a group does not read: the group counts as full. False if it was read meanwhile.
    pub(crate) fn lose(&mut self, index: u64) -> bool {
        let is_away = self.groups.is_away(index);
        if is_away {
            let unbacked = self.groups.unbacked_in(index);
            self.groups.lose(index);
            self.is_not_free(index, unbacked);
        }
        is_away
    }

    fn is_not_free(&mut self, index: u64, unbacked: u64) {
        self.promises.nodes = self.nodes();
        if let Some(all) = &mut self.unbacked {
            all.are_lost(index, unbacked);
        }
        self.keep_for_given();
    }

    /// Ends a [`Groups::pin`](super::groups::Groups::pin) of each of these.
    pub(crate) fn unpin_bitmaps(&mut self, indexes: &[u64]) {
        indexes.iter().for_each(|index| self.groups.unpin(*index));
        self.groups.evict();
    }
}
