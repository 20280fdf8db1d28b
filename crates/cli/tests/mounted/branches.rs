//! Operations on branches and snapshots, as the commands of the program.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use holdfast_script::{Answer, BranchOp, Errno, TreeName};

use super::{HOLDFAST, Mounted};

/// What the program says when it refuses, and what the model answers then.
const REFUSALS: [(&str, Errno); 11] = [
    ("exists already", Errno::EEXIST),
    ("there is no `", Errno::ENOENT),
    ("there is no branch `", Errno::ENOENT),
    ("there is no snapshot `", Errno::ENOENT),
    ("is held", Errno::EBUSY),
    ("has forks", Errno::EBUSY),
    ("cannot be deleted", Errno::EBUSY),
    ("is mounted or in use", Errno::EBUSY),
    ("is the volume's first branch", Errno::EBUSY),
    ("cannot be promoted to itself", Errno::EBUSY),
    ("a name has", Errno::EINVAL),
];

impl Mounted {
    /// The volume, and what of it is mounted, as it is written in an argument.
    pub(super) fn place(&self) -> OsString {
        let mut place = self.volume.clone().into_os_string();
        place.push(":");
        place.push(word(&self.branch));
        if let Some(snapshot) = &self.snapshot {
            place.push("@");
            place.push(word(snapshot));
        }
        place
    }

    /// Runs a command on the mounted directory.
    fn command(&self, words: &[&str], names: &[&TreeName]) -> Result<String, Errno> {
        let mut command = Command::new(HOLDFAST);
        command.args(words).arg(&self.dir).args(names.iter().map(|name| word(name)));
        let output = command.output().expect("the program was just built");
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let known = REFUSALS.iter().find(|(sentence, _)| said.contains(sentence));
        let known = known.filter(|_| output.status.code() == Some(1));
        Err(known.map_or_else(
            || {
                let log = self.said();
                eprintln!("{command:?} ended with {}: {said}\nthe daemons: {log}", output.status);
                Errno::EIO
            },
            |(_, errno)| *errno,
        ))
    }

    /// The names in a list of the program, sorted.
    fn names(&self, words: &[&str], list: &str) -> Result<Vec<TreeName>, Errno> {
        let said = self.command(words, &[])?;
        let said: serde_json::Value = serde_json::from_str(&said).expect("it is JSON");
        let entries = said[list].as_array().expect("it is a list");
        let names: BTreeSet<_> = entries
            .iter()
            .map(|entry| entry["name"].as_str().expect("each has a name"))
            .map(|name| TreeName::new(name).expect("it is one"))
            .collect();
        Ok(names.into_iter().collect())
    }

    fn branches(&self) -> Result<Vec<TreeName>, Errno> {
        self.names(&["branch", "list", "--json"], "branches")
    }

    fn snapshots(&self) -> Result<Vec<TreeName>, Errno> {
        self.names(&["snapshot", "list", "--json"], "snapshots")
    }

    /// Mounts a snapshot of the branch, or the branch again.
    pub(super) fn show(&mut self, snapshot: Option<&TreeName>) -> Result<(), Errno> {
        if let Some(name) = snapshot
            && !self.snapshots()?.contains(name)
        {
            return Err(Errno::ENOENT);
        }
        self.unmount()?;
        self.snapshot = snapshot.cloned();
        self.mount()
    }

    fn switch(&mut self, branch: &TreeName) -> Result<(), Errno> {
        if !self.branches()?.contains(branch) {
            return Err(Errno::ENOENT);
        }
        if *branch != self.branch {
            self.unmount()?;
            self.branch = branch.clone();
            self.mount()?;
        }
        Ok(())
    }

    /// All of them but looks.
    pub(super) fn carry_out(&mut self, op: &BranchOp) -> Result<Answer, Errno> {
        let done = match op {
            BranchOp::Switch { branch } => return self.switch(branch).map(|()| Answer::Done),
            BranchOp::Branches => {
                let (current, all) = (self.branch.clone(), self.branches()?);
                return Ok(Answer::Branches { current, all });
            }
            BranchOp::Snapshots => return self.snapshots().map(Answer::Snapshots),
            BranchOp::Snapshot { name } => self.command(&["snapshot", "create"], &[name]),
            BranchOp::Fork { branch, from: None } => self.command(&["fork"], &[branch]),
            BranchOp::Fork { branch, from: Some(from) } => {
                let from = format!("@{}", text(from));
                self.command(&["fork", "--from", &from], &[branch])
            }
            // No command makes one: `receive` does, and fills it.
            BranchOp::NewBranch { .. } => return Err(Errno::EOPNOTSUPP),
            BranchOp::Rollback { to, keep: None } => {
                self.command(&["snapshot", "rollback", "--discard"], &[to])
            }
            BranchOp::Rollback { to, keep: Some(keep) } => {
                let keep = text(keep);
                self.command(&["snapshot", "rollback", "--keep", &keep], &[to])
            }
            BranchOp::Promote { fork, keep: None } => {
                self.command(&["branch", "promote", "--force", "--discard"], &[fork])
            }
            BranchOp::Promote { fork, keep: Some(keep) } => {
                let keep = text(keep);
                self.command(&["branch", "promote", "--force", "--keep", &keep], &[fork])
            }
            BranchOp::RemoveSnapshot { name } => self.command(&["snapshot", "delete"], &[name]),
            BranchOp::RemoveBranch { branch } => self.command(&["branch", "delete"], &[branch]),
            BranchOp::RenameSnapshot { from, to } => {
                self.command(&["snapshot", "rename"], &[from, to])
            }
            BranchOp::RenameBranch { from, to } => self.command(&["branch", "rename"], &[from, to]),
            BranchOp::Hold { name, tag } => {
                self.command(&["snapshot", "hold", "--tag", &tag_of(tag)], &[name])
            }
            BranchOp::Unhold { name, tag } => {
                self.command(&["snapshot", "unhold", "--tag", &tag_of(tag)], &[name])
            }
            BranchOp::Look { .. } => unreachable!("it is a mount"),
        };
        done?;
        if let BranchOp::RenameBranch { from, to } = op
            && *from == self.branch
        {
            self.branch = to.clone();
        }
        Ok(Answer::Done)
    }
}

fn word(name: &TreeName) -> &OsStr {
    OsStr::from_bytes(name.as_bytes())
}

fn tag_of(tag: &Option<TreeName>) -> String {
    String::from_utf8_lossy(BranchOp::tag(tag)).into_owned()
}

fn text(name: &TreeName) -> Cow<'_, str> {
    String::from_utf8_lossy(name.as_bytes())
}
