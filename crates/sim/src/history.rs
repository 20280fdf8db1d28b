//! What may be found after a crash: the states of one run, and which of them the promises allow.
//!
//! The plain model is kept after every operation. A found tree is allowed if
//! some state `k` explains it:
//! - P3: namespace and attributes are those of state `k`, not before the last
//!   fsync (of anything) that returned, nor after the operation that was under way.
//! - P1, P5: what a *write* did to a file may be missing from some write on,
//!   but not if an fsync of the file returned after that write. What is missing
//!   is a suffix: data never comes back in another order. Truncations, holes
//!   and everything else belong to the namespace's history and are there.
//! - P4: if `k` has a rename in which a file replaced another, its earlier
//!   writes are there.
//!
//! A lost write may also take the size with it that a later truncation *cut*
//! the file down to: to the disk that cut never was one.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};

use holdfast_script::{
    Answer, Digest, Errno, Fallocate, Handle, Kind, Model, Mtime, Node, Op, Outcome, Path, Place,
    RenameHow, Rules, Stat, Target, Tree,
};

/// What an operation makes durable when it has returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Barrier {
    /// Nothing.
    None,
    /// All that was done.
    Everything,
    /// History, and the data of this inode.
    File(u64),
    /// History.
    History,
}

/// One operation and what the judge must know of it.
#[derive(Clone, Debug)]
struct Step {
    op: Op,
    /// Whether it took effect; one that ran out of space did not.
    applied: bool,
    /// The inode whose bytes it wrote.
    writes: Option<u64>,
    /// The inode that replaced another by it.
    replaces: Option<u64>,
    barrier: Barrier,
}

/// What a state looks like from outside.
#[derive(Debug)]
struct View {
    tree: Tree,
    inodes: BTreeMap<Path, u64>,
}

