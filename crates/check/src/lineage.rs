//! Branches and snapshots: their items, and what follows from them for a branch that drops blocks.
//!
//! The items are few, beside what trees hold, and are kept as they were read. Whether they fit together is judged
//! by the pass over the lineage; here what is damaged counts as missing.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{InodeNo, TreeId};
use holdfast_format::item::lineage::{LINEAGE, MAIN, MAIN_NAME};
use holdfast_format::item::{
    HoldItem, LineageItem, RootItem, TreeItem, TreeKind, WalkItem, WalkPlace,
};
use holdfast_format::log::Dropped;
use holdfast_format::{ItemKind, Key, NodePointer};

use crate::bounds::Bounds;
use crate::node_place::NodePlace;
use crate::text::printable;
use crate::volume::Volume;
use crate::walk::Step;

/// The items of branches and snapshots, by their keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lineage(pub(crate) BTreeMap<Key, Vec<u8>>);

/// A branch or snapshot, with its root.
#[derive(Clone, Debug)]
pub struct TreeRoot {
    /// Its number; 1 is `main`.
    pub id: u64,
    /// As messages name it.
    pub name: String,
    /// Where its root is.
    pub root: NodePointer,
    /// The level of its root.
    pub level: u8,
    /// The snapshot that it grew out of; 0 if there is none.
    pub parent: u64,
    /// Of a snapshot its epoch.
    pub snapshot: Option<u64>,
    /// Inodes, as it counts them.
    pub inode_count: u64,
    /// Blocks of its nodes, and those that its extents have on the device, as it counts them: without what the log changes.
    pub referenced_blocks: u64,
    /// Of a snapshot that is being deleted: how far that has come.
    pub cursor: Option<WalkPlace>,
}

impl TreeRoot {
    /// Whether it is the branch that mkfs makes.
    pub fn is_main(&self) -> bool {
        self.id == MAIN
    }

    /// Where its root stands.
    pub fn place(&self) -> NodePlace {
        NodePlace::root(self.root, self.level)
    }
}

impl Lineage {
    /// All that can be read of a volume.
    pub(crate) fn read(volume: &Volume<'_>) -> Lineage {
        let mut items = BTreeMap::new();
        let range = Bounds { low: Key::inode(InodeNo(LINEAGE)), high: None };
        let _ = volume.items(TreeId::Space, range, &mut |_, key, value| {
            if key.kind.is_lineage() {
                items.insert(key, value.to_vec());
            }
            ControlFlow::Continue(())
        });
        Lineage(items)
    }

    /// Why not all of it may have been read: a node of the space tree in which branches or snapshots may stand, and what is wrong with it.
    pub(crate) fn lost(volume: &Volume<'_>) -> Option<String> {
        let range = Bounds { low: Key::inode(InodeNo(LINEAGE)), high: None };
        let mut lost = None;
        let _ = volume.walk(TreeId::Space, range, &mut |step| match step {
            Step::Node { .. } => ControlFlow::Continue(()),
            Step::Lost { pointer, problem, .. } => {
                lost = Some(format!("node {} of the space tree: {problem}", pointer.block));
                ControlFlow::Break(())
            }
        });
        lost
    }

    /// Whether a branch is gone, and its snapshots are being deleted.
    pub(crate) fn goes(&self, branch: u64) -> bool {
        self.goes_to(branch) == Some(0)
    }

    /// Of a branch that goes: the one that its snapshots are of now, or 0.
    pub(crate) fn goes_to(&self, branch: u64) -> Option<u64> {
        self.tree(branch).filter(|item| item.kind == TreeKind::Going).map(|item| item.branch)
    }

    /// The branch that a snapshot is of, whatever its item says still.
    pub(crate) fn branch_of(&self, snapshot: &TreeItem) -> u64 {
        self.goes_to(snapshot.branch).filter(|to| *to != 0).unwrap_or(snapshot.branch)
    }

    /// Whether a snapshot is being deleted.
    pub(crate) fn is_deleted(&self, id: u64, item: &TreeItem) -> bool {
        self.0.contains_key(&WalkItem::key(id)) || self.goes(item.branch)
    }

    /// Whether there is a branch of this number other than `main`, with a root.
    pub(crate) fn has_branch(&self, id: u64) -> bool {
        self.tree(id).is_some_and(|item| item.kind == TreeKind::Branch) && self.root(id).is_some()
    }

