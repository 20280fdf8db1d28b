//! Branches as programs without them make them: each tree is a directory, and a clone is `cp -a`.
//!
//! What grew out of what is kept in another way than in the model: each tree knows all its ancestors.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_script::{Answer, BranchOp, Errno, Host, Op, Outcome, Target, TreeName};

struct Snapshot {
    number: u64,
    holds: BTreeSet<Vec<u8>>,
    ancestors: BTreeSet<u64>,
}

struct Branch {
    directory: PathBuf,
    host: Host,
    /// Handles that are open.
    open: BTreeSet<String>,
    ancestors: BTreeSet<u64>,
    snapshots: BTreeMap<TreeName, Snapshot>,
}

/// Directories below one.
pub(crate) struct Copies {
    under: PathBuf,
    branches: BTreeMap<TreeName, Branch>,
    current: TreeName,
    first: TreeName,
    next: u64,
}

impl Branch {
    fn new(directory: PathBuf, ancestors: BTreeSet<u64>) -> Branch {
        let host = Host::new(&directory).expect("the directory was just made");
        Branch { directory, host, open: BTreeSet::new(), ancestors, snapshots: BTreeMap::new() }
    }

    /// In a directory that is not there yet.
    fn empty(directory: PathBuf) -> Branch {
        std::fs::create_dir(&directory).expect("nothing is there");
        let mut branch = Branch::new(directory, BTreeSet::new());
        let chmod = "chmod / 755".parse().expect("one operation");
        assert_eq!(branch.host.apply(&chmod), Outcome::Ok(Answer::Done));
        branch
    }
}

fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp can be run");
    assert!(done.success(), "cp -a {} {}", from.display(), to.display());
}

impl Copies {
    pub(crate) fn new(under: &Path) -> Copies {
        let (under, main) = (under.to_owned(), TreeName::main());
        let branch = Branch::empty(under.join("1"));
        let branches = BTreeMap::from([(main.clone(), branch)]);
        Copies { under, branches, current: main.clone(), first: main, next: 2 }
    }

    fn here(&mut self) -> &mut Branch {
        self.branches.get_mut(&self.current).expect("it is not removed")
    }

    fn place(&self, number: u64) -> PathBuf {
        self.under.join(number.to_string())
    }

    /// A copy of the present branch.
    fn seal(&mut self) -> Snapshot {
        let number = self.next;
        self.next += 1;
        let to = self.place(number);
        let here = self.here();
        copy(&here.directory, &to);
        let ancestors = here.ancestors.clone();
        here.ancestors.insert(number);
        Snapshot { number, holds: BTreeSet::new(), ancestors }
    }

    /// A branch that is a copy of a snapshot.
    fn grown_from(&mut self, number: u64, mut ancestors: BTreeSet<u64>) -> Branch {
        let to = self.place(self.next);
        self.next += 1;
        copy(&self.place(number), &to);
        ancestors.insert(number);
        Branch::new(to, ancestors)
    }

    fn snapshot(&mut self, name: &TreeName) -> Result<&mut Snapshot, Errno> {
        self.here().snapshots.get_mut(name).ok_or(Errno::ENOENT)
    }

    fn free(&mut self, name: &TreeName) -> Result<(), Errno> {
        match name.as_bytes().len() {
            256.. => Err(Errno::EINVAL),
            _ if self.here().snapshots.contains_key(name) => Err(Errno::EEXIST),
            _ => Ok(()),
        }
    }

    fn free_branch(&self, name: &TreeName) -> Result<(), Errno> {
        match name.as_bytes().len() {
            256.. => Err(Errno::EINVAL),
            _ if self.branches.contains_key(name) => Err(Errno::EEXIST),
            _ => Ok(()),
        }
    }

    fn has_forks(&self, name: &TreeName) -> bool {
        let own: Vec<u64> = self.branches[name].snapshots.values().map(|of| of.number).collect();
        self.branches.iter().filter(|(other, _)| *other != name).any(|(_, other)| {
            let snapshots = other.snapshots.values().map(|snapshot| &snapshot.ancestors);
            let mut all = snapshots.chain([&other.ancestors]);
            all.any(|ancestors| own.iter().any(|number| ancestors.contains(number)))
        })
    }

    fn promote(&mut self, name: &TreeName, keep: Option<&TreeName>) -> Result<Answer, Errno> {
        let fork = self.branches.get(name).ok_or(Errno::ENOENT)?;
        if *name == self.first || *name == self.current || !fork.open.is_empty() {
            return Err(Errno::EBUSY);
        }
        let brought: Vec<TreeName> = fork.snapshots.keys().cloned().collect();
        for name in keep.into_iter().chain(&brought) {
            self.free(name)?;
        }
        if keep.is_some_and(|keep| brought.contains(keep)) {
            return Err(Errno::EEXIST);
        }
        if !self.here().open.is_empty() {
            return Err(Errno::EBUSY);
        }
        let fork = self.branches.remove(name).ok_or(Errno::ENOENT)?;
        let was = self.seal();
        let mut snapshots = std::mem::take(&mut self.here().snapshots);
        snapshots.extend(fork.snapshots);
        snapshots.extend(keep.map(|name| (name.clone(), was)));
        *self.here() = Branch { snapshots, ..fork };
        Ok(Answer::Done)
    }

