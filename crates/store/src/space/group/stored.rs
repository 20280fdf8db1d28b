//! A group as the space tree has it: its record and the pieces of its bitmap, and when it may leave memory for them.

use holdfast_base::switch::Accounting;
use holdfast_format::Geometry;
use holdfast_format::item::GroupItem;
use holdfast_format::limits::{BITMAP_BYTES, BITMAPS_PER_GROUP};

use super::{Group, WORDS, WORDS_PER_PIECE};
use crate::space::record::{Record, Step};
use crate::space::unbacked::{PIECE_BLOCKS, PIECES_PER_GROUP};

impl Group {
    /// Fills in a piece of the bitmap that was read from the tree. Fails on blocks outside the data zone.
    pub(in crate::space) fn load_piece(
        &mut self,
        piece: u64,
        bytes: &[u8; BITMAP_BYTES],
    ) -> Result<(), ()> {
        let first = piece as usize * WORDS_PER_PIECE;
        for (word, bytes) in (first..).zip(bytes.as_chunks::<8>().0) {
            let used = u64::from_le_bytes(*bytes);
            if used & self.busy[word] != 0 {
                return Err(());
            }
            self.used[word] = used;
            self.set_busy(word, self.busy[word] | used);
            self.free_blocks -= u64::from(used.count_ones());
            self.used_blocks += u64::from(used.count_ones());
        }
        Ok(())
    }

    /// What must be done so that the tree holds the present record.
    pub(crate) fn step(&self, geometry: &Geometry, accounting: Accounting) -> Step {
        let before = match &self.record {
            Record::InTree(item) => Some(item),
            _ => None,
        };
        let free_slots = geometry.free_slots_of_group(self.index(), &self.used[..]);
        let now = GroupItem::bounded(self.used_blocks, self.node_blocks, free_slots, before);
        self.record.step(now, accounting)
    }

    /// The dirty pieces with their bytes; `None` for one that is all zero. They are clean afterwards.
    pub(crate) fn take_dirty(&mut self) -> Vec<(u64, Option<[u8; BITMAP_BYTES]>)> {
        let dirty = std::mem::take(&mut self.dirty_pieces);
        (0..BITMAPS_PER_GROUP)
            .filter(|piece| dirty & (1 << piece) != 0)
            .map(|piece| {
                let first = piece as usize * WORDS_PER_PIECE;
                let words = &self.used[first..first + WORDS_PER_PIECE];
                if words.iter().all(|word| *word == 0) {
                    return (piece, None);
                }
                let mut bytes = [0; BITMAP_BYTES];
                for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
                    chunk.copy_from_slice(&word.to_le_bytes());
                }
                (piece, Some(bytes))
            })
            .collect()
    }

    /// Pieces that differ from the tree.
    pub(crate) fn dirty_pieces(&self) -> impl Iterator<Item = u64> {
        let dirty = self.dirty_pieces;
        (0..BITMAPS_PER_GROUP).filter(move |piece| dirty & (1 << piece) != 0)
    }

    /// The record that the tree has. `None`: there is none, as nothing is in use.
    pub(in crate::space) fn stored(&self) -> Option<GroupItem> {
        match self.record {
            Record::InTree(item) => Some(item),
            Record::Absent | Record::Writing => None,
        }
    }

    /// Of a group of so many blocks that the tree has as it is, and of which no block is on its way: the pieces in which all
    /// that is free is unbacked. `None` if it is not so, or something is unbacked beside something free.
    pub(in crate::space) fn unbacked_at_rest(&self, blocks: u64) -> Option<u32> {
        if self.listed || self.dirty_pieces != 0 {
            return None;
        }
        let Some(unbacked) = &self.unbacked else {
            return (self.used_blocks + self.free_blocks == blocks).then_some(0);
        };
        let words_per_piece = (PIECE_BLOCKS / 64) as usize;
        let (mut pieces, mut count) = (0, 0);
        for piece in 0..PIECES_PER_GROUP as usize {
            let words = piece * words_per_piece..(piece + 1) * words_per_piece;
            let of_piece: u32 = words.clone().map(|word| unbacked[word].count_ones()).sum();
            if of_piece == 0 {
                continue;
            }
            if words.clone().any(|word| !self.busy[word] != 0) {
                return None;
            }
            (pieces, count) = (pieces | 1 << piece, count + u64::from(of_piece));
        }
        (self.used_blocks + self.free_blocks + count == blocks).then_some(pieces)
    }

    /// Hides what is free in these pieces.
    pub(in crate::space) fn hide_pieces(&mut self, pieces: u32) {
        for piece in (0..PIECES_PER_GROUP).filter(|piece| pieces >> piece & 1 == 1) {
            self.hide_run(super::Run { at: piece * PIECE_BLOCKS, len: PIECE_BLOCKS });
        }
    }

    /// Whether anything of a piece is unbacked.
    pub(in crate::space) fn has_unbacked_piece(&self, piece: u64) -> bool {
        let first = (piece * PIECE_BLOCKS / 64) as usize;
        let words = first..first + (PIECE_BLOCKS / 64) as usize;
        self.unbacked.as_ref().is_some_and(|unbacked| unbacked[words].iter().any(|word| *word != 0))
    }

    fn index(&self) -> u64 {
        self.start / (WORDS as u64 * 64)
    }
}
