//! What a plain directory cannot do for itself: being mounted again.

use crate::errno::Errno;

/// What only the owner of a mount can do to it. Nothing of the target is open during a call.
pub trait Hooks {
    /// Unmounts cleanly and mounts again.
    fn remount(&mut self) -> Result<(), Errno>;
    /// Ends the filesystem without warning and mounts again.
    fn crash(&mut self) -> Result<(), Errno>;
    /// Drops caches.
    fn evict(&mut self) -> Result<(), Errno>;
}

/// For directories that nobody can unmount.
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
