//! Makes a failing script short, so that the failure is easy to read.
//!
//! First everything that speaks of one branch or snapshot is left out together:
//! taken alone, the operations in a branch that was never made would fail in
//! other ways, or do their work in another branch. Then pieces of steps, down
//! to single ones.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::branch::TreeName;
use crate::op::{Op, Script, Step};

/// Removes steps as long as `fails` still says true.
/// `fails` is asked with scripts that are parts of `script`; it begins anew each time. Ends after a
/// minute in any case.
pub fn shrink(script: &Script, mut fails: impl FnMut(&Script) -> bool) -> Script {
    let start = Instant::now();
    let mut fails = |script: &Script| start.elapsed().as_secs() < 60 && fails(script);
    let mut best = script.clone();
    loop {
        let before = best.steps.len();
        best = without_trees(best, &mut fails);
        best = without_steps(best, &mut fails);
        if best.steps.len() == before || named(&best).is_empty() {
            return best;
        }
    }
}

/// A branch or a snapshot, by its name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Named {
    Branch(TreeName),
    Snapshot(TreeName),
}

impl Named {
    fn is_in(&self, step: &Step) -> bool {
        match (&step.op, self) {
            (Op::Branch(op), Named::Branch(name)) => op.branches().contains(&name),
            (Op::Branch(op), Named::Snapshot(name)) => op.snapshots().contains(&name),
            _ => false,
        }
    }
}

/// Everything that `script` speaks of.
fn named(script: &Script) -> BTreeSet<Named> {
    let ops = script.ops().filter_map(|op| match op {
        Op::Branch(op) => Some(op),
        _ => None,
    });
    ops.flat_map(|op| {
        let branches = op.branches().into_iter().cloned().map(Named::Branch);
        branches.chain(op.snapshots().into_iter().cloned().map(Named::Snapshot))
    })
    .collect()
}

/// What happens in branch `name`: from a switch to it up to the next switch.
fn inside<'a>(script: &'a Script, name: &Named) -> impl Iterator<Item = (&'a Step, bool)> {
    let name = name.clone();
    let mut is_inside = false;
    script.steps.iter().map(move |step| {
        if let Op::Branch(crate::branch::BranchOp::Switch { branch }) = &step.op {
            is_inside = Named::Branch(branch.clone()) == name;
        }
        (step, is_inside)
    })
}

fn without_trees(mut best: Script, fails: &mut impl FnMut(&Script) -> bool) -> Script {
    for name in named(&best) {
        let silent = inside(&best, &name).filter(|&(step, inside)| !inside && !name.is_in(step));
        let spoken = best.steps.iter().filter(|step| !name.is_in(step));
        let candidates: [Vec<Step>; 2] =
            [silent.map(|(step, _)| step.clone()).collect(), spoken.cloned().collect()];
        let shorter = candidates.into_iter().map(|steps| Script { steps });
        let found =
            shorter.filter(|script| script.steps.len() < best.steps.len()).find(&mut *fails);
        best = found.unwrap_or(best);
    }
    best
}

fn without_steps(mut best: Script, fails: &mut impl FnMut(&Script) -> bool) -> Script {
    let mut piece = best.steps.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        let mut shorter = false;
        while at < best.steps.len() {
            let mut steps = best.steps.clone();
            steps.drain(at..(at + piece).min(steps.len()));
            let candidate = Script { steps };
            if fails(&candidate) {
                best = candidate;
                shorter = true;
            } else {
                at += piece;
            }
        }
        match piece {
            1 if !shorter => return best,
            1 => {}
            _ => piece = piece.div_ceil(2),
        }
    }
}
