//! What the host of a sparse image has given, in pieces of 4 MiB.
//!
//! Free blocks that it has not given cannot be promised, because a full host would refuse them when it is too late (P8). So
//! they are unbacked from the free space until it has given their piece, or the part of it where they lie.
//!
//! ```text
//!  unbacked -> asked -> given:  no call for it from here on; what becomes free is free
//!     ^        |        |
//!     |<-------'        |     the host has refused it, or given parts of it
//!     |                 v
//!     '----------- discarding: it gave, and is to have it back
//! ```
//!
//! - Unbacked: what becomes free there is unbacked with it. *Wanted* is a piece with an unbacked block: no other is worth a call. *Searched* is one of
//!   which the image has no part that is not shown, as far as is known: not where something became free since, nor where the host may have given more than it said.
//! - Asked: one thread has called the host. Another that finds nothing else waits for the answer.
//! - Discarding: one thread discards. The host is not asked meanwhile: it would give first and take back then.
//!
//! Each change of a piece goes through here, under the lock of the space. Knows nothing of the device.

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, BlockRange};
use holdfast_format::Geometry;
use holdfast_format::limits::GROUP_BLOCKS;

/// Blocks that the host is asked for at once: 4 MiB.
pub(super) const PIECE_BLOCKS: u64 = 1024;
/// The same in bytes.
pub(crate) const PIECE_BYTES: u64 = PIECE_BLOCKS * BLOCK_BYTES;
/// Pieces of a group.
pub(super) const PIECES_PER_GROUP: u64 = GROUP_BLOCKS / PIECE_BLOCKS;

const _: () = assert!(GROUP_BLOCKS.is_multiple_of(PIECE_BLOCKS) && PIECE_BLOCKS.is_multiple_of(64));
const _: () = assert!(PIECES_PER_GROUP == 32, "two groups in a word");

/// Which pieces of a volume are unbacked.
#[derive(Debug)]
pub(crate) struct Unbacked {
    /// Those that are not given.
    pieces: Bits,
    /// Unbacked ones that are wanted.
    wanted: Bits,
    /// Those that a search has looked at, or looks at now.
    searched: Bits,
    /// Groups of which the host has given something, and how many.
    groups: Bits,
    group_count: u64,
    /// Where the search for the next one begins.
    next: u64,
    /// This one comes before that, if it is unbacked: it has the places of copies for the one that was asked for last.
    copies: Option<u64>,
    /// What is in piece `p` has its copy in piece `p ^ copy_pieces`.
    copy_pieces: u64,
    /// Those that the host is being asked for, each by one thread.
    asked: Vec<u64>,
    /// Those of a group that are being discarded, one bit each.
    discarding: Option<(u64, u32)>,
    /// Answers of the host and ends of discards so far.
    answers: u64,
    /// Of these, the ones behind which there may be room for a caller that found none: blocks were shown, or went back.
    gains: u64,
    /// Free blocks of all unbacked pieces, and of those that the host is being asked for.
    pub(super) blocks: u64,
}

/// One bit for each piece, or group.
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

    /// Those of the pieces of a group.
    fn of_group(&self, group: u64) -> u32 {
        (self.0[(group / 2) as usize] >> (group % 2 * PIECES_PER_GROUP)) as u32
    }

    fn set_of_group(&mut self, group: u64, value: u32) {
        let (word, at) = (&mut self.0[(group / 2) as usize], group % 2 * PIECES_PER_GROUP);
        *word = *word & !(u64::from(u32::MAX) << at) | u64::from(value) << at;
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
    /// Which these are is known when the bitmap of a group is in memory.
    Load(u64),
    /// Others are asking for the last ones, or discard them: there is something new when this many answers are more.
    Wait(u64),
    /// All were given, or searched.
    Nothing,
}

impl Unbacked {
    /// All pieces. `blocks` of the volume are free, `has_free` says of a group in which pieces some are, and `is_used` whether others are not.
    pub(super) fn all(
        geometry: &Geometry,
        blocks: u64,
        has_free: impl Fn(u64) -> u32,
        is_used: impl Fn(u64) -> bool,
    ) -> Unbacked {
        let mut unbacked = Unbacked::none(geometry);
        let (first, end) = (unbacked.next, count(geometry));
        for group in 0..end.div_ceil(PIECES_PER_GROUP) {
            let bits = |from: u64| {
                let bits = from.saturating_sub(group * PIECES_PER_GROUP).min(PIECES_PER_GROUP);
                ((1u64 << bits) - 1) as u32
            };
            let inside = bits(end) & !bits(first);
            unbacked.pieces.set_of_group(group, inside);
            unbacked.wanted.set_of_group(group, inside & has_free(group));
        }
        let used: Vec<u64> = (0..geometry.group_count()).filter(|group| is_used(*group)).collect();
        (unbacked.groups, unbacked.group_count) = (Bits::new(geometry.group_count()), 0);
        used.into_iter().for_each(|group| unbacked.has_given_of(group, true));
        unbacked.blocks = blocks;
        unbacked
    }

