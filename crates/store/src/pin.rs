//! Snapshots that are being looked at: their deletions wait.
//!
//! A pin is in memory only. After a crash, and when the volume closes, what is being deleted goes on without it.

use std::sync::{Arc, Weak};

use holdfast_base::Timestamp;
use holdfast_format::Key;
use holdfast_format::item::{TreeItem, TreeKind};

use crate::tree::{OpenHandle, TreeNo};
use crate::{Result, Store, StoreError};

/// The tree of a snapshot that stays as it is while this lives, though its name may go meanwhile; or of a branch, which
/// may go on changing.
#[derive(Clone, Debug)]
pub struct Pin {
    tree: OpenHandle,
    number: u64,
    is_snapshot: bool,
    _stays: Arc<()>,
}

impl Pin {
    pub(crate) fn tree(&self) -> TreeNo {
        self.tree.no
    }

    /// The number of the branch or snapshot.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether it is a snapshot.
    pub fn is_snapshot(&self) -> bool {
        self.is_snapshot
    }
}

/// What is pinned.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    all: Vec<(u64, Weak<()>)>,
    /// Those whose deletion waits for it.
    waited_for: Vec<u64>,
}

impl Pins {
    fn has(&self, number: u64) -> bool {
        self.all.iter().any(|(other, stays)| *other == number && stays.strong_count() > 0)
    }

    /// Whether the deletion of a snapshot must wait; then [`Pins::let_go`] says when it need not any more.
    pub(crate) fn keeps_waiting(&mut self, number: u64) -> bool {
        let is_pinned = self.has(number);
        if is_pinned && !self.waited_for.contains(&number) {
            self.waited_for.push(number);
        }
        is_pinned
    }

    /// Whether a deletion waits until this is pinned no more.
    pub(crate) fn is_waited_for(&self, number: u64) -> bool {
        self.waited_for.contains(&number)
    }

    /// Those whose deletion need not wait any more.
    pub(crate) fn let_go(&mut self) -> Vec<u64> {
        let waited_for = std::mem::take(&mut self.waited_for);
        let (stay, gone) = waited_for.into_iter().partition(|number| self.has(*number));
        self.waited_for = stay;
        gone
    }

    fn add(&mut self, number: u64) -> Arc<()> {
        let stays = Arc::new(());
        self.all.retain(|(_, stays)| stays.strong_count() > 0);
        self.all.push((number, Arc::downgrade(&stays)));
        stays
    }
}

impl Store {
    /// Pins a branch, or a snapshot of one.
    pub fn pin(&self, branch: &[u8], snapshot: Option<&[u8]>) -> Result<Pin> {
        let inner = &self.inner;
        let _one = inner.lineage.lock();
        let branch = inner.find_tree(0, branch)?;
        let number = snapshot.map_or(Ok(branch), |name| inner.find_tree(branch, name))?;
        self.pin_found(number)
    }

    /// Pins the branch or snapshot of this number. The caller knows that its deletion has not begun.
    pub fn pin_number(&self, number: u64) -> Result<Pin> {
        let _one = self.inner.lineage.lock();
        self.pin_found(number)
    }

    /// The same, unless it is deleted, or its deletion has begun: what that has passed may be in use for something else.
    pub fn pin_whole(&self, number: u64) -> Result<Option<Pin>> {
        let _one = self.inner.lineage.lock();
        match self.inner.is_deleted(number) {
            Ok(true) | Err(StoreError::Lineage(_)) => Ok(None),
            Ok(false) => self.pin_found(number).map(Some),
            Err(error) => Err(error),
        }
    }

    /// Pins what a branch is now: a snapshot without a name, which goes with the pin, or after a crash.
    pub fn pin_now(&self, branch: u64, now: Timestamp) -> Result<Pin> {
        self.inner.passing_snapshot(branch, now, |number| self.pin_found(number))
    }

    /// The caller holds the lineage's lock.
    fn pin_found(&self, number: u64) -> Result<Pin> {
        let TreeItem { kind, .. } = self.inner.tree_item(number)?;
        let tree = self.inner.open_tree(number)?;
        let stays = self.inner.pins.lock().add(number);
        Ok(Pin { tree, number, is_snapshot: kind == TreeKind::Snapshot, _stays: stays })
    }

    /// The value of `key` in what is pinned.
    pub fn get_pinned(&self, pin: &Pin, key: &Key) -> Result<Option<Vec<u8>>> {
        self.inner.get(pin.tree(), key)
    }

    /// See [`crate::Branch::scan`].
    pub fn scan_pinned(
        &self,
        pin: &Pin,
        from: &Key,
        to: &Key,
        mut visit: impl FnMut(Key, &[u8]) -> std::ops::ControlFlow<()>,
    ) -> Result<()> {
        self.inner.scan(pin.tree(), from, to, &mut visit)
    }
}
