//! Handles.

use std::sync::{Arc, Weak};

use holdfast_base::InodeNo;
use holdfast_store::StoreError;

use crate::allow::Deed;
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
    /// It lives for one call from above, where the file is kept open.
    is_lent: bool,
}

impl OpenFile {
    /// Opens `inode`. The caller has checked that it is alive, and has counted the handle.
    pub(crate) fn counted(core: &Arc<Core>, inode: Arc<Inode>, flags: OpenFlags) -> Arc<OpenFile> {
        Arc::new(OpenFile {
            core: Arc::downgrade(core),
            errors: inode.errors.sample(),
            inode,
            flags,
            is_lent: false,
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
        if state.handles == 0 && !self.is_lent {
            // No handle is left that wrote the lost bytes.
            self.inode.lost.forget_all();
        }
        let Some(core) = core.filter(|_| !state.gone) else {
            return;
        };
        if state.is_unreachable() {
            state.gone = true;
            drop(state);
            core.collect_soon(&self.inode);
        } else if state.handles == 0 {
            crate::orphan::note_if_leaving(&core, &self.inode, &state);
        }
    }
}

impl FileSystem {
    /// Opens a regular file; with TRUNCATE it is emptied, also if it is opened for reading only. That needs the same permission.
    pub fn open(&self, caller: &Caller, inode: InodeNo, flags: OpenFlags) -> Result<Arc<OpenFile>> {
        let inode = self.core.inode(inode)?;
        self.open_inode(caller, inode, flags)
    }

    /// A handle for one call, of a file that the layer above has opened with checked permissions. It knows nothing of
    /// earlier calls: each fsync fails while bytes of the file are lost, but once they were written again only the first
    /// fsync reports an error that none has, through any handle (less than P7).
    pub fn lend(&self, inode: InodeNo, flags: OpenFlags) -> Result<Arc<OpenFile>> {
        let inode = self.core.inode(inode)?;
        inode.expect_regular()?;
        let flags = match self.core.options.read_only {
            true => flags.difference(OpenFlags::WRITE),
            false => flags,
        };
        {
            let mut state = inode.state.write();
            state.expect_alive()?;
            state.handles += 1;
        }
        let errors = inode.errors.sample();
        Ok(Arc::new(OpenFile {
            core: Arc::downgrade(&self.core),
            errors,
            inode,
            flags,
            is_lent: true,
        }))
    }

    /// What `file` has may be read by others than [`FileSystem::read`], from what they have kept of it: as a read, this moves the access
    /// time if that is due. Returns whether it has.
    pub fn accessed(&self, file: &OpenFile) -> bool {
        let how = file.flags();
        how.contains(OpenFlags::READ)
            && !how.contains(OpenFlags::NOATIME)
            && atime::touch(&self.core, &file.inode)
    }

    pub(crate) fn open_inode(
        &self,
        caller: &Caller,
        inode: Arc<Inode>,
        flags: OpenFlags,
    ) -> Result<Arc<OpenFile>> {
        let core = &self.core;
        inode.expect_regular()?;
        let truncates = flags.contains(OpenFlags::TRUNCATE);
        let writes = flags.contains(OpenFlags::WRITE);
        let changes = writes || truncates;
        let mut wanted = Access::empty();
        wanted.set(Access::READ, flags.contains(OpenFlags::READ));
        wanted.set(Access::WRITE, changes);
        let set_id = {
            let mut state = inode.state.write();
            state.expect_alive()?;
            if changes {
                let may_be_mapped = flags.contains(OpenFlags::READ);
                let appends = flags.contains(OpenFlags::APPEND)
                    || flags.contains(OpenFlags::APPENDS) && !may_be_mapped;
                let appends = appends && !truncates;
                allow::expect_changeable(&state.attr, Deed::adding(appends))?;
            }
            allow::expect(core, caller, inode.no, &state.attr, wanted)?;
            if flags.contains(OpenFlags::NOATIME) {
                caller.expect_owner(&state.attr)?;
            }
            if changes && core.options.read_only {
                return Err(StoreError::ReadOnly.into());
            }
            if state.handles == 0 {
                // The handles that wrote the lost bytes are closed: only the error is kept for the next one (P7).
                inode.lost.forget_all();
            }
            state.handles += 1;
            perm::without_set_id(state.attr.mode) != state.attr.mode
        };
        let file = OpenFile::counted(core, inode, flags);
        if truncates {
            let change = SetAttr {
                size: Some(0),
                // For callers that the kernel has checked, the kernel asks for this itself.
                kill_suid_sgid: set_id && !caller.trusted && !caller.is_root(),
                ..SetAttr::default()
            };
            // A handle for reading only says nothing about writing; the permission was checked above.
            let by = writes.then_some(&*file);
            self.setattr(caller, file.inode.no, by, change)?;
        }
        Ok(file)
    }
}
