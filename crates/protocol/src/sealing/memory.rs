//! What changes in memory: files, the lineage, and the walk of a deletion. And what the log is told of it.

use super::log::Record;
use super::volume::{
    BRANCHES, Blocks, Branch, Child, Epoch, KEYS, NODE, Pointer, SNAPSHOTS, Snapshot, Volume,
};
use super::{Action, Mutant};

/// The present, of which a power cut leaves nothing.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Memory {
    pub(super) volume: Volume,
    /// Of each branch: no commit that a recovery may begin with has a later parent.
    pub(super) judged_from: [Epoch; BRANCHES],
    /// Branches whose parent went since the last commit began, with the epoch of the parent since.
    orphaned: [Option<Epoch>; BRANCHES],
    /// The same, of the commit that is on its way.
    orphaned_frozen: [Option<Epoch>; BRANCHES],
    /// Freed since the last commit began.
    pub(super) freed: Blocks,
    /// Freed before, and the commit is on its way.
    pub(super) freed_frozen: Blocks,
    /// For a mutant: what the walk has freed since the last commit began.
    pub(super) walked: Blocks,
}

impl Memory {
    /// What a volume is that was just recovered, or made.
    pub(super) fn of(volume: Volume) -> Memory {
        let parents = volume.branches.map(|of| volume.epoch_of(of.and_then(|of| of.parent)));
        Memory {
            volume,
            judged_from: parents,
            orphaned: [None; BRANCHES],
            orphaned_frozen: [None; BRANCHES],
            freed: 0,
            freed_frozen: 0,
            walked: 0,
        }
    }

    /// The present moment becomes a commit.
    pub(super) fn freeze(&mut self, broken: Option<Mutant>) {
        for at in 0..BRANCHES {
            let orphaned = self.orphaned[at].take();
            self.orphaned_frozen[at] = orphaned.or(self.orphaned_frozen[at]);
        }
        if broken != Some(Mutant::WalkedReusedAtOnce) {
            self.freed_frozen |= self.freed;
        }
        (self.freed, self.walked) = (0, 0);
    }

    /// That commit is durable.
    pub(super) fn thaw(&mut self, broken: Option<Mutant>) {
        self.freed_frozen = 0;
        for at in 0..BRANCHES {
            let early = self.orphaned[at].filter(|_| broken == Some(Mutant::JudgedFromEndsEarly));
            let parent = self.orphaned_frozen[at].take();
            if let Some(parent) = early.or(parent.filter(|_| self.orphaned[at].is_none())) {
                self.judged_from[at] = parent;
            }
        }
    }

    fn kept(&self, broken: Option<Mutant>) -> Blocks {
        if broken == Some(Mutant::WalkedReusedAtOnce) { 0 } else { self.freed | self.freed_frozen }
    }

    /// Carries out an operation that the log tells of.
    pub(super) fn by_the_log(&mut self, action: Action, broken: Option<Mutant>) -> Vec<Record> {
        let kept = self.kept(broken);
        let volume = &mut self.volume;
        match action {
            Action::Write(branch, key) => {
                let at = volume.take(kept);
                let mut records = vec![Record::Take(at)];
                self.put(branch, key, Some(at), &mut records, broken);
                records
            }
            Action::Remove(branch, key) => {
                let mut records = Vec::new();
                self.put(branch, key, None, &mut records, broken);
                records
            }
            Action::Fork(snapshot) => {
                let branch =
                    volume.branches.iter().position(Option::is_none).expect("there is room");
                let of = volume.snapshot(snapshot);
                volume.branches[branch] = Some(Branch { root: of.root, parent: Some(snapshot) });
                self.judged_from[branch] = of.epoch;
                let fork = Some((snapshot, of.root));
                vec![Record::Item { branch, parent: Some(snapshot), fork }]
            }
            Action::Rename(branch) => {
                vec![Record::Item { branch, parent: volume.branch(branch).parent, fork: None }]
            }
            Action::NewBranch => {
                let branch = self.plant();
                vec![Record::Item { branch, parent: None, fork: None }]
            }
            Action::Delete(snapshot) => {
                let of = volume.snapshot(snapshot);
                volume.snapshots[snapshot] = Some(Snapshot { is_named: false, ..of });
                vec![Record::Delete(snapshot)]
            }
            _ => unreachable!("{action:?} is not told to the log"),
        }
    }

