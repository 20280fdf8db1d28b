//! The superblock: one block that names everything else.
//!
//! Two slots hold it in turn; the valid one with the larger epoch counts. A
//! superblock is written only after a flush covers all that it reaches (R1).
//! A third copy lies at the end of the volume, for one that has lost its first MiB.

mod commit;
mod validate;

use holdfast_base::{BLOCK_SIZE, BlockNo, Epoch, InodeNo, Lsn, Timestamp};
use uuid::Uuid;

use crate::Malformed;
use crate::checksum::crc64_with_hole;
use crate::codec::Reader;
use crate::feature::Carried;
use crate::geometry::{Geometry, SUPERBLOCK_SLOTS};
use crate::journal::JournalMark;
use crate::log::LogMark;
use crate::node::{NodePointer, OfVolume};

/// First bytes of a volume's superblock.
pub const MAGIC: [u8; 16] = *b"holdfast volume\n";
/// Version of the format that this crate reads and writes.
pub const VERSION: u32 = 5;
/// Longest label, in bytes.
pub const LABEL_MAX: usize = 64;
/// Longest name of a program, in bytes.
pub const WRITER_MAX: usize = 32;
/// Longest reason of a fault, in bytes.
pub const REASON_MAX: usize = 160;
/// Blocks have sums of CRC-64/NVME. There is no other kind.
const SUMS_CRC64: u8 = 0;
const SUM_AT: usize = 16;

/// Features whose absence from a program does no harm. Bits known here.
pub const COMPAT_KNOWN: u64 = 0;
/// Features that a program must know in order to write. Bits known here.
pub const RO_COMPAT_KNOWN: u64 = NODE_COPIES | RING_COPIES | LEAF_COPIES;
/// Of the ro_compat features: nodes above the leaves and those of the space tree have copies, at a distance that `copy_mask` says.
pub const NODE_COPIES: u64 = 1;
/// What stands in the rings stands there twice (ro_compat).
pub const RING_COPIES: u64 = 2;
/// Blocks may have several references, which are counted (ro_compat). Readers judge them; no program writes such a volume yet.
pub const SHARED_BLOCKS: u64 = 4;
/// The leaves of files trees have copies as well (ro_compat).
pub const LEAF_COPIES: u64 = 8;
/// Features that a program must know in order to read. Bits known here.
pub const INCOMPAT_KNOWN: u64 = 0;
/// Of the incompat features: extents may be parts of runs, see [`crate::item::run`]. Its form is fixed; no program has it yet.
pub const RUNS: u64 = 1;
/// Extents may be of base images, see [`crate::item::base`] (incompat). Its form is fixed; no program has it yet.
pub const BASES: u64 = 2;

