//! Branches and snapshots of a volume.
//!
//! ```
//! use holdfast::Volume;
//!
//! # fn main() -> std::io::Result<()> {
//! let volume = Volume::in_memory(64 << 20)?;
//! volume.write("/notes", b"as they were")?;
//! let main = volume.branch("main")?;
//! let before = main.snapshot("before")?;
//! volume.write("/notes", b"changed")?;
//!
//! // A snapshot is a volume that is only read.
//! assert_eq!(before.open()?.read("/notes")?, b"as they were");
//! // A fork is one that goes its own way.
//! let trial = before.fork("trial")?.open()?;
//! trial.write("/notes", b"tried")?;
//! assert_eq!(volume.read("/notes")?, b"changed");
//! trial.close()?;
//!
//! main.rollback_to(&before, Some("changed"))?;
//! assert_eq!(volume.read("/notes")?, b"as they were");
//! assert_eq!(main.snapshots()?.len(), 2);
//! volume.branch("trial")?.delete()?;
//! main.snapshot_named("changed")?.delete()?;
//! volume.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! Each call here is durable when it returns, and happens as a whole or not at all. Making and going back cost the same for an
//! empty volume and for ten million files; space of what is deleted comes back in the background.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use holdfast_format::item::lineage::MAIN;
use holdfast_posix::{BranchInfo, FileSystem, FsError, Moment, MountOptions, SnapshotInfo, Which};

use crate::diff::Diff;
use crate::held::Shared;
use crate::options::VolumeOptions;
use crate::volume::Volume;

/// A writable tree of files with a name. A new volume has one, `main`.
///
/// It goes on meaning the same branch, whatever its name is by then. Once the branch is deleted each call fails with `NotFound`, also if
/// there is another one of its name.
#[derive(Clone, Debug)]
pub struct Branch {
    shared: Arc<Shared>,
    name: String,
    number: u64,
}

/// The files of a branch at one moment. They never change.
///
/// It goes on meaning the same snapshot, as a [`Branch`] does.
#[derive(Clone, Debug)]
pub struct Snapshot {
    branch: Branch,
    info: SnapshotInfo,
    name: String,
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// What there is in a volume.
impl Volume {
    /// All branches, in the order in which they were made.
    pub fn branches(&self) -> io::Result<Vec<Branch>> {
        Branch::list(self.shared())
    }

    /// A branch. The one that a volume is made with is `main`.
    ///
    /// # Errors
    /// `NotFound` if there is none of this name.
    pub fn branch(&self, name: &str) -> io::Result<Branch> {
        Branch::find(self.shared(), name.as_bytes().into())
    }

    /// The branch that is open here; of a snapshot, the one that it was taken of.
    ///
    /// ```
    /// # use holdfast::Volume;
    /// # fn main() -> std::io::Result<()> {
    /// let volume = Volume::in_memory(64 << 20)?;
    /// assert_eq!(volume.branch_here()?.name(), "main");
    /// let trial = volume.create_branch("trial")?;
    /// assert_eq!(trial.open()?.branch_here()?.number(), trial.number());
    /// # Ok(())
    /// # }
    /// ```
    pub fn branch_here(&self) -> io::Result<Branch> {
        let number = self.shared().with_volume(FileSystem::branch_number)?;
        Branch::find(self.shared(), number.into())
    }

    /// The branch that the volume was made with, whatever its name is by now.
    pub fn first_branch(&self) -> io::Result<Branch> {
        Branch::find(self.shared(), MAIN.into())
    }

    /// Has forks that are promoted by branches of this handle promoted by `promote`: for a server, which tells others of it. It
    /// gets the numbers of branch and fork, the name for what the branch was, and whether that must be unchanged. The first stays.
    pub fn promote_by(
        &self,
        promote: impl Fn(&FileSystem, u64, u64, Option<&[u8]>, bool) -> io::Result<()>
        + Send
        + Sync
        + 'static,
    ) {
        self.shared().set_promote(Box::new(promote));
    }

    /// Makes a branch out of what is open here, as it is now: out of the branch, or the snapshot.
    ///
    /// # Errors
    /// `AlreadyExists` if there is one of this name.
    pub fn create_branch(&self, name: &str) -> io::Result<Branch> {
        let number = self.shared().with_volume(|fs| fs.fork(name.as_bytes(), None))?;
        Branch::find(self.shared(), number.into())
    }
}

impl Branch {
    fn new(shared: &Arc<Shared>, BranchInfo { name, number, .. }: BranchInfo) -> Branch {
        Branch { shared: Arc::clone(shared), name: text(&name), number }
    }

    fn find(shared: &Arc<Shared>, which: Which<'_>) -> io::Result<Branch> {
        let found = shared.with_volume(|fs| fs.find_branch(which))?;
        Ok(Branch::new(shared, found))
    }

