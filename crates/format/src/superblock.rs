//! The superblock: one block that names everything else.
//!
//! Two slots hold it in turn; the valid one with the larger epoch counts. A
//! superblock is written only after a flush covers all that it reaches (R1).

use holdfast_base::{BLOCK_SIZE, BatchNo, BlockNo, CommitNo, Epoch, InodeNo, Lsn};
use uuid::Uuid;

use crate::Malformed;
use crate::checksum::crc64_with_hole;
use crate::codec::Reader;
use crate::geometry::{Geometry, SUPERBLOCK_SLOTS};
use crate::journal::{CommitHead, JournalMark};
use crate::limits::COUNTER_MAX;
use crate::log::LogMark;
use crate::node::NodePointer;
use crate::roots::judge_roots;

/// First bytes of a volume's superblock.
pub const MAGIC: [u8; 16] = *b"holdfast volume\n";
/// Version of the format that this crate reads and writes.
pub const VERSION: u32 = 4;
/// Longest label, in bytes.
pub const LABEL_MAX: usize = 64;
const SUM_AT: usize = 16;

/// Features whose absence from a program does no harm. Bits known here.
pub const COMPAT_KNOWN: u64 = 0;
/// Features that a program must know in order to write. Bits known here.
pub const RO_COMPAT_KNOWN: u64 = 0;
/// Features that a program must know in order to read. Bits known here.
pub const INCOMPAT_KNOWN: u64 = 0;

record! {
    /// The superblock's fields; the rest of the block is zero.
    #[derive(Copy)]
    pub struct Fields("superblock", 320 bytes) {
        /// `holdfast volume\n`.
        magic: [u8; 16],
        /// CRC-64/NVME of the whole block with this field as zero.
        sum: u64,
        /// Block number of this slot.
        address: u64,
        /// Number of the checkpoint that wrote it.
        epoch: u64,
        /// Version of the format, 4.
        version: u32,
        /// Bytes of a tree node.
        node_size: u32,
        /// Features that may be ignored.
        features_compat: u64,
        /// Features that must be known in order to write.
        features_ro_compat: u64,
        /// Features that must be known in order to read.
        features_incompat: u64,
        /// Id of the volume.
        uuid: [u8; 16],
        /// Label, padded with zeros.
        label: [u8; 64],
        /// Blocks of the volume.
        volume_blocks: u64,
        /// Blocks of the log ring.
        log_blocks: u64,
        /// Blocks of the journal ring.
        journal_blocks: u64,
        /// Seed of the name hash.
        hash_seed: u64,
        /// Root of the files tree: block.
        files_block: u64,
        /// Root of the files tree: epoch that wrote it.
        files_epoch: u64,
        /// Root of the space tree: block.
        space_block: u64,
        /// Root of the space tree: epoch that wrote it.
        space_epoch: u64,
        /// Level of the files tree's root, 0 for a leaf.
        files_level: u8,
        /// Level of the space tree's root.
        space_level: u8,
        /// Zero.
        pad: [u8; 6],
        /// Last operation that the trees contain.
        lsn: u64,
        /// Next inode number to hand out.
        inode_next: u64,
        /// Inodes in the files tree.
        inode_count: u64,
        /// Blocks in use in the data zone.
        used_blocks: u64,
        /// Last commit of the journal that the trees contain.
        journal_commit: u64,
        /// Block at which the next frame of the journal lies, if there is one.
        journal_next: u64,
        /// Checksum of the frame before it, 0 if there never was one.
        journal_sum: u64,
        /// Last batch of the log that the trees need not.
        log_batch: u64,
        /// Byte of the log ring at which the next batch begins, if there is one.
        log_next: u64,
        /// Checksum of the batch before it, 0 if there never was one.
        log_sum: u64,
        /// What frames of the journal and batches of the log carry: drawn by chance, known to this block alone.
        ring_tag: [u8; 8],
        /// Zero.
        reserved: [u8; 8],
    }
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
    /// Where the journal goes on.
    pub journal: JournalMark,
    /// Where the log goes on. The first batches there may be contained in the trees.
    pub log: LogMark,
    /// What frames of the journal and batches of the log carry, so that nothing that a user writes is taken
    /// for one: the rings are searched, and files' bytes travel inside them. Shown only to readers of the device.
    pub ring_tag: [u8; 8],
}

impl Superblock {
    /// The block on disk, for the slot at `address`.
    pub fn encode(&self, address: BlockNo) -> Box<[u8; BLOCK_SIZE]> {
        let mut label = [0; LABEL_MAX];
        let len = self.label.floor_char_boundary(LABEL_MAX);
        label[..len].copy_from_slice(&self.label.as_bytes()[..len]);
        let fields = Fields {
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
            label,
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
            journal_commit: self.journal.commit.0,
            journal_next: self.journal.next.0,
            journal_sum: self.journal.sum,
            log_batch: self.log.batch.0,
            log_next: self.log.next,
            log_sum: self.log.sum,
            ring_tag: self.ring_tag,
            reserved: [0; 8],
        };
        let mut bytes = Vec::with_capacity(BLOCK_SIZE);
        fields.write(&mut bytes);
        let mut block = Box::new([0; BLOCK_SIZE]);
        block[..bytes.len()].copy_from_slice(&bytes);
        let sum = crc64_with_hole(&block[..], SUM_AT);
        block[SUM_AT..SUM_AT + 8].copy_from_slice(&sum.to_le_bytes());
        block
    }

