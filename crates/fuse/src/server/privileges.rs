//! Set-id bits and file capabilities that a write clears.
//!
//! With KILLPRIV_V2 the kernel leaves this to the server and saves a look at the attributes for every write. But it
//! goes on believing the old mode, and would still run the file with the rights of its owner. So the kernel is told,
//! before the write is answered. This happens about never.
//!
//! The kernel clears capabilities itself, but not before writes that bypass its page cache, nor where a rollback has brought them
//! back.

use holdfast_base::{InodeNo, wait};
use holdfast_posix::{Caller, FileSystem, FsError, SetAttr};

use super::Server;
use crate::caller::Capability;
use crate::interface::{Answer, Request};

/// Set-user-id and set-group-id.
const SET_ID: u32 = 0o6000;
/// The attribute with the rights that a program gives to the users that run it.
const CAPABILITIES: &[u8] = b"security.capability";

impl Server {
    /// Whether the file has set-id bits.
    pub(super) fn has_privileges(&self, fs: &FileSystem, inode: InodeNo) -> bool {
        fs.getattr(inode).is_ok_and(|attr| attr.perm & SET_ID != 0)
    }

    /// Removes the capabilities of a file, as every write does, whichever user writes.
    pub(super) fn drop_capabilities(&self, fs: &FileSystem, inode: InodeNo) -> Answer<()> {
        match fs.getxattr(&Caller::root(), inode, CAPABILITIES) {
            Ok(_) => Ok(fs.removexattr(&Caller::root(), inode, CAPABILITIES)?),
            Err(FsError::NoAttribute) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The same where the kernel does not know that files have any, or that this one has some since a rollback, and so clears none
    /// itself.
    pub(super) fn drop_unseen_capabilities(&self, fs: &FileSystem, inode: InodeNo) -> Answer<()> {
        let turn = fs.turns();
        let is_unsure = self.rolled_back.may_have_capabilities(inode);
        if is_unsure || !self.has_xattrs() {
            self.drop_capabilities(fs, inode)?;
        }
        if is_unsure {
            self.rolled_back.has_no_capabilities(inode, turn);
        }
        Ok(())
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
