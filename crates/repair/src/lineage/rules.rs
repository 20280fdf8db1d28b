//! What must be true of branches and snapshots together: it is made true.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_check::Issue;
use holdfast_check::reading::VolumeReading;
use holdfast_format::item::lineage::{LINEAGE, MAIN};
use holdfast_format::item::{TreeItem, TreeKind, WalkItem, WalkPlace};
use holdfast_format::{ItemKind, NodePointer};

use super::{Lineage, say};
use crate::plan::Repair;

impl Lineage {
    pub(super) fn roots(&mut self, roots: &BTreeSet<u64>, repairs: &mut Vec<Repair>) {
        let is_branch = |item: &TreeItem| item.kind == TreeKind::Branch;
        for id in roots {
            if *id == MAIN || !self.items.get(id).is_some_and(is_branch) {
                say(
                    repairs,
                    Issue::BranchRoot,
                    format!("the root of branch {id}, which is none, is removed"),
                    true,
                );
            }
        }
        let without: Vec<u64> = { self.items.iter() }
            .filter(|(id, item)| **id != MAIN && is_branch(item) && !roots.contains(id))
            .map(|(id, _)| *id)
            .collect();
        for id in without {
            let item = self.items.remove(&id);
            let name = item.map_or(String::new(), |item| holdfast_base::show::name(&item.name));
            self.lost.push(format!("branch {name} would be lost"));
            say(repairs, Issue::BranchRoot, format!("branch {name} is lost: it has no root"), true);
        }
    }

    /// The snapshots of a branch that goes have followed it, but for those that are held: that ends no data.
    fn going(&mut self, is_whole: bool, repairs: &mut Vec<Repair>) {
        let going = self.items.extract_if(.., |_, item| item.kind == TreeKind::Going);
        let going: BTreeMap<u64, u64> = going.map(|(id, item)| (id, item.branch)).collect();
        let of_these = self.items.iter().filter(|(_, item)| going.contains_key(&item.branch));
        for id in of_these.map(|(id, _)| *id).collect::<Vec<_>>() {
            let is_held = self.is_held(id);
            let Some(item) = self.items.get_mut(&id) else { continue };
            match going.get(&item.branch) {
                Some(0) if is_held => {
                    let what = format!("snapshot {id} stays where its branch goes, as it is held");
                    say(repairs, Issue::DeletionWrong, what, false);
                }
                // Without a name it has followed, and how far its deletion has come may have stood in the node that is lost.
                Some(0) if is_whole || !item.name.is_empty() => {
                    item.name.clear();
                    self.waiting.insert(id);
                }
                Some(0) => {}
                Some(to) => item.branch = *to,
                None => {}
            }
        }
    }

    /// Deletions that have begun come to their end: what a walk has passed is not the snapshot's any more, and the
    /// space tree is made anew without the rest.
    pub(super) fn deletions(
        &mut self,
        reading: &VolumeReading<'_>,
        is_whole: bool,
        repairs: &mut Vec<Repair>,
    ) {
        self.going(is_whole, repairs);
        let issue = Issue::DeletionWrong;
        let walks = reading
            .lineage()
            .iter()
            .filter(|(key, _)| key.kind == ItemKind::Walk && key.inode.0 == LINEAGE);
        let mut begun = BTreeSet::new();
        for (key, value) in walks {
            let id = key.offset;
            let Some(item) = self.items.get(&id) else {
                let what = format!("{id}, which does not exist, is not deleted");
                say(repairs, issue, what, false);
                continue;
            };
            let is_snapshot = item.kind == TreeKind::Snapshot;
            let is_right = is_snapshot && item.name.is_empty() && !self.is_held(id);
            // Of one that says nothing it is not known how far it has come.
            let at_start = WalkItem::decode(value).is_ok_and(|place| place == WalkPlace::start());
            if is_right && at_start {
                self.waiting.insert(id);
            } else if at_start || !is_snapshot {
                let what =
                    format!("{id} is not deleted, as it is no snapshot, or has a name or holds");
                say(repairs, issue, what, false);
            } else {
                begun.insert(id);
                if !is_right {
                    let what = format!(
                        "the deletion of snapshot {id}, which has a name or holds, has begun and comes to its end"
                    );
                    say(repairs, issue, what, true);
                }
            }
        }
        // How far a deletion has come may have stood in a node that is lost: what it has passed is not the snapshot's any more.
        let is_nameless =
            |(_, item): &(&u64, &TreeItem)| item.kind == TreeKind::Snapshot && item.name.is_empty();
        if !is_whole {
            let nameless = self.items.iter().filter(is_nameless).map(|(id, _)| *id);
            begun.extend(nameless.filter(|id| !self.waiting.contains(id)));
        }
        for id in begun {
            let parent = self.items.get(&id).map(|item| item.parent);
            self.without(id, parent, issue, repairs);
            self.give_up(id);
            self.ended.insert(id);
        }
    }

    /// No snapshot is older than its root, nor younger than the volume.
    pub(super) fn epochs(&mut self, reading: &VolumeReading<'_>, repairs: &mut Vec<Repair>) {
        let superblock = reading.superblock();
        let snapshots = self.items.iter_mut().filter(|(_, item)| item.kind == TreeKind::Snapshot);
        for (id, item) in snapshots {
            let epoch = item.epoch.max(item.root.epoch).min(superblock.epoch);
            let lsn = item.lsn.min(superblock.lsn);
            if (item.epoch, item.lsn) != (epoch, lsn) {
                (item.epoch, item.lsn) = (epoch, lsn);
                let what = format!("snapshot {id} is of epoch {epoch}, and of operation {lsn}");
                say(repairs, Issue::SnapshotEpoch, what, false);
            }
        }
    }

    /// What grew out of something that cannot be has grown out of nothing.
    pub(super) fn parents(&mut self, reading: &VolumeReading<'_>, repairs: &mut Vec<Repair>) {
        let roots: BTreeMap<u64, NodePointer> =
            reading.trees().iter().map(|tree| (tree.id, tree.root)).collect();
        let ids: Vec<u64> = self.items.keys().copied().collect();
        // All that were looked at before are on no circle.
        let mut done = BTreeSet::new();
        for id in ids {
            let Some(item) = self.items.get(&id).filter(|item| item.parent != 0) else { continue };
            let parent = self.items.get(&item.parent);
            let Some(parent) = parent.filter(|parent| parent.kind == TreeKind::Snapshot) else {
                self.cut(id, 0, Issue::ParentMissing, repairs);
                continue;
            };
            let is_older = item.kind == TreeKind::Snapshot && item.epoch < parent.epoch;
            let is_other = |root: &NodePointer| root.epoch <= parent.epoch && *root != parent.root;
            if is_older {
                self.cut(id, 0, Issue::SnapshotEpoch, repairs);
            } else if roots.get(&id).is_some_and(is_other) {
                self.cut(id, 0, Issue::RootAge, repairs);
            } else if self.is_on_circle(id, &done) {
                self.cut(id, 0, Issue::LineageCycle, repairs);
            }
            done.insert(id);
        }
    }

    fn is_on_circle(&self, id: u64, done: &BTreeSet<u64>) -> bool {
        let (mut way, mut at) = (BTreeSet::new(), id);
        while at != 0 && !done.contains(&at) && way.insert(at) {
            at = self.items.get(&at).map_or(0, |item| item.parent);
        }
        at == id
    }
}
