//! Which inodes of a branch may be otherwise than in a snapshot that it has grown out of.
//!
//! A node that is not younger than the snapshot is the snapshot's, with the same range of keys, and so is all below it. So only
//! nodes that are younger are looked at, and of leaves not more than where they stand in the node above.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use holdfast_base::{Epoch, InodeNo};
use parking_lot::MutexGuard;

use crate::tree::TreeNo;
use crate::tree::subtree::Subtree;
use crate::{Inner, Result, StoreError};

/// Snapshots between a branch and one that it has grown out of, at most: it costs the same with many snapshots.
const SNAPSHOTS_MAX: usize = 64;
/// Nodes above the leaves that are looked at, at most.
const NODES_MAX: usize = 1024;

/// Inodes, as ranges in ascending order, both ends included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inodes(Vec<(InodeNo, InodeNo)>);

impl Inodes {
    /// Whether it is one of these.
    pub fn contains(&self, inode: InodeNo) -> bool {
        let behind = self.0.partition_point(|(_, last)| *last < inode);
        self.0.get(behind).is_some_and(|(first, _)| *first <= inode)
    }

    /// These and others.
    pub fn and(mut self, mut others: Inodes) -> Inodes {
        self.0.append(&mut others.0);
        self.0.sort_unstable();
        let mut all = Inodes::default();
        self.0.into_iter().for_each(|(first, last)| all.add(first, last));
        all
    }

    /// Adds a range that begins no earlier than the last one.
    fn add(&mut self, first: InodeNo, last: InodeNo) {
        match self.0.last_mut() {
            Some(before) if before.1 >= first => before.1 = before.1.max(last),
            _ => self.0.push((first, last)),
        }
    }
}

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
    /// Inodes of which a branch may have other items than a snapshot. `None`: all, as it has not grown out of it, or too much
    /// lies between. The branch does not change meanwhile.
    pub(crate) fn changed_since(
        &self,
        tree: TreeNo,
        branch: u64,
        snapshot: u64,
    ) -> Result<Option<Inodes>> {
        let Some(epoch) = self.epoch_of_ancestor(branch, snapshot)? else { return Ok(None) };
        let mut inodes = Inodes::default();
        let all_seen = self.younger_leaves(tree, epoch, |first, last| {
            inodes.add(first, last);
            true
        })?;
        Ok(all_seen.then_some(inodes))
    }

    /// Whether a branch is surely what a snapshot is: it has grown out of that, and no node is younger. What is younger is looked for until there
    /// is one. The branch does not change meanwhile.
    pub(crate) fn is_unchanged_since(
        &self,
        tree: TreeNo,
        branch: u64,
        snapshot: u64,
    ) -> Result<bool> {
        match self.epoch_of_ancestor(branch, snapshot)? {
            Some(epoch) => self.younger_leaves(tree, epoch, |_, _| false),
            None => Ok(false),
        }
    }

    /// Calls `visit` with the inodes of each leaf that is younger, the smallest first, until it returns false. Whether it has come to the end.
    fn younger_leaves(
        &self,
        tree: TreeNo,
        epoch: Epoch,
        mut visit: impl FnMut(InodeNo, InodeNo) -> bool,
    ) -> Result<bool> {
        let root = Subtree::root(&self.forest.read(), tree);
        let (mut waiting, mut seen) = (vec![root], 0_usize);
        while let Some(here) = waiting.pop() {
            if here.pointer.epoch <= epoch {
                continue;
            }
            if here.level == 0 {
                let end = here.end.map_or(InodeNo(u64::MAX), |end| end.inode());
                if !visit(here.low.inode(), end) {
                    return Ok(false);
                }
                continue;
            }
            seen = seen.saturating_add(1);
            if seen > NODES_MAX {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_meet_are_one() {
        let mut inodes = Inodes::default();
        assert!(!inodes.contains(InodeNo(0)));
        for (first, last) in [(1, 3), (3, 3), (3, 5), (9, 9), (20, u64::MAX)] {
            inodes.add(InodeNo(first), InodeNo(last));
        }
        assert_eq!(inodes.0.len(), 3);
        let are = [1, 3, 5, 9, 20, u64::MAX];
        assert!(are.iter().all(|no| inodes.contains(InodeNo(*no))));
        assert!([0, 6, 8, 10, 19].iter().all(|no| !inodes.contains(InodeNo(*no))));
        let others = Inodes(vec![(InodeNo(0), InodeNo(1)), (InodeNo(8), InodeNo(12))]);
        let both = inodes.and(others);
        assert_eq!(both.0.len(), 3, "{both:?}");
        assert!([0, 4, 8, 11, 12, 21].iter().all(|no| both.contains(InodeNo(*no))));
    }
}
