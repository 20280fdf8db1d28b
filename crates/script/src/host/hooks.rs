//! What a plain directory cannot do for itself: being mounted again.

use crate::errno::Errno;

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
