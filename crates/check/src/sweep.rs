//! Nodes that nothing leads to: each proves itself, by its checksum and the block number that it carries.
//!
//! A search for them reads large parts of a device with [`sweep`], asks each block for what it claims to be ([`Claim`]), and has
//! that proven. Whether a node that was found is the one that is missed is for the caller to decide.

use std::ops::Range;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo, Epoch, TreeId};
use holdfast_device::Device;
use holdfast_format::codec::Reader;
use holdfast_format::limits::{COUNTER_MAX, GROUP_BLOCKS, NODE_SIZES, TREE_LEVELS_MAX};
use holdfast_format::node::{self, Expected, NodeHeader, OfVolume};
use holdfast_format::{Carried, NodePointer, NodeView};

/// Bytes of one read.
pub const STEP: usize = 4 << 20;
/// What a node may reach beyond the block in which it begins.
const OVERLAP: usize = NODE_SIZES[2] - BLOCK_SIZE;

/// Reads a range of blocks in large parts, and shows each block with what lies behind it, as far as a node reaches. `read` fills a buffer from a
/// byte of the device on; what cannot be read is zeros, which are no node. Holes that the device knows are neither read nor shown.
pub fn sweep(
    device: &dyn Device,
    blocks: Range<u64>,
    buffer: &mut Vec<u8>,
    read: &mut dyn FnMut(u64, &mut [u8]),
    look: &mut dyn FnMut(u64, &[u8]),
) {
    let end = blocks.end.saturating_mul(BLOCK_BYTES);
    let mut at = blocks.start.saturating_mul(BLOCK_BYTES);
    loop {
        // Never back, whatever the device says.
        at = device.data_from(at).max(at) / BLOCK_BYTES * BLOCK_BYTES;
        if at >= end {
            break;
        }
        let len = (end - at).min((STEP + OVERLAP) as u64) as usize;
        buffer.resize(len.max(buffer.len()), 0);
        let part = &mut buffer[..len];
        read(at, part);
        let own = len.min(STEP);
        for from in (0..own).step_by(BLOCK_SIZE).filter(|from| len - from >= BLOCK_SIZE) {
            look((at + from as u64) / BLOCK_BYTES, &part[from..]);
        }
        at += STEP as u64;
    }
}

/// What a block that begins like a node says of itself. Nothing of it is proven.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// The block that it says to be at, and its epoch.
    pub pointer: NodePointer,
    /// Its tree.
    pub tree: TreeId,
    /// Its level.
    pub level: u8,
    /// The tag of its volume.
    pub tag: [u8; 8],
    /// By what the block where it was found differs from the one that it says; 0: it is in its first place.
    pub distance: u64,
}

impl Claim {
    /// What stands at `block`, if it can be a node or the copy of one.
    pub fn read(block: u64, bytes: &[u8]) -> Option<Claim> {
        if !bytes.starts_with(&node::MAGIC) {
            return None;
        }
        let header = NodeHeader::read(&mut Reader::new("node", bytes)).ok()?;
        let tree = match header.tree {
            1 => TreeId::Files,
            2 => TreeId::Space,
            _ => return None,
        };
        let distance = header.address ^ block;
        // A copy lies behind its node, at what a mask allows.
        let is_place = distance == 0
            || header.address < block && distance.is_multiple_of(64) && distance < GROUP_BLOCKS;
        let can_be =
            is_place && header.level < TREE_LEVELS_MAX && (1..=COUNTER_MAX).contains(&header.epoch);
        let pointer = NodePointer { block: BlockNo(header.address), epoch: Epoch(header.epoch) };
        let tag = header.volume;
        can_be.then_some(Claim { pointer, tree, level: header.level, tag, distance })
    }

    /// The node, if `bytes`, which begin at `block`, are a sound one of `size` bytes.
    pub fn prove<'b>(
        &self,
        block: u64,
        bytes: &'b [u8],
        size: usize,
        carried: Carried,
    ) -> Option<NodeView<'b>> {
        let is_aligned = block.is_multiple_of((size / BLOCK_SIZE) as u64);
        let bytes = bytes.get(..size).filter(|_| is_aligned)?;
        let volume = OfVolume { tag: self.tag, carried };
        let Claim { pointer, tree, level, .. } = *self;
        NodeView::open(bytes, &Expected { pointer, tree, level, volume }).ok()
    }
}
