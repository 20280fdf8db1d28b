//! A repair that is decided, and how it gets onto the device.
//!
//! Until the first superblock is durable the volume is what it was: everything else goes to places that nothing reaches. From then on it is
//! what was checked. The other slot and the far copy follow.

use std::collections::BTreeMap;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo};
use holdfast_check::Report;
use holdfast_device::{Device, DeviceError};
use holdfast_format::{Geometry, Superblock};

use crate::copies::{self, Mends, Unmended};
use crate::error::RepairError;
use crate::plan::Repair;
use crate::round::Done;
use crate::superblocks::{Block, superblocks};

/// Bytes of one write.
const WRITE_BYTES: usize = 1 << 20;
/// Steps of a repair, behind each of which it flushes.
pub(crate) const STEPS: usize = 3;
/// A block of a step.
pub(crate) type Placed<'p> = (u64, &'p [u8; BLOCK_SIZE]);

/// What a repair would do.
#[derive(Debug)]
pub struct Planned {
    /// What is done, in words.
    pub repairs: Vec<Repair>,
    /// What a check finds behind it: damaged data of files at most, and notes.
    pub after: Report,
    blocks: BTreeMap<u64, Box<[u8; BLOCK_SIZE]>>,
    mends: Mends,
    /// Blocks of the rings that could not be read: they are written when nothing needs them any more.
    rings: Vec<Block>,
    /// Three, or none where the volume stays what it is.
    superblocks: Vec<Block>,
    geometry: Geometry,
    uuid: [u8; 16],
}

impl Planned {
    pub(crate) fn new(done: Done) -> Planned {
        let Done { repairs, after, mut blocks, mends, superblock, .. } = done;
        let superblocks = Vec::from(superblocks(&superblock));
        for (block, _) in &superblocks {
            blocks.remove(&block.0);
        }
        let zone = superblock.geometry.first_data_block().0;
        let data = blocks.split_off(&zone);
        let rings = blocks.into_iter().map(|(block, bytes)| (BlockNo(block), bytes)).collect();
        let geometry = superblock.geometry;
        let uuid = *superblock.uuid.as_bytes();
        Planned { repairs, after, blocks: data, mends, rings, superblocks, geometry, uuid }
    }

    /// Of a volume that stays what it is, superblocks and all: blocks of places of which others count.
    pub(crate) fn in_place(
        repairs: Vec<Repair>,
        after: Report,
        blocks: BTreeMap<u64, Box<[u8; BLOCK_SIZE]>>,
        mends: Mends,
        superblock: &Superblock,
    ) -> Planned {
        let (geometry, uuid) = (superblock.geometry, *superblock.uuid.as_bytes());
        let (rings, superblocks) = (Vec::new(), Vec::new());
        Planned { repairs, after, blocks, mends, rings, superblocks, geometry, uuid }
    }

    /// Bytes that are written.
    pub fn bytes(&self) -> u64 {
        let of_rings = self.rings.len() + self.superblocks.len();
        let blocks = self.blocks.len() + self.mends.len() + of_rings;
        blocks as u64 * BLOCK_BYTES
    }

    /// Fails if the host of an image has not the space for what is written into its holes: a part of a plan would take the last of it.
    pub(crate) fn expect_room(&self, device: &dyn Device) -> Result<(), RepairError> {
        let Some(room) = device.room() else { return Ok(()) };
        let steps = self.steps();
        let of_steps = steps.iter().flatten().map(|(block, _)| *block);
        let blocks =
            of_steps.chain((0..STEPS).flat_map(|step| self.mends(step)).map(|(block, _)| block));
        let is_hole = |block: &u64| {
            let at = block.saturating_mul(BLOCK_BYTES);
            device.data_from(at) >= at.saturating_add(BLOCK_BYTES)
        };
        let needed = (blocks.filter(is_hole).count() as u64).saturating_mul(BLOCK_BYTES);
        if needed <= room {
            return Ok(());
        }
        RepairError::refused(format!(
            "nothing is written: a repair takes {} of the host, which has {}; make room there",
            holdfast_base::show::bytes(needed),
            holdfast_base::show::bytes(room)
        ))
    }

    /// Whether anything is lost by it.
    pub fn loses(&self) -> bool {
        self.repairs.iter().any(|repair| repair.loses)
    }

    /// The id of the volume.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// What is written in a step beside its blocks: a block, and the one that it is read from.
    pub(crate) fn mends(&self, step: usize) -> impl Iterator<Item = (u64, u64)> {
        let of_step = move |is_late: bool| step == if is_late { STEPS - 1 } else { 0 };
        let mends = self.mends.iter().filter(move |(_, mend)| of_step(mend.is_late));
        mends.map(|(block, mend)| (*block, mend.sound))
    }

    /// What is written, in the order of it.
    pub(crate) fn steps(&self) -> [Vec<Placed<'_>>; STEPS] {
        fn placed(block: &Block) -> Placed<'_> {
            (block.0.0, &block.1)
        }
        let (first, rest) = self.superblocks.split_at(self.superblocks.len().min(1));
        let data = self.blocks.iter().map(|(block, bytes)| (*block, &**bytes)).collect();
        [
            data,
            first.iter().map(placed).collect(),
            self.rings.iter().chain(rest).map(placed).collect(),
        ]
    }

    /// Writes the repair to the device that it was made for, of which nothing may have changed. A power cut at any moment, or an
    /// error, leaves the volume as it was or as it is repaired. A place of a node that the device does not take fails nothing: it is returned.
    pub fn write(&self, device: &dyn Device) -> Result<Vec<Unmended>, DeviceError> {
        let mut left = Vec::new();
        // All that the superblock leads to is durable before it is written (R1); and it before the others, one of which may be all
        // that leads to the volume as it was.
        for (at, step) in self.steps().into_iter().enumerate() {
            left.append(&mut copies::write(device, self.mends(at)));
            for run in step.chunk_by(|one, next| one.0 + 1 == next.0) {
                for part in run.chunks(WRITE_BYTES / BLOCK_SIZE) {
                    let bytes: Vec<u8> = part.iter().flat_map(|(_, bytes)| **bytes).collect();
                    device.write(part[0].0 * BLOCK_BYTES, &bytes)?;
                }
            }
            let _ = device.flush()?;
        }
        Ok(left)
    }
}
