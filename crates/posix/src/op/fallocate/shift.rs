//! A range that is taken out of a file, or put in: what lies behind it moves, without being written anew.
//!
//! One step of history, whatever moves: one transaction deletes the extents where they were and puts them where they are. Three things
//! come before it, none of which changes what is read: what is delayed goes to the tree; what an interrupted truncate has
//! left behind the end goes; and blocks that a snapshot has as well get a copy of the branch's own, because all that looks at
//! two trees side by side knows a block by its place in the file. The log cannot say that a block has moved, so the call ends with a
//! commit.

use std::ops::{ControlFlow, Range};

use holdfast_base::mutants::{self, Mutant};
use holdfast_base::units::{BLOCK_BYTES, BLOCK_SIZE};
use holdfast_base::{BlockNo, BlockRange};
use holdfast_format::limits::FILE_SIZE_MAX;
use holdfast_store::page::Page;
use holdfast_store::{Need, Transaction};

use super::{Last, Task};
use crate::allow::Deed;
use crate::data::grow::{clean_tail_locked, make_dirty};
use crate::data::view::{FetchError, clipped, damaged, fetch, load_block};
use crate::data::writeback::write_back_locked;
use crate::file::inline;
use crate::file::lookup::{FILE_BLOCKS_MAX, each_piece};
use crate::file::map::{Piece, owns};
use crate::file_data::MapGuard;
use crate::*;

/// Extents that one step moves at most: 4 GiB of data that lies in one piece. They and the leaves they leave and go to are
/// changed at once, in memory.
const EXTENTS_MAX: usize = if cfg!(test) { 256 } else { 16384 };
/// Blocks that are copied at a time where a snapshot has them as well.
const COPY_BLOCKS: u64 = 1024;
/// Changes for which nodes are promised before the step. Extents of one file lie side by side, so that most share a leaf; when the step is
/// made, the nodes are counted that it really needs.
const CHANGES_PROMISED: u32 = 64;

/// Which way what lies behind the range goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shift {
    /// The range goes.
    Collapse,
    /// A hole comes.
    Insert,
}

impl FileSystem {
    /// Takes a range out of a file, or puts a hole in, as one step that is durable when this returns.
    pub(super) fn shift(
        &self,
        file: &OpenFile,
        flags: FallocateFlags,
        range: Range<u64>,
    ) -> Result<()> {
        let way = match flags {
            FallocateFlags::COLLAPSE_RANGE => Shift::Collapse,
            FallocateFlags::INSERT_RANGE => Shift::Insert,
            _ => {
                return Err(FsError::Invalid("a range is collapsed or inserted, and nothing else"));
            }
        };
        if !range.start.is_multiple_of(BLOCK_BYTES) || !range.end.is_multiple_of(BLOCK_BYTES) {
            return Err(FsError::Invalid("the range is not one of whole blocks"));
        }
        {
            let _inside = self.core.gate.enter();
            let task = Task {
                core: &self.core,
                inode: &file.inode,
                _writer: file.inode.data.lock_writer(),
                range,
                now: holdfast_base::Timestamp::now(),
            };
            task.expect_changeable(Deed::Changes)?;
            self.core.with_room(|| task.shift(way))?;
        }
        if mutants::is(Mutant::MoveLogged) {
            return Ok(());
        }
        Ok(self.core.store.commit()?)
    }
}

