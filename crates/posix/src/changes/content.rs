//! Which bytes of a file differ between two trees.
//!
//! Extents that differ come upwards, those of both trees beside each other. Two parts are the same if they lie on the same
//! blocks: a block that two trees reach is written alike in both (S2). Of other blocks the checksums are compared; where those
//! are equal the data is read, since the writer of a file can choose its checksums. So a file whose bytes were written anew and
//! are the same has not changed. Reserved blocks and holes read as zeros.
//!
//! Of each tree the rest of one extent is in memory.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use std::ops::Range;
use std::sync::LazyLock;

use holdfast_base::BLOCK_SIZE;
use holdfast_base::units::{BLOCK_BYTES, blocks_for};
use holdfast_format::checksum::block_sum;
use holdfast_format::item::PunchItem;
use holdfast_store::Store;

use crate::file::map::Piece;

/// Blocks that are read at once.
const READ_BLOCKS: u64 = 64;

/// The checksum of a block of zeros.
static ZEROS: LazyLock<u64> = LazyLock::new(|| block_sum(&[0; BLOCK_SIZE]));

/// What is known of a file's content so far.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// Whether all ranges are wanted, or one is enough.
    all: bool,
    /// Bytes that both versions have. What lies behind differs, and is not compared.
    common: u64,
    /// The rests of the last extents.
    old: Option<Piece>,
    new: Option<Piece>,
    /// Whole contents of small files.
    pub(super) old_inline: Option<Vec<u8>>,
    pub(super) new_inline: Option<Vec<u8>>,
    /// Whether the first block was compared.
    has_first: bool,
    /// Bytes, upwards.
    ranges: Vec<Range<u64>>,
}

impl Content {
    /// Nothing is known yet. `all`: all ranges are wanted. `common`: the size of the shorter version.
    pub(super) fn new(all: bool, common: u64) -> Content {
        Content { all, common, ..Content::default() }
    }

    /// Takes parts of extents up, none of which lies before what came already. `false`: they overlap others, as in no sound tree.
    pub(super) fn add(&mut self, store: &Store, old: Option<Piece>, new: Option<Piece>) -> bool {
        let begins = [&old, &new].into_iter().flatten().map(|piece| piece.first).min();
        let Some(begins) = begins else { return true };
        self.settle(store, begins);
        let overlap = old.is_some() && self.old.is_some() || new.is_some() && self.new.is_some();
        self.old = old.or(self.old.take());
        self.new = new.or(self.new.take());
        !overlap
    }

    /// Compares what lies before a block of the file.
    fn settle(&mut self, store: &Store, limit: u64) {
        loop {
            let both = [&self.old, &self.new];
            let begins = both.into_iter().flatten().map(|piece| piece.first).min();
            let Some(begin) = begins.filter(|begin| *begin < limit) else { return };
            let edge = |piece: &Piece| if piece.first > begin { piece.first } else { piece.end() };
            let end = both.into_iter().flatten().map(edge).min().unwrap_or(limit).min(limit);
            let old = self.old.as_ref().and_then(|piece| piece.part(begin..end));
            let new = self.new.as_ref().and_then(|piece| piece.part(begin..end));
            if self.all || self.ranges.is_empty() {
                self.compare(store, begin..end, old.as_ref(), new.as_ref());
            }
            self.old = self.old.take().and_then(|piece| piece.part(end..u64::MAX));
            self.new = self.new.take().and_then(|piece| piece.part(end..u64::MAX));
        }
    }

    /// Compares a range that one part or a hole covers in each tree.
    fn compare(
        &mut self,
        store: &Store,
        mut range: Range<u64>,
        old: Option<&Piece>,
        new: Option<&Piece>,
    ) {
        range.end = range.end.min(blocks_for(self.common));
        if range.is_empty() {
            return;
        }
        if range.start == 0 && self.is_mixed() {
            self.compare_first(store, old, new);
            range.start = 1;
        }
        let written = |piece: Option<&Piece>| piece.filter(|it| it.extent.is_written()).cloned();
        let (old, new) = (written(old), written(new));
        let is_same = match (&old, &new) {
            (None, None) => true,
            (Some(old), Some(new)) => old.extent.blocks == new.extent.blocks,
            _ => false,
        };
        let mut at = range.start;
        while !is_same && at < range.end {
            let end = range.end.min(at.saturating_add(READ_BLOCKS));
            let part = |piece: &Option<Piece>| piece.as_ref().and_then(|of| of.part(at..end));
            self.compare_blocks(store, at, end, part(&old), part(&new));
            at = end;
        }
    }

    /// Whether the file is small in one tree only: then its bytes there are those of its first block.
    fn is_mixed(&self) -> bool {
        self.old_inline.is_some() != self.new_inline.is_some()
    }