record! {
    /// The superblock's fields; the rest of the block is zero.
    pub struct Fields("superblock", 768 bytes) {
        /// `holdfast volume\n`.
        magic: [u8; 16],
        /// Of the block.
        sum: u64,
        /// Of this slot.
        address: u64,
        /// Checkpoint that wrote it.
        epoch: u64,
        /// 5.
        version: u32,
        /// Bytes of a tree node.
        node_size: u32,
        /// May be ignored.
        features_compat: u64,
        /// Needed to write.
        features_ro_compat: u64,
        /// Needed to read.
        features_incompat: u64,
        /// Id of the volume.
        uuid: [u8; 16],
        /// UTF-8.
        label: [u8; 64],
        /// Blocks of the volume.
        volume_blocks: u64,
        /// Blocks of the log ring in use.
        log_blocks: u64,
        /// Blocks of the journal ring in use.
        journal_blocks: u64,
        /// Seed of name hashes.
        hash_seed: u64,
        /// Files tree's root.
        files_block: u64,
        /// Files tree's root.
        files_epoch: u64,
        /// Space tree's root.
        space_block: u64,
        /// Space tree's root.
        space_epoch: u64,
        /// Files tree's root.
        files_level: u8,
        /// Space tree's root.
        space_level: u8,
        /// Zero.
        pad: [u8; 6],
        /// Last operation in the trees.
        lsn: u64,
        /// Next inode number.
        inode_next: u64,
        /// Inodes in the files tree.
        inode_count: u64,
        /// Blocks in use in the data zone.
        used_blocks: u64,
        /// Blocks that the files tree refers to.
        referenced_blocks: u64,
        /// Last commit in the trees.
        journal_commit: u64,
        /// Block of the next frame, if any.
        journal_next: u64,
        /// `sum` of the frame before; 0: none need be there.
        journal_sum: u64,
        /// Last batch that the trees need not.
        log_batch: u64,
        /// Byte in the log ring of the next batch, if any.
        log_next: u64,
        /// `sum` of the batch before; 0: none need be there.
        log_sum: u64,
        /// Of frames and batches.
        ring_tag: [u8; 8],
        /// Of nodes and signpost.
        node_tag: [u8; 8],
        /// Birth of the volume.
        created: Timestamp,
        /// Kind of data checksums: 0.
        sums: u8,
        /// 1: damage was found. Else 0.
        fault: u8,
        /// Zero.
        pad2: [u8; 2],
        /// When.
        fault_time: Timestamp,
        /// Zero.
        pad3: [u8; 4],
        /// What; UTF-8.
        fault_reason: [u8; 160],
        /// Program and version; UTF-8.
        writer: [u8; 32],
        /// Form of the lineage: 1.
        branches: u64,
        /// Set aside.
        encryption: [u8; 64],
        /// Set aside.
        key_slots: [u8; 16],
        /// Set aside.
        mirror: [u8; 16],
        /// Set aside.
        mirror_state: [u8; 16],
        /// From a node to its copy; 0: no copies.
        copy_mask: u64,
        /// Blocks from a ring to its second place; 0: none.
        ring_distance: u64,
        /// First block of the log ring.
        log_start: u64,
        /// First block of the journal ring.
        journal_start: u64,
        /// First block of the data zone.
        data_start: u64,
        /// Zero.
        reserved: [u8; 56],
    }
}

/// Something that was found damaged, for later questions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundDamage {
    /// When.
    pub time: Timestamp,
    /// What, at most [`REASON_MAX`] bytes.
    pub reason: String,
}

/// A superblock, judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Number of the checkpoint that wrote it.
    pub epoch: Epoch,
    /// Shape of the volume.
    pub geometry: Geometry,
    /// Id of the volume.
    pub uuid: Uuid,
    /// Label, at most [`LABEL_MAX`] bytes.
    pub label: String,
    /// Seed of the name hash.
    pub hash_seed: u64,
    /// Features that may be ignored.
    pub features_compat: u64,
    /// Features that must be known in order to write.
    pub features_ro_compat: u64,
    /// Root of the files tree.
    pub files: NodePointer,
    /// Level of that root.
    pub files_level: u8,
    /// Root of the space tree.
    pub space: NodePointer,
    /// Level of that root.
    pub space_level: u8,
    /// Last operation that the trees contain.
    pub lsn: Lsn,
    /// Next inode number to hand out.
    pub inode_next: InodeNo,
    /// Inodes in the files tree.
    pub inode_count: u64,
    /// Blocks in use in the data zone.
    pub used_blocks: u64,
    /// Blocks that the files tree refers to: those of its nodes, and those that its extents have on the device.
    pub referenced_blocks: u64,
    /// Where the journal goes on.
    pub journal: JournalMark,
    /// Where the log goes on. The first batches there may be contained in the trees.
    pub log: LogMark,
    /// What frames of the journal and batches of the log carry, so that nothing that a user writes is taken
    /// for one: the rings are searched, and files' bytes travel inside them. Shown only to readers of the device.
    pub ring_tag: [u8; 8],
    /// What nodes carry. It is the volume's for life, so that a copy may get another id.
    pub node_tag: [u8; 8],
    /// When the volume was made.
    pub created: Timestamp,
    /// The program that wrote it, at most [`WRITER_MAX`] bytes.
    pub writer: String,
    /// What was found damaged, until fsck finds nothing.
    pub fault: Option<FoundDamage>,
    /// The bytes behind the fields, without zeros at their end: of features that this program does not know. It keeps them.
    pub rest: Vec<u8>,
}

/// Text, cut at a character and padded with zeros.
fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    let len = text.floor_char_boundary(N);
    bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
    bytes
}

/// What [`padded`] has made.
fn text(bytes: &[u8], what: &str) -> Result<String, Malformed> {
    let ends = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    let (text, padding) = bytes.split_at(ends);
    let Ok(text) = std::str::from_utf8(text) else {
        return Fields::fail(format!("its {what} is not UTF-8"));
    };
    if padding.iter().any(|&b| b != 0) {
        return Fields::fail(format!("its {what} goes on after its end"));
    }
    Ok(text.to_owned())
}

