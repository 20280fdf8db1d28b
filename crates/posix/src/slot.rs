//! Items found by the hash of a name: directory entries and extended attributes.
//!
//! The key offset of such an item is the slot of its name's hash and a probe
//! number that tells up to 256 names with one hash apart. It never changes
//! while the item lives.
//!
//! Knows nothing of what the items say.

use std::ops::ControlFlow;

use holdfast_base::InodeNo;
use holdfast_format::item::dentry;
use holdfast_format::{ItemKind, Key, Malformed};

use crate::Result;
use crate::core::Core;

/// Names with one hash.
const PROBES: u64 = 256;

/// What a search for a name met.
pub(crate) struct Slot<T> {
    /// Key offset and content of the item of that name.
    pub(crate) found: Option<(u64, T)>,
    /// A key offset that a new item of that name may take, unless all before the item are taken.
    pub(crate) free: Option<u64>,
}

/// Searches the items of one `kind` of an inode for `name`. `decode` gives the content of the item
/// that has the name and `None` for others; the search ends at the first one that it finds malformed.
pub(crate) fn search<T>(
    core: &Core,
    inode: InodeNo,
    kind: ItemKind,
    name: &[u8],
    mut decode: impl FnMut(&[u8]) -> std::result::Result<Option<T>, Malformed>,
) -> Result<std::result::Result<Slot<T>, Malformed>> {
    let first = core.slot(name);
    let mut expected = first;
    let mut slot = Slot { found: None, free: None };
    let mut damage = None;
    let from = Key::new(inode, kind, first);
    let to = Key::new(inode, kind, dentry::slot_end(first));
    core.store.scan(&from, &to, |key, value| {
        if slot.free.is_none() && key.offset > expected {
            slot.free = Some(expected);
        }
        expected = key.offset + 1;
        match decode(value) {
            Ok(None) => return ControlFlow::Continue(()),
            Ok(Some(content)) => slot.found = Some((key.offset, content)),
            Err(source) => damage = Some(source),
        }
        ControlFlow::Break(())
    })?;
    if slot.free.is_none() && expected < first + PROBES {
        slot.free = Some(expected);
    }
    Ok(damage.map_or(Ok(slot), Err))
}
