//! Taking missing nodes into memory: without the lock while the device reads (R4), and with the
//! nodes that lie beside them.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use std::sync::Arc;

use holdfast_base::clock::Stopwatch;
use holdfast_base::parallel;
use holdfast_base::{BLOCK_SIZE, BlockNo, BlockRange, TreeId};
use holdfast_device::buffer::BufferPool;
use holdfast_format::node::Expected;
use holdfast_format::{Key, Malformed, NodePointer, NodeView};

use crate::cache::Body;
use crate::mend::Mend;
use crate::side_by_side::side_by_side;
use crate::tree::{Forest, Missing, MissingSet};
use crate::verified::{Verified, all_sound, first_sound};
use crate::{Inner, Result, StoreError};

/// The device is read in regions of this many blocks, where that brings more than one missing node. A directory's
/// leaves lie near each other, but not in the order of its names: a reader of one soon needs the others.
const REGION_BLOCKS: u64 = 64;
/// A region holds no more nodes than these: the smallest cache has room for twice as many.
const REGION_NODES: u64 = 16;
/// What is read of a region is no more than so many times the nodes that it brings.
const READ_PER_NODE_MAX: u64 = 4;

/// Fewer missing places are read by the caller alone: threads would cost more than they save.
const ALONE: usize = 4;

/// Bytes of nodes that one operation keeps in memory at most, beside what `cache=` allows: several times what the largest one needs, which moves
/// 16,384 extents.
pub(crate) const PINNED_MAX: usize = if cfg!(test) { 1 << 20 } else { 64 << 20 };

/// What one call has loaded and could not load, over all its tries.
///
/// What it has loaded stays in memory until the call is over: others that load and evict meanwhile would keep a call
/// that needs many nodes from ever finding all of them. So a call has in memory what its changes touch, whatever the budget of the
/// cache is. So a large change is made in steps, and an operation that needs more than [`PINNED_MAX`] is refused. A commit cannot be refused:
/// it loads what it needs, and each step of a deletion or replay bounds that itself.
///
/// Between the moment a node was missed and the moment it was read, the tree may have changed and
/// its location may have been given to others. So a failure is an error only if the tree still wants that node
/// at the next try.
#[derive(Debug)]
pub(crate) struct Loading<'a> {
    pub(crate) inner: &'a Inner,
    failed: Vec<(NodePointer, StoreError)>,
    pinned: Vec<BlockNo>,
    /// Groups whose bitmaps it has loaded.
    pub(crate) groups: Vec<u64>,
    /// Nodes that it may keep.
    most: usize,
}

impl Drop for Loading<'_> {
    /// The caller holds no lock of the forest and the space.
    fn drop(&mut self) {
        if !self.groups.is_empty() {
            self.inner.space.lock().unpin_bitmaps(&self.groups);
        }
        if !self.pinned.is_empty() {
            let cache = &mut self.inner.forest.write().cache;
            cache.unpin(&self.pinned);
            cache.evict();
        }
    }
}

