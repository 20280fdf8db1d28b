//! For each finding what is done about it: the table in docs/FSCK.md.

use holdfast_check::Issue;

use crate::refuse::why_not;

/// What a repair does about a finding, or why it does nothing.
pub fn answer(issue: Issue) -> String {
    if let Some(why) = why_not(issue) {
        return match issue {
            Issue::NoSuperblock => "From the far copy, if that leads to whole trees, or to trees that can be repaired. Else not: without a superblock nothing says where anything is.".into(),
            _ => format!("Not: {why}."),
        };
    }
    done(issue).into()
}

const SUPERBLOCKS: &str = "Both slots, the far copy and the signpost are written anew.";
const SPACE: &str = "The space tree is made anew from what all trees reach.";
const NODE: &str = "The node is left out. What the trees beside it, its own leaves or older versions of it prove comes back; names that lead to nothing go.";
const COUNT: &str = "It is counted anew.";
const JOURNAL: &str =
    "With `--accept-loss`: journal and log end before the damage; files made behind it come back.";
const LOG: &str =
    "With `--accept-loss`: the log ends before the damage; files made behind it come back.";
const BATCH: &str =
    "With `--accept-loss`: the log ends before the batch; nothing behind it comes back.";
const LISTED: &str =
    "The items that lead to trees are made anew from what these say of themselves.";

const CUT: &str = "It grew out of nothing from now on, and gets copies of what it shares with others. If there is no room for these: with `--accept-loss`, it goes.";

fn done(issue: Issue) -> &'static str {
    match issue {
        Issue::SuperblockInvalid | Issue::FarCopyInvalid | Issue::NewestSuperblockLost => {
            SUPERBLOCKS
        }
        Issue::SuperblocksDisagree => {
            "With `--accept-loss`: the newer one counts, and the other slot is written anew."
        }
        Issue::Fault => "With `-d`, it is forgotten when nothing else is left.",
        Issue::NodeDamaged
        | Issue::NodeOutside
        | Issue::NodeTwice
        | Issue::NodeFromFuture
        | Issue::NodeOutOfBounds
        | Issue::NodeRange => NODE,
        Issue::ParentMissing | Issue::LineageCycle | Issue::RootAge => CUT,
        Issue::SnapshotEpoch => {
            "It gets the epoch of its root, or of the volume; what cannot have grown out of it gets copies of what it shares with others."
        }
        Issue::NodeUnreadable => {
            "With `--accept-loss`, as it may be read another time: as node-damaged."
        }
        Issue::ExtentYounger | Issue::ExtentBirth => "It is born with its leaf.",
        Issue::NodeCopyBad => "The bad place is written again from the other one.",
        Issue::ReferencedBlocks | Issue::InodeCount | Issue::BlocksWrong | Issue::DirectorySize => {
            COUNT
        }
        Issue::BlocksShared => "All owners but one get a copy.",
        Issue::BlocksNotMarked
        | Issue::BlocksLeaked
        | Issue::SpaceItemDamaged
        | Issue::SpaceItemOutside
        | Issue::GroupCount
        | Issue::UsedBlocks => SPACE,
        Issue::SettingUnknown => "It stays.",
        Issue::DataDamaged | Issue::DataUnreadable => {
            "Not: nothing says what it was. Reads of it go on to fail; take the file from a copy."
        }
        Issue::JournalDamaged
        | Issue::CommitMalformed
        | Issue::CommitBase
        | Issue::CommitNode
        | Issue::JournalUnreadable => JOURNAL,
        Issue::LogDamaged | Issue::BatchGap | Issue::LogUnreadable => LOG,
        Issue::BatchMalformed | Issue::BatchBlocks => BATCH,
        Issue::CommitBaseLost => {
            "The node is left out, as a damaged one; all else of the commits, and the log, stays."
        }
        Issue::JournalWiped => {
            "With `--accept-loss`: the volume is as its last checkpoint left it; files made since come back. Not all that changed is known."
        }
        Issue::LogWiped => {
            "With `--accept-loss`: the volume is as its last commit left it. Which files changed since is not known."
        }
        Issue::FramePlaceBad | Issue::BatchPlaceBad => {
            "The bad place is written again from the other one, with `-y`; where more is repaired, neither place is needed."
        }
        Issue::LineageItemDamaged => {
            "The item goes. A branch keeps its root and gets another name; a snapshot is lost."
        }
        Issue::BranchRoot => "A branch without a root is lost; a root without a branch goes.",
        Issue::ChildItem | Issue::TreeName => LISTED,
        Issue::DeletionWrong => {
            "A deletion that has not begun is given up, one that has begun comes to its end."
        }
        Issue::TreeNumber => "The next number is raised above it.",
        Issue::BranchMissing => "It becomes a snapshot of `main`.",
        of_files => done_to_files(of_files),
    }
}

fn done_to_files(issue: Issue) -> &'static str {
    match issue {
        Issue::ItemMisplaced | Issue::ItemDamaged => {
            "The item goes; of an inode, what breaks the rule is taken back."
        }
        Issue::ItemWithoutInode => {
            "Names make it a directory of root; data makes it a file in `lost+found`; all else goes."
        }
        Issue::InodeNumber => "The next number is raised above it; a reserved one goes.",
        Issue::InodeFields => "What its type cannot have becomes 0.",
        Issue::KindMisfit => "The items go.",
        Issue::ExtentUnaligned | Issue::ExtentsOverlap | Issue::ExtentOutside => "The extent goes.",
        Issue::ContentTwice => "The content inside the tree goes.",
        Issue::ContentWrong => {
            "The size becomes that of the content; a symbolic link without a target goes."
        }
        Issue::XattrPieces => {
            "An attribute without its whole value goes, and so do pieces of none."
        }
        Issue::XattrName => "It is put where it is found; the second of one name goes.",
        Issue::XattrFlag => "Flag and next number are set.",
        Issue::RootMissing => "It is made anew, empty but for names that belong to it.",
        Issue::DentryDangling => "The name goes.",
        Issue::DentryType => "The name says the type of its inode.",
        Issue::DentrySlot => "The name is put where it is found.",
        Issue::NameTwice => "The second one goes.",
        Issue::LinkCount => "It becomes what was found.",
        Issue::ParentWrong | Issue::NamePlace => "It becomes where the name is.",
        Issue::DirectoryNames => "It keeps the one that it knows.",
        Issue::Unreachable => "It goes to `lost+found`, by its number.",
        Issue::DirectoryCycle => "One of the circle goes to `lost+found`.",
        Issue::OrphanDangling | Issue::OrphanKey | Issue::PunchDangling | Issue::PunchKey => {
            "The item goes."
        }
        Issue::OrphanNamed => "It is listed no more; without a name it goes to `lost+found`.",
        Issue::OrphanUnlisted => "It is listed, and the next opening removes it.",
        other => unreachable!("{other:?} is refused, with a reason"),
    }
}
