//! Where something is put, and what waits to become free. `groups.rs` has the block groups, `promise.rs` says what of
//! the free space is promised and kept.
//!
//! Knows nothing of trees; commits carry dirty groups into theirs.

mod data;
mod reuse;

use holdfast_base::switch::Accounting;
use holdfast_base::{BlockNo, BlockRange, TreeId};
use holdfast_format::limits::GROUP_BLOCKS;
use holdfast_format::{Geometry, Stored};

use super::SpaceUse;
use super::discard::Discards;
use super::freed::{Freed, Unflushed};
use super::group::Group;
use super::groups::{Groups, by_group};
use super::promise::{Floor, Promises, Wanted};
use super::record::Step;
use super::slots::Room;
use super::unbacked::{PIECE_BLOCKS, PIECE_BYTES, Unbacked, by_piece};
use crate::marks::Marks;

/// The space of a volume. Owned by the store, behind one lock.
#[derive(Debug)]
pub(crate) struct Space {
    geometry: Geometry,
    /// Slots where nothing is in use.
    pub(super) slots_total: u64,
    pub(crate) groups: Groups,
    /// Reserved blocks that were written in place since the volume was opened.
    filled: Marks,
    /// Of the rings, as far as they are in use.
    pub(super) ring_blocks: u64,
    pub(crate) promises: Promises,
    /// What was freed and is not reusable yet.
    pub(crate) freed: Freed,
    /// Free space that the device is told of.
    pub(super) discards: Discards,
    /// Data that the next commit makes durable with its own flush.
    pub(crate) unflushed: Unflushed,
    /// No group before it has a free slot.
    node_group: u64,
    /// Where the next data goes that has no goal.
    data_next: BlockNo,
    pub(crate) inodes: u64,
    /// The records of the groups are those of the volume, not of an empty one.
    pub(crate) loaded: bool,
    /// The bitmaps do not read, of a volume that is open to be read: nothing is known to be free.
    is_unknown: bool,
    /// Two owners of one block were met.
    pub(crate) damage: Option<String>,
    /// Nodes of a damaged volume that found no slot.
    beyond_the_end: u64,
    /// What the host has not given yet, if it has to be asked.
    pub(super) unbacked: Option<Unbacked>,
}

impl Space {
    /// Space with nothing in use.
    pub(crate) fn new(geometry: Geometry) -> Space {
        let groups = Groups::new(geometry);
        Space {
            geometry,
            slots_total: groups.free().pairs,
            promises: Promises::new(&geometry, groups.free().pairs),
            groups,
            filled: Marks::default(),
            ring_blocks: geometry.rings().map(|ring| ring.count).sum(),
            freed: Freed::default(),
            discards: Discards::default(),
            unflushed: Unflushed::new(geometry.journal_blocks),
            node_group: 0,
            data_next: BlockNo(
                geometry.first_data_block().0 + (geometry.data_blocks() / 16).next_multiple_of(16),
            ),
            inodes: 0,
            loaded: false,
            is_unknown: false,
            damage: None,
            beyond_the_end: 0,
            unbacked: None,
        }
    }

    /// Space of which nothing is known but how many blocks are in use. Nodes that change get locations behind the end, where none is.
    pub(crate) fn unknown(geometry: Geometry, used_blocks: u64, inodes: u64) -> Space {
        let mut space = Space { inodes, is_unknown: true, ..Space::new(geometry) };
        space.groups.used_blocks = used_blocks.min(geometry.data_blocks());
        space
    }

    /// Whether it is that.
    pub(crate) fn is_unknown(&self) -> bool {
        self.is_unknown
    }

    /// The shape of the volume.
    pub(super) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The volume has this shape from now on, and may have free slots behind the end that it had.
    pub(super) fn has_shape(&mut self, geometry: Geometry) {
        self.node_group = self.node_group.min(self.geometry.far_copy().0 / GROUP_BLOCKS);
        self.geometry = geometry;
        self.slots_total = Groups::slots_of(&geometry);
    }

    /// Where the next data goes that has no goal.
    pub(super) fn data_next(&self) -> BlockNo {
        self.data_next
    }

    /// What is free.
    pub(crate) fn room(&self) -> Room {
        self.groups.free()
    }

