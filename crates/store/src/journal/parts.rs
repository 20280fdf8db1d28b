//! The frames of the ring one by one, in each place: to judge the places, with nothing applied.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use std::ops::Range;

use holdfast_base::BlockNo;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_device::Device;
use holdfast_format::Superblock;
use holdfast_format::journal::frame::{KIND_COMMIT, KIND_END};
use holdfast_format::journal::{FrameHeader, JournalMark, next_block};

use super::Journal;
use super::replay::Replay;
use crate::Result;
use crate::ring_parts::{RingName, RingPart, RingParts};

impl Journal {
    /// Blocks that a recovery would read, counted from the opening.
    pub(crate) fn in_use(&self) -> Range<u64> {
        self.tail..self.head
    }
}

/// The journal behind a superblock.
pub(crate) struct Frames<'a>(Replay<'a>);

impl<'a> Frames<'a> {
    pub(crate) fn new(device: &'a dyn Device, superblock: &'a Superblock) -> Result<Frames<'a>> {
        Replay::new(device, superblock).map(Frames)
    }

    fn distance(&self, place: usize) -> u64 {
        self.0.superblock.geometry.ring_places().nth(place).unwrap_or(0)
    }

    /// Whether a place says that no commit follows.
    pub(crate) fn is_ended(&self, mark: &JournalMark) -> Result<bool> {
        let ends = |header: &FrameHeader| header.kind == KIND_END && follows(header, mark);
        Ok(self.0.frame_that(mark.next, ends)?.is_some())
    }
}

fn follows(header: &FrameHeader, mark: &JournalMark) -> bool {
    header.commit == mark.commit.next().0 && header.prior == mark.sum
}

impl RingParts for Frames<'_> {
    type Mark = JournalMark;
    const NAME: RingName = RingName::Journal;
    const UNIT: u64 = BLOCK_BYTES;
    const COUNTED: u64 = BLOCK_BYTES;

    fn places(&self) -> usize {
        self.0.superblock.geometry.ring_places().count()
    }

    fn on_device(&self, mark: &JournalMark, place: usize) -> u64 {
        // What saturates lies behind the end of every device.
        mark.next.0.saturating_add(self.distance(place)).saturating_mul(BLOCK_BYTES)
    }

    fn number(mark: &JournalMark) -> u64 {
        mark.commit.0
    }

    fn read(&self, mark: &JournalMark, place: usize) -> Result<Option<RingPart<JournalMark>>> {
        let frame = self.0.read_frame(mark.next, self.distance(place))?;
        let header = frame.map(|frame| frame.header);
        let is_next = |header: &FrameHeader| header.kind == KIND_COMMIT && follows(header, mark);
        let Some(header) = header.filter(is_next) else { return Ok(None) };
        let is_last = header.index.checked_add(1) == Some(header.frames);
        let after = JournalMark {
            commit: if is_last { mark.commit.next() } else { mark.commit },
            next: next_block(self.0.ring, mark.next, header.blocks()),
            sum: header.sum,
        };
        Ok(Some(RingPart {
            number: header.commit,
            durable: header.durable,
            bytes: header.blocks().saturating_mul(BLOCK_BYTES),
            sum: header.sum,
            after,
        }))
    }

    fn hole(&self, mark: &JournalMark, _proven: u64) -> Result<Option<String>> {
        let found = self.0.later_frame(*mark)?;
        Ok(found.map(|(missing, BlockNo(at))| {
            format!("commit {missing} was durable and is gone (the frame at block {at} is younger)")
        }))
    }
}
