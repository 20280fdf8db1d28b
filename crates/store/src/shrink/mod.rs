//! A volume at rest becomes smaller: what lies behind its new end moves in front of it.
//!
//! ```text
//!  all at its location -> walk all trees -> places in front of the new end -> copies of data, nodes that lead to them, a new space tree
//!    -> FLUSH -> superblock of the old size -> superblock of the new one, the signpost around it -> opened again: the other slot
//! ```
//!
//! - Nothing is written over what the superblock of before reaches, so until the new one is whole the volume is what it was.
//! - A node or a run of blocks that several branches and snapshots share moves once, and is shared as before. A copy of a node keeps
//!   epoch and keys, an extent keeps birth and place: only addresses change, so all rules between trees hold as they did.
//! - What is stored twice may find no pair of places in front of the new end. Then data moves out of as many as it needs, and a first pass
//!   ends at the old size with nodes behind the new end; the second one brings them in front.
//! - The far copy of the new size may lie where the superblock of before reaches data; the first one that leads to the new trees does not.

mod away;
mod free;
mod moves;
mod owners;
mod plan;
mod rewrite;
mod space_tree;
mod walk;

use std::sync::Arc;

use holdfast_base::counters::Counters;
use holdfast_base::show;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_device::Device;
use holdfast_format::superblock::RO_COMPAT_KNOWN;
use holdfast_format::{Geometry, Superblock};

use crate::superblock::{Present, WRITER};
use crate::{Identity, Inner, OpenOptions, Result, Store, StoreError, superblock};
use free::Free;
use moves::Failed;
use plan::Plan;
use rewrite::Rewrite;
use walk::{Nodes, Reached};

/// Steps of deletions that are made before each question whether to go on.
const STEPS: usize = 1000;
/// The second pass finds pairs enough: the first one sees to that. A third is for what reckoning has missed.
const PASSES: usize = 3;

/// How far it has come, in bytes that are read or copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shrinking {
    /// So many of them.
    pub done: u64,
    /// All, as far as is known.
    pub all: u64,
}

/// Makes the volume on an unused device smaller: `bytes`, rounded down to whole blocks, which it returns. The device
/// stays as long as it is; what lies behind the volume means nothing when this returns. After a crash meanwhile the volume has its old
/// size or the new one. Deletions of snapshots are completed before. `tell` hears how far it has come.
///
/// # Errors
/// [`StoreError::Refused`] where the size is not less than now, or where too little would be free; with about the smallest size that
/// there can be. [`StoreError::CannotMove`]: a block does not read. Those of opening the volume. The volume is what it was.
pub fn shrink(
    device: &Arc<dyn Device>,
    bytes: u64,
    tell: &mut dyn FnMut(Shrinking),
) -> Result<u64> {
    let volume_blocks = bytes / BLOCK_BYTES;
    let mut progress = Progress { at: Shrinking::default(), tell };
    for _ in 0..PASSES {
        let store = open(device)?;
        while store.work_off_deletions(STEPS)? {}
        store.commit_deletions()?;
        let is_smaller = store.inner.shrink(volume_blocks, &mut progress)?;
        // What it has in memory is of the volume before. It has nothing to write any more.
        drop(store);
        if is_smaller {
            let store = open(device)?;
            store.change_identity(&Identity::default())?;
            store.close()?;
            return Ok(volume_blocks * BLOCK_BYTES);
        }
    }
    Err(StoreError::NoSpace)
}

fn open(device: &Arc<dyn Device>) -> Result<Store> {
    let options = OpenOptions { threads: false, ..OpenOptions::default() };
    Store::open(device.clone(), &options, Arc::new(Counters::default()))
}

