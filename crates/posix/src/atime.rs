//! Access times are lazy: reading changes only what callers see; the tree learns of it with the next
//! change of the inode, with the background commit, or when the volume is left.
//!
//! No more wait than inodes are kept in memory anyway, because one that waits cannot leave it. What finds no room
//! among them, on a volume that is full or has stopped, is not noted at all.

use std::sync::Arc;

use holdfast_base::Timestamp;
use holdfast_store::{Need, Transaction};

use crate::core::Core;
use crate::inode::Inode;
use crate::{Atime, FileSystem, Result, times};

/// As many may wait at least.
const FEWEST: usize = 64;

impl FileSystem {
    /// From now on reading updates access times as `atime` says, those of directories only if `directories`.
    pub fn set_atime(&self, atime: Atime, directories: bool) {
        self.core.atime.set(atime, directories);
    }
}

/// Notes that `inode` was read, and returns whether its access time has moved. Called without any state locked.
pub(crate) fn touch(core: &Core, inode: &Arc<Inode>) -> bool {
    if core.options.read_only {
        return false;
    }
    let now = Timestamp::now();
    if !times::atime_is_due(core.atime.of(inode.file_type), &inode.state.read().attr, now) {
        return false;
    }
    // Once stopped a volume stays stopped (P7): nothing would ever be written.
    if core.store.is_stopped() || !inode.state.read().atime_waits && !has_room(core) {
        return false;
    }
    let mut state = inode.state.write();
    if state.gone {
        return false;
    }
    state.attr.atime = now;
    if !std::mem::replace(&mut state.atime_waits, true) {
        drop(state);
        core.atimes.lock().inodes.push(inode.no);
    }
    true
}

/// Whether one more may wait; writes those that do if need be.
fn has_room(core: &Core) -> bool {
    let most = core.options.inode_cache.max(FEWEST);
    {
        let waiting = core.atimes.lock();
        if waiting.inodes.len() < most {
            return true;
        }
        if waiting.stuck_at == Some(core.store.committed()) {
            return false;
        }
    }
    // The next commit tries again, and says so if it cannot.
    let _ = write_all(core);
    core.atimes.lock().inodes.len() < most
}

/// Puts every access time that waits.
pub(crate) fn write_all(core: &Core) -> Result<()> {
    // The first change of a new image takes much of its host: having been looked at is no reason for that.
    if core.store.is_without_rings() {
        return Ok(());
    }
    let waiting = std::mem::take(&mut core.atimes.lock().inodes);
    for (index, no) in waiting.iter().enumerate() {
        if let Err(error) = core.inodes.peek(*no).map_or(Ok(()), |inode| write(core, &inode)) {
            // Those that were not written wait on.
            let mut now = core.atimes.lock();
            now.inodes.extend_from_slice(&waiting[index..]);
            now.stuck_at = Some(core.store.committed());
            return Err(error);
        }
    }
    core.atimes.lock().stuck_at = None;
    Ok(())
}

fn write(core: &Core, inode: &Inode) -> Result<()> {
    let mut reservation = core.store.reserve(Need::Writeback { changes: 1 })?;
    let mut state = inode.state.write();
    if state.gone || !state.atime_waits {
        return Ok(());
    }
    let item = state.next_disk();
    let mut transaction = Transaction::new();
    state.put(inode.no, &item, &mut transaction);
    core.store.apply(transaction, &mut reservation)?;
    // `changed` stays: fsync promises nothing of access times, so it need not wait for this.
    state.disk = item;
    state.atime_waits = false;
    Ok(())
}