impl Task<'_> {
    fn shift(&self, way: Shift) -> Result<()> {
        let (core, inode) = (self.core, self.inode);
        let size = self.size();
        let Range { start, end } = self.range;
        let new_size = match way {
            Shift::Collapse if end >= size => {
                return Err(FsError::Invalid("the range reaches the end of the file: truncate it"));
            }
            Shift::Collapse => size - (end - start),
            Shift::Insert if start >= size => {
                return Err(FsError::Invalid("nothing lies behind the range: truncate to grow"));
            }
            Shift::Insert => match size.checked_add(end - start) {
                Some(size) if size <= FILE_SIZE_MAX => size,
                _ => return Err(FsError::FileTooLarge),
            },
        };
        if inode.lost.first().is_some() {
            // They are remembered by their place, until a program writes them there again.
            let why = "some bytes of the file were lost, and have to be written again before it is shifted";
            return Err(FsError::Io(why.into()));
        }
        let map = inode.data.lock_map();
        // Extents are to move, so there must be some.
        if inline::may_exist(core, &inode.state.read().disk)
            && !inode.data.lock_content().pages.is_dirty(0)
            && let Some(page) = load_block(core, inode, 0)?
        {
            make_dirty(core, inode, vec![(0, page)])?;
        }
        write_back_locked(core, inode, &map, 0..u64::MAX, false)?;
        clean_tail_locked(core, inode, &map)?;
        let blocks = start / BLOCK_BYTES..end / BLOCK_BYTES;
        let from = if way == Shift::Collapse { blocks.end } else { blocks.start };
        // Before anything is copied: what cannot be moved shall cost nothing.
        self.behind(&blocks, way)?;
        self.own(&map, from)?;
        // Copies may lie in more pieces than what they are of.
        let pieces = self.behind(&blocks, way)?;
        let parent = core.store.parent_epoch();
        let is_lent = |of: &Piece| of.end() > from && !owns(parent, of.extent.birth);
        if pieces.iter().any(is_lent) {
            // Copies were given up, and a program that asks for its data hears of it.
            return Err(FsError::Io("what a snapshot has as well could not be copied".into()));
        }
        let mut edit = core.edit(pieces);
        let by = (blocks.end - blocks.start).cast_signed();
        match way {
            Shift::Collapse => {
                edit.cut(blocks.clone());
                edit.shift(from, -by);
            }
            Shift::Insert => edit.shift(from, by),
        }
        let added = edit.blocks_added();
        let mut transaction = Transaction::new();
        edit.plan(inode.no, &mut transaction);
        if !transaction.is_empty() {
            transaction.moves_blocks();
        }
        let changes = transaction.changes().min(CHANGES_PROMISED) + 1;
        let mut reservation = match way {
            // It makes room (P8).
            Shift::Collapse => core.reserve_last(Need::Shrink { changes })?,
            Shift::Insert => core.store.reserve(Need::Change { changes, blocks: 0 })?,
        };
        // The last block that was written is elsewhere now.
        inode.data.ends_at(0, BlockNo(0));
        let last = Last { new_size: Some(new_size), punch: None };
        self.publish(&map, transaction, &mut reservation, added, Some(last))
    }

    /// All pieces that have blocks in the range or behind it.
    fn behind(&self, blocks: &Range<u64>, way: Shift) -> Result<Vec<Piece>> {
        let mut pieces: Vec<Piece> = Vec::new();
        each_piece(self.core, self.inode.no, blocks.start, |piece| {
            pieces.push(piece.clone());
            match pieces.len() > EXTENTS_MAX {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        let room = FILE_BLOCKS_MAX - (blocks.end - blocks.start);
        let is_beyond = way == Shift::Insert && pieces.last().is_some_and(|last| last.end() > room);
        match pieces.len() > EXTENTS_MAX || is_beyond {
            true => Err(FsError::FileTooLarge),
            false => Ok(pieces),
        }
    }

    /// Gives the branch blocks of its own from block `from` on where a snapshot has them as well: data is copied, what is reserved is
    /// reserved elsewhere. Nothing that can be read changes.
    fn own(&self, map: &MapGuard<'_>, from: u64) -> Result<()> {
        let (core, inode) = (self.core, self.inode);
        let parent = core.store.parent_epoch();
        let mut at = from;
        loop {
            let mut lent = None;
            each_piece(core, inode.no, at, |piece| {
                let is_own = owns(parent, piece.extent.birth);
                lent = piece.part(at..u64::MAX).filter(|_| !is_own);
                match lent {
                    Some(_) => ControlFlow::Break(()),
                    None => ControlFlow::Continue(()),
                }
            })?;
            let Some(piece) = lent else { return Ok(()) };
            at = piece.end();
            if !piece.extent.is_written() {
                let need = Need::Change { changes: 0, blocks: piece.count() };
                let mut reservation = core.store.reserve(need)?;
                self.reserve_gaps(map, &(piece.first..piece.end()), &mut reservation, None)?;
                continue;
            }
            at = at.min(piece.first + COPY_BLOCKS);
            self.copy(map, &piece, at)?;
        }
    }

    /// Writes the blocks of a piece up to block `end` of the file to new places.
    fn copy(&self, map: &MapGuard<'_>, piece: &Piece, end: u64) -> Result<()> {
        let (core, inode) = (self.core, self.inode);
        let count = end - piece.first;
        let blocks = BlockRange::new(piece.extent.blocks.start, count);
        let sums = &piece.extent.sums[..count as usize];
        let mut bytes = vec![0; count as usize * BLOCK_SIZE];
        fetch(core, blocks, sums, &mut bytes).map_err(|error| match error {
            FetchError::Sum(at) => damaged(core, inode, piece.first + at, blocks.start.0 + at),
            FetchError::Other(error) => error,
        })?;
        let size = self.size();
        let pages = bytes.chunks_exact(BLOCK_SIZE).zip(piece.first..);
        let pages = pages.map(|(bytes, block)| (block, clipped(Page::with(0, bytes), block, size)));
        make_dirty(core, inode, pages.collect())?;
        write_back_locked(core, inode, map, piece.first..end, false)
    }
}
