//! A volume after a crash goes on: it is used, in each of its branches, and all that it has is removed.
//!
//! Snapshots and branches go one by one, in an order by chance. Until each is gone the others are as they were (P13, P14), also
//! when the program is killed right behind a removal, which has returned and so has happened (P12). In the end nothing
//! is left, and fsck finds no block in use that no tree reaches.

use std::sync::Arc;

use holdfast_device::{Device, MemoryDevice};
use holdfast_script::prng::Prng;
use holdfast_script::{
    BranchOp, Errno, FileKind, Op, Outcome, Script, Target, TreeName, TreeRef, Trees,
};

use crate::opened::{clean, quiet, same};
use crate::{Engine, Setup, judge};

/// The first things that a user does with a volume after a crash; what they leave is killed again.
const WORK: &str = "mkdir /used-on 700; mkfile /used-on/a; write /used-on/a 0 5000 1; fsync /used-on/a; mkfile /used-on/b; \
    write /used-on/b 0 100 2; rename /used-on/b /used-on/c; fsyncdir /used-on; write /used-on/a 100 50 3; fsync /used-on/a; \
    append /used-on/c 9000 4; fsync /used-on/c; link /used-on/a /used-on/d; setxattr /used-on/a user.x 300 5; sync; crash; \
    append /used-on/a 3000 6; fsync /used-on/a; unlink /used-on/d";

/// Uses a copy of the image, and empties it.
pub(crate) fn use_on(image: &MemoryDevice, setup: &Setup, seed: u64) -> Result<(), String> {
    let device: Arc<dyn Device> = Arc::new(image.snapshot());
    let mut engine = Engine::open(Arc::clone(&device), quiet(setup))
        .map_err(|error| format!("mount: {error}"))?;
    let first = engine.first_branch().clone();
    let trees = engine.walk_all()?;
    let others = trees.0.keys().filter(|tree| tree.snapshot.is_none() && tree.branch != first);
    for branch in std::iter::once(&first).chain(others.map(|tree| &tree.branch)) {
        done(&mut engine, BranchOp::Switch { branch: branch.clone() })?;
        work_in(&mut engine)?;
    }
    done(&mut engine, BranchOp::Switch { branch: first.clone() })?;
    if trees.0.len() > 1 {
        // What is there now has to stay until it is removed.
        expect(&mut engine, &Op::Remount)?;
        Removal::new(&mut engine, first, seed)?.remove_all()?;
    }
    empty(&mut engine)?;
    engine.unmount().map_err(|error| format!("unmount: {error}"))?;
    clean(&device, "when it was empty")?;
    let facts = judge(&*device)?.facts;
    match (facts.orphans, facts.inodes, facts.data_blocks, facts.snapshots) {
        (0, 1, 0, 0) => Ok(()),
        other => {
            Err(format!("orphans, inodes, blocks of data and snapshots at the end: {other:?}"))
        }
    }
}

fn expect(engine: &mut Engine, op: &Op) -> Result<(), String> {
    match engine.apply(op) {
        Outcome::Ok(_) => Ok(()),
        Outcome::Err(error) => Err(format!("{op} answers {error}")),
    }
}

fn done(engine: &mut Engine, op: BranchOp) -> Result<(), String> {
    expect(engine, &Op::Branch(op))
}

fn work_in(engine: &mut Engine) -> Result<(), String> {
    let work: Script = WORK.parse().expect("the script is well formed");
    for op in work.ops() {
        match engine.apply(op) {
            // A volume may be full, and what did not get its space is missing then.
            Outcome::Ok(_) | Outcome::Err(Errno::ENOSPC | Errno::ENOENT) => {}
            other => return Err(format!("{op} answers {other}")),
        }
    }
    Ok(())
}

/// Removes every file of the branch.
fn empty(engine: &mut Engine) -> Result<(), String> {
    let all = engine.walk()?;
    // A directory comes before what is in it.
    for (path, node) in all.0.iter().rev().filter(|(path, _)| !path.is_root()) {
        let path = path.clone();
        let op = match node.stat.kind {
            FileKind::Dir => Op::Rmdir { path },
            _ => Op::Unlink { path },
        };
        expect(engine, &op)?;
    }
    Ok(())
}

/// The removal of all branches and snapshots.
struct Removal<'a> {
    engine: &'a mut Engine,
    first: TreeName,
    prng: Prng,
    /// What is still there.
    left: Trees,
}

impl<'a> Removal<'a> {
    fn new(engine: &'a mut Engine, first: TreeName, seed: u64) -> Result<Removal<'a>, String> {
        let left = engine.walk_all()?;
        Ok(Removal { engine, first, prng: Prng::seeded(seed), left })
    }

    fn remove_all(mut self) -> Result<(), String> {
        let mut refused: Vec<TreeRef> = Vec::new();
        loop {
            let first = TreeRef::branch(&self.first);
            let can = |tree: &&TreeRef| **tree != first && !refused.contains(tree);
            let choices: Vec<TreeRef> = self.left.0.keys().filter(can).cloned().collect();
            if choices.is_empty() {
                break;
            }
            let tree = self.prng.pick(&choices).clone();
            if !self.remove(&tree)? {
                refused.push(tree);
                continue;
            }
            refused.clear();
            self.look_again().map_err(|why| format!("behind the removal of {tree}: {why}"))?;
        }
        if let Some(tree) = refused.first() {
            return Err(format!("nothing can be removed any more, not even {tree}"));
        }
        self.engine.finish_removals().map_err(|error| format!("removals: {error}"))?;
        same(&self.left, &self.engine.walk_all()?)
    }

    /// Removes a tree; false for a branch that cannot be removed yet.
    fn remove(&mut self, tree: &TreeRef) -> Result<bool, String> {
        let branch = tree.branch.clone();
        let Some(name) = tree.snapshot.clone() else {
            done(self.engine, BranchOp::Switch { branch: self.first.clone() })?;
            let op = BranchOp::RemoveBranch { branch: branch.clone() };
            return match self.engine.branch(&op) {
                Outcome::Ok(_) => {
                    self.left.0.retain(|tree, _| tree.branch != branch);
                    Ok(true)
                }
                // Others grew out of it, or a snapshot is held.
                Outcome::Err(Errno::EBUSY) => Ok(false),
                other => Err(format!("{op} answers {other}")),
            };
        };
        done(self.engine, BranchOp::Switch { branch })?;
        let op = BranchOp::RemoveSnapshot { name: name.clone() };
        // It may be held, under one of the tags of scripts or both.
        for tag in [None, TreeName::new(b"backup")] {
            let unhold = BranchOp::Unhold { name: name.clone(), tag };
            match self.engine.branch(&unhold) {
                Outcome::Ok(_) | Outcome::Err(Errno::ENOENT) => {}
                other => return Err(format!("{unhold} answers {other}")),
            }
        }
        done(self.engine, op)?;
        self.left.0.remove(tree);
        Ok(true)
    }

    /// Now and then the program is killed, or removals end, or everything is looked at.
    fn look_again(&mut self) -> Result<(), String> {
        match self.prng.below(8) {
            0 | 1 => expect(self.engine, &Op::Crash)?,
            2 | 3 => {
                self.engine.finish_removals().map_err(|error| format!("removals: {error}"))?;
            }
            4 => {}
            _ => return Ok(()),
        }
        same(&self.left, &self.engine.walk_all()?)
    }
}
