//! What stat shows and chmod, chown, utimens and truncate change.

use std::sync::Arc;

use holdfast_base::{InodeNo, Timestamp};
use holdfast_format::Key;
use holdfast_format::item::{FileType, InodeItem};
use holdfast_format::limits::FILE_SIZE_MAX;
use holdfast_store::{Need, Transaction};

use crate::allow::Deed;
use crate::core::Core;
use crate::inode::{Inode, InodeState};
use crate::*;

impl FileSystem {
    /// The attributes of an inode.
    pub fn getattr(&self, inode: InodeNo) -> Result<Attr> {
        let inode = self.core.inode(inode)?;
        let state = inode.state.read();
        state.expect_alive()?;
        Ok(state.stat(inode.no))
    }

    /// The attributes, if nothing has to be read from the device for them.
    pub fn getattr_in_memory(&self, inode: InodeNo) -> Option<Attr> {
        let core = &self.core;
        let is_known =
            core.inodes.peek(inode).is_some() || core.store.is_in_memory(&Key::inode(inode));
        is_known.then(|| self.getattr(inode).ok()).flatten()
    }

    /// Changes attributes. With a `file` opened for writing, its permission to change the size counts.
    ///
    /// A new size is one step of history, the other attributes are the next.
    pub fn setattr(
        &self,
        caller: &Caller,
        inode: InodeNo,
        file: Option<&OpenFile>,
        change: SetAttr,
    ) -> Result<Attr> {
        let _inside = self.core.gate.enter();
        let core = &*self.core;
        let inode = core.inode(inode)?;
        let now = Timestamp::now();
        {
            let state = inode.state.read();
            state.expect_alive()?;
            check(core, caller, &inode, &state, file, &change)?;
        }
        if change.kill_capabilities {
            crate::op::xattr::drop_capabilities(core, &inode)?;
        }
        if let Some(size) = change.size {
            crate::op::truncate::set_size(core, &inode, size, now)?;
        }
        if touches_item(&change) {
            apply(core, caller, &inode, &change, now)?;
        }
        let state = inode.state.read();
        Ok(state.stat(inode.no))
    }
}

/// Whether anything but the size is to change.
fn touches_item(change: &SetAttr) -> bool {
    SetAttr { size: None, kill_capabilities: false, ..*change } != SetAttr::default()
}

/// What it does, as far as flags forbid it; `None`: it only takes rights away, as what has written or cut the file wants it, which was
/// judged itself.
fn deed(change: &SetAttr) -> Option<Deed> {
    // Times that are those of the call come with what is added.
    let is_time = |time: SetTime| matches!(time, SetTime::At(_));
    let sets = change.size.is_some()
        || change.perm.is_some()
        || change.uid.is_some()
        || change.gid.is_some()
        || change.btime.is_some()
        || [change.atime, change.mtime].into_iter().flatten().any(is_time);
    let is_touched = change.atime.or(change.mtime).is_some();
    (sets || is_touched).then(|| Deed::adding(!sets))
}

/// Fails if flags forbid the change. Looked at once more under the lock under which it is made.
fn expect_changeable(item: &InodeItem, change: &SetAttr) -> Result<()> {
    deed(change).map_or(Ok(()), |deed| allow::expect_changeable(item, deed))
}

