//! Free blocks of a sparse image that the host has not been asked for yet.
//!
//! They cannot be promised, because a host that is full would refuse
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
    /// Pieces that the host is not known to have given: what becomes free there is hidden.
    pieces: Bits,
    /// Of these, the ones with hidden blocks that no thread asks for at this moment. A full volume has hardly any, and
    /// a piece without a free block is not worth a call of the host.
    wanted: Bits,
    /// Where the search for the next one begins.
    next: u64,
    /// Pieces that the host is being asked for.
    asked: u64,
    /// Answers of the host so far.
    answers: u64,
    /// Free blocks of all hidden pieces, and of those that the host is being asked for.
    pub(super) blocks: u64,
}

/// One bit for each piece.
#[derive(Debug)]
struct Bits(Vec<u64>);

impl Bits {
    fn new(count: u64) -> Bits {
        Bits(vec![0; count.div_ceil(64) as usize])
    }

    fn is_set(&self, piece: u64) -> bool {
        self.0[(piece / 64) as usize] & (1 << (piece % 64)) != 0
    }

    fn set(&mut self, piece: u64, value: bool) {
        let word = &mut self.0[(piece / 64) as usize];
        let bit = 1 << (piece % 64);
        *word = if value { *word | bit } else { *word & !bit };
    }

    /// The first that is set from `from` on, around the end.
    fn next(&self, from: u64) -> Option<u64> {
        let first = (from / 64) as usize;
        let after = self.0.get(first)? & (u64::MAX << (from % 64));
        // By words: most of a large volume may have been given.
        let words = (first + 1..self.0.len()).chain(0..=first);
        let mut rest = words.map(|word| (word, self.0[word]));
        let (word, bits) = match after {
            0 => rest.find(|(_, bits)| *bits != 0)?,
            after => (first, after),
        };
        Some(word as u64 * 64 + u64::from(bits.trailing_zeros()))
    }
}

/// The next piece to ask the host for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// These blocks; the caller says what came of it.
    Ask(BlockRange),
    /// Others are asking for the last ones: there is something new when this many answers are more.
    Wait(u64),
    /// All were given.
    Nothing,
}

impl Space {
    /// Hides everything that is free: the host has to be asked for it first.
    pub(crate) fn hide(&mut self) {
        let (geometry, blocks) = (*self.geometry(), self.free_blocks);
        for group in self.groups_mut() {
            group.hide();
        }
        (self.free_blocks, self.free_slots) = (0, 0);
        let count = geometry.volume_blocks.div_ceil(PIECE_BLOCKS);
        let next = geometry.first_data_block().0 / PIECE_BLOCKS;
        let (mut pieces, mut wanted) = (Bits::new(count), Bits::new(count));
        for piece in next..count {
            pieces.set(piece, true);
            wanted.set(piece, self.has_hidden(Space::piece(&geometry, piece)));
        }
        self.hidden = Some(Hidden { pieces, wanted, next, asked: 0, answers: 0, blocks });
    }

    /// The blocks of a piece that belong to the data zone.
    fn piece(geometry: &Geometry, piece: u64) -> BlockRange {
        let start = (piece * PIECE_BLOCKS).max(geometry.first_data_block().0);
        let end = ((piece + 1) * PIECE_BLOCKS).min(geometry.volume_blocks);
        BlockRange::new(BlockNo(start), end - start)
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
        let Some(piece) = hidden.wanted.next(hidden.next) else {
            return if hidden.asked > 0 { Next::Wait(hidden.answers) } else { Next::Nothing };
        };
        hidden.wanted.set(piece, false);
        hidden.next = (piece + 1) % geometry.volume_blocks.div_ceil(PIECE_BLOCKS);
        hidden.asked += 1;
        Next::Ask(Space::piece(&geometry, piece))
    }

    /// What the host said to that piece: its free blocks may be promised from now on, or it is asked again later.
    pub(crate) fn answered(&mut self, range: BlockRange, is_given: bool) {
        let piece = range.start.0 / PIECE_BLOCKS;
        let shown = if is_given { self.show(range) } else { 0 };
        if let Some(hidden) = &mut self.hidden {
            hidden.asked -= 1;
            hidden.answers += 1;
            hidden.blocks -= shown;
            if is_given {
                hidden.pieces.set(piece, false);
            }
            // Two may have asked for it, if more became free there meanwhile, and were answered differently.
            let is_hidden = hidden.pieces.is_set(piece);
            hidden.wanted.set(piece, is_hidden);
        }
    }

    /// Answers of the host so far, to whichever piece.
    pub(crate) fn host_answers(&self) -> u64 {
        self.hidden.as_ref().map_or(0, |hidden| hidden.answers)
    }

    /// Blocks of a hidden piece became free, and stay hidden.
    pub(super) fn hide_more(&mut self, range: BlockRange) {
        if let Some(hidden) = &mut self.hidden {
            hidden.blocks += range.count;
            hidden.wanted.set(range.start.0 / PIECE_BLOCKS, true);
        }
    }

    /// Blocks that would have to be given before `slots` and `blocks` can be promised above `floor`, about.
    pub(crate) fn lacking_bytes(&self, slots: u64, blocks: u64, floor: u64) -> u64 {
        let wanted = self.promises.wanted_blocks(slots, blocks, floor);
        wanted.saturating_sub(self.free_blocks).saturating_mul(BLOCK_BYTES)
    }

    /// Whether blocks that become free here stay hidden.
    pub(super) fn is_hidden(&self, block: BlockNo) -> bool {
        self.hidden.as_ref().is_some_and(|hidden| hidden.pieces.is_set(block.0 / PIECE_BLOCKS))
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
