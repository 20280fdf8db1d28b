//! The lineage as it is written: trees in the order in which they get their blocks, and the items of the space tree.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_check::reading::{TreeRoot, VolumeReading};
use holdfast_format::Key;
use holdfast_format::item::lineage::{LINEAGE, MAIN, child_key};
use holdfast_format::item::{LineageItem, RootItem, TreeItem, TreeKind, WalkItem, WalkPlace};

use super::{Lineage, Root};

impl Lineage {
    /// The trees that stay, each behind its parent; and those that go with the repair.
    pub(crate) fn trees(&self, reading: &VolumeReading<'_>) -> (Vec<TreeRoot>, Vec<TreeRoot>) {
        let (ended, stay): (Vec<_>, Vec<_>) =
            { reading.trees().iter().cloned() }.partition(|tree| self.ended.contains(&tree.id));
        let known = |tree: &TreeRoot| tree.id == MAIN || self.items.contains_key(&tree.id);
        let depths = self.depths();
        let depth = |id: u64| depths.get(&id).copied().unwrap_or(0);
        let stay = stay.into_iter().filter(known).chain(self.rooted(reading));
        let mut stay: Vec<TreeRoot> = stay
            .map(|tree| {
                let item = self.items.get(&tree.id);
                let snapshot = tree.snapshot.and(item.map(|item| item.epoch.0));
                let parent = item.map_or(0, |item| item.parent);
                TreeRoot { parent, cursor: None, snapshot, ..tree }
            })
            .collect();
        // What gets blocks of its own comes behind those that keep theirs.
        stay.sort_by_key(|tree| (depth(tree.id), self.is_cut(tree.id), tree.id));
        (stay, ended)
    }

    /// Branches whose root is there and whose item was not.
    fn rooted(&self, reading: &VolumeReading<'_>) -> Vec<TreeRoot> {
        let known: BTreeSet<u64> = reading.trees().iter().map(|tree| tree.id).collect();
        let is_missing = |(id, item): &(&u64, &TreeItem)| {
            item.kind == TreeKind::Branch && **id != MAIN && !known.contains(id)
        };
        let roots = self.items.iter().filter(is_missing).filter_map(|(id, item)| {
            let root = RootItem::decode(reading.lineage().get(&RootItem::key(*id))?).ok()?;
            Some(TreeRoot {
                id: *id,
                name: holdfast_base::show::name(&item.name),
                root: root.pointer(),
                level: root.level,
                parent: item.parent,
                snapshot: None,
                inode_count: root.inode_count,
                referenced_blocks: root.referenced_blocks,
                cursor: None,
            })
        });
        roots.collect()
    }

    /// How many snapshots each tree has before it.
    fn depths(&self) -> BTreeMap<u64, usize> {
        let mut depths = BTreeMap::new();
        for id in self.items.keys() {
            let (mut way, mut at) = (Vec::new(), *id);
            while at != 0 && !depths.contains_key(&at) {
                way.push(at);
                at = self.items.get(&at).map_or(0, |item| item.parent);
            }
            let first = depths.get(&at).map_or(0, |depth| depth + 1);
            depths.extend(way.into_iter().rev().zip(first..));
        }
        depths
    }

    /// How many snapshots go, as their deletion had begun.
    pub(crate) fn ended(&self) -> usize {
        self.ended.len()
    }

    /// The items for a space tree.
    pub(crate) fn encode(&self, roots: &[Root]) -> BTreeMap<Key, Vec<u8>> {
        let mut items = BTreeMap::new();
        if !self.is_kept {
            return items;
        }
        let next = LineageItem { next: self.next, reserved: [0; 8] };
        items.insert(LineageItem::KEY, next.bytes().to_vec());
        items.append(&mut self.name_items());
        let by_id: BTreeMap<u64, &Root> = roots.iter().map(|root| (root.id, root)).collect();
        for (id, item) in &self.items {
            let mut item = item.clone();
            match (item.kind, by_id.get(id)) {
                (TreeKind::Snapshot, Some(root)) => {
                    (item.root, item.level) = (root.root, root.level);
                    item.inode_count = root.inode_count;
                    item.referenced_blocks = root.referenced;
                }
                (TreeKind::Branch, Some(root)) if *id != MAIN => {
                    let value =
                        RootItem::of(root.root, root.level, root.inode_count, root.referenced);
                    items.insert(RootItem::key(*id), value.bytes().to_vec());
                }
                _ => {}
            }
            if item.parent != 0 {
                items.insert(child_key(item.parent, *id), Vec::new());
            }
            items.insert(TreeItem::key(*id), item.encode());
        }
        let stays = |key: &Key| self.items.contains_key(&key.inode.0.saturating_sub(LINEAGE));
        items.extend(self.told.clone().into_iter().filter(|(key, _)| stays(key)));
        for id in &self.waiting {
            items.insert(WalkItem::key(*id), WalkItem::at(&WalkPlace::start()).bytes().to_vec());
        }
        items
    }
}
