//! The extents of one file: which blocks hold which part of it.
//!
//! A [`Piece`] is an extent at its place in the file. A [`MapEdit`] holds the
//! pieces around a range as the tree has them, is changed in memory, and then
//! says what a transaction must put, delete and free to make the tree agree. What
//! is always true: pieces do not overlap, none is empty, and every block that
//! leaves the map is freed exactly once.
//!
//! Pure: knows nothing of the store's calls, of pages, or of sizes in bytes.

use std::ops::Range;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, BlockRange, Epoch, InodeNo};
use holdfast_format::item::Extent;
use holdfast_format::{ItemKind, Key};
use holdfast_store::Transaction;

/// Pieces that lie side by side are joined up to this many blocks: an append of one block and an fsync
/// would otherwise leave an item for each; joining further would rewrite long lists of checksums.
const JOIN_BLOCKS_MAX: u64 = 64;

/// An extent at its place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// First block, counted from the start of the file.
    pub(crate) first: u64,
    /// Where its blocks are.
    pub(crate) extent: Extent,
}

impl Piece {
    /// Number of blocks.
    pub(crate) fn count(&self) -> u64 {
        self.extent.blocks.count
    }

    /// The first block of the file after it. Pieces from disk are judged before, so this cannot overflow.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.count()
    }

    /// Whether it has a block in `range`.
    pub(crate) fn overlaps(&self, range: &Range<u64>) -> bool {
        self.first < range.end && range.start < self.end()
    }

    /// Its blocks inside `range`.
    fn blocks_in(&self, range: &Range<u64>) -> Option<BlockRange> {
        let first = self.first.max(range.start);
        let end = self.end().min(range.end);
        (first < end).then(|| {
            let start = self.extent.blocks.start.0 + (first - self.first);
            BlockRange::new(BlockNo(start), end - first)
        })
    }

    /// The part of it inside `range`, with its share of the checksums.
    pub(crate) fn part(&self, range: Range<u64>) -> Option<Piece> {
        let blocks = self.blocks_in(&range)?;
        let first = self.first.max(range.start);
        let skip = (first - self.first) as usize;
        let sums = match self.extent.is_written() {
            true => self.extent.sums[skip..skip + blocks.count as usize].to_vec(),
            false => Vec::new(),
        };
        Some(Piece { first, extent: Extent { blocks, sums, birth: self.extent.birth } })
    }

    /// The key of its item.
    pub(crate) fn key(&self, inode: InodeNo) -> Key {
        extent_key(inode, self.first)
    }

    /// Whether `next` goes on where this ends, in the file and on the device, and both have no more than `limit` blocks.
    /// Of two births one would be lost: both must belong to the branch alone, which has grown out of a snapshot of epoch
    /// `parent` (S1).
    fn joins(&self, next: &Piece, limit: u64, parent: Epoch) -> bool {
        let (birth, other) = (self.extent.birth, next.extent.birth);
        self.end() == next.first
            && (birth == other || owns(parent, birth) && owns(parent, other))
            && self.extent.blocks.end() == Some(next.extent.blocks.start)
            && self.extent.is_written() == next.extent.is_written()
            && self.count() + next.count() <= limit
    }

    /// Makes it longer by `next`, which it joins. It becomes as old as the younger part: no snapshot has either part, or
    /// both are as old.
    fn append(&mut self, next: &mut Piece) {
        let births = [self.extent.birth, next.extent.birth];
        let is_new = births.contains(&Extent::UNBORN);
        self.extent.birth = if is_new { Extent::UNBORN } else { births[0].max(births[1]) };
        self.extent.blocks.count += next.extent.blocks.count;
        self.extent.sums.append(&mut next.extent.sums);
    }
}

/// Whether what was born then belongs to a branch alone that has grown out of a snapshot of epoch `parent` (0: out of
/// none). What has no birth yet gets a later one.
pub(crate) fn owns(parent: Epoch, birth: Epoch) -> bool {
    parent == Epoch(0) || birth == Extent::UNBORN || birth > parent
}

/// The key of an extent that begins with block `first` of `inode`.
pub(crate) fn extent_key(inode: InodeNo, first: u64) -> Key {
    Key::new(inode, ItemKind::Extent, first.saturating_mul(BLOCK_BYTES))
}

/// Whether the blocks of a piece are reserved, and a snapshot has them as well: then they are of no use to the branch,
/// which has grown out of one of epoch `parent`.
pub(crate) fn is_shared_reserve(parent: Epoch, piece: &Piece) -> bool {
    !piece.extent.is_written() && !owns(parent, piece.extent.birth)
}

