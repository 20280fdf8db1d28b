//! Tree nodes in memory.
//!
//! ```text
//!            load                      change (a copy, new home)
//!   (absent) ----> Clean ------------------------------------> Dirty
//!       ^           | ^                                          |
//!       |  evict    | | written                                  | seal
//!       +-----------+ +---------------- Sealed <-----------------+
//! ```
//!
//! A node is changed in place only in the epoch it was born in; after the
//! seal of a checkpoint its bytes are shared with the writer and never change
//! again: the next change makes a copy with a new home. Dirty and sealed
//! nodes are never evicted.
//!
//! Knows nothing of keys and items.

pub(crate) mod dirty;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_base::counters::Counters;
use holdfast_base::{BlockNo, Epoch};
use holdfast_format::NodePointer;
use rustc_hash::FxHashMap;

use dirty::{DirtyRanges, Slack};

/// Where a node is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Equal to what is durable at its home.
    Clean,
    /// Changed, and not yet part of a checkpoint.
    Dirty,
    /// Part of the checkpoint that is being written.
    Sealed,
}

/// A node in memory.
#[derive(Debug)]
pub(crate) struct Frame {
    bytes: Arc<Vec<u8>>,
    epoch: Epoch,
    state: State,
    ranges: DirtyRanges,
    /// The bytes as they were when `ranges` was empty: proves that every change was marked.
    #[cfg(debug_assertions)]
    shadow: Vec<u8>,
    referenced: AtomicBool,
}

impl Frame {
    /// A node that was read and judged.
    pub(crate) fn clean(bytes: Vec<u8>, epoch: Epoch) -> Frame {
        Frame {
            #[cfg(debug_assertions)]
            shadow: Vec::new(),
            bytes: Arc::new(bytes),
            epoch,
            state: State::Clean,
            ranges: DirtyRanges::default(),
            referenced: AtomicBool::new(true),
        }
    }

    /// A node that exists nowhere else: new, or the copy of another. `known` says whether its
    /// content equals a durable node's; if not, all of it is dirty.
    pub(crate) fn dirty(bytes: Vec<u8>, epoch: Epoch, known: bool) -> Frame {
        let mut ranges = DirtyRanges::default();
        if !known {
            ranges.mark(0, bytes.len());
        }
        Frame {
            #[cfg(debug_assertions)]
            shadow: bytes.clone(),
            bytes: Arc::new(bytes),
            epoch,
            state: State::Dirty,
            ranges,
            referenced: AtomicBool::new(true),
        }
    }

    /// The bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes and their dirty ranges, to be changed. The node must be dirty.
    #[inline]
    pub(crate) fn edit(&mut self) -> (&mut [u8], &mut DirtyRanges) {
        assert_eq!(self.state, State::Dirty, "only dirty nodes are changed in place");
        let bytes =
            Arc::get_mut(&mut self.bytes).expect("a dirty node is not shared with a writer");
        (bytes, &mut self.ranges)
    }

    /// Ends the node's time of change; the bytes are shared from now on.
    fn seal(&mut self) -> Arc<Vec<u8>> {
        #[cfg(debug_assertions)]
        {
            assert!(
                self.ranges.cover_changes(&self.shadow, &self.bytes),
                "a node changed outside its dirty ranges {:?}",
                self.ranges.as_slice()
            );
            self.shadow = Vec::new();
        }
        self.state = State::Sealed;
        self.ranges = DirtyRanges::default();
        self.bytes.clone()
    }
}

/// A sealed node on its way to its home.
#[derive(Debug)]
pub(crate) struct SealedNode {
    pub(crate) block: BlockNo,
    pub(crate) bytes: Arc<Vec<u8>>,
}

/// All nodes in memory. Owned by the forest, under its lock.
#[derive(Debug)]
pub(crate) struct Cache {
    frames: FxHashMap<BlockNo, Frame>,
    /// The order in which clean nodes are looked at for eviction.
    clock: VecDeque<BlockNo>,
    dirty: Vec<BlockNo>,
    dirty_count: usize,
    node_size: usize,
    frames_max: usize,
    counters: Arc<Counters>,
}

