//! Which state of a volume is salvaged: that of the newest superblock with journal and log behind it, unless younger roots prove one by
//! what they reach; without one, that of the newest roots that do; without a root, the leaves alone.

mod by_roots;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BatchNo, BlockNo, CommitNo, Epoch, InodeNo, Lsn, Timestamp, TreeId};
use holdfast_check::reading::{NodePlace, Rings, VolumeReading};
use holdfast_device::Device;
use holdfast_format::journal::JournalMark;
use holdfast_format::limits::{GROUP_BLOCKS, JOURNAL_BLOCKS_MIN, LOG_BLOCKS_MIN};
use holdfast_format::log::LogMark;
use holdfast_format::{Geometry, NodePointer, Superblock};
use uuid::Uuid;

use self::by_roots::by_roots;
use crate::behind;
use crate::cover::Root;
use crate::error::SalvageError;
use crate::index::Index;
use crate::proof::{Bitmaps, proven_bitmaps};
use crate::roots::roots;
use crate::scan::{Copies, FoundNode, Scan, Tag};
use crate::tolerant::Tolerant;

/// Which of the states that are there is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The tag of the nodes of the volume. `None`: the volume with a superblock; without any, that with the most nodes.
    pub volume: Option<Tag>,
    /// The newest state that is not younger than this checkpoint. `None`: the last one.
    pub epoch: Option<u64>,
    /// The block of the root of `main`.
    pub root: Option<u64>,
}

/// A state that was chosen.
pub(crate) struct Chosen<'d> {
    pub(crate) reading: VolumeReading<'d>,
    pub(crate) index: Index,
    /// The root of `main`, if there is one.
    pub(crate) main: Option<Root>,
    /// Nothing of the state is younger.
    pub(crate) epoch: Epoch,
    /// How it is known, in a sentence.
    pub(crate) by: String,
    pub(crate) notes: Vec<String>,
    /// Epochs of the superblocks that are left.
    pub(crate) superblocks: Vec<u64>,
}

/// The number of the volume that is meant.
pub(crate) fn volume(scan: &Scan, choice: &Choice) -> Result<u32, SalvageError> {
    let number = |tag: &Tag| scan.volumes.iter().position(|of| of == tag);
    if let Some(tag) = &choice.volume {
        return number(tag).map(|at| at as u32).ok_or(SalvageError::NoSuchVolume);
    }
    let counts = counts(scan);
    let has_superblock = |at: usize| {
        scan.superblocks.iter().any(|found| found.superblock.node_tag == scan.volumes[at])
    };
    let best = (0..scan.volumes.len())
        .max_by_key(|at| (has_superblock(*at), scan.has_first[*at], counts[*at]));
    best.map(|at| at as u32).ok_or(SalvageError::Nothing)
}

/// How many nodes each volume has.
pub(crate) fn counts(scan: &Scan) -> Vec<u64> {
    let mut counts = vec![0; scan.volumes.len()];
    for node in &scan.nodes {
        if let Some(count) = counts.get_mut(node.volume as usize) {
            *count += 1;
        }
    }
    counts
}

impl<'d> Chosen<'d> {
    /// The state that is meant of a volume.
    pub(crate) fn choose(
        device: &'d Tolerant<'_>,
        scan: Scan,
        choice: &Choice,
    ) -> Result<Chosen<'d>, SalvageError> {
        let number = volume(&scan, choice)?;
        let tag = scan.volumes.get(number as usize).copied().ok_or(SalvageError::NoSuchVolume)?;
        let limit = choice.epoch.unwrap_or(u64::MAX);
        let superblocks = scan.superblocks.iter().map(|found| &found.superblock);
        let own = superblocks.filter(|superblock| superblock.node_tag == tag);
        let epochs: Vec<u64> = own.clone().map(|superblock| superblock.epoch.0).collect();
        let any = own.clone().max_by_key(|superblock| superblock.epoch).cloned();
        let superblock =
            own.filter(|of| of.epoch.0 <= limit).max_by_key(|superblock| superblock.epoch).cloned();
        // What a newer program has written is not read as if there were nothing newer.
        let known = any.as_ref().map_or(0, |superblock| superblock.epoch.0);
        if let Some((_, words)) = scan
            .other_programs
            .iter()
            .find(|(epoch, _)| any.is_none() || epoch.0 >= known && epoch.0 > 0)
        {
            return Err(SalvageError::OtherProgram(words.clone()));
        }
        let mut index = Index::of_volume(scan.nodes, number);
        let newest = index.newest();
        let size = index.nodes.iter().map(|node| u64::from(node.blocks)).max().unwrap_or(4);
        let copies = scan.copies.get(number as usize).copied().unwrap_or_default();
        let made = made_up(device, tag, (size, copies), any.as_ref());
        if let Some(superblock) = superblock.filter(|_| choice.root.is_none()) {
            let is_current = is_current(&superblock, newest.min(limit));
            if is_current || !is_superseded(device, &made, &index, &superblock, limit)? {
                let state = Chosen::by_superblock(device, superblock, index, tag, choice.epoch)?;
                let mut notes = state.notes;
                notes.extend((!is_current).then(|| unproven(newest)));
                return Ok(Chosen { superblocks: epochs, notes, ..state });
            }
        }
        // The sizes of nodes are those of one volume.
        index.nodes.retain(|node| u64::from(node.blocks) == made.geometry.node_blocks());
        if let (Some(wanted), None) = (choice.epoch, choice.root)
            && let Some(oldest) = index.oldest_of(TreeId::Files).filter(|oldest| *oldest > wanted)
        {
            return Err(SalvageError::NoSuchEpoch(wanted, oldest));
        }
        let state = by_roots(device, made, index, choice)?;
        Ok(Chosen { superblocks: epochs, ..state })
    }

    fn by_superblock(
        device: &'d Tolerant<'_>,
        superblock: Superblock,
        mut index: Index,
        tag: Tag,
        wanted: Option<u64>,
    ) -> Result<Chosen<'d>, SalvageError> {
        let rings = if wanted.is_some() { Rings::Ignored } else { Rings::Replayed };
        let (epoch, blocks) = (superblock.epoch, superblock.geometry.volume_blocks);
        index.nodes.retain(|node| u64::from(node.blocks) == superblock.geometry.node_blocks());
        let reading = VolumeReading::with_superblock(device, superblock, rings)?;
        index.take_journal(&reading, tag);
        let now = reading.superblock();
        let main = Root { place: NodePlace::root(now.files, now.files_level), is_said: true };
        let mut notes: Vec<String> = reading.missing_of_rings();
        notes.iter_mut().for_each(|note| note.push_str(": what was changed after that is lost"));
        notes.extend(behind::told(&reading));
        let have = device.len() / BLOCK_BYTES;
        if have < blocks {
            notes.push(format!("the device ends after {have} of the volume's {blocks} blocks"));
        }
        let by = match rings {
            Rings::Replayed => {
                format!(
                    "the superblock of epoch {epoch}, with journal and log up to operation {}",
                    now.lsn
                )
            }
            Rings::Ignored => format!("the superblock of epoch {epoch}, without journal and log"),
        };
        let epoch = now.epoch;
        Ok(Chosen { main: Some(main), epoch, by, notes, index, reading, superblocks: Vec::new() })
    }
}

