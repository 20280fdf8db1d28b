//! What becomes of the names of snapshots, for what shows them.

use std::sync::OnceLock;

use holdfast_format::ItemKind;
use holdfast_format::item::lineage::LINEAGE;
use holdfast_format::item::{TreeItem, TreeKind};

use super::plan::Items;
use crate::transaction::Changes;

/// A snapshot of a branch has got a name, has another one, or has none any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotNamed {
    /// The branch.
    pub branch: u64,
    /// The snapshot.
    pub snapshot: u64,
    /// Its name before; empty: it had none.
    pub was: Vec<u8>,
    /// Its name now; empty: it has none.
    pub is: Vec<u8>,
}

/// What becomes of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameChange {
    /// One snapshot has another.
    Snapshot(SnapshotNamed),
    /// All snapshots of a branch, which is gone, are another one's, under their names.
    Joined {
        /// The branch that is gone.
        from: u64,
        /// The branch that they are of now.
        to: u64,
    },
}

/// Hears of all of them.
type Listener = Box<dyn Fn(&NameChange) + Send + Sync>;

/// The listener.
#[derive(Default)]
pub(crate) struct NameListener(OnceLock<Listener>);

impl NameListener {
    /// The first one stays.
    pub(crate) fn set(&self, listener: Listener) {
        let _ = self.0.set(listener);
    }

    /// Tells of a change that has been made.
    pub(super) fn tell(&self, of: &NameChange) {
        if let Some(listener) = self.0.get() {
            listener(of);
        }
    }
}

holdfast_base::opaque!(NameListener);

/// What changes of items make of names; `before`: what the items were. Of which branch an item says that it is changes behind
/// [`NameChange::Joined`] alone.
pub(super) fn named(changes: &Changes, before: &Items) -> Vec<SnapshotNamed> {
    let mut all = Vec::new();
    for change in changes.iter().filter(|change| change.key.kind == ItemKind::Tree) {
        let Some(now) = change.value.and_then(snapshot_in) else { continue };
        let before = before.get(&change.key).and_then(|bytes| snapshot_in(bytes.as_ref()?));
        let was = before.map(|before| before.name).unwrap_or_default();
        if was != now.name {
            let snapshot = change.key.inode.0.saturating_sub(LINEAGE);
            all.push(SnapshotNamed { branch: now.branch, snapshot, was, is: now.name });
        }
    }
    all
}

fn snapshot_in(item: &[u8]) -> Option<TreeItem> {
    TreeItem::decode(item).ok().filter(|item| item.kind == TreeKind::Snapshot)
}
