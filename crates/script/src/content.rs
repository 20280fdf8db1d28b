//! The bytes of one file in the model: a size and the blocks that hold data.
//!
//! A block that was never written, or was punched or zeroed whole, is absent
//! and reads as zeros. Bytes beyond the size are always zero.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::bytes::{BLOCK, Digest};

/// The content of a file. Clones share their blocks.
#[derive(Clone, Debug, Default)]
pub struct Content {
    size: u64,
    blocks: BTreeMap<u64, Arc<Vec<u8>>>,
}

impl Content {
    /// Bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Writes at `offset`, growing the file if need be.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let start = (at % BLOCK) as usize;
            let count = (BLOCK as usize - start).min(bytes.len() - done);
            self.block(at / BLOCK)[start..start + count]
                .copy_from_slice(&bytes[done..done + count]);
            done += count;
        }
        if !bytes.is_empty() {
            self.size = self.size.max(offset + bytes.len() as u64);
        }
    }

    /// The bytes from `offset` on, at most `len`, fewer at the end.
    pub fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let len = len.min(self.size.saturating_sub(offset));
        let mut bytes = vec![0; len as usize];
        let last = (offset + len).div_ceil(BLOCK);
        for (&number, block) in self.blocks.range(offset / BLOCK..last.max(offset / BLOCK)) {
            let start = (number * BLOCK).max(offset);
            let end = ((number + 1) * BLOCK).min(offset + len);
            bytes[(start - offset) as usize..(end - offset) as usize].copy_from_slice(
                &block[(start - number * BLOCK) as usize..(end - number * BLOCK) as usize],
            );
        }
        bytes
    }

    /// Changes the size; what lies beyond is gone for good.
    pub fn truncate(&mut self, size: u64) {
        self.blocks.split_off(&size.div_ceil(BLOCK));
        if !size.is_multiple_of(BLOCK) && self.blocks.contains_key(&(size / BLOCK)) {
            self.block(size / BLOCK)[(size % BLOCK) as usize..].fill(0);
        }
        self.size = size;
    }

    /// Makes a range read as zeros: whole blocks become holes, parts of blocks that hold data are
    /// zeroed. The last block of the file counts as whole if the range reaches the end.
    pub fn zero(&mut self, offset: u64, len: u64) {
        let end = match offset + len {
            end if end >= self.size => end.next_multiple_of(BLOCK),
            end => end,
        };
        let touched: Vec<u64> = self
            .blocks
            .range(offset / BLOCK..end.div_ceil(BLOCK))
            .map(|(&number, _)| number)
            .collect();
        for number in touched {
            let base = number * BLOCK;
            let (from, to) = (offset.max(base) - base, end.min(base + BLOCK) - base);
            if to - from == BLOCK {
                self.blocks.remove(&number);
            } else {
                self.block(number)[from as usize..to as usize].fill(0);
            }
        }
    }

    /// Takes whole blocks out: what follows moves to their place.
    pub fn collapse(&mut self, offset: u64, len: u64) {
        let (first, count) = (offset / BLOCK, len / BLOCK);
        let mut behind = self.blocks.split_off(&first);
        let moved = behind.split_off(&(first + count));
        self.blocks.extend(moved.into_iter().map(|(number, block)| (number - count, block)));
        self.size -= len;
    }

    /// Puts a hole of whole blocks in: what was there moves behind it.
    pub fn insert(&mut self, offset: u64, len: u64) {
        let moved = self.blocks.split_off(&(offset / BLOCK));
        let count = len / BLOCK;
        self.blocks.extend(moved.into_iter().map(|(number, block)| (number + count, block)));
        self.size += len;
    }

    /// The first data at or after `offset`, if there is any before the end.
    pub fn next_data(&self, offset: u64) -> Option<u64> {
        let (&number, _) = self.blocks.range(offset / BLOCK..).next()?;
        Some((number * BLOCK).max(offset)).filter(|&at| at < self.size)
    }

    /// The first hole at or after `offset`; the end of the file is one.
    pub fn next_hole(&self, offset: u64) -> u64 {
        let mut at = offset;
        while at < self.size && self.blocks.contains_key(&(at / BLOCK)) {
            at = (at / BLOCK + 1) * BLOCK;
        }
        at.min(self.size)
    }

    /// The digest of everything.
    pub fn digest(&self) -> Digest {
        let mut digest = Digest::default();
        for (&number, block) in &self.blocks {
            digest.add(number * BLOCK, block);
        }
        digest
    }

    fn block(&mut self, number: u64) -> &mut Vec<u8> {
        Arc::make_mut(
            self.blocks.entry(number).or_insert_with(|| Arc::new(vec![0; BLOCK as usize])),
        )
    }
}
