//! Tree nodes in memory.
//!
//! ```text
//!            load                      change (a new location)
//!   (absent) ----> Clean ------------------------------------> Dirty
//!       ^           | ^                                          |
//!       |  evict    | | written                                  | seal
//!       +-----------+ +---------------- Sealed <-----------------+
//! ```
//!
//! A node is changed in place only in the epoch it was born in, and each commit
//! logs what changed since the one before ([`freeze`]); after the seal of a checkpoint its bytes are shared with the
//! writer. The next change gives the node a new location; it takes the bytes along if the writer is done with them, and
//! copies them if not. Dirty and sealed nodes are never evicted, nor those that a caller has pinned.
//!
//! Knows nothing of items, and of keys only what a search looks at first ([`key_prefixes`]).

pub(crate) mod dirty;
mod frame;
mod frames;
mod freeze;
pub(crate) mod key_prefixes;

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdfast_base::counters::Counters;
use holdfast_base::switch::Dirty;
use holdfast_base::{BlockNo, BlockRange, Epoch};
use holdfast_format::journal::Base;
use holdfast_format::node::{ADDRESS_AT, EPOCH_AT};
use holdfast_format::{Geometry, NodePointer, Stored, node};
use rustc_hash::FxHashMap;

use dirty::{Marked, Tracker};
use frame::FrameState;
pub(crate) use frame::{Body, Frame, Node};
use frames::Frames;
pub(crate) use freeze::FrozenNodes;
use key_prefixes::KeyPrefixes;

use crate::space::slots::NodeSlots;

/// So many nodes above the budget, only nodes that a caller asked for are taken in.
const CROWD: usize = 64;

/// A sealed node on its way to its location.
#[derive(Debug)]
pub(crate) struct SealedNode {
    pub(crate) block: BlockNo,
    pub(crate) bytes: Arc<[u8]>,
}

/// All nodes in memory. Owned by the forest, under its lock.
#[derive(Debug)]
pub(crate) struct Cache {
    frames: Frames,
    /// The clean nodes, in the order in which they are looked at for eviction, and blocks that have none any more.
    clock: VecDeque<BlockNo>,
    /// Blocks whose nodes are not evicted, and how many callers want that.
    pinned: FxHashMap<BlockNo, u32>,
    /// Nodes born since the last seal.
    dirty: Vec<BlockNo>,
    dirty_count: NodeSlots,
    /// Nodes that changed since the last commit, so that a commit need not search the whole cache.
    uncommitted: Vec<BlockNo>,
    uncommitted_slots: NodeSlots,
    uncommitted_bytes: usize,
    /// Nodes gone since the last commit that earlier commits know.
    cancelled: Vec<BlockNo>,
    how: Dirty,
    /// Says how often a node is stored; the volume's size may have become another.
    geometry: Geometry,
    node_size: usize,
    frames_max: usize,
    counters: Arc<Counters>,
}

impl Cache {
    /// A cache of `budget` bytes, at least 32 nodes of such a volume, that remembers changes as `how` says.
    pub(crate) fn new(
        budget: usize,
        geometry: Geometry,
        how: Dirty,
        counters: Arc<Counters>,
    ) -> Cache {
        let node_size = geometry.node_size;
        Cache {
            frames: Frames::default(),
            clock: VecDeque::new(),
            pinned: FxHashMap::default(),
            dirty: Vec::new(),
            dirty_count: NodeSlots::none(),
            uncommitted: Vec::new(),
            uncommitted_slots: NodeSlots::none(),
            uncommitted_bytes: 0,
            cancelled: Vec::new(),
            how,
            geometry,
            node_size,
            frames_max: (budget / node_size).max(32),
            counters,
        }
    }

    /// The node at `pointer`, if it is in memory.
    #[inline]
    pub(crate) fn get(&self, pointer: NodePointer) -> Option<&Frame> {
        let frame = self.frames.get(&pointer.block)?;
        // A stale read can leave an older node under an address that has a new owner.
        if frame.epoch != pointer.epoch {
            return None;
        }
        if !frame.referenced.load(Ordering::Relaxed) {
            frame.referenced.store(true, Ordering::Relaxed);
        }
        Some(frame)
    }

    /// Whether the node at `pointer` is in memory. Asking does not count as a use.
    pub(crate) fn holds(&self, pointer: NodePointer) -> bool {
        self.frames.get(&pointer.block).is_some_and(|frame| frame.epoch == pointer.epoch)
    }

