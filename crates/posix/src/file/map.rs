//! The extents of one file: which blocks hold which part of it.
//!
//! A [`Piece`] is an extent at its place in the file. A [`MapEdit`] holds the
//! pieces around a range as the tree has them, is changed in memory, and then
//! says what a batch must put, delete and free to make the tree agree. What
//! is always true: pieces do not overlap, none is empty, and every block that
//! leaves the map is freed exactly once.
//!
//! Pure: knows nothing of the store's calls, of pages, or of sizes in bytes.

use std::collections::BTreeMap;
use std::ops::Range;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, BlockRange, InodeNo};
use holdfast_format::item::Extent;
use holdfast_format::{Key, Kind};
use holdfast_store::Batch;

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

    /// The part of it inside `range`, with its share of the checksums.
    pub(crate) fn part(&self, range: Range<u64>) -> Option<Piece> {
        let first = self.first.max(range.start);
        let end = self.end().min(range.end);
        if first >= end {
            return None;
        }
        let skip = first - self.first;
        let sums = if self.extent.is_written() {
            self.extent.sums[skip as usize..(end - self.first) as usize].to_vec()
        } else {
            Vec::new()
        };
        Some(Piece {
            first,
            extent: Extent {
                blocks: BlockRange::new(BlockNo(self.extent.blocks.start.0 + skip), end - first),
                sums,
            },
        })
    }

    /// The key of its item.
    pub(crate) fn key(&self, inode: InodeNo) -> Key {
        extent_key(inode, self.first)
    }

    /// Whether `next` goes on where this ends, in the file and on the device.
    fn continues_with(&self, next: &Piece) -> bool {
        self.end() == next.first
            && self.extent.blocks.end() == Some(next.extent.blocks.start)
            && self.extent.is_written() == next.extent.is_written()
    }
}

/// The key of an extent that begins with block `first` of `inode`.
pub(crate) fn extent_key(inode: InodeNo, first: u64) -> Key {
    Key::new(inode, Kind::Extent, first.saturating_mul(BLOCK_BYTES))
}

/// A change of a part of a map.
#[derive(Debug, Default)]
pub(crate) struct MapEdit {
    before: BTreeMap<u64, Piece>,
    after: BTreeMap<u64, Piece>,
    freed: Vec<BlockRange>,
}

impl MapEdit {
    /// Starts from the pieces that the tree holds. They do not overlap.
    pub(crate) fn new(pieces: Vec<Piece>) -> MapEdit {
        let before: BTreeMap<u64, Piece> =
            pieces.into_iter().map(|piece| (piece.first, piece)).collect();
        MapEdit { after: before.clone(), before, freed: Vec::new() }
    }

    /// Makes a hole of `range` and frees its blocks.
    pub(crate) fn cut(&mut self, range: Range<u64>) {
        for piece in self.take_overlapping(&range) {
            let inside =
                piece.part(range.clone()).expect("take_overlapping gives only pieces that overlap");
            self.freed.push(inside.extent.blocks);
            self.keep_outside(&piece, &range);
        }
    }

    /// Makes everything written in `range` unwritten: it reads as zeros and keeps its blocks.
    pub(crate) fn unwrite(&mut self, range: Range<u64>) {
        for piece in self.take_overlapping(&range) {
            let mut inside =
                piece.part(range.clone()).expect("take_overlapping gives only pieces that overlap");
            inside.extent.sums = Vec::new();
            self.keep_outside(&piece, &range);
            self.after.insert(inside.first, inside);
        }
    }

    /// Puts a piece where whatever was there is cut out. Joins it with its neighbours if that makes a short piece.
    pub(crate) fn insert(&mut self, piece: Piece, blocks_max: u64) {
        self.cut(piece.first..piece.end());
        let limit = blocks_max.min(JOIN_BLOCKS_MAX);
        let mut piece = piece;
        if let Some((_, left)) = self.after.range(..piece.first).next_back()
            && left.continues_with(&piece)
            && left.count() + piece.count() <= limit
        {
            let key = left.first;
            let mut left = self.after.remove(&key).expect("found just now");
            left.extent.blocks.count += piece.count();
            left.extent.sums.append(&mut piece.extent.sums);
            piece = left;
        }
        if let Some(right) = self.after.get(&piece.end())
            && piece.continues_with(right)
            && piece.count() + right.count() <= limit
        {
            let key = right.first;
            let mut right = self.after.remove(&key).expect("found just now");
            piece.extent.blocks.count += right.count();
            piece.extent.sums.append(&mut right.extent.sums);
        }
        self.after.insert(piece.first, piece);
    }

    /// The parts of `range` that no piece covers.
    pub(crate) fn gaps(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        for piece in self.after.values().filter(|piece| piece.overlaps(&range)) {
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
        let (_, left) = self.after.range(..block).next_back()?;
        left.extent.blocks.end()
    }

    /// How many blocks the file gains (below zero: loses) by this change.
    pub(crate) fn blocks_added(&self) -> i64 {
        let sum = |map: &BTreeMap<u64, Piece>| map.values().map(Piece::count).sum::<u64>();
        sum(&self.after) as i64 - sum(&self.before) as i64
    }

    /// Adds to `batch` what makes the tree agree.
    pub(crate) fn plan(self, inode: InodeNo, batch: &mut Batch) {
        for first in self.gone() {
            batch.delete(extent_key(inode, first));
        }
        for piece in self.new_or_changed() {
            batch.put(piece.key(inode), piece.extent.encode());
        }
        for blocks in self.freed {
            batch.free(blocks);
        }
    }

    fn gone(&self) -> impl Iterator<Item = u64> {
        self.before.keys().copied().filter(|first| !self.after.contains_key(first))
    }

    fn new_or_changed(&self) -> impl Iterator<Item = &Piece> {
        self.after.values().filter(|piece| self.before.get(&piece.first) != Some(piece))
    }

    fn take_overlapping(&mut self, range: &Range<u64>) -> Vec<Piece> {
        if range.is_empty() {
            return Vec::new();
        }
        let from = match self.after.range(..=range.start).next_back() {
            Some((&first, _)) => first,
            None => range.start,
        };
        let keys: Vec<u64> = self
            .after
            .range(from..range.end)
            .filter(|(_, piece)| piece.overlaps(range))
            .map(|(&first, _)| first)
            .collect();
        keys.iter().filter_map(|first| self.after.remove(first)).collect()
    }

    fn keep_outside(&mut self, piece: &Piece, range: &Range<u64>) {
        for outside in [0..range.start, range.end..u64::MAX] {
            if let Some(rest) = piece.part(outside) {
                self.after.insert(rest.first, rest);
            }
        }
    }
}

#[cfg(test)]
#[path = "map_tests.rs"]
mod tests;
