//! What a plain directory cannot do for itself: being mounted again.

use crate::branch::{BranchOp, TreeName};
use crate::errno::Errno;
use crate::outcome::Answer;

/// What only the owner of a mount can do to it. Nothing of the target is open during a
/// call that mounts.
pub trait Hooks {
    /// Unmounts cleanly and mounts again.
    fn remount(&mut self) -> Result<(), Errno>;
    /// Ends the filesystem without warning and mounts again.
    fn crash(&mut self) -> Result<(), Errno>;
    /// Drops caches. Files stay open.
    fn evict(&mut self) -> Result<(), Errno>;
    /// Makes everything durable, after syncfs: the kernel does not pass that on to every filesystem.
    /// Files stay open.
    fn sync(&mut self) -> Result<(), Errno> {
        Ok(())
    }

    /// Whether [`Hooks::branch`] and what belongs to it work. Without, such operations are refused.
    fn has_branches(&self) -> bool {
        false
    }

    /// An operation on branches and snapshots, but [`BranchOp::Look`]. Files stay open, except for [`BranchOp::Switch`],
    /// behind which the directory shows the other branch.
    fn branch(&mut self, op: &BranchOp) -> Result<Answer, Errno> {
        let _ = op;
        Err(Errno::EOPNOTSUPP)
    }

    /// From here on the directory shows this snapshot of the branch.
    fn look(&mut self, name: &TreeName) -> Result<(), Errno> {
        let _ = name;
        Err(Errno::EOPNOTSUPP)
    }

    /// The directory shows the branch again.
    fn look_away(&mut self) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }
}

/// For directories that cannot be unmounted.
#[derive(Clone, Copy, Debug)]
pub struct NoHooks;

impl Hooks for NoHooks {
    fn remount(&mut self) -> Result<(), Errno> {
        Ok(())
    }
    fn crash(&mut self) -> Result<(), Errno> {
        Ok(())
    }
    fn evict(&mut self) -> Result<(), Errno> {
        Ok(())
    }
}