    /// The bitmap of a group has come: the host is not asked for pieces of which all is in use.
    pub(super) fn are_known(&mut self, group: u64, has_unbacked: u32) {
        let wanted = self.wanted.of_group(group);
        self.wanted.set_of_group(group, wanted & has_unbacked);
    }

    /// The bitmap of a group is damaged: so many blocks of it are not free after all, and the host is not asked for them.
    pub(super) fn are_lost(&mut self, group: u64, blocks: u64) {
        self.wanted.set_of_group(group, 0);
        self.blocks -= blocks;
    }

    /// No piece: the host has given all.
    pub(super) fn none(geometry: &Geometry) -> Unbacked {
        let mut groups = Bits::new(geometry.group_count());
        (0..geometry.group_count()).for_each(|group| groups.set(group, true));
        Unbacked {
            groups,
            group_count: geometry.group_count(),
            pieces: Bits::new(count(geometry)),
            wanted: Bits::new(count(geometry)),
            searched: Bits::new(count(geometry)),
            next: geometry.first_data_block().0 / PIECE_BLOCKS,
            copies: None,
            copy_pieces: geometry.copy_mask / PIECE_BLOCKS,
            asked: Vec::new(),
            discarding: None,
            answers: 0,
            gains: 0,
            blocks: 0,
        }
    }

    /// Groups of which the host has given something.
    pub(super) fn given_groups(&self) -> u64 {
        self.group_count
    }

    /// Their numbers.
    pub(super) fn list_given(&self, groups: u64) -> Vec<u64> {
        (0..groups).filter(|group| self.groups.is_set(*group)).collect()
    }

    /// The host has given something of a group, or has all of it.
    pub(super) fn has_given_of(&mut self, group: u64, yes: bool) {
        if self.groups.is_set(group) != yes {
            self.groups.set(group, yes);
            self.group_count = if yes { self.group_count + 1 } else { self.group_count - 1 };
        }
    }

    /// The volume has become larger: the blocks from `start` on are unbacked.
    pub(super) fn extend(&mut self, geometry: &Geometry, start: BlockNo) {
        for bits in [&mut self.pieces, &mut self.wanted, &mut self.searched] {
            bits.0.resize(count(geometry).div_ceil(64) as usize, 0);
        }
        self.groups.0.resize(geometry.group_count().div_ceil(64) as usize, 0);
        for number in start.0 / PIECE_BLOCKS..count(geometry) {
            self.pieces.set(number, true);
            self.searched.set(number, false);
            self.want(number, true);
        }
        self.blocks += geometry.far_copy().0.saturating_sub(start.0);
    }

    /// The next piece that the host is to be asked for, or the next one that `is_search` may find given in parts. `is_away` says of a group
    /// whether its bitmap has to be loaded first.
    pub(super) fn next(
        &mut self,
        geometry: &Geometry,
        is_search: bool,
        is_away: impl Fn(u64) -> bool,
    ) -> Next {
        let copies = self.copies.filter(|number| self.wanted.is_set(*number) && !is_search);
        let next = || match is_search {
            true => self.next_of_search(geometry),
            false => self.wanted.next(self.next),
        };
        let Some(number) = copies.or_else(next) else {
            return match self.asked.is_empty() && self.discarding.is_none() {
                true => Next::Nothing,
                false => Next::Wait(self.answers),
            };
        };
        if is_away(number / PIECES_PER_GROUP) {
            return Next::Load(number / PIECES_PER_GROUP);
        }
        self.wanted.set(number, false);
        self.copies = None;
        if is_search {
            // What becomes free meanwhile takes this back.
            self.searched.set(number, true);
        }
        if copies.is_none() && !is_search {
            // With the place of a node the host is asked for that of its copy: there is no slot before.
            let copy = number ^ self.copy_pieces;
            self.copies = Some(copy).filter(|copy| number < *copy && *copy < count(geometry));
            self.next = (number + 1) % count(geometry);
        }
        self.asked.push(number);
        Next::Ask(piece(geometry, number))
    }

    /// The next one that a search has not looked at: a reserve lies beside what is in use, and at the begin of the volume.
    fn next_of_search(&self, geometry: &Geometry) -> Option<u64> {
        let left = |group: u64| self.wanted.of_group(group) & !self.searched.of_group(group);
        let first = |is_given: bool| {
            let mut groups =
                (0..geometry.group_count()).filter(|at| self.groups.is_set(*at) == is_given);
            groups.find(|group| left(*group) != 0)
        };
        let group = first(true).or_else(|| first(false))?;
        Some(group * PIECES_PER_GROUP + u64::from(left(group).trailing_zeros()))
    }