    /// Blocks that can be promised to data.
    pub(crate) fn data_available(&self) -> u64 {
        self.promises.data_available(self.room())
    }

    /// Promises all of `wanted`, or nothing.
    pub(crate) fn promise(&mut self, wanted: Wanted, floor: Floor) -> bool {
        self.promises.promise(self.room(), wanted, floor)
    }

    /// Takes room for a node, used from now on. Slots for nodes are kept free; should a damaged
    /// volume have none, the node gets a location behind the end, and the volume stops.
    pub(crate) fn take_node(&mut self, stored: Stored) -> BlockNo {
        if self.is_unknown {
            return self.behind_the_end();
        }
        let single = self.groups.with_singles();
        let single = single.filter(|_| stored == Stored::Once);
        let Some(index) = single.or_else(|| self.groups.with_slots(self.node_group)) else {
            self.damage = Some("no room is left for nodes".into());
            return self.behind_the_end();
        };
        if single.is_none() {
            self.node_group = index;
        }
        let block = self.groups.change(index, |group| {
            let place = match single {
                Some(_) => group.find_single().expect("this group has a free place"),
                None => group.find_slot().expect("this group has a free slot"),
            };
            group.take(place);
            if let Some(copy) = group.copy_of(place).filter(|_| stored == Stored::Twice) {
                group.take(copy);
            }
            group.blocks(place).start
        });
        for place in self.places_of_node(block, stored) {
            self.set_used(place, true, true);
        }
        block
    }

    fn behind_the_end(&mut self) -> BlockNo {
        self.beyond_the_end += 1;
        BlockNo(self.geometry.volume_blocks + self.beyond_the_end * self.geometry.slot_blocks())
    }

    /// The blocks of the node at `block`, and those of its copy.
    pub(crate) fn places_of_node(
        &self,
        block: BlockNo,
        stored: Stored,
    ) -> impl Iterator<Item = BlockRange> + use<> {
        self.geometry.places_of_node(block, stored)
    }

    /// Takes these very blocks, which come from a log; false, and nothing is changed, if one of them is not free.
    pub(crate) fn claim(&mut self, range: BlockRange) -> bool {
        if self.is_unknown {
            return true;
        }
        let is_free = self.groups.is_free(range);
        if is_free {
            for (index, part) in by_group(range) {
                self.groups.change(index, |group| group.take(group.run(part)));
            }
        }
        is_free
    }

    /// Gives blocks back that were taken and never used.
    pub(crate) fn release(&mut self, range: BlockRange) {
        if self.unbacked.is_none() {
            return self.make_free(range);
        }
        for piece in by_piece(range) {
            if !self.unbacked.as_ref().is_some_and(|unbacked| unbacked.holds(piece.start)) {
                self.make_free(piece);
                continue;
            }
            // A piece lies in one group.
            let index = piece.start.0 / GROUP_BLOCKS;
            if self.groups.is_lost(index) {
                continue;
            }
            self.groups.change(index, |group| group.hide_again(piece));
            if let Some(unbacked) = &mut self.unbacked {
                unbacked.add(piece);
            }
        }
    }

    /// Gives blocks back that were taken for data, and promises them once more.
    pub(crate) fn take_back(&mut self, range: BlockRange) {
        self.release(range);
        self.promises.renew(range.count);
    }

    fn make_free(&mut self, range: BlockRange) {
        for (index, part) in by_group(range) {
            if !self.groups.is_lost(index) {
                self.groups.change(index, |group| group.release(part));
                self.may_have_slots(index);
            }
        }
    }

    fn set_used(&mut self, range: BlockRange, used: bool, node: bool) {
        if self.is_unknown {
            return;
        }
        self.groups.set_used(range, used, node);
        self.promises.nodes = self.nodes();
    }

    /// Says that taken blocks belong to a file from now on.
    pub(crate) fn publish(&mut self, range: BlockRange) {
        self.set_used(range, true, false);
    }

    /// Free blocks of a piece are unbacked no more. Returns how many.
    pub(super) fn show(&mut self, range: BlockRange) -> u64 {
        let before = self.room().blocks;
        for (index, part) in by_group(range) {
            if !self.groups.is_lost(index) {
                self.groups.change(index, |group| group.show(part));
                self.may_have_slots(index);
            }
        }
        self.room().blocks - before
    }

