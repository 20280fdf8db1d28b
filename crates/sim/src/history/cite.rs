//! Which promise a found tree breaks, when no state that is allowed explains it.
//!
//! A whole state that is too old breaks the promise of the call that had
//! returned since. A tree that never existed is described by its nearest state: if only
//! the bytes of files differ, they were lost or never written; anything else is
//! a mixture of moments.

use holdfast_script::{Kind, Node, Op, Tree};

use super::{Barrier, History};

impl History {
    /// What was promised after state `k`, among `acked` operations.
    pub(super) fn lost_since(&self, k: usize, acked: usize) -> &'static str {
        let lost = self.steps[..acked].iter().rev();
        let lost = lost.filter(|step| step.barrier != Barrier::None);
        match lost.into_iter().find(|step| step.since > k) {
            Some(step) if matches!(step.barrier, Barrier::File(_)) => "P1",
            Some(step) if matches!(step.op, Op::Fsyncdir { .. } | Op::Fsync { .. }) => "P2",
            _ => "P3",
        }
    }

    /// What a tree breaks that is no state at all; `k` is the nearest.
    pub(super) fn mixture(&self, found: &Tree, k: usize, acked: usize) -> &'static str {
        let view = self.view(k);
        let same_names = found.0.keys().eq(view.tree.0.keys());
        let mut files = found
            .0
            .iter()
            .filter(|(path, seen)| view.tree.0.get(*path).is_some_and(|node| !node.agrees(seen)));
        let Some((path, seen)) = files.next().filter(|_| same_names) else {
            return "P3";
        };
        let node = &view.tree.0[path];
        if node.stat.kind != Kind::File || !only_bytes_differ(node, seen) {
            return "P3";
        }
        let inode = view.inodes[path];
        let bytes = |state: usize| {
            let view = self.view(state);
            let mut names = view.inodes.iter().filter(|&(_, &number)| number == inode);
            names.next().map(|(path, _)| (view.tree.0[path].stat.size, view.tree.0[path].digest))
        };
        if !(0..=k).any(|state| bytes(state) == Some((seen.stat.size, seen.digest))) {
            return "P5";
        }
        // It had these bytes once: what came after them had to stay, for an fsync or for a rename.
        let synced = self.steps[..acked].iter().any(|step| step.barrier == Barrier::File(inode));
        let replaced = self.steps[..k].iter().any(|step| step.replaces == Some(inode));
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
