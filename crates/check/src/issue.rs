//! Every finding that a check can report: number, slug, severity and sentence, declared once.
//!
//! The hundreds of a number are the number of the pass that reports it; what concerns a branch or snapshot beside `main`,
//! the pass over those reports with the numbers of passes 3, 5, 6 and 7.
//! Numbers and slugs are permanent: scripts match on them. A number that is no
//! longer reported is never given to something else.

use serde::Serialize;

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing, and allowed: the volume is clean all the same.
    Note,
    /// Wrong, but nothing is lost or in danger: a count, a leak.
    Warning,
    /// Something is lost, or would be lost or overwritten by going on.
    Error,
}

macro_rules! issues {
    ($($number:literal $name:ident $slug:literal $severity:ident $sentence:literal)*) => {
        /// What can be wrong with a volume.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u16)]
        pub enum Issue {
            $(#[doc = $sentence] $name = $number,)*
        }

        impl Issue {
            /// Every issue, in the order of the numbers.
            pub const ALL: &[Issue] = &[$(Issue::$name,)*];

            /// Its name for scripts.
            pub fn slug(self) -> &'static str {
                match self { $(Issue::$name => $slug,)* }
            }

            /// How bad it is.
            pub fn severity(self) -> Severity {
                match self { $(Issue::$name => Severity::$severity,)* }
            }

            /// What it means.
            pub fn sentence(self) -> &'static str {
                match self { $(Issue::$name => $sentence,)* }
            }
        }
    };
}

impl Issue {
    /// Its permanent number.
    pub fn number(self) -> u16 {
        self as u16
    }

    /// The issue with this number.
    pub fn from_number(number: u16) -> Option<Issue> {
        Issue::ALL.iter().copied().find(|issue| issue.number() == number)
    }
}