    /// Keeps the node at `pointer` in memory until [`Cache::unpin`], as long as it is part of its tree. False if it is not here.
    pub(crate) fn pin(&mut self, pointer: NodePointer) -> bool {
        let is_here = self.holds(pointer);
        if is_here {
            *self.pinned.entry(pointer.block).or_default() += 1;
        }
        is_here
    }

    /// Ends a [`Cache::pin`] of each of these.
    pub(crate) fn unpin(&mut self, blocks: &[BlockNo]) {
        for block in blocks {
            if let Entry::Occupied(mut pins) = self.pinned.entry(*block) {
                *pins.get_mut() -= 1;
                if *pins.get() == 0 {
                    pins.remove();
                }
            }
        }
    }

    /// The clean ones of these leave memory.
    pub(crate) fn forget_clean(&mut self, blocks: &[BlockNo]) {
        for block in blocks {
            if self.frames.get(block).is_some_and(|frame| frame.state == FrameState::Clean) {
                self.frames.remove(block);
                self.counters.nodes_evicted.increment();
            }
        }
    }

    /// As much goes as may go, as if many others had read meanwhile.
    #[cfg(test)]
    pub(crate) fn evict_all(&mut self) {
        let before = std::mem::replace(&mut self.frames_max, 0);
        self.frames.all().for_each(|(_, frame)| frame.referenced.store(false, Ordering::Relaxed));
        let mut left = usize::MAX;
        while self.frames.len() < left {
            left = self.frames.len();
            self.evict();
        }
        self.frames_max = before;
    }

    /// A copy of the node at `pointer`, if its location does not hold it yet.
    pub(crate) fn not_written(&self, pointer: NodePointer) -> Option<Vec<u8>> {
        let frame = self.frames.get(&pointer.block)?;
        let is_it = frame.epoch == pointer.epoch && frame.state != FrameState::Clean;
        is_it.then(|| frame.node().bytes().to_vec())
    }

    /// Whether the budget is exceeded by more than what one read brings.
    pub(crate) fn is_crowded(&self) -> bool {
        self.frames.len() > self.frames_max + CROWD + self.pinned.len()
    }

    /// Changes the dirty node at `block`, which must be in memory. `change` returns what it marked.
    #[inline]
    pub(crate) fn edit<R>(
        &mut self,
        block: BlockNo,
        change: impl FnOnce(&mut [u8], &mut KeyPrefixes, &mut Tracker) -> (R, Marked),
    ) -> R {
        let frame =
            self.frames.get_mut(&block).expect("a dirty node stays in memory until it is sealed");
        let (bytes, prefixes, tracker) = frame.edit();
        let (result, marked) = change(bytes, prefixes, tracker);
        if !frame.listed {
            frame.listed = true;
            self.uncommitted.push(block);
            let stored = node::stored(frame.node().bytes(), &self.geometry);
            self.uncommitted_slots += NodeSlots::of(stored, 1);
        }
        self.uncommitted_bytes += marked.grown as usize;
        if marked.merges > 0 {
            self.counters.range_merges_forced.add(marked.merges.into());
            self.counters.range_slack_bytes.add(marked.slack.into());
        }
        result
    }

    /// Takes in a new node.
    pub(crate) fn insert_new(&mut self, pointer: NodePointer, body: Body) {
        let frame =
            Frame::dirty(body, pointer.epoch, Base::Zeros, Tracker::new(self.how, self.node_size));
        self.insert(pointer.block, frame);
        // It is part of the next commit although nothing was marked in it yet.
        self.edit(pointer.block, |_, _, _| ((), Marked::default()));
    }

    /// Takes in the copy of a node.
    pub(crate) fn insert_copy(&mut self, pointer: NodePointer, of: NodePointer, body: Body) {
        let frame = Frame::dirty(
            body,
            pointer.epoch,
            Base::Copied(of),
            Tracker::new(self.how, self.node_size),
        );
        self.insert(pointer.block, frame);
    }

    /// Takes a node in. Evicts nothing: a change may be under way that needs what is here.
    fn insert(&mut self, block: BlockNo, frame: Frame) {
        if frame.state == FrameState::Dirty {
            self.dirty.push(block);
            self.dirty_count +=
                NodeSlots::of(node::stored(frame.node().bytes(), &self.geometry), 1);
        } else {
            self.clock.push_back(block);
        }
        if let Some(old) = self.frames.insert(block, frame) {
            assert_ne!(old.state, FrameState::Dirty, "two nodes claim block {block}");
        }
    }