impl Cache {
    /// A cache of `budget` bytes, at least 32 nodes.
    pub(crate) fn new(budget: usize, node_size: usize, counters: Arc<Counters>) -> Cache {
        Cache {
            frames: FxHashMap::default(),
            clock: VecDeque::new(),
            dirty: Vec::new(),
            dirty_count: 0,
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

    /// The dirty node at `block`, which must be in memory.
    #[inline]
    pub(crate) fn get_dirty(&mut self, block: BlockNo) -> &mut Frame {
        self.frames.get_mut(&block).expect("a dirty node stays in memory until it is sealed")
    }

    /// Takes a node in. Evicts nothing: a change may be under way that needs what is here.
    pub(crate) fn insert(&mut self, block: BlockNo, frame: Frame) {
        if frame.state == State::Dirty {
            self.dirty.push(block);
            self.dirty_count += 1;
        }
        self.clock.push_back(block);
        if let Some(old) = self.frames.insert(block, frame) {
            assert_ne!(old.state, State::Dirty, "two nodes claim block {block}");
        }
    }

    /// Takes in a node that was read, unless its home has a newer owner in memory: then false.
    pub(crate) fn insert_clean(&mut self, block: BlockNo, frame: Frame) -> bool {
        let is_newest = self.frames.get(&block).is_none_or(|old| old.epoch < frame.epoch);
        if is_newest {
            self.insert(block, frame);
        }
        is_newest
    }

    /// Every node in memory.
    pub(crate) fn pointers(&self) -> impl Iterator<Item = NodePointer> {
        self.frames.iter().map(|(block, frame)| NodePointer { block: *block, epoch: frame.epoch })
    }

    /// Drops a node that left its tree.
    pub(crate) fn remove(&mut self, block: BlockNo) {
        if let Some(frame) = self.frames.remove(&block)
            && frame.state == State::Dirty
        {
            self.dirty_count -= 1;
        }
    }

    /// Bytes of dirty nodes.
    pub(crate) fn dirty_bytes(&self) -> usize {
        self.dirty_count * self.node_size
    }

    /// Bytes of all nodes.
    pub(crate) fn bytes(&self) -> usize {
        self.frames.len() * self.node_size
    }

    /// Counts what a mark cost.
    #[inline]
    pub(crate) fn count_slack(&self, slack: Slack) {
        if slack.merges > 0 {
            self.counters.range_merges_forced.add(slack.merges.into());
            self.counters.range_slack_bytes.add(slack.bytes.into());
        }
    }

    /// Seals every dirty node and returns them in no order.
    pub(crate) fn seal(&mut self) -> Vec<SealedNode> {
        let mut sealed = Vec::with_capacity(self.dirty_count);
        for block in std::mem::take(&mut self.dirty) {
            // A block on the list twice, or whose node was removed, is not dirty (again).
            if let Some(frame) = self.frames.get_mut(&block)
                && frame.state == State::Dirty
            {
                sealed.push(SealedNode { block, bytes: frame.seal() });
            }
        }
        self.dirty_count = 0;
        sealed
    }

    /// Turns the sealed nodes of `epoch` clean: they are durable at their homes.
    pub(crate) fn written(&mut self, nodes: &[SealedNode], epoch: Epoch) {
        for node in nodes {
            if let Some(frame) = self.frames.get_mut(&node.block)
                && frame.state == State::Sealed
                && frame.epoch <= epoch
            {
                frame.state = State::Clean;
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

    /// Drops clean nodes that were not used lately until the budget holds, or all were looked at twice.
    /// Never called between the preparation of a change and its end.
    pub(crate) fn evict(&mut self) {
        let mut looks = self.clock.len() * 2;
        while self.frames.len() > self.frames_max && looks > 0 {
            looks -= 1;
            // A look costs little, but a cache full of dirty nodes would be walked on each insert.
            if looks > 64 && self.dirty_count * 2 > self.frames.len() {
                looks = 64;
            }
            let Some(block) = self.clock.pop_front() else {
                break;
            };
            let Some(frame) = self.frames.get(&block) else {
                continue;
            };
            if frame.state == State::Clean && !frame.referenced.swap(false, Ordering::Relaxed) {
                self.frames.remove(&block);
                self.counters.nodes_evicted.increment();
            } else {
                self.clock.push_back(block);
            }
        }
        // Blocks that were removed and taken in again stand on the list twice.
        if self.clock.len() > 2 * self.frames.len() + 64 {
            self.clock = self.frames.keys().copied().collect();
        }
    }
}
