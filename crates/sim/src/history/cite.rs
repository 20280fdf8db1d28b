//! Which promise a found tree breaks, when no state that is allowed explains it.
//!
//! A whole state that is too old breaks the promise of the call that had
//! returned since. A tree that never existed is described by its nearest state: if only
//! the bytes of files differ, they were lost or never written; anything else is
//! a mixture of moments. With several branches: a snapshot that changed, what was done in
//! another branch, or branches that are each whole, of different moments.

use holdfast_script::{FileKind, Node, Op, Tree, TreeRef, Trees};

use super::{Barrier, File, History};

impl History {
    /// What was promised after state `k`, among `acked` operations.
    pub(super) fn lost_since(&self, k: usize, acked: usize) -> &'static str {
        let lost = self.steps[..acked].iter().rev();
        let lost = lost.filter(|step| step.barrier != Barrier::None);
        match lost.into_iter().find(|step| step.since > k) {
            Some(step) if matches!(step.op, Op::Branch(_)) => "P12",
            Some(step) if matches!(step.barrier, Barrier::File(_)) => "P1",
            Some(step) if matches!(step.op, Op::Fsyncdir { .. } | Op::Fsync { .. }) => "P2",
            _ => "P3",
        }
    }

    /// What is broken by trees that are no state at all; `k` is the nearest.
    pub(super) fn mixture(&self, found: &Trees, k: usize, acked: usize) -> &'static str {
        let volume = &self.states[k].volume;
        let wrong: Vec<(TreeRef, u64, &Tree)> = volume
            .trees()
            .filter_map(|(name, number, _)| Some((found.0.get(&name)?, name, number)))
            .filter(|(tree, _, number)| !self.differences_of(*number, tree, k, acked).is_empty())
            .map(|(tree, name, number)| (name, number, tree))
            .collect();
        let Some((_, number, tree)) = wrong.first() else { return "P3" };
        if wrong.iter().any(|(name, ..)| name.snapshot.is_some()) {
            return "P13";
        }
        if wrong.iter().any(|(_, number, tree)| self.is_foreign(*number, tree, k)) {
            return "P14";
        }
        self.mixture_of(*number, tree, k, acked)
    }

    /// Whether `found` has something that its branch never had, and another tree has in state `k`.
    fn is_foreign(&self, number: u64, found: &Tree, k: usize) -> bool {
        let has = |number: u64, state: usize, path, seen: &Node| {
            let view = self.states[state].view(number);
            view.is_some_and(|view| view.tree.0.get(path).is_some_and(|node| node.agrees(seen)))
        };
        let others: Vec<u64> = self.states[k].volume.trees().map(|(_, other, _)| other).collect();
        found.0.iter().any(|(path, seen)| {
            let is_own = (0..self.states.len()).any(|state| has(number, state, path, seen));
            !is_own && others.iter().any(|&other| has(other, k, path, seen))
        })
    }

    /// As [`History::mixture`], of one tree.
    fn mixture_of(&self, number: u64, found: &Tree, k: usize, acked: usize) -> &'static str {
        let view = self.states[k].view(number).expect("the state has this tree");
        let same_names = found.0.keys().eq(view.tree.0.keys());
        let mut files = found
            .0
            .iter()
            .filter(|(path, seen)| view.tree.0.get(*path).is_some_and(|node| !node.agrees(seen)));
        let Some((path, seen)) = files.next().filter(|_| same_names) else {
            return "P3";
        };
        let node = &view.tree.0[path];
        if node.stat.kind != FileKind::File || !only_bytes_differ(node, seen) {
            return "P3";
        }
        let file = File { tree: number, inode: view.inodes[path] };
        let bytes = |state: usize| {
            let view = self.states[state].view(number)?;
            let mut names = view.inodes.iter().filter(|&(_, &inode)| inode == file.inode);
            names.next().map(|(path, _)| (view.tree.0[path].stat.size, view.tree.0[path].digest))
        };
        if !(0..=k).any(|state| bytes(state) == Some((seen.stat.size, seen.digest))) {
            return "P5";
        }
        // It had these bytes once: what came after them had to stay, for an fsync or for a rename.
        let synced = self.steps[..acked].iter().any(|step| step.barrier == Barrier::File(file));
        let replaced = self.steps[..k].iter().any(|step| step.replaces == Some(file));
        match replaced && !synced {
            true => "P4",
            false => "P1",
        }
    }
}

/// Whether two nodes are one file with other content.
fn only_bytes_differ(node: &Node, seen: &Node) -> bool {
    let (mut node, mut seen) = (node.clone(), seen.clone());
    for node in [&mut node, &mut seen] {
        (node.stat.size, node.digest) = (0, None);
        node.stat.mtime = holdfast_script::Mtime::Unsure;
    }
    node.agrees(&seen)
}
