//! Inodes that lost their last name, and how they are removed.
//!
//! ```text
//!  last name goes ── not in use, small ────────────────────▶ removed by the same transaction
//!        │
//!        └─ otherwise: nlink 0 and an orphan item ── last handle and reference go, or mount ──▶ collect
//! ```
//!
//! An inode is marked gone under its lock before it is removed, by exactly one thread; from then on it cannot be opened
//! or linked. A large file goes in bounded transactions. The last one removes inode, attributes and orphan item, so
//! that a crash in between leaves an orphan and not a lost piece.

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_format::item::{InodeItem, orphan};
use holdfast_format::{ItemKind, Key};
use holdfast_store::{Need, Transaction};

use crate::core::Core;
use crate::file::content;
use crate::inode::{Inode, InodeState, UNCOUNTED};
use crate::listed::{each_listed, listed};
use crate::{Result, xattr_items};

/// Content items, and as many of attributes, that one transaction of a collection removes.
const ITEMS_PER_BATCH: usize = 64;
/// The same for the transaction that takes the last name: enough for what small files have.
pub(crate) const ITEMS_AT_ONCE: usize = 4;

/// Changes to reserve for an inode that may lose its last name, together with up to `items` of content and
/// as many of attributes: those, the inode's item, and an inline content or, if it stays, the orphan.
pub(crate) const fn last_name_changes(items: usize) -> u32 {
    2 + 2 * items as u32
}

/// What becomes of an inode that has lost its last name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The transaction removes it.
    Removed,
    /// It is unreachable: it is to be collected as soon as the locks are released.
    Collect,
    /// It is open or remembered.
    Waits,
}

/// A transaction with what the loss of the last name means, with at most [`last_name_changes`] of `items`. `draft` has
/// nlink 0; the caller puts it unless the answer is [`Fate::Removed`].
pub(crate) fn plan_last_name(
    core: &Core,
    inode: &Inode,
    state: &InodeState,
    draft: &InodeItem,
    items: usize,
) -> Result<(Fate, Transaction)> {
    let needed = state.handles > 0 || state.lookups > 0;
    let mut transaction = Transaction::new();
    if !needed
        && items > 0
        && inode.data.is_clean()
        && core.data.punches.of(inode.no).is_none()
        && plan_removal(core, inode.no, draft, &mut transaction, items)?
    {
        transaction.delete(Key::inode(inode.no));
        transaction.count_inodes(-1);
        return Ok((Fate::Removed, transaction));
    }
    // Removing a part would save nothing, and needs more space at once.
    let mut transaction = Transaction::new();
    transaction.put(Key::orphan(inode.no), orphan::VALUE);
    Ok((if needed { Fate::Waits } else { Fate::Collect }, transaction))
}

impl Fate {
    /// After the transaction was applied: marks the inode, whose state is still locked.
    pub(crate) fn mark(self, core: &Core, inode: &Inode, state: &mut InodeState) {
        state.gone = self != Fate::Waits;
        if self == Fate::Waits {
            note_if_leaving(core, inode, state);
        }
    }

    /// After the locks were released: removes what is to be removed.
    pub(crate) fn finish(self, core: &Core, inode: &Arc<Inode>) {
        match self {
            Fate::Removed => core.inodes.remove(inode.no),
            Fate::Collect => collect(core, inode),
            Fate::Waits => {}
        }
    }
}

/// The last name or handle of an inode has gone, and its state is still locked: while it is remembered, callers that look
/// for space wait a moment for it. It may have a handle that was closed before its name went: the kernel says so later.
pub(crate) fn note_if_leaving(core: &Core, inode: &Inode, state: &InodeState) {
    if state.is_remembered_orphan() {
        core.leaving.expect(inode.no);
    }
}

/// Appends the removal of content and attributes; true when nothing is left of them.
fn plan_removal(
    core: &Core,
    no: InodeNo,
    item: &InodeItem,
    transaction: &mut Transaction,
    items_max: usize,
) -> Result<bool> {
    // What has content has a size, or blocks beyond it: nothing to search for otherwise.
    let has_content = item.size > 0 || item.blocks > 0;
    if has_content && !content::plan_removal(core, no, transaction, items_max)? {
        return Ok(false);
    }
    Ok(item.flags & InodeItem::HAS_XATTRS == 0
        || xattr_items::plan_removal_of_all(core, no, transaction, items_max)?)
}

