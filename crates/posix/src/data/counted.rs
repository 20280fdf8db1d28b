//! Which blocks of a file the tree counts already: stat counts a delayed page over any other.
//!
//! So a writeback never changes what stat shows, and caches of attributes need not be invalidated. And a file with data
//! never has 0 blocks: tar takes a file of 0 blocks for a hole as large as the file.

use std::ops::{ControlFlow, Range};

use holdfast_base::units::blocks_for;
use holdfast_format::item::InodeItem;

use crate::Result;
use crate::core::Core;
use crate::file::lookup::{each_piece, pieces};
use crate::inode::Inode;

/// What the tree counts of some blocks of a file, at one moment.
#[derive(Debug)]
pub(crate) enum Counted {
    /// Each block before this one, and none from it on.
    Before(u64),
    /// These ranges.
    Pieces(Vec<Range<u64>>),
}

impl Counted {
    /// Whether the tree counts `block`, which is one of the blocks that the caller asked for.
    pub(crate) fn has(&self, block: u64) -> bool {
        match self {
            Counted::Before(end) => block < *end,
            Counted::Pieces(pieces) => pieces.iter().any(|piece| piece.contains(&block)),
        }
    }
}

/// What the tree counts of `blocks`. The caller holds the writer's lock, and the answer is good for as long as the
/// extents stay what they are. Appends, new files and files without holes cost no lookup in the tree. For a tree that
/// cannot be read the answer is unknown: the writeback meets the same error and reports it.
pub(crate) fn counted(core: &Core, inode: &Inode, disk: &InodeItem, blocks: Range<u64>) -> Counted {
    if disk.blocks == 0 {
        return Counted::Before(0);
    }
    let end = blocks_for(disk.size);
    look(core, inode, disk, end, blocks).unwrap_or(Counted::Before(end))
}

fn look(
    core: &Core,
    inode: &Inode,
    disk: &InodeItem,
    end: u64,
    blocks: Range<u64>,
) -> Result<Counted> {
    if ends_with_size(core, inode, end)? && (disk.blocks == end || blocks.start >= end) {
        return Ok(Counted::Before(end));
    }
    let pieces = pieces(core, inode.no, blocks)?;
    Ok(Counted::Pieces(pieces.iter().map(|piece| piece.first..piece.end()).collect()))
}

/// Whether no block lies behind `end`, the last one of the file in the tree.
fn ends_with_size(core: &Core, inode: &Inode, end: u64) -> Result<bool> {
    if inode.data.ends_with_size() {
        return Ok(true);
    }
    let mut found = false;
    each_piece(core, inode.no, end, |_| {
        found = true;
        ControlFlow::Break(())
    })?;
    inode.data.set_ends_with_size(!found);
    Ok(!found)
}