/// A change of a part of a map.
#[derive(Debug, Default)]
pub(crate) struct MapEdit {
    /// The epoch of the branch's parent: what is not younger has others that reach it.
    parent: Epoch,
    /// What the map will be, in the order of the file.
    after: Vec<Edited>,
    /// Where pieces of the tree began that are not as they were.
    stale: Vec<u64>,
    /// Blocks, how old they are, and where in the file the first of them lay.
    freed: Vec<(BlockRange, Epoch, u64)>,
    /// Blocks that held data and stay, and how old they are.
    unwritten: Vec<(BlockRange, Epoch)>,
    added: i64,
}

/// A piece, and whether the tree has it so.
#[derive(Debug)]
struct Edited {
    piece: Piece,
    is_new: bool,
}

impl Edited {
    /// From now on it is not as the tree has it.
    fn changes(&mut self, stale: &mut Vec<u64>) {
        if !std::mem::replace(&mut self.is_new, true) {
            stale.push(self.piece.first);
        }
    }
}

impl MapEdit {
    /// Starts from the pieces that the tree holds, in the order of the file. They do not overlap. The branch has grown out
    /// of a snapshot of epoch `parent`, and does until the edit is applied.
    pub(crate) fn new(pieces: Vec<Piece>, parent: Epoch) -> MapEdit {
        let after = pieces.into_iter().map(|piece| Edited { piece, is_new: false }).collect();
        MapEdit { parent, after, ..MapEdit::default() }
    }

    /// Makes a hole of `range` and frees its blocks.
    pub(crate) fn cut(&mut self, range: Range<u64>) {
        for piece in self.take(self.overlapping(&range)) {
            if let Some(inside) = piece.blocks_in(&range) {
                let first = piece.first.max(range.start);
                self.freed.push((inside, piece.extent.birth, first));
                self.added -= inside.count as i64;
            }
            self.keep_outside(&piece, &range);
        }
    }

    /// Moves all that lies from block `from` on by so many blocks, towards the start of the file into a hole, or away from it. It belongs
    /// to the branch alone: what walks through a snapshot knows a block by its place.
    pub(crate) fn shift(&mut self, from: u64, by: i64) {
        let across = self.overlapping(&(from..from.saturating_add(1)));
        if self.after.get(across.start).is_some_and(|of| of.piece.first < from) {
            for piece in self.take(across) {
                self.keep_outside(&piece, &(from..from));
            }
        }
        let at = self.begins(from);
        for edited in &mut self.after[at..] {
            assert!(
                owns(self.parent, edited.piece.extent.birth),
                "a block of a snapshot would move"
            );
            edited.changes(&mut self.stale);
            edited.piece.first = edited.piece.first.strict_add_signed(by);
        }
    }

    /// Makes everything written in `range` unwritten: it reads as zeros and keeps its blocks. Blocks that a snapshot has as
    /// well leave the file (S2): the caller puts others there.
    pub(crate) fn unwrite(&mut self, range: Range<u64>) {
        // From behind: what is put instead of a piece moves only those behind it.
        for at in self.overlapping(&range).rev() {
            if !self.after[at].piece.extent.is_written() {
                continue;
            }
            let is_own = owns(self.parent, self.after[at].piece.extent.birth);
            for piece in self.take(at..at + 1) {
                if let Some(blocks) = piece.blocks_in(&range) {
                    if !is_own {
                        let first = piece.first.max(range.start);
                        self.freed.push((blocks, piece.extent.birth, first));
                        self.added -= blocks.count as i64;
                        self.keep_outside(&piece, &range);
                        continue;
                    }
                    self.unwritten.push((blocks, piece.extent.birth));
                    let first = piece.first.max(range.start);
                    let birth = piece.extent.birth;
                    let extent = Extent { birth, ..Extent::new(blocks, Vec::new()) };
                    self.put(Piece { first, extent });
                }
                self.keep_outside(&piece, &range);
            }
        }
    }

    /// Puts a piece where whatever was there is cut out. Joins it with its neighbours if that makes a short piece.
    pub(crate) fn insert(&mut self, piece: Piece, blocks_max: u64) {
        self.cut(piece.first..piece.end());
        self.added += piece.count() as i64;
        self.join(piece, blocks_max);
    }

