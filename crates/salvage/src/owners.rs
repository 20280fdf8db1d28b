//! Whose a leaf is. What sound nodes of a tree lead to, and is younger than the snapshot that the tree grew out of, no other tree has but
//! those that grew out of this one.
//!
//! Costs what trees do not share. Memory: about 40 bytes for each leaf.

use std::collections::{HashMap, HashSet};

use holdfast_base::TreeId;
use holdfast_check::reading::{NodePlace, VolumeReading};

use crate::index::Index;

/// The leaves of files trees of which it is known whose they are.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    /// Trees by the blocks of their leaves.
    trees: HashMap<u64, u64>,
    /// What trees grew out of.
    parents: HashMap<u64, u64>,
}

impl Owners {
    pub(crate) fn read(reading: &VolumeReading<'_>, index: &Index) -> Owners {
        let mut owners = Owners::default();
        // What grew out of what is not known may share anything.
        if !reading.is_lineage_whole() {
            return owners;
        }
        let epochs: HashMap<u64, Option<u64>> =
            reading.trees().iter().map(|tree| (tree.id, tree.snapshot)).collect();
        for tree in reading.trees() {
            owners.parents.insert(tree.id, tree.parent);
            let since = match tree.parent {
                0 => Some(0),
                parent => epochs.get(&parent).copied().flatten(),
            };
            if let Some(since) = since.filter(|_| tree.cursor.is_none()) {
                owners.descend((reading, index), &tree.place(), since, tree.id);
            }
        }
        owners
    }

    /// Recursion ends at level 0, and no node is entered twice: each fits one place of a tree alone.
    fn descend(
        &mut self,
        (reading, index): (&VolumeReading<'_>, &Index),
        place: &NodePlace,
        since: u64,
        tree: u64,
    ) {
        if place.pointer.epoch.0 <= since {
            return;
        }
        if place.level == 0 {
            if index.get(place.pointer).is_some_and(|leaf| leaf.level == 0) {
                self.trees.insert(place.pointer.block.0, tree);
            }
            return;
        }
        let mut buffer = Vec::new();
        let Ok(node) = reading.node(TreeId::Files, place, None, &mut buffer) else { return };
        let below = place.children(&node);
        for child in below.iter().filter(|child| child.pointer.epoch <= place.pointer.epoch) {
            self.descend((reading, index), child, since, tree);
        }
    }

    /// A tree, and what it grew out of.
    pub(crate) fn line(&self, tree: u64) -> HashSet<u64> {
        let (mut line, mut at) = (HashSet::new(), tree);
        while line.insert(at) {
            at = self.parents.get(&at).copied().unwrap_or(0);
        }
        line
    }

    /// Whether a leaf may be of one of these trees.
    pub(crate) fn may_be_of(&self, line: &HashSet<u64>, block: u64) -> bool {
        self.trees.get(&block).is_none_or(|tree| line.contains(tree))
    }
}
