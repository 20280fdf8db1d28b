//! Extended attributes: which names exist, and the permissions to see and change them.

use holdfast_base::{InodeNo, Timestamp};
use holdfast_format::item::{FileType, InodeItem};
use holdfast_format::limits::{NAME_MAX, XATTR_VALUE_MAX};
use holdfast_store::{Need, Reservation, StoreError, Transaction};

use crate::acl::Acl;
use crate::allow::Deed;
use crate::core::Core;
use crate::inode::Inode;
use crate::*;

/// The attribute with the rights that a program gives to the users that run it.
const CAPABILITIES: &[u8] = b"security.capability";

/// The name spaces that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Space {
    User,
    Trusted,
    Security,
    AccessAcl,
    DefaultAcl,
}

impl Space {
    fn of(name: &[u8]) -> Result<Space> {
        if name.len() > NAME_MAX {
            return Err(FsError::RangeTooSmall);
        }
        if name == acl::ACCESS {
            return Ok(Space::AccessAcl);
        }
        if name == acl::DEFAULT {
            return Ok(Space::DefaultAcl);
        }
        let spaces = [
            (&b"user."[..], Space::User),
            (b"trusted.", Space::Trusted),
            (b"security.", Space::Security),
        ];
        for (prefix, space) in spaces {
            match name.strip_prefix(prefix) {
                Some(rest) if rest.is_empty() || rest.contains(&0) => {
                    return Err(FsError::Invalid(
                        "the name of the attribute is empty or has a NUL",
                    ));
                }
                Some(_) => return Ok(space),
                None => {}
            }
        }
        Err(FsError::NotSupported)
    }

    /// Whether `caller` may read attributes of this space.
    fn check_read(
        self,
        core: &Core,
        caller: &Caller,
        inode: &Inode,
        item: &InodeItem,
    ) -> Result<()> {
        match self {
            Space::User => {
                if !takes_user_names(inode) {
                    return Err(FsError::NoAttribute);
                }
                allow::expect(core, caller, inode.no, item, Access::READ)
            }
            Space::Trusted if !caller.trusted && !caller.is_root() => Err(FsError::NoAttribute),
            Space::AccessAcl | Space::DefaultAcl if inode.file_type == FileType::Symlink => {
                Err(FsError::NotSupported)
            }
            _ => Ok(()),
        }
    }

    /// Whether `caller` may change attributes of this space.
    fn check_write(
        self,
        core: &Core,
        caller: &Caller,
        inode: &Inode,
        item: &InodeItem,
        deed: Deed,
    ) -> Result<()> {
        allow::expect_changeable(item, deed)?;
        match self {
            Space::User => {
                if !takes_user_names(inode) {
                    return Err(FsError::NotPermitted);
                }
                if inode.file_type == FileType::Directory && item.mode & perm::STICKY != 0 {
                    caller.expect_owner(item)?;
                }
                allow::expect(core, caller, inode.no, item, Access::WRITE)
            }
            Space::Trusted | Space::Security => {
                if caller.trusted || caller.is_root() {
                    Ok(())
                } else {
                    Err(FsError::NotPermitted)
                }
            }
            Space::AccessAcl | Space::DefaultAcl => {
                if inode.file_type == FileType::Symlink {
                    return Err(FsError::NotSupported);
                }
                if self == Space::DefaultAcl && inode.file_type != FileType::Directory {
                    return Err(FsError::AccessDenied);
                }
                caller.expect_owner(item)
            }
        }
    }
}

/// `user.` names follow permission bits, which mean something else for devices and links.
fn takes_user_names(inode: &Inode) -> bool {
    matches!(inode.file_type, FileType::Regular | FileType::Directory)
}

impl FileSystem {
    /// The value of an attribute.
    pub fn getxattr(&self, caller: &Caller, inode: InodeNo, name: &[u8]) -> Result<Vec<u8>> {
        let core = &*self.core;
        let inode = core.inode(inode)?;
        let space = Space::of(name)?;
        let state = inode.state.read();
        state.expect_alive()?;
        space.check_read(core, caller, &inode, &state.attr)?;
        xattr_items::load(core, inode.no, &state.disk, name)?.ok_or(FsError::NoAttribute)
    }

    /// The names of all attributes that `caller` may see.
    pub fn listxattr(&self, caller: &Caller, inode: InodeNo) -> Result<Vec<Vec<u8>>> {
        let core = &*self.core;
        let inode = core.inode(inode)?;
        let state = inode.state.read();
        state.expect_alive()?;
        let mut names = xattr_items::names(core, inode.no, &state.disk)?;
        // The kernel does not filter this list: a server asks as root and leaves out itself what others may not see.
        let sees_all = caller.trusted || caller.is_root();
        names.retain(|name| sees_all || !name.starts_with(b"trusted."));
        Ok(names)
    }

