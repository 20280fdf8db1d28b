//! What is in memory of a branch when it goes back to a snapshot.
//!
//! Nothing of the old head may show later. So the inodes in memory are locked, none can be loaded, the store turns the
//! branch, and what is known of each inode is thrown away or read anew: an open file goes on with what the snapshot has of
//! it, or is stale. A reader meets the old head or the new one, never half of both.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdfast_base::InodeNo;
use holdfast_format::Key;
use holdfast_format::item::InodeItem;
use parking_lot::RwLockWriteGuard;

use crate::core::Core;
use crate::data::punch;
use crate::inode::{Inode, InodeState};
use crate::{Result, orphan};

/// Turns the branch by `turn`, and returns which inodes were known above. The gate is closed.
pub(crate) fn roll_back(core: &Core, turn: impl FnOnce() -> Result<()>) -> Result<Vec<InodeNo>> {
    let known = loop {
        let inodes = core.inodes.all();
        let mut states: Vec<_> = inodes.iter().map(|inode| inode.state.write()).collect();
        let mut table = core.inodes.lock_all();
        if !table.is(&inodes) {
            // Some were loaded or dropped meanwhile.
            continue;
        }
        let changing: Vec<_> =
            inodes.iter().map(|inode| inode.data.version.begin_change()).collect();
        turn()?;
        core.data.punches.clear();
        core.atimes.lock().inodes.clear();
        core.left.lock().clear();
        core.last_move.store(core.store.latest().0, Ordering::Release);
        let mut known: BTreeSet<InodeNo> = table.remembered().collect();
        for (inode, state) in inodes.iter().zip(&mut states) {
            if state.lookups > 0 || state.handles > 0 {
                known.insert(inode.no);
            }
            drop_data(core, inode);
            if !renew(core, inode, state) {
                table.remove(inode.no, state.lookups);
            }
        }
        table.all_left();
        // Before a reader can look: what is left of holes reads as zeros.
        let holes = punch::load(core);
        drop((changing, table, states));
        break (known, holes);
    };
    let (known, holes) = known;
    // The rollback is done; what fails from here on is done by the next mount.
    match holes {
        Ok(holes) => {
            for no in holes {
                warn(punch::recover_one(core, no));
            }
        }
        Err(error) => warn(Err(error)),
    }
    warn(orphan::collect_unused(core));
    Ok(known.into_iter().collect())
}

/// Tells what keeps inodes above that they have changed. The gate is open: it may wait for calls that wait there.
pub(crate) fn tell(core: &Core, known: &[InodeNo]) {
    if let Some(watcher) = core.watcher.get() {
        known.iter().for_each(|no| watcher(*no));
    }
    if let Some(watcher) = core.rolled_back.get() {
        watcher(known);
    }
}

fn warn(done: Result<()>) {
    if let Err(error) = done {
        tracing::warn!("after a rollback: {error}; the next mount tries again");
    }
}

/// Drops all pages of a file, and what is remembered of its extents.
fn drop_data(core: &Core, inode: &Arc<Inode>) {
    let mut content = inode.data.lock_content();
    content.pages.drop_dirty(0..u64::MAX);
    core.data.forget(inode, &mut content);
    inode.data.forget_map();
    inode.lost.forget_all();
}

/// Reads an inode anew that is open; false: it leaves memory.
fn renew(core: &Core, inode: &Inode, state: &mut RwLockWriteGuard<'_, InodeState>) -> bool {
    let read = || match core.store.get(&Key::inode(inode.no)) {
        Ok(bytes) => bytes,
        Err(error) => {
            tracing::error!("inode {}, which is open, cannot be read: {error}", inode.no);
            None
        }
    };
    let is_used = state.handles > 0 && !state.gone;
    let item = if is_used { read() } else { None };
    let renewed = item.and_then(|bytes| {
        let item = InodeItem::decode(&bytes).ok()?;
        (item.file_type() == inode.file_type).then(|| (item, InodeItem::tail(&bytes).into()))
    });
    match renewed {
        Some((item, tail)) => {
            state.renew(item, tail, core.store.latest());
            true
        }
        None => {
            state.ends_stale();
            false
        }
    }
}
