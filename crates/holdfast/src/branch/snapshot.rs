//! One snapshot: its files, its forks, its name.

use std::io;
use std::time::SystemTime;

use holdfast_control::{Ask, Which};
use holdfast_posix::{FileSystem, FsError, Moment, MountOptions, OriginItem, SnapshotInfo};

use super::{Branch, named};
use crate::diff::Diff;
use crate::mounted::TreeId;
use crate::volume::Volume;

/// The files of a branch at one moment. They never change.
///
/// It goes on meaning the same snapshot, as a [`Branch`] does.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(super) branch: Branch,
    pub(super) info: SnapshotInfo,
    pub(super) name: String,
}

impl Snapshot {
    fn with<T>(
        &self,
        call: impl FnOnce(&FileSystem, u64, u64) -> std::result::Result<T, FsError>,
    ) -> io::Result<T> {
        self.branch.with(|fs, branch| call(fs, branch, self.number()))
    }

    /// As [`Branch::done`].
    fn done(
        &self,
        engine: impl FnOnce(&FileSystem, u64, u64) -> std::result::Result<(), FsError>,
        ask: &Ask,
    ) -> io::Result<()> {
        self.branch.done(|fs, branch| engine(fs, branch, self.number()), ask)
    }

    /// Its branch and itself, as a question has them.
    fn asked(&self) -> (Option<Which>, Which) {
        (Some(self.branch.number.into()), self.number().into())
    }

    /// Its name, without that of its branch, as it was when this was made or has renamed it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The branch that it was taken of.
    pub fn branch(&self) -> &Branch {
        &self.branch
    }

    /// Its number, which nothing else of the volume ever has.
    pub fn number(&self) -> u64 {
        self.info.number
    }

    /// The snapshot, to be compared with others ([`Volume::diff`]).
    pub fn moment(&self) -> Moment<'_> {
        Moment { branch: self.branch.name.as_bytes(), snapshot: Some(self.name.as_bytes()) }
    }

    /// What became of each file from here to another snapshot, of this branch or of any. The cost is that of what changed.
    ///
    /// ```
    /// # use holdfast::{ChangeKind, Volume};
    /// # fn main() -> std::io::Result<()> {
    /// let volume = Volume::in_memory(64 << 20)?;
    /// volume.write("/notes", b"as they were")?;
    /// let main = volume.branch("main")?;
    /// let before = main.snapshot("before")?;
    /// volume.rename("/notes", "/old-notes")?;
    /// let after = main.snapshot("after")?;
    /// let changes = before.diff(&after)?.collect::<std::io::Result<Vec<_>>>()?;
    /// assert_eq!(changes.len(), 1);
    /// assert_eq!(changes[0].kind, ChangeKind::Renamed);
    /// assert_eq!(changes[0].new_path.as_deref(), Some(&b"old-notes"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn diff(&self, newer: &Snapshot) -> io::Result<Diff> {
        Diff::start(self.branch.shared.clone(), self.moment(), newer.moment(), false)
    }

    /// As [`Snapshot::diff`], to what a branch is now.
    pub fn diff_to_branch(&self, branch: &Branch) -> io::Result<Diff> {
        Diff::start(self.branch.shared.clone(), self.moment(), branch.moment(), false)
    }

    /// When it was taken.
    pub fn created(&self) -> SystemTime {
        self.info.created.into()
    }

    /// The last operation before it was taken, as its place in the volume's history.
    pub fn lsn(&self) -> u64 {
        self.info.lsn.0
    }

    /// Files, directories and everything else in it.
    pub fn inodes(&self) -> u64 {
        self.info.inodes
    }

    /// What it is a copy of, if it was received: the snapshot that was sent, then those that this was a copy of.
    pub fn origins(&self) -> &[OriginItem] {
        &self.info.origins
    }

    /// Makes a branch out of it.
    pub fn fork(&self, name: &str) -> io::Result<Branch> {
        let of = self.number();
        let number = self.branch.reach(
            |fs, branch| fs.fork_of(name.as_bytes(), branch, Some(of.into())),
            |mount, branch| mount.fork(Some(TreeId::snapshot(branch, of)), name),
        )?;
        Branch::find(&self.branch.shared, number.into())
    }

    /// Opens it. It is only read: what changes anything answers EROFS. Opened through `.snapshots` of a mount, it may be deleted all the same,
    /// and goes on to be what it was until it is closed.
    ///
    /// # Errors
    /// `Unsupported` where the volume is mounted and no mount shows it.
    pub fn open(&self) -> io::Result<Volume> {
        if let Some(mount) = self.branch.shared.mount()? {
            let caller = self.branch.shared.caller();
            let what = TreeId::snapshot(self.branch.number, self.number());
            let there = mount.beside(what, &MountOptions::default(), caller)?;
            return Volume::through(there, caller.clone());
        }
        let fs = self.with(|fs, branch, of| fs.open_snapshot(branch, of, fs.options().clone()))?;
        Volume::over(fs, self.branch.shared.caller().clone())
    }

    /// As [`Snapshot::open`], and it may be deleted meanwhile: its space comes back behind that.
    pub fn view(&self) -> io::Result<Volume> {
        self.branch.takes_the_volume("a view", "the snapshot can be opened there")?;
        let fs = self.with(|fs, branch, of| fs.view(branch, Some(of.into())))?;
        Volume::over(fs, self.branch.shared.caller().clone())
    }

    /// Deletes it. Its space comes back in the background.
    ///
    /// # Errors
    /// `ResourceBusy` if it is held, or open in this process. Of a volume that is reached through a mount: if it is held or mounted; one that is
    /// open through `.snapshots` is deleted, and goes on to be what it was until it is closed.
    pub fn delete(self) -> io::Result<()> {
        let (branch, name) = self.asked();
        let ask = Ask::DeleteSnapshot { branch, name, number: None };
        self.done(|fs, branch, of| fs.delete_snapshot(branch, of), &ask)
    }

    /// Holds it under a tag, its holder: it is not deleted until each hold has been ended.
    ///
    /// # Errors
    /// `AlreadyExists` if it is held under this tag.
    pub fn hold(&self, tag: &str) -> io::Result<()> {
        let (branch, name) = self.asked();
        let ask = Ask::Hold { branch, name, tag: named(tag), held: true };
        self.done(|fs, branch, of| fs.hold(branch, of, tag.as_bytes()), &ask)
    }

    /// Ends the hold of a tag.
    ///
    /// # Errors
    /// `NotFound` if it is not held under this tag.
    pub fn unhold(&self, tag: &str) -> io::Result<()> {
        let (branch, name) = self.asked();
        let ask = Ask::Hold { branch, name, tag: named(tag), held: false };
        self.done(|fs, branch, of| fs.unhold(branch, of, tag.as_bytes()), &ask)
    }

    /// Gives it another name.
    pub fn rename(&mut self, name: &str) -> io::Result<()> {
        let (branch, of) = self.asked();
        let ask = Ask::RenameSnapshot { branch, name: of, new_name: named(name) };
        self.done(|fs, branch, of| fs.rename_snapshot(branch, of, name.as_bytes()), &ask)?;
        self.name = name.into();
        Ok(())
    }
}
