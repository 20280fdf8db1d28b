//! New inodes.
//!
//! One search for the name, one transaction: the inode, its entry, and the parent.

use std::sync::Arc;

use holdfast_base::{InodeNo, Timestamp};
use holdfast_format::Key;
use holdfast_format::item::{FileType, InodeItem, orphan};
use holdfast_format::limits::{LINK_MAX, SYMLINK_MAX};
use holdfast_store::{Need, Transaction};

use crate::acl::Acl;
use crate::allow::Deed;
use crate::core::Core;
use crate::file::content;
use crate::inode::{Inode, InodeState};
use crate::op::lookup::resolve;
use crate::*;

/// Most items that an inherited access control list puts, beyond inode, entry and parent.
const ACL_CHANGES: u32 = 2 * 65;

/// What to make, and for which caller.
struct Wanted<'a> {
    caller: &'a Caller,
    new: NewNode,
    /// Target of a symbolic link, otherwise empty.
    target: &'a [u8],
    /// Handles that are open from the beginning: 1 or 0.
    handles: u32,
}

impl FileSystem {
    /// Makes a file, directory, pipe, socket or device with a name that must not exist.
    pub fn mknod(
        &self,
        caller: &Caller,
        parent: InodeNo,
        name: &[u8],
        new: NewNode,
    ) -> Result<Attr> {
        if new.file_type == FileType::Symlink {
            return Err(FsError::Invalid("a symbolic link needs a target"));
        }
        let is_device = matches!(new.file_type, FileType::CharDevice | FileType::BlockDevice);
        if is_device && !caller.trusted && !caller.is_root() {
            return Err(FsError::NotPermitted);
        }
        // For other types any number is accepted: it means nothing there.
        let new = NewNode { rdev: if is_device { new.rdev } else { 0 }, ..new };
        let _inside = self.core.gate.enter();
        let wanted = Wanted { caller, new, target: &[], handles: 0 };
        Ok(make(&self.core, parent, name, &wanted)?.1)
    }

    /// Makes a directory.
    pub fn mkdir(&self, caller: &Caller, parent: InodeNo, name: &[u8], perm: u32) -> Result<Attr> {
        let new = NewNode { file_type: FileType::Directory, perm, rdev: 0 };
        self.mknod(caller, parent, name, new)
    }

    /// Makes a symbolic link.
    pub fn symlink(
        &self,
        caller: &Caller,
        parent: InodeNo,
        name: &[u8],
        target: &[u8],
    ) -> Result<Attr> {
        if target.is_empty() {
            return Err(FsError::NotFound);
        }
        if target.len() > SYMLINK_MAX {
            return Err(FsError::NameTooLong);
        }
        if target.contains(&0) {
            return Err(FsError::Invalid("a target holds no NUL"));
        }
        let _inside = self.core.gate.enter();
        let wanted = Wanted {
            caller,
            new: NewNode { file_type: FileType::Symlink, perm: 0o777, rdev: 0 },
            target,
            handles: 0,
        };
        Ok(make(&self.core, parent, name, &wanted)?.1)
    }

    /// The target of a symbolic link.
    pub fn readlink(&self, inode: InodeNo) -> Result<Vec<u8>> {
        let inode = self.core.inode(inode)?;
        if inode.file_type != FileType::Symlink {
            return Err(FsError::Invalid("not a symbolic link"));
        }
        let size = inode.state.read().disk.size;
        if size > SYMLINK_MAX as u64 {
            return Err(FsError::Io(format!(
                "the target of {} has {size} bytes, more than any target; run fsck",
                self.core.called(inode.no)
            )));
        }
        let target = content::load_whole(&self.core, inode.no, size)?;
        atime::touch(&self.core, &inode);
        Ok(target)
    }

