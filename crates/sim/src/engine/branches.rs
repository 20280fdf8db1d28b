//! Branches and snapshots of a script's volume.
//!
//! Each branch in which a script has been is mounted, with handles of its own. One without handles is unmounted before it is
//! removed, as a user would do it. What a handle means over a rollback is no matter of scripts: with open handles a
//! rollback is refused here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_posix::{FileSystem, FsError, MountOptions, OpenFile, SnapshotInfo};
use holdfast_script::target::Handles;
use holdfast_script::{Answer, BranchOp, Errno, Handle, Target, TreeName};

use super::{Answered, Engine, Refused};

/// A branch that is mounted, and what is open in it.
#[derive(Debug)]
pub(super) struct Mounted {
    pub(super) filesystem: Arc<FileSystem>,
    pub(super) handles: Handles<Arc<OpenFile>>,
}

impl Mounted {
    fn new(filesystem: FileSystem) -> Mounted {
        Mounted { filesystem: Arc::new(filesystem), handles: Handles::default() }
    }

    /// Closes all handles and unmounts.
    fn unmount(mut self) -> Result<(), FsError> {
        self.handles.drain().for_each(drop);
        let alone = Arc::into_inner(self.filesystem).expect("the thread beside it has ended");
        alone.unmount()
    }
}

/// The branches of a volume that are mounted.
#[derive(Debug)]
pub(super) struct Mounts {
    mounted: BTreeMap<TreeName, Mounted>,
    /// In which the script is.
    current: TreeName,
    /// The one that is mounted first and unmounted last.
    first: TreeName,
}

impl Mounts {
    /// Nothing is mounted yet.
    pub(super) fn none() -> Mounts {
        let (current, first) = (TreeName::main(), TreeName::main());
        Mounts { mounted: BTreeMap::new(), current, first }
    }

    /// The branch in which the script is.
    pub(super) fn here(&self) -> Option<&Mounted> {
        self.mounted.get(&self.current)
    }

    /// Every branch that is mounted.
    pub(super) fn all(&self) -> impl Iterator<Item = &FileSystem> {
        self.mounted.values().map(|mounted| &*mounted.filesystem)
    }

    /// Ends all without an unmount.
    pub(super) fn kill(&mut self) {
        for mounted in self.mounted.values_mut() {
            mounted.handles.drain().for_each(drop);
        }
        self.mounted.retain(|name, _| *name == self.first);
        self.mounted.clear();
    }

    /// Unmounts all.
    pub(super) fn unmount(&mut self) -> Result<bool, FsError> {
        let first = self.mounted.remove(&self.first);
        let others = std::mem::take(&mut self.mounted);
        others.into_values().try_for_each(Mounted::unmount)?;
        first.map_or(Ok(false), |first| first.unmount().map(|()| true))
    }

    /// Takes the branch that is always there, and mounts the one in which the script was, if there still is one of that
    /// name.
    pub(super) fn begin(
        &mut self,
        filesystem: FileSystem,
        options: &MountOptions,
    ) -> Result<&Arc<FileSystem>, FsError> {
        self.first = named(filesystem.branch_name()?);
        if !branch_names(&filesystem)?.contains(&self.current) {
            self.current = self.first.clone();
        }
        if self.current != self.first {
            let branch = filesystem.open_branch(self.current.as_bytes(), options.clone())?;
            self.mounted.insert(self.current.clone(), Mounted::new(branch));
        }
        let first = self.mounted.entry(self.first.clone()).or_insert(Mounted::new(filesystem));
        Ok(&first.filesystem)
    }
}

fn named(bytes: Vec<u8>) -> TreeName {
    TreeName::new(bytes).expect("the engine takes no other names")
}

/// All branches, sorted.
fn branch_names(filesystem: &FileSystem) -> Result<Vec<TreeName>, FsError> {
    let all = filesystem.branches()?.into_iter().map(|branch| named(branch.name));
    Ok(all.collect::<BTreeSet<_>>().into_iter().collect())
}

