//! Where data is and where it is not.

use std::ops::ControlFlow;
use std::sync::Arc;

use holdfast_base::units::BLOCK_BYTES;

use holdfast_format::item::InodeItem;

use crate::core::Core;
use crate::data::punch::each_visible;
use crate::data::view::look_steadily;
use crate::file::inline;
use crate::file::lookup::FILE_BLOCKS_MAX;
use crate::inode::Inode;
use crate::*;

impl FileSystem {
    /// The next data or hole at or after `offset`. Allocated but unwritten blocks count as holes.
    pub fn seek(&self, file: &OpenFile, offset: u64, whence: Seek) -> Result<u64> {
        let (core, inode) = (&*self.core, &file.inode);
        look_steadily(inode, |size, disk, _| seek_once(core, inode, size, disk, offset, whence))
    }
}

fn seek_once(
    core: &Core,
    inode: &Arc<Inode>,
    size: u64,
    disk: &InodeItem,
    offset: u64,
    whence: Seek,
) -> Result<u64> {
    if offset >= size {
        return Err(FsError::NoSuchPosition);
    }
    let block = offset / BLOCK_BYTES;
    let stored = match inline::may_exist(core, disk) {
        true => inline::load(core, inode.no, disk.size)?.is_some(),
        false => false,
    };
    let found = match whence {
        Seek::Data => next_data(core, inode, block, stored)?,
        Seek::Hole => Some(next_hole(core, inode, block, stored)?),
    };
    // Blocks before the found one are passed; within the first one the offset stays.
    match found.map(|block| (block * BLOCK_BYTES).max(offset)) {
        Some(at) if at < size => Ok(at),
        _ if whence == Seek::Hole => Ok(size),
        _ => Err(FsError::NoSuchPosition),
    }
}

fn next_data(
    core: &Core,
    inode: &Arc<Inode>,
    block: u64,
    first_is_inline: bool,
) -> Result<Option<u64>> {
    let mut next = inode.data.lock_content().pages.next(block);
    if first_is_inline && block == 0 {
        return Ok(Some(0));
    }
    each_visible(core, inode.no, block, |piece| {
        if next.is_some_and(|next| next <= piece.first) {
            return ControlFlow::Break(());
        }
        if piece.extent.is_written() {
            next = Some(piece.first.max(block));
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    Ok(next)
}

fn next_hole(core: &Core, inode: &Arc<Inode>, block: u64, first_is_inline: bool) -> Result<u64> {
    let pages: Vec<u64> = {
        let content = inode.data.lock_content();
        content.pages.blocks_from(block)
    };
    let mut pages = pages.into_iter().peekable();
    let mut at = block;
    if first_is_inline && at == 0 {
        at = 1;
    }
    // Moves over pages that follow one another.
    let mut pass_pages = |at: &mut u64| {
        while let Some(&page) = pages.peek() {
            if page > *at {
                break;
            }
            if page == *at {
                *at += 1;
            }
            pages.next();
        }
    };
    pass_pages(&mut at);
    each_visible(core, inode.no, block, |piece| {
        if !piece.extent.is_written() || piece.end() <= at {
            return ControlFlow::Continue(());
        }
        if piece.first > at {
            return ControlFlow::Break(());
        }
        at = piece.end();
        pass_pages(&mut at);
        ControlFlow::Continue(())
    })?;
    Ok(at.min(FILE_BLOCKS_MAX))
}
