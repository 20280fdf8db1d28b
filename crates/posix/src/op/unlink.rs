//! Fewer names.

use std::sync::Arc;

use holdfast_base::{InodeNo, Timestamp};
use holdfast_format::item::{FileType, InodeItem};
use holdfast_store::{Need, Reservation, StoreError, Transaction};

use crate::allow::Deed;
use crate::core::Core;
use crate::inode::{Inode, Locked};
use crate::op::lookup::resolve;
use crate::orphan::{Fate, ITEMS_AT_ONCE, last_name_changes, plan_last_name};
use crate::*;

/// What may be removed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Want {
    AnythingElse,
    Directory,
}

impl FileSystem {
    /// Removes a name of anything but a directory. The inode goes with its last name, or with its last handle.
    pub fn unlink(&self, caller: &Caller, parent: InodeNo, name: &[u8]) -> Result<()> {
        if name == b"." || name == b".." {
            return Err(FsError::IsDirectory);
        }
        let _inside = self.core.gate.enter();
        remove(&self.core, caller, parent, name, Want::AnythingElse)
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, caller: &Caller, parent: InodeNo, name: &[u8]) -> Result<()> {
        match name {
            b"." => return Err(FsError::Invalid("a directory is removed by its name")),
            b".." => return Err(FsError::NotEmpty),
            _ => {}
        }
        let _inside = self.core.gate.enter();
        remove(&self.core, caller, parent, name, Want::Directory)
    }
}

fn remove(core: &Core, caller: &Caller, parent: InodeNo, name: &[u8], want: Want) -> Result<()> {
    names::check_name(name, FsError::Invalid("dots are handled above"))?;
    let dir = core.inode(parent)?;
    dir.expect_directory()?;
    loop {
        let seen = {
            let state = dir.state.read();
            state.expect_named()?;
            allow::expect(core, caller, parent, &state.attr, Access::EXECUTE)?;
            state.changed
        };
        let (entry, child) = resolve(core, parent, name)?;
        let (items, reserved) = reserve(core, &child);
        let mut locked = Locked::of(&[&dir, &child]);
        // The child's number is known only after the search, and locks go upwards: look whether it still holds.
        if locked.get(parent).state.changed != seen
            && names::find(core, parent, name)?.entry != Some(entry)
        {
            continue;
        }
        check(core, caller, &mut locked, &dir, &child, want)?;
        let mut reservation = reserved?;

        let now = Timestamp::now();
        let is_dir = want == Want::Directory;
        let dir_draft = locked.draft(parent);
        dir_draft.size = dir_draft.size.saturating_sub(1);
        dir_draft.nlink = dir_draft.nlink.saturating_sub(u32::from(is_dir));
        dir_draft.mtime = now;
        dir_draft.ctime = now;
        let held = locked.get(child.no);
        held.draft.ctime = now;
        held.forget_name(parent, entry.offset);
        held.draft.nlink = if is_dir { 0 } else { held.draft.nlink.saturating_sub(1) };
        let last = held.draft.nlink == 0;
        let (fate, mut transaction) = if last {
            plan_last_name(core, &child, &held.state, &held.draft, items)?
        } else {
            (Fate::Waits, Transaction::new())
        };
        held.removed = fate == Fate::Removed;
        names::delete(&mut transaction, parent, entry.offset);
        locked.put_all(&mut transaction);
        let lsn = core.apply_asked_for(transaction, &mut reservation)?;
        locked.took_all(lsn);
        core.directory_log.changed(&core.store, parent, entry.offset, lsn);
        if last {
            fate.mark(core, &child, &mut locked.get(child.no).state);
        }
        drop(locked);
        drop(reservation);
        fate.finish(core, &child);
        return Ok(());
    }
}

/// Reserves for the removal of a name of `child`, and says how many items of content may go with it.
fn reserve(core: &Core, child: &Inode) -> (usize, Result<Reservation>) {
    let item = child.state.read().attr;
    let is_bare = item.size == 0 && item.blocks == 0 && item.flags & InodeItem::HAS_XATTRS == 0;
    let items = if is_bare { 1 } else { ITEMS_AT_ONCE };
    let shrink = |items| Need::Shrink { changes: 2 + last_name_changes(items) };
    match core.store.reserve(shrink(items)) {
        // A full volume has room for less at once (P8): the name now, the rest after it. Others may hold even
        // that for a moment.
        Err(StoreError::NoSpace) => (0, core.reserve_last(shrink(0))),
        reserved => (items, reserved.map_err(FsError::from)),
    }
}

fn check(
    core: &Core,
    caller: &Caller,
    locked: &mut Locked<'_>,
    dir: &Arc<Inode>,
    child: &Arc<Inode>,
    want: Want,
) -> Result<()> {
    let child_item = locked.get(child.no).state.attr;
    let dir_state = &locked.get(dir.no).state;
    dir_state.expect_named()?;
    allow::expect(core, caller, dir.no, &dir_state.attr, allow::CHANGE_ENTRIES)?;
    perm::check_sticky(caller, &dir_state.attr, &child_item)?;
    allow::expect_changeable(&dir_state.attr, Deed::Changes)?;
    allow::expect_changeable(&child_item, Deed::Changes)?;
    match (want, child.file_type == FileType::Directory) {
        (Want::AnythingElse, true) => Err(FsError::IsDirectory),
        (Want::Directory, false) => Err(FsError::NotDirectory),
        (Want::Directory, true) if child_item.size > 0 => Err(FsError::NotEmpty),
        _ => Ok(()),
    }
}