impl Loading<'_> {
    /// Reads what is missing and takes it into memory, several nodes at a time, without holding the lock meanwhile.
    ///
    /// # Errors
    /// What kept one of the nodes from being read at the try before this one.
    pub(crate) fn load(&mut self, missing: impl Into<MissingSet>) -> Result<()> {
        self.load_some(missing.into(), self.most)
    }

    /// The same for nodes of a bitmap, however little the call may keep: they are a few blocks, and no change is made without them.
    pub(crate) fn load_all(&mut self, missing: impl Into<MissingSet>) -> Result<()> {
        self.load_some(missing.into(), usize::MAX)
    }

    fn load_some(&mut self, missing: MissingSet, most: usize) -> Result<()> {
        let (wanted, groups) = missing.into_sorted();
        self.bring(&groups);
        let is_wanted = |of: NodePointer| wanted.iter().any(|one| one.expected.pointer == of);
        let failed = std::mem::take(&mut self.failed);
        if let Some((_, error)) = failed.into_iter().find(|(of, _)| is_wanted(*of)) {
            return Err(error);
        }
        if self.pinned.len().saturating_add(wanted.len()) > most {
            return Err(StoreError::TooLarge);
        }
        let inner = self.inner;
        // Those that one read may bring are one thread's.
        let region = |one: &Missing| one.expected.pointer.block.0 / REGION_BLOCKS;
        let regions: Vec<_> = wanted.chunk_by(|a, b| region(a) == region(b)).collect();
        let most = parallel::node_threads(parallel::processors());
        let threads = if regions.len() < ALONE { 1 } else { most };
        let done = side_by_side(&regions, threads, |near| {
            let load = |(at, one): (usize, &Missing)| {
                (one.expected.pointer, inner.load_pinned(one, at == 0))
            };
            Ok(near.iter().enumerate().map(load).collect::<Vec<_>>())
        })?;
        for (pointer, done) in done.into_iter().flatten() {
            match done {
                Ok(block) => self.pinned.push(block),
                Err(error) => self.failed.push((pointer, error)),
            }
        }
        Ok(())
    }

    /// What the call has read leaves memory again: no other call is going to want it soon.
    pub(crate) fn forget(&mut self) {
        let pinned = std::mem::take(&mut self.pinned);
        let cache = &mut self.inner.forest.write().cache;
        cache.unpin(&pinned);
        cache.forget_clean(&pinned);
    }
}

fn damage(expected: &Expected, source: Malformed) -> StoreError {
    StoreError::Node { block: expected.pointer.block, tree: expected.tree, source }
}

/// Fails if a leaf has an item of the other tree: code that lists and removes what is there
/// would hand keys to the log that the log cannot express (P10).
fn judge_keys(node: &NodeView<'_>, tree: TreeId) -> std::result::Result<(), Malformed> {
    let count = if node.level() == 0 { node.count() } else { 0 };
    let wrong = |key: &Key| key.kind.tree() != tree;
    match (0..count).map(|index| node.key(index)).find(wrong) {
        None => Ok(()),
        Some(key) => Err(Malformed::new("node", format!("{key:?} does not belong into it"))),
    }
}

/// Buffers for regions. Few threads read at the same time.
pub(crate) fn regions() -> BufferPool {
    const BYTES: usize = REGION_BLOCKS as usize * BLOCK_SIZE;
    BufferPool::new(BYTES, 2)
}