    /// Takes in a node that was read, unless its location has a newer owner in memory: then false.
    pub(crate) fn insert_clean(&mut self, pointer: NodePointer, body: Body) -> bool {
        let NodePointer { block, epoch } = pointer;
        let is_newest = self.frames.get(&block).is_none_or(|old| old.epoch < epoch);
        if is_newest {
            self.insert(block, Frame::clean(body, epoch, Tracker::new(self.how, self.node_size)));
        }
        is_newest
    }

    /// The nodes in memory that lie in a range, and how often each is stored.
    pub(crate) fn within(&self, range: BlockRange) -> impl Iterator<Item = (BlockNo, Stored)> {
        let stored = |frame: &Frame| node::stored(frame.node().bytes(), &self.geometry);
        self.frames.within(range).map(move |(block, frame)| (block, stored(frame)))
    }

    /// Drops a node that left its tree.
    pub(crate) fn remove(&mut self, block: BlockNo) {
        drop(self.take_out(block));
    }

    /// Takes out the node at `block`, which must be in memory, for one with the same content and a location of its own.
    pub(crate) fn succeed(&mut self, block: BlockNo) -> Body {
        self.take_out(block).expect("a node is copied only after it was seen here").into_body()
    }

    /// The content of the node at `block`, which must be in memory and stays: a snapshot has it.
    pub(crate) fn body_of(&self, block: BlockNo) -> Body {
        let frame = self.frames.get(&block).expect("a node is copied only after it was seen here");
        frame.copied_body()
    }

    fn take_out(&mut self, block: BlockNo) -> Option<Frame> {
        let frame = self.frames.remove(&block)?;
        if frame.is_in_journal() {
            self.cancelled.push(block);
        }
        if frame.state == FrameState::Dirty {
            self.dirty_count -=
                NodeSlots::of(node::stored(frame.node().bytes(), &self.geometry), 1);
        }
        Some(frame)
    }

    /// The bytes of the copy of the node at `block`, with the head of that node: as if the node had been
    /// changed in place.
    pub(crate) fn changed_copy_of(&self, block: BlockNo) -> Option<Vec<u8>> {
        let copy =
            self.frames.all().map(|(_, frame)| frame).find(
                |frame| matches!(frame.base, Base::Copied(pointer) if pointer.block == block),
            )?;
        let Base::Copied(pointer) = copy.base else { return None };
        let mut bytes = copy.node().bytes().to_vec();
        bytes[ADDRESS_AT..ADDRESS_AT + 8].copy_from_slice(&pointer.block.0.to_le_bytes());
        bytes[EPOCH_AT..EPOCH_AT + 8].copy_from_slice(&pointer.epoch.0.to_le_bytes());
        Some(bytes)
    }

    /// Number of dirty nodes.
    pub(crate) fn dirty_nodes(&self) -> usize {
        self.dirty_slots().nodes() as usize
    }

    /// The same, by how often they are stored.
    pub(crate) fn dirty_slots(&self) -> NodeSlots {
        self.dirty_count
    }

    /// Bytes of dirty nodes.
    pub(crate) fn dirty_bytes(&self) -> usize {
        self.dirty_nodes() * self.node_size
    }

    /// Bytes of all nodes.
    pub(crate) fn bytes(&self) -> usize {
        self.frames.len() * self.node_size
    }

    /// Seals every dirty node and returns them in no order.
    pub(crate) fn seal(&mut self) -> Vec<SealedNode> {
        let mut sealed = Vec::with_capacity(self.dirty_nodes());
        for block in std::mem::take(&mut self.dirty) {
            // A block on the list twice, or whose node was removed, is not dirty (again).
            if let Some(frame) = self.frames.get_mut(&block)
                && frame.state == FrameState::Dirty
            {
                sealed.push(SealedNode { block, bytes: frame.seal() });
            }
        }
        self.dirty_count = NodeSlots::none();
        // What no commit has taken until here, the checkpoint makes durable.
        self.uncommitted.clear();
        self.uncommitted_slots = NodeSlots::none();
        self.uncommitted_bytes = 0;
        self.cancelled.clear();
        sealed
    }

