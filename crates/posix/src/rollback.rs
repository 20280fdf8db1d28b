//! What is in memory of a branch when it goes back to a snapshot, or becomes what a fork is.
//!
//! Nothing of the old head may show later. So none can be loaded, the inodes in memory are locked, the store turns the
//! branch, and what is known of each inode is thrown away or read anew: an open file goes on with what the snapshot has of
//! it, or is stale. A reader meets the old head or the new one, never half of both.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdfast_base::InodeNo;
use holdfast_format::Key;
use holdfast_format::item::InodeItem;
use holdfast_store::Pin;
use parking_lot::RwLockWriteGuard;

use crate::core::Core;
use crate::data::punch;
use crate::heads_differ::HeadsDiffer;
use crate::inode::{Inode, InodeState};
use crate::{Affected, Differs, FileType, NameIn, Result, Turned, orphan};

/// Turns the branch by `turn` to the head of another branch or snapshot, which was [read before](HeadsDiffer::warm), and tells what keeps inodes above. The gate is closed. False if `turn`
/// says that it has done nothing: nothing has happened.
pub(crate) fn roll_back(
    core: &Core,
    to: Option<&Pin>,
    turn: impl FnOnce() -> Result<bool>,
) -> Result<bool> {
    let heads = to.and_then(|to| {
        // A head that cannot be read is left all the same.
        HeadsDiffer::between(&core.store, to).unwrap_or_else(|error| {
            tracing::warn!("before a rollback: {error}");
            None
        })
    });
    let of_heads = |no| heads.as_ref().map_or(Differs::Anywhere, |heads| heads.of(no));
    let loads = core.inodes.stop_loads();
    let inodes = core.inodes.all();
    let mut states: Vec<_> = inodes.iter().map(|inode| inode.state.write()).collect();
    let mut table = core.inodes.lock_all();
    assert_eq!(table.len(), inodes.len(), "an inode came or went beside a rollback");
    let changing: Vec<_> = inodes.iter().map(|inode| inode.data.version.begin_change()).collect();
    if !turn()? {
        return Ok(false);
    }
    core.data.punches.clear();
    core.data.losses.forget();
    core.atimes.lock().inodes.clear();
    core.left.lock().clear();
    core.last_move.store(core.store.latest().0, Ordering::Release);
    let not_here = |inode| Affected {
        inode,
        is_open: false,
        size: None,
        is_dead: false,
        // It had nothing that was not written.
        differs: of_heads(inode),
    };
    let mut known: Vec<Affected> = table.remembered().map(not_here).collect();
    for (inode, state) in inodes.iter().zip(&mut states) {
        if state.lookups > 0 || state.handles > 0 {
            let (is_open, size) = (state.handles > 0, Some(state.attr.size));
            let differs = match is_open || !is_as_written(inode, state) {
                true => Differs::Anywhere,
                false => of_heads(inode.no),
            };
            let is_dead = inode.file_type == FileType::Directory && state.is_remembered_orphan();
            known.push(Affected { inode: inode.no, is_open, size, is_dead, differs });
        }
        forget(core, inode);
        if !renew(core, inode, state) {
            table.remove(inode.no, state.lookups);
        }
    }
    table.all_left();
    // Before a reader can look: what is left of holes reads as zeros.
    let holes = punch::load(core);
    if let Ok(holes) = &holes {
        // They are about to change.
        let changing = known.iter_mut().filter(|of| holes.contains(&of.inode));
        changing.for_each(|of| of.differs = Differs::Anywhere);
    }
    let names = heads.map(|mut heads| {
        heads.names.retain(|(dir, _)| *dir == InodeNo::ROOT || table.is_remembered(*dir));
        heads.names
    });
    tell(core, &known, names.as_deref());
    drop((changing, table, states, loads));
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
    Ok(true)
}

/// Tells what keeps inodes above that they have changed. No caller has seen the new head yet, and no change of it has begun.
fn tell(core: &Core, known: &[Affected], names: Option<&[NameIn]>) {
    let number = core.turns.load(Ordering::Acquire) + 1;
    if let Some(watcher) = core.rolled_back.get() {
        watcher(&Turned { number, known, names });
    }
    core.turns.store(number, Ordering::Release);
}

/// Whether callers see of an inode what the tree holds, and nothing else.
fn is_as_written(inode: &Inode, state: &InodeState) -> bool {
    // What callers see does not count changes.
    let shown = InodeItem { change: state.disk.change, ..state.attr };
    shown == state.disk && !state.gone && inode.data.is_clean()
}

fn warn(done: Result<()>) {
    if let Err(error) = done {
        tracing::warn!("after a rollback: {error}; the next mount tries again");
    }
}

/// Forgets what belongs to the old head: all pages of a file, what is remembered of its extents, and what was lost of it.
fn forget(core: &Core, inode: &Arc<Inode>) {
    let mut content = inode.data.lock_content();
    content.pages.drop_dirty(0..u64::MAX);
    core.data.forget(inode, &mut content);
    inode.data.forget_map();
    inode.lost.forget_all();
    inode.errors.forget_all();
    *inode.receipt.lock() = None;
}

/// Reads an inode anew that is open, or that a call has in hand and waits for; false: it leaves memory. No thread can get
/// hold of it meanwhile: the table is locked.
fn renew(core: &Core, inode: &Arc<Inode>, state: &mut RwLockWriteGuard<'_, InodeState>) -> bool {
    let read = || match core.store.get(&Key::inode(inode.no)) {
        Ok(bytes) => bytes,
        Err(error) => {
            let whose = if state.handles > 0 { "is open" } else { "a call waits for" };
            tracing::error!("inode {}, which {whose}, cannot be read: {error}", inode.no);
            None
        }
    };
    // The table has one, and the list of all of them.
    let is_in_hand = Arc::strong_count(inode) > 2;
    let is_used = (state.handles > 0 || is_in_hand) && !state.gone;
    let item = if is_used { read() } else { None };
    let renewed = item.and_then(|bytes| {
        let item = InodeItem::decode(&bytes).ok()?;
        item.check_carried(&bytes, core.store.carried()).ok()?;
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
