//! The calls on branches that a script needs of the engine.
//!
//! This is the one place that names them. What the engine does not have answers "not supported", and scripts with branches
//! leave such a volume alone ([`super::Engine::has_branches`]).

use holdfast_posix::{FileSystem, FsError, MountOptions};

/// Names as the engine gives them.
type Names = Vec<Vec<u8>>;

/// A mounted branch of a volume.
pub(super) trait Branching: Sized {
    /// The branch that it is.
    fn branch_name(&self) -> Result<Vec<u8>, FsError> {
        Err(FsError::NotSupported)
    }

    /// All branches.
    fn branch_names(&self) -> Result<Names, FsError> {
        Err(FsError::NotSupported)
    }

    /// All snapshots of the branch that have a name.
    fn snapshot_names(&self) -> Result<Names, FsError> {
        Err(FsError::NotSupported)
    }

    /// Keeps the branch as it is now.
    fn take_snapshot(&self, _name: &[u8]) -> Result<(), FsError> {
        Err(FsError::NotSupported)
    }

    /// A new branch, from a snapshot of this one or from this one as it is now.
    fn fork_branch(&self, _branch: &[u8], _from: Option<&[u8]>) -> Result<(), FsError> {
        Err(FsError::NotSupported)
    }

    /// Goes back to a snapshot; what the branch was gets a name, or goes.
    fn roll_back(&self, _to: &[u8], _keep: Option<&[u8]>) -> Result<(), FsError> {
        Err(FsError::NotSupported)
    }

    /// Removes a snapshot. What that frees may come free later.
    fn remove_snapshot(&self, _name: &[u8]) -> Result<(), FsError> {
        Err(FsError::NotSupported)
    }

    /// Removes another branch with its snapshots.
    fn remove_branch(&self, _branch: &[u8]) -> Result<(), FsError> {
        Err(FsError::NotSupported)
    }

    /// Gives a snapshot another name.
    fn move_snapshot(&self, _from: &[u8], _to: &[u8]) -> Result<(), FsError> {
        Err(FsError::NotSupported)
    }

    /// Gives a branch another name.
    fn move_branch(&self, _from: &[u8], _to: &[u8]) -> Result<(), FsError> {
        Err(FsError::NotSupported)
    }

    /// Keeps a snapshot from being removed, or lets it go.
    fn hold_snapshot(&self, _name: &[u8], _held: bool) -> Result<(), FsError> {
        Err(FsError::NotSupported)
    }

    /// Mounts another branch of the volume.
    fn mount_branch(&self, _name: &[u8], _options: MountOptions) -> Result<Self, FsError> {
        Err(FsError::NotSupported)
    }

    /// Shows a snapshot of the branch.
    fn mount_snapshot(&self, _name: &[u8]) -> Result<Self, FsError> {
        Err(FsError::NotSupported)
    }

    /// Goes on with removals until nothing is left of what was removed. Without branches there is nothing to do.
    fn finish_removals(&self) -> Result<(), FsError> {
        Ok(())
    }
}

impl Branching for FileSystem {}
