//! What is promised of the free space, before an operation starts, and what is kept for whom (P8).
//!
//! Nodes need whole slots, data takes any block. What is promised to nodes is counted in slots and kept whole: data may
//! break a slot only while more of them are free than are promised and kept. So a promise to a node can always be kept,
//! however data is scattered.

use holdfast_format::Geometry;
use holdfast_format::limits::{BITMAP_BLOCKS, BITMAP_BYTES};

/// Slots that are kept for what is written into reserved blocks, at most: 512 MiB with nodes of 16 KiB. Written in
/// large pieces, that is enough for 200 GiB on a volume that is full all the time.
const RESERVED_SLOTS_MAX: u64 = 32768;

/// Slots that only some may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Floors {
    /// For commits alone: they copy nodes of the space tree.
    pub(crate) checkpoint: u64,
    /// For commits and for operations that write back or shrink.
    pub(crate) fill: u64,
    /// For these, and for the items and checksums of what is written into reserved blocks.
    pub(crate) grow: u64,
}

impl Floors {
    /// For an empty volume with so many slots.
    ///
    /// Commits may copy the whole space tree while the locations of its copies of the epoch before still
    /// wait for their checkpoint, and split some of it; operations that make room need a few nodes
    /// beyond that.
    fn new(geometry: &Geometry, total: u64) -> Floors {
        let pieces = geometry.volume_blocks.div_ceil(BITMAP_BLOCKS);
        let tree_bytes = pieces * (BITMAP_BYTES as u64 + 64);
        let tree_nodes = tree_bytes * 2 / geometry.node_size as u64 + 2;
        let checkpoint = (tree_nodes * 4 + 4).min(total / 4);
        // An unlink reserves for about 40 changes, each with its path to the root: on a small volume
        // that is a larger share.
        let extra = (total / 64).clamp(128, 256).min(total / 4);
        // Reserved blocks that are written one by one all over a file leave an item for each run of them and for each
        // gap: on the way that is a node's bytes for each 50 to 95 of its blocks, and one for each 300 when all is
        // written.
        let reserved = (total / 52).clamp(16, RESERVED_SLOTS_MAX).min(total / 16);
        let fill = checkpoint + extra;
        Floors { checkpoint, fill, grow: fill + reserved }
    }
}

/// What is free.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) blocks: u64,
    /// Whole ones, whose blocks are among these.
    pub(crate) slots: u64,
}

/// What is promised, and kept.
#[derive(Debug)]
pub(crate) struct Promises {
    slot_blocks: u64,
    /// To nodes.
    slots: u64,
    /// To data.
    blocks: u64,
    pub(crate) floors: Floors,
}

impl Promises {
    /// None yet, on an empty volume with so many slots.
    pub(super) fn new(geometry: &Geometry, slots_total: u64) -> Promises {
        let floors = Floors::new(geometry, slots_total);
        Promises { slot_blocks: geometry.node_blocks(), slots: 0, blocks: 0, floors }
    }

    /// Slots that are promised or lie below `floor`.
    pub(crate) fn kept(&self, floor: u64) -> u64 {
        self.slots + floor
    }

    /// Slots that data may break.
    pub(super) fn spare_slots(&self, room: Room, floor: u64) -> u64 {
        room.slots.saturating_sub(self.kept(floor))
    }

    /// Blocks that can be promised to data.
    pub(super) fn data_available(&self, room: Room) -> u64 {
        let kept = self.kept(self.floors.grow).min(room.slots) * self.slot_blocks;
        (room.blocks - kept.min(room.blocks)).saturating_sub(self.blocks)
    }

    /// Blocks that have to be free so that `slots` for nodes and `blocks` for data can be promised above `floor`.
    pub(super) fn wanted_blocks(&self, slots: u64, blocks: u64, floor: u64) -> u64 {
        ((self.kept(floor) + slots) * self.slot_blocks)
            .saturating_add(self.blocks)
            .saturating_add(blocks)
    }

    /// Promises `slots` for nodes and `blocks` for data above `floor`, or nothing.
    pub(super) fn promise(&mut self, room: Room, slots: u64, blocks: u64, floor: u64) -> bool {
        let done = room.slots >= self.kept(floor) + slots
            && room.blocks >= self.wanted_blocks(slots, blocks, floor);
        if done {
            self.slots += slots;
            self.blocks += blocks;
        }
        done
    }

    /// Takes promises back.
    pub(super) fn forget(&mut self, slots: u64, blocks: u64) {
        self.slots -= slots;
        self.blocks -= blocks;
    }

    /// Promises blocks of data once more that had been taken.
    pub(super) fn renew(&mut self, blocks: u64) {
        self.blocks += blocks;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promises() -> Promises {
        let floors = Floors { checkpoint: 1, fill: 2, grow: 3 };
        Promises { slot_blocks: 4, slots: 0, blocks: 0, floors }
    }

    #[test]
    fn slots_are_kept_whole_and_data_has_the_rest() {
        let mut promises = promises();
        // Ten whole slots and five single blocks.
        let room = Room { blocks: 45, slots: 10 };
        assert_eq!(promises.data_available(room), 45 - 3 * 4);
        assert!(promises.promise(room, 4, 0, 3));
        assert_eq!((promises.kept(0), promises.spare_slots(room, 3)), (4, 3));
        assert_eq!(promises.data_available(room), 45 - 7 * 4);
        assert!(!promises.promise(room, 0, 18, 3), "one block too many");
        assert!(promises.promise(room, 0, 17, 3));
        assert!(
            !promises.promise(room, 0, 1, 3) && promises.promise(room, 0, 4, 2),
            "below a floor"
        );
        promises.forget(4, 21);
        assert_eq!((promises.kept(0), promises.wanted_blocks(0, 0, 0)), (0, 0));
        // Blocks enough, but scattered.
        let scattered = Room { blocks: 45, slots: 3 };
        assert!(!promises.promise(scattered, 1, 0, 3) && promises.promise(scattered, 1, 0, 2));
        // More than there can be is no promise and no overflow.
        assert!(!promises.promise(room, 0, u64::MAX, 0));
    }

    #[test]
    fn fewer_slots_than_are_kept_leave_nothing() {
        let promises = promises();
        let room = Room { blocks: 7, slots: 1 };
        assert_eq!((promises.spare_slots(room, 3), promises.data_available(room)), (0, 3));
        assert_eq!(promises.data_available(Room { blocks: 0, slots: 0 }), 0);
    }
}
