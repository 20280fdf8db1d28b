//! What is asked of branches and snapshots, and what is answered: JSON, on its way between a command and a daemon.

use holdfast_base::Timestamp;
use serde::{Deserialize, Serialize};

use super::Name;

/// A question. A branch that is `None` is the one that is open: mounted, or the first of a volume at rest.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ask {
    /// Which branches there are with numbers above `after`.
    Branches { after: u64 },
    /// Which snapshots a branch has, with numbers above `after`.
    Snapshots { branch: Option<Name>, after: u64 },
    /// One of them.
    Snapshot { branch: Option<Name>, name: Name },
    /// Take a snapshot.
    Take { branch: Option<Name>, name: Name },
    /// Make a branch out of a snapshot, or of a branch as it is.
    Fork { branch: Option<Name>, snapshot: Option<Name>, name: Name },
    /// Take a branch back to a snapshot; what it was is kept under a name, or deleted.
    RollBack { branch: Option<Name>, to: Name, keep: Option<Name> },
    /// Have a branch become what a fork is, which goes; what it was is kept under a name, or deleted. `unchanged`: not if the
    /// branch has changed since the fork was made.
    Promote { branch: Option<Name>, fork: Name, keep: Option<Name>, unchanged: bool },
    /// Delete a snapshot; with a number only if it has that.
    DeleteSnapshot {
        branch: Option<Name>,
        name: Name,
        #[serde(default)]
        number: Option<u64>,
    },
    /// Give a snapshot another name.
    RenameSnapshot { branch: Option<Name>, name: Name, new_name: Name },
    /// Hold a snapshot, or end one hold.
    Hold { branch: Option<Name>, name: Name, held: bool },
    /// Delete a branch and its snapshots.
    DeleteBranch { name: Name },
    /// Give a branch another name.
    RenameBranch { name: Name, new_name: Name },
    /// Limit the blocks that a branch refers to.
    LimitBranch { name: Name, blocks: Option<u64> },
    /// End the mount of a fork that lives as long as a command, and wait until the fork is closed.
    Release { name: Name },
}

impl Ask {
    /// Whether it only looks.
    pub(crate) fn only_looks(&self) -> bool {
        matches!(self, Ask::Branches { .. } | Ask::Snapshots { .. } | Ask::Snapshot { .. })
    }

    /// Whether it is about the branch that is open, as it names none.
    pub(crate) fn means_what_is_mounted(&self) -> bool {
        match self {
            Ask::Snapshots { branch, .. }
            | Ask::Snapshot { branch, .. }
            | Ask::Take { branch, .. }
            | Ask::Fork { branch, .. }
            | Ask::RollBack { branch, .. }
            | Ask::Promote { branch, .. }
            | Ask::DeleteSnapshot { branch, .. }
            | Ask::RenameSnapshot { branch, .. }
            | Ask::Hold { branch, .. } => branch.is_none(),
            Ask::Branches { .. }
            | Ask::DeleteBranch { .. }
            | Ask::RenameBranch { .. }
            | Ask::LimitBranch { .. }
            | Ask::Release { .. } => false,
        }
    }

    /// Whether the answer depends on data that programs have in memory: pages of mapped files are handed over first.
    pub(crate) fn wants_pages(&self) -> bool {
        matches!(self, Ask::Take { .. } | Ask::RollBack { .. } | Ask::Promote { .. })
            || matches!(self, Ask::Fork { snapshot: None, .. })
    }
}

/// The answer.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    /// A part of the branches, and whether there are more.
    Branches {
        list: Vec<Branch>,
        more: bool,
        #[serde(default)]
        failed: Vec<Failed>,
    },
    /// A part of the snapshots of a branch, and whether there are more.
    Snapshots {
        branch: Name,
        list: Vec<Snapshot>,
        more: bool,
        #[serde(default)]
        failed: Vec<Failed>,
    },
    /// It is done: the branch that it was about, and the number of what was made.
    Done { branch: Name, number: Option<u64> },
    /// The branch has another head; whether the kernel has forgotten all that was.
    RolledBack { branch: Name, forgotten: bool },
    /// It is not done, and why.
    Refused { why: String },
    /// The branch has changed since the fork was made that was to be promoted: it is not done.
    Diverged { why: String },
}

/// A branch, as it is listed.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Branch {
    pub(crate) name: Name,
    pub(crate) number: u64,
    /// Nanoseconds since 1970; nothing is known of the first branch.
    pub(crate) created_ns: Option<i64>,
    /// The snapshot of another branch that it was made of.
    pub(crate) origin: Option<Origin>,
    /// How many it has, without those that have no name.
    pub(crate) snapshots: u64,
    /// Bytes that it refers to.
    pub(crate) referenced_bytes: u64,
    /// Most bytes that it may refer to.
    pub(crate) limit_bytes: Option<u64>,
    /// It is mounted.
    pub(crate) mounted: bool,
}

/// A snapshot, as it is listed.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Snapshot {
    /// Empty: it has none, and is kept for what grew out of it.
    pub(crate) name: Name,
    pub(crate) number: u64,
    pub(crate) created_ns: i64,
    /// Its place in history.
    pub(crate) lsn: u64,
    /// The number of the snapshot that its branch had grown out of.
    pub(crate) parent: Option<u64>,
    pub(crate) holds: u32,
    pub(crate) inodes: u64,
    /// Branches that grew out of it.
    pub(crate) forks: Vec<Name>,
    /// There are more of them than `forks` names.
    pub(crate) more_forks: bool,
    pub(crate) mounted: bool,
}

/// A deletion that has failed and waits. The first part of a list has some of them.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Failed {
    /// Of the snapshot, which has no name any more.
    pub(crate) number: u64,
    /// The branch that it was taken of, if that is there.
    pub(crate) branch: Option<Name>,
    pub(crate) why: String,
}

/// A snapshot, as it is named elsewhere.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Origin {
    pub(crate) number: u64,
    pub(crate) branch: Option<Name>,
    /// Empty if it has none.
    pub(crate) name: Name,
}

/// Nanoseconds since 1970, as far as they can be said.
pub(super) fn nanoseconds(time: Timestamp) -> i64 {
    time.secs.saturating_mul(1_000_000_000).saturating_add(i64::from(time.nanos))
}
