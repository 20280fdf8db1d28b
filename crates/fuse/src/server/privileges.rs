//! Set-id bits and file capabilities that a write clears.
//!
//! With KILLPRIV_V2 the kernel leaves this to the server and saves a look at the attributes for every write. But it
//! goes on believing the old mode, and would still run the file with the rights of its owner. So the kernel is told,
//! before the write is answered. This happens about never.
//!
//! The kernel clears capabilities itself, but not before writes that bypass its page cache, nor where a rollback has brought them
//! back.

use holdfast_base::{InodeNo, wait};
use holdfast_posix::{Caller, FileSystem, SetAttr};

use super::Server;
use crate::caller::Capability;
use crate::interface::{Answer, Request};

/// Set-user-id and set-group-id.
const SET_ID: u32 = 0o6000;

impl Server {
    /// Whether the file has set-id bits.
    pub(super) fn has_privileges(&self, fs: &FileSystem, inode: InodeNo) -> bool {
        fs.getattr(inode).is_ok_and(|attr| attr.perm & SET_ID != 0)
    }

    /// Whether a file may have capabilities that a write takes away, and the kernel does not: it does not know that files have any, or
    /// that this one has some since a rollback.
    pub(super) fn may_hide_capabilities(&self, inode: InodeNo) -> bool {
        !self.has_xattrs() || self.rolled_back.may_have_capabilities(inode)
    }

    /// Removes the capabilities of a file that was changed, whichever user did that, where the kernel does not.
    pub(super) fn drop_unseen_capabilities(&self, fs: &FileSystem, inode: InodeNo) -> Answer<()> {
        let turn = fs.turns();
        if self.may_hide_capabilities(inode) {
            fs.drop_capabilities(inode)?;
            self.has_no_capabilities(inode, turn);
        }
        Ok(())
    }

    /// They were taken away behind this turn.
    pub(super) fn has_no_capabilities(&self, inode: InodeNo, turn: u64) {
        if self.rolled_back.may_have_capabilities(inode) {
            self.rolled_back.has_no_capabilities(inode, turn);
        }
    }

    /// Clears the set-id bits, as a write by an unprivileged user does.
    pub(super) fn drop_privileges(&self, fs: &FileSystem, inode: InodeNo) -> Answer<()> {
        if self.has_privileges(fs, inode) {
            let change = SetAttr { kill_suid_sgid: true, ..SetAttr::default() };
            fs.setattr(&Caller::root(), inode, None, change)?;
            self.tell_attr_changed(inode);
        }
        Ok(())
    }

    /// The same for a change of which the kernel does not say whether it clears them: not if root makes it.
    pub(super) fn drop_privileges_for(
        &self,
        request: &Request,
        fs: &FileSystem,
        inode: InodeNo,
    ) -> Answer<()> {
        if self.has_privileges(fs, inode) && !self.is_capable(request, Capability::KeepSetId) {
            self.drop_privileges(fs, inode)?;
        }
        Ok(())
    }

    /// Has the kernel read the attributes of `inode` again.
    pub(super) fn tell_attr_changed(&self, inode: InodeNo) {
        if let Some(kernel) = self.kernel.get() {
            // The kernel may send a request before it takes the message.
            wait::will_wait();
            kernel.attr_changed(inode.0);
        }
    }
}
