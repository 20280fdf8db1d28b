//! How written data becomes visible: the pages land in the step in which their extents appear.

use std::sync::Arc;

use holdfast_base::Lsn;
use holdfast_format::item::InodeItem;
use holdfast_store::{Reservation, Transaction};

use crate::Result;
use crate::core::Core;
use crate::file_data::{Content, MapGuard};
use crate::inode::{Inode, InodeState};

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
    state.put(inode.no, &item, &mut transaction);
    let _changing = inode.data.version.begin_change();
    let lsn = core.store.apply(transaction, reservation)?;
    state.disk = item;
    state.changed = lsn;
    state.atime_waits = false;
    let mut content = inode.data.lock_content();
    land(&mut state, &mut content);
    state.attr.blocks = item.blocks.saturating_add(content.pages.fresh());
    core.data.account(inode, &mut content);
    Ok(lsn)
}
