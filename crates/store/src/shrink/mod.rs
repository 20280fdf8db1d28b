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
//! - The far copy of the new size may lie where the superblock of before reaches data; the first one that leads to the new trees does not.

mod place;
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
use place::Places;
use rewrite::Rewrite;
use walk::{Nodes, Seen};

/// Steps of deletions that are made before each question whether to go on.
const STEPS: usize = 1000;

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
/// there can be. Those of opening the volume. The volume is what it was.
pub fn shrink(
    device: &Arc<dyn Device>,
    bytes: u64,
    tell: &mut dyn FnMut(Shrinking),
) -> Result<u64> {
    let store = open(device)?;
    while store.work_off_deletions(STEPS)? {}
    store.commit_deletions()?;
    let made = store.inner.shrink(bytes / BLOCK_BYTES, tell)?;
    // What it has in memory is of the larger volume. It has nothing to write any more.
    drop(store);
    let store = open(device)?;
    store.change_identity(&Identity::default())?;
    store.close()?;
    Ok(made.volume_blocks * BLOCK_BYTES)
}

fn open(device: &Arc<dyn Device>) -> Result<Store> {
    let options = OpenOptions { threads: false, ..OpenOptions::default() };
    Store::open(device.clone(), &options, Arc::new(Counters::default()))
}

impl Inner {
    fn shrink(&self, volume_blocks: u64, tell: &mut dyn FnMut(Shrinking)) -> Result<Geometry> {
        self.check_running()?;
        self.expect_rings()?;
        let _one = self.lock_checkpoints()?;
        let mut journal = self.journal.lock();
        self.checkpoint_at_once(&mut journal)?;
        let old = self.superblock.lock().clone();
        let geometry = Geometry { volume_blocks, ..old.geometry };
        expect_possible(&old, &geometry)?;
        self.take_far_copy(&geometry)?;
        let nodes = Nodes::of(&*self.device, &old);
        let all = self.space.lock().nodes() * old.geometry.node_size as u64;
        let mut progress = Progress { at: Shrinking { done: 0, all }, tell };
        let seen = Seen::walk(&nodes, &old, geometry.far_copy(), &mut progress)?;
        let mut places = Places::of(&seen, &geometry);
        if !geometry.has_places_for_copies() {
            return Err(StoreError::Refused(format!(
                "nodes are stored twice, and with {} too few have a place for the other one: it can have about {}",
                show::bytes(volume_blocks * BLOCK_BYTES),
                show::bytes(smallest(&old, &seen))
            )));
        }
        let moves = places.for_runs(&seen.runs).and_then(|moves| {
            let slots = seen.nodes_at_most() + 2 * seen.space_nodes;
            places.has_slots(slots + reserve(&geometry)).then_some(moves)
        });
        let Some(moves) = moves else {
            return Err(StoreError::Refused(format!(
                "too much of it is in use to have {}: it can have about {}",
                show::bytes(volume_blocks * BLOCK_BYTES),
                show::bytes(smallest(&old, &seen))
            )));
        };
        progress.at.all += moves.bytes();
        moves.copy(&*self.device, &mut progress)?;
        let mut rewrite = Rewrite::new(&nodes, seen, geometry.far_copy(), moves, places);
        let files = rewrite.node(old.files, old.files_level)?;
        let items = rewrite.lineage()?;
        // Once as large as it was: the place of the new far copy is nothing's then, whichever superblock counts.
        let epoch = old.epoch.next();
        let (space, used_blocks) = space_tree::build(&mut rewrite, items, &geometry, epoch)?;
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
        let smaller = Superblock { epoch: epoch.next(), geometry, ..new };
        let present = Present { epoch, blocks };
        let _published = superblock::publish(&*self.device, &smaller, present, reached)?;
        Ok(geometry)
    }

    /// Takes the place of the new far copy from the host: behind the slot there is no way back, and without that copy no repair could
    /// open the volume for writing.
    fn take_far_copy(&self, new: &Geometry) -> Result<()> {
        let at = new.far_copy().0 * BLOCK_BYTES;
        self.device.take_room(at, BLOCK_BYTES).map_err(|error| match error.is_no_space() {
            true => StoreError::Refused(
                "the host has no room for the superblock at the volume's new end; make room there"
                    .into(),
            ),
            false => error.into(),
        })
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

/// Slots that a volume of this shape keeps for commits and removals (P8).
fn reserve(geometry: &Geometry) -> u64 {
    crate::space::reserve_of(geometry)
}

/// About the smallest size that a volume with so much in it can have.
fn smallest(old: &Superblock, seen: &Seen) -> u64 {
    let geometry = &old.geometry;
    let slot = geometry.slot_blocks();
    let mut blocks = geometry.first_data_block().0 + old.used_blocks;
    for _ in 0..4 {
        let shape = Geometry { volume_blocks: blocks.min(geometry.volume_blocks), ..*geometry };
        let slots = reserve(&shape) + seen.nodes_at_most() + 2 * seen.space_nodes;
        blocks = geometry.first_data_block().0 + old.used_blocks + slots * slot + 32;
    }
    let first = (blocks * BLOCK_BYTES).next_multiple_of(1 << 20);
    let sizes = (first..)
        .step_by(1 << 20)
        .take_while(|bytes| *bytes < geometry.volume_blocks * BLOCK_BYTES);
    let shape = |bytes: u64| Geometry { volume_blocks: bytes / BLOCK_BYTES, ..*geometry };
    // Nearer to where the volume ends now there are more places for copies.
    { sizes }
        .find(|bytes| shape(*bytes).has_places_for_copies())
        .unwrap_or(geometry.volume_blocks * BLOCK_BYTES)
}
