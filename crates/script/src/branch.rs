//! Operations on branches and snapshots.
//!
//! A script begins in the branch `main`. `switch` goes to another one: the paths and handles of all operations that follow
//! are of that branch. Names of snapshots are those of the branch in which the script is.

use std::fmt::{self, Display, Formatter};

use crate::words::Word;

/// The name of a branch or snapshot: at least one byte, none of them `/`, `@`, `:` or a control character, and neither `.` nor `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeName(Vec<u8>);

impl TreeName {
    /// Most bytes that a filesystem takes.
    pub const MAX: usize = 255;

    /// The branch of a new volume.
    pub fn main() -> TreeName {
        TreeName(b"main".to_vec())
    }

    /// A name; `None` if no branch or snapshot can be called that, however short it is.
    pub fn new(bytes: impl AsRef<[u8]>) -> Option<TreeName> {
        let bytes = bytes.as_ref();
        let bad = |byte: &u8| b"/@:".contains(byte) || byte.is_ascii_control();
        // The control characters behind ASCII are two bytes in UTF-8.
        let has_more = bytes.windows(2).any(|pair| matches!(pair, [0xc2, 0x80..=0x9f]));
        let good = !matches!(bytes, b"" | b"." | b"..") && !bytes.iter().any(bad) && !has_more;
        good.then(|| TreeName(bytes.to_vec()))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Display for TreeName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Word(&self.0).fmt(f)
    }
}

impl fmt::Debug for TreeName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

/// One operation on branches and snapshots.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // The fields are named in the text beside them.
pub enum BranchOp {
    /// `switch BRANCH`: what follows is of that branch.
    Switch { branch: TreeName },
    /// `snapshot NAME`: the branch as it is now.
    Snapshot { name: TreeName },
    /// `fork BRANCH [SNAPSHOT]`: a new branch, as the snapshot is, or as the branch is now.
    Fork { branch: TreeName, from: Option<TreeName> },
    /// `newbranch BRANCH`: a new branch that has grown out of nothing: an empty root directory.
    NewBranch { branch: TreeName },
    /// `rollback SNAPSHOT [NAME]`: the branch becomes what the snapshot is. What it was is kept under the name, or gone.
    Rollback { to: TreeName, keep: Option<TreeName> },
    /// `promote FORK [NAME]`: the branch becomes what another one is, which is gone then; its snapshots are the branch's. What the
    /// branch was is kept under the name, or gone.
    Promote { fork: TreeName, keep: Option<TreeName> },
    /// `rmsnapshot NAME`
    RemoveSnapshot { name: TreeName },
    /// `rmbranch BRANCH`: with its snapshots. Not the one in which the script is.
    RemoveBranch { branch: TreeName },
    /// `mvsnapshot OLD NEW`
    RenameSnapshot { from: TreeName, to: TreeName },
    /// `mvbranch OLD NEW`
    RenameBranch { from: TreeName, to: TreeName },
    /// `hold SNAPSHOT [TAG]`: it cannot be removed until `unhold` was said of each tag. EEXIST if it was held under that.
    Hold { name: TreeName, tag: Option<TreeName> },
    /// `unhold SNAPSHOT [TAG]`: ENOENT, if it is not held under that.
    Unhold { name: TreeName, tag: Option<TreeName> },
    /// `branches`: their names, sorted, and in which the script is.
    Branches,
    /// `snapshots`: names, sorted.
    Snapshots,
    /// `look SNAPSHOT`: everything that is in it, as `tree` shows it.
    Look { name: TreeName },
}

impl BranchOp {
    /// The tag of a hold that says none.
    pub const TAG: &[u8] = b"hold";

    /// The tag of a hold.
    pub fn tag(tag: &Option<TreeName>) -> &[u8] {
        tag.as_ref().map_or(BranchOp::TAG, TreeName::as_bytes)
    }

    /// The names of branches of which it speaks.
    pub fn branches(&self) -> Vec<&TreeName> {
        match self {
            BranchOp::Switch { branch }
            | BranchOp::Fork { branch, .. }
            | BranchOp::NewBranch { branch }
            | BranchOp::RemoveBranch { branch } => vec![branch],
            BranchOp::Promote { fork, .. } => vec![fork],
            BranchOp::RenameBranch { from, to } => vec![from, to],
            _ => Vec::new(),
        }
    }

    /// The names of snapshots of which it speaks.
    pub fn snapshots(&self) -> Vec<&TreeName> {
        match self {
            BranchOp::Snapshot { name }
            | BranchOp::RemoveSnapshot { name }
            | BranchOp::Hold { name, .. }
            | BranchOp::Unhold { name, .. }
            | BranchOp::Look { name } => vec![name],
            BranchOp::Fork { from, .. } => from.iter().collect(),
            BranchOp::Promote { keep, .. } => keep.iter().collect(),
            BranchOp::Rollback { to, keep } => std::iter::once(to).chain(keep).collect(),
            BranchOp::RenameSnapshot { from, to } => vec![from, to],
            _ => Vec::new(),
        }
    }

    /// Whether it leaves all branches and snapshots as they are.
    pub fn only_looks(&self) -> bool {
        matches!(
            self,
            BranchOp::Switch { .. }
                | BranchOp::Branches
                | BranchOp::Snapshots
                | BranchOp::Look { .. }
        )
    }
}

impl Display for BranchOp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut words = |verb: &str, first: &TreeName, second: Option<&TreeName>| {
            write!(f, "{verb} {first}")?;
            second.map_or(Ok(()), |second| write!(f, " {second}"))
        };
        match self {
            BranchOp::Switch { branch } => words("switch", branch, None),
            BranchOp::Snapshot { name } => words("snapshot", name, None),
            BranchOp::Fork { branch, from } => words("fork", branch, from.as_ref()),
            BranchOp::NewBranch { branch } => words("newbranch", branch, None),
            BranchOp::Rollback { to, keep } => words("rollback", to, keep.as_ref()),
            BranchOp::Promote { fork, keep } => words("promote", fork, keep.as_ref()),
            BranchOp::RemoveSnapshot { name } => words("rmsnapshot", name, None),
            BranchOp::RemoveBranch { branch } => words("rmbranch", branch, None),
            BranchOp::RenameSnapshot { from, to } => words("mvsnapshot", from, Some(to)),
            BranchOp::RenameBranch { from, to } => words("mvbranch", from, Some(to)),
            BranchOp::Hold { name, tag } => words("hold", name, tag.as_ref()),
            BranchOp::Unhold { name, tag } => words("unhold", name, tag.as_ref()),
            BranchOp::Look { name } => words("look", name, None),
            BranchOp::Branches => f.write_str("branches"),
            BranchOp::Snapshots => f.write_str("snapshots"),
        }
    }
}