/// Whether no node proves that there were two checkpoints behind that of the superblock. One may have been under way.
fn is_current(superblock: &Superblock, newest: u64) -> bool {
    newest < superblock.epoch.0.saturating_add(2)
}

/// Whether a younger state than that of the superblock proves itself by what its roots reach: a space tree of a later checkpoint that
/// marks its own root and that of a files tree as in use. A node alone must not hide a tree that a superblock leads to.
fn is_superseded(
    device: &Tolerant<'_>,
    made: &Superblock,
    index: &Index,
    superblock: &Superblock,
    limit: u64,
) -> Result<bool, SalvageError> {
    let reading = VolumeReading::with_superblock(device, made.clone(), Rings::Ignored)?;
    let files = roots(&reading, index, TreeId::Files, limit);
    let spaces = roots(&reading, index, TreeId::Space, limit);
    let younger = spaces.into_iter().filter(|node| !is_current(superblock, node.epoch));
    let is_of = |root: &FoundNode, bitmaps: &Bitmaps| {
        root.epoch > superblock.epoch.0
            && root.epoch <= bitmaps.root.epoch
            && bitmaps.has(root.block)
    };
    let is_proof = |bitmaps: &Bitmaps| files.iter().any(|root| is_of(root, bitmaps));
    Ok(proven_bitmaps(device, made, younger, is_proof)?.is_some())
}

/// What is said of nodes that are younger than a state and are no state.
fn unproven(newest: u64) -> String {
    format!(
        "there are nodes up to epoch {newest}, and no roots that prove a state so young by what they reach: \
         --list shows those that there are, --root takes one"
    )
}

/// What stands for a superblock where there is none: what the nodes tell, and of a superblock of the volume what never changes.
fn made_up(
    device: &dyn Device,
    tag: Tag,
    (node_blocks, copies): (u64, Copies),
    of: Option<&Superblock>,
) -> Superblock {
    let copy_mask = of.map_or(copies.mask, |of| of.geometry.copy_mask);
    // Up to the last block of the device a node may be, and its copy anywhere in the same group.
    let unit = if copy_mask == 0 { 16 } else { GROUP_BLOCKS };
    let volume_blocks = (device.len() / BLOCK_BYTES).next_multiple_of(unit).saturating_add(16);
    let geometry = Geometry {
        volume_blocks,
        node_size: (node_blocks * BLOCK_BYTES) as usize,
        log_start: 0,
        log_blocks: 0,
        journal_start: 0,
        journal_blocks: 0,
        data_start: 0,
        copy_mask,
        leaf_copies: copies.of_leaves,
        ring_distance: 0,
    };
    let geometry = geometry.with_ring_blocks(LOG_BLOCKS_MIN, JOURNAL_BLOCKS_MIN);
    let geometry = of.map_or(geometry, |of| Geometry { volume_blocks, ..of.geometry });
    let nowhere = NodePointer { block: BlockNo(0), epoch: Epoch(0) };
    Superblock {
        epoch: Epoch(holdfast_format::limits::COUNTER_MAX),
        geometry,
        uuid: of.map_or(Uuid::nil(), |of| of.uuid),
        label: of.map_or(String::new(), |of| of.label.clone()),
        hash_seed: of.map_or(0, |of| of.hash_seed),
        // Nodes may hold what any feature brings.
        features_compat: of.map_or(u64::MAX, |of| of.features_compat),
        features_ro_compat: of.map_or(u64::MAX, |of| of.features_ro_compat),
        files: nowhere,
        files_level: 0,
        space: nowhere,
        space_level: 0,
        lsn: Lsn(0),
        inode_next: InodeNo(0),
        inode_count: 0,
        used_blocks: 0,
        referenced_blocks: 0,
        journal: JournalMark { commit: CommitNo(0), next: BlockNo(0), sum: 0 },
        log: LogMark { batch: BatchNo(0), next: 0, sum: 0 },
        ring_tag: [0; 8],
        node_tag: tag,
        created: Timestamp::default(),
        writer: String::new(),
        fault: None,
        rest: Vec::new(),
    }
}
