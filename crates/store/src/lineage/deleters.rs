//! Which deletions wait and which of them can go on, in memory: neither a step nor a new deletion looks at all of them.
//!
//! One waits while two trees have grown out of its snapshot, and can go on when one of these is gone: that is when the deletion
//! of a child ends. So each deletion is looked at when it begins, and when one of the children ends. And one waits while its
//! snapshot is pinned ([`crate::pin`]).
//!
//! One that fails, because its snapshot is damaged, is set aside until the next opening: others go on. One whose nodes the device
//! does not read just now is tried again with the next call, and others go on meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Weak};

use holdfast_format::item::lineage::LINEAGE;
use holdfast_format::item::{TreeItem, TreeKind, WalkPlace};
use holdfast_format::{ItemKind, Key};
use parking_lot::Mutex;

use crate::transaction::Changes;
use crate::tree::open::OpenTrees;

/// So many trees that have changed are looked at for each snapshot.
pub(super) const CHANGED_EACH: usize = 4;

/// What is known of the deletions of a volume. Changes under the lineage's lock.
#[derive(Debug, Default)]
pub(crate) struct Walks {
    /// The items of all deletions were looked at, once.
    are_known: bool,
    /// The one that goes on until its end.
    current: Option<u64>,
    /// Snapshots whose deletion can go on, perhaps.
    ready: BTreeSet<u64>,
    /// How many there are.
    left: u64,
    /// Those that have failed on what is damaged, and why.
    set_aside: BTreeMap<u64, String>,
    /// Those that the device has kept from going on when they were tried last, and why.
    refused: BTreeMap<u64, String>,
    /// Steps were made since a commit of them was asked for last.
    has_freed: bool,
    pub(super) snapshots: Snapshots,
    going: Going,
    /// What each look that goes on has to look at once more.
    looks: Vec<Weak<Mutex<BTreeSet<u64>>>>,
}

/// A look at snapshots that goes on beside changes of the lineage, until it is dropped. Each has all changes for itself: it is made by
/// [`Walks::look_begins`] alone, and not copied.
#[derive(Debug)]
pub(super) struct Look {
    /// Trees that have changed since they were looked at, or may not have been looked at.
    changed: Arc<Mutex<BTreeSet<u64>>>,
    /// What is not larger of the snapshots of a branch was looked at.
    behind: u64,
}

impl Look {
    /// It is told of trees that are closed as well.
    pub(super) fn hears_of_closings(&self, trees: &mut OpenTrees) {
        trees.tell_closed(Arc::downgrade(&self.changed));
    }

    /// Some of what has changed: it is to be looked at now.
    pub(super) fn take_changed(&self, most: usize) -> Vec<u64> {
        let mut changed = self.changed.lock();
        (0..most).map_while(|_| changed.pop_first()).collect()
    }
}

/// Branches that go.
#[derive(Debug, Default)]
struct Going {
    are_known: bool,
    all: BTreeMap<u64, Following>,
    /// The device has kept these from going on.
    refused: BTreeSet<u64>,
}

/// The snapshots of a branch that goes.
#[derive(Debug)]
struct Following {
    /// The branch that they are of now; 0: they are deleted.
    to: u64,
    /// Those that follow still.
    left: Vec<u64>,
}

/// The snapshots of each branch as items say it, once they were wanted: nothing on disk lists them by branch.
#[derive(Debug, Default)]
pub(super) struct Snapshots(Option<BTreeMap<u64, BTreeSet<u64>>>);

impl Snapshots {
    pub(super) fn are_known(&self) -> bool {
        self.0.is_some()
    }

    /// These are all: branch and number of each.
    pub(super) fn are(&mut self, all: impl IntoIterator<Item = (u64, u64)>) {
        let known = self.0.insert(BTreeMap::new());
        for (branch, number) in all {
            known.entry(branch).or_default().insert(number);
        }
    }

