//! Names of branches and snapshots: each is found by its own.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_check::Issue;
use holdfast_format::item::TreeKind;
use holdfast_format::item::lineage::{MAIN, name_key};
use holdfast_format::{ItemKind, Key};

use super::{Lineage, say};
use crate::plan::Repair;

impl Lineage {
    /// Each has a name of its own, and is found by it and with its parent.
    pub(super) fn named(
        &mut self,
        all: &BTreeMap<Key, Vec<u8>>,
        listed: &BTreeMap<u64, u64>,
        repairs: &mut Vec<Repair>,
    ) {
        let branches: BTreeSet<u64> = { self.items.iter() }
            .filter(|(_, item)| item.kind == TreeKind::Branch)
            .map(|(id, _)| *id)
            .chain([MAIN])
            .collect();
        let mut known: BTreeSet<(u64, Vec<u8>)> = BTreeSet::new();
        for (id, item) in &mut self.items {
            if !item.name.is_empty()
                && item.kind == TreeKind::Snapshot
                && !branches.contains(&item.branch)
            {
                item.branch = MAIN;
                say(
                    repairs,
                    Issue::BranchMissing,
                    format!("snapshot {id} is of main now, as its branch does not exist"),
                    false,
                );
            }
            let mut name = item.name.clone();
            if name.is_empty() && item.kind == TreeKind::Branch {
                name = format!("branch-{id}").into_bytes();
            }
            let mut more = 0;
            while !name.is_empty() && known.contains(&(item.branch, name.clone())) {
                more += 1;
                let kept = String::from_utf8_lossy(&item.name).chars().take(60).collect::<String>();
                name = format!("{kept}.{id}.{more}").into_bytes();
            }
            if name != item.name {
                let what = format!("{id} is named {}", holdfast_base::show::name(&name));
                say(repairs, Issue::TreeName, what, false);
                item.name = name;
            }
            if !item.name.is_empty() {
                known.insert((item.branch, item.name.clone()));
            }
        }
        let of = |kind| all.iter().filter(move |(key, _)| key.kind == kind);
        let names: BTreeMap<Key, Vec<u8>> =
            of(ItemKind::Name).map(|(key, value)| (*key, value.clone())).collect();
        if names != self.name_items() {
            say(repairs, Issue::TreeName, "branches and snapshots are found by their names", false);
        }
        let parents = self.items.iter().filter(|(_, item)| item.parent != 0);
        if self.ended.is_empty()
            && !parents
                .map(|(id, item)| (*id, item.parent))
                .eq(listed.iter().map(|(a, b)| (*a, *b)))
        {
            say(repairs, Issue::ChildItem, "what grew out of a snapshot is listed with it", false);
        }
    }

    pub(super) fn name_items(&self) -> BTreeMap<Key, Vec<u8>> {
        let mut names: BTreeMap<Key, BTreeSet<u64>> = BTreeMap::new();
        for (id, item) in self.items.iter().filter(|(_, item)| !item.name.is_empty()) {
            names.entry(name_key(item.branch, &item.name)).or_default().insert(*id);
        }
        let value = |ids: BTreeSet<u64>| ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        names.into_iter().map(|(key, ids)| (key, value(ids))).collect()
    }
}
