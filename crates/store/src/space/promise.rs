//! What is promised of the free space, before an operation starts, and what is kept for what (P8).
//!
//! Nodes need whole slots, data takes any block. What is promised to nodes is counted in slots ([`super::slots`]) and kept whole:
//! data may break a slot only while more of them are free than are promised and kept. So a promise to a node can always be kept,
//! however data is scattered. What delayed data may need is kept as well, without a promise: see
//! [`super::delayed`].

use holdfast_base::TreeId;
use holdfast_format::limits::{BITMAP_BLOCKS, BITMAP_BYTES, BITMAPS_PER_GROUP, GROUP_BLOCKS};
use holdfast_format::{Geometry, Stored};

use super::delayed::Delayed;
use super::slots::{NodeSlots, NodesNeeded, Room};

/// Slots that are kept for what is written into reserved blocks, at most: 512 MiB with nodes of 16 KiB, twice that with copies. Written in
/// large pieces, that is enough for 200 GiB on a volume that is full all the time.
const RESERVED_SLOTS_MAX: u64 = 32768;

/// Changes of items that an operation on branches or snapshots by the log makes at most, about.
pub(crate) const LINEAGE_CHANGES: u32 = 8;

/// Pairs of [`Floors::slack`], at most, and blocks of them.
const SLACK_PAIRS_MAX: u64 = 192;
const SLACK_BLOCKS: u64 = 2304;

/// Nodes that an emptied volume has at most, as [`Space::nodes`](super::alloc::Space::nodes) counts: the roots of both trees, and what an
/// emptied space tree has left.
pub(super) fn few_nodes(geometry: &Geometry) -> u64 {
    4 * geometry.slot_blocks() / geometry.blocks_of(geometry.stored(TreeId::Files, 0))
}

/// Slots that only some may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Floors {
    /// For commits alone: they copy nodes of the space tree.
    pub(crate) checkpoint: NodeSlots,
    /// For commits and for operations that write back or shrink.
    pub(crate) fill: NodeSlots,
    /// For these, and for the items and checksums of what is written into reserved blocks. All that is not below
    /// `fill` leaves what delayed data may need.
    pub(crate) grow: NodeSlots,
    /// Pairs of `grow` that data leaves and nodes may take. What a volume gains may hold no pair, where places are the other ones of those in
    /// use, while it keeps more than before: a full one could make no node then.
    slack: u64,
}

/// What a caller has to leave of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Floor {
    /// The half of that of commits.
    HalfCheckpoint,
    Checkpoint,
    Fill,
    Grow,
}

/// What is in use of a volume, or may be given away: of a sparse image what the host has given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given {
    /// Block groups with any of it.
    pub(super) groups: u64,
    pub(super) blocks: u64,
}

impl Given {
    /// The whole volume.
    pub(super) fn all(geometry: &Geometry) -> Given {
        Given { groups: geometry.group_count(), blocks: geometry.data_blocks() }
    }
}

