//! What is lost where journal or log are cut: branches and snapshots that were made behind the cut, and files that were changed there, in each branch,
//! also in one that goes.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_check::Issue;
use holdfast_check::reading::{CutChanges, VolumeReading, tree_name};
use holdfast_format::item::TreeItem;
use holdfast_format::item::lineage::MAIN;

use crate::names::all_paths;
use crate::plan::Repair;
use crate::walk::TreeWork;

/// What batches behind a cut have changed, by branch or snapshot.
type Cut = BTreeMap<u64, CutChanges>;

/// The branch or snapshot of this number, by the batches or as it was before.
fn item(reading: &VolumeReading<'_>, cut: &Cut, id: u64) -> Option<TreeItem> {
    let made = cut.get(&id).and_then(|changes| changes.tree.clone());
    let known = || TreeItem::decode(reading.lineage().get(&TreeItem::key(id))?).ok();
    made.or_else(known)
}

/// What commands call it.
fn name(reading: &VolumeReading<'_>, cut: &Cut, id: u64) -> String {
    tree_name(id, &|id| item(reading, cut, id))
}

/// Those that were made behind the cut, and are lost: their numbers and names.
fn made(reading: &VolumeReading<'_>, cut: &Cut) -> Vec<(u64, String)> {
    let is_known = |id: u64| reading.trees().iter().any(|tree| tree.id == id);
    let made = cut.iter().filter(|(id, of)| of.tree.is_some() && !is_known(**id));
    made.map(|(id, _)| (*id, name(reading, cut, *id))).collect()
}

/// A clause for each branch and snapshot that is lost by the cut, and one for what comes back.
pub(crate) fn clauses(reading: &VolumeReading<'_>) -> Vec<String> {
    let made = made(reading, &reading.cut_changes()).into_iter();
    let mut clauses: Vec<String> = made.map(|(_, name)| format!("{name} would be lost")).collect();
    clauses.extend(come_back(reading).map(|files| format!("{files} would come back")));
    clauses
}

/// What comes back of what was made behind the cut, if anything does.
pub(crate) fn come_back(reading: &VolumeReading<'_>) -> Option<String> {
    let count = reading.made_later().len() as u64;
    let files = holdfast_base::show::count(count, "file");
    (count > 0).then(|| format!("{files} made behind it"))
}

/// Names each file that was made behind the cut and comes back, and what it has lost since.
fn back(reading: &VolumeReading<'_>) -> Vec<Repair> {
    let back = reading.made_later().iter().map(|((id, inode), file)| {
        let root = reading.trees().iter().find(|tree| tree.id == *id);
        let path = root.map(|root| reading.later_path(root, *inode));
        let tree = root.filter(|root| !root.is_main()).map(|root| root.name.clone());
        let loses = file.used_again + file.unread > 0;
        let lost = match loses {
            true => format!(
                ", but of its {} blocks {} hold other data, and {} do not read",
                file.blocks, file.used_again, file.unread
            ),
            false => String::new(),
        };
        let what =
            format!("it was made behind the damage, and is there as the log has it last{lost}");
        Repair { issue: Issue::LogDamaged, tree, path, what, loses }
    });
    back.collect()
}

/// Names all that is lost by the cut, and what comes back.
pub(crate) fn losses(reading: &VolumeReading<'_>, states: &[TreeWork]) -> Vec<Repair> {
    let (cut, issue) = (reading.cut_changes(), Issue::LogDamaged);
    let mut losses = back(reading);
    for (_, name) in made(reading, &cut) {
        let what = "it was made behind the damage, and is lost".into();
        losses.push(Repair { issue, tree: Some(name), path: None, what, loses: true });
    }
    for (id, changes) in &cut {
        let tree = (*id != MAIN).then(|| name(reading, &cut, *id));
        let beside = beside(reading, &cut, states, *id);
        let is_there = beside.is_some_and(|state| state.root.id == *id);
        let what = match is_there {
            true => "it is as it was before, or not there: what was durable of it since is lost",
            false => "what was durable of it there is lost",
        };
        for path in paths(reading, beside, changes) {
            let (tree, path, what) = (tree.clone(), Some(path), what.into());
            losses.push(Repair { issue, tree, path, what, loses: true });
        }
        if changes.has_more {
            let what = "more was changed behind the damage than is named, and is lost".into();
            losses.push(Repair { issue, tree, path: None, what, loses: true });
        }
    }
    losses
}

/// The tree itself, or the nearest that it grew out of and that is there: what it had before.
fn beside<'s>(
    reading: &VolumeReading<'_>,
    cut: &Cut,
    states: &'s [TreeWork],
    id: u64,
) -> Option<&'s TreeWork> {
    let (mut at, mut way) = (id, BTreeSet::new());
    while way.insert(at) {
        if let Some(state) = states.iter().find(|state| state.root.id == at) {
            return Some(state);
        }
        at = item(reading, cut, at)?.parent;
    }
    None
}

/// All names of what changed.
fn paths(
    reading: &VolumeReading<'_>,
    beside: Option<&TreeWork>,
    changes: &CutChanges,
) -> BTreeSet<String> {
    let mut paths = reading.cut_paths(beside.map(|state| &state.root), changes);
    if let Some(state) = beside {
        paths.extend(all_paths(reading, state, &changes.inodes).into_values().flatten());
    }
    paths
}
