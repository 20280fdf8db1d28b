//! Attributes, permissions, space.

use std::time::Duration;

use holdfast_base::InodeNo;
use holdfast_posix::{Access, Attr, FileType, SetAttr, StatFs};

use super::Server;
use crate::flags;
use crate::interface::{Answer, FileId, Request};
use crate::statistics::Operation;

impl Server {
    /// The attributes, and how long they may be believed.
    pub fn getattr(&self, inode: InodeNo) -> Answer<(Attr, Duration)> {
        let _timed = self.timed(Operation::Stat);
        Ok((self.fs()?.getattr(inode)?, self.options.ttl))
    }

    /// Changes attributes. With KILLPRIV_V2 the kernel leaves it to us to take set-id bits away, and says when a new
    /// size does so.
    pub fn setattr(
        &self,
        request: &Request,
        inode: InodeNo,
        fh: Option<u64>,
        mut change: SetAttr,
    ) -> Answer<(Attr, Duration)> {
        let _timed = self.timed(Operation::Attributes);
        let fs = self.fs()?;
        let file = |fh| self.file(&fs, FileId { inode, fh, flags: 0 });
        let handle = fh.map(file).transpose()?;
        if self.options.owners.is_view() {
            change = self.options.owners.stored(&fs.getattr(inode)?, change)?;
        }
        let file = handle.as_ref().map(|handle| &*handle.file);
        let turn = fs.turns();
        let takes_capabilities =
            change.uid.is_some() || change.gid.is_some() || change.size.is_some();
        change.kill_capabilities = takes_capabilities && self.may_hide_capabilities(inode);
        if change.uid.is_some() || change.gid.is_some() {
            // A new owner clears the bits of everything but directories, whichever user sets it.
            change.kill_suid_sgid = fs.getattr(inode)?.file_type != FileType::Directory;
        }
        let attr = fs.setattr(&self.caller(&fs, request)?, inode, file, change)?;
        if change.kill_capabilities {
            self.has_no_capabilities(inode, turn);
        }
        Ok((attr, self.options.ttl))
    }

    /// Whether the caller may do what `mask` says. Only asked when the kernel does not check itself.
    pub fn access(&self, request: &Request, inode: InodeNo, mask: i32) -> Answer<()> {
        let _timed = self.timed(Operation::Other);
        let fs = self.fs()?;
        Ok(fs.access(&self.caller(&fs, request)?, inode, flags::access(mask)?)?)
    }

    /// Whether a squashed caller may list the directory. The kernel sends no question of its own for that: of any other caller it has
    /// checked it.
    pub(crate) fn expect_to_list(&self, request: &Request, dir: InodeNo) -> Answer<()> {
        if !self.options.owners.squashes(request.uid) {
            return Ok(());
        }
        let fs = self.fs()?;
        Ok(fs.access(&self.caller(&fs, request)?, dir, Access::READ)?)
    }

    /// Space and inodes.
    pub fn statfs(&self) -> Answer<StatFs> {
        let _timed = self.timed(Operation::Other);
        Ok(self.fs()?.statfs())
    }
}
