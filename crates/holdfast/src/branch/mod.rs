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
//!
//! Of a volume that is reached through a mount ([`Volume::mounted_at`]) the daemon is asked, which obeys root and the user who has mounted
//! (`PermissionDenied` for others): for lists, snapshots, forks, rollbacks, promotions, other names, holds, limits and deletions, with the same errors. What others have
//! stored into mappings of files may come later than a snapshot, and what the kernel remembers of a branch that was rolled back may be shown for
//! a while where it cannot forget it at once. [`Branch::open`] and [`Snapshot::open`] go through
//! a mount that shows what is wanted, [`Snapshot::open`] also through `.snapshots` of one of its branch. What takes the engine is `Unsupported`
//! there, with a sentence that names the command: views and differences.
//! Each call waits for the daemon without an end, also for one that is stopped, and a signal does not interrupt it.

use std::io;
use std::sync::Arc;

use holdfast_control::{Ask, Name};
use holdfast_format::item::lineage::MAIN;
use holdfast_posix::{FileSystem, FsError, Moment, MountOptions, SnapshotInfo, Which};

use crate::handle::Shared;
use crate::mounted::{Mount, TreeId, nonsense};
use crate::options::VolumeOptions;
use crate::volume::Volume;

mod snapshot;

pub use snapshot::Snapshot;

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

