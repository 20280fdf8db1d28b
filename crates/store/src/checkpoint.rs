//! The present made permanent.
//!
//! ```text
//! Idle -- freeze --> Frozen -- seal --> Writing -- flush --> Flushed -- publish --> Published -- flush --> Idle
//! ```
//!
//! - freeze: changers wait; dirty groups go into the space tree until no group is dirty.
//! - seal: the dirty nodes, the roots and the counters are taken; changers go on in the next epoch.
//! - write: the sealed nodes go to their new homes, sorted, neighbours in one call.
//! - publish: the superblock, after the flush that covers all it reaches (R1), then a flush for itself.
//! - release: nodes are clean, and what was freed before the seal may be given away (R2).
//!
//! A write or flush that fails stops the volume (P7).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdfast_base::clock::Stopwatch;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, InodeNo, Lsn, TreeId};
use holdfast_device::Flushed;
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::{Key, Kind, Superblock, node};
use parking_lot::{Condvar, Mutex};

use crate::apply::{Slots, StopOnPanic};
use crate::cache::SealedNode;
use crate::read::Failed;
use crate::space::alloc::Space;
use crate::space::group::Record;
use crate::tree::{Forest, Missing};
use crate::{Inner, Result, StoreError};

/// Largest write of neighbouring nodes, in bytes.
const WRITE_BYTES: usize = 1 << 20;

/// What a checkpoint makes permanent.
struct Sealed {
    nodes: Vec<SealedNode>,
    superblock: Superblock,
}

/// Calls the checkpointer, or ends it.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    state: Mutex<WakeState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WakeState {
    wanted: bool,
    ended: bool,
}

impl Wake {
    /// A checkpoint is wanted soon.
    pub(crate) fn wake(&self) {
        let mut state = self.state.lock();
        if !state.wanted {
            state.wanted = true;
            self.changed.notify_all();
        }
    }

    /// No checkpoint is wanted any more.
    pub(crate) fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }

    /// Waits until a checkpoint is wanted; false at the end.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        while !state.wanted && !state.ended {
            self.changed.wait(&mut state);
        }
        state.wanted = false;
        !state.ended
    }
}

/// Starts the thread that makes checkpoints when memory fills.
pub(crate) fn spawn(inner: &Arc<Inner>) -> Result<std::thread::JoinHandle<()>> {
    let inner = inner.clone();
    std::thread::Builder::new()
        .name("checkpoint".into())
        .spawn(move || {
            while inner.wake.wait() {
                // A node that could not be read stops nothing: the next call tries again.
                if let Err(error) = inner.checkpoint() {
                    tracing::error!("checkpoint failed: {error}");
                    if inner.stop.is_stopped() {
                        return;
                    }
                }
            }
        })
        .map_err(|error| StoreError::Refused(format!("the system gives no thread: {error}")))
}

impl Inner {
    /// Returns when every batch up to `upto` is durable.
    pub(crate) fn persist(&self, upto: Lsn) -> Result<()> {
        if self.durable.load(Ordering::Acquire) >= upto.0 {
            return Ok(());
        }
        // Whoever waited here while a checkpoint ran may find that it covered him.
        let one = self.one_checkpoint.lock();
        if self.durable.load(Ordering::Acquire) >= upto.0 {
            return Ok(());
        }
        self.run_checkpoint(false)?;
        drop(one);
        Ok(())
    }

