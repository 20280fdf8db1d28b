//! A new size.
//!
//! A truncate is immediate: the tree has the new size when it returns, so that
//! it stands in history where the caller put it. What was written before and
//! survives it is written back first; what does not survive is never written.

use std::sync::Arc;

use holdfast_base::Timestamp;
use holdfast_base::mutants::{self, Mutant};
use holdfast_base::units::{BLOCK_BYTES, blocks_for};
use holdfast_format::limits::FILE_SIZE_MAX;
use holdfast_store::{Need, Transaction};

use crate::allow::Deed;
use crate::core::Core;
use crate::data::grow::{clean_tail_locked, make_dirty, pages_before_growth};
use crate::data::publish::publish;
use crate::data::writeback::write_back_locked;
use crate::file::inline;
use crate::file::lookup::{FILE_BLOCKS_MAX, last_pieces};
use crate::file_data::{MapGuard, WriterGuard};
use crate::inode::Inode;
use crate::{FsError, Result, allow};

/// Extents removed by one transaction.
const BATCH_EXTENTS: usize = 64;

/// Gives a regular file a new size, and `now` as its mtime and ctime.
///
/// One step in history, whatever it removes: the first transaction sets the size. If very many extents are to go,
/// further transactions remove them from the end; until then they lie beyond the size, where no reader sees them.
pub(crate) fn set_size(
    core: &Core,
    inode: &Arc<Inode>,
    new_size: u64,
    now: Timestamp,
) -> Result<()> {
    if new_size > FILE_SIZE_MAX {
        return Err(FsError::FileTooLarge);
    }
    let writer = inode.data.lock_writer();
    // Flags may have come since the call was judged.
    allow::expect_changeable(&inode.state.read().attr, Deed::Changes)?;
    core.with_room(|| {
        let map = inode.data.lock_map();
        let size = inode.state.read().attr.size;
        if new_size <= size {
            // Also at the same size: what fallocate has put beyond it goes.
            shrink(core, inode, &map, new_size, now)
        } else {
            grow(core, inode, &writer, &map, size, new_size, now)
        }
    })
}

fn shrink(
    core: &Core,
    inode: &Arc<Inode>,
    map: &MapGuard<'_>,
    new_size: u64,
    now: Timestamp,
) -> Result<()> {
    let keep = blocks_for(new_size);
    // Until all of it is removed.
    inode.data.set_ends_with_size(false);
    write_back_locked(core, inode, map, 0..keep, true)?;
    let disk = inode.state.read().disk;
    let mut transaction = Transaction::new();
    if inline::may_exist(core, &disk)
        && let Some(mut bytes) = inline::load(core, inode.no, disk.size)?
    {
        let len = bytes.len().min(new_size as usize);
        bytes.truncate(len);
        // It may have been shorter than what delayed writes made of it; the rest is a hole.
        bytes.resize(new_size as usize, 0);
        put_inline(core, inode, &mut transaction, bytes);
    }
    let mut first = true;
    let mut extents_max = BATCH_EXTENTS;
    loop {
        let (last, more) = last_pieces(core, inode.no, keep, extents_max)?;
        if !first && last.is_empty() {
            break;
        }
        let count = last.len();
        let need = Need::Shrink { changes: transaction.changes() + count as u32 + 1 };
        let Some(mut reservation) = core.reserve_for(count, need)? else {
            extents_max = count / 4 + 1;
            continue;
        };
        let mut edit = core.edit(last);
        edit.cut(keep..FILE_BLOCKS_MAX);
        let removed = edit.blocks_added();
        edit.plan(inode.no, &mut transaction);
        if first {
            inode.data.set_tail_is_clean(!more);
        }
        publish(
            core,
            inode,
            map,
            std::mem::take(&mut transaction),
            &mut reservation,
            |_, item| {
                item.blocks = item.blocks.saturating_add_signed(removed);
                if first {
                    item.size = new_size;
                    (item.mtime, item.ctime) = (now, now);
                }
            },
            |state, content| {
                if first {
                    if !mutants::is(Mutant::TruncateKeepsPages) {
                        content.pages.drop_dirty(keep..u64::MAX);
                    }
                    inode.lost.forget(new_size..u64::MAX);
                    state.attr.size = new_size;
                    (state.attr.mtime, state.attr.ctime) = (now, now);
                }
            },
        )?;
        first = false;
        if !more {
            break;
        }
    }
    inode.data.set_tail_is_clean(true);
    inode.data.set_ends_with_size(true);
    Ok(())
}

fn grow(
    core: &Core,
    inode: &Arc<Inode>,
    _writer: &WriterGuard<'_>,
    map: &MapGuard<'_>,
    size: u64,
    new_size: u64,
    now: Timestamp,
) -> Result<()> {
    if new_size > size {
        clean_tail_locked(core, inode, map)?;
        let after = new_size / BLOCK_BYTES + 1;
        make_dirty(core, inode, pages_before_growth(core, inode, size, new_size, after)?)?;
    }
    // The size in the tree must not cover what was written but is not there yet.
    let small = new_size <= inline::size_max(core);
    write_back_locked(core, inode, map, 0..u64::MAX, small)?;
    let disk = inode.state.read().disk;
    let mut transaction = Transaction::new();
    if inline::may_exist(core, &disk)
        && let Some(mut bytes) = inline::load(core, inode.no, disk.size)?
    {
        bytes.resize(new_size as usize, 0);
        put_inline(core, inode, &mut transaction, bytes);
    }
    let mut reservation =
        core.store.reserve(Need::Writeback { changes: transaction.changes() + 1 })?;
    publish(
        core,
        inode,
        map,
        transaction,
        &mut reservation,
        |_, item| {
            item.size = new_size;
            (item.mtime, item.ctime) = (now, now);
        },
        |state, _| {
            state.attr.size = new_size;
            (state.attr.mtime, state.attr.ctime) = (now, now);
        },
    )?;
    Ok(())
}

fn put_inline(core: &Core, inode: &Inode, transaction: &mut Transaction, bytes: Vec<u8>) {
    debug_assert!(bytes.len() <= core.store.value_max());
    if bytes.is_empty() {
        transaction.delete(inline::key(inode.no));
    } else {
        transaction.put(inline::key(inode.no), bytes);
    }
}
