//! What a batch may say of branches and snapshots.
//!
//! Forks of snapshots, names, holds, limits, snapshots that follow their branch, and deletions that begin. Everything else comes with commits.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_format::item::lineage::{LINEAGE, MAIN, decode_numbers};
use holdfast_format::item::{
    HoldItem, LineageItem, RootItem, TreeItem, TreeKind, WalkItem, WalkPlace,
};
use holdfast_format::{ItemKind, Key};

use crate::lineage::Lineage;

fn malformed<T>(why: impl Into<String>) -> Result<T, String> {
    Err(why.into())
}

/// What a batch makes of items.
pub(super) type Items = BTreeMap<Key, Option<Vec<u8>>>;

/// Judges what a batch says, which follows `before`. Of that some `is_lost` if it stood in a damaged node: the batch is right about what is
/// missing.
pub(super) fn judge(before: &Lineage, is_lost: bool, items: &Items) -> Result<(), String> {
    let said: LineageChanges = sort(items)?;
    let next = before.next().unwrap_or(MAIN + 1);
    let behind = said.next.unwrap_or(next);
    if behind < next {
        return malformed(format!("the next number goes back from {next} to {behind}"));
    }
    let mut made = BTreeSet::new();
    for (id, item) in &said.trees {
        match before.tree(*id) {
            Some(was) => is_kept(before, *id, &was, item)?,
            None if before.0.contains_key(&TreeItem::key(*id)) => {
                return malformed(format!("{id} was damaged before it"));
            }
            None if *id == MAIN => {
                if (item.kind, item.parent) != (TreeKind::Branch, 0) {
                    return malformed("the first branch is not what it was made as");
                }
            }
            None if item.kind == TreeKind::Branch && (next..behind).contains(id) => {
                let is_parent_lost =
                    is_lost && said.parents.get(id).is_some_and(|of| before.tree(*of).is_none());
                if !is_parent_lost {
                    begins(before, &said, *id)?;
                }
                made.insert(*id);
            }
            None if is_lost => {}
            None => return malformed(format!("{id} is no new branch")),
        }
    }
    let placed = said.roots.keys().chain(said.parents.keys());
    if let Some(id) = placed.copied().find(|id| !made.contains(id)) {
        return malformed(format!("it places branch {id}, which it does not make"));
    }
    for id in &said.walks {
        let of = said.trees.get(id).cloned().or_else(|| before.tree(*id));
        let is_walked = before.0.contains_key(&WalkItem::key(*id));
        let may_go = |of: TreeItem| of.kind == TreeKind::Snapshot && of.name.is_empty();
        if !of.map_or(is_lost, may_go) || is_walked {
            return malformed(format!("the deletion of {id} cannot begin"));
        }
    }
    for (id, item) in &said.trees {
        let is_going = said.walks.contains(id) || before.is_deleted(*id, item);
        if item.kind == TreeKind::Snapshot && !item.name.is_empty() && is_going {
            return malformed(format!("{id} is being deleted and has a name"));
        }
    }
    holds(before, is_lost, &said)
}

/// Holds are of snapshots that are there, and what the batch begins to delete has none behind it.
fn holds(before: &Lineage, is_lost: bool, said: &LineageChanges) -> Result<(), String> {
    for (key, _) in said.holds.iter().filter(|(_, is_put)| **is_put) {
        let id = key.inode.0.saturating_sub(LINEAGE);
        let may_be_held = |of: TreeItem| {
            of.kind == TreeKind::Snapshot
                && !said.walks.contains(&id)
                && !before.is_deleted(id, &of)
        };
        if !before.tree(id).map_or(is_lost, may_be_held) {
            return malformed(format!("there is no snapshot {id} to be held"));
        }
    }
    for id in &said.walks {
        let (first, last) = HoldItem::span(*id);
        let mut held = before.0.range(first..=last).map(|(key, _)| key);
        if held.any(|key| said.holds.get(key) != Some(&false)) {
            return malformed(format!("{id} is being deleted and has holds"));
        }
    }
    Ok(())
}

