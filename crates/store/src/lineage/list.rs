//! Lists of all branches and snapshots, and of all deletions: others go on meanwhile, however long it is.
//!
//! A list is read while others change the lineage. What they have changed meanwhile is read once more, some under each hold of the lineage's
//! lock, until nothing is left: then it is of one moment. So is what they have opened and closed: the counts of what is open are known.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use holdfast_base::InodeNo;
use holdfast_format::item::lineage::{LINEAGE, MAIN};
use holdfast_format::item::{
    HoldItem, OriginItem, RootItem, TreeItem, TreeKind, WalkItem, WalkPlace,
};
use holdfast_format::{ItemKind, Key, Malformed};
use parking_lot::MutexGuard;

use super::deleters::{CHANGED_EACH, Look, Walks};
use super::going::SOME;
use super::look::{TreeInfo, main_alone};
use super::plan::trees_span;
use crate::tree::TreeNo;
use crate::{Inner, Result, StoreError};

/// All branches and snapshots, as items say it; some of them as they were a moment ago.
#[derive(Default)]
pub(super) struct List {
    trees: BTreeMap<u64, TreeInfo>,
    /// Of each branch the inodes, and the blocks that it refers to, when a commit carried its root last.
    heads: BTreeMap<u64, (u64, u64)>,
    /// The snapshots that are being deleted.
    deleted: BTreeSet<u64>,
}

/// The snapshots that are being deleted, and how far each has come; and those of which that cannot be read.
#[derive(Default)]
pub(super) struct Deletions {
    pub(super) places: BTreeMap<u64, WalkPlace>,
    pub(super) wrong: BTreeMap<u64, Malformed>,
}

impl Deletions {
    fn add(&mut self, snapshot: u64, item: &[u8]) {
        match WalkItem::decode(item) {
            Ok(place) => drop(self.places.insert(snapshot, place)),
            Err(why) => drop(self.wrong.insert(snapshot, why)),
        }
    }
}

impl List {
    fn add(&mut self, key: &Key, value: &[u8]) -> std::result::Result<(), Malformed> {
        let number = key.inode.0.saturating_sub(LINEAGE);
        match key.kind {
            ItemKind::Tree => {
                let item = TreeItem::decode(value)?;
                self.trees.insert(number, TreeInfo::at_rest(number, item));
            }
            // Holds and origins stand behind their snapshot.
            ItemKind::Hold => {
                let hold = HoldItem::decode(value)?;
                self.trees.get_mut(&number).into_iter().for_each(|of| of.holds.push(hold.clone()));
            }
            ItemKind::Origin => {
                let origin = OriginItem::decode(value)?;
                self.trees.get_mut(&number).into_iter().for_each(|of| of.origins.push(origin));
            }
            ItemKind::Root => {
                let root = RootItem::decode(value)?;
                self.heads.insert(number, (root.inode_count, root.referenced_blocks));
            }
            _ => {}
        }
        Ok(())
    }

    /// Those that are seen, in the order in which they were made. `open` has the counts of trees that are open.
    fn seen(mut self, open: &BTreeMap<u64, (u64, u64)>) -> Vec<TreeInfo> {
        self.trees.entry(MAIN).or_insert_with(main_alone);
        let going = self.trees.extract_if(.., |_, of| of.item.kind == TreeKind::Going);
        let going: BTreeMap<u64, u64> =
            going.map(|(number, of)| (number, of.item.branch)).collect();
        let seen = |mut of: TreeInfo| {
            of.is_deleted = self.deleted.contains(&of.number);
            match going.get(&of.item.branch) {
                Some(0) => {
                    of.is_deleted = true;
                    of.item.name.clear();
                }
                Some(to) => of.item.branch = *to,
                None => {}
            }
            if of.item.kind == TreeKind::Branch {
                let counts = open.get(&of.number).or_else(|| self.heads.get(&of.number));
                (of.inodes, of.referenced_blocks) = counts.copied().unwrap_or_default();
            }
            of
        };
        self.trees.into_values().map(seen).collect()
    }
}

