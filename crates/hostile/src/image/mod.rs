//! A golden volume, and the structures in it.
//!
//! [`Image::new`] finds every superblock, node, frame and batch that is whole. [`edit`] changes copies of them, and
//! [`seal`] repairs their checksums.

pub mod edit;
mod lineage;
pub mod records;
pub mod seal;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo};
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::checksum::crc64_with_hole;
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::journal::FrameHeader;
use holdfast_format::log::{LogHeader, UNIT};
use holdfast_format::node::MAGIC;
use holdfast_format::{Geometry, Superblock};

/// What a structure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sort {
    /// A superblock slot.
    Superblock,
    /// A tree node.
    Node,
    /// A frame of the journal.
    Frame,
    /// A batch of the log.
    Batch,
}

/// Something with a checksum.
#[derive(Clone, Debug)]
pub struct Structure {
    /// What it is.
    pub sort: Sort,
    /// Byte of the device.
    pub at: u64,
    /// Its bytes, whole blocks or sectors.
    pub bytes: Vec<u8>,
}

/// A golden volume.
#[derive(Debug)]
pub struct Image {
    /// Its name.
    pub name: &'static str,
    /// Its newest superblock.
    pub superblock: Superblock,
    /// What is in it, by address.
    pub structures: Vec<Structure>,
    device: MemoryDevice,
}

fn bytes_at(device: &MemoryDevice, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    device.read(at, &mut bytes).expect("the golden volume has these bytes");
    bytes
}

impl Image {
    /// The volume on `device`, which is honest.
    pub fn new(name: &'static str, device: MemoryDevice) -> Image {
        let mut structures = Vec::new();
        let mut superblock: Option<Superblock> = None;
        for slot in SUPERBLOCK_SLOTS {
            let at = slot.0 * BLOCK_BYTES;
            let bytes = bytes_at(&device, at, BLOCK_SIZE);
            let block = bytes.first_chunk().expect("it was read as a block");
            if let Ok(found) = Superblock::decode(block, slot) {
                if superblock.as_ref().is_none_or(|newest| newest.epoch < found.epoch) {
                    superblock = Some(found);
                }
                structures.push(Structure { sort: Sort::Superblock, at, bytes });
            }
        }
        let superblock = superblock.expect("a golden volume has a superblock");
        let geometry = superblock.geometry;
        let tag = superblock.ring_tag;
        batches(&device, &geometry, &tag, &mut structures);
        frames(&device, &geometry, &tag, &mut structures);
        nodes(&device, &geometry, &mut structures);
        Image { name, superblock, structures, device }
    }

    /// Bytes of its device.
    pub(crate) fn len(&self) -> u64 {
        self.device.len()
    }

    /// A device with its bytes.
    pub fn snapshot(&self) -> MemoryDevice {
        self.device.snapshot()
    }

    /// Numbers that mean something in it, for [`Program::number`](crate::program::Program::number).
    pub fn known(&self) -> Vec<u64> {
        let now = &self.superblock;
        let geometry = &now.geometry;
        let mut known = vec![
            geometry.volume_blocks,
            geometry.first_data_block().0,
            geometry.journal().start.0,
            geometry.log().start.0,
            geometry.node_size as u64,
            now.epoch.0,
            now.lsn.0,
            now.inode_next.0,
            now.inode_count,
            now.used_blocks,
            now.referenced_blocks,
            now.journal.commit.0,
            now.log.batch.0,
            holdfast_format::limits::FILE_SIZE_MAX,
            1 << 62,
        ];
        known.extend(self.structures.iter().map(|structure| structure.at / BLOCK_BYTES));
        known
    }
}

fn batches(device: &MemoryDevice, geometry: &Geometry, tag: &[u8; 8], into: &mut Vec<Structure>) {
    let ring = geometry.log();
    let start = ring.start.0 * BLOCK_BYTES;
    let bytes = bytes_at(device, start, (ring.count * BLOCK_BYTES) as usize);
    for at in (0..bytes.len()).step_by(UNIT as usize) {
        let Ok(header) = LogHeader::decode(&bytes[at..]) else { continue };
        let whole = bytes.get(at..at + header.bytes as usize);
        // One that goes on at the ring's start is left alone: golden volumes have none.
        if let Some(batch) = whole.filter(|batch| header.open(batch, at as u64, tag).is_ok()) {
            let at = start + at as u64;
            into.push(Structure { sort: Sort::Batch, at, bytes: batch.to_vec() });
        }
    }
}

fn frames(device: &MemoryDevice, geometry: &Geometry, tag: &[u8; 8], into: &mut Vec<Structure>) {
    let ring = geometry.journal();
    for block in ring.start.0..ring.start.0 + ring.count {
        let at = block * BLOCK_BYTES;
        let Ok(header) = FrameHeader::decode(&bytes_at(device, at, BLOCK_SIZE)) else { continue };
        if block + header.blocks() <= ring.start.0 + ring.count {
            let bytes = bytes_at(device, at, (header.blocks() * BLOCK_BYTES) as usize);
            if header.open(&bytes, BlockNo(block), tag).is_ok() {
                into.push(Structure { sort: Sort::Frame, at, bytes });
            }
        }
    }
}

fn nodes(device: &MemoryDevice, geometry: &Geometry, into: &mut Vec<Structure>) {
    let mut block = geometry.first_data_block().0;
    while block + geometry.node_blocks() <= geometry.volume_blocks {
        let at = block * BLOCK_BYTES;
        if bytes_at(device, at, 4) == MAGIC {
            let bytes = bytes_at(device, at, geometry.node_size);
            let sum = crc64_with_hole(&bytes, seal::SUM_AT[Sort::Node as usize]);
            if bytes[8..16] == sum.to_le_bytes() {
                into.push(Structure { sort: Sort::Node, at, bytes });
            }
        }
        block += geometry.node_blocks();
    }
}