    fn remove_branch(&mut self, name: &TreeName) -> Result<Answer, Errno> {
        let branch = self.branches.get(name).ok_or(Errno::ENOENT)?;
        let held = branch.snapshots.values().any(|snapshot| !snapshot.holds.is_empty());
        let is_open = *name == self.current || !branch.open.is_empty();
        if *name == self.first || is_open || held || self.has_forks(name) {
            return Err(Errno::EBUSY);
        }
        self.branches.remove(name);
        Ok(Answer::Done)
    }

    fn answer(&mut self, op: &BranchOp) -> Result<Answer, Errno> {
        match op {
            BranchOp::Switch { branch } => {
                self.branches.get(branch).ok_or(Errno::ENOENT)?;
                self.current = branch.clone();
            }
            BranchOp::Snapshot { name } => {
                self.free(name)?;
                let snapshot = self.seal();
                self.here().snapshots.insert(name.clone(), snapshot);
            }
            BranchOp::Fork { branch, from } => {
                let from = match from {
                    Some(name) => Some(self.snapshot(name)?),
                    None => None,
                };
                let from = from.map(|found| (found.number, found.ancestors.clone()));
                self.free_branch(branch)?;
                let (number, ancestors) = match from {
                    Some(found) => found,
                    None => {
                        let sealed = self.seal();
                        (sealed.number, sealed.ancestors)
                    }
                };
                let fork = self.grown_from(number, ancestors);
                self.branches.insert(branch.clone(), fork);
            }
            BranchOp::NewBranch { branch } => {
                self.free_branch(branch)?;
                let directory = self.place(self.next);
                self.next += 1;
                let new = Branch::empty(directory);
                self.branches.insert(branch.clone(), new);
            }
            BranchOp::Rollback { to, keep } => {
                let found = self.snapshot(to)?;
                let (number, ancestors) = (found.number, found.ancestors.clone());
                keep.as_ref().map_or(Ok(()), |name| self.free(name))?;
                if !self.here().open.is_empty() {
                    return Err(Errno::EBUSY);
                }
                let was = self.seal();
                let branch = self.grown_from(number, ancestors);
                let snapshots = std::mem::take(&mut self.here().snapshots);
                *self.here() = Branch { snapshots, ..branch };
                let kept = keep.as_ref().map(|name| (name.clone(), was));
                self.here().snapshots.extend(kept);
            }
            BranchOp::Promote { fork, keep } => return self.promote(fork, keep.as_ref()),
            BranchOp::RemoveSnapshot { name } => match self.snapshot(name)?.holds.is_empty() {
                true => drop(self.here().snapshots.remove(name)),
                false => return Err(Errno::EBUSY),
            },
            BranchOp::RemoveBranch { branch } => return self.remove_branch(branch),
            BranchOp::RenameSnapshot { from, to } => {
                self.snapshot(from)?;
                if from != to {
                    self.free(to)?;
                }
                let moved = self.here().snapshots.remove(from).ok_or(Errno::ENOENT)?;
                self.here().snapshots.insert(to.clone(), moved);
            }
            BranchOp::RenameBranch { from, to } => {
                self.branches.get(from).ok_or(Errno::ENOENT)?;
                if from != to {
                    self.free_branch(to)?;
                }
                let moved = self.branches.remove(from).ok_or(Errno::ENOENT)?;
                self.branches.insert(to.clone(), moved);
                for name in [&mut self.current, &mut self.first] {
                    if *name == *from {
                        *name = to.clone();
                    }
                }
            }
            BranchOp::Hold { name, tag } => {
                match self.snapshot(name)?.holds.insert(BranchOp::tag(tag).into()) {
                    true => {}
                    false => return Err(Errno::EEXIST),
                }
            }
            BranchOp::Unhold { name, tag } => {
                match self.snapshot(name)?.holds.remove(BranchOp::tag(tag)) {
                    true => {}
                    false => return Err(Errno::ENOENT),
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
                let number = self.snapshot(name)?.number;
                let tree = Host::new(self.place(number))?.walk().map_err(|_| Errno::EIO)?;
                return Ok(Answer::Tree(Box::new(tree)));
            }
        }
        Ok(Answer::Done)
    }
}

impl Target for Copies {
    fn apply(&mut self, op: &Op) -> Outcome {
        if let Op::Branch(op) = op {
            return self.branch(op);
        }
        if matches!(op, Op::Remount | Op::Crash) {
            for branch in self.branches.values_mut() {
                branch.open.clear();
                branch.host.apply(op);
            }
            return Outcome::Ok(Answer::Done);
        }
        let here = self.here();
        let answer = here.host.apply(op);
        if answer == Outcome::Ok(Answer::Done) {
            match op {
                Op::Open { handle, .. } | Op::Tmpfile { handle, .. } => {
                    here.open.insert(handle.0.clone());
                }
                Op::Close { handle } => drop(here.open.remove(&handle.0)),
                _ => {}
            }
        }
        answer
    }

    fn branch(&mut self, op: &BranchOp) -> Outcome {
        self.answer(op).into()
    }
}
