//! Inodes that items of the whole tree list: orphans, and files of which a part is being removed.

use std::ops::ControlFlow;
use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_format::{ItemKind, Key};
use holdfast_store::{Need, Transaction};

use crate::core::Core;
use crate::inode::Inode;
use crate::{FsError, Result};

/// Items that are read at once.
const ITEMS_PER_BATCH: usize = 64;

/// Does `work` with each inode that has an item of this kind in the list of the whole tree, and with the item.
pub(crate) fn each_listed(
    core: &Core,
    kind: ItemKind,
    mut work: impl FnMut(InodeNo, &[u8]) -> Result<()>,
) -> Result<()> {
    let (mut first, last) = Key::span(InodeNo(0), kind);
    loop {
        let mut found = Vec::new();
        core.store.scan(&first, &last, |key, value| {
            found.push((InodeNo(key.offset), value.to_vec()));
            match found.len() < ITEMS_PER_BATCH {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        let next = found.last().and_then(|(no, _)| no.0.checked_add(1));
        found.iter().try_for_each(|(no, value)| work(*no, value))?;
        match next {
            Some(offset) => first = Key { offset, ..first },
            None => return Ok(()),
        }
    }
}

/// An inode that is listed by an item of this key; one that does not exist is listed no longer.
pub(crate) fn listed(core: &Core, no: InodeNo, key: Key) -> Result<Option<Arc<Inode>>> {
    match core.inode(no) {
        Ok(inode) => Ok(Some(inode)),
        Err(FsError::NotFound) => {
            let mut transaction = Transaction::new();
            transaction.delete(key);
            let mut reservation = core.store.reserve(Need::Shrink { changes: 1 })?;
            core.store.apply(transaction, &mut reservation)?;
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
