//! The journal: commits in a ring, each the bytes of tree nodes that changed since the one before.
//!
//! ```text
//!  | frame | frame | frame | ... free ... |        a commit is one frame or several, in order
//!
//!  frame:  header | part of the commit's payload | zeros up to the block's end
//!  payload: head | node records | cancelled nodes | data extents
//! ```
//!
//! A frame never crosses the ring's end. Each carries the sum of the frame
//! before it, so frames of a history that was given up are never taken for
//! those of this one; a commit counts only if all its frames are there.
//!
//! A node record is applied to the node's base: zeros for a new node, another
//! node for one that was copied to a new location, else what earlier commits made of
//! it. Records come first; then the cancelled nodes are forgotten.
//!
//! The data extents are those that the commit's one flush made durable with it.
//! Only the last commit of a journal can lack them: if their sums do not match
//! what is on the device, the journal ends before that commit.

pub mod commit;
pub mod frame;
pub mod node;

pub use commit::{Commit, CommitHead, DataExtent};
pub use frame::FrameHeader;
pub use node::{Base, NodeChange, NodeRecord};

use holdfast_base::{BlockNo, BlockRange, CommitNo};

/// Largest payload of a commit, in bytes.
pub const COMMIT_BYTES_MAX: usize = 256 << 20;
/// Most bytes of nodes that the commits between two checkpoints may change: what recovery keeps in memory.
pub const REPLAY_BYTES_MAX: u64 = 2 << 30;
/// Most blocks of a ring that are searched for frames of damage, from the journal's end on: 1 GiB, several
/// times the largest ring that mkfs makes.
pub const SEARCH_BLOCKS_MAX: u64 = 1 << 18;
/// Where a journal goes on: what the next frame must follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalMark {
    /// The last commit before it.
    pub commit: CommitNo,
    /// Block of the next frame.
    pub next: BlockNo,
    /// `sum` of the frame before; 0 where none need be there.
    pub sum: u64,
}

/// The block behind a frame of `blocks` blocks at `at`: the ring's start behind its end.
pub fn next_block(ring: BlockRange, at: BlockNo, blocks: u64) -> BlockNo {
    let next = at.0 + blocks;
    if next >= ring.start.0 + ring.count { ring.start } else { BlockNo(next) }
}
