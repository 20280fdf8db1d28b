//! What lies around a mark of the journal. A ring that was used has the frame there whose sum the mark has, or one behind the mark
//! (R12): where neither is, the ring was wiped.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo, BlockRange};
use holdfast_format::journal::frame::FRAME_BYTES_MAX;
use holdfast_format::journal::{FrameHeader, JournalMark};

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
        let mut is_read = true;
        for back in (0..most).step_by(STEP as usize) {
            let to = end.0.saturating_sub(back);
            let from = to.saturating_sub(STEP).max(end.0.saturating_sub(most));
            for distance in self.superblock.geometry.ring_places() {
                let mut blocks = Vec::new();
                let place = BlockNo(from.saturating_add(distance));
                let range = BlockRange::new(place, to.saturating_sub(from));
                if self.read_blocks(range, &mut blocks).is_err() {
                    is_read = false;
                    continue;
                }
                for (at, block) in (from..).zip(blocks.chunks_exact(BLOCK_SIZE)) {
                    let Ok(header) = FrameHeader::decode(block) else { continue };
                    let is_it =
                        header.sum == mark.sum && at.checked_add(header.blocks()) == Some(end.0);
                    if is_it && let Ok(Some(frame)) = self.read_frame(BlockNo(at), distance) {
                        return BeforeMark::Whole(frame.header.blocks());
                    }
                }
            }
        }
        if is_read { BeforeMark::Gone } else { BeforeMark::Unread }
    }

    /// Whether something lies behind `mark` that follows, or says that nothing does or that one was left out.
    fn has_behind(&self, mark: JournalMark) -> bool {
        self.superblock.geometry.ring_places().any(|distance| {
            match self.read_frame(mark.next, distance) {
                Ok(Some(frame)) => {
                    let FrameHeader { commit, prior, index, .. } = frame.header;
                    let is_of_mark = prior == mark.sum || prior == !mark.sum;
                    commit == mark.commit.next().0 && index == 0 && is_of_mark
                }
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