    /// What a commit has made of items.
    pub(super) fn follow(&mut self, changes: &Changes) {
        let Some(known) = &mut self.0 else { return };
        for change in changes.iter().filter(|change| change.key.kind == ItemKind::Tree) {
            let item = change.value.and_then(|value| TreeItem::decode(value).ok());
            if let Some(item) = item.filter(|item| item.kind == TreeKind::Snapshot) {
                let number = change.key.inode.0.saturating_sub(LINEAGE);
                known.entry(item.branch).or_default().insert(number);
            }
        }
    }

    /// One is there no more.
    pub(super) fn ended(&mut self, branch: u64, number: u64) {
        let Some(known) = &mut self.0 else { return };
        if let Some(of) = known.get_mut(&branch) {
            of.remove(&number);
            if of.is_empty() {
                known.remove(&branch);
            }
        }
    }

    /// These are of a branch now.
    fn come(&mut self, branch: u64, some: &[u64]) {
        let Some(known) = &mut self.0 else { return };
        known.entry(branch).or_default().extend(some);
    }

    /// A branch is gone. If it had snapshots they follow it.
    pub(super) fn gone(&mut self, branch: u64) {
        self.0.iter_mut().for_each(|known| drop(known.remove(&branch)));
    }

    /// Those of a branch.
    pub(super) fn of(&self, branch: u64) -> Vec<u64> {
        let of = self.0.iter().filter_map(|known| known.get(&branch));
        of.flatten().copied().collect()
    }

    /// The first so many of a branch with larger numbers than that.
    fn behind(&self, branch: u64, number: u64, most: usize) -> Vec<u64> {
        let of = self.0.iter().filter_map(|known| known.get(&branch));
        let behind = (Bound::Excluded(number), Bound::Unbounded);
        of.flat_map(|of| of.range(behind)).take(most).copied().collect()
    }
}

impl Walks {
    pub(super) fn are_known(&self) -> bool {
        self.are_known
    }

    /// How many wait.
    pub(super) fn left(&self) -> u64 {
        let deleted = self.going.all.values().filter(|of| of.to == 0);
        deleted.fold(self.left, |sum, of| sum.saturating_add(of.left.len() as u64))
    }

    /// These are all.
    pub(super) fn are(&mut self, all: &BTreeMap<u64, WalkPlace>) {
        let begun = all.iter().find(|(_, cursor)| **cursor != WalkPlace::start());
        *self = Walks {
            are_known: true,
            current: begun.map(|(snapshot, _)| *snapshot),
            ready: all.keys().copied().collect(),
            left: all.len() as u64,
            set_aside: BTreeMap::new(),
            refused: BTreeMap::new(),
            has_freed: self.has_freed,
            snapshots: std::mem::take(&mut self.snapshots),
            going: std::mem::take(&mut self.going),
            looks: std::mem::take(&mut self.looks),
        };
    }

    /// This one has failed: it is tried again when the volume is opened next.
    pub(super) fn set_aside(&mut self, snapshot: u64, why: String) {
        self.waits(snapshot);
        self.set_aside.insert(snapshot, why);
    }

    /// The device does not read what this one needs: others go on, until [`Walks::try_again`].
    pub(super) fn is_refused(&mut self, snapshot: u64, why: String) {
        self.waits(snapshot);
        self.going.refused.insert(snapshot);
        self.refused.insert(snapshot, why);
    }

    /// Those that the device refused can go on, perhaps.
    pub(super) fn try_again(&mut self) {
        self.going.refused.clear();
        self.ready.extend(self.refused.keys());
    }

    /// A step was made, which no commit has yet.
    pub(super) fn has_freed(&mut self) {
        self.has_freed = true;
    }

    /// Whether there was one since this was asked last.
    pub(super) fn take_freed(&mut self) -> bool {
        std::mem::take(&mut self.has_freed)
    }

    /// This one has come further.
    pub(super) fn came_further(&mut self, snapshot: u64) {
        self.refused.remove(&snapshot);
    }

    /// Those that have failed, and why.
    pub(super) fn failed(&self) -> impl Iterator<Item = (u64, &str)> {
        let all = self.set_aside.iter().chain(&self.refused);
        all.map(|(snapshot, why)| (*snapshot, why.as_str()))
    }

