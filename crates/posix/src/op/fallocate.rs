//! Space ahead of data, holes, zeros; in `shift`, ranges that are taken out or put in.
//!
//! Everything delayed is written back first, so that the call stands behind it in
//! history. Then a range becomes zeros in one step, its partly covered blocks
//! included: these are written to new places before, like any data.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use holdfast_base::Timestamp;
use holdfast_base::units::{BLOCK_BYTES, blocks_for};
use holdfast_format::Key;
use holdfast_format::item::PunchItem;
use holdfast_format::limits::FILE_SIZE_MAX;
use holdfast_store::page::Page;
use holdfast_store::{Need, Reservation, StoreError, Transaction};

use crate::allow::Deed;
use crate::core::Core;
use crate::data::grow::{clean_tail_locked, make_dirty, pages_before_growth};
use crate::data::place::{Item, write_all};
use crate::data::publish::publish;
use crate::data::punch;
use crate::data::view::{clipped, load_block, load_raw_block};
use crate::data::writeback::write_back_locked;
use crate::delayed::ordered::OrderedExtent;
use crate::file::inline;
use crate::file::lookup::{each_piece, merge, pieces};
use crate::file::map::{MapEdit, Piece, owns};
use crate::file_data::{MapGuard, WriterGuard};
use crate::inode::Inode;
use crate::*;

mod shift;

/// Extents that one transaction allocates.
const BATCH_EXTENTS: usize = 16;
/// Most blocks of an extent that is allocated and not written: it carries no checksums, so only a
/// block group limits it.
const UNWRITTEN_BLOCKS_MAX: u64 = holdfast_format::limits::GROUP_BLOCKS;

impl FileSystem {
    /// Allocates, punches, zeroes, collapses or inserts a range, as `flags` say.
    ///
    /// Allocation is decided as a whole: without space for all of it nothing is allocated. What is allocated can be
    /// written once, also when nothing else is free.
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
        if flags.intersects(FallocateFlags::COLLAPSE_RANGE | FallocateFlags::INSERT_RANGE) {
            return self.shift(file, flags, offset..end);
        }
        let punch = flags.contains(FallocateFlags::PUNCH_HOLE);
        let zero = flags.contains(FallocateFlags::ZERO_RANGE);
        let keep_size = flags.contains(FallocateFlags::KEEP_SIZE);
        if punch && (zero || !keep_size) {
            return Err(FsError::NotSupported);
        }
        let _inside = self.core.gate.enter();
        let task = Task {
            core: &self.core,
            inode: &file.inode,
            _writer: file.inode.data.lock_writer(),
            range: offset..end,
            now: Timestamp::now(),
        };
        task.expect_changeable(Deed::adding(!punch && !zero))?;
        self.core.with_room(|| match (punch, zero) {
            (true, _) => task.punch(),
            (_, zero) => task.fill(keep_size, zero),
        })?;
        if punch || zero {
            file.inode.lost.forget(offset..end);
        }
        Ok(())
    }
}

/// Blocks that a range needs.
struct Missing {
    /// Where the file has none.
    none: u64,
    /// In place of those that a snapshot has as well.
    shared: u64,
}

/// What the last step of a call changes besides the map.
#[derive(Clone, Copy)]
struct Last {
    new_size: Option<u64>,
    /// The range reads as zeros from now on.
    punch: Option<PunchItem>,
}

/// How a range becomes zeros.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clear {
    /// A hole.
    Free,
    /// Its blocks stay, as if they had never been written.
    Unwrite,
}

struct Task<'a> {
    core: &'a Core,
    inode: &'a Arc<Inode>,
    _writer: WriterGuard<'a>,
    range: Range<u64>,
    now: Timestamp,
}