impl Inner {
    /// Moves everything in front of the new end, and makes the volume smaller. Where places for what is stored twice have to become free
    /// first, that alone, at the old size: false.
    fn shrink(&self, volume_blocks: u64, progress: &mut Progress<'_>) -> Result<bool> {
        self.check_running()?;
        self.expect_rings()?;
        let _one = self.lock_checkpoints()?;
        let mut journal = self.journal.lock();
        self.checkpoint_at_once(&mut journal)?;
        let old = self.superblock.lock().clone();
        let geometry = Geometry { volume_blocks, ..old.geometry };
        expect_possible(&old, &geometry)?;
        let nodes = Nodes::of(&*self.device, &old);
        progress.at.all += self.space.lock().nodes() * old.geometry.node_size as u64;
        let seen = Reached::walk(&nodes, &old, progress)?;
        let free = seen.free();
        let plan = Plan::of(&seen, &free, &geometry);
        let plan = plan.ok_or_else(|| refused(&seen, &free, &geometry))?;
        drop(free);
        self.take_room_of(&plan, &geometry)?;
        progress.at.all += plan.moves.bytes();
        plan.moves.copy(&*self.device, progress).map_err(|failed| match failed {
            Failed::Read { block, error } => owners::cannot_move(&nodes, &seen, &old, block, error),
            Failed::Write(error) => error.into(),
        })?;
        let is_last = plan.is_last;
        let mut rewrite = Rewrite::new(&nodes, seen, plan);
        let files = rewrite.node(old.files, old.files_level)?;
        let items = rewrite.lineage()?;
        // Once as large as it was: the place of the new far copy is nothing's then, whichever superblock counts.
        let epoch = old.epoch.next();
        let shape = if is_last { geometry } else { old.geometry };
        let (space, used_blocks) = space_tree::build(&mut rewrite, items, &shape, epoch)?;
        let new = Superblock {
            epoch,
            files,
            space: space.pointer,
            space_level: space.level,
            used_blocks,
            writer: WRITER.into(),
            fault: self.fault.lock().clone(),
            ..old.clone()
        };
        let blocks = old.geometry.volume_blocks;
        let reached = self.device.flush()?;
        let present = Present { epoch: old.epoch, blocks };
        let reached = superblock::publish(&*self.device, &new, present, reached)?;
        if !is_last {
            return Ok(false);
        }
        let smaller = Superblock { epoch: epoch.next(), geometry, ..new };
        let present = Present { epoch, blocks };
        let _published = superblock::publish(&*self.device, &smaller, present, reached)?;
        Ok(true)
    }

    /// Takes all that is going to be written from the host, before anything is: the place of the new far copy as well. Behind the slot there
    /// is no way back, and without that copy no repair could open the volume for writing.
    fn take_room_of(&self, plan: &Plan, new: &Geometry) -> Result<()> {
        let far_copy = new.far_copy().0;
        for (start, end) in plan.destinations().into_iter().chain([(far_copy, far_copy + 1)]) {
            let (at, len) = (start * BLOCK_BYTES, (end - start) * BLOCK_BYTES);
            self.device.take_room(at, len).map_err(|error| match error.is_no_space() {
                true => StoreError::Refused(
                    "the host has no room for what moves in front of the volume's new end; make room there".into(),
                ),
                false => error.into(),
            })?;
        }
        Ok(())
    }
}

/// What is told, and its listener.
struct Progress<'a> {
    at: Shrinking,
    tell: &'a mut dyn FnMut(Shrinking),
}

impl Progress<'_> {
    /// So many bytes more.
    fn add(&mut self, bytes: u64) {
        self.at.done += bytes;
        (self.tell)(self.at);
    }
}

/// Fails where the shape says already that it cannot be.
fn expect_possible(old: &Superblock, new: &Geometry) -> Result<()> {
    let refuse = |why: String| Err(StoreError::Refused(why));
    if new.volume_blocks >= old.geometry.volume_blocks {
        let has = show::bytes(old.geometry.volume_blocks * BLOCK_BYTES);
        return refuse(format!("it has {has} only"));
    }
    if old.features_compat != 0 || old.features_ro_compat & !RO_COMPAT_KNOWN != 0 {
        return refuse(
            "it has features that this program does not know, which may know places of blocks"
                .into(),
        );
    }
    new.check().map_err(|malformed| StoreError::Refused(malformed.why))
}

/// Why the volume cannot have this shape, and which size it can have.
fn refused(seen: &Reached, free: &Free, new: &Geometry) -> StoreError {
    let size = show::bytes(new.volume_blocks * BLOCK_BYTES);
    let why = match new.has_places_for_copies() {
        true => format!("too much of it is in use to have {size}"),
        false => format!(
            "nodes are stored twice, and with {size} too few have a place for the other one"
        ),
    };
    StoreError::Refused(match plan::smallest(seen, free, new) {
        Some(mib) => format!("{why}: it can have about {mib} MiB"),
        None => format!("{why}: it can have no smaller size than it has"),
    })
}