/// The version of an intact superblock of any version.
pub fn version_of(block: &[u8; BLOCK_SIZE]) -> Option<u32> {
    let fields = Fields::read(&mut Reader::new(Fields::TITLE, block)).ok()?;
    let intact = fields.magic == MAGIC && crc64_with_hole(block, SUM_AT) == fields.sum;
    intact.then_some(fields.version)
}

/// What of an intact superblock at `address` this program is too old for, and the epoch that it says. Whatever else stands
/// on the device is older, or of no use to a program that does not know what this one brought: nothing may be read by it.
pub fn newer_program(block: &[u8; BLOCK_SIZE], address: BlockNo) -> Option<(Epoch, String)> {
    let fields = Fields::read(&mut Reader::new(Fields::TITLE, block)).ok()?;
    fields.check_intact(block, address).ok()?;
    let unknown = fields.features_incompat & !INCOMPAT_KNOWN;
    match fields.version {
        // Where a later version has its epoch is not known.
        version if version > VERSION => {
            Some((Epoch(u64::MAX), format!("its format is version {version}")))
        }
        VERSION if unknown != 0 => {
            Some((Epoch(fields.epoch), format!("it has the features {unknown:#x}")))
        }
        _ => None,
    }
}

/// What all superblocks of a volume have in common, and those of no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeTags {
    node_tag: [u8; 8],
    ring_tag: [u8; 8],
    created: Timestamp,
}

/// Which volume an intact superblock at `address` is of, also if it has features that this program does not know. `None` if it is of
/// another version: where that has them is not known.
pub fn tags_of(block: &[u8; BLOCK_SIZE], address: BlockNo) -> Option<VolumeTags> {
    let fields = Fields::read(&mut Reader::new(Fields::TITLE, block)).ok()?;
    fields.check_intact(block, address).ok()?;
    let Fields { node_tag, ring_tag, created, version, .. } = fields;
    (version == VERSION).then_some(VolumeTags { node_tag, ring_tag, created })
}

/// What to do with a volume of another version, in a sentence; `None` if it is of this one.
pub fn other_version(version: u32) -> Option<String> {
    match version {
        VERSION => None,
        older if older < VERSION => Some(format!(
            "the volume has format {older}, and this program reads format {VERSION}: copy its files out with the program \
             that wrote it (`holdfast cp`), and make a new volume"
        )),
        newer => Some(format!(
            "the volume has format {newer}, and this program reads format {VERSION}: use the program that wrote it, or a newer one"
        )),
    }
}

impl Superblock {
    /// Which volume it is of.
    pub fn tags(&self) -> VolumeTags {
        let Superblock { node_tag, ring_tag, created, .. } = *self;
        VolumeTags { node_tag, ring_tag, created }
    }

    /// The slot that it belongs to.
    pub fn slot(&self) -> BlockNo {
        let [even, odd] = SUPERBLOCK_SLOTS;
        if self.epoch.0.is_multiple_of(2) { even } else { odd }
    }

    /// What its nodes have in common.
    pub fn nodes(&self) -> OfVolume {
        OfVolume { tag: self.node_tag, carried: self.carried() }
    }

    /// Which unknown things the volume may have.
    pub fn carried(&self) -> Carried {
        Carried {
            compat: self.features_compat & !COMPAT_KNOWN != 0,
            ro_compat: self.features_ro_compat & !(RO_COMPAT_KNOWN | SHARED_BLOCKS) != 0,
        }
    }

