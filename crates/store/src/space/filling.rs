//! Blocks that a file has reserved, on their way to hold data.

use holdfast_base::{BlockNo, BlockRange};

use super::reservation::SharedSpace;

/// Reserved blocks that are written in place. While it lives, and from the transaction on that publishes it, they are
/// no other extent's to write: on a damaged volume two may name the same.
#[derive(Debug)]
pub(crate) struct Filling {
    space: SharedSpace,
    blocks: BlockRange,
    published: bool,
}

impl Filling {
    /// `None` if one of the blocks was written in place since the volume was opened, for whichever file, and not freed.
    pub(crate) fn begin(space: &SharedSpace, blocks: BlockRange) -> Option<Filling> {
        let begun = space.lock().begin_filling(blocks);
        begun.then(|| Filling { space: space.clone(), blocks, published: false })
    }

    /// Which blocks.
    pub(crate) fn blocks(&self) -> BlockRange {
        self.blocks
    }

    /// Cuts the first `count` blocks off.
    pub(super) fn split_front(&mut self, count: u64) -> Filling {
        let BlockRange { start, count: all } = self.blocks;
        self.blocks = BlockRange::new(BlockNo(start.0 + count), all - count);
        let blocks = BlockRange::new(start, count);
        Filling { space: self.space.clone(), blocks, published: false }
    }

    /// The tree says of the blocks that they hold data.
    pub(crate) fn published(mut self) {
        self.published = true;
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        if !self.published {
            self.space.lock().forget_filled(self.blocks);
        }
    }
}