    /// Takes what a record of the log says of an item.
    pub(crate) fn set(&mut self, key: Key, value: &Option<Vec<u8>>) {
        match value {
            Some(value) => drop(self.0.insert(key, value.clone())),
            None => drop(self.0.remove(&key)),
        }
    }

    fn item<T>(&self, key: &Key, decode: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
        self.0.get(key).and_then(|value| decode(value))
    }

    /// The branch or snapshot of this number. Without an item, `main` has none.
    pub(crate) fn tree(&self, id: u64) -> Option<TreeItem> {
        self.item(&TreeItem::key(id), |value| TreeItem::decode(value).ok())
    }

    /// The root of a branch other than `main`.
    pub(crate) fn root(&self, id: u64) -> Option<RootItem> {
        self.item(&RootItem::key(id), |value| RootItem::decode(value).ok())
    }

    /// How far the deletion of a snapshot has come.
    pub(crate) fn cursor(&self, id: u64) -> Option<WalkPlace> {
        self.item(&WalkItem::key(id), |value| WalkItem::decode(value).ok())
    }

    /// Whether a snapshot is held.
    pub(crate) fn is_held(&self, id: u64) -> bool {
        let (first, last) = HoldItem::span(id);
        self.0.range(first..=last).next().is_some()
    }

    /// The next number; where none was given yet, the first. `None`: it cannot be read.
    pub(crate) fn next(&self) -> Option<u64> {
        match self.0.get(&LineageItem::KEY) {
            Some(value) => LineageItem::decode(value).ok().map(|item| item.next),
            None => Some(MAIN + 1),
        }
    }

    /// The snapshot that `id` grew out of.
    pub(crate) fn parent(&self, id: u64) -> Option<TreeItem> {
        self.tree(self.parent_of(id)?).filter(|parent| parent.kind == TreeKind::Snapshot)
    }

    fn parent_of(&self, id: u64) -> Option<u64> {
        self.tree(id).map(|item| item.parent).filter(|parent| *parent != 0)
    }

    /// Every branch and snapshot whose item is sound, by number.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u64, TreeItem)> {
        let keys = self.0.keys().filter(|key| key.kind == ItemKind::Tree && key.offset == 0);
        let numbers = keys.filter_map(|key| key.inode.0.checked_sub(LINEAGE));
        numbers.filter_map(|id| Some((id, self.tree(id)?)))
    }

    /// How many of the first blocks that `branch` drops are its own, and so free: S1.
    pub(crate) fn own(&self, branch: u64, dropped: &Dropped) -> u64 {
        let count = dropped.blocks.count;
        let Some((id, parent)) = self.parent_of(branch).zip(self.parent(branch)) else {
            return count;
        };
        if dropped.birth > parent.epoch {
            return count;
        }
        let before = self.parent(id).map_or(0, |before| before.epoch.0);
        match self.cursor(id) {
            Some(cursor) if dropped.birth.0 > before => passed(&cursor, dropped),
            _ => 0,
        }
    }

    /// A record of the log about a branch or snapshot that is there leaves its parent, which only commits change: the record
    /// was made when a deletion may have moved it already. One that the batch makes has grown out of what its child key says: `beside` has
    /// these.
    pub(crate) fn keep_parent(&self, key: &Key, value: &mut Vec<u8>, beside: &BTreeMap<u64, u64>) {
        let before = self.item(key, |value| TreeItem::decode(value).ok());
        let made = || beside.get(&key.inode.0.checked_sub(LINEAGE)?).copied();
        if key.kind == ItemKind::Tree
            && let Some(parent) = before.map(|item| item.parent).or_else(made)
            && let Ok(item) = TreeItem::decode(value)
        {
            *value = TreeItem { parent, ..item }.encode();
        }
    }

    /// What a branch or snapshot is called.
    pub(crate) fn name(&self, id: u64) -> String {
        tree_name(id, &|id| self.tree(id))
    }

    /// All trees that have a root: `main` first, what is being deleted last. `inodes` says how many a branch has by the log.
    pub(crate) fn trees(
        &self,
        volume: &Volume<'_>,
        inodes: &dyn Fn(u64) -> Option<u64>,
    ) -> Vec<TreeRoot> {
        let main = TreeRoot {
            id: MAIN,
            name: self.name(MAIN),
            root: volume.superblock.files,
            level: volume.superblock.files_level,
            parent: self.tree(MAIN).map_or(0, |item| item.parent),
            snapshot: None,
            inode_count: volume.superblock.inode_count,
            referenced_blocks: volume.superblock.referenced_blocks,
            cursor: None,
        };
        let mut trees = vec![main];
        for (id, item) in self.all().filter(|(id, _)| *id != MAIN) {
            let (name, parent) = (self.name(id), item.parent);
            let cursor = self.cursor(id).filter(|_| item.kind == TreeKind::Snapshot);
            // Without a sound cursor it is not known where it may be entered.
            if cursor.is_none() && self.0.contains_key(&WalkItem::key(id)) {
                continue;
            }
            let (root, level, snapshot, inode_count, referenced_blocks) = match item.kind {
                TreeKind::Going => continue,
                TreeKind::Snapshot => {
                    let snapshot = Some(item.epoch.0);
                    (item.root, item.level, snapshot, item.inode_count, item.referenced_blocks)
                }
                TreeKind::Branch => {
                    let Some(item) = self.root(id) else { continue };
                    let inode_count = inodes(id).unwrap_or(item.inode_count);
                    (item.pointer(), item.level, None, inode_count, item.referenced_blocks)
                }
            };
            trees.push(TreeRoot {
                id,
                name,
                root,
                level,
                parent,
                snapshot,
                inode_count,
                referenced_blocks,
                cursor,
            });
        }
        trees.sort_by_key(|tree| (tree.cursor.is_some(), tree.id));
        trees
    }
}

