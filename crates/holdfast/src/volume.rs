//! A volume that is open in this process, from `open` to `close`.
//!
//! A [`Volume`] is its root directory (it derefs to [`Dir`]) and its life:
//! `close` makes everything durable and says whether that worked, `abandon`
//! forgets it the way a power cut would, and dropping is a `close` whose
//! result is lost. Files and directories that are still held afterwards
//! answer EBADF; they never keep a volume open by accident.

use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_base::counters::Reading;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_device::Device;
use holdfast_format::Superblock;
use holdfast_posix::{Caller, FileSystem, NewSize, ScrubListener, Trimmed};

use crate::dir::Dir;
use crate::error::volume_error;
use crate::handle::{Held, Shared};
use crate::mounted::{Directory, Mount, MountView};
use crate::path::Call;

/// An open volume: the root directory, and the engine behind it. `Send` and `Sync`; every call may be made
/// from many threads at once.
///
/// A volume is opened at one of its branches, mostly `main`, or at a snapshot ([`VolumeOptions::branch`]); others are opened
/// beside it by [`Branch::open`][crate::Branch::open] and [`Snapshot::open`]. No other opening is possible meanwhile: the device is locked, and the
/// error names the process that holds it. But a volume that a daemon has mounted is opened through its mount, by any number of programs
/// ([`VolumeOptions::through_mount`](crate::VolumeOptions::through_mount)).
///
/// [`VolumeOptions::branch`]: crate::VolumeOptions::branch
/// [`Snapshot::open`]: crate::Snapshot::open
#[derive(Debug)]
pub struct Volume {
    root: Dir,
}

impl Deref for Volume {
    type Target = Dir;

    fn deref(&self) -> &Dir {
        &self.root
    }
}

impl Volume {
    pub(crate) fn start(
        device: Arc<dyn Device>,
        options: holdfast_posix::MountOptions,
        caller: Caller,
    ) -> io::Result<Volume> {
        Volume::over(FileSystem::mount(device, options).map_err(volume_error)?, caller)
    }

    pub(crate) fn over(fs: FileSystem, caller: Caller) -> io::Result<Volume> {
        let shared = Arc::new(Shared::new(fs, caller));
        Ok(Volume { root: Dir::new(Held::new(shared, InodeNo::ROOT)?) })
    }

    /// What is mounted, by its root.
    pub(crate) fn through(mount: Mount, caller: Caller) -> io::Result<Volume> {
        let mount = Arc::new(mount);
        let root = Directory::root(&mount)?;
        let shared = Arc::new(Shared::mounted(mount, caller));
        Ok(Volume { root: Dir::new(Held::in_mount(shared, root)) })
    }

    /// Where the volume is mounted, if it is reached through a mount; `None` if it is open in this process.
    pub fn mounted_at(&self) -> Option<&Path> {
        self.root.held().there.as_ref().map(|there| there.mount().dir())
    }

    /// Everything that any caller did in the volume before this call, in any of its branches, is durable when it returns (P1 to P3).
    pub fn sync(&self) -> io::Result<()> {
        self.sync_volume()
    }

    /// As [`Volume::sync`], by a commit, which the background makes anyway, after six times `commit_secs` at the
    /// latest: it leaves the fsync log empty, and makes space usable that was freed.
    pub fn commit(&self) -> io::Result<()> {
        self.shared().takes_the_volume("a commit", "`holdfast sync` makes everything durable")?;
        self.shared().with(|call| Ok(call.fs.commit()?))
    }

    /// Gives all free space in ranges of `least` bytes or more back to the device, or to the host of an image: what
    /// [`VolumeOptions::discard`](crate::VolumeOptions::discard) does by itself with what became free, for everything. `progress` hears
    /// how far it is, behind each 128 MiB, and says whether to go on. Other calls go on beside it.
    ///
    /// # Errors
    /// `Unsupported`: the device takes no discards. The volume is what it was, whatever failed.
    pub fn trim(&self, least: u64, progress: impl FnMut(&Trimmed) -> bool) -> io::Result<Trimmed> {
        self.shared().takes_the_volume("a trim", "`holdfast trim` does it there")?;
        self.shared().with(|call| Ok(call.fs.trim(least, progress)?))
    }

    /// Reads everything that is in use from the device and judges it: superblocks, nodes and data of all branches and snapshots, each
    /// once, as it was when the scrub began. Other calls go on beside it. `from` is [`Scrub::to_bytes`](crate::Scrub::to_bytes) of a scrub that the listener has
    /// stopped. Superblocks that are damaged are written anew, all else is told to the listener, and the next superblock says that something was found damaged.
    /// Returns whether it came to its end. It keeps 32 KiB in memory for each GiB in use.
    ///
    /// # Errors
    /// A scrub of the volume is under way, or the device does not answer.
    pub fn scrub(&self, from: Option<&[u8]>, listener: &mut dyn ScrubListener) -> io::Result<bool> {
        self.shared().takes_the_volume("a scrub", "`holdfast scrub` does it there")?;
        self.shared().with_volume(|fs| fs.scrub(from, listener))
    }

    /// How full the volume is.
    pub fn statfs(&self) -> io::Result<holdfast_posix::StatFs> {
        self.root.held().reach(|call| Ok(call.fs.statfs()), |there| there.mount().statfs())
    }

