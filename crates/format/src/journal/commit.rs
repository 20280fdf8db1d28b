//! The payload of a commit.

use holdfast_base::{BatchNo, BlockNo, BlockRange, Epoch, InodeNo};

use super::node::{NodeChange, decode_node};
use crate::Malformed;
use crate::checksum::crc64;
use crate::codec::Reader;
use crate::geometry::Geometry;
use crate::limits::COUNTER_MAX;
use crate::log::LogMark;
use crate::node::NodePointer;
use crate::roots::judge_roots;

record! {
    /// The head of a commit's payload: what a superblock would say.
    pub struct CommitHead("commit", 120 bytes) {
        /// As in the superblock.
        lsn: u64,
        /// As in the superblock.
        inode_next: u64,
        /// As in the superblock.
        inode_count: u64,
        /// As in the superblock.
        used_blocks: u64,
        /// As in the superblock.
        referenced_blocks: u64,
        /// As in the superblock.
        files_block: u64,
        /// As in the superblock.
        files_epoch: u64,
        /// As in the superblock.
        space_block: u64,
        /// As in the superblock.
        space_epoch: u64,
        /// As in the superblock.
        files_level: u8,
        /// As in the superblock.
        space_level: u8,
        /// Zero.
        pad: [u8; 6],
        /// Node records.
        nodes: u32,
        /// Cancelled nodes.
        cancels: u32,
        /// Data extents.
        extents: u32,
        /// Zero.
        pad2: u32,
        /// As in the superblock.
        log_batch: u64,
        /// As in the superblock.
        log_next: u64,
        /// As in the superblock.
        log_sum: u64,
    }
}

record! {
    /// Data that became durable with the commit.
    pub struct DataExtent("data extent", 24 bytes) {
        /// First block.
        block: u64,
        /// Blocks.
        count: u64,
        /// Sum over the sums of its blocks, 8 bytes each.
        sum: u64,
    }
}

/// Most blocks of all data extents of a commit: 4 MiB, which a recovery reads to see whether they arrived.
pub const DATA_BLOCKS_MAX: u64 = 1024;

/// The sum that a [`DataExtent`] holds for blocks with these checksums.
pub fn data_sum(sums: &[u64]) -> u64 {
    // Most have one block.
    if let [sum] = sums {
        return crc64(&sum.to_le_bytes());
    }
    let bytes: Vec<u8> = sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
    crc64(&bytes)
}

/// A commit's payload, judged.
#[derive(Clone, Debug)]
pub struct Commit<'a> {
    /// What a superblock would say.
    pub head: CommitHead,
    /// The nodes that changed, in no order.
    pub nodes: Vec<NodeChange<'a>>,
    /// Nodes that do not exist any more.
    pub cancels: Vec<BlockNo>,
    /// Data that became durable with it.
    pub extents: Vec<DataExtent>,
}

impl<'a> Commit<'a> {
    /// Reads and judges a payload of epoch `epoch` on a volume of this shape.
    pub fn decode(
        payload: &'a [u8],
        epoch: Epoch,
        geometry: &Geometry,
    ) -> Result<Commit<'a>, Malformed> {
        let mut reader = Reader::new(CommitHead::TITLE, payload);
        let head = CommitHead::read(&mut reader)?;
        if head.pad != [0; 6] || head.pad2 != 0 {
            return CommitHead::fail("reserved bytes are set");
        }
        let counters =
            [head.lsn, head.inode_next, head.inode_count, head.referenced_blocks, head.log_batch];
        if head.inode_next < InodeNo::FIRST_FREE.0 || counters.iter().any(|n| *n > COUNTER_MAX) {
            return CommitHead::fail("its counters are out of range");
        }
        if head.used_blocks > geometry.data_blocks() {
            return CommitHead::fail(format!("{} used blocks are too many", head.used_blocks));
        }
        let roots = [(head.files(), head.files_level), (head.space(), head.space_level)];
        judge_roots(geometry, epoch, roots).or_else(CommitHead::fail)?;
        head.log().check(geometry).or_else(CommitHead::fail)?;
        // Nothing is allocated by a count of the disk: each record is there before it is kept.
        let mut nodes = Vec::new();
        for _ in 0..head.nodes {
            nodes.push(decode_node(&mut reader, epoch, geometry)?);
        }
        let mut cancels = Vec::new();
        for _ in 0..head.cancels {
            cancels.push(BlockNo(u64::from_le_bytes(reader.array()?)));
        }
        let mut extents = Vec::new();
        let mut data_blocks = 0u64;
        for _ in 0..head.extents {
            let extent = DataExtent::read(&mut reader)?;
            let blocks = BlockRange::new(BlockNo(extent.block), extent.count);
            data_blocks = data_blocks.saturating_add(extent.count);
            if extent.count == 0 || !geometry.holds_data(blocks) || data_blocks > DATA_BLOCKS_MAX {
                return CommitHead::fail(format!("the data {blocks:?} cannot be"));
            }
            extents.push(extent);
        }
        reader.finish()?;
        Ok(Commit { head, nodes, cancels, extents })
    }
}

impl CommitHead {
    /// Root of the files tree.
    pub fn files(&self) -> NodePointer {
        NodePointer { block: BlockNo(self.files_block), epoch: Epoch(self.files_epoch) }
    }

    /// Root of the space tree.
    pub fn space(&self) -> NodePointer {
        NodePointer { block: BlockNo(self.space_block), epoch: Epoch(self.space_epoch) }
    }

    /// Where the log goes on.
    pub fn log(&self) -> LogMark {
        LogMark { batch: BatchNo(self.log_batch), next: self.log_next, sum: self.log_sum }
    }
}
