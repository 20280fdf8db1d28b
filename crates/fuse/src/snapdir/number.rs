//! The numbers of what lies in `.snapshots`: those by which the kernel knows it, and those that programs see.
//!
//! A file has the same number in its branch and in all snapshots. For the kernel, and for programs that know a file by its number,
//! these are different files: two versions are no hard links of each other. So both numbers of a file in a snapshot are a mark, a place
//! that stands for the snapshot, and the number of the inode.
//!
//! ```text
//! for the kernel     bit 62: 1   61 to 44: slot     43 to 0: inode
//! for programs       bit 52: 1   51 to 32: place    31 to 0: the low bits of the inode
//! ```
//!
//! The place of inodes below 2^32 is the [`Slot`] of their snapshot. Others have more places, which a mount gives out as it meets
//! them ([`Far`]). So no number that programs see has more than 53 bits: programs that keep numbers in doubles, as all
//! of JavaScript, tell two files from each other.
//!
//! No honest volume comes to inodes of more than 44 bits: at 100,000 new files a second that takes five years and a half. In
//! a snapshot they are EOVERFLOW. In a branch numbers are as they are; one that has the kernel's mark is not found.

use std::collections::{HashMap, HashSet};

use holdfast_base::InodeNo;

use crate::interface::{Answer, Errno};

const MARK: u64 = 1 << 62;
const INODE_BITS: u32 = 44;
/// Numbers for snapshots: the first is that of the directory.
pub(crate) const SLOTS: u32 = 1 << (62 - INODE_BITS);

const SHOWN_MARK: u64 = 1 << 52;
const SHOWN_BITS: u32 = 32;
const PLACES: u32 = 1 << (52 - SHOWN_BITS);

/// The number under which a mount knows a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Slot(pub(crate) u32);

/// The directory of snapshots, for the kernel.
pub(crate) const DIRECTORY: InodeNo = InodeNo(MARK);
/// The directory of snapshots, for programs.
pub(crate) const SHOWN_DIRECTORY: InodeNo = InodeNo(SHOWN_MARK);

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

/// The number of an inode of a snapshot, for the kernel.
pub(crate) fn inside(Slot(slot): Slot, inode: InodeNo) -> Answer<u64> {
    match inode.0 >> INODE_BITS {
        0 => Ok(MARK | u64::from(slot) << INODE_BITS | inode.0),
        _ => Err(Errno(libc::EOVERFLOW)),
    }
}

/// The number of an inode of a snapshot, for programs; `None`: it has a place of its own.
pub(crate) fn shown(Slot(slot): Slot, inode: InodeNo) -> Option<InodeNo> {
    (high(inode) == 0).then(|| at(slot, inode))
}

fn at(place: u32, inode: InodeNo) -> InodeNo {
    let low = inode.0 & ((1 << SHOWN_BITS) - 1);
    InodeNo(SHOWN_MARK | u64::from(place) << SHOWN_BITS | low)
}

fn high(inode: InodeNo) -> u64 {
    inode.0 >> SHOWN_BITS
}

/// Places of inodes from 2^32 on: one for each snapshot and 2^32 of its inodes. They stay while the snapshot has its slot.
#[derive(Debug, Default)]
pub(crate) struct Far {
    places: HashMap<(Slot, u64), u32>,
    taken: HashSet<u32>,
    /// The place that was given out last, counted from the first.
    last: u32,
}

impl Far {
    /// The number of an inode of a snapshot, for programs.
    pub(crate) fn shown(&mut self, slot: Slot, inode: InodeNo) -> Answer<InodeNo> {
        const ALL: u32 = PLACES - SLOTS;
        let of = (slot, high(inode));
        if let Some(place) = self.places.get(&of) {
            return Ok(at(*place, inode));
        }
        let mut free = (1..=ALL).map(|step| (self.last + step) % ALL);
        let next = free.find(|next| !self.taken.contains(next)).ok_or(Errno(libc::EOVERFLOW))?;
        self.last = next;
        self.taken.insert(next);
        self.places.insert(of, SLOTS + next);
        Ok(at(SLOTS + next, inode))
    }

    /// Only snapshots for which `keeps` says so have their places still.
    pub(crate) fn retain(&mut self, keeps: impl Fn(Slot) -> bool) {
        let taken = &mut self.taken;
        self.places.retain(|(slot, _), place| {
            let stays = keeps(*slot);
            if !stays {
                taken.remove(&(*place - SLOTS));
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAFE: u64 = 1 << 53;

    #[test]
    fn a_number_says_which_snapshot_and_which_inode() {
        let largest = InodeNo((1 << INODE_BITS) - 1);
        for slot in [1, 2, SLOTS - 1].map(Slot) {
            for inode in [InodeNo::ROOT, largest] {
                let number = inside(slot, inode).unwrap();
                assert_eq!(node(number), Node::In(slot, inode));
                assert!(i64::try_from(number).is_ok());
            }
            assert_eq!(inside(slot, InodeNo(largest.0 + 1)), Err(Errno(libc::EOVERFLOW)));
        }
        assert_eq!(node(DIRECTORY.0), Node::Directory);
        assert_eq!(node(InodeNo::ROOT.0), Node::Live(InodeNo::ROOT));
        assert_eq!(node(MARK - 1), Node::Live(InodeNo(MARK - 1)));
        assert_eq!(node(MARK | 5), Node::Directory);
    }

    /// Programs take two files of one number for one.
    #[test]
    fn programs_see_a_number_of_53_bits_for_each_file() {
        let mut far = Far::default();
        let mut seen = HashSet::from([SHOWN_DIRECTORY]);
        let inodes = [1, 2, (1 << 32) - 1, 1 << 32, (1 << 32) + 1, 7 << 40].map(InodeNo);
        let mut number = |slot, inode| {
            let number = shown(slot, inode).or_else(|| far.shown(slot, inode).ok()).unwrap();
            assert!(number.0 < SAFE, "{number:?}");
            number
        };
        for slot in [1, 2, SLOTS - 1].map(Slot) {
            for inode in inodes {
                let first = number(slot, inode);
                assert!(seen.insert(first), "{slot:?} {inode:?}");
                assert_eq!(number(slot, inode), first, "it stays the same");
            }
        }
        far.retain(|slot| slot == Slot(2));
        let kept = far.places.len();
        assert_eq!((kept, far.taken.len()), (2, 2));
    }
}
