//! Frames where they lie in the ring: one that fits, in whichever place has it, and those that lie behind the end.

// Its numbers come from the disk: each sum says what it does where it does not fit.
#![deny(clippy::arithmetic_side_effects)]

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo, BlockRange, CommitNo};
use holdfast_format::Malformed;
use holdfast_format::journal::frame::{FRAME_BYTES_MAX, KIND_END};
use holdfast_format::journal::{FrameHeader, JournalMark, SEARCH_BLOCKS_MAX, next_block};

use super::replay::Replay;
use crate::{Result, StoreError};

/// A search for later frames ends when so many blocks had none: 16 MiB, several times what commits
/// usually take. It is part of the time that every recovery takes.
const QUIET_BLOCKS: u64 = 4096;

/// A frame that is whole.
pub(super) struct Frame {
    pub(super) header: FrameHeader,
    /// All its blocks.
    bytes: Vec<u8>,
}

impl Frame {
    pub(super) fn payload(&self) -> &[u8] {
        // [`FrameHeader::open`] has found so much in it.
        &self.bytes[FrameHeader::SIZE..][..self.header.len as usize]
    }
}

impl Replay<'_> {
    pub(super) fn read_blocks(&self, range: BlockRange, into: &mut Vec<u8>) -> Result<()> {
        let start = into.len();
        let len = range.bytes().and_then(|bytes| usize::try_from(bytes).ok());
        let end = len.and_then(|len| start.checked_add(len));
        let (Some(at), Some(end)) = (range.start.byte_offset(), end) else {
            let source = Malformed::new("journal", "no device has these blocks");
            return Err(StoreError::Item { what: format!("what lies at {range:?}"), source });
        };
        into.resize(end, 0);
        Ok(self.device.read(at, &mut into[start..])?)
    }

    /// The frame at `at` that fits, in the first place that has it. One that ends the journal counts only where no place has
    /// another: it is written over by the first commit. Fails if no place reads.
    pub(super) fn frame_that(
        &self,
        at: BlockNo,
        fits: impl Fn(&FrameHeader) -> bool,
    ) -> Result<Option<Frame>> {
        let (mut end, mut failed, mut is_read) = (None, None, false);
        for distance in self.superblock.geometry.ring_places() {
            match self.read_frame(at, distance) {
                Ok(Some(frame)) if fits(&frame.header) => {
                    if distance != 0 {
                        let commit = frame.header.commit;
                        tracing::warn!(
                            "a frame of commit {commit}, at block {at}, is whole in its second place only"
                        );
                    }
                    if frame.header.kind != KIND_END {
                        return Ok(Some(frame));
                    }
                    is_read = true;
                    end.get_or_insert(frame);
                }
                Ok(_) => is_read = true,
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        match failed {
            Some(error) if !is_read => Err(error),
            _ => Ok(end),
        }
    }

    /// The frame of which `at` is the first place, read so many blocks behind that, if there is one that lies inside the ring and is whole.
    pub(super) fn read_frame(&self, at: BlockNo, distance: u64) -> Result<Option<Frame>> {
        let mut bytes = Vec::with_capacity(BLOCK_SIZE);
        // What saturates lies behind the end of every device.
        let place = BlockNo(at.0.saturating_add(distance));
        self.read_blocks(BlockRange::new(place, 1), &mut bytes)?;
        let Ok(header) = FrameHeader::decode(&bytes) else {
            return Ok(None);
        };
        let blocks = header.blocks();
        if !BlockRange::new(at, blocks).fits_below(self.ring_end.0) {
            return Ok(None);
        }
        // Nothing saturates: it has a first block, and ends inside the ring.
        let (second, others) = (BlockNo(place.0.saturating_add(1)), blocks.saturating_sub(1));
        if others > 0 {
            self.read_blocks(BlockRange::new(second, others), &mut bytes)?;
        }
        let is_whole = header.open(&bytes, at, &self.superblock.ring_tag).is_ok();
        Ok(is_whole.then_some(Frame { header, bytes }))
    }

    /// A frame that was written when the commit behind `end` was durable. Where that commit is not there, the journal has a hole.
    ///
    /// Frames of the commit that is missing, or of later ones, lie behind the end, so the search is
    /// over when [`QUIET_BLOCKS`] have none. Fsck searches further.
    pub(super) fn later_frame(&self, end: JournalMark) -> Result<Option<(CommitNo, BlockNo)>> {
        let missing = end.commit.next();
        let step = FRAME_BYTES_MAX as u64 / BLOCK_BYTES;
        let mut blocks = Vec::new();
        let mut start = end.next;
        // A superblock may claim a ring of any size; that must not make a recovery endless (P10).
        let mut left = self.ring.count.min(SEARCH_BLOCKS_MAX);
        let mut quiet = 0u64;
        while left > 0 && quiet < QUIET_BLOCKS {
            let Some(to_end @ 1..) = self.ring_end.0.checked_sub(start.0) else {
                let source = Malformed::new("journal", format!("block {start} lies behind it"));
                return Err(StoreError::Item { what: "its mark".into(), source });
            };
            let count = step.min(left).min(to_end);
            quiet = quiet.saturating_add(count);
            for distance in self.superblock.geometry.ring_places() {
                blocks.clear();
                let place = BlockNo(start.0.saturating_add(distance));
                if let Err(error) = self.read_blocks(BlockRange::new(place, count), &mut blocks) {
                    // What cannot be read proves nothing and is not needed.
                    tracing::warn!("the journal was not searched at block {place}: {error}");
                    blocks.clear();
                }
                for (at, block) in (start.0..).zip(blocks.chunks_exact(BLOCK_SIZE)) {
                    let Ok(header) = FrameHeader::decode(block) else { continue };
                    let own = (header.address, header.volume) == (at, self.superblock.ring_tag);
                    if !own || header.commit < missing.0 {
                        continue;
                    }
                    quiet = 0;
                    if header.durable >= missing.0
                        && let Ok(Some(_)) = self.read_frame(BlockNo(at), distance)
                    {
                        return Ok(Some((missing, BlockNo(at))));
                    }
                }
            }
            // It is a part of what was left.
            left = left.saturating_sub(count);
            start = next_block(self.ring, start, count);
        }
        Ok(None)
    }
}
