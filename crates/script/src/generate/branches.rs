//! Random operations on branches and snapshots.
//!
//! Most of them work. What is removed is chosen by its place in the lineage:
//! the oldest snapshot, the newest, one in the middle, with nothing, one tree or
//! several trees that grew out of it. Each of these is another walk for an engine.

use super::{Generator, Verb};
use crate::branch::{BranchOp, TreeName};
use crate::op::Op;
use crate::outcome::Outcome;
use crate::target::Target;

/// More branches, and snapshots of one branch, are hardly ever made.
const MOST: usize = 5;

impl<'a> Generator<'a> {
    pub(super) fn branch(&mut self) -> Option<Op> {
        let verbs: [(u32, Verb<'a>); 12] = [
            (11, |my| Some(Op::Branch(BranchOp::Switch { branch: my.other_branch()? }))),
            (8, |my| Some(Op::Branch(BranchOp::Snapshot { name: my.new_snapshot()? }))),
            (5, Generator::fork),
            (3, Generator::rollback),
            (2, Generator::promote),
            (6, |my| Some(Op::Branch(BranchOp::RemoveSnapshot { name: my.snapshot_by_place()? }))),
            (3, Generator::remove_branch),
            (1, Generator::rename_tree),
            (self.profile.holds.into(), Generator::hold),
            (2, |my| Some(Op::Branch(BranchOp::Look { name: my.snapshot()? }))),
            (1, |my| {
                let all = if my.prng.chance(50) { BranchOp::Branches } else { BranchOp::Snapshots };
                Some(Op::Branch(all))
            }),
            (2 * u32::from(self.profile.new_branches), |my| {
                Some(Op::Branch(BranchOp::NewBranch { branch: my.new_branch()? }))
            }),
        ];
        let verb = self.prng.weighted(&verbs)?;
        verb(self)
    }

    fn fork(&mut self) -> Option<Op> {
        let branch = self.new_branch()?;
        let from = if self.prng.chance(60) { self.snapshot() } else { None };
        Some(Op::Branch(BranchOp::Fork { branch, from }))
    }

    /// All branches, sorted.
    fn branches(&self) -> Vec<TreeName> {
        let live = self.model.trees().filter(|(name, ..)| name.snapshot.is_none());
        live.map(|(name, ..)| name.branch).collect()
    }

    /// A branch that is not the present one; hardly ever one that was never made.
    fn other_branch(&mut self) -> Option<TreeName> {
        if self.prng.chance(2) {
            return Some(self.any_branch());
        }
        let mut all = self.branches();
        all.retain(|name| name != self.model.current());
        (!all.is_empty()).then(|| self.prng.pick(&all).clone())
    }

    fn any_branch(&mut self) -> TreeName {
        named(format!("b{}", self.prng.below(6)).as_bytes())
    }

    fn any_snapshot(&mut self) -> TreeName {
        named(format!("s{}", self.prng.below(8)).as_bytes())
    }

    /// A name for a branch, hardly ever one that is taken.
    fn new_branch(&mut self) -> Option<TreeName> {
        let all = self.branches();
        if self.prng.chance(3) {
            return Some(self.odd_name(&all));
        }
        let name = self.any_branch();
        (all.len() < MOST && !all.contains(&name)).then_some(name)
    }

    /// As [`Generator::new_branch`], for a snapshot of the present branch.
    fn new_snapshot(&mut self) -> Option<TreeName> {
        let all: Vec<TreeName> = self.model.grown().into_iter().map(|(name, _)| name).collect();
        if self.prng.chance(3) {
            return Some(self.odd_name(&all));
        }
        let name = self.any_snapshot();
        (all.len() < MOST && !all.contains(&name)).then_some(name)
    }

    /// A name that is taken, or is the longest that there is, or longer.
    fn odd_name(&mut self, taken: &[TreeName]) -> TreeName {
        match self.prng.below(4) {
            0 => named(&[b'x'; TreeName::MAX]),
            1 => named(&[b'x'; TreeName::MAX + 1]),
            _ if taken.is_empty() => named(b"a b%"),
            _ => self.prng.pick(taken).clone(),
        }
    }

    /// A snapshot of the present branch; hardly ever one that was never taken.
    fn snapshot(&mut self) -> Option<TreeName> {
        let all = self.model.grown();
        if self.prng.chance(2) {
            return Some(self.any_snapshot());
        }
        (!all.is_empty()).then(|| self.prng.pick(&all).0.clone())
    }

    /// A snapshot of the present branch, by its place among the others.
    fn snapshot_by_place(&mut self) -> Option<TreeName> {
        let all = self.model.grown();
        let (first, last) = (all.first()?.0.clone(), all.last()?.0.clone());
        let inner = all.get(1..all.len() - 1).unwrap_or_default().to_vec();
        let with = |fits: fn(usize) -> bool| {
            all.iter().filter(|(_, count)| fits(*count)).cloned().collect::<Vec<_>>()
        };
        let fitting = match self.prng.below(7) {
            0 => return Some(first),
            1 => return Some(last),
            2 => inner,
            3 => with(|count| count == 0),
            4 => with(|count| count == 1),
            5 => with(|count| count > 1),
            _ => return self.snapshot(),
        };
        let choice = if fitting.is_empty() { all } else { fitting };
        Some(self.prng.pick(&choice).0.clone())
    }

    /// Mostly with all handles of the branch closed before.
    fn rollback(&mut self) -> Option<Op> {
        let to = self.snapshot()?;
        let keep = if self.prng.chance(60) { self.new_snapshot() } else { None };
        Some(self.with_handles_closed(Op::Branch(BranchOp::Rollback { to, keep })))
    }

    /// Mostly of a branch that another one can become, and with all handles of the branch closed before.
    fn promote(&mut self) -> Option<Op> {
        let keep = if self.prng.chance(50) { self.new_snapshot() } else { None };
        let mut closed = self.model.clone();
        closed.apply(&Op::Remount);
        let mut all = self.branches();
        if self.prng.chance(80) {
            let works = |fork: &TreeName| {
                let op = BranchOp::Promote { fork: fork.clone(), keep: keep.clone() };
                matches!(closed.clone().branch(&op), Outcome::Ok(_))
            };
            all.retain(works);
        }
        let fork = (!all.is_empty()).then(|| self.prng.pick(&all).clone())?;
        Some(self.with_handles_closed(Op::Branch(BranchOp::Promote { fork, keep })))
    }

    /// The first of these operations; the others are in the queue.
    fn with_handles_closed(&mut self, op: Op) -> Op {
        if self.prng.chance(90) {
            let open = self.model.handles(self.model.current());
            self.queued.extend(open.into_iter().map(|handle| Op::Close { handle }));
        }
        self.queued.push_back(op);
        self.queued.pop_front().expect("it was just queued")
    }

    /// Mostly one that can be removed.
    fn remove_branch(&mut self) -> Option<Op> {
        let mut all = self.branches();
        if self.prng.chance(80) {
            let works = |branch: &TreeName| {
                let op = BranchOp::RemoveBranch { branch: branch.clone() };
                matches!(self.model.clone().branch(&op), Outcome::Ok(_))
            };
            all.retain(works);
        }
        let branch = (!all.is_empty()).then(|| self.prng.pick(&all).clone())?;
        Some(Op::Branch(BranchOp::RemoveBranch { branch }))
    }

    fn rename_tree(&mut self) -> Option<Op> {
        if self.prng.chance(50) {
            let (from, to) = (self.snapshot()?, self.new_snapshot()?);
            return Some(Op::Branch(BranchOp::RenameSnapshot { from, to }));
        }
        // The first one is found by its name after a crash.
        let mut branches = self.branches();
        branches.retain(|name| *name != TreeName::main());
        let from = (!branches.is_empty()).then(|| self.prng.pick(&branches).clone())?;
        let to = self.new_branch()?;
        Some(Op::Branch(BranchOp::RenameBranch { from, to }))
    }

    /// A hold for a while, or the end of one.
    fn hold(&mut self) -> Option<Op> {
        let name = self.snapshot()?;
        let tag = self.prng.chance(30).then(|| named(b"backup"));
        let unhold = BranchOp::Unhold { name: name.clone(), tag: tag.clone() };
        let remove = BranchOp::RemoveSnapshot { name: name.clone() };
        let is_held = !matches!(self.model.clone().branch(&remove), Outcome::Ok(_));
        let lets_go = if is_held { self.prng.chance(80) } else { self.prng.chance(5) };
        Some(Op::Branch(if lets_go { unhold } else { BranchOp::Hold { name, tag } }))
    }
}

fn named(bytes: &[u8]) -> TreeName {
    TreeName::new(bytes).expect("it holds no byte that names do not have")
}
