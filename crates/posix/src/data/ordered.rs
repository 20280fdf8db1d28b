//! Bytes first, then the extent: how written data becomes visible.
//!
//! An [`OrderedExtent`] holds the proof that its data write has returned. A transaction that points at the blocks is
//! made only from such proofs, so no extent that a reader or a crash can find lacks its data (P5). The pages land in
//! the step in which their extents appear.

use std::sync::Arc;

use holdfast_base::Lsn;
use holdfast_format::Key;
use holdfast_format::item::InodeItem;
use holdfast_store::{Reservation, Transaction, Written};

use super::dirty::{Content, MapGuard};
use crate::Result;
use crate::core::Core;
use crate::inode::{Inode, InodeState};

/// Data on the device that the tree does not know yet.
#[derive(Debug)]
pub(crate) struct OrderedExtent {
    /// First block, counted from the start of the file.
    pub(crate) first: u64,
    /// The proof, with blocks and checksums.
    pub(crate) written: Written,
}

impl OrderedExtent {
    /// The first block of the file after it.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.written.blocks().count
    }
}

/// Makes `transaction` visible, together with the inode as `change` leaves it, as one step for readers. Then `land`
/// updates memory: pages that are in the tree now are dropped, and attributes that callers see are changed.
pub(crate) fn publish(
    core: &Core,
    inode: &Arc<Inode>,
    _map: &MapGuard<'_>,
    mut transaction: Transaction,
    reservation: &mut Reservation,
    change: impl FnOnce(&InodeState, &mut InodeItem),
    land: impl FnOnce(&mut InodeState, &mut Content),
) -> Result<Lsn> {
    // The state is locked while the transaction goes into the tree, so that inode items follow one another
    // in the order of history. Nothing is written to the device here.
    let mut state = inode.state.write();
    state.expect_alive()?;
    let mut item = state.next_disk();
    change(&state, &mut item);
    transaction.put(Key::inode(inode.no), item.bytes());
    let _changing = inode.data.begin_change();
    let lsn = core.store.apply(transaction, reservation)?;
    state.disk = item;
    state.changed = lsn;
    state.atime_waits = false;
    let mut content = inode.data.lock_content();
    land(&mut state, &mut content);
    state.attr.blocks = item.blocks.saturating_add(content.pages.fresh());
    core.data.account(inode, &mut content);
    core.data.release_nodes();
    Ok(lsn)
}