    /// Turns the sealed nodes of `epoch` at these `homes` clean: they are durable there.
    pub(crate) fn written(&mut self, blocks: &[BlockNo], epoch: Epoch) {
        for block in blocks {
            if let Some(frame) = self.frames.get_mut(block)
                && frame.state == FrameState::Sealed
                && frame.epoch <= epoch
            {
                frame.state = FrameState::Clean;
                self.clock.push_back(*block);
            }
        }
        self.evict();
    }

    /// Counts a split.
    pub(crate) fn count_split(&self) {
        self.counters.node_splits.increment();
    }

    /// Counts a merge.
    pub(crate) fn count_merge(&self) {
        self.counters.node_merges.increment();
    }

    /// Drops clean nodes that were not used lately until the budget holds, or all were looked at twice; where most nodes are not clean,
    /// some once.
    /// Never called between the preparation of a change and its end.
    pub(crate) fn evict(&mut self) {
        self.turn_clock();
        // Blocks that were removed and taken in again stand on the list twice.
        if self.clock.len() > 2 * self.frames.len() + 64 {
            let clean = self.frames.all().filter(|(_, frame)| frame.state == FrameState::Clean);
            self.clock = clean.map(|(block, _)| *block).collect();
        }
    }

    /// Returns how many nodes were looked at.
    fn turn_clock(&mut self) -> usize {
        let clean = self.clock.len();
        // Where dirty nodes, or those on their way to the device, are what is too much, clean ones stay that are used now and then: only
        // their share of 64 looks at any nodes is taken.
        let is_dirty = 2 * clean < self.frames.len();
        let most = if is_dirty { (64 * clean).div_ceil(self.frames.len()) } else { 2 * clean };
        for looks in 0..most {
            if self.frames.len() <= self.frames_max {
                return looks;
            }
            let Some(block) = self.clock.pop_front() else { return looks };
            let frame = self.frames.get(&block);
            let Some(frame) = frame.filter(|frame| frame.state == FrameState::Clean) else {
                continue;
            };
            if self.pinned.contains_key(&block) || frame.referenced.swap(false, Ordering::Relaxed) {
                self.clock.push_back(block);
            } else {
                self.frames.remove(&block);
                self.counters.nodes_evicted.increment();
            }
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use holdfast_base::TreeId;
    use holdfast_format::node::{Expected, OfVolume};

    use super::*;

    /// A cache of 32 nodes in which so many are dirty, and as many more clean.
    fn filled(dirty: u64, clean: u64) -> Cache {
        let geometry = Geometry::for_device(64 << 20, 4096).unwrap();
        let mut cache = Cache::new(0, geometry, Dirty::Ranges, Arc::default());
        for block in 0..dirty + clean {
            let pointer = NodePointer { block: BlockNo(100 + block), epoch: Epoch(2) };
            let volume = OfVolume::tagged([7; 8]);
            let expected = Expected { pointer, tree: TreeId::Files, level: 0, volume };
            let body = Body::of(node::empty(4096, &expected));
            match block < dirty {
                true => cache.insert_new(pointer, body),
                false => assert!(cache.insert_clean(pointer, body)),
            }
        }
        cache
    }

    #[test]
    fn dirty_nodes_are_not_looked_at_until_they_are_written() {
        let mut cache = filled(1000, 20);
        let looks: Vec<usize> = (0..40).map(|_| cache.turn_clock()).collect();
        assert!(
            looks[..3] == [2; 3] && looks.iter().sum::<usize>() <= 40,
            "their share: {looks:?}"
        );
        assert_eq!((cache.frames.len(), cache.turn_clock()), (1000, 0), "the clean ones are gone");
        let blocks: Vec<BlockNo> = cache.seal().iter().map(|sealed| sealed.block).collect();
        assert_eq!((cache.frames.len(), cache.turn_clock()), (1000, 0));
        cache.written(&blocks, Epoch(2));
        assert_eq!((cache.frames.len(), cache.clock.len()), (32, 32));
    }

    #[test]
    fn among_dirty_nodes_a_clean_one_stays_while_it_is_used() {
        let mut cache = filled(1000, 20);
        let used = NodePointer { block: BlockNo(1010 + 100), epoch: Epoch(2) };
        for round in 0..100 {
            // Not by each change.
            assert!(round % 10 != 0 || cache.get(used).is_some(), "round {round}");
            assert!(cache.turn_clock() <= 2);
            if cache.frames.len() == 1001 {
                break;
            }
        }
        assert_eq!(cache.frames.len(), 1001, "the others have gone");
        cache.turn_clock();
        cache.turn_clock();
        assert!(!cache.holds(used));
    }
}
