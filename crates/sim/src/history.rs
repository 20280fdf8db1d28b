//! What may be found after a crash: the states of one run, and which of them the promises allow.
//!
//! The plain model is kept after every operation. What is found is allowed if
//! one state `k` explains all of it, in every branch (S7):
//! - P3: namespace and attributes are those of state `k`, not before the last
//!   fsync (of anything) that returned, nor after the operation that was under way. An fsync that
//!   found nothing to do counts from the state in which its file got the looks that it has.
//! - P1, P5: what a *write* did to a file may be missing from some write on,
//!   but not if an fsync of the file returned after that write. What is missing
//!   is a suffix: data never comes back in another order. Truncations, holes
//!   and everything else belong to the namespace's history and are there.
//! - P4: if `k` has a rename in which a file replaced another, its earlier
//!   writes are there.
//! - P12: what was done to branches and snapshots belongs to the namespace's history, and is durable when it has returned.
//! - P13: a snapshot is the branch at that moment, with all that had been written; so those writes are in the branch for good.
//! - P14: each branch is explained by its own operations.
//!
//! A write longer than a MiB may have come up to some byte, and one that found not room for all up to some block: they are
//! not one step.
//!
//! A lost write may also take the size with it that a later truncation *cut*
//! the file down to: to the disk that cut never was one.

mod cite;
mod judge;
mod state;

use std::collections::HashMap;

use holdfast_script::{
    Answer, BranchOp, Errno, FileKind, FileRef, Handle, Node, Op, Outcome, Path, RenameHow, Rules,
    Stat, Target, VolumeModel,
};

use state::Moment;

/// A file: the number of its tree, and its inode there. What a snapshot or fork holds is another file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct File {
    tree: u64,
    inode: u64,
}

/// What an operation makes durable when it has returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Barrier {
    /// Nothing.
    None,
    /// All that was done.
    Everything,
    /// History, and the data of all files of this tree.
    Tree(u64),
    /// History, and the data of this file.
    File(File),
    /// History.
    History,
}

/// One operation and what the judge must know of it.
#[derive(Clone, Debug)]
struct Step {
    op: Op,
    /// Whether it took effect; one that ran out of space did not.
    applied: bool,
    /// The file whose bytes it wrote.
    writes: Option<File>,
    /// The file that replaced another by it.
    replaces: Option<File>,
    /// The tree whose data it wrote, because a snapshot holds it from then on.
    seals: Option<u64>,
    barrier: Barrier,
    /// The first state that may be found once its barrier has returned.
    since: usize,
    /// A write that was accepted in several steps, because there was not room for all of it.
    in_steps: bool,
}

/// One name of an inode: what is seen under it, and the entries of a directory.
type Look<'a> = (&'a Path, &'a Node, Vec<(&'a Path, u64)>);

/// A run as it should have been, operation by operation.
#[derive(Clone, Debug)]
pub struct History {
    steps: Vec<Step>,
    /// One more than steps: before the first, and after each.
    states: Vec<Moment>,
    /// Handles whose writes are durable when they return, by the number of their tree.
    synchronous: HashMap<(u64, Handle), bool>,
}

impl Default for History {
    fn default() -> History {
        History::new()
    }
}

impl History {
    /// The empty volume.
    pub fn new() -> History {
        History {
            steps: Vec::new(),
            states: vec![Moment::first(VolumeModel::new())],
            synchronous: HashMap::new(),
        }
    }

    /// How many operations have been added.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether nothing has happened yet.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Adds an operation with the answer of the engine, which must be the model's, except that
    /// the model never runs out of space.
    pub fn push(&mut self, op: &Op, answer: &Outcome) -> Result<(), String> {
        let mut model = self.last().clone();
        let tree = model.number();
        let (writes, replaces) = (self.written(op), self.replacing(op));
        let expected = model.apply(op);
        let no_space = *answer == Outcome::Err(Errno::ENOSPC);
        if no_space && makes_room(op) {
            return Err(format!("P8: {op} found no space"));
        }
        if !no_space && !expected.agrees(answer, op, Rules::LENIENT) {
            return Err(format!("{op} answered {answer} instead of {expected}"));
        }
        let applied = matches!(answer, Outcome::Ok(_));
        let barrier = if applied { self.barrier(op, writes) } else { Barrier::None };
        if applied && let Op::Open { handle, how, .. } = op {
            self.synchronous.insert((tree, handle.clone()), how.sync || how.dsync);
        }
        // The name of an older handle may come again.
        if applied && let Op::Tmpfile { handle, .. } = op {
            self.synchronous.insert((tree, handle.clone()), false);
        }
        self.steps.push(Step {
            op: op.clone(),
            applied,
            writes: writes.filter(|_| applied),
            replaces: replaces.filter(|_| applied),
            seals: if applied { sealing(op).then_some(tree) } else { None },
            barrier,
            since: self.steps.len() + 1,
            in_steps: false,
        });
        let next = if no_space { self.last().clone() } else { model };
        self.add(next);
        Ok(())
    }

    /// Adds an operation that failed because the device did: it may have taken effect or not, and
    /// promises nothing. Judge with this operation as begun and not returned.
    pub fn push_failed(&mut self, op: &Op) {
        let mut model = self.last().clone();
        let (writes, replaces) = (self.written(op), self.replacing(op));
        model.apply(op);
        self.steps.push(Step {
            op: op.clone(),
            applied: true,
            writes,
            replaces,
            seals: sealing(op).then_some(self.last().number()),
            barrier: Barrier::None,
            since: self.steps.len() + 1,
            in_steps: false,
        });
        self.add(model);
    }