    /// Compares the first block of a file that is small in one tree only.
    fn compare_first(&mut self, store: &Store, old: Option<&Piece>, new: Option<&Piece>) {
        self.has_first = true;
        let bytes = |inline: &Option<Vec<u8>>, piece: Option<&Piece>| match inline {
            Some(bytes) => {
                let mut block = bytes.clone();
                block.resize(BLOCK_SIZE, 0);
                Some(block)
            }
            None => {
                let written = piece.filter(|piece| piece.extent.is_written());
                bytes_of(store, &written.and_then(|piece| piece.part(0..1)), 1)
            }
        };
        let (old, new) = (bytes(&self.old_inline, old), bytes(&self.new_inline, new));
        if !same_bytes(old.as_deref(), new.as_deref(), 0..self.bytes_of_block(0)) {
            self.differs(0..BLOCK_BYTES);
        }
    }

    /// Compares some blocks by their checksums, and by their bytes where those are equal.
    fn compare_blocks(
        &mut self,
        store: &Store,
        at: u64,
        end: u64,
        old: Option<Piece>,
        new: Option<Piece>,
    ) {
        let mut read = None;
        for (index, block) in (at..end).enumerate() {
            let sum = |of: &Option<Piece>| match of {
                Some(piece) => piece.extent.sums.get(index).copied().unwrap_or(*ZEROS),
                None => *ZEROS,
            };
            // Behind the end of a file its last block may hold anything.
            let bytes = self.bytes_of_block(block);
            let may_be_same = sum(&old) == sum(&new) || bytes < BLOCK_SIZE;
            let is_same = may_be_same && {
                let (old, new) = &*read.get_or_insert_with(|| {
                    let bytes =
                        |piece: &Option<Piece>| bytes_of(store, piece, end.saturating_sub(at));
                    (bytes(&old), bytes(&new))
                });
                let start = index.saturating_mul(BLOCK_SIZE);
                same_bytes(old.as_deref(), new.as_deref(), start..start.saturating_add(bytes))
            };
            if !is_same {
                let first = block.saturating_mul(BLOCK_BYTES);
                self.differs(first..first.saturating_add(BLOCK_BYTES));
            }
        }
    }

    /// How many bytes of a block both versions have.
    fn bytes_of_block(&self, block: u64) -> usize {
        let behind = self.common.saturating_sub(block.saturating_mul(BLOCK_BYTES));
        behind.min(BLOCK_BYTES) as usize
    }

    /// A range of bytes differs, which does not begin before others.
    fn differs(&mut self, range: Range<u64>) {
        match self.ranges.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => self.ranges.push(range),
        }
    }

    /// The ranges that differ, of a file of these sizes. `punched`: ranges that are about to become holes in one tree only.
    pub(super) fn finish(
        mut self,
        store: &Store,
        sizes: (u64, u64),
        punched: &[PunchItem],
    ) -> Vec<Range<u64>> {
        self.settle(store, u64::MAX);
        if self.is_mixed() && !self.has_first {
            self.compare_first(store, None, None);
        }
        let size = sizes.0.max(sizes.1);
        let mut ranges = std::mem::take(&mut self.ranges);
        for punch in punched {
            let bytes = |block: u64| block.saturating_mul(BLOCK_BYTES);
            ranges.push(bytes(punch.first)..bytes(punch.end));
        }
        ranges.push(sizes.0.min(sizes.1)..size);
        if let (Some(old), Some(new)) = (&self.old_inline, &self.new_inline) {
            ranges.extend(inline_range(old, new));
        }
        ranges.sort_unstable_by_key(|range| range.start);
        for range in ranges {
            let range = range.start..range.end.min(size);
            if !range.is_empty() {
                self.differs(range);
            }
        }
        self.ranges
    }
}

/// Which bytes of contents differ that both lie in the tree.
fn inline_range(old: &[u8], new: &[u8]) -> Option<Range<u64>> {
    let mut differing =
        old.iter().zip(new).enumerate().filter(|(_, (old, new))| old != new).map(|(at, _)| at);
    let first = differing.next()? as u64;
    let last = differing.next_back().map_or(first, |at| at as u64);
    Some(first..last.saturating_add(1))
}

/// Whether a range of bytes is the same. What cannot be read is not known to be.
fn same_bytes(old: Option<&[u8]>, new: Option<&[u8]>, range: Range<usize>) -> bool {
    match (old.and_then(|old| old.get(range.clone())), new.and_then(|new| new.get(range))) {
        (Some(old), Some(new)) => old == new,
        _ => false,
    }
}

/// What the blocks of a part hold; without one, zeros. `None`: they cannot be read.
fn bytes_of(store: &Store, piece: &Option<Piece>, blocks: u64) -> Option<Vec<u8>> {
    let bytes = usize::try_from(blocks.checked_mul(BLOCK_BYTES)?).ok()?;
    let mut read = vec![0; bytes];
    if let Some(piece) = piece {
        store.read(piece.extent.blocks, read.get_mut(..)?).ok()?;
    }
    Some(read)
}