    /// Deletions have begun. What is not known yet is found with all others.
    pub(super) fn begin(&mut self, snapshots: &[u64]) {
        if self.are_known {
            self.ready.extend(snapshots);
            self.left = self.left.saturating_add(snapshots.len() as u64);
        }
    }

    /// The one to go on with, if it can.
    pub(super) fn next(&self) -> Option<u64> {
        self.current.or_else(|| self.ready.first().copied())
    }

    /// One that waited for that has no view any more.
    pub(super) fn may_go_on(&mut self, snapshot: u64) {
        self.ready.insert(snapshot);
    }

    /// This one goes on.
    pub(super) fn goes_on(&mut self, snapshot: u64) {
        self.current = Some(snapshot);
    }

    /// More than one tree has grown out of it, or it is looked at, or is no deletion.
    pub(super) fn waits(&mut self, snapshot: u64) {
        self.ready.remove(&snapshot);
        self.current = self.current.filter(|current| *current != snapshot);
    }

    /// One has come to its end: fewer trees may have grown out of its parent, and neither that nor its child waits for it.
    pub(super) fn ended(&mut self, snapshot: u64, beside: impl IntoIterator<Item = u64>) {
        let beside: Vec<u64> = beside.into_iter().filter(|other| *other != 0).collect();
        // What has grown out of it has another parent now.
        self.tell_looks(beside.iter().copied().chain([snapshot]));
        self.waits(snapshot);
        self.came_further(snapshot);
        self.left = self.left.saturating_sub(1);
        self.ready.extend(beside.into_iter().filter(|other| !self.set_aside.contains_key(other)));
    }

    /// Begins a look.
    pub(super) fn look_begins(&mut self) -> Look {
        // A lineage that rests tells no look, and each list begins one.
        self.forget_ended_looks();
        let changed = Arc::default();
        self.looks.push(Arc::downgrade(&changed));
        Look { changed, behind: 0 }
    }

    fn forget_ended_looks(&mut self) {
        self.looks.retain(|look| look.strong_count() > 0);
    }

    /// What a look at the snapshots of a branch comes to next, and whether these are the last: some behind those that it has seen,
    /// and more of what has changed, of any branch: or a branch that goes beside it would keep it from its end.
    pub(super) fn look_on(&self, look: &mut Look, branch: u64, most: usize) -> (Vec<u64>, bool) {
        let mut some = self.snapshots.behind(branch, look.behind, most);
        look.behind = some.last().copied().unwrap_or(look.behind);
        let of_changed = most.saturating_mul(CHANGED_EACH);
        let changed = look.take_changed(of_changed);
        let is_end = some.len() < most && changed.len() < of_changed;
        some.extend(changed);
        (some, is_end)
    }

    /// These are to be looked at once more.
    fn tell_looks(&mut self, trees: impl IntoIterator<Item = u64>) {
        self.forget_ended_looks();
        if self.looks.is_empty() {
            return;
        }
        let trees: Vec<u64> = trees.into_iter().collect();
        self.looks.iter().filter_map(Weak::upgrade).for_each(|of| of.lock().extend(&trees));
    }

    /// Items change, or are about to.
    pub(super) fn changes(&mut self, keys: impl Iterator<Item = Key>) {
        let trees = keys.flat_map(|key| {
            let number = key.inode.0.saturating_sub(LINEAGE);
            match key.kind {
                ItemKind::Tree | ItemKind::Hold => [Some(number), None],
                ItemKind::Child => [Some(number), Some(key.offset)],
                _ => [None, None],
            }
        });
        self.tell_looks(trees.flatten());
    }

    /// A branch goes, and its snapshots follow it: they are of `to` now, or, with 0, are deleted.
    pub(super) fn goes(&mut self, branch: u64, to: u64, snapshots: Vec<u64>) {
        self.snapshots.gone(branch);
        self.going.all.entry(branch).or_insert(Following { to, left: snapshots });
    }

    /// A branch that goes whose snapshots are of one of these now.
    pub(super) fn joins(&self, branches: &[u64]) -> Option<u64> {
        let joins = |of: &Following| of.to != 0 && branches.contains(&of.to);
        self.going.all.iter().find(|(_, of)| joins(of)).map(|(branch, _)| *branch)
    }