    fn add(&mut self, model: VolumeModel) {
        let next = self.states[self.states.len() - 1].next(model);
        self.states.push(next);
    }

    /// Says that the last operation was an fsync that found nothing to do, and asked the device for
    /// nothing. It says only that its file is durable as it is, names and ancestors included (P1, P2);
    /// operations on other files may still be lost.
    pub fn found_nothing_undurable(&mut self) {
        let op = self.steps.len() - 1;
        let place = match &self.steps[op].op {
            Op::Fsync { place } | Op::Fdatasync { place } => place.clone(),
            Op::Fsyncdir { path } => FileRef::Path(path.clone()),
            _ => return,
        };
        let Some(found) = self.file(&place) else { return };
        let now = self.looks(found, op);
        let differs = |&state: &usize| self.looks(found, state) != now;
        self.steps[op].since = (0..op).rev().find(differs).map_or(0, |state| state + 1);
    }

    /// Says that the last operation, a write, found not room for all that it was given, and was accepted in steps.
    pub fn was_accepted_in_steps(&mut self) {
        self.steps.last_mut().expect("a write was added").in_steps = true;
    }

    /// Every name of a file in a state, what is seen under it, and the entries of a directory.
    fn looks(&self, file: File, state: usize) -> Vec<Look<'_>> {
        let Some(view) = self.states[state].view(file.tree) else { return Vec::new() };
        let names = view.inodes.iter().filter(|&(_, &number)| number == file.inode);
        let seen = names.map(|(path, _)| {
            let entries = view
                .inodes
                .iter()
                .filter(|(entry, _)| entry.split().is_some_and(|(parent, _)| parent == *path));
            (path, &view.tree.0[path], entries.map(|(path, &inode)| (path, inode)).collect())
        });
        seen.collect()
    }

    fn last(&self) -> &VolumeModel {
        &self.states[self.states.len() - 1].volume
    }

    /// What a place means now.
    fn file(&self, place: &FileRef) -> Option<File> {
        let inode = stat(&mut self.last().clone(), place)?.inode;
        Some(File { tree: self.last().number(), inode })
    }

    /// The file whose bytes `op` writes.
    fn written(&self, op: &Op) -> Option<File> {
        let place = match op {
            Op::Write { place, .. } => place.clone(),
            Op::Append { path, .. } => FileRef::Path(path.clone()),
            _ => return None,
        };
        self.file(&place)
    }

    /// The file that replaces another by `op`.
    fn replacing(&self, op: &Op) -> Option<File> {
        let Op::Rename { from, to, how: RenameHow::Replace } = op else {
            return None;
        };
        let mut model = self.last().clone();
        let moved = stat(&mut model, &FileRef::Path(from.clone()))?;
        let replaced = stat(&mut model, &FileRef::Path(to.clone()))?;
        let file = File { tree: model.number(), inode: moved.inode };
        (moved.kind == FileKind::File && moved.inode != replaced.inode).then_some(file)
    }

    fn barrier(&self, op: &Op, writes: Option<File>) -> Barrier {
        let tree = self.last().number();
        match op {
            Op::Sync | Op::Remount | Op::Shrink { .. } => Barrier::Everything,
            Op::Fsyncdir { .. } => Barrier::History,
            Op::Fsync { place } | Op::Fdatasync { place } => {
                match stat(&mut self.last().clone(), place) {
                    Some(found) if found.kind == FileKind::File => {
                        Barrier::File(File { tree, inode: found.inode })
                    }
                    _ => Barrier::History,
                }
            }
            // Nothing written, nothing promised, as in Linux.
            Op::Write { place: FileRef::Handle(handle), data, .. } => match writes {
                Some(file) if !data.is_empty() => {
                    match self.synchronous.get(&(tree, handle.clone())) {
                        Some(true) => Barrier::File(file),
                        _ => Barrier::None,
                    }
                }
                _ => Barrier::None,
            },
            Op::Branch(op) => match op {
                BranchOp::Snapshot { .. } | BranchOp::Fork { from: None, .. } => {
                    Barrier::Tree(tree)
                }
                op if op.only_looks() => Barrier::None,
                _ => Barrier::History,
            },
            _ => Barrier::None,
        }
    }

    /// Whether an operation that has returned holds history or a file at a barrier: then a crash
    /// after its return is worth a look of its own.
    pub fn is_barrier(&self, op: usize) -> bool {
        self.steps[op].barrier != Barrier::None
    }
}

/// Whether `op` gives back what branches and snapshots hold, so that a full volume must not refuse it. An unlink gives nothing
/// back where a snapshot has the file too.
fn makes_room(op: &Op) -> bool {
    matches!(op, Op::Branch(BranchOp::RemoveSnapshot { .. } | BranchOp::RemoveBranch { .. }))
}

/// Whether `op` leaves a snapshot of the branch as it is, with all that was written.
fn sealing(op: &Op) -> bool {
    matches!(
        op,
        Op::Branch(
            BranchOp::Snapshot { .. }
                | BranchOp::Fork { from: None, .. }
                | BranchOp::Rollback { keep: Some(_), .. }
                | BranchOp::Promote { keep: Some(_), .. }
        )
    )
}

fn stat(model: &mut impl Target, place: &FileRef) -> Option<Stat> {
    match model.apply(&Op::Stat { place: place.clone() }) {
        Outcome::Ok(Answer::Stat(stat)) => Some(stat),
        _ => None,
    }
}

#[cfg(test)]
mod branch_tests;
#[cfg(test)]
mod tests;