    fn put(
        &mut self,
        branch: usize,
        key: usize,
        value: Option<Pointer>,
        records: &mut Vec<Record>,
        broken: Option<Mutant>,
    ) {
        let kept = self.kept(broken);
        let (node, gone) = self.volume.own_node(branch, kept, broken);
        self.freed |= gone;
        records.push(Record::Put(branch, key, value));
        let items = self.volume.nodes[node].as_mut().expect("a root is there");
        let Some(old) = std::mem::replace(&mut items[key], value) else { return };
        if !self.volume.owns(branch, key, old, broken) {
            return;
        }
        self.volume.free(old);
        self.freed |= old.bit();
        let parent = self.volume.epoch_of(self.volume.branch(branch).parent);
        let sure = match broken {
            Some(Mutant::JudgedFromForgotten) => parent,
            _ => parent.max(self.judged_from[branch]),
        };
        if old.birth > sure || broken == Some(Mutant::DropLoggedAsFree) {
            records.push(Record::Free(old));
        } else if broken != Some(Mutant::DropNotLogged) {
            records.push(Record::Drop(branch, key, old));
        }
    }

    /// Carries out what only a commit makes durable (S2, S5, S6). The commit takes the moment behind it.
    pub(super) fn by_a_commit(&mut self, action: Action, broken: Option<Mutant>) {
        match action {
            Action::Snapshot(branch) => {
                let at = self.leave_behind(branch, true, broken);
                let of = self.volume.branch(branch);
                self.volume.branches[branch] = Some(Branch { parent: Some(at), ..of });
            }
            Action::RollBack { branch, snapshot, keep } => {
                let before = self.volume.branch(branch).parent;
                self.leave_behind(branch, keep, broken);
                let of = self.volume.snapshot(snapshot);
                let keeps = broken == Some(Mutant::RollbackKeepsParent);
                let parent = if keeps { before } else { Some(snapshot) };
                self.volume.branches[branch] = Some(Branch { root: of.root, parent });
                self.judged_from[branch] = of.epoch;
            }
            Action::DeleteBranch(branch) => {
                self.leave_behind(branch, false, broken);
                self.volume.branches[branch] = None;
                (self.judged_from[branch], self.orphaned[branch]) = (0, None);
            }
            Action::NewBranch => {
                self.plant();
            }
            Action::Checkpoint => self.volume.epoch += 1,
            _ => {}
        }
    }

    /// A branch that has grown out of nothing, with a leaf of its own in which nothing is.
    fn plant(&mut self) -> usize {
        let kept = self.freed | self.freed_frozen;
        let branch = self.volume.branches.iter().position(Option::is_none);
        let branch = branch.expect("there is room");
        let root = self.volume.take(kept);
        self.volume.nodes[root.block as usize] = Some([None; KEYS]);
        self.volume.branches[branch] = Some(Branch { root, parent: None });
        (self.judged_from[branch], self.orphaned[branch]) = (0, None);
        branch
    }

    /// The tree of a branch as it is becomes a snapshot. If it has changed in this epoch, the epoch ends.
    fn leave_behind(&mut self, branch: usize, is_named: bool, broken: Option<Mutant>) -> usize {
        let volume = &mut self.volume;
        let Branch { root, parent } = volume.branch(branch);
        let has_changed = root.birth == volume.epoch;
        let epoch = if has_changed { volume.epoch } else { volume.epoch - 1 };
        if has_changed && broken != Some(Mutant::EpochNotMoved) {
            volume.epoch += 1;
        }
        let at = volume.snapshots.iter().position(Option::is_none).expect("there is room");
        let truth = volume.items(root).expect("a root is there");
        volume.snapshots[at] = Some(Snapshot { root, epoch, parent, is_named, cursor: 0, truth });
        at
    }