/// How many of the first blocks lie before the cursor.
fn passed(cursor: &WalkPlace, dropped: &Dropped) -> u64 {
    let Dropped { blocks, at, .. } = dropped;
    match inside(cursor, at.inode) {
        Some(offset) => offset.saturating_sub(at.offset).div_ceil(BLOCK_BYTES).min(blocks.count),
        None if WalkPlace::item(at) < *cursor => blocks.count,
        None => 0,
    }
}

/// The byte at which a cursor stands among the extents of a file, if it stands there.
pub(crate) fn inside(cursor: &WalkPlace, inode: InodeNo) -> Option<u64> {
    let key = Key::decode(&cursor.key.encode()).ok()?;
    ((key.inode, key.kind) == (inode, ItemKind::Extent)).then_some(key.offset)
}

/// What a branch or snapshot is called: by its name, a snapshot behind that of its branch, and where there is none by its number. `tree` says items.
pub fn tree_name(id: u64, tree: &dyn Fn(u64) -> Option<TreeItem>) -> String {
    let own = |id: u64, item: Option<&TreeItem>| match item.filter(|item| !item.name.is_empty()) {
        Some(item) => printable(&item.name),
        None if id == MAIN => printable(MAIN_NAME),
        None => format!("#{id}"),
    };
    let item = tree(id);
    let Some(snapshot) = item.as_ref().filter(|item| item.kind == TreeKind::Snapshot) else {
        return own(id, item.as_ref());
    };
    let goes_to = tree(snapshot.branch).filter(|of| of.kind == TreeKind::Going);
    let branch = goes_to.map(|of| of.branch).filter(|to| *to != 0).unwrap_or(snapshot.branch);
    let of = tree(branch).filter(|of| of.kind == TreeKind::Branch);
    format!("{}@{}", own(branch, of.as_ref()), own(id, item.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_base::{BlockNo, BlockRange, Epoch};

    fn place(offset: u64) -> WalkPlace {
        WalkPlace::item(&Key::new(InodeNo(20), ItemKind::Extent, offset))
    }

    /// What lies across the cursor is cut there.
    #[test]
    fn blocks_before_the_cursor_are_counted() {
        let at = Key::new(InodeNo(20), ItemKind::Extent, 8192);
        let blocks = BlockRange::new(BlockNo(900), 3);
        let dropped = Dropped { blocks, birth: Epoch(4), at };
        let of = |offset: u64| passed(&place(offset), &dropped);
        let found = [0, 8192, 12_288, 16_384, 20_480, u64::MAX].map(of);
        assert_eq!(found, [0, 0, 1, 2, 3, 3]);
        let other = |inode: u64, kind| WalkPlace::item(&Key::new(InodeNo(inode), kind, 0));
        assert_eq!(passed(&other(21, ItemKind::Inode), &dropped), 3);
        assert_eq!(passed(&other(20, ItemKind::Xattr), &dropped), 0);
        assert_eq!(passed(&WalkPlace::node(None, 2), &dropped), 3);
        assert_eq!(passed(&WalkPlace::start(), &dropped), 0);
    }
}