    /// Makes a checkpoint of everything so far.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        let _one = self.one_checkpoint.lock();
        self.run_checkpoint(false)
    }

    /// Makes a checkpoint although nothing may have changed: mkfs fills both slots.
    pub(crate) fn force_checkpoint(&self) -> Result<()> {
        let _one = self.one_checkpoint.lock();
        self.run_checkpoint(true)
    }

    fn run_checkpoint(&self, force: bool) -> Result<()> {
        self.check_running()?;
        let Some(sealed) = self.freeze(force)? else {
            return Ok(());
        };
        let done = self.write_sealed(&sealed);
        if let Err(error) = &done {
            self.stop.stop(error.to_string());
        }
        done
    }

    /// Freezes changers and takes what is to be written; `None` when nothing changed.
    fn freeze(&self, force: bool) -> Result<Option<Sealed>> {
        let mut failed = Failed::default();
        loop {
            let mut forest = self.forest.write();
            let mut space = self.space.lock();
            let _guard = StopOnPanic(&self.stop);
            let time = Stopwatch::start();
            let lsn = self.lsn.load(Ordering::Acquire);
            let idle = lsn == self.durable.load(Ordering::Acquire) && !space.has_pending();
            if idle && !force {
                return Ok(None);
            }
            self.check_damage(&space)?;
            let written = self.write_groups(&mut forest, &mut space);
            self.check_damage(&space)?;
            let sealed = match written {
                Ok(()) => self.seal(&mut forest, &mut space, Lsn(lsn)),
                Err(missing) => {
                    drop(space);
                    drop(forest);
                    self.load(missing, &mut failed)?;
                    continue;
                }
            };
            drop(space);
            drop(forest);
            self.counters.frozen_ns.add(time.nanos());
            self.counters.frozen_max_ns.raise_to(time.nanos());
            return Ok(Some(sealed));
        }
    }

    /// Carries dirty groups into the space tree. That takes and frees nodes, which makes groups
    /// dirty again; each node is copied once in an epoch, so it ends.
    fn write_groups(
        &self,
        forest: &mut Forest,
        space: &mut Space,
    ) -> std::result::Result<(), Missing> {
        loop {
            let groups = space.take_dirty();
            if groups.is_empty() {
                return Ok(());
            }
            for (done, &index) in groups.iter().enumerate() {
                if let Err(missing) = self.write_group(forest, space, index) {
                    space.put_back_dirty(&groups[done..]);
                    return Err(missing);
                }
            }
        }
    }

    fn write_group(
        &self,
        forest: &mut Forest,
        space: &mut Space,
        index: u64,
    ) -> std::result::Result<(), Missing> {
        let tree = TreeId::Space;
        let group_key = Key::new(InodeNo(index), Kind::Group, 0);
        let piece_key = |piece| Key::new(InodeNo(index), Kind::Bitmap, piece);
        let item = space.group(index).item();
        let unchanged = space.group(index).record == Record::InTree(item);
        if !unchanged {
            forest.prepare(tree, &group_key, false)?;
        }
        for piece in space.group(index).dirty_pieces() {
            forest.prepare(tree, &piece_key(piece), true)?;
        }
        // The record is compared as a whole (M1). Bitmaps have a mark of their own: a block freed
        // and another taken leave the record equal, and the bitmap not.
        let pieces = space.group(index).take_dirty();
        if unchanged {
            self.counters.group_records_skipped.increment();
        } else {
            space.group(index).record = Record::InTree(item);
            self.counters.group_records_written.increment();
            let homes = &mut Slots { space, promised: &mut 0 };
            forest.put(tree, &group_key, &item.encode(), homes);
        }
        for (piece, bytes) in pieces {
            let homes = &mut Slots { space, promised: &mut 0 };
            match bytes {
                Some(bytes) => forest.put(tree, &piece_key(piece), &bytes, homes),
                None => forest.delete(tree, &piece_key(piece), homes),
            }
        }
        Ok(())
    }

    fn seal(&self, forest: &mut Forest, space: &mut Space, lsn: Lsn) -> Sealed {
        let (files, space_root) = (forest.root(TreeId::Files), forest.root(TreeId::Space));
        let superblock = Superblock {
            epoch: forest.epoch,
            files: files.pointer,
            files_level: files.level,
            space: space_root.pointer,
            space_level: space_root.level,
            lsn,
            inode_next: InodeNo(self.inode_next.load(Ordering::Acquire)),
            inode_count: space.inodes,
            used_blocks: space.used_blocks(),
            ..self.superblock.lock().clone()
        };
        space.seal();
        let nodes = forest.cache.seal();
        forest.epoch = forest.epoch.next();
        Sealed { nodes, superblock }
    }

    fn write_sealed(&self, sealed: &Sealed) -> Result<()> {
        self.write_nodes(&sealed.nodes)?;
        let nodes_flushed = self.device.flush()?;
        let _published = self.publish(&sealed.superblock, nodes_flushed)?;
        *self.superblock.lock() = sealed.superblock.clone();
        self.forest.write().cache.written(&sealed.nodes, sealed.superblock.epoch);
        self.space.lock().unseal();
        self.durable.store(sealed.superblock.lsn.0, Ordering::Release);
        self.counters.checkpoints.increment();
        Ok(())
    }

    /// Writes nodes to their homes, sorted, neighbours together.
    fn write_nodes(&self, nodes: &[SealedNode]) -> Result<()> {
        let mut order: Vec<&SealedNode> = nodes.iter().collect();
        order.sort_unstable_by_key(|node| node.block);
        let node_blocks = self.geometry.node_blocks();
        let mut buffer: Vec<u8> = Vec::with_capacity(WRITE_BYTES);
        let mut start = BlockNo(0);
        for node in order {
            let next = BlockNo(start.0 + buffer.len() as u64 / BLOCK_BYTES);
            if !buffer.is_empty() && (node.block != next || buffer.len() >= WRITE_BYTES) {
                self.write_run(start, &buffer)?;
                buffer.clear();
            }
            if buffer.is_empty() {
                start = node.block;
            }
            let at = buffer.len();
            buffer.extend_from_slice(&node.bytes);
            node::seal(&mut buffer[at..]);
        }
        if !buffer.is_empty() {
            self.write_run(start, &buffer)?;
        }
        self.counters.checkpoint_nodes.add(nodes.len() as u64);
        self.counters.checkpoint_bytes.add(nodes.len() as u64 * node_blocks * BLOCK_BYTES);
        Ok(())
    }

    fn write_run(&self, start: BlockNo, bytes: &[u8]) -> Result<()> {
        let at = start.byte_offset().expect("nodes lie inside the volume");
        Ok(self.device.write(at, bytes)?)
    }

    /// Makes the superblock durable that this store was opened from, before anything else is written.
    ///
    /// Whoever wrote it may have ended between the write and its flush, or met an error there; then
    /// it can be read now and still be lost, and the one before it counts again. But blocks that
    /// only that one reaches are free from now on (R2). Writing it again is harmless: its slot
    /// holds the same bytes or older ones.
    pub(crate) fn settle_superblock(&self) -> Result<()> {
        let superblock = self.superblock.lock().clone();
        let before = self.device.flush()?;
        let _settled = self.publish(&superblock, before)?;
        Ok(())
    }

    /// The single place that writes a superblock. `_nodes` proves that all it reaches is durable (R1).
    fn publish(&self, superblock: &Superblock, _nodes: Flushed) -> Result<Flushed> {
        let slot = SUPERBLOCK_SLOTS[(superblock.epoch.0 % 2) as usize];
        let at = slot.byte_offset().expect("the slots lie at the start of the volume");
        self.device.write(at, &superblock.encode(slot)[..])?;
        Ok(self.device.flush()?)
    }
}
