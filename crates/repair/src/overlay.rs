//! The volume with what a repair would write, before any of it is written: a check of this is the proof of the plan.

use std::collections::BTreeMap;
use std::sync::{RwLock, RwLockReadGuard};

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo};
use holdfast_device::{Device, DeviceError, forward};
use holdfast_format::{Geometry, node};

type Block = Box<[u8; BLOCK_SIZE]>;

/// A device of which some blocks are in memory.
#[derive(Debug)]
pub(crate) struct Overlay<'d> {
    under: &'d dyn Device,
    blocks: RwLock<BTreeMap<u64, Block>>,
}

impl<'d> Overlay<'d> {
    /// Over a device, nothing changed.
    pub(crate) fn new(under: &'d dyn Device) -> Overlay<'d> {
        Overlay { under, blocks: RwLock::default() }
    }

    fn kept(&self) -> RwLockReadGuard<'_, BTreeMap<u64, Block>> {
        // A thread that panics takes the repair along, so no thread meets a poisoned lock.
        self.blocks.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Keeps whole blocks from `start` on.
    pub(crate) fn put(&self, start: BlockNo, bytes: &[u8]) {
        let mut blocks = self.blocks.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (whole, rest) = bytes.as_chunks::<BLOCK_SIZE>();
        assert!(rest.is_empty(), "a repair writes whole blocks");
        for (block, bytes) in (start.0..).zip(whole) {
            blocks.insert(block, Box::new(*bytes));
        }
    }

    /// Keeps a node, and its copy.
    pub(crate) fn put_node(&self, geometry: &Geometry, block: BlockNo, bytes: &[u8]) {
        geometry
            .places_of_node(block, node::stored(bytes, geometry))
            .for_each(|place| self.put(place.start, bytes));
    }

    /// Whether the block is one of these.
    pub(crate) fn holds(&self, block: BlockNo) -> bool {
        self.kept().contains_key(&block.0)
    }

    /// The block, if it is one of these.
    pub(crate) fn block(&self, block: BlockNo) -> Option<Block> {
        self.kept().get(&block.0).cloned()
    }

    /// The blocks, upwards.
    pub(crate) fn into_blocks(self) -> BTreeMap<u64, Block> {
        self.blocks.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// [`Device::data_from`] of a device of which these blocks read as something else.
pub(crate) fn data_from<T>(under: &dyn Device, at: u64, others: &BTreeMap<u64, T>) -> u64 {
    let other = others.range(at / BLOCK_BYTES..).next().map(|(block, _)| block * BLOCK_BYTES);
    let data = under.data_from(at);
    other.map_or(data, |other| data.min(other.max(at)))
}

/// Reads `under`, but for the blocks of which there are `others`: of those `read` gets the parts that are wanted, behind the byte that it is told.
pub(crate) fn read_over<T>(
    under: &dyn Device,
    at: u64,
    into: &mut [u8],
    others: &BTreeMap<u64, T>,
    read: impl Fn(&T, usize, &mut [u8]) -> Result<(), DeviceError>,
) -> Result<(), DeviceError> {
    let end = at.saturating_add(into.len() as u64);
    let (first, last) = (at / BLOCK_BYTES, end.div_ceil(BLOCK_BYTES));
    if others.range(first..last.max(first)).next().is_none() {
        return under.read(at, into);
    }
    let mut done = 0;
    while done < into.len() {
        let place = at + done as u64;
        let (block, skip) = (place / BLOCK_BYTES, (place % BLOCK_BYTES) as usize);
        let len = (BLOCK_SIZE - skip).min(into.len() - done);
        let part = &mut into[done..done + len];
        match others.get(&block) {
            Some(other) => read(other, skip, part)?,
            None => under.read(place, part)?,
        }
        done += len;
    }
    Ok(())
}

impl Device for Overlay<'_> {
    forward!(under: flush, discard, len, room, take_room, sector_size, reach, stats);

    fn data_from(&self, at: u64) -> u64 {
        data_from(self.under, at, &self.kept())
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let blocks = self.kept();
        read_over(self.under, at, into, &blocks, |kept, skip, part| {
            part.copy_from_slice(&kept[skip..skip + part.len()]);
            Ok(())
        })
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        assert!(at.is_multiple_of(BLOCK_BYTES), "a repair writes whole blocks");
        self.put(BlockNo(at / BLOCK_BYTES), bytes);
        Ok(())
    }
}