impl Floors {
    /// For a volume that has so many slots where nothing is in use, and of which so much is given: no more is kept than that may need, and
    /// whatever the host gives is more than what it lets be kept.
    ///
    /// Commits may copy the whole space tree while the locations of its copies of the epoch before still
    /// wait for their checkpoint, and split some of it; operations that make room need a few nodes
    /// beyond that.
    pub(super) fn new(geometry: &Geometry, total: u64, given: Given) -> Floors {
        let pieces = geometry.volume_blocks.div_ceil(BITMAP_BLOCKS);
        let pieces = pieces.min(given.groups * BITMAPS_PER_GROUP);
        let tree_bytes = pieces * (BITMAP_BYTES as u64 + 64);
        let tree_nodes = tree_bytes * 2 / geometry.node_size as u64 + 2;
        let checkpoint = (tree_nodes * 4 + 4).min(total / 4);
        // An unlink reserves for about 40 changes, each with its path to the root: on a small volume
        // that is a larger share.
        // Items do not become fewer where a slot has room for a copy as well, nor where only a part of the blocks has one for it.
        let nodes = match geometry.copy_mask {
            0 => total,
            _ => geometry.data_blocks() / geometry.node_blocks(),
        };
        let (all, nodes) = (nodes, nodes.min(given.blocks / geometry.node_blocks()));
        let extra = (nodes / 64).clamp(128, 256).min(total / 4);
        // Reserved blocks that are written one by one with gaps between them leave an item for each and one for each
        // gap: 112 bytes for two blocks, in leaves that are half full at least. A 52nd of the volume is 78 bytes for
        // each of its blocks: enough if 70 in 100 of them are reserved and written so, in leaves that hold nothing else.
        let reserved = (nodes / 52).clamp(16, RESERVED_SLOTS_MAX).min(all / 16);
        let of = |tree, nodes| NodeSlots::of_tree(geometry, tree, nodes);
        let space = NodesNeeded { leaves: 0, above: 0, all: checkpoint };
        // Of a path the leaf is one node, and where reserved blocks are written there is a node above for many leaves.
        let extra = NodesNeeded { leaves: extra / 2, above: extra * 3 / 4, all: extra };
        let above = (reserved / 8).max(12).min(reserved);
        let reserved = NodesNeeded { leaves: reserved, above, all: reserved };
        // What grows by a part of a group may gain no pair and keeps up to 62 more, of nodes of 64 KiB 15. A rename over a file wants 54, in
        // trees of three levels 90, which those of 64 KiB hardly have. A volume of half a group or less has too little for that; what is
        // given slowly becomes more than what it lets be kept.
        let slack = match geometry.copy_mask == 0 || geometry.leaf_copies {
            true => 0,
            false => {
                let most = SLACK_BLOCKS / geometry.blocks_of(Stored::Twice);
                let half_a_group = GROUP_BLOCKS / 2 / geometry.node_blocks();
                (nodes.saturating_sub(half_a_group) / 8).min(SLACK_PAIRS_MAX).min(most)
            }
        };
        let checkpoint = of(TreeId::Space, space);
        let fill = checkpoint + of(TreeId::Files, extra);
        let grow = fill + of(TreeId::Files, reserved) + NodeSlots::of(Stored::Twice, slack);
        Floors { checkpoint, fill, grow, slack }
    }

    /// Slots that it leaves.
    pub(crate) fn at(&self, floor: Floor) -> NodeSlots {
        match floor {
            Floor::HalfCheckpoint => self.checkpoint.half(),
            Floor::Checkpoint => self.checkpoint,
            Floor::Fill => self.fill,
            Floor::Grow => self.grow,
        }
    }
}

/// What is to be promised at once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    /// Slots of nodes.
    pub(crate) slots: NodeSlots,
    /// Blocks of data.
    pub(crate) blocks: u64,
    /// How many of them the tree does not refer to yet.
    pub(crate) growth: u64,
    /// Data that is about to be accepted.
    pub(crate) delayed: Delayed,
}

impl Wanted {
    fn is_nothing(&self) -> bool {
        self.slots == NodeSlots::none() && self.blocks == 0 && self.delayed == Delayed::default()
    }
}

/// What is promised, and kept.
#[derive(Debug)]
pub(crate) struct Promises {
    geometry: Geometry,
    /// To nodes.
    slots: NodeSlots,
    /// To data.
    blocks: u64,
    /// Data that was accepted and is not in the tree yet. Nodes that it may need are kept from all but the writebacks
    /// that bring it there, and what makes room.
    delayed: Delayed,
    /// To data by which trees are to grow, by the numbers of these.
    growth: Vec<u64>,
    /// Nodes of both trees.
    pub(super) nodes: u64,
    /// The most levels of a tree since nothing was delayed last: which tree delayed data is of is not kept.
    levels: u64,
    /// What the next commit may copy of the space tree for the roots of branches that have changed since the last one.
    pub(crate) roots: NodeSlots,
    pub(crate) floors: Floors,
}

impl Promises {
    /// None yet, on an empty volume with so many slots.
    pub(super) fn new(geometry: &Geometry, slots_total: u64) -> Promises {
        Promises {
            geometry: *geometry,
            slots: NodeSlots::none(),
            blocks: 0,
            delayed: Delayed::default(),
            growth: Vec::new(),
            nodes: 0,
            levels: 1,
            roots: NodeSlots::none(),
            floors: Floors::new(geometry, slots_total, Given::all(geometry)),
        }
    }

    /// A caller wants space for a tree of so many levels.
    pub(crate) fn wanted_by(&mut self, levels: u64) {
        let others = if self.delayed == Delayed::default() { 0 } else { self.levels };
        self.levels = levels.max(others);
    }

