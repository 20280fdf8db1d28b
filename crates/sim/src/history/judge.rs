//! Holds what was found after a crash against the states of a run.
//!
//! First every state as it was; then, file by file, what losing late writes
//! makes of it. The rules stand at the head of [`super`].

use holdfast_base::units::BLOCK_BYTES;
use holdfast_script::{
    Answer, Data, Digest, Fallocate, FileKind, FileRef, Model, Mtime, Node, Op, Outcome, Path,
    Target, Tree, TreeRef, Trees, VolumeModel, trees,
};

use super::{Barrier, File, History, stat};

/// Longer writes may be found in part.
const LONG_WRITE: u64 = 1 << 20;

/// Writes to a file that never reached the device.
#[derive(Clone, Copy)]
struct Loss<'a> {
    file: File,
    /// All of its writes from this operation on are lost.
    first: usize,
    /// What cut the file (or kept its size) when the writes were there does not grow it now.
    cuts: bool,
    /// But this much of the first one came.
    part: Option<&'a Op>,
}

impl History {
    /// Judges what was found after a crash when `acked` operations had returned and
    /// `started` had begun. Gives the state that explains it, or says what is wrong.
    pub fn judge(&self, found: &Trees, acked: usize, started: usize) -> Result<usize, String> {
        let barriers = self.steps[..acked].iter().filter(|step| step.barrier != Barrier::None);
        let low = barriers.map(|step| step.since).max().unwrap_or(0);
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
        let promise = match older {
            Some(older) => self.lost_since(older, acked),
            None => self.mixture(found, k, acked),
        };
        Err(format!(
            "{promise}: no state from {low} to {started} explains it{hint}; nearest is {k}:\n{}",
            wrong.join("\n")
        ))
    }

    /// What keeps state `k` from explaining `found`.
    fn differences(&self, found: &Trees, k: usize, acked: usize) -> Vec<String> {
        let volume = &self.states[k].volume;
        let mut wrong = Vec::new();
        for (name, number, _) in volume.trees() {
            match found.0.get(&name) {
                Some(tree) => {
                    let lines = self.differences_of(number, tree, k, acked);
                    wrong.extend(trees::of_tree(&name, lines));
                }
                None => wrong.push(format!("- {name}")),
            }
        }
        let known = |name: &TreeRef| volume.trees().any(|(known, ..)| known == *name);
        wrong.extend(found.0.keys().filter(|name| !known(name)).map(|name| format!("+ {name}")));
        wrong
    }