    /// Reads and judges the block found at `address`.
    pub fn decode(block: &[u8; BLOCK_SIZE], address: BlockNo) -> Result<Superblock, Malformed> {
        let mut reader = Reader::new(Fields::TITLE, block);
        let fields = Fields::read(&mut reader)?;
        let fail = |why: String| Err(Malformed::new(Fields::TITLE, why));
        if fields.magic != MAGIC {
            return fail("the magic is missing".into());
        }
        if crc64_with_hole(block, SUM_AT) != fields.sum {
            return fail("its checksum does not match".into());
        }
        if fields.address != address.0 {
            return fail(format!("it belongs to block {}", fields.address));
        }
        if fields.version != VERSION {
            return fail(format!("version {} is not {VERSION}", fields.version));
        }
        let unknown = fields.features_incompat & !INCOMPAT_KNOWN;
        if unknown != 0 {
            return fail(format!("features {unknown:#x} are unknown to this program"));
        }
        let geometry = Geometry {
            volume_blocks: fields.volume_blocks,
            node_size: fields.node_size as usize,
            log_blocks: fields.log_blocks,
            journal_blocks: fields.journal_blocks,
        };
        geometry.check()?;
        let files =
            NodePointer { block: BlockNo(fields.files_block), epoch: Epoch(fields.files_epoch) };
        let space =
            NodePointer { block: BlockNo(fields.space_block), epoch: Epoch(fields.space_epoch) };
        let roots = [(files, fields.files_level), (space, fields.space_level)];
        judge_roots(&geometry, Epoch(fields.epoch), roots)
            .map_err(|why| Malformed::new(Fields::TITLE, why))?;
        if fields.used_blocks > geometry.data_blocks() {
            return fail(format!("{} used blocks are too many", fields.used_blocks));
        }
        // Counters only grow; a volume that has counted so far does not exist.
        let counters = [
            fields.inode_next,
            fields.epoch,
            fields.lsn,
            fields.inode_count,
            fields.journal_commit,
            fields.log_batch,
        ];
        if fields.inode_next < InodeNo::FIRST_FREE.0 || counters.iter().any(|n| *n > COUNTER_MAX) {
            return fail("its counters are out of range".into());
        }
        // The slots alternate (R1): an epoch has its slot.
        if SUPERBLOCK_SLOTS[(fields.epoch % 2) as usize] != address {
            return fail(format!("epoch {} does not belong into this slot", fields.epoch));
        }
        let journal = JournalMark {
            commit: CommitNo(fields.journal_commit),
            next: BlockNo(fields.journal_next),
            sum: fields.journal_sum,
        };
        let ring = geometry.journal();
        if !(ring.start.0..ring.start.0 + ring.count).contains(&journal.next.0) {
            return fail(format!("block {} does not lie in the journal", journal.next));
        }
        let log = LogMark {
            batch: BatchNo(fields.log_batch),
            next: fields.log_next,
            sum: fields.log_sum,
        };
        log.check(&geometry).map_err(|why| Malformed::new(Fields::TITLE, why))?;
        if fields.pad != [0; 6]
            || fields.reserved != [0; 8]
            || reader.rest().iter().any(|&b| b != 0)
        {
            return fail("reserved bytes are set".into());
        }
        let ends = fields.label.iter().position(|&b| b == 0);
        let (label, padding) = fields.label.split_at(ends.unwrap_or(LABEL_MAX));
        let Ok(label) = std::str::from_utf8(label) else {
            return fail("its label is not UTF-8".into());
        };
        if padding.iter().any(|&b| b != 0) {
            return fail("its label goes on after its end".into());
        }
        Ok(Superblock {
            epoch: Epoch(fields.epoch),
            geometry,
            uuid: Uuid::from_bytes(fields.uuid),
            label: label.to_owned(),
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
            journal,
            log,
            ring_tag: fields.ring_tag,
        })
    }
}

impl CommitHead {
    /// The superblock that stands for `before` and the commits up to this one, which end at `journal`.
    pub fn superblock(
        &self,
        before: &Superblock,
        epoch: Epoch,
        journal: JournalMark,
    ) -> Superblock {
        Superblock {
            epoch,
            files: self.files(),
            files_level: self.files_level,
            space: self.space(),
            space_level: self.space_level,
            lsn: Lsn(self.lsn),
            inode_next: InodeNo(self.inode_next),
            inode_count: self.inode_count,
            used_blocks: self.used_blocks,
            journal,
            log: self.log(),
            ..before.clone()
        }
    }

    /// The head of a commit that stands for `now`.
    pub fn of(now: &Superblock) -> CommitHead {
        CommitHead {
            lsn: now.lsn.0,
            inode_next: now.inode_next.0,
            inode_count: now.inode_count,
            used_blocks: now.used_blocks,
            files_block: now.files.block.0,
            files_epoch: now.files.epoch.0,
            space_block: now.space.block.0,
            space_epoch: now.space.epoch.0,
            files_level: now.files_level,
            space_level: now.space_level,
            pad: [0; 6],
            nodes: 0,
            cancels: 0,
            extents: 0,
            pad2: 0,
            log_batch: now.log.batch.0,
            log_next: now.log.next,
            log_sum: now.log.sum,
        }
    }
}
