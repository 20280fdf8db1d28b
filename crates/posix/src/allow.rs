//! Permission checks of inodes in memory, for callers that the layer above has not checked; and what the flags of an inode forbid, to
//! all users.

use holdfast_base::InodeNo;
use holdfast_format::item::InodeItem;

use crate::core::Core;
use crate::{Access, Caller, FsError, Result, acl, perm, xattr_items};

/// Fails unless `caller` may do all of `wanted`. The inode's state is locked, for reading at least.
pub(crate) fn expect(
    core: &Core,
    caller: &Caller,
    no: InodeNo,
    item: &InodeItem,
    wanted: Access,
) -> Result<()> {
    if caller.trusted {
        return Ok(());
    }
    check(core, caller, no, item, wanted)
}

/// Like [`expect`], also for trusted callers.
pub(crate) fn check(
    core: &Core,
    caller: &Caller,
    no: InodeNo,
    item: &InodeItem,
    wanted: Access,
) -> Result<()> {
    let list = xattr_items::load_acl(core, no, item, acl::ACCESS)?;
    perm::check(caller, item, list.as_ref(), wanted)
}

/// What adding, removing and renaming entries of a directory needs.
pub(crate) const CHANGE_ENTRIES: Access = Access::WRITE.union(Access::EXECUTE);

/// What a call does to an inode, as far as flags forbid it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Bytes come to the end of a file, or a name into a directory.
    Adds,
    /// Anything else of it changes: other bytes, attributes, a name that leads to it, or a name in it that goes.
    Changes,
}

impl Deed {
    /// Adding if `adds`.
    pub(crate) fn adding(adds: bool) -> Deed {
        if adds { Deed::Adds } else { Deed::Changes }
    }
}

/// Fails if the inode is immutable, or append-only and the deed does more than add. Also for root, as on Linux. Looked at under the lock
/// under which the change is made; or, of bytes, behind that of the writers.
pub(crate) fn expect_changeable(item: &InodeItem, deed: Deed) -> Result<()> {
    let forbid = match deed {
        Deed::Adds => InodeItem::IMMUTABLE,
        Deed::Changes => InodeItem::IMMUTABLE | InodeItem::APPEND_ONLY,
    };
    if item.flags & forbid == 0 { Ok(()) } else { Err(FsError::NotPermitted) }
}