    /// Whether snapshots of it are left that follow.
    pub(super) fn is_going(&self, branch: u64) -> bool {
        self.going.all.contains_key(&branch)
    }

    /// What the snapshots of a branch that goes are of now.
    pub(super) fn goes_to(&self, branch: u64) -> u64 {
        self.going.all.get(&branch).map_or(0, |of| of.to)
    }

    pub(super) fn has_found_going(&self) -> bool {
        self.going.are_known
    }

    /// There are no others that go.
    pub(super) fn has_all_going(&mut self) {
        self.going.are_known = true;
    }

    /// A branch that goes, whose snapshots can follow it.
    pub(super) fn next_going(&self) -> Option<u64> {
        let is_kept = |branch: &u64| {
            self.going.refused.contains(branch) || self.set_aside.contains_key(branch)
        };
        self.going.all.keys().copied().find(|branch| !is_kept(branch))
    }

    /// Some of those that follow a branch.
    pub(super) fn following(&self, branch: u64, most: usize) -> Vec<u64> {
        let left = self.going.all.get(&branch).map_or(&[][..], |of| &of.left);
        left.iter().rev().take(most).copied().collect()
    }

    /// They have followed.
    pub(super) fn followed(&mut self, branch: u64, some: &[u64]) {
        self.came_further(branch);
        let Some(of) = self.going.all.get_mut(&branch) else { return };
        of.left.truncate(of.left.len().saturating_sub(some.len()));
        if of.to != 0 {
            self.snapshots.come(of.to, some);
        }
    }

    /// All have.
    pub(super) fn is_gone(&mut self, branch: u64) {
        self.came_further(branch);
        self.going.all.remove(&branch);
    }
}

#[cfg(test)]
mod tests {
    use holdfast_format::item::HoldItem;
    use holdfast_format::item::lineage::child_key;

    use super::*;

    fn changed() -> Changes {
        let mut changes = Changes::default();
        changes.put(child_key(12, 99), b"");
        changes.put(TreeItem::key(15), b"");
        changes.put(HoldItem::key(13, b"mine"), b"");
        changes
    }

    #[test]
    fn what_changes_beside_a_look_is_looked_at_once_more() {
        let mut walks = Walks::default();
        walks.snapshots.are((10..20).map(|number| (7, number)));
        let mut look = walks.look_begins();
        let mut on = |walks: &Walks| walks.look_on(&mut look, 7, 4);
        assert_eq!(on(&walks), (vec![10, 11, 12, 13], false));
        walks.changes(changed().iter().map(|change| change.key));
        assert_eq!(on(&walks), (vec![14, 15, 16, 17, 12, 13, 15, 99], false));
        assert_eq!(on(&walks), (vec![18, 19], true));
        walks.tell_looks(100..120);
        assert_eq!(on(&walks), ((100..116).collect(), false));
        assert_eq!(on(&walks), ((116..120).collect(), true));
        drop(look);
        walks.changes(changed().iter().map(|change| change.key));
        assert_eq!(walks.looks.len(), 0, "nothing is kept for a look that is over");
    }

    #[test]
    fn a_look_that_has_ended_is_forgotten_when_the_next_begins() {
        let mut walks = Walks::default();
        for _ in 0..3 {
            drop(walks.look_begins());
        }
        assert_eq!(walks.looks.len(), 1);
    }

    /// Two calls look at one branch: what has changed is for both, and neither ends the other's.
    #[test]
    fn each_look_has_what_has_changed_for_itself() {
        let mut walks = Walks::default();
        walks.snapshots.are((10..13).map(|number| (7, number)));
        let mut looks = [walks.look_begins(), walks.look_begins()];
        for look in &mut looks {
            assert_eq!(walks.look_on(look, 7, 9), (vec![10, 11, 12], true));
        }
        walks.changes(changed().iter().map(|change| change.key));
        let [mut first, second] = looks;
        drop(second);
        walks.ended(11, []);
        assert_eq!(walks.look_on(&mut first, 7, 9), (vec![11, 12, 13, 15, 99], true));
    }
}
