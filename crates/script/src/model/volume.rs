//! A volume of the model: branches and snapshots, each of them a plain filesystem.
//!
//! A snapshot is a clone, a fork is a clone, and rolling back is one; a branch
//! out of nothing is a new filesystem: that is all, so what a tree holds is obviously right. What has to be known beside it
//! is what grew out of what, because a branch cannot be removed while another
//! one has grown out of a snapshot of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Answered, Model};
use crate::branch::{BranchOp, TreeName};
use crate::errno::Errno;
use crate::op::{Handle, Op};
use crate::outcome::{Answer, Outcome};
use crate::target::Target;
use crate::trees::TreeRef;

/// A branch or snapshot by a number that no other one ever had.
type Number = u64;

#[derive(Clone, Debug)]
struct Snapshot {
    number: Number,
    /// Tags.
    holds: BTreeSet<Vec<u8>>,
    tree: Arc<Model>,
}

#[derive(Clone, Debug)]
struct Branch {
    /// Of its present tree: another one after a rollback.
    number: Number,
    tree: Arc<Model>,
    /// The snapshot that it grew out of; 0 for none.
    parent: Number,
    snapshots: BTreeMap<TreeName, Snapshot>,
    /// Made with the volume.
    is_first: bool,
}

/// The model of a volume.
#[derive(Clone, Debug)]
pub struct VolumeModel {
    branches: BTreeMap<TreeName, Branch>,
    current: TreeName,
    /// What each snapshot that there ever was grew out of.
    parents: BTreeMap<Number, Number>,
    next: Number,
}

impl Default for VolumeModel {
    fn default() -> VolumeModel {
        VolumeModel::new()
    }
}

impl From<Model> for VolumeModel {
    /// A volume whose only branch is `main`.
    fn from(model: Model) -> VolumeModel {
        let main = Branch {
            number: 1,
            tree: Arc::new(model),
            parent: 0,
            snapshots: BTreeMap::new(),
            is_first: true,
        };
        VolumeModel {
            branches: BTreeMap::from([(TreeName::main(), main)]),
            current: TreeName::main(),
            parents: BTreeMap::new(),
            next: 2,
        }
    }
}

/// What a crash or an unmount leaves of a tree: no handles, and no file that only they kept.
fn settled(tree: &Arc<Model>) -> Arc<Model> {
    if tree.handles.is_empty() {
        return Arc::clone(tree);
    }
    let mut settled = Model::clone(tree);
    settled.close_all();
    Arc::new(settled)
}

impl VolumeModel {
    /// An empty volume.
    pub fn new() -> VolumeModel {
        VolumeModel::from(Model::new())
    }

    /// The branch in which the script is.
    pub fn current(&self) -> &TreeName {
        &self.current
    }

    /// The tree of the branch in which the script is.
    pub fn tree(&self) -> &Model {
        &self.here().tree
    }

    /// The number of that tree. No other tree ever has it: what a branch was before a rollback is another one.
    pub fn number(&self) -> u64 {
        self.here().number
    }

    /// Everything that there is, with numbers.
    pub fn trees(&self) -> impl Iterator<Item = (TreeRef, u64, &Arc<Model>)> {
        self.branches.iter().flat_map(|(name, branch)| {
            let live = (TreeRef::branch(name), branch.number, &branch.tree);
            let snapshots = branch.snapshots.iter().map(move |(snapshot, found)| {
                (TreeRef::snapshot(name, snapshot), found.number, &found.tree)
            });
            std::iter::once(live).chain(snapshots)
        })
    }

    /// The tree with this number, if there is one.
    pub fn numbered(&self, number: u64) -> Option<&Arc<Model>> {
        self.trees().find(|&(_, found, _)| found == number).map(|(_, _, tree)| tree)
    }

    /// The handles that are open in a branch.
    pub fn handles(&self, branch: &TreeName) -> Vec<Handle> {
        self.branches.get(branch).map_or(Vec::new(), |branch| branch.tree.handles.names())
    }

    /// Snapshots of the branch in which the script is, the oldest first, and how many trees with a name have grown out of
    /// each: straight, or out of what was removed since.
    pub fn grown(&self) -> Vec<(TreeName, usize)> {
        let mut snapshots: Vec<_> = self.here().snapshots.iter().collect();
        snapshots.sort_by_key(|(_, snapshot)| snapshot.number);
        let count = |number| self.parents_of_trees().filter(|&found| found == number).count();
        snapshots.into_iter().map(|(name, of)| (name.clone(), count(of.number))).collect()
    }