    /// Makes a regular file and opens it. With `exclusive` the name must not exist; otherwise an existing file is opened.
    pub fn create(
        &self,
        caller: &Caller,
        parent: InodeNo,
        name: &[u8],
        perm: u32,
        flags: OpenFlags,
        exclusive: bool,
    ) -> Result<(Attr, Arc<OpenFile>)> {
        let core = &self.core;
        if !exclusive {
            // They exist, and there is no entry to open: without this the loop below would not end.
            names::check_name(name, FsError::IsDirectory)?;
        }
        let wanted = Wanted {
            caller,
            new: NewNode { file_type: FileType::Regular, perm, rdev: 0 },
            target: &[],
            handles: 1,
        };
        loop {
            let made = {
                let _inside = core.gate.enter();
                make(core, parent, name, &wanted)
            };
            match made {
                Ok((inode, attr)) => return Ok((attr, OpenFile::counted(core, inode, flags))),
                Err(FsError::Exists) if !exclusive => {}
                Err(error) => return Err(error),
            }
            match resolve(core, parent, name)
                .and_then(|(_, inode)| self.open_inode(caller, inode, flags))
            {
                Ok(file) => {
                    let attr = file.inode.state.read().stat(file.inode.no);
                    return Ok((attr, file));
                }
                // Removed since: make it after all.
                Err(FsError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes a regular file without a name and opens it (O_TMPFILE). It vanishes when closed unless linked.
    pub fn tmpfile(
        &self,
        caller: &Caller,
        parent: InodeNo,
        perm: u32,
        flags: OpenFlags,
    ) -> Result<(Attr, Arc<OpenFile>)> {
        let _inside = self.core.gate.enter();
        let core = &self.core;
        let dir = core.inode(parent)?;
        dir.expect_directory()?;
        let new = NewNode { file_type: FileType::Regular, perm, rdev: 0 };
        let may_inherit_acl = has_attributes(&dir);
        let mut reservation = core.reserve(need(2, may_inherit_acl, 0))?;
        let no = core.store.next_inode();
        let mut transaction = Transaction::new();
        // Only what is inherited is read of the parent, and that under its lock.
        let item = {
            let state = dir.state.read();
            state.expect_named()?;
            allow::expect_changeable(&state.attr, Deed::Adds)?;
            allow::expect(core, caller, parent, &state.attr, allow::CHANGE_ENTRIES)?;
            if state.disk.flags & InodeItem::HAS_XATTRS != 0 && !may_inherit_acl {
                drop((state, _inside));
                return self.tmpfile(caller, parent, perm, flags);
            }
            let mut item = inherit(core, caller, &dir, &state, no, &new, &mut transaction)?;
            item.nlink = 0;
            item
        };
        transaction.put(Key::inode(no), item.bytes());
        transaction.put(Key::orphan(no), orphan::VALUE);
        transaction.count_inodes(1);
        let inode = Arc::new(Inode::new(no, item, core.store.latest()));
        let attr = {
            let mut state = inode.state.write();
            state.handles = 1;
            state.linkable = true;
            core.inodes.insert(inode.clone());
            match core.store.apply(transaction, &mut reservation) {
                Ok(lsn) => state.changed = lsn,
                Err(error) => {
                    state.gone = true;
                    core.inodes.remove(no);
                    return Err(error.into());
                }
            }
            state.stat(no)
        };
        Ok((attr, OpenFile::counted(core, inode, flags)))
    }
}

/// Makes an inode with a name.
fn make(
    core: &Arc<Core>,
    parent: InodeNo,
    name: &[u8],
    wanted: &Wanted<'_>,
) -> Result<(Arc<Inode>, Attr)> {
    names::check_name(name, FsError::Exists)?;
    let dir = core.inode(parent)?;
    dir.expect_directory()?;
    let new = &wanted.new;
    let may_inherit_acl = has_attributes(&dir);
    let blocks_max = u64::from(wanted.target.len() > core.store.value_max());
    let mut reserved = core.reserve(need(4, may_inherit_acl, blocks_max));
    let no = core.store.next_inode();
    let mut transaction = Transaction::new();
    let mut blocks = 0;
    if let Ok(reservation) = &mut reserved
        && !wanted.target.is_empty()
    {
        blocks = content::store_whole(core, no, wanted.target, reservation, &mut transaction)?;
    }

    let mut state = dir.state.write();
    state.expect_named()?;
    allow::expect(core, wanted.caller, parent, &state.attr, Access::EXECUTE)?;
    let offset = names::find_vacant(core, parent, name)?;
    allow::expect_changeable(&state.attr, Deed::Adds)?;
    allow::expect(core, wanted.caller, parent, &state.attr, Access::WRITE)?;
    let is_dir = new.file_type == FileType::Directory;
    if is_dir && state.disk.nlink >= LINK_MAX {
        return Err(FsError::TooManyLinks);
    }
    // Only now: a name that exists, or a directory that is not the caller's, says more than a full volume.
    let mut reservation = reserved?;
    if state.disk.flags & InodeItem::HAS_XATTRS != 0 && !may_inherit_acl {
        // The directory got its first attribute just now, and more has to be reserved.
        drop(state);
        return make(core, parent, name, wanted);
    }
    let mut item = inherit(core, wanted.caller, &dir, &state, no, new, &mut transaction)?;
    item.size = wanted.target.len() as u64;
    item.blocks = blocks;
    (item.parent, item.parent_slot) = (parent, offset);
    if is_dir {
        item.nlink = 2;
    }
    let mut dir_item = state.next_disk();
    dir_item.size += 1;
    dir_item.nlink += u32::from(is_dir);
    dir_item.mtime = item.ctime;
    dir_item.ctime = item.ctime;
    transaction.put(Key::inode(no), item.bytes());
    names::put(&mut transaction, parent, offset, name, no, new.file_type);
    state.put(parent, &dir_item, &mut transaction);
    transaction.count_inodes(1);

    // In the table, and locked, before others can find it in the tree.
    let inode = Arc::new(Inode::new(no, item, state.changed));
    let mut child = inode.state.write();
    child.handles = wanted.handles;
    core.inodes.insert(inode.clone());
    match core.apply_asked_for(transaction, &mut reservation) {
        Ok(lsn) => {
            child.changed = lsn;
            state.took(dir_item, lsn);
            core.directory_log.changed(&core.store, parent, offset, lsn);
        }
        Err(error) => {
            child.gone = true;
            core.inodes.remove(no);
            return Err(error.into());
        }
    }
    let attr = child.stat(no);
    drop(child);
    Ok((inode, attr))
}

fn has_attributes(dir: &Inode) -> bool {
    dir.state.read().disk.flags & InodeItem::HAS_XATTRS != 0
}

/// What to reserve for `changes`, and for the lists that are inherited.
fn need(changes: u32, may_inherit_acl: bool, blocks: u64) -> Need {
    let lists = if may_inherit_acl { ACL_CHANGES } else { 0 };
    Need::Grow { changes: changes + lists, blocks }
}

/// The item of a new inode in `dir`, with group, bits and access control lists as the directory hands them down.
pub(crate) fn inherit(
    core: &Core,
    caller: &Caller,
    dir: &Inode,
    dir_state: &InodeState,
    no: InodeNo,
    new: &NewNode,
    transaction: &mut Transaction,
) -> Result<InodeItem> {
    let dir_item = &dir_state.disk;
    let (gid, mut perm) = perm::inherit(caller, dir_item, new.file_type, new.perm);
    let mut item = InodeItem {
        uid: caller.uid,
        gid,
        nlink: 1,
        rdev: new.rdev,
        ..InodeItem::blank(new.file_type, Timestamp::now())
    };
    if new.file_type != FileType::Symlink
        && let Some(default) = xattr_items::load_acl(core, dir.no, dir_item, acl::DEFAULT)?
    {
        let access = default.inherited(perm);
        perm = perm & !0o777 | access.mode_bits();
        let mut put = |name: &[u8], list: &Acl| {
            let value = list.encode();
            xattr_items::plan_set(
                core,
                no,
                &mut item,
                name,
                &value,
                XattrFlags::empty(),
                transaction,
            )
        };
        if !access.is_only_mode() {
            put(acl::ACCESS, &access)?;
        }
        if new.file_type == FileType::Directory {
            put(acl::DEFAULT, &default)?;
        }
    }
    item.mode |= perm;
    Ok(item)
}
