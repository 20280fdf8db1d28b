//! A repair that is decided, and how it gets onto the device.
//!
//! Until the first superblock is durable the volume is what it was: everything else goes to places that nothing reaches. From then on it is
//! what was checked. The other slot and the far copy follow.

use std::collections::BTreeMap;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo};
use holdfast_check::Report;
use holdfast_device::{Device, DeviceError};
use holdfast_format::Superblock;

use crate::plan::Repair;
use crate::round::Done;
use crate::superblocks::{Block, superblocks};

/// Bytes of one write.
const WRITE_BYTES: usize = 1 << 20;

/// What a repair would do.
#[derive(Debug)]
pub struct Planned {
    /// What is done, in words.
    pub repairs: Vec<Repair>,
    /// What a check finds behind it: damaged data of files at most, and notes.
    pub after: Report,
    blocks: BTreeMap<u64, Box<[u8; BLOCK_SIZE]>>,
    /// Blocks of the rings that could not be read: they are written when nothing needs them any more.
    rings: Vec<Block>,
    superblock: Superblock,
}

impl Planned {
    pub(crate) fn new(done: Done) -> Planned {
        let Done { repairs, after, mut blocks, superblock } = done;
        for (block, _) in superblocks(&superblock) {
            blocks.remove(&block.0);
        }
        let zone = superblock.geometry.first_data_block().0;
        let data = blocks.split_off(&zone);
        let rings = blocks.into_iter().map(|(block, bytes)| (BlockNo(block), bytes)).collect();
        Planned { repairs, after, blocks: data, rings, superblock }
    }

    /// Bytes that are written.
    pub fn bytes(&self) -> u64 {
        (self.blocks.len() as u64 + self.rings.len() as u64 + 3) * BLOCK_BYTES
    }

    /// Whether anything is lost by it.
    pub fn loses(&self) -> bool {
        self.repairs.iter().any(|repair| repair.loses)
    }

    /// Writes the repair to the device that it was made for, of which nothing may have changed. A power cut at any moment, or an
    /// error, leaves the volume as it was or as it is repaired.
    pub fn write(&self, device: &dyn Device) -> Result<(), DeviceError> {
        let mut run: Option<(u64, Vec<u8>)> = None;
        for (block, bytes) in &self.blocks {
            match &mut run {
                Some((start, run))
                    if *start + (run.len() / BLOCK_SIZE) as u64 == *block
                        && run.len() < WRITE_BYTES =>
                {
                    run.extend_from_slice(&bytes[..]);
                }
                _ => {
                    if let Some((start, run)) = run.replace((*block, bytes.to_vec())) {
                        device.write(start * BLOCK_BYTES, &run)?;
                    }
                }
            }
        }
        if let Some((start, run)) = run {
            device.write(start * BLOCK_BYTES, &run)?;
        }
        // All that the superblock leads to is durable before it is written (R1); and it before the others, one of which may be all
        // that leads to the volume as it was.
        let _ = device.flush()?;
        let [first, rest @ ..] = superblocks(&self.superblock);
        device.write(first.0.0 * BLOCK_BYTES, &first.1[..])?;
        let _ = device.flush()?;
        for (block, bytes) in self.rings.iter().chain(&rest) {
            device.write(block.0 * BLOCK_BYTES, &bytes[..])?;
        }
        let _ = device.flush()?;
        Ok(())
    }
}