impl Inner {
    /// What a call needs to load nodes.
    pub(crate) fn loading(&self) -> Loading<'_> {
        let (failed, pinned, groups) = (Vec::new(), Vec::new(), Vec::new());
        Loading { inner: self, failed, pinned, groups, most: usize::MAX }
    }

    /// The same for an operation: no more than [`PINNED_MAX`], else it is [`StoreError::TooLarge`].
    pub(crate) fn loading_some(&self) -> Loading<'_> {
        let most = PINNED_MAX.checked_div(self.geometry().node_size).unwrap_or(0);
        let mut loading = self.loading();
        loading.most = most;
        loading
    }

    /// Takes a missing node into memory, or the first above it that is missing as well. Returns the block of it, where it stays until
    /// that is unpinned. One that came meanwhile, beside another, is not read, unless it `must_be`: it may be missed because it is not
    /// what its parent says.
    fn load_pinned(&self, missing: &Missing, must_be: bool) -> Result<BlockNo> {
        let pointer = missing.expected.pointer;
        if !must_be && self.forest.write().cache.pin(pointer) {
            return Ok(pointer.block);
        }
        let mut wanted = *missing;
        // The node above is of a higher level: so this ends.
        while let Some(parent) = self.try_load(&wanted)? {
            wanted = parent;
        }
        Ok(wanted.expected.pointer.block)
    }

    /// Reads the node, takes it in and pins it; or says which node above it is missing as well.
    fn try_load(&self, missing: &Missing) -> Result<Option<Missing>> {
        let expected = &missing.expected;
        let block = expected.pointer.block;
        if !expected.can_be(&self.geometry()) {
            let why = Malformed::new("node pointer", "it leads outside the data zone");
            return Err(damage(expected, why));
        }
        let epoch = self.published_epoch();
        let (body, mend) = match self.overlay.get(&block) {
            Some(replayed) => (self.judge(expected, replayed[..].into())?, None),
            None => {
                let Verified { value, place, bad } = self.read_node(missing)?;
                let bad = bad.map(|bad| bad.place);
                let mend = bad.map(|bad| Mend { expected: *expected, bad, sound: place, epoch });
                (value, mend)
            }
        };
        let parent = {
            let mut forest = self.forest.write();
            let step = self.step("a change of the nodes in memory");
            let parent = self.take_in(&mut forest, missing, body);
            // It is used from here on, or it would go as soon as it is let go.
            let _ = forest.cache.get(expected.pointer);
            if matches!(parent, Ok(None)) {
                forest.cache.pin(expected.pointer);
            }
            step.end();
            parent
        };
        if let (Ok(None), Some(mend)) = (&parent, mend) {
            self.mend(mend);
        }
        parent
    }

    /// Reads the wanted node from its place, with others that lie beside it, or else from that of its copy. Damage of both is
    /// told to the next superblock.
    fn read_node(&self, missing: &Missing) -> Result<Verified<Body>> {
        let expected = &missing.expected;
        let mut beside = self.read_region(missing);
        let places = expected.places(&self.geometry());
        let read = first_sound(places, |place| match beside.take() {
            Some(bytes) => self.opened(expected, bytes),
            None => self.read_place(expected, place).map(Body::of),
        });
        match &read {
            Ok(Verified { place, bad: Some(bad), .. }) => self.copy_was_used(expected, bad, *place),
            Err(error @ StoreError::Node { .. }) => self.found_damage(&error.to_string()),
            _ => {}
        }
        read
    }

    /// Reads the part of the device where the missing node and others of its parent lie, takes those in, and
    /// returns the bytes of the wanted one. `None` if it has no such neighbours, or they cannot be read with it.
    fn read_region(&self, missing: &Missing) -> Option<Arc<[u8]>> {
        let wanted = missing.expected.pointer.block;
        let node_blocks = self.geometry().node_blocks();
        let region = REGION_BLOCKS.min(REGION_NODES.checked_mul(node_blocks)?);
        let start = wanted.0.checked_sub(wanted.0.checked_rem(region)?)?;
        let end = start.checked_add(region)?;
        let is_near = |block: BlockNo| (start..end).contains(&block.0);
        let mut neighbours = self.forest.read().neighbours(missing, is_near);
        neighbours.retain(|near| {
            let block = near.expected.pointer.block;
            near.expected.can_be(&self.geometry()) && !self.overlay.contains_key(&block)
        });
        // A parent on a damaged disk may name one node again and again.
        neighbours.sort_unstable_by_key(|near| near.expected.pointer.block);
        neighbours.dedup_by_key(|near| near.expected.pointer.block);
        let first = neighbours.first()?.expected.pointer.block.min(wanted);
        let last = neighbours.last()?.expected.pointer.block.max(wanted);
        let span = BlockRange::new(first, last.0.checked_sub(first.0)?.checked_add(node_blocks)?);
        let nodes = (neighbours.len() as u64).checked_add(1)?;
        if span.count > nodes.checked_mul(node_blocks)?.checked_mul(READ_PER_NODE_MAX)? {
            return None;
        }
        // Damage of a neighbour is reported when a caller needs that node: of a snapshot that is being deleted, what the cursor
        // has passed may be in use for something else, and no caller enters it.
        let mut buffer = self.regions.take();
        let bytes = buffer.get_mut(..usize::try_from(span.bytes()?).ok()?)?;
        self.read_blocks(span, bytes).ok()?;
        let node = |block: BlockNo| -> Option<Arc<[u8]>> {
            let at = BlockNo(block.0.checked_sub(first.0)?).byte_offset()?;
            let bytes = bytes.get(usize::try_from(at).ok()?..)?;
            Some(bytes.get(..self.geometry().node_size)?.into())
        };
        let judged: Vec<_> = neighbours
            .into_iter()
            .filter_map(|near| {
                let bytes = node(near.expected.pointer.block)?;
                Some((self.opened(&near.expected, bytes).ok()?, near))
            })
            .collect();
        let mut forest = self.forest.write();
        let step = self.step("a change of the nodes in memory");
        for (body, near) in judged {
            let _ = self.take_in(&mut forest, &near, body);
        }
        step.end();
        node(wanted)
    }

    pub(crate) fn read_blocks(&self, range: BlockRange, into: &mut [u8]) -> Result<()> {
        let at = range.start.byte_offset().expect("the node lies inside the volume");
        let time = Stopwatch::start();
        self.device.read(at, into)?;
        self.throttle.read_took(into.len() as u64, time.nanos());
        Ok(())
    }

    /// Reads a node from each of its places, or from the journal that stands in front of them, whatever the cache has, and judges it by
    /// itself. The one place that does so for a scrub.
    ///
    /// # Errors
    /// [`StoreError::Node`]: it is in none of them. What was asked for may have left its tree since: the caller looks.
    pub(crate) fn verify_node(&self, expected: &Expected) -> Result<Verified<Arc<[u8]>>> {
        let pointer = expected.pointer;
        if !expected.can_be(&self.geometry()) {
            let why = Malformed::new("node pointer", "it leads outside the data zone");
            return Err(damage(expected, why));
        }
        if let Some(replayed) = self.overlay.get(&pointer.block) {
            let value: Arc<[u8]> = replayed[..].into();
            self.opened(expected, value.clone())?;
            return Ok(Verified { value, place: self.node_range(pointer), bad: None });
        }
        let other = || damage(expected, Malformed::new("node", "it is another version of it"));
        let places = expected.places(&self.geometry());
        all_sound(places, |place| self.read_place(expected, place), other)
    }

    /// Judges a node that a caller needs: damage is told to the next superblock.
    fn judge(&self, expected: &Expected, bytes: Arc<[u8]>) -> Result<Body> {
        self.opened(expected, bytes).inspect_err(|error| self.found_damage(&error.to_string()))
    }

    pub(crate) fn opened(&self, expected: &Expected, bytes: Arc<[u8]>) -> Result<Body> {
        self.counters.nodes_read.increment();
        let node = NodeView::open(&bytes, expected).map_err(|why| damage(expected, why))?;
        judge_keys(&node, expected.tree).map_err(|why| damage(expected, why))?;
        Ok(Body::of(bytes))
    }

    /// Takes a node in that was read and judged, if it still belongs to its location; or says which node above it
    /// must be in memory to tell.
    fn take_in(
        &self,
        forest: &mut Forest,
        missing: &Missing,
        body: Body,
    ) -> Result<Option<Missing>> {
        let expected = &missing.expected;
        let pointer = expected.pointer;
        let in_use = {
            let space = self.space.lock();
            !space.loaded || space.is_used_by_node(pointer.block, expected.stored(&self.geometry()))
        };
        // What is in memory counts, if another thread was faster.
        let known = forest.node(missing.tree, pointer, expected.level);
        let is_known = known.is_some();
        let why = match forest.fits(missing, &known.unwrap_or(body.node())) {
            Err(parent) => return Ok(Some(parent)),
            Ok(true) if in_use => {
                if is_known || forest.cache.insert_clean(pointer, body) {
                    return Ok(None);
                }
                "its location has a newer node"
            }
            Ok(true) => "its blocks are not marked as in use",
            Ok(false) => "it is not what its parent says",
        };
        Err(damage(expected, Malformed::new("node", why)))
    }

    pub(crate) fn node_range(&self, pointer: NodePointer) -> BlockRange {
        BlockRange::new(pointer.block, self.geometry().node_blocks())
    }
}