    /// Whether another branch has grown out of a snapshot of this one.
    pub fn has_forks(&self, branch: &TreeName) -> bool {
        let Some(found) = self.branches.get(branch) else { return false };
        let own: Vec<Number> = found.snapshots.values().map(|snapshot| snapshot.number).collect();
        let others = self.branches.iter().filter(|(name, _)| *name != branch);
        let mut trees = others.flat_map(|(_, other)| {
            let snapshots = other.snapshots.values().map(|of| self.parents[&of.number]);
            std::iter::once(other.parent).chain(snapshots)
        });
        trees.any(|parent| self.ancestors(parent).any(|number| own.contains(&number)))
    }

    /// A snapshot and all that it grew out of.
    fn ancestors(&self, snapshot: Number) -> impl Iterator<Item = Number> {
        std::iter::successors(Some(snapshot), |number| self.parents.get(number).copied())
    }

    /// For each tree with a name: the nearest snapshot with a name out of which it grew.
    fn parents_of_trees(&self) -> impl Iterator<Item = Number> {
        let named = |number: &Number| {
            let mut all = self.branches.values().flat_map(|branch| branch.snapshots.values());
            all.any(|snapshot| snapshot.number == *number)
        };
        let lives = self.branches.values().map(|branch| branch.parent);
        let all = self.branches.values().flat_map(|branch| branch.snapshots.values());
        let snapshots = all.map(|snapshot| self.parents[&snapshot.number]);
        lives.chain(snapshots).filter_map(move |parent| self.ancestors(parent).find(named))
    }

    fn here(&self) -> &Branch {
        &self.branches[&self.current]
    }

    fn here_mut(&mut self) -> &mut Branch {
        self.branches.get_mut(&self.current).expect("the branch of the script is never removed")
    }

    fn draw(&mut self) -> Number {
        self.next += 1;
        self.next - 1
    }

    /// A snapshot of the branch as it is, which the branch has grown out of from now on.
    fn seal(&mut self) -> Snapshot {
        let number = self.draw();
        let here = self.here_mut();
        let parent = std::mem::replace(&mut here.parent, number);
        let snapshot = Snapshot { number, holds: BTreeSet::new(), tree: settled(&here.tree) };
        self.parents.insert(number, parent);
        snapshot
    }

    fn snapshot_mut(&mut self, name: &TreeName) -> Result<&mut Snapshot, Errno> {
        self.here_mut().snapshots.get_mut(name).ok_or(Errno::ENOENT)
    }

    /// Whether a snapshot of the branch can get this name.
    fn free(&self, name: &TreeName) -> Result<(), Errno> {
        short_enough(name)?;
        match self.here().snapshots.contains_key(name) {
            true => Err(Errno::EEXIST),
            false => Ok(()),
        }
    }

    /// Whether a branch can get this name.
    fn free_branch(&self, name: &TreeName) -> Result<(), Errno> {
        short_enough(name)?;
        if self.branches.contains_key(name) { Err(Errno::EEXIST) } else { Ok(()) }
    }

    fn fork(&mut self, branch: &TreeName, from: Option<&TreeName>) -> Answered {
        let found =
            from.map(|name| self.snapshot_mut(name).map(|found| found.clone())).transpose()?;
        self.free_branch(branch)?;
        let origin = found.unwrap_or_else(|| self.seal());
        let number = self.draw();
        let (tree, parent) = (origin.tree, origin.number);
        let fork = Branch { number, tree, parent, snapshots: BTreeMap::new(), is_first: false };
        self.branches.insert(branch.clone(), fork);
        Ok(Answer::Done)
    }

    fn new_branch(&mut self, branch: &TreeName) -> Answered {
        self.free_branch(branch)?;
        let (number, tree) = (self.draw(), Arc::new(Model::new()));
        let new = Branch { number, tree, parent: 0, snapshots: BTreeMap::new(), is_first: false };
        self.branches.insert(branch.clone(), new);
        Ok(Answer::Done)
    }

    fn roll_back(&mut self, to: &TreeName, keep: Option<&TreeName>) -> Answered {
        let to = self.snapshot_mut(to)?.clone();
        keep.map_or(Ok(()), |name| self.free(name))?;
        if !self.here().tree.handles.is_empty() {
            return Err(Errno::EBUSY);
        }
        let was = self.seal();
        let number = self.draw();
        let here = self.here_mut();
        here.snapshots.extend(keep.map(|name| (name.clone(), was)));
        (here.number, here.tree, here.parent) = (number, to.tree, to.number);
        Ok(Answer::Done)
    }

