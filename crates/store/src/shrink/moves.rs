//! Runs of data, and where they go.

use std::collections::BTreeMap;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo};
use holdfast_device::{Device, DeviceError};

use super::Progress;
use super::free::Free;

/// Bytes that are copied at a time.
const COPY_BYTES: u64 = 1 << 20;

/// Consecutive blocks of data: all that extents with blocks in common have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Otherwise they hold nothing that has to be copied.
    pub(super) is_written: bool,
}

/// Why a copy ended.
#[derive(Debug)]
pub(super) enum Failed {
    /// A block does not read.
    Read {
        block: BlockNo,
        error: DeviceError,
    },
    Write(DeviceError),
}

/// Reads a range block by block, which did not read as a whole: an error may pass, and else names its block.
fn read_blocks(device: &dyn Device, from: u64, bytes: &mut [u8]) -> Result<(), Failed> {
    for (at, part) in (from..).step_by(BLOCK_BYTES as usize).zip(bytes.chunks_mut(BLOCK_SIZE)) {
        let failed = |error| Failed::Read { block: BlockNo(at / BLOCK_BYTES), error };
        device.read(at, part).map_err(failed)?;
    }
    Ok(())
}

/// Where runs go, by their starts.
#[derive(Debug, Default)]
pub(super) struct Moves(BTreeMap<u64, (Run, u64)>);

impl Moves {
    /// Moves all of these, the longest first, into what is free; `None` if one finds none. Then nothing else may be taken.
    pub(super) fn into(mut runs: Vec<Run>, free: &mut Free) -> Option<Moves> {
        runs.sort_by_key(|run| std::cmp::Reverse(run.end - run.start));
        let mut moves = Moves::default();
        for run in runs {
            moves.0.insert(run.start, (run, free.run(run.end - run.start)?));
        }
        Some(moves)
    }

    /// Where a block goes, if it moves.
    pub(super) fn of(&self, block: u64) -> Option<u64> {
        let (_, (run, to)) = self.0.range(..=block).next_back()?;
        (block < run.end).then(|| to + (block - run.start))
    }

    /// All of them: first block, blocks, and the first block at the new place.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        self.0.values().map(|(run, to)| (run.start, run.end - run.start, *to))
    }

    fn written(&self) -> impl Iterator<Item = &(Run, u64)> {
        self.0.values().filter(|(run, _)| run.is_written)
    }

    /// Bytes that have to be copied.
    pub(super) fn bytes(&self) -> u64 {
        self.written().map(|(run, _)| (run.end - run.start) * BLOCK_BYTES).sum()
    }

    /// Copies them. What fails its checksum does so at the new place, too.
    pub(super) fn copy(
        &self,
        device: &dyn Device,
        progress: &mut Progress<'_>,
    ) -> Result<(), Failed> {
        let mut bytes = Vec::new();
        for (run, to) in self.written() {
            let (from, len) = (run.start * BLOCK_BYTES, (run.end - run.start) * BLOCK_BYTES);
            for at in (0..len).step_by(COPY_BYTES as usize) {
                bytes.resize((len - at).min(COPY_BYTES) as usize, 0);
                if device.read(from + at, &mut bytes).is_err() {
                    read_blocks(device, from + at, &mut bytes)?;
                }
                device.write(to * BLOCK_BYTES + at, &bytes).map_err(Failed::Write)?;
                progress.add(bytes.len() as u64);
            }
        }
        Ok(())
    }
}
