//! The superblocks that lead to a repaired volume.

use holdfast_base::{BLOCK_SIZE, BlockNo};
use holdfast_format::Superblock;

/// A block and its bytes.
pub(crate) type Block = (BlockNo, Box<[u8; BLOCK_SIZE]>);

/// The superblock in its slot; that of the next epoch in the other one, and the far copy of that.
pub(crate) fn superblocks(first: &Superblock) -> [Block; 3] {
    let second = Superblock { epoch: first.epoch.next(), ..first.clone() };
    let far = first.geometry.far_copy();
    let encode = |superblock: &Superblock, place| (place, superblock.encode(place));
    [encode(first, first.slot()), encode(&second, second.slot()), encode(&second, far)]
}