#[derive(Default)]
struct LineageChanges {
    next: Option<u64>,
    trees: BTreeMap<u64, TreeItem>,
    roots: BTreeMap<u64, RootItem>,
    /// The snapshot under which each child is put.
    parents: BTreeMap<u64, u64>,
    walks: BTreeSet<u64>,
    /// Holds that it puts, or ends.
    holds: BTreeMap<Key, bool>,
}

/// Sorts the items of a batch, each of which must be sound and at its place.
fn sort(items: &Items) -> Result<LineageChanges, String> {
    let mut said = LineageChanges::default();
    for (key, value) in items {
        let bad = || malformed::<()>(format!("{key:?} cannot be in a log"));
        let of_all = key.inode.0 == LINEAGE;
        let own = key.inode.0.checked_sub(LINEAGE).filter(|id| *id > 0);
        let Some(value) = value else {
            match (key.kind, own) {
                (ItemKind::Name, None) if of_all => {}
                (ItemKind::Hold, Some(_)) => drop(said.holds.insert(*key, false)),
                _ => bad()?,
            }
            continue;
        };
        let is_kept = match (key.kind, own) {
            (ItemKind::Lineage, None) if of_all && key.offset == 0 => {
                said.next = LineageItem::decode(value).ok().map(|item| item.next);
                said.next.is_some()
            }
            (ItemKind::Name, None) => of_all && decode_numbers(value).is_ok(),
            (ItemKind::Walk, None) if of_all => {
                said.walks.insert(key.offset);
                WalkItem::decode(value) == Ok(WalkPlace::start())
            }
            (ItemKind::Tree, Some(id)) if key.offset == 0 => {
                let item = TreeItem::decode(value).ok();
                item.is_some_and(|item| said.trees.insert(id, item).is_none())
            }
            (ItemKind::Root, Some(id)) if key.offset == 0 => {
                let item = RootItem::decode(value).ok();
                item.is_some_and(|item| said.roots.insert(id, item).is_none())
            }
            (ItemKind::Hold, Some(id)) => {
                said.holds.insert(*key, true);
                HoldItem::decode(value).is_ok_and(|hold| *key == HoldItem::key(id, &hold.tag))
            }
            (ItemKind::Child, Some(id)) => {
                value.is_empty() && said.parents.insert(key.offset, id).is_none()
            }
            _ => false,
        };
        if !is_kept {
            bad()?;
        }
    }
    Ok(said)
}

/// Name and limit may change, and the branch where that has joined another. The parent in a record counts for nothing.
fn is_kept(before: &Lineage, id: u64, was: &TreeItem, now: &TreeItem) -> Result<(), String> {
    let joined = was.branch != now.branch && before.branch_of(was) == now.branch;
    let was = &TreeItem { branch: if joined { now.branch } else { was.branch }, ..was.clone() };
    let same = |item: &TreeItem| {
        let TreeItem { kind, branch, epoch, lsn, created, root, level, .. } = *item;
        let counts = (item.inode_count, item.referenced_blocks);
        (kind, branch, epoch, lsn, created, root, level, counts)
    };
    match same(was) == same(now) && was.tail == now.tail {
        true => Ok(()),
        false => malformed(format!("{id} becomes another branch or snapshot")),
    }
}

/// A new branch has the root of a snapshot that is there, and stands beside it.
fn begins(before: &Lineage, said: &LineageChanges, id: u64) -> Result<(), String> {
    let parent = said.parents.get(&id).copied().unwrap_or_default();
    let of = before.tree(parent).filter(|of| of.kind == TreeKind::Snapshot);
    let of = of.filter(|of| !before.is_deleted(parent, of));
    let root = of.map(|of| RootItem::of(of.root, of.level, of.inode_count, of.referenced_blocks));
    match root.is_some() && root == said.roots.get(&id).copied() {
        true => Ok(()),
        false => malformed(format!("{id} does not begin as snapshot {parent} is")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the lineage stood in a damaged node, a batch that holds a snapshot of it ends no log.
    #[test]
    fn what_is_missing_for_a_damaged_node_speaks_against_no_batch() {
        let hold = HoldItem { tag: b"mine".to_vec(), created: Default::default() };
        let items = Items::from([(HoldItem::key(7, b"mine"), Some(hold.encode()))]);
        assert!(judge(&Lineage::default(), false, &items).is_err());
        assert_eq!(judge(&Lineage::default(), true, &items), Ok(()));
    }
}
