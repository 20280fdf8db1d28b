//! Permission checks: pure decisions on permission bits.
//!
//! Checks are made only for callers that the layer above has not checked. Rules that change the outcome rather than
//! forbid it (set-id bits that vanish) are here as well, so that each rule has one place.
//!
//! Knows nothing of inodes in memory, names or the store.

use holdfast_format::item::{FileType, InodeItem};

use crate::acl::Acl;
use crate::{Access, Caller, FsError, Result};

pub(crate) const SET_UID: u32 = 0o4000;
pub(crate) const SET_GID: u32 = 0o2000;
pub(crate) const STICKY: u32 = 0o1000;
const GROUP_EXECUTE: u32 = 0o010;

impl Caller {
    /// Whether the caller overrides permission bits.
    pub(crate) fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether the caller is in the group.
    pub(crate) fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Whether the caller may do what only the owner of `item` and root may.
    pub(crate) fn expect_owner(&self, item: &InodeItem) -> Result<()> {
        if self.trusted || self.is_root() || self.uid == item.uid {
            Ok(())
        } else {
            Err(FsError::NotPermitted)
        }
    }
}

/// Fails unless the permission bits, or the access ACL if there is one, give `caller` all of `wanted`.
pub(crate) fn check(
    caller: &Caller,
    item: &InodeItem,
    acl: Option<&Acl>,
    wanted: Access,
) -> Result<()> {
    let bits = wanted.bits();
    let allowed = if caller.is_root() {
        // Root reads and writes anything, and executes files that have any execute bit.
        let executable = item.file_type() == FileType::Directory || item.mode & 0o111 != 0;
        if executable { 7 } else { 6 }
    } else if caller.uid == item.uid {
        item.mode >> 6 & 7
    } else if let Some(acl) = acl {
        return if acl.allows(caller, item.gid, bits) {
            Ok(())
        } else {
            Err(FsError::AccessDenied)
        };
    } else if caller.is_in_group(item.gid) {
        item.mode >> 3 & 7
    } else {
        item.mode & 7
    };
    if bits & !allowed == 0 { Ok(()) } else { Err(FsError::AccessDenied) }
}

/// Fails unless `caller` may take away or move a name of `child` in `dir`, as far as the sticky bit is concerned.
pub(crate) fn check_sticky(caller: &Caller, dir: &InodeItem, child: &InodeItem) -> Result<()> {
    let free = dir.mode & STICKY == 0
        || caller.trusted
        || caller.is_root()
        || caller.uid == child.uid
        || caller.uid == dir.uid;
    if free { Ok(()) } else { Err(FsError::NotPermitted) }
}

/// The mode after a write, truncate or change of owner: set-id bits that make a program run with another user's rights
/// are gone. Set-gid without group execution is no such bit, and stays.
pub(crate) fn without_set_id(mode: u32) -> u32 {
    let mut kept = mode & !SET_UID;
    if mode & GROUP_EXECUTE != 0 {
        kept &= !SET_GID;
    }
    kept
}

/// The mode that chmod by `caller` gives: set-gid only for groups the caller is in.
/// Callers that the layer above has checked keep it, because their other groups are not known here.
pub(crate) fn chmod_mode(caller: &Caller, item: &InodeItem, perm: u32) -> u32 {
    let mut perm = perm & 0o7777;
    let may_set_gid = caller.trusted || caller.is_root() || caller.is_in_group(item.gid);
    if !may_set_gid {
        perm &= !SET_GID;
    }
    item.mode & !0o7777 | perm
}

/// Group and permission bits of a new inode in `dir`. A set-gid directory hands its group down, and
/// to directories its bit.
pub(crate) fn inherit(
    caller: &Caller,
    dir: &InodeItem,
    file_type: FileType,
    perm: u32,
) -> (u32, u32) {
    let mut perm = perm & 0o7777;
    if dir.mode & SET_GID == 0 {
        return (caller.gid, perm);
    }
    if file_type == FileType::Directory {
        perm |= SET_GID;
    } else if perm & SET_GID != 0
        && perm & GROUP_EXECUTE != 0
        && !(caller.trusted || caller.is_root() || caller.is_in_group(dir.gid))
    {
        perm &= !SET_GID;
    }
    (dir.gid, perm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_gid_without_group_execution_is_no_program() {
        assert_eq!(without_set_id(0o106755), 0o100755);
        assert_eq!(without_set_id(0o106745), 0o102745);
    }
}
