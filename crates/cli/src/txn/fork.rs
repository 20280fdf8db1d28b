//! The fork of a transaction, from when it is made until it is promoted, discarded or kept.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use holdfast_service::branches::temporary::Purpose;
use holdfast_service::work::{Tree, Work, merge};

use super::base::Base;
use super::owner::Owner;
use super::sweep;
use crate::branches::{Ask, Name, TreeLocation};
use crate::outcome::{Context, Failure, complain};
use crate::pipes::out;

/// A fork of the branch of a mount, and the snapshot of the same name that it began with. It is discarded when it is dropped.
#[derive(Debug)]
pub(crate) struct Fork {
    place: TreeLocation,
    name: Name,
    /// The branch that it was made of, when it was made.
    branch: Name,
    /// What has become of it is decided.
    is_settled: bool,
    _owner: Owner,
}

impl Fork {
    /// Takes the snapshot, and makes the fork.
    ///
    /// # Errors
    /// The volume is full, or the daemon refuses or does not answer. Nothing is left, or what is swept later.
    pub(crate) fn of(base: &Base) -> Result<Fork, Failure> {
        let place = base.place();
        let (name, number) = Purpose::Transaction.new_name();
        // Before anything is called so: what has no owner may be removed.
        let owner = Owner::of(&base.mount.dir, number).context(base.mount.dir.display())?;
        let take = Ask::Take { branch: None, name: name.clone() };
        let (branch, _) = place.done(&take)?;
        let mut fork = Fork { place, name, branch, is_settled: true, _owner: owner };
        let (snapshot, name) = (Some((&fork.name).into()), fork.name.clone());
        match fork.place.done(&Ask::Fork { branch: None, snapshot, name }) {
            Ok(_) => fork.is_settled = false,
            Err(failure) => {
                fork.delete_snapshot();
                return Err(failure);
            }
        }
        Ok(fork)
    }

    pub(crate) fn name(&self) -> &Name {
        &self.name
    }

    /// The branch that it was made of.
    pub(crate) fn branch(&self) -> &Name {
        &self.branch
    }

    /// Ends the mount of the fork, and waits until everything of it is written.
    ///
    /// # Errors
    /// Something could not be written, or the daemon does not answer.
    fn release(&self) -> Result<(), Failure> {
        self.place.done(&Ask::Release { name: self.name.clone() }).map(drop)
    }

    /// The branch becomes the fork, and the mount of the fork ends; whether the kernel has forgotten all that was before. `None`: the branch
    /// has changed since the fork was made, which is left as it is.
    ///
    /// # Errors
    /// It does not become the fork; or, if the daemon has not answered, perhaps it does.
    pub(crate) fn promote(&mut self) -> Result<Option<bool>, Failure> {
        self.release()?;
        let (branch, fork, keep) = (None, (&self.name).into(), None);
        let question = Ask::Promote { branch, fork, keep, unchanged: true };
        let promoted = self.place.located()?.new_head(&question)?;
        if promoted.is_ok() {
            self.is_settled = true;
            self.delete_snapshot();
        }
        Ok(promoted.ok().map(|(_, forgotten)| forgotten))
    }

    /// Whether it is a branch of its own, and so has not become the one that it was made of.
    pub(crate) fn is_there(&self) -> bool {
        let branches = self.place.located().and_then(|located| located.branches());
        branches.is_ok_and(|(all, _)| all.iter().any(|branch| branch.name == self.name))
    }

    /// Does in this fork, in which nothing was done, what was done in another one, which has begun with an older moment of the
    /// same branch and has no mount any more.
    ///
    /// # Errors
    /// With the code [`merge::OVERLAP`]: others have changed the same as the other fork since then. Otherwise the fork may have a part of it.
    pub(crate) fn take_over(&self, other: &Fork) -> Result<(), Failure> {
        let located = self.place.located()?;
        let snapshot = |of: &Fork| Tree { snapshot: Some(of.name.clone()), ..located.tree() };
        let fork = Tree { branch: Some(other.name.clone()), ..Tree::default() };
        let (base, theirs, into) = (snapshot(other), snapshot(self), self.name.clone());
        let what = merge::MergeTrees { base, fork, theirs, into };
        located.run(Work::Merge(what), out()).map(drop)
    }

    /// Prints what became of the files of the branch in the fork, as `holdfast diff` does, and ends the mount of the fork.
    ///
    /// # Errors
    /// They cannot be compared, and that is said, or the daemon does not answer.
    pub(crate) fn show_difference(&self) -> Result<(), Failure> {
        self.release()?;
        let was = [&self.branch.0[..], b"@", &self.name.0].concat();
        let words = [OsStr::from_bytes(&was), OsStr::from_bytes(&self.name.0)];
        let mut diff = Command::new("/proc/self/exe");
        diff.arg0("holdfast").args(["diff", "--"]).arg(&self.place.path).args(words);
        let status = diff.stdin(Stdio::null()).status().context("the difference")?;
        status.success().then_some(()).ok_or_else(|| Failure::plain(""))
    }

    /// Gives the fork and its snapshot a name under which they stay, and ends the mount of the fork.
    ///
    /// # Errors
    /// There is a branch or snapshot of this name: the fork is left as it is.
    pub(crate) fn keep(&mut self, new_name: &Name) -> Result<(), Failure> {
        self.release()?;
        let (name, new_name) = (self.name.clone(), new_name.clone());
        // The branch first. If this process dies in between, the branch stays and the snapshot is swept; a fork without its
        // snapshot would never be.
        self.place.done(&rename_branch(&name, &new_name))?;
        let rename =
            Ask::RenameSnapshot { branch: None, name: (&name).into(), new_name: new_name.clone() };
        if let Err(failure) = self.place.done(&rename) {
            let _ = self.place.done(&rename_branch(&new_name, &name));
            return Err(failure);
        }
        self.is_settled = true;
        Ok(())
    }

    fn delete(&self) -> Result<(), Failure> {
        let delete = Ask::DeleteBranch { name: (&self.name).into(), number: None };
        self.place.done(&delete).map(drop).or_else(|_| {
            // A transaction in it was killed, and its fork has grown out of this one. None of them is on its way any more: the
            // mount by which it would end is gone.
            let place = TreeLocation { branch: Some(self.name.clone()), ..self.place.clone() };
            let _ = sweep::of_transactions(&place, None, true);
            self.place.done(&delete).map(drop)
        })
    }

    fn delete_snapshot(&self) {
        let delete = Ask::DeleteSnapshot { branch: None, name: (&self.name).into(), number: None };
        if let Err(failure) = self.place.done(&delete) {
            complain(&format!(
                "the snapshot {}@{} could not be deleted yet: {}",
                self.branch, self.name, failure.sentence
            ));
        }
    }
}

fn rename_branch(name: &Name, new_name: &Name) -> Ask {
    Ask::RenameBranch { name: name.into(), new_name: new_name.clone() }
}

/// Removes the fork and its snapshot, and ends the mount of the fork. What cannot be removed now is swept later, and this is said.
impl Drop for Fork {
    fn drop(&mut self) {
        if self.is_settled {
            return;
        }
        match self.release().and_then(|()| self.delete()) {
            Ok(()) => self.delete_snapshot(),
            Err(failure) => complain(&format!(
                "the fork {} could not be deleted yet: {}",
                self.name, failure.sentence
            )),
        }
    }
}
