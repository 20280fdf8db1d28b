//! What lies around a mark of the journal. A ring that was used has the frame there whose sum the mark has, or one behind the mark
//! (R12): where neither is, the ring was wiped. One of which a byte has rotted is there.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo, BlockRange};
use holdfast_format::journal::frame::FRAME_BYTES_MAX;
use holdfast_format::journal::{FrameHeader, JournalMark};
use holdfast_format::rot::LOOKS;

use super::replay::Replay;
use crate::before_mark::BeforeMark;

/// Blocks that are read at once: mostly the frame is among the first.
const STEP: u64 = 16;

impl Replay<'_> {
    /// The frame before `mark`, in blocks.
    pub(super) fn before(&self, mark: JournalMark) -> BeforeMark {
        if mark.sum == 0 {
            return BeforeMark::Nothing;
        }
        let end = if mark.next == self.ring.start { self.ring_end } else { mark.next };
        let most =
            end.0.saturating_sub(self.ring.start.0).min(FRAME_BYTES_MAX as u64 / BLOCK_BYTES);
        let blocks = BlockRange::new(BlockNo(end.0.saturating_sub(most)), most);
        let places = self.superblock.geometry.ring_places();
        BeforeMark::in_any(places.map(|distance| self.before_in(blocks, distance, mark.sum)))
    }

    /// The frame of this sum that takes the last of these blocks, so far behind their first place.
    fn before_in(&self, within: BlockRange, distance: u64, sum: u64) -> BeforeMark {
        let (tag, end) = (self.superblock.ring_tag, within.start.0.saturating_add(within.count));
        let place = |at: u64| BlockNo(at.saturating_add(distance));
        let mut looks = LOOKS;
        let mut bytes = Vec::new();
        for back in (0..within.count).step_by(STEP as usize) {
            let to = end.saturating_sub(back);
            let from = to.saturating_sub(STEP).max(within.start.0);
            bytes.clear();
            let range = BlockRange::new(place(from), to.saturating_sub(from));
            if self.read_blocks(range, &mut bytes).is_err() {
                return BeforeMark::Unread;
            }
            for (at, head) in (from..to).rev().zip(bytes.rchunks_exact(BLOCK_SIZE)) {
                let blocks = end.saturating_sub(at);
                let was = FrameHeader::was(BlockNo(at), tag, sum);
                if looks == 0 || !was.may_be(head, blocks.saturating_mul(BLOCK_BYTES)) {
                    continue;
                }
                looks = looks.saturating_sub(1);
                let mut held = Vec::new();
                if self.read_blocks(BlockRange::new(place(at), blocks), &mut held).is_err() {
                    return BeforeMark::Unread;
                }
                let header = FrameHeader::decode(&held);
                let is_whole = |it: FrameHeader| {
                    it.sum == sum
                        && it.blocks() == blocks
                        && it.open(&held, BlockNo(at), &tag).is_ok()
                };
                if header.is_ok_and(is_whole) {
                    return BeforeMark::Whole(blocks);
                }
                if was.is_but_for_one_byte(&held) {
                    return BeforeMark::Rotten;
                }
            }
        }
        BeforeMark::Gone
    }

    /// Whether something lies behind `mark` that follows, or says that nothing does or that one was left out.
    fn has_behind(&self, mark: JournalMark) -> bool {
        self.superblock.geometry.ring_places().any(|distance| {
            match self.read_frame(mark.next, distance) {
                Ok(Some(frame)) => frame.header.is_behind(mark.sum),
                Ok(None) => false,
                // It is not known.
                Err(_) => true,
            }
        })
    }

    /// Why the journal, of which nothing follows `mark`, was wiped.
    pub(super) fn wiped(&self, mark: JournalMark) -> Option<String> {
        let is_gone = self.before(mark) == BeforeMark::Gone && !self.has_behind(mark);
        is_gone.then(|| {
            format!(
                "the journal was wiped: nothing is left of it at block {} (`holdfast fsck -y --accept-loss` goes back to the last checkpoint)",
                mark.next
            )
        })
    }
}