    /// Slots that are promised or lie below `floor`.
    fn kept(&self, floor: Floor) -> NodeSlots {
        self.slots + self.floors.at(floor)
    }

    /// These, and what the next commit needs beside its floor.
    pub(crate) fn kept_now(&self, floor: Floor) -> NodeSlots {
        self.kept(floor) + self.roots
    }

    /// These, and above the floor of writebacks those that delayed data may need, `more` of it included.
    pub(super) fn kept_for_all(&self, floor: Floor, more: Wanted) -> NodeSlots {
        let kept = self.kept_now(floor) + more.slots;
        if floor < Floor::Fill {
            return kept;
        }
        // Each promised slot may become a node that can be full.
        let promised = self.slots + more.slots;
        let nodes = self.nodes + promised.once + promised.twice;
        let node_size = self.geometry.node_size as u64;
        let delayed = (self.delayed + more.delayed).needs(self.levels, nodes, node_size);
        kept + NodeSlots::of_tree(&self.geometry, TreeId::Files, delayed)
    }

    /// What of the slots data may break, beside what is kept above `floor`.
    pub(super) fn spare_slots(&self, room: Room, floor: Floor) -> Room {
        room.beside(self.kept_for_all(floor, Wanted::default()))
    }

    /// Pairs that have to be whole for what is `kept` above a floor.
    pub(super) fn pairs_of(&self, kept: NodeSlots, floor: Floor) -> u64 {
        match floor {
            Floor::Grow => kept.twice - self.floors.slack,
            Floor::HalfCheckpoint | Floor::Checkpoint | Floor::Fill => kept.twice,
        }
    }

    /// Whether enough slots are free to promise `wanted` above `floor`.
    pub(super) fn has_slots(&self, room: Room, wanted: Wanted, floor: Floor) -> bool {
        let has_leaves = wanted.slots.once > 0 || wanted.delayed != Delayed::default();
        let kept = self.kept_for_all(floor, wanted);
        let whole = NodeSlots { twice: self.pairs_of(kept, floor), ..kept };
        room.holds(whole, self.pairs_left(room, has_leaves).max(kept.twice))
    }

    /// Blocks that can be promised to data when nothing is delayed any more.
    pub(super) fn data_available(&self, room: Room) -> u64 {
        let kept = self.kept(Floor::Grow).places().min(room.places) * self.geometry.node_blocks();
        (room.blocks - kept.min(room.blocks)).saturating_sub(self.blocks)
    }

    /// Blocks that have to be free so that `wanted` can be promised above `floor`.
    pub(super) fn wanted_blocks(&self, wanted: Wanted, floor: Floor) -> u64 {
        self.blocks_for(self.kept_for_all(floor, wanted), wanted.blocks)
    }

    /// Blocks that have to be free before one can be promised to data when nothing is delayed any more, with these floors.
    pub(super) fn kept_blocks(&self, floors: &Floors) -> u64 {
        self.blocks_for(self.slots + floors.grow, 0)
    }

    /// Whether not even a node is free beside what is promised.
    pub(super) fn is_short_of(&self, room: Room) -> bool {
        room.blocks < self.blocks_for(self.slots, self.geometry.node_blocks())
    }

    fn blocks_for(&self, slots: NodeSlots, blocks: u64) -> u64 {
        let of_slots = slots.places().saturating_mul(self.geometry.node_blocks());
        of_slots.saturating_add(self.blocks).saturating_add(blocks)
    }

    /// Pairs that have to stay whole when leaves of files trees are made, as far as they are there: single places are not cut out of those
    /// that are kept. Trees of so few nodes as those of an empty volume never need them all.
    pub(crate) fn pairs_left(&self, room: Room, has_leaves: bool) -> u64 {
        let may_need_all = self.nodes > few_nodes(&self.geometry);
        match has_leaves && !self.geometry.leaf_copies && may_need_all {
            true => (self.floors.grow.twice - self.floors.slack).min(room.pairs),
            false => 0,
        }
    }

    /// Promises all of `wanted` above `floor`, or nothing. A call that wants nothing is never refused, whatever is kept for others: a
    /// hole between the borders of blocks is made on a full volume (P8).
    pub(super) fn promise(&mut self, room: Room, wanted: Wanted, floor: Floor) -> bool {
        let done = wanted.is_nothing()
            || self.has_slots(room, wanted, floor)
                && room.blocks >= self.wanted_blocks(wanted, floor);
        if done {
            self.slots += wanted.slots;
            self.blocks += wanted.blocks;
            self.delayed += wanted.delayed;
        }
        done
    }

