//! Free blocks of a sparse image that the host has not been asked for yet.
//!
//! They cannot be promised to anybody, because a host that is full would refuse
//! them when it is too late (P8). So they are hidden from the free space, piece by piece, until the
//! host has given their piece. Blocks that are freed in such a piece are hidden with it.
//!
//! Knows nothing of the device.

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, BlockRange};
use holdfast_format::Geometry;
use holdfast_format::limits::GROUP_BLOCKS;

use super::alloc::Space;

/// Blocks that the host is asked for at once: 4 MiB.
const PIECE_BLOCKS: u64 = 1024;

const _: () = assert!(GROUP_BLOCKS.is_multiple_of(PIECE_BLOCKS) && PIECE_BLOCKS.is_multiple_of(64));

/// Which pieces of a volume are hidden.
#[derive(Debug)]
pub(crate) struct Hidden {
    /// One bit for each piece.
    pieces: Vec<u64>,
    count: u64,
    /// Where the search for the next one begins.
    next: u64,
    /// Pieces that the host is being asked for.
    asked: u64,
    /// Free blocks of all hidden pieces, and of those that the host is being asked for.
    pub(super) blocks: u64,
}

/// The next piece to ask the host for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// These blocks; the caller says what came of it.
    Ask(BlockRange),
    /// Others are asking for the last ones.
    Wait,
    /// All were given.
    Nothing,
}

impl Hidden {
    fn new(geometry: &Geometry, blocks: u64) -> Hidden {
        let count = geometry.volume_blocks.div_ceil(PIECE_BLOCKS);
        let mut hidden = Hidden {
            pieces: vec![0; count.div_ceil(64) as usize],
            count,
            next: geometry.first_data_block().0 / PIECE_BLOCKS,
            asked: 0,
            blocks,
        };
        for piece in hidden.next..count {
            hidden.set(piece, true);
        }
        hidden
    }

    fn is_set(&self, piece: u64) -> bool {
        self.pieces[(piece / 64) as usize] & (1 << (piece % 64)) != 0
    }

    fn set(&mut self, piece: u64, hidden: bool) {
        let word = &mut self.pieces[(piece / 64) as usize];
        let bit = 1 << (piece % 64);
        *word = if hidden { *word | bit } else { *word & !bit };
    }

    /// Takes the next piece off the list.
    fn take_next(&mut self) -> Option<u64> {
        let after = self.pieces[(self.next / 64) as usize] & (u64::MAX << (self.next % 64));
        let first = (self.next / 64) as usize;
        // By words: most of a large volume may have been given.
        let words = (first + 1..self.pieces.len()).chain(0..=first);
        let mut rest = words.map(|word| (word, self.pieces[word]));
        let (word, bits) = match after {
            0 => rest.find(|(_, bits)| *bits != 0)?,
            after => (first, after),
        };
        let piece = word as u64 * 64 + u64::from(bits.trailing_zeros());
        self.set(piece, false);
        self.next = (piece + 1) % self.count;
        Some(piece)
    }
}

impl Space {
    /// Hides everything that is free: the host has to be asked for it first.
    pub(crate) fn hide(&mut self) {
        let hidden = Hidden::new(self.geometry(), self.free_blocks);
        for group in self.groups_mut() {
            group.hide();
        }
        (self.free_blocks, self.free_slots) = (0, 0);
        self.hidden = Some(hidden);
    }

    /// Free blocks that the host has not given yet.
    pub(crate) fn hidden_blocks(&self) -> u64 {
        self.hidden.as_ref().map_or(0, |hidden| hidden.blocks)
    }

    /// Bytes of the volume that the host is known to have given: the rings, what is in use, and what is free and shown.
    pub(crate) fn known_bytes(&self) -> u64 {
        let blocks = self.geometry().first_data_block().0 + self.used_blocks() + self.free_blocks;
        blocks.saturating_mul(BLOCK_BYTES)
    }

    /// The next piece that the host is to be asked for.
    pub(crate) fn next_hidden(&mut self) -> Next {
        let geometry = *self.geometry();
        let Some(hidden) = &mut self.hidden else {
            return Next::Nothing;
        };
        let Some(piece) = hidden.take_next() else {
            return if hidden.asked > 0 { Next::Wait } else { Next::Nothing };
        };
        hidden.asked += 1;
        let start = (piece * PIECE_BLOCKS).max(geometry.first_data_block().0);
        let end = ((piece + 1) * PIECE_BLOCKS).min(geometry.volume_blocks);
        Next::Ask(BlockRange::new(BlockNo(start), end - start))
    }

    /// What the host said to that piece: its free blocks may be promised from now on, or it is asked again later.
    pub(crate) fn answered(&mut self, range: BlockRange, is_given: bool) {
        let piece = range.start.0 / PIECE_BLOCKS;
        let shown = if is_given { self.show(range) } else { 0 };
        if let Some(hidden) = &mut self.hidden {
            hidden.asked -= 1;
            hidden.blocks -= shown;
            if !is_given {
                hidden.set(piece, true);
            }
        }
    }

    /// Blocks that would have to be given before `slots` and `blocks` can be promised above `floor`, about.
    pub(crate) fn lacking_bytes(&self, slots: u64, blocks: u64, floor: u64) -> u64 {
        let kept = (self.slots_promised + slots + floor) * self.slot_blocks();
        let wanted = kept.saturating_add(self.blocks_promised).saturating_add(blocks);
        wanted.saturating_sub(self.free_blocks).saturating_mul(BLOCK_BYTES)
    }

    /// Whether blocks that become free here stay hidden.
    pub(super) fn is_hidden(&self, block: BlockNo) -> bool {
        self.hidden.as_ref().is_some_and(|hidden| hidden.is_set(block.0 / PIECE_BLOCKS))
    }

    /// Cuts a range at the borders of pieces.
    pub(super) fn by_piece(range: BlockRange) -> impl Iterator<Item = BlockRange> {
        let (mut at, end) = (range.start.0, range.start.0 + range.count);
        std::iter::from_fn(move || {
            let len = ((at / PIECE_BLOCKS + 1) * PIECE_BLOCKS).min(end) - at;
            let part = BlockRange::new(BlockNo(at), len);
            at += len;
            (len > 0).then_some(part)
        })
    }
}