impl Inner {
    /// All of them at one moment, in the order in which they were made. Other calls go on while they are read.
    pub fn trees(&self) -> Result<Vec<TreeInfo>> {
        let look = self.lineage.lock().look_begins();
        match self.list(&look) {
            Err(_) if self.has_main_alone() => Ok(vec![main_alone()]),
            list => self.list_of_now(list?, look),
        }
    }

    /// What there is, while others change it and `look` hears of that.
    pub(super) fn list(&self, look: &Look) -> Result<List> {
        look.hears_of_closings(&mut self.forest.write().trees);
        let mut list = List::default();
        self.read_into(&mut list, trees_span())?;
        let Deletions { places, wrong } = self.deletions()?;
        list.deleted = places.into_keys().chain(wrong.into_keys()).collect();
        Ok(list)
    }

    /// The same of one moment, if `look` began before.
    pub(super) fn list_of_now(&self, mut list: List, look: Look) -> Result<Vec<TreeInfo>> {
        let held = self.lock_when_seen(look, |number| self.read_again(&mut list, number))?;
        let open = self.open_counts();
        drop(held);
        Ok(list.seen(&open))
    }

    /// Of each open tree the inodes, and the blocks that it refers to.
    fn open_counts(&self) -> BTreeMap<u64, (u64, u64)> {
        let forest = self.forest.read();
        let main = self.space.lock().inodes;
        let counts = forest.trees.all_open().map(|(no, of)| {
            let inodes = if no == TreeNo::MAIN { main } else { of.inodes };
            (of.number, (inodes, of.referenced))
        });
        counts.collect()
    }

    fn read_into(&self, list: &mut List, (from, to): (Key, Key)) -> Result<()> {
        let mut wrong = None;
        self.scan(TreeNo::SPACE, &from, &to, &mut |key, value| match list.add(&key, value) {
            Ok(()) => ControlFlow::Continue(()),
            Err(source) => {
                wrong = Some(StoreError::Item { what: format!("{key:?}"), source });
                ControlFlow::Break(())
            }
        })?;
        wrong.map_or(Ok(()), Err)
    }

    /// What there is now of one that has changed.
    fn read_again(&self, list: &mut List, number: u64) -> Result<()> {
        list.trees.remove(&number);
        list.heads.remove(&number);
        list.deleted.remove(&number);
        if number == 0 {
            return Ok(());
        }
        let first = LINEAGE.saturating_add(number);
        let span =
            [first, first.saturating_add(1)].map(|no| Key::new(InodeNo(no), ItemKind::Inode, 0));
        self.read_into(list, span.into())?;
        if self.get(TreeNo::SPACE, &WalkItem::key(number))?.is_some() {
            list.deleted.insert(number);
        }
        Ok(())
    }

    fn deletions(&self) -> Result<Deletions> {
        let (from, to) = (WalkItem::key(0), WalkItem::key(u64::MAX));
        let mut found = Deletions::default();
        self.scan(TreeNo::SPACE, &from, &to, &mut |key, value| {
            found.add(key.offset, value);
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// All deletions, with the lineage locked behind them.
    pub(super) fn lock_with_deletions(&self) -> Result<(MutexGuard<'_, Walks>, Deletions)> {
        let look = self.lineage.lock().look_begins();
        let mut found = self.deletions()?;
        let walks = self.lock_when_seen(look, |number| {
            found.places.remove(&number);
            found.wrong.remove(&number);
            let item = self.get(TreeNo::SPACE, &WalkItem::key(number))?;
            item.into_iter().for_each(|item| found.add(number, &item));
            Ok(())
        })?;
        Ok((walks, found))
    }

    /// Locks the lineage once all that has changed since `look` began was looked at again.
    pub(super) fn lock_when_seen(
        &self,
        look: Look,
        mut again: impl FnMut(u64) -> Result<()>,
    ) -> Result<MutexGuard<'_, Walks>> {
        // More than a step changes: or a branch that goes beside this would keep it from its end.
        let most = SOME * CHANGED_EACH;
        loop {
            let walks = self.lineage.lock();
            let changed = look.take_changed(most);
            changed.iter().try_for_each(|number| again(*number))?;
            if changed.len() < most {
                return Ok(walks);
            }
            MutexGuard::unlock_fair(walks);
        }
    }
}