    fn list(shared: &Arc<Shared>) -> io::Result<Vec<Branch>> {
        let all = shared.with_volume(FileSystem::branches)?.into_iter();
        Ok(all.map(|info| Branch::new(shared, info)).collect())
    }

    fn with<T>(
        &self,
        call: impl FnOnce(&FileSystem, u64) -> std::result::Result<T, FsError>,
    ) -> io::Result<T> {
        self.shared.with_volume(|fs| call(fs, self.number))
    }

    /// Its name, as it was when this was made or has renamed it. [`Volume::branches`] has the present ones.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number, which nothing else of the volume ever has.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The branch as it is now, to be compared with others ([`Volume::diff`]).
    pub fn moment(&self) -> Moment<'_> {
        Moment { branch: self.name.as_bytes(), snapshot: None }
    }

    /// Opens it, with the options of the volume that it was asked of. All volumes that are open together share one
    /// device: it is released when the last of them is closed.
    ///
    /// # Errors
    /// `ResourceBusy` if it is open in this process.
    pub fn open(&self) -> io::Result<Volume> {
        self.open_with_mount(None)
    }

    /// As [`Branch::open`], with options of its own, as far as they do not belong to the whole device.
    pub fn open_with(&self, options: &VolumeOptions) -> io::Result<Volume> {
        self.open_with_mount(Some(options))
    }

    fn open_with_mount(&self, options: Option<&VolumeOptions>) -> io::Result<Volume> {
        let caller = options.map_or_else(|| self.shared.caller().clone(), |of| of.caller.clone());
        let fs = self.with(|fs, number| {
            // Out of a snapshot that is open as well: whether it is written is the whole volume's matter.
            let usual = || MountOptions { read_only: false, ..fs.options().clone() };
            let mount = options.map_or_else(usual, |of| of.mount.clone());
            fs.open_branch(number, mount)
        })?;
        Volume::over(fs, caller)
    }

    /// Opens it as it is at this moment, whether it is open or not, to be read: with each write that had returned. Nothing is in
    /// its way, not even the deletion of the branch. A snapshot without a name is taken for that, which goes with the volume.
    ///
    /// ```
    /// # use holdfast::Volume;
    /// # fn main() -> std::io::Result<()> {
    /// let volume = Volume::in_memory(64 << 20)?;
    /// volume.write("/notes", b"one")?;
    /// let was = volume.branch("main")?.view()?;
    /// volume.write("/notes", b"two")?;
    /// assert_eq!(was.read("/notes")?, b"one");
    /// assert_eq!(volume.diff_from(&was, false)?.count(), 1);
    /// was.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn view(&self) -> io::Result<Volume> {
        let fs = self.with(|fs, branch| fs.view(branch, None))?;
        Volume::over(fs, self.shared.caller().clone())
    }

    /// Takes a snapshot of it, whether it is open or not. It shows each write that had returned.
    ///
    /// # Errors
    /// `AlreadyExists` if the branch has one of this name.
    pub fn snapshot(&self, name: &str) -> io::Result<Snapshot> {
        let number = self.with(|fs, branch| fs.snapshot_of(branch, name.as_bytes()))?;
        self.find_snapshot(number.into())
    }

    /// Its snapshots, in the order in which they were taken.
    pub fn snapshots(&self) -> io::Result<Vec<Snapshot>> {
        let all = self.with(|fs, branch| fs.snapshots_of(branch))?.into_iter();
        Ok(all.filter(|info| !info.name.is_empty()).map(|info| self.with_info(info)).collect())
    }

    fn with_info(&self, info: SnapshotInfo) -> Snapshot {
        Snapshot { branch: self.clone(), name: text(&info.name), info }
    }

    /// One of its snapshots.
    ///
    /// # Errors
    /// `NotFound` if it has none of this name.
    pub fn snapshot_named(&self, name: &str) -> io::Result<Snapshot> {
        self.find_snapshot(name.as_bytes().into())
    }

    fn find_snapshot(&self, which: Which<'_>) -> io::Result<Snapshot> {
        let found = self.with(|fs, branch| fs.find_snapshot(branch, which))?;
        Ok(self.with_info(found))
    }

    /// Makes another branch out of it, as it is now, whether it is open or not.
    pub fn fork(&self, name: &str) -> io::Result<Branch> {
        let number = self.with(|fs, branch| fs.fork_of(name.as_bytes(), branch, None))?;
        Branch::find(&self.shared, number.into())
    }

    /// Takes it back to one of its snapshots. What it was is kept as a snapshot of the name `keep`, or deleted.
    ///
    /// Where it is open, files that are open go on with what the snapshot has of them; those that it does not have answer
    /// ESTALE.
    pub fn rollback_to(&self, to: &Snapshot, keep: Option<&str>) -> io::Result<()> {
        if to.branch.number != self.number {
            let why = format!("`{}` is no snapshot of `{}`", to.name, self.name);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let keep = keep.map(str::as_bytes);
        self.with(|fs, branch| fs.rollback_of(branch, to.number(), keep))
    }

    /// Makes it what `fork` is, in one step: after a crash it is what it was, or what the fork is, and never half of both. The
    /// fork is no branch of its own any more, and its snapshots are this one's. What it was is kept as a snapshot of the name
    /// `keep`, or deleted. Where it is open, this is as [`Branch::rollback_to`].
    ///
    /// ```
    /// # use holdfast::Volume;
    /// # fn main() -> std::io::Result<()> {
    /// let volume = Volume::in_memory(64 << 20)?;
    /// let main = volume.branch("main")?;
    /// let attempt = main.fork("attempt")?;
    /// attempt.open()?.write("/notes", b"it worked")?;
    /// main.promote(attempt, None)?;
    /// assert_eq!(volume.read("/notes")?, b"it worked");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `WouldBlock` if it has changed since the fork was made: nothing has happened, and [`Branch::replace_by`] does it all
    /// the same. `ResourceBusy` if the fork is open; `AlreadyExists` if both have a snapshot of one name.
    pub fn promote(&self, fork: Branch, keep: Option<&str>) -> io::Result<()> {
        self.become_fork(&fork, keep, true)
    }

    /// As [`Branch::promote`], whatever has changed since the fork was made.
    pub fn replace_by(&self, fork: Branch, keep: Option<&str>) -> io::Result<()> {
        self.become_fork(&fork, keep, false)
    }

    fn become_fork(&self, fork: &Branch, keep: Option<&str>, unchanged: bool) -> io::Result<()> {
        self.shared.promote(self.number, fork.number, keep.map(str::as_bytes), unchanged)
    }

    /// Deletes it and its snapshots.
    ///
    /// # Errors
    /// `ResourceBusy` if it or one of its snapshots is open in this process, or if another branch has grown out of one of
    /// them: the sentence says which.
    pub fn delete(self) -> io::Result<()> {
        self.with(|fs, branch| fs.delete_branch(branch))
    }

    /// Limits the blocks of 4 KiB that it refers to; `None`: no limit. They are those of its tree and of the data of its
    /// files, also where it shares them. What would make it refer to more fails with
    /// [`QuotaExceeded`](io::ErrorKind::QuotaExceeded); what removes, shrinks, renames or overwrites does not. What it refers
    /// to by now stays.
    pub fn limit(&self, blocks: Option<u64>) -> io::Result<()> {
        self.with(|fs, branch| fs.limit(branch, blocks))
    }

    /// Gives it another name.
    pub fn rename(&mut self, name: &str) -> io::Result<()> {
        self.with(|fs, branch| fs.rename_branch(branch, name.as_bytes()))?;
        self.name = name.into();
        Ok(())
    }
}

