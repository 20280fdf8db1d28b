//! Runs of data, and where they go.

use std::collections::BTreeMap;

use holdfast_base::BlockNo;
use holdfast_base::units::BLOCK_BYTES;
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

/// The first block of a range that did not read which does not do so alone either.
fn first_unread(device: &dyn Device, from: u64, len: u64, error: DeviceError) -> Failed {
    let mut block = vec![0; BLOCK_BYTES as usize];
    for at in (from..from + len).step_by(BLOCK_BYTES as usize) {
        if let Err(error) = device.read(at, &mut block) {
            return Failed::Read { block: BlockNo(at / BLOCK_BYTES), error };
        }
    }
    Failed::Read { block: BlockNo(from / BLOCK_BYTES), error }
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
                if let Err(error) = device.read(from + at, &mut bytes) {
                    return Err(first_unread(device, from + at, bytes.len() as u64, error));
                }
                device.write(to * BLOCK_BYTES + at, &bytes).map_err(Failed::Write)?;
                progress.add(bytes.len() as u64);
            }
        }
        Ok(())
    }
}
