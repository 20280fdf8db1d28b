//! Nodes of which one of the two places is bad: the same bytes at the same place.
//!
//! There may be as many of these as nodes, so their bytes are never kept: while a plan is made a bad place reads as the sound one does, and
//! what is written is read then.

use std::collections::BTreeMap;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo};
use holdfast_check::{Issue, Report};
use holdfast_device::{Device, DeviceError, forward};

use crate::error::RepairError;
use crate::overlay::{Overlay, data_from, read_over};

/// Bytes of one write.
const WRITE_BYTES: usize = 1 << 20;

/// From where a block of a bad place is written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mend {
    pub(crate) sound: u64,
    /// What is in the bad place may be needed until the repair is durable.
    pub(crate) is_late: bool,
}

/// Blocks of bad places.
pub(crate) type Mends = BTreeMap<u64, Mend>;

/// A device on which each bad place that was found reads as the sound one does. That it is sound was found with it; the check of the
/// result is the proof that nothing else was meant.
#[derive(Debug)]
pub(crate) struct Mended<'d> {
    under: &'d dyn Device,
    mends: Mends,
}

impl<'d> Mended<'d> {
    /// `is_late`: the device is what earlier rounds have made of the volume.
    pub(crate) fn over(under: &'d dyn Device, report: &Report, is_late: bool) -> Mended<'d> {
        // What lies in a bad place may be data of a file that has the same blocks. It gets others in this round; the place waits for the next.
        let is_shared = report.findings.iter().any(|it| it.issue() == Issue::BlocksShared);
        let places = if is_shared { &[][..] } else { &report.bad_places };
        let blocks = places.iter().flat_map(|place| {
            let pairs = (place.bad.start.0..).zip(place.sound.start.0..);
            pairs.take(place.bad.count as usize)
        });
        let mends = blocks.map(|(bad, sound)| (bad, Mend { sound, is_late })).collect();
        Mended { under, mends }
    }

    /// With what is read from elsewhere.
    pub(crate) fn with(under: &'d dyn Device, mends: Mends) -> Mended<'d> {
        Mended { under, mends }
    }

    /// What is to be written beside `blocks`, which go over it: none of them is read for a mend.
    pub(crate) fn beside(
        self,
        blocks: &mut BTreeMap<u64, Box<[u8; BLOCK_SIZE]>>,
    ) -> Result<Mends, RepairError> {
        let Mended { under, mut mends } = self;
        mends.retain(|block, _| !blocks.contains_key(block));
        let lost: Vec<(u64, u64)> = mends
            .iter()
            .filter(|(_, mend)| blocks.contains_key(&mend.sound))
            .map(|(block, mend)| (*block, mend.sound))
            .collect();
        for (block, sound) in lost {
            let mut bytes = Box::new([0; BLOCK_SIZE]);
            under.read(sound.saturating_mul(BLOCK_BYTES), &mut bytes[..])?;
            mends.remove(&block);
            blocks.insert(block, bytes);
        }
        Ok(mends)
    }
}

impl Device for Mended<'_> {
    forward!(under: flush, discard, len, room, take_room, sector_size, reach, stats);

    fn data_from(&self, at: u64) -> u64 {
        data_from(self.under, at, &self.mends)
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        read_over(self.under, at, into, &self.mends, |mend, skip, part| {
            self.under.read(mend.sound * BLOCK_BYTES + skip as u64, part)
        })
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let source = std::io::Error::other("a plan writes to memory");
        Err(DeviceError::Io { call: "write", at, len: bytes.len() as u64, source })
    }
}

/// The mends of a later round, whose device was `overlay`, as mends of what lies under that. What `overlay` holds of them goes into `blocks`.
pub(crate) fn through(
    overlay: &Overlay<'_>,
    mended: &Mended<'_>,
    later: Mends,
    blocks: &mut BTreeMap<u64, Box<[u8; BLOCK_SIZE]>>,
) -> Mends {
    let mut mends = Mends::new();
    for (block, mend) in later {
        if let Some(bytes) = overlay.block(BlockNo(mend.sound)) {
            blocks.entry(block).or_insert(bytes);
            continue;
        }
        let sound = mended.mends.get(&mend.sound).map_or(mend.sound, |below| below.sound);
        mends.insert(block, Mend { sound, ..mend });
    }
    mends
}

/// A block of a bad place that stays as it is: its node, or what it holds of a ring, has the other place alone, as before.
#[derive(Debug)]
pub struct Unmended {
    /// The block.
    pub block: BlockNo,
    /// What the device said.
    pub why: DeviceError,
}

/// Writes blocks, each from the one that it is read from. Returns what the device does not take.
pub(crate) fn write(device: &dyn Device, mends: impl Iterator<Item = (u64, u64)>) -> Vec<Unmended> {
    let mends: Vec<(u64, u64)> = mends.collect();
    let mut left = Vec::new();
    for run in mends.chunk_by(|one, next| (one.0 + 1, one.1 + 1) == *next) {
        for part in run.chunks(WRITE_BYTES / BLOCK_SIZE) {
            if copy(device, part).is_ok() {
                continue;
            }
            for one in part.chunks(1) {
                if let Err(why) = copy(device, one) {
                    left.push(Unmended { block: BlockNo(one[0].0), why });
                }
            }
        }
    }
    left
}

/// Copies blocks that follow each other in both places.
fn copy(device: &dyn Device, part: &[(u64, u64)]) -> Result<(), DeviceError> {
    let mut bytes = vec![0; part.len() * BLOCK_SIZE];
    device.read(part[0].1.saturating_mul(BLOCK_BYTES), &mut bytes)?;
    device.write(part[0].0.saturating_mul(BLOCK_BYTES), &bytes)
}
