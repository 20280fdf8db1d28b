//! From names to inodes, and how long an inode is kept.

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_format::item::FileType;
use holdfast_store::StoreError;

use crate::allow::Deed;
use crate::core::Core;
use crate::inode::Inode;
use crate::names::{self, Entry};
use crate::*;

/// An entry that led nowhere this often, although it did not change, is damage.
const DANGLING_MAX: u32 = 100;

impl FileSystem {
    /// The inode that `name` leads to in `parent`. `.` and `..` work. Does not count as a kernel reference.
    pub fn lookup(&self, caller: &Caller, parent: InodeNo, name: &[u8]) -> Result<Attr> {
        let core = &*self.core;
        let dir = core.inode(parent)?;
        dir.expect_directory()?;
        {
            let state = dir.state.read();
            state.expect_alive()?;
            allow::expect(core, caller, parent, &state.attr, Access::EXECUTE)?;
            match name {
                b"." => return Ok(state.stat(parent)),
                b".." => {
                    let up = state.attr.parent;
                    drop(state);
                    let up = core.inode(up)?;
                    return Ok(up.state.read().stat(up.no));
                }
                _ => names::check_name(name, FsError::Invalid("dots are handled above"))?,
            }
        }
        let (_, child) = resolve(core, parent, name)?;
        let state = child.state.read();
        Ok(state.stat(child.no))
    }

    /// Keeps `inode` known for `count` more references (FUSE lookups): an unlinked inode lives until they are forgotten.
    pub fn remember(&self, inode: InodeNo, count: u64) {
        // An inode that is gone already cannot be kept; its next use says NotFound.
        if let Ok(inode) = self.core.inode(inode) {
            let mut state = inode.state.write();
            state.lookups = state.lookups.saturating_add(count);
        }
    }

    /// Whether there are references to `inode`, or may be some of another process.
    pub fn is_remembered(&self, inode: InodeNo) -> bool {
        self.core.inodes.is_remembered(inode)
    }

    /// Inodes to which there are references, but those that are just in use.
    pub fn remembered(&self) -> Vec<InodeNo> {
        self.core.inodes.all_remembered()
    }

    /// Takes `count` references back, and returns whether none is left.
    pub fn forget(&self, inode: InodeNo, count: u64) -> bool {
        let inode = match self.core.inodes.forget_absent(inode, count) {
            Ok(is_last) => return is_last,
            Err(inode) => inode,
        };
        let mut state = inode.state.write();
        state.forget(count);
        let is_last = state.lookups == 0;
        if state.is_unreachable() && !state.gone {
            state.gone = true;
            drop(state);
            self.core.collect_soon(&inode);
        }
        is_last
    }

    /// Whether `caller` may do all of `access` with `inode`. Checked also for trusted callers.
    pub fn access(&self, caller: &Caller, inode: InodeNo, access: Access) -> Result<()> {
        let core = &*self.core;
        let inode = core.inode(inode)?;
        let state = inode.state.read();
        state.expect_alive()?;
        if access.contains(Access::WRITE) {
            allow::expect_changeable(&state.attr, Deed::Adds)?;
        }
        allow::check(core, caller, inode.no, &state.attr, access)?;
        if access.contains(Access::WRITE)
            && core.options.read_only
            && matches!(
                inode.file_type,
                FileType::Regular | FileType::Directory | FileType::Symlink
            )
        {
            return Err(StoreError::ReadOnly.into());
        }
        Ok(())
    }
}

/// The entry `name` of `dir` and its inode, both of one moment.
///
/// A directory is reached by the one name that it says it has. So a way down by names comes to none twice, and ends, whatever a damaged
/// volume holds: a directory in itself, or in two others (P10).
pub(crate) fn resolve(core: &Core, dir: InodeNo, name: &[u8]) -> Result<(Entry, Arc<Inode>)> {
    let mut last = None;
    let mut same = 0;
    loop {
        let entry = names::find(core, dir, name)?.existing()?;
        let why = match core.inode(entry.inode) {
            Ok(inode) => match leads_to(dir, entry, &inode) {
                Ok(()) => return Ok((entry, inode)),
                Err(why) => why,
            },
            Err(FsError::NotFound) => "does not exist",
            Err(error) => return Err(error),
        };
        // The name was replaced, moved or removed since it was found.
        same = if last == Some(entry) { same + 1 } else { 0 };
        if same > DANGLING_MAX {
            return Err(FsError::Io(format!(
                "a name in {} leads to inode {}, which {why}; run fsck",
                core.called(dir),
                entry.inode
            )));
        }
        last = Some(entry);
        holdfast_sync::thread::yield_now();
    }
}

/// Fails, and says why, unless an entry of `dir` leads to the inode.
fn leads_to(dir: InodeNo, entry: Entry, inode: &Inode) -> std::result::Result<(), &'static str> {
    let state = inode.state.read();
    let known = (state.attr.parent, state.attr.parent_slot);
    // No name leads to the root, whatever it says of its own.
    let is_elsewhere = known != (dir, entry.offset) || inode.no == InodeNo::ROOT;
    match inode.file_type == FileType::Directory && is_elsewhere {
        _ if state.gone => Err("does not exist"),
        true => Err("is a directory that is elsewhere"),
        false => Ok(()),
    }
}