issues! {
    101 SuperblockInvalid "superblock-invalid" Note
        "One superblock slot is not valid; the other one counts. A power cut while it was written leaves it so."
    102 NoSuperblock "no-superblock" Error
        "Neither superblock slot is valid, although this was a Holdfast volume. The far copy may lead to it."
    103 SuperblocksDisagree "superblocks-disagree" Error
        "The two superblocks differ in something that never changes, or claim the same epoch with different content."
    104 VolumeCutShort "volume-cut-short" Error
        "The device is shorter than the volume."
    105 FeaturesUnknown "features-unknown" Note
        "The volume has features that this program does not know; it may misjudge what belongs to them."
    106 CounterHigh "counter-high" Error
        "A counter is nearer to its end than any real volume gets; a little further on, the volume can be read, but not written."
    107 FarCopyInvalid "far-copy-invalid" Note
        "The far copy of the superblock, at the volume's end, or the signpost to it is not valid. The next mount writes them again."
    108 Fault "fault" Warning
        "A program that had the volume open found something damaged, and said so in the superblock."
    109 NewestSuperblockLost "newest-superblock-lost" Error
        "The newer superblock slot is not valid, and only the far copy leads to what it led to."

    201 NodeUnreadable "node-unreadable" Error
        "The device could not read a tree node."
    202 NodeDamaged "node-damaged" Error
        "A tree node is not what its parent says, or breaks a rule of the format."
    203 NodeOutside "node-outside" Error
        "A pointer to a tree node leads out of the data zone or is not aligned."
    204 NodeTwice "node-twice" Error
        "A tree node has two parents."
    205 NodeFromFuture "node-from-future" Error
        "A tree node is younger than its parent or the superblock."
    206 NodeOutOfBounds "node-out-of-bounds" Error
        "A tree node holds keys that do not belong below its parent's separators."
    207 ItemMisplaced "item-misplaced" Error
        "An item's kind does not belong into this tree."
    208 NodeRange "node-range" Error
        "A tree node has another range of keys or level in one tree than in another that shares it."
    209 ExtentYounger "extent-younger" Error
        "An extent is younger than the leaf that holds it."
    210 ReferencedBlocks "referenced-blocks" Warning
        "A branch or snapshot does not count the blocks that it refers to."
    211 NodeCopyBad "node-copy-bad" Warning
        "A tree node is stored twice, and one of the two places does not hold it; the other one counts."

    301 ItemDamaged "item-damaged" Error
        "An item breaks a rule of the format."
    302 ItemWithoutInode "item-without-inode" Error
        "Items belong to an inode that does not exist."
    303 InodeNumber "inode-number" Error
        "An inode's number was never given out, is reserved, or its key is malformed."
    304 InodeFields "inode-fields" Error
        "Fields of an inode do not fit its type."
    305 KindMisfit "kind-misfit" Error
        "An inode has items that its type cannot have."
    306 ExtentUnaligned "extent-unaligned" Error
        "An extent does not begin at a multiple of the block size, or ends beyond the largest file."
    307 ExtentsOverlap "extents-overlap" Error
        "Two extents of a file cover the same bytes of it."
    308 ExtentOutside "extent-outside" Error
        "An extent lies outside the data zone."
    309 BlocksWrong "blocks-wrong" Warning
        "An inode's number of blocks is not that of its extents."
    310 ContentTwice "content-twice" Error
        "A file has inline content and extents."
    311 ContentWrong "content-wrong" Error
        "Inline content or a symbolic link's target does not fit the inode's size."
    312 XattrPieces "xattr-pieces" Error
        "The pieces of a long attribute value are incomplete, or belong to no attribute."
    313 XattrName "xattr-name" Error
        "An attribute lies in the wrong hash slot, or its name occurs twice."
    314 XattrFlag "xattr-flag" Error
        "An inode has attributes but its flag says that it has none, or a value's id was never given out."
    315 InodeCount "inode-count" Warning
        "The superblock's number of inodes is wrong."
    316 ExtentBirth "extent-birth" Error
        "An extent became part of the tree in an epoch that is still to come, or in none."

    401 BlocksShared "blocks-shared" Error
        "Blocks belong to more owners than are counted."
    402 BlocksNotMarked "blocks-not-marked" Error
        "Blocks in use are marked free and may be overwritten."
    403 BlocksLeaked "blocks-leaked" Warning
        "Blocks are marked in use but belong to nobody."
    404 SpaceItemDamaged "space-item-damaged" Error
        "An item of the space tree breaks a rule of the format."
    405 SpaceItemOutside "space-item-outside" Error
        "A group, a bitmap or a marked block lies outside the data zone."
    406 GroupCount "group-count" Warning
        "A block group does not count its blocks, or the references to them."
    407 UsedBlocks "used-blocks" Warning
        "The superblock's number of blocks in use is wrong."
    408 SettingUnknown "setting-unknown" Note
        "The volume has a setting that this program does not know."

    501 RootMissing "root-missing" Error
        "There is no root directory."
    502 DentryDangling "dentry-dangling" Error
        "A name leads to an inode that does not exist."
    503 DentryType "dentry-type" Error
        "A name says another file type than its inode."
    504 DentrySlot "dentry-slot" Error
        "A name lies in the wrong hash slot, where no look-up finds it."
    505 NameTwice "name-twice" Error
        "A directory holds a name twice."
    506 DirectorySize "directory-size" Warning
        "A directory's size is not its number of entries."
    507 LinkCount "link-count" Error
        "An inode's link count is not its number of names."
    508 ParentWrong "parent-wrong" Error
        "A directory does not know the directory that holds it."
    509 DirectoryNames "directory-names" Error
        "A directory has more than one name."
    510 Unreachable "unreachable" Error
        "No name leads to an inode that should have one."
    511 DirectoryCycle "directory-cycle" Error
        "A directory is its own ancestor."
    512 NamePlace "name-place" Warning
        "An inode says where its newest name is, and there is no name of it there."

    601 OrphanDangling "orphan-dangling" Error
        "An orphan item names an inode that does not exist."
    602 OrphanNamed "orphan-named" Error
        "An orphan item names an inode that has links or names."
    603 OrphanUnlisted "orphan-unlisted" Error
        "An inode has no link and is not listed as an orphan, so that it will never be collected."
    604 OrphanKey "orphan-key" Error
        "An orphan item has a malformed key."
    605 PunchDangling "punch-dangling" Error
        "A hole is listed as being made in something that is no regular file, or does not exist."
    606 PunchKey "punch-key" Error
        "The item of a hole that is being made has a malformed key."

    701 DataDamaged "data-damaged" Error
        "Data of a file does not match its checksum."
    702 DataUnreadable "data-unreadable" Error
        "The device could not read data of a file."

    801 JournalDamaged "journal-damaged" Error
        "A commit of the journal is missing or damaged, although a later frame proves that it was durable."
    802 CommitMalformed "commit-malformed" Error
        "A commit of the journal is whole, but breaks a rule of the format."
    803 CommitBase "commit-base" Error
        "A commit of the journal changes or copies a node that is not there, or not what the commit says."
    804 CommitNode "commit-node" Error
        "A node that the commits of the journal make is not valid."
    805 JournalUnreadable "journal-unreadable" Error
        "The device could not read a part of the journal; what commits changed from there on is left out."
    806 FramePlaceBad "frame-place-bad" Note
        "A frame of the journal stands at two places, and one does not hold it; the other one counts. The next mount for writing needs neither."
    807 JournalWiped "journal-wiped" Error
        "The journal was used, and nothing is where the superblock says that it goes on: it was overwritten, with what followed."
    808 CommitBaseLost "commit-base-lost" Error
        "A commit of the journal builds on a node that is damaged. The node that it makes is lost; all else counts."

    901 LogDamaged "log-damaged" Error
        "A batch of the log is missing or damaged, although a later one proves that it was durable."
    902 BatchMalformed "batch-malformed" Error
        "A batch of the log is whole, but breaks a rule of the format."
    903 BatchGap "batch-gap" Error
        "A batch of the log builds on operations that are in no batch and no commit before it."
    904 BatchBlocks "batch-blocks" Error
        "A batch of the log takes blocks in use, builds on blocks that are not, or gives back what is not its to give."
    905 LogUnreadable "log-unreadable" Error
        "The device could not read a part of the log; what batches there changed is left out."
    906 BatchPlaceBad "batch-place-bad" Note
        "A batch of the log stands at two places, and one does not hold it; the other one counts. The next mount for writing needs neither."
    907 LogWiped "log-wiped" Error
        "The log was used, and nothing is where the last commit says that it goes on: it was overwritten, with what followed."

    1001 LineageItemDamaged "lineage-item-damaged" Error
        "An item of branches and snapshots breaks a rule of the format."
    1002 BranchRoot "branch-root" Error
        "A branch has no root, or a root belongs to no branch."
    1003 ParentMissing "parent-missing" Error
        "A branch or snapshot grew out of something that does not exist, or is no snapshot."
    1004 LineageCycle "lineage-cycle" Error
        "A snapshot is its own ancestor."
    1005 ChildItem "child-item" Error
        "What grew out of a snapshot is not listed there, or something is listed that did not."
    1006 TreeName "tree-name" Error
        "A branch or snapshot is not found by its name, or something else is, or two have one name."
    1007 SnapshotEpoch "snapshot-epoch" Error
        "A snapshot is older than the one it grew out of, or younger than the volume."
    1008 RootAge "root-age" Error
        "The root of a branch or snapshot is neither that of the snapshot it grew out of, nor younger than that."
    1009 DeletionWrong "deletion-wrong" Error
        "A deletion goes on of what is no snapshot, has a name or holds, or must wait."
    1010 TreeNumber "tree-number" Error
        "A branch or snapshot has a number that was never given out."
    1011 BranchMissing "branch-missing" Error
        "A snapshot with a name is of a branch that does not exist."
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::PASSES;

    #[test]
    fn numbers_ascend_slugs_differ_and_every_hundred_is_a_pass() {
        assert!(Issue::ALL.windows(2).all(|pair| pair[0].number() < pair[1].number()));
        let mut slugs: Vec<_> = Issue::ALL.iter().map(|issue| issue.slug()).collect();
        slugs.sort_unstable();
        slugs.dedup();
        assert_eq!(slugs.len(), Issue::ALL.len());
        for issue in Issue::ALL {
            assert!(PASSES.iter().any(|pass| pass.number == issue.number() / 100));
            assert_eq!(Issue::from_number(issue.number()), Some(*issue));
        }
    }
}
