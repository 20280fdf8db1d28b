//! The numbers by which the kernel knows what lies in `.snapshots`.
//!
//! A file has the same number in its branch and in all snapshots. For the kernel, and for programs that know a file by its number,
//! these are different files: two versions are no hard links of each other. So to the kernel the number of a file in a
//! snapshot is a mark, the number under which this mount knows the snapshot ([`Slot`]), and the number of the inode.
//!
//! ```text
//! bit 63: 0   62: 1   61 to 44: slot   43 to 0: inode       below 2^63, which is negative to some programs
//! ```
//!
//! No honest volume comes to inodes of more than 44 bits: at 100,000 new files a second that takes five years and a half. In
//! a snapshot they are EOVERFLOW. In a branch they are as they are; one that has the mark is not found.

use holdfast_base::InodeNo;

use crate::interface::{Answer, Errno};

const MARK: u64 = 1 << 62;
const INODE_BITS: u32 = 44;
/// Numbers for snapshots: the first is that of the directory.
pub(crate) const SLOTS: u32 = 1 << (62 - INODE_BITS);

/// The number under which a mount knows a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Slot(pub(crate) u32);

/// The directory of snapshots.
pub(crate) const DIRECTORY: InodeNo = InodeNo(MARK);

/// What the kernel means by a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// An inode of the mounted branch.
    Live(InodeNo),
    /// The directory of snapshots.
    Directory,
    /// An inode of a snapshot.
    In(Slot, InodeNo),
}

/// What the kernel means by `number`.
pub(crate) fn node(number: u64) -> Node {
    if number & MARK == 0 {
        return Node::Live(InodeNo(number));
    }
    let slot = (number >> INODE_BITS) as u32 & (SLOTS - 1);
    let inode = InodeNo(number & ((1 << INODE_BITS) - 1));
    match slot {
        0 => Node::Directory,
        slot => Node::In(Slot(slot), inode),
    }
}

/// The number of the root directory of a snapshot.
pub(crate) fn root(Slot(slot): Slot) -> InodeNo {
    InodeNo(MARK | u64::from(slot) << INODE_BITS | InodeNo::ROOT.0)
}

/// The number of an inode of a snapshot.
pub(crate) fn inside(Slot(slot): Slot, inode: InodeNo) -> Answer<InodeNo> {
    match inode.0 >> INODE_BITS {
        0 => Ok(InodeNo(MARK | u64::from(slot) << INODE_BITS | inode.0)),
        _ => Err(Errno(libc::EOVERFLOW)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_says_which_snapshot_and_which_inode() {
        let largest = InodeNo((1 << INODE_BITS) - 1);
        for slot in [1, 2, SLOTS - 1].map(Slot) {
            assert_eq!(inside(slot, InodeNo::ROOT), Ok(root(slot)));
            for inode in [InodeNo::ROOT, largest] {
                let number = inside(slot, inode).unwrap();
                assert_eq!(node(number.0), Node::In(slot, inode));
                assert!(i64::try_from(number.0).is_ok());
            }
            assert_eq!(inside(slot, InodeNo(largest.0 + 1)), Err(Errno(libc::EOVERFLOW)));
        }
        assert_eq!(node(DIRECTORY.0), Node::Directory);
        assert_eq!(node(InodeNo::ROOT.0), Node::Live(InodeNo::ROOT));
        assert_eq!(node(MARK - 1), Node::Live(InodeNo(MARK - 1)));
        assert_eq!(node(MARK | 5), Node::Directory);
    }
}
