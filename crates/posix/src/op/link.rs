//! More names for an inode.

use holdfast_base::{InodeNo, Timestamp};
use holdfast_format::Key;
use holdfast_format::item::FileType;
use holdfast_format::limits::LINK_MAX;
use holdfast_store::{Need, Transaction};

use crate::allow::Deed;
use crate::inode::Locked;
use crate::*;

impl FileSystem {
    /// Gives `inode` one more name. Directories may not have two. An O_TMPFILE inode gets its first, and after a crash has its data under
    /// it (P4): what is seen under a name for the first time is whole.
    pub fn link(
        &self,
        caller: &Caller,
        inode: InodeNo,
        parent: InodeNo,
        name: &[u8],
    ) -> Result<Attr> {
        let _inside = self.core.gate.enter();
        let core = &*self.core;
        names::check_name(name, FsError::Exists)?;
        let dir = core.inode(parent)?;
        dir.expect_directory()?;
        let child = core.inode(inode)?;
        if child.state.read().disk.nlink == 0 {
            crate::data::writeback::write_back_for_log(core, &child)?;
            match child.errors.unseen() {
                Some(error) => return Err(error),
                None => crate::op::sync::expect_nothing_lost(core, &child)?,
            }
        }
        let reserved = core.reserve(Need::Grow { changes: 4, blocks: 0 });
        let mut again = core.directory_log.prepare(&core.store, &[parent]);

        let mut locked = Locked::of(&[&dir, &child]);
        let dir_state = &locked.get(parent).state;
        dir_state.expect_named()?;
        allow::expect(core, caller, parent, &dir_state.attr, Access::EXECUTE)?;
        let offset = names::find_vacant(core, parent, name)?;
        if child.file_type == FileType::Directory {
            return Err(FsError::NotPermitted);
        }
        allow::expect_changeable(&dir_state.attr, Deed::Adds)?;
        allow::expect(core, caller, parent, &dir_state.attr, Access::WRITE)?;
        let state = &locked.get(inode).state;
        state.expect_alive()?;
        allow::expect_changeable(&state.attr, Deed::Changes)?;
        let is_first = state.disk.nlink == 0;
        if is_first && !state.linkable {
            return Err(FsError::NotFound);
        }
        if state.disk.nlink >= LINK_MAX {
            return Err(FsError::TooManyLinks);
        }
        let mut reservation = reserved?;
        again.log(&core.directory_log, &core.store, &core.counters, &[parent])?;

        let now = Timestamp::now();
        let draft = locked.draft(inode);
        draft.nlink += 1;
        draft.ctime = now;
        (draft.parent, draft.parent_slot) = (parent, offset);
        let dir_draft = locked.draft(parent);
        dir_draft.size += 1;
        dir_draft.mtime = now;
        dir_draft.ctime = now;
        let mut transaction = Transaction::new();
        names::put(&mut transaction, parent, offset, name, inode, child.file_type);
        if is_first {
            transaction.delete(Key::orphan(inode));
        }
        locked.put_all(&mut transaction);
        let lsn = core.apply_asked_for(transaction, &mut reservation)?;
        locked.took_all(lsn);
        core.directory_log.changed(&core.store, parent, offset, lsn);
        let state = &mut locked.get(inode).state;
        state.linkable = false;
        Ok(state.stat(inode))
    }
}
