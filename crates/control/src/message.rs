//! What is asked of branches and snapshots, and what is answered: JSON, on its way between a command and a daemon.

use serde::{Deserialize, Serialize};

use crate::{Name, Which};

/// A question. What exists is named or numbered, what is made is named. A branch that is `None` is the one that is open: mounted, or the first of a volume at rest.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "a variant says what its fields are")]
pub enum Ask {
    /// Which branches there are with numbers above `after`.
    Branches { after: u64 },
    /// One of them.
    Branch { branch: Which },
    /// Which snapshots a branch has, with numbers above `after`.
    Snapshots { branch: Option<Which>, after: u64 },
    /// One of them.
    Snapshot { branch: Option<Which>, name: Which },
    /// Take a snapshot.
    Take { branch: Option<Which>, name: Name },
    /// Make a branch out of a snapshot, or of a branch as it is.
    Fork { branch: Option<Which>, snapshot: Option<Which>, name: Name },
    /// Take a branch back to a snapshot; what it was is kept under a name, or deleted.
    RollBack { branch: Option<Which>, to: Which, keep: Option<Name> },
    /// Have a branch become what a fork is, which goes; what it was is kept under a name, or deleted. `unchanged`: not if the
    /// branch has changed since the fork was made.
    Promote { branch: Option<Which>, fork: Which, keep: Option<Name>, unchanged: bool },
    /// Delete a snapshot; with a number only if it has that.
    DeleteSnapshot {
        branch: Option<Which>,
        name: Which,
        #[serde(default)]
        number: Option<u64>,
    },
    /// Give a snapshot another name.
    RenameSnapshot { branch: Option<Which>, name: Which, new_name: Name },
    /// Hold a snapshot under a tag, or end that hold.
    Hold { branch: Option<Which>, name: Which, tag: Name, held: bool },
    /// Delete a branch and its snapshots; with a number only if it has that.
    DeleteBranch {
        name: Which,
        #[serde(default)]
        number: Option<u64>,
    },
    /// Give a branch another name.
    RenameBranch { name: Which, new_name: Name },
    /// Limit the blocks that a branch refers to.
    LimitBranch { name: Which, blocks: Option<u64> },
    /// End the mount of a fork that lives as long as a command, and wait until the fork is closed.
    Release { name: Name },
}

impl Ask {
    /// Whether it only looks.
    pub fn only_looks(&self) -> bool {
        matches!(
            self,
            Ask::Branches { .. }
                | Ask::Branch { .. }
                | Ask::Snapshots { .. }
                | Ask::Snapshot { .. }
        )
    }

    /// Is about this branch, if it names none; a fork is made of this snapshot of it.
    pub fn or_of(&mut self, branch: u64, snapshot: Option<u64>) {
        if let Ask::Fork { branch: None, snapshot: of @ None, .. } = self {
            *of = snapshot.map(Which::from);
        }
        if let Some(meant @ None) = self.branch_mut() {
            *meant = Some(branch.into());
        }
    }

    /// Where it says which branch it is about, if it may leave that out.
    fn branch_mut(&mut self) -> Option<&mut Option<Which>> {
        match self {
            Ask::Snapshots { branch, .. }
            | Ask::Snapshot { branch, .. }
            | Ask::Take { branch, .. }
            | Ask::Fork { branch, .. }
            | Ask::RollBack { branch, .. }
            | Ask::Promote { branch, .. }
            | Ask::DeleteSnapshot { branch, .. }
            | Ask::RenameSnapshot { branch, .. }
            | Ask::Hold { branch, .. } => Some(branch),
            Ask::Branches { .. }
            | Ask::Branch { .. }
            | Ask::DeleteBranch { .. }
            | Ask::RenameBranch { .. }
            | Ask::LimitBranch { .. }
            | Ask::Release { .. } => None,
        }
    }

    /// Whether the answer depends on data that programs have in memory: pages of mapped files are handed over first.
    pub fn wants_pages(&self) -> bool {
        matches!(self, Ask::Take { .. } | Ask::RollBack { .. } | Ask::Promote { .. })
            || matches!(self, Ask::Fork { snapshot: None, .. })
    }
}

/// The answer.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "a variant says what its fields are")]
pub enum Reply {
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
    /// It is not done, and why: a sentence, and the number that a system call would have answered, if one is known.
    Refused {
        why: String,
        #[serde(default)]
        errno: Option<i32>,
    },
    /// The branch has changed since the fork was made that was to be promoted: it is not done.
    Diverged { why: String },
}

/// A branch, as it is listed.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Branch {
    /// Its name.
    pub name: Name,
    /// Its number.
    pub number: u64,
    /// Nanoseconds since 1970; nothing is known of the first branch.
    pub created_ns: Option<i64>,
    /// The snapshot of another branch that it was made of.
    pub origin: Option<Origin>,
    /// How many it has, without those that have no name.
    pub snapshots: u64,
    /// Bytes that it refers to.
    pub referenced_bytes: u64,
    /// Most bytes that it may refer to.
    pub limit_bytes: Option<u64>,
    /// It is mounted.
    pub mounted: bool,
}

/// A snapshot, as it is listed.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    /// Empty: it has none, and is kept for what grew out of it.
    pub name: Name,
    /// Its number.
    pub number: u64,
    /// When it was taken: nanoseconds since 1970.
    pub created_ns: i64,
    /// Its place in history.
    pub lsn: u64,
    /// The number of the snapshot that its branch had grown out of.
    pub parent: Option<u64>,
    /// While it has any, it is not deleted.
    pub holds: Vec<HeldBy>,
    /// What it is a copy of, if it was received: the snapshot that was sent, then those that this was a copy of.
    pub received: Vec<CopyOf>,
    /// Inodes in it.
    pub inodes: u64,
    /// Branches that grew out of it.
    pub forks: Vec<Name>,
    /// There are more of them than `forks` names.
    pub more_forks: bool,
    /// It is mounted.
    pub mounted: bool,
}

/// A snapshot of another volume.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct CopyOf {
    /// The id of the volume.
    pub volume: [u8; 16],
    /// Its number there.
    pub number: u64,
    /// Its place in history there.
    pub lsn: u64,
    /// When it was taken: nanoseconds since 1970.
    pub created_ns: i64,
}

/// A hold of a snapshot.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct HeldBy {
    /// The holder's tag.
    pub tag: Name,
    /// Since when: nanoseconds since 1970.
    pub created_ns: i64,
}

/// A deletion that has failed and waits. The first part of a list has some of them.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Failed {
    /// Of the snapshot, which has no name any more.
    pub number: u64,
    /// The branch that it was taken of, if that is there.
    pub branch: Option<Name>,
    /// A sentence.
    pub why: String,
}

/// A snapshot, as it is named elsewhere.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Origin {
    /// Its number.
    pub number: u64,
    /// The branch that it was taken of, if that is there.
    pub branch: Option<Name>,
    /// Empty if it has none.
    pub name: Name,
}