    /// Sets an attribute.
    ///
    /// An access control list changes the permission bits as well; one that says no more than they do is not kept.
    pub fn setxattr(
        &self,
        caller: &Caller,
        inode: InodeNo,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<()> {
        let _inside = self.core.gate.enter();
        let core = &*self.core;
        let inode = core.inode(inode)?;
        let space = Space::of(name)?;
        if value.len() > XATTR_VALUE_MAX {
            return Err(FsError::TooBig);
        }
        let list = match space {
            Space::AccessAcl | Space::DefaultAcl => Acl::parse(value)?,
            _ => None,
        };
        let keeps_value = match (space, &list) {
            (Space::AccessAcl, Some(list)) => !list.is_only_mode(),
            (Space::AccessAcl | Space::DefaultAcl, None) => false,
            _ => true,
        };
        let changes = 2 + value.len().div_ceil(core.store.value_max()) as u32;
        let grow = |changes| Need::Grow { changes, blocks: 0 };
        change(core, &inode, changes, grow, |item, transaction| {
            space.check_write(core, caller, &inode, item, Deed::Changes)?;
            if space == Space::AccessAcl
                && let Some(list) = &list
            {
                // As chmod: set-gid goes if the caller is not in the group.
                let perm = item.mode & 0o7000 | list.mode_bits();
                item.mode = perm::chmod_mode(caller, item, perm);
                if flags.contains(XattrFlags::KILL_SGID) {
                    item.mode &= !perm::SET_GID;
                }
            }
            if keeps_value {
                xattr_items::plan_set(core, inode.no, item, name, value, flags, transaction)
            } else {
                xattr_items::plan_remove(core, inode.no, name, transaction).map(drop)
            }
        })
    }

    /// Takes the capabilities of a file away, as part of a call that flags allow.
    pub fn drop_capabilities(&self, inode: InodeNo) -> Result<()> {
        let _inside = self.core.gate.enter();
        drop_capabilities(&self.core, &*self.core.inode(inode)?)
    }

    /// Removes an attribute.
    pub fn removexattr(&self, caller: &Caller, inode: InodeNo, name: &[u8]) -> Result<()> {
        let _inside = self.core.gate.enter();
        let core = &*self.core;
        let inode = core.inode(inode)?;
        let space = Space::of(name)?;
        // So the kernel asks before a write, which may be an append.
        let deed = Deed::adding(name == CAPABILITIES);
        change(
            core,
            &inode,
            2,
            |changes| Need::Shrink { changes },
            |item, transaction| {
                space.check_write(core, caller, &inode, item, deed)?;
                // Removing a list that does not exist succeeds, as on Linux.
                let is_list = matches!(space, Space::AccessAcl | Space::DefaultAcl);
                if xattr_items::plan_remove(core, inode.no, name, transaction)? || is_list {
                    Ok(())
                } else {
                    Err(FsError::NoAttribute)
                }
            },
        )
    }
}

/// Takes the capabilities of a file away, as part of a call that flags allow.
pub(crate) fn drop_capabilities(core: &Core, inode: &Inode) -> Result<()> {
    let has_some = {
        let state = inode.state.read();
        xattr_items::load(core, inode.no, &state.disk, CAPABILITIES)?.is_some()
    };
    if !has_some {
        return Ok(());
    }
    let shrink = |changes| Need::Shrink { changes };
    change(core, inode, 2, shrink, |_, transaction| {
        xattr_items::plan_remove(core, inode.no, CAPABILITIES, transaction).map(drop)
    })
}

/// Applies what `plan` adds to a transaction and changes in the inode's item, as one step. `changes` is a guess;
/// if the plan has more, because it removes an old value in pieces, more is reserved and the plan made again.
fn change(
    core: &Core,
    inode: &Inode,
    mut changes: u32,
    need: impl Fn(u32) -> Need,
    plan: impl Fn(&mut InodeItem, &mut Transaction) -> Result<()>,
) -> Result<()> {
    loop {
        let reserved: std::result::Result<Reservation, StoreError> = core.reserve(need(changes));
        let mut state = inode.state.write();
        state.expect_alive()?;
        let mut item = state.next_disk();
        let mut transaction = Transaction::new();
        plan(&mut item, &mut transaction)?;
        item.ctime = Timestamp::now();
        state.put(inode.no, &item, &mut transaction);
        let mut reservation = reserved?;
        if transaction.changes() > changes {
            changes = transaction.changes();
            continue;
        }
        let lsn = core.apply_asked_for(transaction, &mut reservation)?;
        state.took(item, lsn);
        return Ok(());
    }
}