    /// What the next commit may copy of the space tree for the roots of branches, from now on.
    pub(crate) fn keep_roots(&mut self, nodes: u64) {
        self.roots = NodeSlots::of(self.geometry.stored(TreeId::Space, 0), nodes);
    }

    /// Blocks that are promised to a tree, and that it does not refer to yet.
    pub(crate) fn growth_of(&self, tree: u32) -> u64 {
        self.growth.get(tree as usize).copied().unwrap_or(0)
    }

    /// A tree is to grow by so many of the blocks that are promised.
    pub(super) fn will_grow(&mut self, tree: u32, blocks: u64) {
        let at = tree as usize;
        if self.growth.len() <= at {
            self.growth.resize(at + 1, 0);
        }
        self.growth[at] += blocks;
    }

    /// It has grown, or does not.
    pub(crate) fn grown(&mut self, tree: u32, blocks: u64) {
        if blocks > 0 {
            self.growth[tree as usize] -= blocks;
        }
    }

    /// So much of the delayed data is in the tree, or gone.
    pub(crate) fn landed(&mut self, delayed: Delayed) {
        self.delayed -= delayed;
    }

    /// Takes promises back.
    pub(crate) fn forget(&mut self, slots: NodeSlots, blocks: u64) {
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
        let geometry = Geometry::for_device(64 << 20, 16384).unwrap();
        let [checkpoint, fill, grow] = [1, 2, 3].map(once);
        Promises {
            geometry,
            slots: NodeSlots::none(),
            blocks: 0,
            delayed: Delayed::default(),
            growth: Vec::new(),
            nodes: 10,
            levels: 2,
            roots: NodeSlots::none(),
            floors: Floors { checkpoint, fill, grow, slack: 0 },
        }
    }

    fn once(count: u64) -> NodeSlots {
        NodeSlots::of(Stored::Once, count)
    }

    fn wanted(slots: u64, blocks: u64) -> Wanted {
        Wanted { slots: once(slots), blocks, ..Wanted::default() }
    }

    fn free(blocks: u64, slots: u64) -> Room {
        Room { blocks, places: slots, pairs: slots }
    }

    #[test]
    fn slots_are_kept_whole_and_data_has_the_rest() {
        let mut promises = promises();
        // Ten whole slots and five single blocks.
        let room = free(45, 10);
        assert_eq!(promises.data_available(room), 45 - 3 * 4);
        assert!(promises.promise(room, wanted(4, 0), Floor::Grow));
        assert_eq!((promises.slots, promises.spare_slots(room, Floor::Grow).places), (once(4), 3));
        assert_eq!(promises.data_available(room), 45 - 7 * 4);
        assert!(!promises.promise(room, wanted(0, 18), Floor::Grow), "one block too many");
        assert!(promises.promise(room, wanted(0, 17), Floor::Grow));
        assert!(
            !promises.promise(room, wanted(0, 1), Floor::Grow)
                && promises.promise(room, wanted(0, 4), Floor::Fill),
            "below a floor"
        );
        promises.forget(once(4), 21);
        assert_eq!(promises.slots, once(0));
        // Blocks enough, but scattered.
        let scattered = free(45, 3);
        assert!(
            !promises.promise(scattered, wanted(1, 0), Floor::Grow)
                && promises.promise(scattered, wanted(1, 0), Floor::Fill)
        );
        // More than there can be is no promise and no overflow.
        assert!(!promises.promise(room, wanted(0, u64::MAX), Floor::Checkpoint));
    }

    /// Delayed data of a deep tree keeps what it needs, whatever is reserved after it.
    #[test]
    fn a_shallow_tree_does_not_speak_for_a_deep_one() {
        let mut promises = promises();
        promises.nodes = 1000;
        let room = free(4000, 1000);
        let delayed = Delayed { runs: 20, pages: 20 };
        promises.wanted_by(5);
        assert!(promises.promise(room, Wanted { delayed, ..Wanted::default() }, Floor::Fill));
        let need = delayed.needs(5, 1000, 4 * 4096).all;
        promises.wanted_by(1);
        assert_eq!(promises.spare_slots(room, Floor::Grow).places, 1000 - 3 - need);
        promises.landed(delayed);
        promises.wanted_by(1);
        assert!(promises.promise(room, Wanted { delayed, ..Wanted::default() }, Floor::Fill));
        let need = delayed.needs(1, 1000, 4 * 4096).all;
        assert_eq!(
            promises.spare_slots(room, Floor::Grow).places,
            1000 - 3 - need,
            "the deep one waits no more"
        );
    }

