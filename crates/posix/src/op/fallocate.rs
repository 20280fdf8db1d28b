//! Space ahead of data, holes, zeros.
//!
//! Whole blocks are changed in the map at once, after everything delayed has
//! been settled; the partly covered blocks at the two ends are ordinary writes
//! of zeros before that.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use holdfast_base::Timestamp;
use holdfast_base::units::{BLOCK_BYTES, align_down, blocks_for};
use holdfast_format::limits::FILE_SIZE_MAX;
use holdfast_store::{Batch, Need, Reservation, StoreError};

use crate::core::Core;
use crate::data::accept::zero_part;
use crate::data::dirty::{MapGuard, WriterGuard};
use crate::data::grow::{clean_tail_locked, make_dirty, pages_before_growth};
use crate::data::ordered::publish;
use crate::data::view::load_block;
use crate::data::writeback::settle_locked;
use crate::file::inline;
use crate::file::lookup::each_piece;
use crate::file::map::{MapEdit, Piece};
use crate::inode::Inode;
use crate::*;

/// Extents that one batch changes.
const BATCH_EXTENTS: usize = 16;
/// Most blocks of an extent that is allocated and not written: it carries no checksums, so only a
/// block group limits it.
const UNWRITTEN_BLOCKS_MAX: u64 = holdfast_format::limits::GROUP_BLOCKS;

impl FileSystem {
    /// Allocates, punches or zeroes a range, as `flags` say.
    ///
    /// Allocation is decided as a whole: without space for all of it nothing is allocated. Data written
    /// later goes to new blocks and gives these back, so only space for the final file is assured.
    pub fn fallocate(
        &self,
        file: &OpenFile,
        flags: FallocateFlags,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        if !file.flags.contains(OpenFlags::WRITE) {
            return Err(FsError::BadHandle);
        }
        if self.core.options.read_only {
            return Err(StoreError::ReadOnly.into());
        }
        if len == 0 {
            return Err(FsError::Invalid("fallocate of no bytes"));
        }
        let end = match offset.checked_add(len) {
            Some(end) if end <= FILE_SIZE_MAX => end,
            _ => return Err(FsError::FileTooLarge),
        };
        let punch = flags.contains(FallocateFlags::PUNCH_HOLE);
        let zero = flags.contains(FallocateFlags::ZERO_RANGE);
        let keep_size = flags.contains(FallocateFlags::KEEP_SIZE);
        if punch && (zero || !keep_size) {
            return Err(FsError::NotSupported);
        }
        let task = Task {
            core: &self.core,
            inode: &file.inode,
            writer: file.inode.data.lock_writer(),
            range: offset..end,
            now: Timestamp::now(),
        };
        match (punch, zero) {
            (true, _) => task.punch(),
            (_, true) => task.fill(keep_size, true),
            _ => task.fill(keep_size, false),
        }
    }
}

struct Task<'a> {
    core: &'a Core,
    inode: &'a Arc<Inode>,
    writer: WriterGuard<'a>,
    range: Range<u64>,
    now: Timestamp,
}