/// Removes an inode that is marked gone. What fails here is tried again by the next mount.
pub(crate) fn collect(core: &Core, inode: &Arc<Inode>) {
    let _removal = core.leaving.begin(inode.no);
    crate::data::discard(core, inode);
    if let Err(error) = remove(core, inode) {
        tracing::warn!(
            "inode {} without a name could not be removed: {error}; the next mount tries again",
            inode.no
        );
    }
    core.inodes.remove(inode.no);
}

fn remove(core: &Core, inode: &Inode) -> Result<()> {
    let item = inode.state.read().disk;
    let mut items = ITEMS_PER_BATCH;
    loop {
        let mut transaction = Transaction::new();
        let finished = plan_removal(core, inode.no, &item, &mut transaction, items)?;
        if finished {
            transaction.delete(Key::inode(inode.no));
            transaction.delete(Key::orphan(inode.no));
            if core.data.punches.of(inode.no).is_some() {
                transaction.delete(Key::punch(inode.no));
            }
            transaction.count_inodes(-1);
        }
        let changes = transaction.changes();
        // One that fails would be tried again only with the next mount.
        let Some(mut reservation) = core.reserve_for(items, Need::Shrink { changes })? else {
            items /= 4;
            continue;
        };
        core.store.apply(transaction, &mut reservation)?;
        if finished {
            core.data.punches.end(inode.no);
            return Ok(());
        }
    }
}

impl Core {
    /// Removes an inode as soon as the gate is open: at once, or by the call that opens it. The inode is marked gone.
    pub(crate) fn collect_soon(&self, inode: &Arc<Inode>) {
        self.left.lock().push(inode.clone());
        self.collect_left();
    }

    /// Removes what [`Core::collect_soon`] has left, unless the gate is closed.
    pub(crate) fn collect_left(&self) {
        while let Some(_inside) = self.gate.try_enter() {
            let Some(inode) = self.left.lock().pop() else { return };
            // A rollback may have come first: then another inode has its number.
            if inode.state.read().expect_fresh().is_ok() {
                collect(self, &inode);
            }
        }
    }
}

/// Keeps every orphan in memory, as one that the kernel knows: a program may have it open, or may give it a name.
pub(crate) fn keep_all(core: &Core) -> Result<()> {
    each(core, |no| {
        let Some(inode) = orphaned(core, no)? else { return Ok(()) };
        let mut state = inode.state.write();
        // What has lost its name the kernel gives none any more.
        (state.lookups, state.linkable) = (UNCOUNTED, true);
        Ok(())
    })
}

/// Removes every orphan: after a crash, and before a volume is left.
pub(crate) fn collect_all(core: &Core) -> Result<()> {
    collect_if(core, |_| true)
}

/// Removes every orphan that is neither open nor remembered: after a rollback.
pub(crate) fn collect_unused(core: &Core) -> Result<()> {
    collect_if(core, |state| state.handles == 0 && state.lookups == 0)
}

fn collect_if(core: &Core, is_wanted: impl Fn(&InodeState) -> bool) -> Result<()> {
    each(core, |no| {
        let Some(inode) = orphaned(core, no)? else { return Ok(()) };
        let mut state = inode.state.write();
        if is_wanted(&state) && !std::mem::replace(&mut state.gone, true) {
            drop(state);
            collect(core, &inode);
        }
        Ok(())
    })
}

/// Does `work` with the number of each orphan.
fn each(core: &Core, work: impl Fn(InodeNo) -> Result<()>) -> Result<()> {
    each_listed(core, ItemKind::Orphan, |no, _| work(no))
}

/// The inode that is listed as an orphan, if it is one.
fn orphaned(core: &Core, no: InodeNo) -> Result<Option<Arc<Inode>>> {
    let inode = listed(core, no, Key::orphan(no))?;
    if inode.as_ref().is_some_and(|inode| inode.state.read().disk.nlink > 0) {
        // The list is wrong, not the file: never remove what has a name.
        tracing::error!("inode {no} has a name and is listed as an orphan; run fsck");
        return Ok(None);
    }
    Ok(inode)
}
