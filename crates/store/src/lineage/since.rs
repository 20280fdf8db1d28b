//! What a branch has grown out of, and whether it is still what that was.
//!
//! A node that is not younger than the snapshot is the snapshot's, with the same range of keys, and so is all below it. So only
//! nodes that are younger are looked at, and of leaves not more than where they stand in the node above.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use holdfast_base::Epoch;
use parking_lot::MutexGuard;

use crate::tree::TreeNo;
use crate::tree::subtree::Subtree;
use crate::{Inner, Result, StoreError};

/// Snapshots between a branch and one that it has grown out of, at most: it costs the same with many snapshots.
const SNAPSHOTS_MAX: usize = 64;
/// Nodes above the leaves that are looked at, at most.
const NODES_MAX: usize = 1024;

/// The way from a branch through the snapshots that it has grown out of, the youngest first. Some of them may go meanwhile.
pub(super) struct Ascent {
    branch: u64,
    passed: Vec<u64>,
}

impl Ascent {
    pub(super) fn of(branch: u64) -> Ascent {
        Ascent { branch, passed: Vec::new() }
    }

    /// The snapshot that it has come to; 0 when there is no further one. Before it begins: no snapshot has that number.
    pub(super) fn at(&self) -> u64 {
        self.passed.last().copied().unwrap_or(u64::MAX)
    }

    /// Goes on to the next.
    pub(super) fn up(&mut self, inner: &Inner) -> Result<()> {
        let parent = loop {
            let at = self.passed.last().copied();
            match inner.tree_item(at.unwrap_or(self.branch)) {
                // A parent is older, or the volume is damaged.
                Ok(item) if at.is_some_and(|at| item.parent >= at) => break 0,
                Ok(item) => break item.parent,
                // It has gone: what grew out of it has its parent now.
                Err(StoreError::Lineage(_)) if self.passed.pop().is_some() => {}
                Err(error) => return Err(error),
            }
        };
        self.passed.push(parent);
        Ok(())
    }
}

impl Inner {
    /// Whether a branch is surely what a snapshot is: it has grown out of that, and no node is younger. What is younger is looked for until there
    /// is one. The branch does not change meanwhile.
    pub(crate) fn is_unchanged_since(
        &self,
        tree: TreeNo,
        branch: u64,
        snapshot: u64,
    ) -> Result<bool> {
        match self.epoch_of_ancestor(branch, snapshot)? {
            Some(epoch) => self.has_none_younger(tree, epoch),
            None => Ok(false),
        }
    }

    /// Whether surely no leaf is younger.
    fn has_none_younger(&self, tree: TreeNo, epoch: Epoch) -> Result<bool> {
        let root = Subtree::root(&self.forest.read(), tree);
        let (mut waiting, mut seen) = (vec![root], 0_usize);
        while let Some(here) = waiting.pop() {
            if here.pointer.epoch <= epoch {
                continue;
            }
            seen = seen.saturating_add(1);
            if here.level == 0 || seen > NODES_MAX {
                return Ok(false);
            }
            let children = self.look(|forest| {
                let node = here.node(forest)?;
                Ok(here.children(&node).filter(|of| of.pointer.epoch > epoch).collect::<Vec<_>>())
            })?;
            waiting.extend(children.into_iter().rev());
        }
        Ok(true)
    }

    /// The youngest snapshot that two branches have grown out of. They may be far from it: others change the lineage meanwhile.
    pub(crate) fn common_ancestor(&self, one: u64, other: u64) -> Result<Option<u64>> {
        let mut ways = [Ascent::of(one), Ascent::of(other)];
        loop {
            let held = self.lineage.lock();
            for _ in 0..SNAPSHOTS_MAX {
                let [one, other] = ways.each_mut();
                // What is older has the smaller number: the other one goes on.
                let further = if one.at() >= other.at() { one } else { other };
                further.up(self)?;
                match ways.each_ref().map(Ascent::at) {
                    [0, _] | [_, 0] => return Ok(None),
                    [one, other] if one == other => return Ok(Some(one)),
                    _ => {}
                }
            }
            MutexGuard::unlock_fair(held);
        }
    }

    /// Whether a branch has grown out of a snapshot, be it by way of others.
    pub fn has_grown_out_of(&self, branch: u64, snapshot: u64) -> Result<bool> {
        let mut way = Ascent::of(branch);
        loop {
            let one = self.lineage.lock();
            for _ in 0..SNAPSHOTS_MAX {
                if way.at() <= snapshot {
                    return Ok(way.at() == snapshot);
                }
                way.up(self)?;
            }
            MutexGuard::unlock_fair(one);
        }
    }

    /// The snapshots that a branch has grown out of, the youngest first, and no more than `most`.
    fn ancestors(&self, branch: u64, most: usize) -> Result<Vec<u64>> {
        let mut ancestors: Vec<u64> = Vec::new();
        let mut of = branch;
        while ancestors.len() < most {
            of = self.tree_item(of)?.parent;
            // A parent is older, or the volume is damaged.
            if of == 0 || ancestors.last().is_some_and(|younger| of >= *younger) {
                break;
            }
            ancestors.push(of);
        }
        Ok(ancestors)
    }

    /// The epoch of a snapshot, if a branch has grown out of it.
    fn epoch_of_ancestor(&self, branch: u64, snapshot: u64) -> Result<Option<Epoch>> {
        match self.ancestors(branch, SNAPSHOTS_MAX)?.contains(&snapshot) {
            true => Ok(Some(self.tree_item(snapshot)?.epoch)),
            false => Ok(None),
        }
    }
}