    /// Deletions that may go on: the one that has begun, or else those out of which not more than one tree has grown.
    pub(super) fn walks(&self) -> Vec<usize> {
        let of = |at: usize| self.volume.snapshots[at].filter(|of| !of.is_named);
        let begun = (0..SNAPSHOTS).find(|at| of(*at).is_some_and(|of| of.cursor > 0));
        let may = |at: &usize| of(*at).is_some() && self.volume.children(*at).len() <= 1;
        begun.map_or_else(|| (0..SNAPSHOTS).filter(may).collect(), |at| vec![at])
    }

    /// A step of a deletion (S4): in memory only.
    pub(super) fn walk(&mut self, snapshot: usize, broken: Option<Mutant>) {
        let of = self.volume.snapshot(snapshot);
        let place = match (broken, of.cursor) {
            (Some(Mutant::NodeBeforeItsItems), 0) => NODE,
            (Some(Mutant::NodeBeforeItsItems), cursor) => cursor - 1,
            (_, cursor) => cursor,
        };
        let here = |volume: &Volume, root: Pointer| match place {
            NODE => Some(root),
            key => volume.items(root)?[key],
        };
        if self.volume.items(of.root).is_none() {
            return self.volume.fail("S4: a walk needs a node that was freed");
        }
        let beside = match self.volume.children(snapshot)[..] {
            [] => None,
            // The mutant goes on with the branch that the snapshot was taken of.
            [Child::Snapshot(at), ..] if broken == Some(Mutant::NewSnapshotNotFollowed) => {
                let branches = self.volume.branches.iter().flatten();
                let branch = branches.into_iter().find(|branch| branch.parent == Some(at));
                branch.map(|branch| branch.root)
            }
            [Child::Snapshot(at), ..] => Some(self.volume.snapshot(at).root),
            [Child::Branch(at), ..] => Some(self.volume.branch(at).root),
        };
        if let Some(found) = here(&self.volume, of.root) {
            let above = self.volume.epoch_of(of.parent);
            let is_young = found.birth > above || broken == Some(Mutant::WalkIgnoresParent);
            let is_theirs = beside.and_then(|root| here(&self.volume, root)) == Some(found)
                && broken != Some(Mutant::WalkIgnoresChild);
            if is_young && !is_theirs {
                self.volume.free(found);
                self.freed |= found.bit();
                if broken == Some(Mutant::CursorWithoutFrees) {
                    self.walked |= found.bit();
                }
            }
        }
        if of.cursor < NODE {
            let cursor = of.cursor + 1;
            self.volume.snapshots[snapshot] = Some(Snapshot { cursor, ..of });
        } else {
            self.end(snapshot, broken);
        }
    }

    /// The walk is at its end: what grew out of the snapshot has its parent now.
    fn end(&mut self, snapshot: usize, broken: Option<Mutant>) {
        let of = self.volume.snapshot(snapshot);
        self.volume.snapshots[snapshot] = None;
        if broken == Some(Mutant::ChildKeepsParent) {
            return;
        }
        for other in self.volume.snapshots.iter_mut().flatten() {
            if other.parent == Some(snapshot) {
                other.parent = of.parent;
            }
        }
        for at in 0..BRANCHES {
            let Some(branch) = self.volume.branches[at].filter(|of| of.parent == Some(snapshot))
            else {
                continue;
            };
            self.volume.branches[at] = Some(Branch { parent: of.parent, ..branch });
            // A recovery may find the snapshot until the next commit is durable.
            self.judged_from[at] = self.judged_from[at].max(of.epoch);
            self.orphaned[at] = Some(self.volume.epoch_of(of.parent));
        }
    }
}