    /// What the host said to the piece `range`: it has given some of it, of which `shown` blocks are unbacked no more, and others are if it
    /// `has_unbacked` ones. `None`: the thread that asked has died.
    pub(super) fn answered(
        &mut self,
        range: BlockRange,
        given: Option<&[BlockRange]>,
        (shown, has_unbacked): (u64, bool),
        geometry: &Geometry,
    ) {
        let number = range.start.0 / PIECE_BLOCKS;
        self.asked.retain(|asked| *asked != number);
        self.answers += 1;
        self.gains += u64::from(shown > 0);
        self.blocks -= shown;
        match given {
            None => self.searched.set(number, false),
            Some([]) => {}
            Some(given) => {
                self.has_given_of(number / PIECES_PER_GROUP, true);
                // The last piece may have grown meanwhile.
                if given == [piece(geometry, number)] {
                    self.pieces.set(number, false);
                }
            }
        }
        self.want(number, has_unbacked);
    }

    /// An unbacked piece has unbacked blocks, or not.
    fn want(&mut self, number: u64, has_unbacked: bool) {
        let is_idle = !self.asked.contains(&number) && !self.is_discarding(number);
        self.wanted.set(number, has_unbacked && is_idle && self.pieces.is_set(number));
    }

    /// The host may have given something of these, which are unbacked.
    pub(super) fn search_again(&mut self, pieces: &[BlockRange]) {
        pieces.iter().for_each(|piece| self.searched.set(piece.start.0 / PIECE_BLOCKS, false));
    }

    /// Answers behind which there may be room.
    pub(super) fn gains(&self) -> u64 {
        self.gains
    }

    /// Answers of the host so far, to whichever piece.
    pub(super) fn answers(&self) -> u64 {
        self.answers
    }

    /// Blocks of one unbacked piece became free, and stay unbacked.
    pub(super) fn add(&mut self, range: BlockRange) {
        self.blocks += range.count;
        let number = range.start.0 / PIECE_BLOCKS;
        self.searched.set(number, false);
        self.want(number, true);
    }

    fn is_discarding(&self, number: u64) -> bool {
        let (group, bit) = (number / PIECES_PER_GROUP, number % PIECES_PER_GROUP);
        self.discarding.is_some_and(|(of, pieces)| of == group && pieces >> bit & 1 == 1)
    }

    /// Of the pieces of a group those that the host is being asked for.
    pub(super) fn asked_in(&self, group: u64) -> u32 {
        let of_group = self.asked.iter().filter(|number| **number / PIECES_PER_GROUP == group);
        of_group.fold(0, |pieces, number| pieces | 1 << (number % PIECES_PER_GROUP))
    }

    /// Pieces of a group, none of them asked for, are being discarded. `blocks` of them were free and are unbacked from now on.
    pub(super) fn begin_discard(&mut self, group: u64, pieces: u32, blocks: u64) {
        assert_eq!(self.discarding, None, "one discard at a time");
        assert_eq!(self.asked_in(group) & pieces, 0, "the host gives and takes at once");
        self.discarding = Some((group, pieces));
        for number in numbers(group, pieces) {
            self.pieces.set(number, true);
            self.want(number, false);
        }
        self.blocks += blocks;
    }

    /// It is over: the host has to be asked again for those with unbacked blocks. What of them it would not take back the image has still.
    pub(super) fn end_discard(
        &mut self,
        has_unbacked: impl Fn(BlockRange) -> bool,
        has_failed: bool,
        geometry: &Geometry,
    ) {
        let Some((group, pieces)) = self.discarding.take() else { return };
        for number in numbers(group, pieces) {
            if has_failed {
                self.searched.set(number, false);
            }
            self.want(number, has_unbacked(piece(geometry, number)));
        }
        self.answers += 1;
        self.gains += 1;
    }

    /// Whether blocks that become free here stay unbacked.
    pub(super) fn holds(&self, block: BlockNo) -> bool {
        self.pieces.is_set(block.0 / PIECE_BLOCKS)
    }
}

/// The numbers of pieces of a group.
fn numbers(group: u64, pieces: u32) -> impl Iterator<Item = u64> {
    let of_group = (0..PIECES_PER_GROUP).filter(move |bit| pieces >> bit & 1 == 1);
    of_group.map(move |bit| group * PIECES_PER_GROUP + bit)
}

/// Pieces of a volume: behind the far copy lies no group.
fn count(geometry: &Geometry) -> u64 {
    geometry.far_copy().0.div_ceil(PIECE_BLOCKS)
}

/// The blocks of a piece that belong to the data zone.
fn piece(geometry: &Geometry, number: u64) -> BlockRange {
    let start = (number * PIECE_BLOCKS).max(geometry.first_data_block().0);
    let end = ((number + 1) * PIECE_BLOCKS).min(geometry.far_copy().0);
    BlockRange::new(BlockNo(start), end - start)
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