fn named(name: &str) -> Name {
    Name(name.into())
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// What there is in a volume.
impl Volume {
    /// All branches, in the order in which they were made.
    pub fn branches(&self) -> io::Result<Vec<Branch>> {
        let shared = self.shared();
        let of = |name: Vec<u8>, number| Branch::new(shared, &name, number);
        match shared.mount()? {
            None => {
                let all = shared.with_volume(FileSystem::branches)?.into_iter();
                Ok(all.map(|info| of(info.name, info.number)).collect())
            }
            Some(mount) => {
                let all = mount.branches()?.into_iter();
                Ok(all.map(|info| of(info.name.0, info.number)).collect())
            }
        }
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
        let number = match self.shared().mount()? {
            None => self.shared().with_volume(FileSystem::branch_number)?,
            Some(mount) => mount.branch_here(),
        };
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
        let shared = self.shared();
        let number = match shared.mount()? {
            None => shared.with_volume(|fs| fs.fork(name.as_bytes(), None))?,
            Some(mount) => mount.fork(None, name)?,
        };
        Branch::find(shared, number.into())
    }
}

impl Branch {
    fn new(shared: &Arc<Shared>, name: &[u8], number: u64) -> Branch {
        Branch { shared: Arc::clone(shared), name: text(name), number }
    }

    fn find(shared: &Arc<Shared>, which: Which<'_>) -> io::Result<Branch> {
        match shared.mount()? {
            None => {
                let found = shared.with_volume(|fs| fs.find_branch(which))?;
                Ok(Branch::new(shared, &found.name, found.number))
            }
            Some(mount) => {
                let found = mount.find_branch(which)?;
                Ok(Branch::new(shared, found.name.bytes(), found.number))
            }
        }
    }

    /// Carries out a call by the engine, or asks the daemon of the mount for it: of the branch of this number.
    fn reach<T>(
        &self,
        engine: impl FnOnce(&FileSystem, u64) -> std::result::Result<T, FsError>,
        mounted: impl FnOnce(&Arc<Mount>, u64) -> io::Result<T>,
    ) -> io::Result<T> {
        match self.shared.mount()? {
            None => self.with(engine),
            Some(mount) => mounted(&mount, self.number),
        }
    }

    /// Carries out a call by the engine, or has the daemon of the mount do what is asked.
    fn done(
        &self,
        engine: impl FnOnce(&FileSystem, u64) -> std::result::Result<(), FsError>,
        ask: &Ask,
    ) -> io::Result<()> {
        self.reach(engine, |mount, _| mount.done(ask).map(drop))
    }

    /// As [`Shared::takes_the_volume`].
    fn takes_the_volume(&self, what: &str, command: &str) -> io::Result<()> {
        self.shared.takes_the_volume(what, command)
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
    /// device: it is released when the last of them is closed. Through a mount it is one more handle of the mount that shows it.
    ///
    /// # Errors
    /// `ResourceBusy` if it is open in this process; `Unsupported` where the volume is mounted and no mount shows it.
    pub fn open(&self) -> io::Result<Volume> {
        self.open_with_mount(None)
    }

    /// As [`Branch::open`], with options of its own, as far as they do not belong to the whole device.
    pub fn open_with(&self, options: &VolumeOptions) -> io::Result<Volume> {
        self.open_with_mount(Some(options))
    }

    fn open_with_mount(&self, options: Option<&VolumeOptions>) -> io::Result<Volume> {
        let caller = options.map_or_else(|| self.shared.caller().clone(), |of| of.caller.clone());
        if let Some(mount) = self.shared.mount()? {
            let options = options.map_or_else(MountOptions::default, |of| of.mount.clone());
            let there = mount.beside(TreeId::branch(self.number), &options, &caller)?;
            return Volume::through(there, caller);
        }
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
        self.takes_the_volume("a view", "a snapshot can be opened there, or `holdfast cp` copies")?;
        let fs = self.with(|fs, branch| fs.view(branch, None))?;
        Volume::over(fs, self.shared.caller().clone())
    }

    /// Takes a snapshot of it, whether it is open or not. It shows each write that had returned.
    ///
    /// # Errors
    /// `AlreadyExists` if the branch has one of this name.
    pub fn snapshot(&self, name: &str) -> io::Result<Snapshot> {
        let taken = self.reach(
            |fs, branch| {
                let number = fs.snapshot_of(branch, name.as_bytes())?;
                fs.find_snapshot(branch, number)
            },
            |mount, branch| {
                let ask = Ask::Take { branch: Some(branch.into()), name: named(name) };
                let number = mount.done(&ask)?.ok_or_else(nonsense)?;
                mount.find_snapshot(branch, number.into())
            },
        )?;
        Ok(self.with_info(taken))
    }

    /// Its snapshots, in the order in which they were taken.
    pub fn snapshots(&self) -> io::Result<Vec<Snapshot>> {
        let all = self.reach(
            |fs, branch| fs.snapshots_of(branch),
            |mount, branch| mount.snapshots_of(branch),
        )?;
        let all = all.into_iter();
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
        let found = self.reach(
            |fs, branch| fs.find_snapshot(branch, which),
            |mount, branch| mount.find_snapshot(branch, which),
        )?;
        Ok(self.with_info(found))
    }

    /// Makes another branch out of it, as it is now, whether it is open or not.
    pub fn fork(&self, name: &str) -> io::Result<Branch> {
        let number = self.reach(
            |fs, branch| fs.fork_of(name.as_bytes(), branch, None),
            |mount, branch| mount.fork(Some(TreeId::branch(branch)), name),
        )?;
        Branch::find(&self.shared, number.into())
    }

    /// Takes it back to one of its snapshots. What it was is kept as a snapshot of the name `keep`, or deleted.
    ///
    /// Where it is open, files that are open go on with what the snapshot has of them; those that it does not have answer
    /// ESTALE.
    ///
    /// # Errors
    /// `InvalidInput` if `to` is a snapshot of another branch, or of another volume.
    pub fn rollback_to(&self, to: &Snapshot, keep: Option<&str>) -> io::Result<()> {
        self.shared.expect_volume_of(&to.branch.shared)?;
        if to.branch.number != self.number {
            let why = format!("`{}` is no snapshot of `{}`", to.name, self.name);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let (to, branch) = (to.number(), Some(self.number.into()));
        let ask = Ask::RollBack { branch, to: to.into(), keep: keep.map(named) };
        self.reach(
            |fs, branch| fs.rollback_of(branch, to, keep.map(str::as_bytes)),
            |mount, _| mount.give_head(&ask),
        )
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
    /// the same. `ResourceBusy` if the fork is open; `AlreadyExists` if both have a snapshot of one name; `InvalidInput` if it is a branch of
    /// another volume.
    pub fn promote(&self, fork: Branch, keep: Option<&str>) -> io::Result<()> {
        self.become_fork(&fork, keep, true)
    }

    /// As [`Branch::promote`], whatever has changed since the fork was made.
    pub fn replace_by(&self, fork: Branch, keep: Option<&str>) -> io::Result<()> {
        self.become_fork(&fork, keep, false)
    }

    fn become_fork(&self, fork: &Branch, keep: Option<&str>, unchanged: bool) -> io::Result<()> {
        self.shared.expect_volume_of(&fork.shared)?;
        match self.shared.mount()? {
            Some(mount) => {
                let (branch, fork) = (Some(self.number.into()), fork.number.into());
                let keep = keep.map(named);
                mount.give_head(&Ask::Promote { branch, fork, keep, unchanged })
            }
            None => {
                self.shared.promote(self.number, fork.number, keep.map(str::as_bytes), unchanged)
            }
        }
    }

    /// Deletes it and its snapshots.
    ///
    /// # Errors
    /// `ResourceBusy` if it or one of its snapshots is open in this process, or mounted where the volume is, or if another branch has grown out of
    /// one of them: the sentence says which.
    pub fn delete(self) -> io::Result<()> {
        let ask = Ask::DeleteBranch { name: self.number.into(), number: None };
        self.done(|fs, branch| fs.delete_branch(branch), &ask)
    }

    /// Limits the blocks of 4 KiB that it refers to; `None`: no limit. They are those of its tree and of the data of its
    /// files, also where it shares them. What would make it refer to more fails with
    /// [`QuotaExceeded`](io::ErrorKind::QuotaExceeded); what removes, shrinks, renames or overwrites does not. What it refers
    /// to by now stays.
    pub fn limit(&self, blocks: Option<u64>) -> io::Result<()> {
        let ask = Ask::LimitBranch { name: self.number.into(), blocks };
        self.done(|fs, branch| fs.limit(branch, blocks), &ask)
    }

    /// Gives it another name.
    pub fn rename(&mut self, name: &str) -> io::Result<()> {
        let ask = Ask::RenameBranch { name: self.number.into(), new_name: named(name) };
        self.done(|fs, branch| fs.rename_branch(branch, name.as_bytes()), &ask)?;
        self.name = name.into();
        Ok(())
    }
}
