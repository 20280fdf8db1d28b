//! Another head for a branch, and whether those who remember the one before have heard of it.

use crate::{FileSystem, Result, Which};

/// Another head for a branch. What the branch was is kept as a snapshot of the name `keep`, or deleted.
#[derive(Clone, Copy, Debug)]
pub enum NewHead<'a> {
    /// That of one of its snapshots: a rollback.
    Snapshot {
        /// The snapshot.
        to: Which<'a>,
        /// The name for what the branch was.
        keep: Option<&'a [u8]>,
    },
    /// That of a fork, which is promoted.
    Fork {
        /// The fork.
        fork: Which<'a>,
        /// The name for what the branch was.
        keep: Option<&'a [u8]>,
        /// Only if the branch has not changed since the fork was made.
        unchanged: bool,
    },
}

impl NewHead<'_> {
    /// Gives it to the branch of this number.
    ///
    /// # Errors
    /// As of [`FileSystem::rollback_of`] and [`FileSystem::promote`].
    pub fn give(self, fs: &FileSystem, branch: u64) -> Result<()> {
        match self {
            NewHead::Snapshot { to, keep } => fs.rollback_of(branch, to, keep),
            NewHead::Fork { fork, keep, unchanged } => fs.promote(branch, fork, keep, unchanged),
        }
    }
}

/// What is known of a new head where the branch is open: a kernel remembers what it has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Told {
    /// Everything: no program sees what was.
    All,
    /// It is still being told, and programs may see some of what was.
    NotYet,
}