impl Task<'_> {
    fn expect_changeable(&self, deed: Deed) -> Result<()> {
        allow::expect_changeable(&self.inode.state.read().attr, deed)
    }

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

    /// The partly covered blocks at both ends as they will be, unless they are so already. Nothing is dirty.
    fn edges(&self) -> Result<Vec<(u64, Page)>> {
        let Range { start, end } = self.range;
        let whole = self.whole_blocks();
        let mut edges = Vec::new();
        let mut blocks = vec![start / BLOCK_BYTES, end / BLOCK_BYTES];
        blocks.dedup();
        for block in blocks.into_iter().filter(|block| !whole.contains(block)) {
            let begin = block * BLOCK_BYTES;
            let covered = start.max(begin)..end.min(begin + BLOCK_BYTES);
            if covered.is_empty() {
                continue;
            }
            let Some((page, size)) = load_raw_block(self.core, self.inode, block)? else {
                continue;
            };
            let mut page = clipped(page, block, size);
            let part = (covered.start - begin) as usize..(covered.end - begin) as usize;
            if page[part.clone()].iter().any(|&byte| byte != 0) {
                page.bytes_mut()[part].fill(0);
                edges.push((block, page));
            }
        }
        Ok(edges)
    }

    fn punch(&self) -> Result<()> {
        let (core, inode) = (self.core, self.inode);
        let map = inode.data.lock_map();
        write_back_locked(core, inode, &map, 0..u64::MAX, true)?;
        let disk = inode.state.read().disk;
        if inline::may_exist(core, &disk)
            && let Some(mut bytes) = inline::load(core, inode.no, disk.size)?
        {
            // There is nothing but this item.
            let end = self.range.end.min(bytes.len() as u64) as usize;
            let start = end.min(self.range.start as usize);
            bytes[start..end].fill(0);
            let mut transaction = Transaction::new();
            transaction.put(inline::key(inode.no), bytes);
            let mut reservation = core.reserve_last(Need::Writeback { changes: 2 })?;
            let last = Last { new_size: None, punch: None };
            return self.publish(&map, transaction, &mut reservation, 0, Some(last));
        }
        let edges = self.edges()?;
        let need = Need::Change { changes: 0, blocks: edges.len() as u64 };
        let reserved = core.store.reserve(need)?;
        self.clear(&map, Clear::Free, edges, reserved, None)
    }

    /// Makes zeros of the range as one step of history. `reserved` holds a block for each of the `edges`.
    ///
    /// With more extents than one transaction changes, the first transaction says by a [`PunchItem`] that the
    /// range reads as zeros; those behind it do the work, see [`crate::data::punch`].
    fn clear(
        &self,
        map: &MapGuard<'_>,
        how: Clear,
        edges: Vec<(u64, Page)>,
        reserved: Reservation,
        new_size: Option<u64>,
    ) -> Result<()> {
        let (core, inode) = (self.core, self.inode);
        let blocks = self.whole_blocks();
        let keeps = how == Clear::Unwrite;
        let edges = self.write(edges, reserved)?;
        let mut old = Vec::new();
        for edge in &edges {
            // With the neighbours, so that pieces can be joined.
            let around = edge.first.saturating_sub(1)..edge.end() + 1;
            merge(inode.no, &mut old, pieces(core, inode.no, around)?)?;
        }
        let (pieces, end) =
            punch::window(core, inode.no, blocks.clone(), keeps, punch::BATCH_EXTENTS)?;
        let at_once = end >= blocks.end;
        if at_once {
            merge(inode.no, &mut old, pieces)?;
        }
        let mut edit = core.edit(old);
        match how {
            _ if !at_once => {}
            Clear::Free => edit.cut(blocks.clone()),
            Clear::Unwrite => edit.unwrite(blocks.clone()),
        }
        let mut transaction = Transaction::new();
        for edge in edges {
            let piece = Piece { first: edge.first, extent: transaction.publish(edge.written) };
            edit.insert(piece, core.store.extent_blocks_max());
        }
        let added = edit.blocks_added();
        edit.plan(inode.no, &mut transaction);
        let punch = (!at_once).then_some(PunchItem {
            first: blocks.start,
            end: blocks.end,
            state: if keeps { PunchItem::KEEPS_BLOCKS } else { 0 },
            reserved: [0; 4],
        });
        if let Some(punch) = &punch {
            transaction.put(Key::punch(inode.no), punch.encode());
        }
        let need = punch::need(keeps, transaction.changes() + 1);
        let mut reservation = core.reserve_last(need)?;
        self.publish(map, transaction, &mut reservation, added, Some(Last { new_size, punch }))?;
        punch::finish(core, inode, map)
    }

    /// Writes pages to new blocks.
    fn write(
        &self,
        pages: Vec<(u64, Page)>,
        mut reserved: Reservation,
    ) -> Result<Vec<OrderedExtent>> {
        if pages.is_empty() {
            return Ok(Vec::new());
        }
        let item = |(block, page)| Item { owner: 0, block, page };
        let items: Vec<Item> = pages.into_iter().map(item).collect();
        let of = Some(self.inode.no);
        let (extents, _) = write_all(self.core, &items, &mut reserved, None, of)?;
        Ok(extents.into_iter().map(|(_, extent)| extent).collect())
    }

    /// Allocates what has no blocks; with `zero` it also makes zeros of what has.
    ///
    /// What is allocated reads as before, so it may be found in part after a crash; size, times and zeros come
    /// with the last step, at once.
    fn fill(&self, keep_size: bool, zero: bool) -> Result<()> {
        let (core, inode) = (self.core, self.inode);
        inode.data.set_ends_with_size(false);
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
        write_back_locked(core, inode, &map, 0..u64::MAX, false)?;

        let edges = if zero { self.edges()? } else { Vec::new() };
        let blocks = self.range.start / BLOCK_BYTES..blocks_for(self.range.end);
        let missing = self.missing(&blocks, zero)?;
        let mut reservation =
            core.store.reserve(Need::Grow { changes: 2, blocks: missing.none })?;
        // These take the place of others: the branch refers to no more.
        let replaced = missing.shared + edges.len() as u64;
        if replaced > 0 {
            let need = Need::Change { changes: 0, blocks: replaced };
            reservation.merge(core.store.reserve(need)?);
        }
        let for_edges = reservation.split(edges.len() as u64);
        if zero {
            self.reserve_gaps(&map, &blocks, &mut reservation, None)?;
            self.clear(&map, Clear::Unwrite, edges, for_edges, new_size)?;
            // Where a snapshot has the blocks, clearing has left a hole.
            return match reservation.blocks() {
                0 => Ok(()),
                _ => self.reserve_gaps(&map, &blocks, &mut reservation, None),
            };
        }
        self.reserve_gaps(&map, &blocks, &mut reservation, Some(Last { new_size, punch: None }))
    }

    /// Allocates what has no blocks of the branch's own; what `last` says comes with the last step.
    fn reserve_gaps(
        &self,
        map: &MapGuard<'_>,
        blocks: &Range<u64>,
        reservation: &mut Reservation,
        last: Option<Last>,
    ) -> Result<()> {
        let (core, inode) = (self.core, self.inode);
        let mut at = blocks.start;
        while at < blocks.end {
            let all = at..blocks.end;
            let (pieces, window_end) = punch::window(core, inode.no, all, false, BATCH_EXTENTS)?;
            let mut edit = core.edit(pieces);
            let mut transaction = Transaction::new();
            let end = self.allocate(&mut edit, at..window_end, reservation, &mut transaction)?;
            at = end;
            let added = edit.blocks_added();
            edit.plan(inode.no, &mut transaction);
            let last = last.filter(|_| end >= blocks.end);
            if last.is_none() && transaction.is_empty() {
                continue;
            }
            let mut changes =
                core.store.reserve(Need::Writeback { changes: transaction.changes() + 1 })?;
            self.publish(map, transaction, &mut changes, added, last)?;
        }
        Ok(())
    }

    /// Fills gaps from the start of `range` on with unwritten extents; returns how far it came.
    fn allocate(
        &self,
        edit: &mut MapEdit,
        range: Range<u64>,
        reservation: &mut Reservation,
        transaction: &mut Transaction,
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
                let extent = transaction.publish_unwritten(placed);
                let piece = Piece { first, extent };
                first = piece.end();
                edit.insert(piece, UNWRITTEN_BLOCKS_MAX);
                made += 1;
            }
        }
        Ok(range.end)
    }

    /// Blocks that `range` needs besides what it has. Reserved blocks that a snapshot has as well are of no use; with `zero`
    /// neither is data.
    fn missing(&self, range: &Range<u64>, zero: bool) -> Result<Missing> {
        let parent = self.core.store.parent_epoch();
        let is_lent = |piece: &Piece| {
            (zero || !piece.extent.is_written()) && !owns(parent, piece.extent.birth)
        };
        let mut missing = Missing { none: range.end - range.start, shared: 0 };
        each_piece(self.core, self.inode.no, range.start, |piece| {
            if piece.first >= range.end {
                return ControlFlow::Break(());
            }
            let count = piece.part(range.clone()).map_or(0, |part| part.count());
            missing.none -= count;
            if is_lent(piece) {
                missing.shared += count;
            }
            ControlFlow::Continue(())
        })?;
        Ok(missing)
    }

    /// Makes a change of the map visible; with `last` also what belongs to the call as a whole.
    fn publish(
        &self,
        map: &MapGuard<'_>,
        transaction: Transaction,
        reservation: &mut Reservation,
        blocks_added: i64,
        last: Option<Last>,
    ) -> Result<()> {
        let (core, inode, now) = (self.core, self.inode, self.now);
        publish(
            core,
            inode,
            map,
            transaction,
            reservation,
            |_, item| {
                item.blocks = item.blocks.saturating_add_signed(blocks_added);
                if let Some(last) = &last {
                    item.size = last.new_size.unwrap_or(item.size);
                    (item.mtime, item.ctime) = (now, now);
                }
            },
            |state, _| {
                if let Some(last) = &last {
                    state.attr.size = last.new_size.unwrap_or(state.attr.size);
                    (state.attr.mtime, state.attr.ctime) = (now, now);
                    if let Some(punch) = last.punch {
                        core.data.punches.begin(inode.no, punch);
                    }
                }
            },
        )?;
        Ok(())
    }
}