/// All snapshots of the branch that have a name, sorted.
fn snapshot_names(filesystem: &FileSystem) -> Result<Vec<TreeName>, FsError> {
    let all = filesystem.snapshots()?.into_iter().filter(|snapshot| !snapshot.name.is_empty());
    Ok(all.map(|snapshot| named(snapshot.name)).collect::<BTreeSet<_>>().into_iter().collect())
}

impl Engine {
    /// The branch that mkfs has made, whatever its name is.
    pub fn first_branch(&self) -> &TreeName {
        &self.mounts.first
    }

    /// Goes on with removals of branches and snapshots until nothing is left of them.
    pub fn finish_removals(&self) -> Result<(), FsError> {
        let Ok(filesystem) = self.filesystem() else { return Ok(()) };
        filesystem.finish_deletions()
    }

    /// The branch in which the script is, with what is open there.
    pub(super) fn here(&self) -> Result<&Mounted, Errno> {
        self.mounts.here().ok_or(Errno::ENOTCONN)
    }

    pub(super) fn handles(&mut self) -> Result<&mut Handles<Arc<OpenFile>>, Errno> {
        let mounts = &mut self.mounts;
        let here = mounts.mounted.get_mut(&mounts.current).ok_or(Errno::ENOTCONN)?;
        Ok(&mut here.handles)
    }

    /// An open file of the branch; EBADF if there is none.
    pub(super) fn handle(&self, handle: &Handle) -> Result<&Arc<OpenFile>, Errno> {
        self.here()?.handles.get(handle)
    }

    pub(super) fn branches(&mut self, op: &BranchOp) -> Answered {
        let here = self.filesystem()?;
        let branch = self.mounts.current.as_bytes();
        let done = match op {
            BranchOp::Switch { branch } => return self.switch(branch),
            BranchOp::RemoveBranch { branch } => return self.remove_branch(branch),
            BranchOp::Promote { fork, keep } => return self.promote(fork, keep.as_ref()),
            BranchOp::RenameBranch { from, to } => return self.rename_branch(from, to),
            BranchOp::Look { name } => return self.look(name),
            BranchOp::Branches => {
                let all = branch_names(here)?;
                return Ok(Answer::Branches { current: self.mounts.current.clone(), all });
            }
            BranchOp::Snapshots => return Ok(Answer::Snapshots(snapshot_names(here)?)),
            BranchOp::Snapshot { name } => here.snapshot(name.as_bytes()).map(drop),
            BranchOp::Fork { branch, from } => {
                here.fork(branch.as_bytes(), from.as_ref().map(TreeName::as_bytes)).map(drop)
            }
            BranchOp::NewBranch { branch } => here.new_branch(branch.as_bytes()).map(drop),
            BranchOp::Rollback { to, keep } => {
                self.expect_no_handles(to, keep.as_ref())?;
                here.rollback(to.as_bytes(), keep.as_ref().map(TreeName::as_bytes))
            }
            BranchOp::RemoveSnapshot { name } => here.delete_snapshot(branch, name.as_bytes()),
            BranchOp::RenameSnapshot { from, to } => {
                here.rename_snapshot(branch, from.as_bytes(), to.as_bytes())
            }
            BranchOp::Hold { name, tag } => here.hold(branch, name.as_bytes(), BranchOp::tag(tag)),
            BranchOp::Unhold { name, tag } => {
                here.unhold(branch, name.as_bytes(), BranchOp::tag(tag))
            }
        };
        Ok(done.map(|()| Answer::Done)?)
    }

    /// What a script may ask of a rollback: other refusals come first.
    fn expect_no_handles(&self, to: &TreeName, keep: Option<&TreeName>) -> Result<(), Refused> {
        let names = snapshot_names(self.filesystem()?)?;
        let would_work = names.contains(to) && keep.is_none_or(|keep| !names.contains(keep));
        match would_work && !self.here()?.handles.is_empty() {
            true => Err(Errno::EBUSY.into()),
            false => Ok(()),
        }
    }

