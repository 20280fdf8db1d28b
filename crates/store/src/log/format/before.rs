//! `batch=scan`: the inode of a name is found by looking at one record after the other (M4).

use holdfast_base::InodeNo;
use holdfast_format::Key;

use crate::log::generation::Generation;

/// Where in `generation` the record of the inode is, if it is there.
pub(super) fn inode(generation: &Generation, branch: u64, no: InodeNo) -> Option<usize> {
    (0..generation.len())
        .find(|at| generation.change(*at).key == Key::inode(no) && generation.branch(*at) == branch)
}
