//! What becomes of the names of snapshots, for those who show them.

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
    /// Its name before; empty: it had none, or was another branch's.
    pub was: Vec<u8>,
    /// Its name now; empty: it has none, or is another branch's.
    pub is: Vec<u8>,
}

/// Hears of all of them.
type Listener = Box<dyn Fn(&SnapshotNamed) + Send + Sync>;

/// Who hears of them.
#[derive(Default)]
pub(crate) struct NameListener(OnceLock<Listener>);

impl NameListener {
    /// The first one stays.
    pub(crate) fn set(&self, listener: Listener) {
        let _ = self.0.set(listener);
    }

    /// Tells of changes that have been made.
    pub(super) fn tell(&self, of: &[SnapshotNamed]) {
        if let Some(listener) = self.0.get() {
            of.iter().for_each(listener);
        }
    }
}

impl std::fmt::Debug for NameListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NameListener")
    }
}

/// What changes of items make of names; `before`: what the items were.
pub(super) fn named(changes: &Changes, before: &Items) -> Vec<SnapshotNamed> {
    let mut all = Vec::new();
    for change in changes.iter().filter(|change| change.key.kind == ItemKind::Tree) {
        let snapshot = change.key.inode.0.saturating_sub(LINEAGE);
        let was = before.get(&change.key).and_then(|bytes| name_in(bytes.as_ref()?));
        let is = change.value.and_then(name_in);
        match (was, is) {
            (Some((branch, was)), Some((now, is))) if branch == now => {
                if was != is {
                    all.push(SnapshotNamed { branch, snapshot, was, is });
                }
            }
            (was, is) => {
                let gone = was.map(|(branch, was)| (branch, was, Vec::new()));
                let come = is.map(|(branch, is)| (branch, Vec::new(), is));
                let both = gone.into_iter().chain(come);
                all.extend(both.map(|(branch, was, is)| SnapshotNamed {
                    branch,
                    snapshot,
                    was,
                    is,
                }));
            }
        }
    }
    all
}

/// Branch and name, if it is a snapshot that has one.
fn name_in(item: &[u8]) -> Option<(u64, Vec<u8>)> {
    let item = TreeItem::decode(item).ok()?;
    let is_named = item.kind == TreeKind::Snapshot && !item.name.is_empty();
    is_named.then_some((item.branch, item.name))
}