impl Snapshot {
    fn with<T>(
        &self,
        call: impl FnOnce(&FileSystem, u64, u64) -> std::result::Result<T, FsError>,
    ) -> io::Result<T> {
        self.branch.with(|fs, branch| call(fs, branch, self.number()))
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

    /// Makes a branch out of it.
    pub fn fork(&self, name: &str) -> io::Result<Branch> {
        let number =
            self.with(|fs, branch, from| fs.fork_of(name.as_bytes(), branch, Some(from.into())))?;
        Branch::find(&self.branch.shared, number.into())
    }

    /// Opens it. It is only read: what changes anything answers EROFS.
    pub fn open(&self) -> io::Result<Volume> {
        let fs = self.with(|fs, branch, of| fs.open_snapshot(branch, of, fs.options().clone()))?;
        Volume::over(fs, self.branch.shared.caller().clone())
    }

    /// As [`Snapshot::open`], and it may be deleted meanwhile: its space comes back behind that.
    pub fn view(&self) -> io::Result<Volume> {
        let fs = self.with(|fs, branch, of| fs.view(branch, Some(of.into())))?;
        Volume::over(fs, self.branch.shared.caller().clone())
    }

    /// Deletes it. Its space comes back in the background.
    ///
    /// # Errors
    /// `ResourceBusy` if it is held, or open in this process.
    pub fn delete(self) -> io::Result<()> {
        self.with(|fs, branch, of| fs.delete_snapshot(branch, of))
    }

    /// Holds it: it is not deleted until as many [`Snapshot::unhold`] have followed, by whomever.
    pub fn hold(&self) -> io::Result<()> {
        self.with(|fs, branch, of| fs.hold(branch, of))
    }

    /// Ends one hold.
    pub fn unhold(&self) -> io::Result<()> {
        self.with(|fs, branch, of| fs.unhold(branch, of))
    }

    /// Gives it another name.
    pub fn rename(&mut self, name: &str) -> io::Result<()> {
        self.with(|fs, branch, from| fs.rename_snapshot(branch, from, name.as_bytes()))?;
        self.name = name.into();
        Ok(())
    }
}