    /// The roots of branches that have changed are kept from data and from nodes of others.
    #[test]
    fn what_a_commit_carries_is_kept() {
        let mut promises = promises();
        promises.roots = once(4);
        let room = free(45, 10);
        assert_eq!(promises.spare_slots(room, Floor::Grow).places, 10 - 3 - 4);
        assert!(
            !promises.promise(room, wanted(4, 0), Floor::Grow)
                && promises.promise(room, wanted(3, 0), Floor::Grow)
        );
        assert_eq!(promises.data_available(room), 45 - (3 + 3) * 4, "a commit gives them back");
    }

    /// What a grown volume has gained are single places: pairs that data has left are for nodes.
    #[test]
    fn nodes_may_take_pairs_that_data_leaves() {
        let twice = |count| NodeSlots::of(Stored::Twice, count);
        let mut promises = promises();
        promises.geometry = promises.geometry.with_root_copies().unwrap();
        promises.floors = Floors { checkpoint: twice(1), fill: twice(2), grow: twice(6), slack: 3 };
        let room = Room { blocks: 72, places: 18, pairs: 4 };
        let nodes = |count| Wanted { slots: twice(count), ..Wanted::default() };
        assert_eq!(promises.spare_slots(room, Floor::Grow).pairs, 0);
        assert!(!promises.has_slots(room, nodes(2), Floor::Grow));
        assert!(promises.has_slots(room, nodes(1), Floor::Grow));
        let full = Room { places: 13, ..room };
        assert!(!promises.has_slots(full, nodes(1), Floor::Grow), "places are kept for all of it");
        assert!(promises.has_slots(full, nodes(2), Floor::Fill));
    }

    #[test]
    fn fewer_slots_than_are_kept_leave_nothing() {
        let mut promises = promises();
        let room = free(7, 1);
        assert!(promises.promise(room, wanted(0, 0), Floor::Grow), "nothing is there for all");
        assert!(!promises.promise(room, wanted(0, 1), Floor::Grow));
        assert_eq!(
            (promises.spare_slots(room, Floor::Grow).places, promises.data_available(room)),
            (0, 3)
        );
        assert_eq!(promises.data_available(free(0, 0)), 0);
    }

    #[test]
    fn what_delayed_data_may_need_is_kept_from_all_but_what_carries_it_out() {
        let mut promises = promises();
        let room = free(400, 100);
        let delayed = Delayed { runs: 2, pages: 3 };
        let need = delayed.needs(2, 10, 4 * 4096).all;
        assert!(promises.promise(room, Wanted { delayed, ..Wanted::default() }, Floor::Fill));
        assert_eq!(promises.spare_slots(room, Floor::Grow).places, 100 - 3 - need);
        assert!(!promises.promise(room, wanted(98 - need + 1, 0), Floor::Fill));
        assert!(promises.promise(room, wanted(99, 0), Floor::Checkpoint), "a writeback");
        promises.forget(once(99), 0);
        assert!(promises.promise(room, wanted(98 - need, 0), Floor::Fill));
        promises.forget(once(98 - need), 0);
        assert_eq!(promises.data_available(room), (100 - 3) * 4, "it may be written back first");
        promises.landed(delayed);
        assert_eq!(promises.spare_slots(room, Floor::Grow).places, 100 - 3);
        // A tree that grows meanwhile has more leaves that may be full.
        let many = Delayed { runs: 1000, pages: 1000 };
        assert!(promises.promise(
            free(4000, 1000),
            Wanted { delayed: many, ..Wanted::default() },
            Floor::Fill
        ));
        let before = promises.spare_slots(free(4000, 1000), Floor::Grow).places;
        promises.nodes += 50;
        assert_eq!(promises.spare_slots(free(4000, 1000), Floor::Grow).places, before - 100);
    }
}