impl Task<'_> {
    fn size(&self) -> u64 {
        self.inode.state.read().attr.size
    }

    /// The blocks that lose all their bytes. What lies behind the end of the file counts as covered.
    fn whole_blocks(&self) -> Range<u64> {
        let first = blocks_for(self.range.start);
        let end = match self.range.end >= self.size() {
            true => blocks_for(self.range.end),
            false => self.range.end / BLOCK_BYTES,
        };
        first..end.max(first)
    }

    /// Writes zeros over the partly covered blocks at both ends.
    fn zero_edges(&self) -> Result<()> {
        let Range { start, end } = self.range;
        let head_end = end.min(align_down(start) + BLOCK_BYTES);
        if !start.is_multiple_of(BLOCK_BYTES) {
            zero_part(self.core, self.inode, &self.writer, start..head_end, self.now)?;
        }
        let tail_start = align_down(end);
        if tail_start < end && (tail_start >= head_end || start.is_multiple_of(BLOCK_BYTES)) {
            zero_part(self.core, self.inode, &self.writer, tail_start..end, self.now)?;
        }
        Ok(())
    }

    fn punch(&self) -> Result<()> {
        let (core, inode) = (self.core, self.inode);
        let size = self.size();
        if size <= core.store.value_max() as u64 && self.range.start < size {
            // It may be inline: zeros in its only block do.
            let end = self.range.end.min(size);
            zero_part(core, inode, &self.writer, self.range.start..end, self.now)?;
        } else {
            self.zero_edges()?;
        }
        let blocks = self.whole_blocks();
        let map = inode.data.lock_map();
        settle_locked(core, inode, &map, 0..u64::MAX, true)?;
        let mut at = blocks.start;
        loop {
            let (pieces, end) = self.window(at..blocks.end)?;
            let mut edit = MapEdit::new(pieces);
            edit.cut(at..end);
            let removed = edit.blocks_added();
            let mut batch = Batch::new();
            edit.plan(inode.no, &mut batch);
            let mut reservation =
                core.reserve_last(Need::Shrink { changes: batch.changes() + 1 })?;
            self.publish(&map, batch, &mut reservation, removed, None)?;
            at = end;
            if at >= blocks.end {
                return Ok(());
            }
        }
    }

    /// Allocates what has no blocks; with `zero` it also makes zeros of what has.
    fn fill(&self, keep_size: bool, zero: bool) -> Result<()> {
        if zero {
            self.core.with_room(|| self.find_room())?;
            self.zero_edges()?;
        }
        self.core.with_room(|| self.fill_blocks(keep_size, zero))
    }

    /// Fails if the whole range with its two edges does not fit now: before a byte is changed (P8).
    fn find_room(&self) -> Result<()> {
        let map = self.inode.data.lock_map();
        settle_locked(self.core, self.inode, &map, 0..u64::MAX, false)?;
        let blocks = self.range.start / BLOCK_BYTES..blocks_for(self.range.end);
        let blocks = self.missing(&blocks)? + 2;
        drop(self.core.store.reserve(Need::Grow { changes: 2, blocks })?);
        Ok(())
    }

    fn fill_blocks(&self, keep_size: bool, zero: bool) -> Result<()> {
        let (core, inode) = (self.core, self.inode);
        let map = inode.data.lock_map();
        let size = self.size();
        let new_size = (!keep_size && self.range.end > size).then_some(self.range.end);
        if let Some(new_size) = new_size {
            clean_tail_locked(core, inode, &map)?;
            let after = new_size / BLOCK_BYTES + 1;
            make_dirty(core, inode, pages_before_growth(core, inode, size, new_size, after)?)?;
        }
        // Extents and inline content do not go together.
        if inline::may_exist(core, &inode.state.read().disk)
            && !inode.data.lock_content().pages.is_dirty(0)
            && let Some(page) = load_block(core, inode, 0)?
        {
            make_dirty(core, inode, vec![(0, page)])?;
        }
        settle_locked(core, inode, &map, 0..u64::MAX, false)?;

        let unwritten = zero.then(|| self.whole_blocks());
        let blocks = self.range.start / BLOCK_BYTES..blocks_for(self.range.end);
        let mut reservation =
            core.store.reserve(Need::Grow { changes: 2, blocks: self.missing(&blocks)? })?;
        let mut at = blocks.start;
        while at < blocks.end {
            let (pieces, window_end) = self.window(at..blocks.end)?;
            let mut edit = MapEdit::new(pieces);
            let mut batch = Batch::new();
            let end = self.allocate(&mut edit, at..window_end, &mut reservation, &mut batch)?;
            if let Some(unwritten) = &unwritten {
                edit.unwrite(unwritten.start.max(at)..unwritten.end.min(end));
            }
            let added = edit.blocks_added();
            edit.plan(inode.no, &mut batch);
            let mut changes = core.store.reserve(Need::Settle { changes: batch.changes() + 1 })?;
            let new_size = new_size.filter(|_| end >= blocks.end);
            self.publish(&map, batch, &mut changes, added, new_size)?;
            at = end;
        }
        Ok(())
    }

    /// Fills gaps from the start of `range` on with unwritten extents; returns how far it came.
    fn allocate(
        &self,
        edit: &mut MapEdit,
        range: Range<u64>,
        reservation: &mut Reservation,
        batch: &mut Batch,
    ) -> Result<u64> {
        let mut made = 0;
        for gap in edit.gaps(range.clone()) {
            let mut first = gap.start;
            while first < gap.end {
                if made == BATCH_EXTENTS {
                    return Ok(first);
                }
                let want = (gap.end - first).min(UNWRITTEN_BLOCKS_MAX);
                let placed = self.core.allocate(reservation, want, edit.goal(first))?;
                let extent = batch.publish_unwritten(placed);
                let piece = Piece { first, extent };
                first = piece.end();
                edit.insert(piece, UNWRITTEN_BLOCKS_MAX);
                made += 1;
            }
        }
        Ok(range.end)
    }

    /// Some pieces from the front of `range`, and the end of the part of it that they describe.
    fn window(&self, range: Range<u64>) -> Result<(Vec<Piece>, u64)> {
        let mut pieces = Vec::new();
        let mut end = range.end;
        if range.is_empty() {
            return Ok((pieces, end));
        }
        each_piece(self.core, self.inode.no, range.start, |piece| {
            if piece.first >= range.end {
                return ControlFlow::Break(());
            }
            if pieces.len() == BATCH_EXTENTS {
                end = piece.first;
                return ControlFlow::Break(());
            }
            pieces.push(piece.clone());
            ControlFlow::Continue(())
        })?;
        Ok((pieces, end))
    }

    /// Blocks of `range` that no extent covers.
    fn missing(&self, range: &Range<u64>) -> Result<u64> {
        let mut missing = range.end - range.start;
        each_piece(self.core, self.inode.no, range.start, |piece| {
            if piece.first >= range.end {
                return ControlFlow::Break(());
            }
            missing -= piece.part(range.clone()).map_or(0, |part| part.count());
            ControlFlow::Continue(())
        })?;
        Ok(missing)
    }

    fn publish(
        &self,
        map: &MapGuard<'_>,
        batch: Batch,
        reservation: &mut Reservation,
        blocks_added: i64,
        new_size: Option<u64>,
    ) -> Result<()> {
        let now = self.now;
        publish(
            self.core,
            self.inode,
            map,
            batch,
            reservation,
            |_, item| {
                item.blocks = item.blocks.saturating_add_signed(blocks_added);
                item.size = new_size.unwrap_or(item.size);
                (item.mtime, item.ctime) = (now, now);
            },
            |state, _| {
                state.attr.size = new_size.unwrap_or(state.attr.size);
                (state.attr.mtime, state.attr.ctime) = (now, now);
            },
        )?;
        Ok(())
    }
}