/// A run as it should have been, operation by operation.
#[derive(Debug)]
pub struct History {
    steps: Vec<Step>,
    /// One more than steps: before the first, and after each.
    states: Vec<Model>,
    views: Vec<OnceCell<View>>,
    /// Handles whose writes are durable when they return.
    synchronous: HashMap<Handle, bool>,
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
            states: vec![Model::new()],
            views: vec![OnceCell::new()],
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
        let (writes, replaces) = (self.written(op), self.replacing(op));
        let expected = model.apply(op);
        let no_space = *answer == Outcome::Err(Errno::ENOSPC);
        if !no_space && !expected.agrees(answer, op, Rules::EXACT) {
            return Err(format!("{op} answered {answer} instead of {expected}"));
        }
        let applied = matches!(answer, Outcome::Ok(_));
        let barrier = if applied { self.barrier(op, writes) } else { Barrier::None };
        if applied && let Op::Open { handle, how, .. } = op {
            self.synchronous.insert(handle.clone(), how.sync || how.dsync);
        }
        self.steps.push(Step {
            op: op.clone(),
            applied,
            writes: writes.filter(|_| applied),
            replaces: replaces.filter(|_| applied),
            barrier,
        });
        let next = if no_space { self.last().clone() } else { model };
        self.states.push(next);
        self.views.push(OnceCell::new());
        Ok(())
    }

    fn last(&self) -> &Model {
        &self.states[self.states.len() - 1]
    }

    /// The file whose bytes `op` writes.
    fn written(&self, op: &Op) -> Option<u64> {
        let place = match op {
            Op::Write { place, .. } => place.clone(),
            Op::Append { path, .. } => Place::Path(path.clone()),
            _ => return None,
        };
        Some(stat(&mut self.last().clone(), &place)?.inode)
    }

    /// The file that replaces another by `op`.
    fn replacing(&self, op: &Op) -> Option<u64> {
        let Op::Rename { from, to, how: RenameHow::Replace } = op else {
            return None;
        };
        let mut model = self.last().clone();
        let moved = stat(&mut model, &Place::Path(from.clone()))?;
        let replaced = stat(&mut model, &Place::Path(to.clone()))?;
        (moved.kind == Kind::File && moved.inode != replaced.inode).then_some(moved.inode)
    }

    fn barrier(&self, op: &Op, writes: Option<u64>) -> Barrier {
        match op {
            Op::Sync | Op::Remount => Barrier::Everything,
            Op::Fsyncdir { .. } => Barrier::History,
            Op::Fsync { place } | Op::Fdatasync { place } => {
                match stat(&mut self.last().clone(), place) {
                    Some(found) if found.kind == Kind::File => Barrier::File(found.inode),
                    _ => Barrier::History,
                }
            }
            Op::Write { place: Place::Handle(handle), .. } => match writes {
                Some(inode) if self.synchronous.get(handle) == Some(&true) => Barrier::File(inode),
                _ => Barrier::None,
            },
            _ => Barrier::None,
        }
    }

    fn view(&self, k: usize) -> &View {
        self.views[k].get_or_init(|| {
            let mut model = self.states[k].clone();
            let tree = model.walk().expect("the model refuses nothing that it has listed");
            let number = |path: &Path| {
                let found = stat(&mut model, &Place::Path(path.clone()));
                (path.clone(), found.expect("the path was just walked").inode)
            };
            let inodes = tree.0.keys().map(number).collect();
            View { tree, inodes }
        })
    }

    /// Whether an operation that has returned holds history or a file at a barrier: then a crash
    /// after its return is worth a look of its own.
    pub fn is_barrier(&self, op: usize) -> bool {
        self.steps[op].barrier != Barrier::None
    }

    /// Judges a tree that was found after a crash when `acked` operations had returned and
    /// `started` had begun. Gives the state that explains it, or says what is wrong.
    pub fn judge(&self, found: &Tree, acked: usize, started: usize) -> Result<usize, String> {
        let barrier = |op: &usize| self.steps[*op].barrier != Barrier::None;
        let low = (0..acked).rev().find(barrier).map_or(0, |op| op + 1);
        let mut nearest: Option<(usize, Vec<String>)> = None;
        for k in (low..=started).rev() {
            let wrong = self.differences(found, k, acked);
            if wrong.is_empty() {
                return Ok(k);
            }
            if nearest.as_ref().is_none_or(|(_, least)| wrong.len() < least.len()) {
                nearest = Some((k, wrong));
            }
        }
        let (k, wrong) = nearest.expect("acked is never more than started");
        let older = (0..low).rev().find(|&k| self.differences(found, k, acked).is_empty());
        let hint = older.map_or(String::new(), |k| format!(" (it is state {k}, lost since)"));
        Err(format!(
            "no state from {low} to {started} explains it{hint}; nearest is {k}:\n{}",
            wrong.join("\n")
        ))
    }

    /// What keeps state `k` from explaining `found`.
    fn differences(&self, found: &Tree, k: usize, acked: usize) -> Vec<String> {
        let view = self.view(k);
        let mut wrong = Vec::new();
        for (path, node) in &view.tree.0 {
            match found.0.get(path) {
                None => wrong.push(format!("- {path} {node}")),
                Some(seen) if node.agrees(seen) => {}
                Some(seen) if self.explains(view.inodes[path], path, node, seen, k, acked) => {}
                Some(seen) => wrong.push(format!("- {path} {node}\n+ {path} {seen}")),
            }
        }
        for (path, seen) in &found.0 {
            if !view.tree.0.contains_key(path) {
                wrong.push(format!("+ {path} {seen}"));
            }
        }
        wrong
    }

    /// Whether `seen` is what `node` becomes when late writes to it are lost.
    fn explains(
        &self,
        inode: u64,
        path: &Path,
        node: &Node,
        seen: &Node,
        k: usize,
        acked: usize,
    ) -> bool {
        let timeless = |node: &Node| {
            let mut node = node.clone();
            (node.stat.size, node.digest, node.stat.mtime) = (0, None, Mtime::Unsure);
            node
        };
        if node.stat.kind != Kind::File || !timeless(node).agrees(&timeless(seen)) {
            return false;
        }
        let floor = self.floor(inode, k, acked);
        if !self.mtimes(inode, floor, k).any(|mtime| mtime.agrees(seen.stat.mtime)) {
            return false;
        }
        let content = (seen.stat.size, seen.digest);
        if content == (node.stat.size, node.digest) {
            return true;
        }
        let writes = (floor..k).rev().filter(|&op| self.steps[op].writes == Some(inode));
        writes.into_iter().any(|first| {
            [false, true].into_iter().any(|cuts| {
                let (size, digest) = self.without(inode, path, first, k, cuts);
                content == (size, Some(digest))
            })
        })
    }

    /// Writes to `inode` before this operation are durable.
    fn floor(&self, inode: u64, k: usize, acked: usize) -> usize {
        let durable = |op: usize| {
            let step = &self.steps[op];
            let returned = op < acked
                && (step.barrier == Barrier::Everything || step.barrier == Barrier::File(inode));
            returned || (op < k && step.replaces == Some(inode))
        };
        (0..k.max(acked)).rev().find(|&op| durable(op)).map_or(0, |op| op + 1)
    }

    /// Every mtime that the file had from state `floor` to state `k`.
    fn mtimes(&self, inode: u64, floor: usize, k: usize) -> impl Iterator<Item = Mtime> {
        (floor.min(k)..=k).filter_map(move |state| {
            let view = self.view(state);
            let (path, _) = view.inodes.iter().find(|&(_, &number)| number == inode)?;
            Some(view.tree.0[path].stat.mtime)
        })
    }

    /// Size and content of the file in state `k` if its writes from operation `first` on are lost.
    /// With `cuts`, what cut the file (or kept its size) when the writes were there does not grow
    /// it now that they are not.
    fn without(
        &self,
        inode: u64,
        path: &Path,
        first: usize,
        k: usize,
        cuts: bool,
    ) -> (u64, Digest) {
        let mut model = self.states[first].clone();
        for op in first..k {
            let step = &self.steps[op];
            if !step.applied || step.writes == Some(inode) {
                continue;
            }
            let before = model.clone();
            model.apply(&step.op);
            if cuts && self.only_cuts(op, inode) && grew(&step.op, &before, &model) {
                model = before;
                match &step.op {
                    Op::Fallocate { place, how: Fallocate::Zero, offset, len } => {
                        let how = Fallocate::ZeroKeep;
                        let (place, offset, len) = (place.clone(), *offset, *len);
                        model.apply(&Op::Fallocate { place, how, offset, len });
                    }
                    _ => {}
                }
            }
        }
        match model.apply(&Op::Sum { place: Place::Path(path.clone()) }) {
            Outcome::Ok(Answer::Sum(size, digest)) => (size, digest),
            other => unreachable!("{path} is a file in state {k}, yet its sum is {other}"),
        }
    }

    /// Whether `op` changes the size of `inode` and did not grow it in the run as it was.
    fn only_cuts(&self, op: usize, inode: u64) -> bool {
        let place = match &self.steps[op].op {
            Op::Truncate { place, .. } | Op::Fallocate { place, .. } => place,
            _ => return false,
        };
        let size = |state: usize| stat(&mut self.states[state].clone(), place);
        match (size(op), size(op + 1)) {
            (Some(before), Some(after)) => before.inode == inode && after.size <= before.size,
            _ => false,
        }
    }
}

fn stat(model: &mut Model, place: &Place) -> Option<Stat> {
    match model.apply(&Op::Stat { place: place.clone() }) {
        Outcome::Ok(Answer::Stat(stat)) => Some(stat),
        _ => None,
    }
}

/// Whether `op` made its file larger.
fn grew(op: &Op, before: &Model, after: &Model) -> bool {
    let (Op::Truncate { place, .. } | Op::Fallocate { place, .. }) = op else {
        return false;
    };
    let size = |model: &Model| stat(&mut model.clone(), place).map(|stat| stat.size);
    size(after) > size(before)
}

#[cfg(test)]
mod tests;
