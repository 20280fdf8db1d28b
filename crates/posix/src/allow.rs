//! Permission checks of inodes in memory, for callers that the layer above has not checked.

use holdfast_base::InodeNo;
use holdfast_format::item::InodeItem;

use crate::core::Core;
use crate::{Access, Caller, Result, acl, perm, xattr_items};

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