    fn fields(&self, address: BlockNo) -> Fields {
        let fault = self.fault.as_ref();
        Fields {
            magic: MAGIC,
            sum: 0,
            address: address.0,
            epoch: self.epoch.0,
            version: VERSION,
            node_size: self.geometry.node_size as u32,
            features_compat: self.features_compat,
            features_ro_compat: self.features_ro_compat,
            features_incompat: INCOMPAT_KNOWN,
            uuid: *self.uuid.as_bytes(),
            label: padded(&self.label),
            volume_blocks: self.geometry.volume_blocks,
            log_blocks: self.geometry.log_blocks,
            journal_blocks: self.geometry.journal_blocks,
            hash_seed: self.hash_seed,
            files_block: self.files.block.0,
            files_epoch: self.files.epoch.0,
            space_block: self.space.block.0,
            space_epoch: self.space.epoch.0,
            files_level: self.files_level,
            space_level: self.space_level,
            pad: [0; 6],
            lsn: self.lsn.0,
            inode_next: self.inode_next.0,
            inode_count: self.inode_count,
            used_blocks: self.used_blocks,
            referenced_blocks: self.referenced_blocks,
            journal_commit: self.journal.commit.0,
            journal_next: self.journal.next.0,
            journal_sum: self.journal.sum,
            log_batch: self.log.batch.0,
            log_next: self.log.next,
            log_sum: self.log.sum,
            ring_tag: self.ring_tag,
            node_tag: self.node_tag,
            created: self.created,
            sums: SUMS_CRC64,
            fault: fault.is_some().into(),
            pad2: [0; 2],
            fault_time: fault.map(|fault| fault.time).unwrap_or_default(),
            pad3: [0; 4],
            fault_reason: padded(fault.map_or("", |fault| &fault.reason)),
            writer: padded(&self.writer),
            branches: 1,
            encryption: [0; 64],
            key_slots: [0; 16],
            mirror: [0; 16],
            mirror_state: [0; 16],
            copy_mask: self.geometry.copy_mask,
            ring_distance: self.geometry.ring_distance,
            log_start: self.geometry.log_start,
            journal_start: self.geometry.journal_start,
            data_start: self.geometry.data_start,
            reserved: [0; 56],
        }
    }

    /// The block on disk, for the slot at `address`.
    pub fn encode(&self, address: BlockNo) -> Box<[u8; BLOCK_SIZE]> {
        let mut block = Box::new([0; BLOCK_SIZE]);
        block[..Fields::SIZE].copy_from_slice(&self.fields(address).bytes());
        let rest = &mut block[Fields::SIZE..];
        let len = self.rest.len().min(rest.len());
        rest[..len].copy_from_slice(&self.rest[..len]);
        let sum = crc64_with_hole(&block[..], SUM_AT);
        block[SUM_AT..SUM_AT + 8].copy_from_slice(&sum.to_le_bytes());
        block
    }

    /// Reads and judges the block found at `address`.
    pub fn decode(block: &[u8; BLOCK_SIZE], address: BlockNo) -> Result<Superblock, Malformed> {
        let mut reader = Reader::new(Fields::TITLE, block);
        let fields = Fields::read(&mut reader)?;
        fields.check_intact(block, address)?;
        fields.check_known()?;
        let geometry = fields.geometry()?;
        let [files, space] = fields.roots(&geometry)?;
        fields.check_counters(&geometry)?;
        fields.check_slot(&geometry)?;
        let journal = fields.journal(&geometry)?;
        let log = fields.log(&geometry)?;
        fields.check_reserved()?;
        let rest = reader.rest();
        // Mostly there is nothing, and that is read in large pieces.
        let zeros = rest.rchunks_exact(64).take_while(|piece| **piece == [0; 64]).count() * 64;
        let used = &rest[..rest.len() - zeros];
        let len = used.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
        let superblock = Superblock {
            epoch: Epoch(fields.epoch),
            geometry,
            uuid: Uuid::from_bytes(fields.uuid),
            label: text(&fields.label, "label")?,
            hash_seed: fields.hash_seed,
            features_compat: fields.features_compat,
            features_ro_compat: fields.features_ro_compat,
            files,
            files_level: fields.files_level,
            space,
            space_level: fields.space_level,
            lsn: Lsn(fields.lsn),
            inode_next: InodeNo(fields.inode_next),
            inode_count: fields.inode_count,
            used_blocks: fields.used_blocks,
            referenced_blocks: fields.referenced_blocks,
            journal,
            log,
            ring_tag: fields.ring_tag,
            node_tag: fields.node_tag,
            created: fields.created,
            writer: text(&fields.writer, "writer")?,
            fault: fields.found_fault()?,
            rest: rest[..len].to_vec(),
        };
        // Of what it does not know, a program says nothing; but without an unknown feature there is nothing.
        if len > 0 && !superblock.carried().is_any() {
            return Fields::fail("reserved bytes are set");
        }
        Ok(superblock)
    }
}
