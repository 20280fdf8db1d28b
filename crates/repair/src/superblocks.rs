//! The superblocks that lead to a repaired volume, and the signpost to the last of them.

use holdfast_base::{BLOCK_SIZE, BlockNo};
use holdfast_format::geometry::SIGNPOST;
use holdfast_format::{Signpost, Superblock};

/// A block and its bytes.
pub(crate) type Block = (BlockNo, Box<[u8; BLOCK_SIZE]>);

/// The superblock in its slot; that of the next epoch in the other one, the far copy of that, and the signpost.
pub(crate) fn superblocks(first: &Superblock) -> [Block; 4] {
    let second = Superblock { epoch: first.epoch.next(), ..first.clone() };
    let far = first.geometry.far_copy();
    let encode = |superblock: &Superblock, place| (place, superblock.encode(place));
    let signpost = (SIGNPOST, Signpost::of(first).encode());
    [encode(first, first.slot()), encode(&second, second.slot()), encode(&second, far), signpost]
}