/// Fails unless `caller` may make the change.
fn check(
    core: &Core,
    caller: &Caller,
    inode: &Inode,
    state: &InodeState,
    file: Option<&OpenFile>,
    change: &SetAttr,
) -> Result<()> {
    let item = &state.attr;
    expect_changeable(item, change)?;
    if let Some(size) = change.size {
        match inode.file_type {
            FileType::Regular => {}
            FileType::Directory => return Err(FsError::IsDirectory),
            _ => return Err(FsError::Invalid("only regular files have a size to set")),
        }
        if size > FILE_SIZE_MAX {
            return Err(FsError::FileTooLarge);
        }
        match file {
            Some(file) if file.inode.no == inode.no => {
                if !file.flags.contains(OpenFlags::WRITE) {
                    return Err(FsError::BadHandle);
                }
            }
            _ => allow::expect(core, caller, inode.no, item, Access::WRITE)?,
        }
    }
    for time in [change.atime, change.mtime].into_iter().flatten() {
        if let SetTime::At(moment) = time
            && moment.nanos >= 1_000_000_000
        {
            return Err(FsError::Invalid("nanoseconds make more than a second"));
        }
    }
    if change.btime.is_some_and(|moment| moment.nanos >= 1_000_000_000) {
        return Err(FsError::Invalid("nanoseconds make more than a second"));
    }
    if caller.trusted || caller.is_root() {
        return Ok(());
    }
    if change.perm.is_some() || change.btime.is_some() {
        caller.expect_owner(item)?;
    }
    if change.uid.is_some_and(|uid| uid != item.uid || caller.uid != item.uid) {
        return Err(FsError::NotPermitted);
    }
    if let Some(gid) = change.gid {
        caller.expect_owner(item)?;
        if gid != item.gid && !caller.is_in_group(gid) {
            return Err(FsError::NotPermitted);
        }
    }
    let sets_times = change.atime.is_some() || change.mtime.is_some();
    let only_now =
        ![change.atime, change.mtime].iter().flatten().any(|time| matches!(time, SetTime::At(_)));
    // With a size the times are part of a truncate, which was judged above.
    if sets_times && caller.expect_owner(item).is_err() {
        if !only_now {
            return Err(FsError::NotPermitted);
        }
        if change.size.is_none() {
            allow::expect(core, caller, inode.no, item, Access::WRITE)?;
        }
    }
    Ok(())
}

/// Changes everything but the size, as one step.
pub(crate) fn apply(
    core: &Core,
    caller: &Caller,
    inode: &Arc<Inode>,
    change: &SetAttr,
    now: Timestamp,
) -> Result<()> {
    let mut changes = 1;
    loop {
        let mut reservation = core.reserve(Need::Change { changes, blocks: 0 })?;
        let mut state = inode.state.write();
        state.expect_alive()?;
        expect_changeable(&state.attr, change)?;
        let mut item = state.next_disk();
        let mut transaction = Transaction::new();
        change_item(&mut item, caller, change, now);
        if let Some(perm) = change.perm
            && let Some(mut list) = xattr_items::load_acl(core, inode.no, &item, acl::ACCESS)?
        {
            list.set_mode_bits(perm);
            let value = list.encode();
            let flags = XattrFlags::empty();
            xattr_items::plan_set(
                core,
                inode.no,
                &mut item,
                acl::ACCESS,
                &value,
                flags,
                &mut transaction,
            )?;
        }
        state.put(inode.no, &item, &mut transaction);
        if transaction.changes() > changes {
            changes = transaction.changes();
            continue;
        }
        let lsn = core.store.apply(transaction, &mut reservation)?;
        state.took(item, lsn);
        if let Some(mtime) = change.mtime {
            // Also for delayed writes: a time that is set after a write wins.
            state.attr.mtime = times::resolve(mtime, now);
        }
        return Ok(());
    }
}

fn change_item(item: &mut InodeItem, caller: &Caller, change: &SetAttr, now: Timestamp) {
    let changes_owner = change.uid.is_some() || change.gid.is_some();
    if change.kill_suid_sgid || changes_owner && item.file_type() != FileType::Directory {
        item.mode = perm::without_set_id(item.mode);
    }
    item.uid = change.uid.unwrap_or(item.uid);
    item.gid = change.gid.unwrap_or(item.gid);
    if let Some(perm) = change.perm {
        item.mode = perm::chmod_mode(caller, item, perm);
    }
    if let Some(time) = change.atime {
        item.atime = times::resolve(time, now);
    }
    if let Some(time) = change.mtime {
        item.mtime = times::resolve(time, now);
    }
    item.btime = change.btime.unwrap_or(item.btime);
    item.ctime = now;
}
