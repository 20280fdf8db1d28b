//! Content items of a file: all of it, or none of it.

use holdfast_base::InodeNo;
use holdfast_base::units::{BLOCK_SIZE, blocks_for};
use holdfast_format::checksum::block_sum;
use holdfast_format::{Key, Malformed};
use holdfast_store::{Reservation, StoreError, Transaction};

use super::inline;
use super::lookup::{last_pieces, pieces};
use super::map::{Piece, extent_key};
use crate::core::Core;
use crate::error::damaged_item;
use crate::{FsError, Result};

/// Appends the removal of up to `items_max` content items and of their blocks; true when nothing is left.
/// The tail goes first, so that what is left is the front of a file.
pub(crate) fn plan_removal(
    core: &Core,
    inode: InodeNo,
    transaction: &mut Transaction,
    items_max: usize,
) -> Result<bool> {
    let (last, more) = last_pieces(core, inode, 0, items_max)?;
    let mut edit = core.edit(last);
    edit.cut(0..u64::MAX);
    edit.plan(inode, transaction);
    if !more {
        transaction.delete(inline::key(inode));
    }
    Ok(!more)
}

/// Writes a whole small content of a new inode, and returns the blocks that it takes.
/// `reservation` holds those blocks.
pub(crate) fn store_whole(
    core: &Core,
    inode: InodeNo,
    bytes: &[u8],
    reservation: &mut Reservation,
    transaction: &mut Transaction,
) -> Result<u64> {
    if bytes.len() <= core.store.value_max() {
        transaction.put(inline::key(inode), bytes);
        return Ok(0);
    }
    let mut first = 0;
    let blocks = blocks_for(bytes.len() as u64);
    while first < blocks {
        let want = (blocks - first).min(core.store.extent_blocks_max());
        let placed = core.allocate(reservation, want, None)?;
        let count = placed.blocks().count;
        let mut padded = vec![0; count as usize * BLOCK_SIZE];
        let rest = &bytes[first as usize * BLOCK_SIZE..];
        let len = rest.len().min(padded.len());
        padded[..len].copy_from_slice(&rest[..len]);
        let written = core.store.write(placed, &padded).map_err(StoreError::from)?;
        let extent = transaction.publish(written);
        transaction.put_with(extent_key(inode, first), |out| extent.write(out));
        first += count;
    }
    Ok(blocks)
}

/// Reads a whole content of `size` bytes, which the caller knows to be small.
pub(crate) fn load_whole(core: &Core, inode: InodeNo, size: u64) -> Result<Vec<u8>> {
    let damaged = |why: &str| {
        let what = format!("the content of {}", core.called(inode));
        FsError::Store(damaged_item(&core.store, what, Malformed::new("content", why)))
    };
    let item: Key = inline::key(inode);
    if let Some(bytes) = core.store.get(&item)? {
        if bytes.len() as u64 != size {
            return Err(damaged("its length is not the inode's size"));
        }
        return Ok(bytes);
    }
    let blocks = blocks_for(size);
    let mut content = Vec::new();
    for piece in pieces(core, inode, 0..blocks)? {
        if piece.first * BLOCK_SIZE as u64 != content.len() as u64 || !piece.extent.is_written() {
            return Err(damaged("it has a hole"));
        }
        let Some(Piece { extent, .. }) = piece.part(0..blocks) else {
            continue;
        };
        let start = content.len();
        content.resize(start + extent.sums.len() * BLOCK_SIZE, 0);
        core.store.read(extent.blocks, &mut content[start..])?;
        let (read, _) = content[start..].as_chunks::<BLOCK_SIZE>();
        for (block, sum) in read.iter().zip(&extent.sums) {
            if block_sum(block) != *sum {
                core.counters.checksum_failures.increment();
                let why = format!("{}: its content fails its checksum", core.called(inode));
                tracing::error!("{why}");
                core.store.found_damage(&why);
                return Err(FsError::Io(why));
            }
        }
    }
    if (content.len() as u64) < size {
        return Err(damaged("it is shorter than the inode's size"));
    }
    content.truncate(size as usize);
    Ok(content)
}
