//! Before a file grows: no old bytes may appear behind its old end.
//!
//! The tree may hold bytes beyond the size: the rest of the last block after a truncate, and extents that an
//! interrupted truncate has not removed yet. No reader sees them while the size is before them. So the operation that
//! moves the size makes them zeros first (P5).

use std::ops::ControlFlow;
use std::sync::Arc;

use holdfast_base::units::{BLOCK_BYTES, blocks_for};
use holdfast_store::page::Page;
use holdfast_store::{Delayed, Need, Transaction};

use super::publish::publish;
use super::view::{bytes_inside, clipped, load_block, load_raw_block};
use crate::Result;
use crate::core::Core;
use crate::file::inline;
use crate::file::lookup::{FILE_BLOCKS_MAX, each_piece};
use crate::file::map::Piece;
use crate::file_data::MapGuard;
use crate::inode::Inode;

/// Extents removed by one transaction.
const BATCH_EXTENTS: usize = 8;

/// The pages that have to be dirty before the size moves from `size` to `new_size`, except blocks from `written` on,
/// which the caller makes dirty anyway. The caller holds the writer's lock.
pub(crate) fn pages_before_growth(
    core: &Core,
    inode: &Arc<Inode>,
    size: u64,
    new_size: u64,
    written: u64,
) -> Result<Vec<(u64, Page)>> {
    let mut pages = Vec::new();
    if size == 0 || new_size <= size {
        return Ok(pages);
    }
    let has_blocks = inode.state.read().disk.blocks > 0;
    if needs_first_page(core, size, has_blocks, new_size, written) {
        if !inode.data.lock_content().pages.is_dirty(0) {
            let page = load_block(core, inode, 0)?;
            pages.push((0, page.unwrap_or_else(Page::zeroed)));
        }
        return Ok(pages);
    }
    let tail = size / BLOCK_BYTES;
    if !size.is_multiple_of(BLOCK_BYTES)
        && tail < written
        && let Some((page, size)) = load_raw_block(core, inode, tail)?
        && page[bytes_inside(tail, size)..].iter().any(|&b| b != 0)
    {
        pages.push((tail, clipped(page, tail, size)));
    }
    Ok(pages)
}

/// Whether a content that may be inline does not fit any more: block 0 must be dirty before the size moves, because the
/// next writeback deletes the inline item. A file that `has_blocks` in the tree has no such item: its first block may
/// be a hole, and stays one.
pub(crate) fn needs_first_page(
    core: &Core,
    size: u64,
    has_blocks: bool,
    new_size: u64,
    written: u64,
) -> bool {
    let limit = core.store.value_max() as u64;
    size > 0 && size <= limit && !has_blocks && new_size > inline::size_max(core) && written > 0
}

/// Removes what an interrupted truncate has left beyond the size. The caller holds the writer's lock.
pub(crate) fn clean_tail(core: &Core, inode: &Arc<Inode>) -> Result<()> {
    if inode.data.tail_is_clean() {
        return Ok(());
    }
    let map = inode.data.lock_map();
    clean_tail_locked(core, inode, &map)
}

/// Like [`clean_tail`], for a caller that has the map locked.
pub(crate) fn clean_tail_locked(core: &Core, inode: &Arc<Inode>, map: &MapGuard<'_>) -> Result<()> {
    if inode.data.tail_is_clean() {
        return Ok(());
    }
    let disk = inode.state.read().disk;
    let start = blocks_for(disk.size);
    // A file without blocks has none behind its end either.
    while inode.state.read().disk.blocks > 0 {
        let mut stale: Vec<Piece> = Vec::new();
        each_piece(core, inode.no, start, |piece| {
            if piece.extent.is_written() {
                stale.push(piece.clone());
            }
            match stale.len() < BATCH_EXTENTS {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        if stale.is_empty() {
            break;
        }
        let mut edit = core.edit(stale);
        edit.cut(start..FILE_BLOCKS_MAX);
        let removed = edit.blocks_added();
        let mut transaction = Transaction::new();
        edit.plan(inode.no, &mut transaction);
        let mut reservation =
            core.reserve_last(Need::Shrink { changes: transaction.changes() + 1 })?;
        let change = |item: &mut holdfast_format::item::InodeItem| {
            item.blocks = item.blocks.saturating_add_signed(removed);
        };
        publish(
            core,
            inode,
            map,
            transaction,
            &mut reservation,
            |_, item| change(item),
            |_, _| {},
        )?;
    }
    inode.data.set_tail_is_clean(true);
    Ok(())
}

/// Makes pages dirty without changing their content. The caller holds the writer's lock.
pub(crate) fn make_dirty(core: &Core, inode: &Arc<Inode>, pages: Vec<(u64, Page)>) -> Result<()> {
    if pages.is_empty() {
        return Ok(());
    }
    let count = pages.len() as u64;
    let delayed = Delayed { runs: count, pages: count };
    // They are in the tree, but for a content that lies in an item until now.
    let growth = if inode.state.read().disk.blocks > 0 { 0 } else { count };
    let mut reservation = core.store.reserve(Need::Delay { blocks: count, growth, delayed })?;
    let mut state = inode.state.write();
    // The pages of an inode that was removed meanwhile would never be written back or dropped.
    state.expect_alive()?;
    let mut content = inode.data.lock_content();
    let has_blocks = state.disk.blocks > 0;
    for (block, page) in pages {
        // A file without blocks has its content inline: the tree counts no blocks for it.
        content.pages.put_base(block, page.alone(), !has_blocks);
        content.pages.dissolve_runs(block..block + 1);
    }
    content.add_kept_nodes(reservation.metadata_reservation());
    content.add_reserved(reservation);
    state.attr.blocks = state.disk.blocks.saturating_add(content.pages.fresh());
    core.data.account(inode, &mut content);
    Ok(())
}
