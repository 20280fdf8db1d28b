//! What the log changed of items and data: it stands in front of the trees and of the device.

use std::collections::BTreeMap;

use holdfast_base::BlockNo;
use holdfast_format::Key;

use crate::patched::Patched;

/// What a key is after the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its value; `None` if it has none.
    pub value: Option<Vec<u8>>,
    /// The block of the ring in which the batch begins that says so.
    pub block: BlockNo,
}

/// All that the log changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Changes<'a> {
    /// Keys of the files tree of one branch, with what they are now.
    pub(crate) items: &'a BTreeMap<Key, Change>,
    /// Keys of branches and snapshots, which lie in the space tree.
    pub(crate) lineage: &'a BTreeMap<Key, Change>,
    /// Blocks whose data lies in the log.
    pub(crate) data: &'a Patched,
}

/// Of a tree that the log does not change.
pub(crate) static NO_CHANGES: BTreeMap<Key, Change> = BTreeMap::new();