    /// What keeps the tree with this number, as it is in state `k`, from explaining `found`.
    pub(super) fn differences_of(
        &self,
        number: u64,
        found: &Tree,
        k: usize,
        acked: usize,
    ) -> Vec<String> {
        let view = self.states[k].view(number).expect("the state has this tree");
        let mut wrong = Vec::new();
        let file = |path| File { tree: number, inode: view.inodes[path] };
        for (path, node) in &view.tree.0 {
            match found.0.get(path) {
                None => wrong.push(format!("- {path} {node}")),
                Some(seen) if node.agrees(seen) => {}
                Some(seen) if self.explains(file(path), path, node, seen, k, acked) => {}
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
        file: File,
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
        if node.stat.kind != FileKind::File || !timeless(node).agrees(&timeless(seen)) {
            return false;
        }
        let floor = self.floor(file, k, acked);
        if !self.mtimes(file, floor, k).any(|mtime| mtime.agrees(seen.stat.mtime)) {
            return false;
        }
        let content = (seen.stat.size, seen.digest);
        if content == (node.stat.size, node.digest) {
            return true;
        }
        let writes = (floor..k).rev().filter(|&op| self.steps[op].writes == Some(file));
        writes.into_iter().any(|first| {
            let parts = self.parts(first, seen.stat.size);
            let mut parts = std::iter::once(None).chain(parts.iter().map(Some));
            parts.any(|part| {
                [false, true].into_iter().any(|cuts| {
                    let loss = Loss { file, first, cuts, part };
                    let (size, digest) = self.without(&loss, path, k);
                    content == (size, Some(digest))
                })
            })
        })
    }

    /// Writes to `file` before this operation are durable.
    fn floor(&self, file: File, k: usize, acked: usize) -> usize {
        let durable = |op: usize| {
            let step = &self.steps[op];
            let holds = match step.barrier {
                Barrier::Everything => true,
                Barrier::Tree(tree) => tree == file.tree,
                Barrier::File(held) => held == file,
                Barrier::None | Barrier::History => false,
            };
            let brings = step.replaces == Some(file) || step.seals == Some(file.tree);
            (op < acked && holds) || (op < k && brings)
        };
        (0..k.max(acked)).rev().find(|&op| durable(op)).map_or(0, |op| op + 1)
    }

    /// Every mtime that the file had from state `floor` to state `k`.
    fn mtimes(&self, file: File, floor: usize, k: usize) -> impl Iterator<Item = Mtime> {
        (floor.min(k)..=k).filter_map(move |state| {
            let view = self.states[state].view(file.tree)?;
            let (path, _) = view.inodes.iter().find(|&(_, &number)| number == file.inode)?;
            Some(view.tree.0[path].stat.mtime)
        })
    }

    /// What may have come of a write of several steps: of a long one so much that the file has `size` bytes, of one that
    /// found not room for all any number of blocks.
    fn parts(&self, op: usize, size: u64) -> Vec<Op> {
        let step = &self.steps[op];
        let (place, data) = match &step.op {
            Op::Write { place, data, .. } => (place.clone(), data),
            Op::Append { path, data } => (FileRef::Path(path.clone()), data),
            _ => return Vec::new(),
        };
        let offset = match &step.op {
            Op::Write { offset, .. } => *offset,
            _ => stat(&mut self.states[op].volume.clone(), &place).map_or(0, |found| found.size),
        };
        let mut ends = Vec::new();
        if data.len() > LONG_WRITE {
            ends.push(size);
        } else if step.in_steps {
            let end = offset + data.len();
            ends.extend((offset + 1..end).filter(|at| at.is_multiple_of(BLOCK_BYTES)));
        }
        let parts = ends.into_iter().filter_map(|end| end.checked_sub(offset));
        let parts = parts.filter(|&part| part > 0 && part < data.len());
        let begin = |part: u64| {
            let data = Data::Literal(data.bytes()[..part as usize].to_vec());
            Op::Write { place: place.clone(), offset, data }
        };
        parts.map(begin).collect()
    }

    /// Size and content of the file in state `k` after a loss.
    fn without(&self, loss: &Loss<'_>, path: &Path, k: usize) -> (u64, Digest) {
        let &Loss { file, first, cuts, part } = loss;
        let mut model = self.states[first].volume.clone();
        if let Some(part) = part {
            model.apply(part);
        }
        for op in first..k {
            let step = &self.steps[op];
            if !step.applied || step.writes == Some(file) {
                continue;
            }
            let before = model.clone();
            model.apply(&step.op);
            if cuts && self.only_cuts(op, file) && grew(&step.op, &before, &model) {
                model = before;
                if let Op::Fallocate { place, how: Fallocate::Zero, offset, len } = &step.op {
                    let how = Fallocate::ZeroKeep;
                    let (place, offset, len) = (place.clone(), *offset, *len);
                    model.apply(&Op::Fallocate { place, how, offset, len });
                }
            }
        }
        let tree = model.numbered(file.tree).expect("its state has this tree");
        match Model::clone(tree).apply(&Op::Sum { place: FileRef::Path(path.clone()) }) {
            Outcome::Ok(Answer::Sum(size, digest)) => (size, digest),
            other => unreachable!("{path} is a file in state {k}, yet its sum is {other}"),
        }
    }

    /// Whether `op` changes the size of `file` and did not grow it in the run as it was.
    fn only_cuts(&self, op: usize, file: File) -> bool {
        let place = match &self.steps[op].op {
            Op::Truncate { place, .. } | Op::Fallocate { place, .. } => place,
            _ => return false,
        };
        if self.states[op].volume.number() != file.tree {
            return false;
        }
        let size = |state: usize| stat(&mut self.states[state].volume.clone(), place);
        match (size(op), size(op + 1)) {
            (Some(before), Some(after)) => before.inode == file.inode && after.size <= before.size,
            _ => false,
        }
    }
}

/// Whether `op` made its file larger.
fn grew(op: &Op, before: &VolumeModel, after: &VolumeModel) -> bool {
    let (Op::Truncate { place, .. } | Op::Fallocate { place, .. }) = op else {
        return false;
    };
    let size = |model: &VolumeModel| stat(&mut model.clone(), place).map(|stat| stat.size);
    size(after) > size(before)
}