    fn promote(&mut self, name: &TreeName, keep: Option<&TreeName>) -> Answered {
        let fork = self.branches.get(name).ok_or(Errno::ENOENT)?;
        if fork.is_first || *name == self.current || !fork.tree.handles.is_empty() {
            return Err(Errno::EBUSY);
        }
        keep.map_or(Ok(()), short_enough)?;
        let own = &self.here().snapshots;
        let is_taken = fork.snapshots.keys().any(|name| own.contains_key(name))
            || keep.is_some_and(|keep| own.contains_key(keep) || fork.snapshots.contains_key(keep));
        if is_taken {
            return Err(Errno::EEXIST);
        }
        if !self.here().tree.handles.is_empty() {
            return Err(Errno::EBUSY);
        }
        let fork = self.branches.remove(name).expect("it was just found");
        let was = self.seal();
        let (head, number) = (self.draw(), self.draw());
        self.parents.insert(head, fork.parent);
        let here = self.here_mut();
        here.snapshots.extend(fork.snapshots);
        here.snapshots.extend(keep.map(|name| (name.clone(), was)));
        (here.number, here.tree, here.parent) = (number, fork.tree, head);
        Ok(Answer::Done)
    }

    fn remove_branch(&mut self, name: &TreeName) -> Answered {
        let branch = self.branches.get(name).ok_or(Errno::ENOENT)?;
        let is_open = *name == self.current || !branch.tree.handles.is_empty();
        let is_held = branch.snapshots.values().any(|snapshot| !snapshot.holds.is_empty());
        if branch.is_first || is_open || is_held || self.has_forks(name) {
            return Err(Errno::EBUSY);
        }
        self.branches.remove(name);
        Ok(Answer::Done)
    }

    fn rename_branch(&mut self, from: &TreeName, to: &TreeName) -> Answered {
        if !self.branches.contains_key(from) {
            return Err(Errno::ENOENT);
        }
        if from != to {
            self.free_branch(to)?;
        }
        let branch = self.branches.remove(from).expect("it was just found");
        self.branches.insert(to.clone(), branch);
        if self.current == *from {
            self.current = to.clone();
        }
        Ok(Answer::Done)
    }

    fn answer_branch(&mut self, op: &BranchOp) -> Answered {
        match op {
            BranchOp::Switch { branch } => {
                if !self.branches.contains_key(branch) {
                    return Err(Errno::ENOENT);
                }
                self.current = branch.clone();
            }
            BranchOp::Snapshot { name } => {
                self.free(name)?;
                let snapshot = self.seal();
                self.here_mut().snapshots.insert(name.clone(), snapshot);
            }
            BranchOp::Fork { branch, from } => return self.fork(branch, from.as_ref()),
            BranchOp::NewBranch { branch } => return self.new_branch(branch),
            BranchOp::Rollback { to, keep } => return self.roll_back(to, keep.as_ref()),
            BranchOp::Promote { fork, keep } => return self.promote(fork, keep.as_ref()),
            BranchOp::RemoveSnapshot { name } => {
                if !self.snapshot_mut(name)?.holds.is_empty() {
                    return Err(Errno::EBUSY);
                }
                self.here_mut().snapshots.remove(name);
            }
            BranchOp::RemoveBranch { branch } => return self.remove_branch(branch),
            BranchOp::RenameSnapshot { from, to } => {
                self.snapshot_mut(from)?;
                if from != to {
                    self.free(to)?;
                }
                let here = self.here_mut();
                let snapshot = here.snapshots.remove(from).expect("it was just found");
                here.snapshots.insert(to.clone(), snapshot);
            }
            BranchOp::RenameBranch { from, to } => return self.rename_branch(from, to),
            BranchOp::Hold { name, tag } => {
                if !self.snapshot_mut(name)?.holds.insert(BranchOp::tag(tag).into()) {
                    return Err(Errno::EEXIST);
                }
            }
            BranchOp::Unhold { name, tag } => {
                if !self.snapshot_mut(name)?.holds.remove(BranchOp::tag(tag)) {
                    return Err(Errno::ENOENT);
                }
            }
            BranchOp::Branches => {
                let all = self.branches.keys().cloned().collect();
                return Ok(Answer::Branches { current: self.current.clone(), all });
            }
            BranchOp::Snapshots => {
                return Ok(Answer::Snapshots(self.here().snapshots.keys().cloned().collect()));
            }
            BranchOp::Look { name } => {
                return Model::clone(&self.snapshot_mut(name)?.tree).everything();
            }
        }
        Ok(Answer::Done)
    }
}

/// EINVAL unless a branch or snapshot can have this name.
fn short_enough(name: &TreeName) -> Result<(), Errno> {
    match name.as_bytes().len() > TreeName::MAX {
        true => Err(Errno::EINVAL),
        false => Ok(()),
    }
}

impl Target for VolumeModel {
    fn apply(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Branch(op) => self.branch(op),
            Op::Remount | Op::Shrink { .. } | Op::Crash => {
                for branch in self.branches.values_mut() {
                    branch.tree = settled(&branch.tree);
                }
                Outcome::Ok(Answer::Done)
            }
            op => Arc::make_mut(&mut self.here_mut().tree).apply(op),
        }
    }

    fn branch(&mut self, op: &BranchOp) -> Outcome {
        self.answer_branch(op).into()
    }
}