    fn switch(&mut self, branch: &TreeName) -> Answered {
        let here = self.filesystem()?;
        if !branch_names(here)?.contains(branch) {
            return Err(Errno::ENOENT.into());
        }
        if !self.mounts.mounted.contains_key(branch) {
            let options = self.setup.mount.clone();
            let mounted = here.open_branch(branch.as_bytes(), options)?;
            self.mounts.mounted.insert(branch.clone(), Mounted::new(mounted));
        }
        self.mounts.current = branch.clone();
        Ok(Answer::Done)
    }

    /// Unmounts a branch, unless the script is in it, or has files of it open.
    fn unmount_idle(&mut self, branch: &TreeName) -> Result<(), Refused> {
        let mounts = &mut self.mounts;
        let mounted = mounts.mounted.get(branch);
        let is_free = mounted.is_some_and(|mounted| mounted.handles.is_empty());
        if is_free && *branch != mounts.current && *branch != mounts.first {
            let mounted = mounts.mounted.remove(branch).expect("it was just found");
            mounted.unmount()?;
        }
        Ok(())
    }

    fn promote(&mut self, fork: &TreeName, keep: Option<&TreeName>) -> Answered {
        self.unmount_idle(fork)?;
        let here = self.filesystem()?;
        // Other refusals come first.
        if !self.here()?.handles.is_empty() {
            let snapshots = |branch: &TreeName| here.snapshots_of(branch.as_bytes());
            let taken = snapshots(&self.mounts.current)?;
            let brought = snapshots(fork)?;
            let names = |of: &[SnapshotInfo]| {
                let named = of.iter().filter(|snapshot| !snapshot.name.is_empty());
                named.map(|snapshot| snapshot.name.clone()).collect::<BTreeSet<_>>()
            };
            let (taken, brought) = (names(&taken), names(&brought));
            let is_free = |name: &[u8]| !taken.contains(name) && !brought.contains(name);
            let is_named = keep.is_none_or(|keep| {
                keep.as_bytes().len() <= TreeName::MAX && is_free(keep.as_bytes())
            });
            let is_closed = !self.mounts.mounted.contains_key(fork);
            if is_closed && is_named && taken.is_disjoint(&brought) {
                return Err(Errno::EBUSY.into());
            }
        }
        let (branch, keep) = (self.mounts.current.as_bytes(), keep.map(TreeName::as_bytes));
        here.promote(branch, fork.as_bytes(), keep, false)?;
        Ok(Answer::Done)
    }

    fn remove_branch(&mut self, branch: &TreeName) -> Answered {
        self.unmount_idle(branch)?;
        self.filesystem()?.delete_branch(branch.as_bytes())?;
        Ok(Answer::Done)
    }

    fn rename_branch(&mut self, from: &TreeName, to: &TreeName) -> Answered {
        self.filesystem()?.rename_branch(from.as_bytes(), to.as_bytes())?;
        let mounts = &mut self.mounts;
        if let Some(mounted) = mounts.mounted.remove(from) {
            mounts.mounted.insert(to.clone(), mounted);
        }
        for name in [&mut mounts.current, &mut mounts.first] {
            if *name == *from {
                *name = to.clone();
            }
        }
        Ok(Answer::Done)
    }

    /// Everything that a snapshot holds, seen through a mount of it.
    fn look(&self, name: &TreeName) -> Answered {
        let (branch, options) = (self.mounts.current.as_bytes(), self.setup.mount.clone());
        let here = self.filesystem()?;
        let filesystem = here.open_snapshot(branch, name.as_bytes(), options)?;
        let mut mounts = Mounts::none();
        mounts.mounted.insert(TreeName::main(), Mounted::new(filesystem));
        let mut shown = Engine {
            setup: self.setup.clone(),
            device: Arc::clone(&self.device),
            mounts,
            beside: None,
            operations: 0,
            caller: self.caller.clone(),
            written: 0,
        };
        let tree = shown.everything()?;
        shown.mounts.unmount()?;
        Ok(tree)
    }
}
