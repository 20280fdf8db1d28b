//! Bytes first, then the extent: what is written, on its way into the tree.
//!
//! An [`OrderedExtent`] holds the proof that its data write has returned. A transaction that points at the blocks is
//! made only from such proofs, so no extent that a reader or a crash can find lacks its data (P5).

use holdfast_base::Timestamp;
use holdfast_store::Written;

/// Data on the device that the tree does not know yet.
#[derive(Debug)]
pub(crate) struct OrderedExtent {
    /// First block, counted from the start of the file.
    pub(crate) first: u64,
    /// The proof, with blocks and checksums.
    pub(crate) written: Written,
}

impl OrderedExtent {
    /// The first block of the file after it.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.written.blocks().count
    }
}

/// What a writeback makes durable besides the pages: the attributes when they were taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) size: u64,
    pub(crate) mtime: Timestamp,
    pub(crate) ctime: Timestamp,
    /// All dirty pages were taken, so the attributes belong to them.
    pub(crate) whole: bool,
}