    /// Puts a written piece where the same blocks were reserved: none is freed, and the file has as many as before.
    ///
    /// The blocks were the file's before, so the piece is as old as that.
    pub(crate) fn fill(&mut self, mut piece: Piece, blocks_max: u64) {
        let range = piece.first..piece.end();
        let reserved = self.take(self.overlapping(&range));
        let same = reserved.first().and_then(|old| old.blocks_in(&range));
        assert_eq!(same, Some(piece.extent.blocks), "what is written in place was reserved there");
        for old in reserved {
            piece.extent.birth = old.extent.birth;
            assert!(!old.extent.is_written(), "data is not overwritten");
            self.keep_outside(&old, &range);
        }
        self.join(piece, blocks_max);
    }

    /// Puts a piece where none is, joined with its neighbours if that makes a short piece.
    fn join(&mut self, mut piece: Piece, blocks_max: u64) {
        let limit = blocks_max.min(JOIN_BLOCKS_MAX);
        let mut at = self.begins(piece.first);
        if let Some(left) = at.checked_sub(1).and_then(|before| self.after.get_mut(before))
            && left.piece.joins(&piece, limit, self.parent)
        {
            at -= 1;
            left.piece.append(&mut piece);
            left.changes(&mut self.stale);
        } else {
            self.after.insert(at, Edited { piece, is_new: true });
        }
        if let Some(right) = self.after.get(at + 1)
            && self.after[at].piece.joins(&right.piece, limit, self.parent)
        {
            let mut right = self.take(at + 1..at + 2);
            self.after[at].piece.append(&mut right[0]);
        }
    }

    /// The parts of `range` where the branch has no blocks of its own and no data: what is reserved there, if anything, a
    /// snapshot has reserved as well, and it cannot be written (S2).
    pub(crate) fn gaps(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        for Edited { piece, .. } in &self.after[self.overlapping(&range)] {
            if is_shared_reserve(self.parent, piece) {
                continue;
            }
            if piece.first > at {
                gaps.push(at..piece.first);
            }
            at = piece.end();
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }

    /// Where the blocks after the last one before `block` are: a good place for what comes next.
    pub(crate) fn goal(&self, block: u64) -> Option<BlockNo> {
        let left = self.begins(block).checked_sub(1)?;
        self.after[left].piece.extent.blocks.end()
    }

    /// How many blocks the file gains (below zero: loses) by this change.
    pub(crate) fn blocks_added(&self) -> i64 {
        self.added
    }

    /// Adds to `transaction` what makes the tree agree.
    pub(crate) fn plan(self, inode: InodeNo, transaction: &mut Transaction) {
        for first in self.gone() {
            transaction.delete(extent_key(inode, first));
        }
        for piece in self.new_or_changed() {
            transaction.put_with(piece.key(inode), |out| piece.extent.write(out));
        }
        for (blocks, birth, first) in self.freed {
            transaction.free(blocks, birth, extent_key(inode, first));
        }
        for (blocks, birth) in self.unwritten {
            transaction.unwrite(blocks, birth);
        }
    }

    fn gone(&self) -> impl Iterator<Item = u64> {
        let stays = |first: &u64| {
            self.after.get(self.begins(*first)).is_some_and(|of| of.piece.first == *first)
        };
        self.stale.iter().copied().filter(move |first| !stays(first))
    }

    fn new_or_changed(&self) -> impl Iterator<Item = &Piece> {
        self.after.iter().filter(|of| of.is_new).map(|of| &of.piece)
    }

    /// The first of the pieces that begin at `block` or behind it.
    fn begins(&self, block: u64) -> usize {
        self.after.partition_point(|of| of.piece.first < block)
    }

    /// Which pieces have blocks in `range`.
    fn overlapping(&self, range: &Range<u64>) -> Range<usize> {
        if range.is_empty() {
            return 0..0;
        }
        let from = self.after.partition_point(|of| of.piece.end() <= range.start);
        from..self.begins(range.end).max(from)
    }

    fn take(&mut self, which: Range<usize>) -> Vec<Piece> {
        let stale = &mut self.stale;
        let taken = self.after.drain(which).map(|mut edited| {
            edited.changes(stale);
            edited.piece
        });
        taken.collect()
    }

    fn put(&mut self, piece: Piece) {
        let at = self.begins(piece.first);
        self.after.insert(at, Edited { piece, is_new: true });
    }

    fn keep_outside(&mut self, piece: &Piece, range: &Range<u64>) {
        for outside in [0..range.start, range.end..u64::MAX] {
            if let Some(rest) = piece.part(outside) {
                self.put(rest);
            }
        }
    }
}

#[cfg(test)]
#[path = "map_tests.rs"]
mod tests;
