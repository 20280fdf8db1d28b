//! mkfs: an empty store on a device.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_base::stop::Stop;
use holdfast_base::units::{BLOCK_BYTES, BLOCK_SIZE};
use holdfast_base::{BlockNo, CommitNo, Epoch, InodeNo, Lsn, prng};
use holdfast_device::{Device, Sticky};
use holdfast_format::geometry::{SIGNPOST, SUPERBLOCK_SLOTS, far_copy};
use holdfast_format::superblock::{LEAF_COPIES, NODE_COPIES, RING_COPIES};
use holdfast_format::{JournalMark, LogMark, NodePointer, Signpost, Superblock};

use crate::apply::Slots;
use crate::guard;
use crate::space::slots::NodeSlots;
use crate::tree::TreeNo;
use crate::{
    CreateOptions, Discard, Inner, Need, OpenOptions, Result, StoreError, Transaction, open,
    signpost, superblock,
};

/// Memory for the nodes of an empty volume.
const CACHE_BYTES: usize = 8 << 20;

/// Changes that the first transaction may make.
const FIRST_CHANGES: u32 = 16;

/// Where the root of an empty tree is.
const NOWHERE: NodePointer = NodePointer { block: BlockNo(0), epoch: Epoch(0) };

pub(crate) fn create(
    device: &Arc<dyn Device>,
    options: &CreateOptions,
    first: Transaction,
) -> Result<()> {
    let geometry = options.geometry;
    geometry.check_own().map_err(|malformed| StoreError::Refused(malformed.why))?;
    if geometry.volume_blocks > device.len() / BLOCK_BYTES {
        return Err(StoreError::Refused("the device is smaller than the volume".into()));
    }
    guard::before_mkfs(device)?;
    // First the old superblocks: a mkfs that is cut short leaves no volume, never half of one.
    // The far copies too: that of a volume of this size, and that which a search from the device's end finds.
    let far = [geometry.far_copy(), far_copy(device.len() / BLOCK_BYTES)];
    for block in SUPERBLOCK_SLOTS.into_iter().chain([SIGNPOST]).chain(far) {
        let at = block.byte_offset().expect("it lies on the device");
        device.write(at, &[0; BLOCK_SIZE])?;
    }
    let _ = device.flush()?;
    // But for a marker in each the rings stay as they are: no byte of them counts without the tag of this volume. So an image takes
    // no space for them before they are used.
    let mut inner = empty(device.clone(), options);
    signpost::write(&*inner.device, Signpost::of(&inner.superblock.lock()))?;
    let place = inner.mark_rings()?;
    inner.pending.set_place(place);
    {
        let mut forest = inner.forest.write();
        let mut space = inner.space.lock();
        space.loaded = true;
        for tree in [TreeNo::MAIN, TreeNo::SPACE] {
            let slots = &mut Slots { space: &mut space, promised: &mut NodeSlots::none() };
            forest.plant(tree, slots);
        }
    }
    // Before the first superblock: a volume that can be opened has what its maker wants to find there.
    let mut reservation =
        inner.reserve(TreeNo::MAIN, Need::Grow { changes: FIRST_CHANGES, blocks: 0 })?;
    inner.apply(TreeNo::MAIN, first, &mut reservation)?;
    drop(reservation);
    // Twice, so that both slots hold a superblock.
    inner.first_checkpoint()?;
    inner.first_checkpoint()?;
    let mut journal = inner.journal.lock();
    let epoch = inner.superblock.lock().epoch;
    journal.end(&*inner.device, epoch)?;
    guard::after_mkfs(device, options.uuid)
}

/// The superblock of a volume whose trees have no root yet.
fn superblock_of(options: &CreateOptions) -> Superblock {
    let geometry = options.geometry;
    Superblock {
        epoch: Epoch(0),
        geometry,
        uuid: options.uuid,
        label: options.label.clone(),
        hash_seed: options.hash_seed,
        features_compat: 0,
        features_ro_compat: if geometry.copy_mask == 0 { 0 } else { NODE_COPIES }
            | if geometry.leaf_copies { LEAF_COPIES } else { 0 }
            | if geometry.ring_distance == 0 { 0 } else { RING_COPIES },
        files: NOWHERE,
        files_level: 0,
        space: NOWHERE,
        space_level: 0,
        lsn: Lsn(0),
        inode_next: InodeNo::FIRST_FREE,
        inode_count: 0,
        used_blocks: 0,
        referenced_blocks: 0,
        journal: JournalMark { commit: CommitNo(0), next: geometry.journal().start, sum: 0 },
        log: LogMark::START,
        // A user that writes data cannot guess it.
        ring_tag: prng::entropy().to_le_bytes(),
        node_tag: options.node_tag,
        created: options.created,
        writer: superblock::WRITER.into(),
        fault: None,
        rest: Vec::new(),
    }
}

/// A store in memory whose trees have no root yet.
fn empty(device: Arc<dyn Device>, options: &CreateOptions) -> Inner {
    let stop: Arc<Stop> = Arc::default();
    let device: Arc<dyn Device> = Arc::new(Sticky::new(device, stop.clone()));
    let how = OpenOptions {
        cache_bytes: CACHE_BYTES,
        bitmaps: usize::MAX,
        discard: Discard::Off,
        ..OpenOptions::default()
    };
    let superblock = superblock_of(options);
    open::at((&device, &stop), &how, &Arc::default(), &superblock, BTreeMap::new(), &Arc::default())
}
