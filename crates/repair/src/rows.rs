//! A damaged node that several trees in a row have.
//!
//! What the snapshot before them and a tree that grew out of them share, they had too, and must have: else a deletion of the one before
//! would free what the one behind still reaches (S1, docs/BRANCHES.md). For a single tree between two others the items come back
//! ([`crate::judge`]). For several in a row they would have to come back in each; that is not done, so such a volume is not repaired.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_base::BlockNo;

use crate::error::RepairError;
use crate::walk::State;

/// Fails if there is such a node between two trees that do not have it.
pub(crate) fn refuse(states: &[State]) -> Result<(), RepairError> {
    let mut lost: BTreeMap<BlockNo, BTreeSet<u64>> = BTreeMap::new();
    for state in states {
        for node in &state.lost {
            lost.entry(node.place.pointer.block).or_default().insert(state.root.id);
        }
    }
    lost.retain(|_, trees| trees.len() > 1);
    if lost.is_empty() {
        return Ok(());
    }
    let parents: BTreeMap<u64, u64> =
        states.iter().map(|state| (state.root.id, state.root.parent)).collect();
    let mut children: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (tree, parent) in &parents {
        children.entry(*parent).or_default().push(*tree);
    }
    let below = |tree: u64| children.get(&tree).into_iter().flatten().copied();
    for (block, trees) in &lost {
        let is_first = |tree: &&u64| {
            let parent = parents.get(*tree).copied().unwrap_or(0);
            parents.contains_key(&parent) && !trees.contains(&parent)
        };
        for first in trees.iter().filter(is_first) {
            let mut row: Vec<u64> = below(*first).filter(|tree| trees.contains(tree)).collect();
            while let Some(tree) = row.pop() {
                for child in below(tree) {
                    if !trees.contains(&child) {
                        return RepairError::refused(format!(
                            "the damaged node in block {} belongs to several snapshots in a row, between others that do not have it: \
                             nothing is written, as what those share could be freed later; copy out the files that can be read",
                            block.0
                        ));
                    }
                    row.push(child);
                }
            }
        }
    }
    Ok(())
}