    /// What the volume is: id, label, sizes; through a mount as it was when this was opened.
    pub fn info(&self) -> io::Result<VolumeInfo> {
        let held = self.root.held();
        let by_engine = |call: Call<'_>| Ok(VolumeInfo::of(call.fs.superblock()));
        held.reach(by_engine, |there| Ok(VolumeInfo::shown(there.mount().shown())))
    }

    /// Makes the volume larger while it is used, and what holds it before, where that is too short: an image file, which takes no more
    /// of its host than a part of the new space that a volume keeps for removals. Returns the bytes that it has then; they can be used at once,
    /// and are there after any crash. Power that fails meanwhile leaves the size of before or the new one, and nothing else.
    ///
    /// ```
    /// use holdfast::{NewSize, Volume};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("holdfast-resize-{}", std::process::id()));
    /// let volume = Volume::create_new(&dir, 64 << 20)?;
    /// assert_eq!(volume.resize(NewSize::More(64 << 20))?, 128 << 20);
    /// volume.close()?;
    /// # std::fs::remove_file(dir)
    /// # }
    /// ```
    ///
    /// # Errors
    /// A sentence, and the volume as it was: the size is less than now, or more than the format allows or than what holds the volume can
    /// have; or the host has no room for the part that is kept. Those of a volume that is read-only or has stopped (P7).
    pub fn resize(&self, to: NewSize) -> io::Result<u64> {
        self.shared().takes_the_volume("another size", "`holdfast resize` gives it that there")?;
        self.shared().with_volume(|fs| fs.resize(to))
    }

    /// Gives the volume another id or label, at most 64 bytes, in both superblocks. After a crash meanwhile it has the old ones or the
    /// new ones.
    pub fn set_identity(&self, uuid: Option<[u8; 16]>, label: Option<&str>) -> io::Result<()> {
        self.shared()
            .takes_the_volume("another id or label", "`holdfast tune` gives it that there")?;
        self.shared().with_volume(|fs| fs.set_identity(uuid, label))
    }

    /// Every statistic since the volume was opened. Those of the group `recovery` tell whether opening it
    /// needed a recovery, what that took, and what the next would take.
    pub fn counters(&self) -> io::Result<Vec<Reading>> {
        self.shared().takes_the_volume("a statistic", "`holdfast stats` shows them")?;
        self.shared().with(|call| Ok(call.fs.counters().list()))
    }

    /// Why the volume turned read-only, if a write or flush failed (P7). It stays so until it is opened again.
    /// `None` through a mount, where `holdfast info` says it and each write answers EROFS or EIO.
    pub fn stop_reason(&self) -> Option<String> {
        self.shared().with(|call| Ok(call.fs.stop_reason())).ok().flatten()
    }

    /// What is missing of the last state, as a sentence: something that was durable is damaged or gone, and the volume was opened to be read.
    /// `None` through a mount, where `holdfast info` says it.
    pub fn missing(&self) -> Option<String> {
        self.shared().with(|call| Ok(call.fs.missing().map(str::to_owned))).ok().flatten()
    }

    /// The engine, for other users of the same volume: a FUSE server speaks inodes, not paths.
    /// It must be dropped before [`Volume::close`] can finish.
    pub fn engine(&self) -> io::Result<Arc<FileSystem>> {
        self.shared().takes_the_volume("the engine", "it is in the daemon")?;
        self.shared().engine()
    }

    /// Makes everything durable, ends the engine's threads and releases the device. Of a volume that is reached through a mount only this
    /// handle is closed: what was not synced is as durable as the daemon makes it (P11). Files and directories of it that are still held answer
    /// EBADF, and keep the mount in use until they are dropped.
    ///
    /// # Errors
    /// What could not be made durable is lost if this fails; what was fsynced before is not (P1).
    /// `ResourceBusy` if [`Volume::engine`] is still held after ten seconds: everything is durable
    /// then, but the device stays locked.
    pub fn close(self) -> io::Result<()> {
        self.root.held().shared.close()
    }

    /// Forgets the volume as a power cut would: nothing more is written, and what was not durable is lost
    /// (P3 says what remains). For tests of programs that must survive a crash. Through a mount this is [`Volume::close`].
    pub fn abandon(self) {
        self.shared().abandon();
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.root.held().shared
    }
}

impl Drop for Volume {
    /// Closes the volume if that was not done; a failure is lost, so call [`Volume::close`] where it matters.
    fn drop(&mut self) {
        let _ = self.shared().close();
    }
}

/// What a volume is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Its id.
    pub uuid: [u8; 16],
    /// Its label, possibly empty.
    pub label: String,
    /// Bytes of the volume, everything included.
    pub size: u64,
    /// Bytes of a tree node.
    pub node_size: usize,
}

impl VolumeInfo {
    fn shown(shown: &MountView) -> VolumeInfo {
        let MountView { uuid, label, size, node_size, .. } = shown.clone();
        VolumeInfo { uuid, label, size, node_size }
    }

    pub(crate) fn of(superblock: Superblock) -> VolumeInfo {
        VolumeInfo {
            uuid: *superblock.uuid.as_bytes(),
            label: superblock.label,
            // An opening has judged it.
            size: superblock.geometry.volume_blocks * BLOCK_BYTES,
            node_size: superblock.geometry.node_size,
        }
    }
}