    /// The group may have a free slot from now on.
    pub(super) fn may_have_slots(&mut self, index: u64) {
        if self.groups.free_in(index).pairs > 0 {
            self.node_group = self.node_group.min(index);
        }
    }

    /// Whether every block of `range`, which may come from a damaged disk, is in use and not a
    /// block outside the data zone.
    pub(crate) fn is_used(&self, range: BlockRange) -> bool {
        self.is_unknown || self.groups.is_used(range)
    }

    /// Whether no block of `range` may be given away: each is in use, or was taken.
    pub(crate) fn is_busy(&self, range: BlockRange) -> bool {
        self.is_unknown || self.groups.is_busy(range)
    }

    /// Whether the blocks of a node at `block`, which may come from a damaged disk, and those of its copy are in use.
    pub(crate) fn is_used_by_node(&self, block: BlockNo, stored: Stored) -> bool {
        self.places_of_node(block, stored).all(|place| self.is_used(place))
    }

    /// Whether they are, and by nodes, as far as their group knows.
    pub(crate) fn is_node(&self, block: BlockNo, stored: Stored) -> bool {
        let places: Vec<_> = self.places_of_node(block, stored).collect();
        self.is_used_by_node(block, stored) && self.can_be_nodes(&places)
    }

    /// Whether all of `ranges`, which do not overlap and are in use, can be nodes.
    pub(crate) fn can_be_nodes(&self, ranges: &[BlockRange]) -> bool {
        self.is_unknown || self.groups.can_be_nodes(ranges)
    }

    /// Whether all of `ranges`, which do not overlap and are in use, can be data.
    pub(crate) fn can_be_data(&self, ranges: &[BlockRange]) -> bool {
        self.is_unknown || self.groups.can_be_data(ranges)
    }

    /// The blocks, which are in use, are being written in place; false, and nothing is changed, if one of them was.
    pub(super) fn begin_filling(&mut self, range: BlockRange) -> bool {
        let is_first = !self.filled.touches(range);
        if is_first {
            self.filled.set(range, true);
        }
        is_first
    }

    /// The blocks hold no data that was written in place: they are free, or reserved again.
    pub(crate) fn forget_filled(&mut self, range: BlockRange) {
        self.filled.set(range, false);
    }

    /// What must be done so that the tree holds the present record of a group.
    pub(crate) fn step(&mut self, index: u64, accounting: Accounting) -> Step {
        let geometry = self.geometry;
        self.group(index).step(&geometry, accounting)
    }

    /// A group whose bitmap is in memory.
    pub(crate) fn group(&mut self, index: u64) -> &mut Group {
        self.groups.get_mut(index)
    }

    /// Nodes of all trees, at most: how many of them are stored twice is not known.
    pub(crate) fn nodes(&self) -> u64 {
        let leaf = self.geometry.stored(TreeId::Files, 0);
        self.groups.node_blocks / self.geometry.blocks_of(leaf)
    }

    /// Blocks in use.
    pub(crate) fn used_blocks(&self) -> u64 {
        self.groups.used_blocks
    }

    /// How full the volume is. `room`: what the host can still give, and `given` what it has, in bytes.
    pub(crate) fn space_use(&self, room: Option<u64>, given: u64) -> SpaceUse {
        let total = self.geometry.data_blocks();
        let free = total - self.used_blocks();
        let idle = given.saturating_sub(self.known_bytes());
        let room = room.map(|room| room.saturating_add(idle));
        // They come back; those of a host are among the unbacked ones.
        let aside = if self.unbacked.is_none() { self.discards.blocks } else { 0 };
        let available = match &self.unbacked {
            None => self.data_available(),
            Some(unbacked) => {
                // Whole pieces, as it is asked for: of a part that it gave and then refused the rest, nothing is known.
                let whole = |room: u64| room / PIECE_BYTES * PIECE_BLOCKS;
                let given = room.map_or(unbacked.blocks, |room| whole(room).min(unbacked.blocks));
                (self.room().blocks + given)
                    .saturating_sub(self.promises.kept_blocks(&self.floors_with(given)))
            }
        };
        SpaceUse {
            total,
            free,
            available: (available + aside + self.freed.blocks()).min(free),
            inodes: self.inodes,
        }
    }
}
