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
use std::time::Duration;

use holdfast_base::InodeNo;
use holdfast_base::clock::Stopwatch;
use holdfast_base::counters::Reading;
use holdfast_device::Device;
use holdfast_posix::{Caller, FileSystem};
use parking_lot::RwLock;

use crate::dir::Dir;
use crate::error::{Errno, Result, volume_error};
use crate::options::{CreateOptions, VolumeOptions};
use crate::path::Call;

/// How long `close` waits for others that borrowed the engine (a FUSE server's last threads).
const BORROWERS_WAIT: Duration = Duration::from_secs(10);

/// What every handle of a volume shares. `None` once closed.
#[derive(Debug)]
pub(crate) struct Shared {
    fs: RwLock<Option<Arc<FileSystem>>>,
    caller: Caller,
}

impl Shared {
    /// Carries out a call, or says EBADF when the volume is closed.
    pub(crate) fn with<T>(&self, call: impl FnOnce(Call<'_>) -> Result<T>) -> io::Result<T> {
        // Recursive, because a visitor of one call may make another while a close waits.
        let fs = self.fs.read_recursive();
        let fs = fs.as_ref().ok_or(Errno(libc::EBADF))?;
        Ok(call(Call { fs, caller: &self.caller })?)
    }
}

/// An inode that lives as long as this, whatever happens to its names.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) shared: Arc<Shared>,
    pub(crate) inode: InodeNo,
}

impl Held {
    pub(crate) fn new(shared: Arc<Shared>, inode: InodeNo) -> io::Result<Arc<Held>> {
        shared.with(|call| {
            call.fs.remember(inode, 1);
            Ok(())
        })?;
        Ok(Arc::new(Held { shared, inode }))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A closed volume has forgotten everything already.
        let _ = self.shared.with(|call| {
            call.fs.forget(self.inode, 1);
            Ok(())
        });
    }
}

/// An open volume: the root directory, and the engine behind it. `Send` and `Sync`; every call may be made
/// from many threads at once.
///
/// No other opening is possible meanwhile: the device is locked, and the error names the process that holds it.
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
    /// Makes a file of `size` bytes, an empty volume in it, and opens it. The file must not exist.
    /// [`CreateOptions`] decides more.
    pub fn create(path: impl AsRef<Path>, size: u64) -> io::Result<Volume> {
        CreateOptions::new().size(size).create(path)
    }

    /// Opens a volume with the default [`VolumeOptions`]. After a crash this recovers it first: all
    /// promises hold again when it returns (P1 to P5, P9), in time bounded by the rings.
    ///
    /// # Errors
    /// `NotFound`; `ResourceBusy` if it is in use, with the holder's name; `InvalidData` if it is no volume
    /// or damaged (P10).
    pub fn open(path: impl AsRef<Path>) -> io::Result<Volume> {
        VolumeOptions::new().open(path)
    }

    /// An empty volume of `size` bytes in memory, for tests and examples. It is gone when it is closed.
    pub fn in_memory(size: u64) -> io::Result<Volume> {
        let device: Arc<dyn Device> = Arc::new(holdfast_device::MemoryDevice::new(size));
        CreateOptions::new().format(&device)?;
        VolumeOptions::new().open_device(device)
    }

    pub(crate) fn start(
        device: Arc<dyn Device>,
        options: holdfast_posix::MountOptions,
        caller: Caller,
    ) -> io::Result<Volume> {
        let fs = FileSystem::mount(device, options).map_err(volume_error)?;
        let shared = Arc::new(Shared { fs: RwLock::new(Some(Arc::new(fs))), caller });
        Ok(Volume { root: Dir::new(Held::new(shared, InodeNo::ROOT)?) })
    }

    /// Everything that any caller did before this call is durable when it returns (P1 to P3).
    pub fn sync(&self) -> io::Result<()> {
        self.shared().with(|call| Ok(call.fs.sync().map(drop)?))
    }

    /// As [`Volume::sync`], by a commit, which the background makes anyway, after six times `commit_secs` at the
    /// latest: it leaves the fsync log empty, and makes space usable that was freed.
    pub fn commit(&self) -> io::Result<()> {
        self.shared().with(|call| Ok(call.fs.commit()?))
    }

    /// How full the volume is.
    pub fn statfs(&self) -> io::Result<holdfast_posix::StatFs> {
        self.shared().with(|call| Ok(call.fs.statfs()))
    }

    /// What the volume is: id, label, sizes.
    pub fn info(&self) -> io::Result<VolumeInfo> {
        self.shared().with(|call| {
            let superblock = call.fs.superblock();
            Ok(VolumeInfo {
                uuid: *superblock.uuid.as_bytes(),
                label: superblock.label,
                size: superblock.geometry.volume_blocks * holdfast_base::units::BLOCK_BYTES,
                node_size: superblock.geometry.node_size,
            })
        })
    }

    /// Every statistic since the volume was opened. Those of the group `recovery` tell whether opening it
    /// needed a recovery, what that took, and what the next would take.
    pub fn counters(&self) -> io::Result<Vec<Reading>> {
        self.shared().with(|call| Ok(call.fs.counters().list()))
    }

    /// Why the volume turned read-only, if a write or flush failed (P7). It stays so until it is opened again.
    pub fn stop_reason(&self) -> Option<String> {
        self.shared().with(|call| Ok(call.fs.stop_reason())).ok().flatten()
    }

    /// The engine, for other users of the same volume: a FUSE server speaks inodes, not paths.
    /// It must be dropped before [`Volume::close`] can finish.
    pub fn engine(&self) -> io::Result<Arc<FileSystem>> {
        let fs = self.shared().fs.read();
        Ok(fs.as_ref().ok_or(Errno(libc::EBADF))?.clone())
    }

    /// Makes everything durable, ends the engine's threads and releases the device.
    ///
    /// # Errors
    /// What could not be made durable is lost if this fails; what was fsynced before is not (P1).
    /// `ResourceBusy` if [`Volume::engine`] is still held after ten seconds: everything is durable
    /// then, but the device stays locked.
    pub fn close(self) -> io::Result<()> {
        self.root.held().shared.close()
    }

    /// Forgets the volume as a power cut would: nothing more is written, and what was not durable is lost
    /// (P3 says what remains). For tests of programs that must survive a crash.
    pub fn abandon(self) {
        drop(self.shared().fs.write().take());
    }

    fn shared(&self) -> &Shared {
        &self.root.held().shared
    }
}

impl Shared {
    fn close(&self) -> io::Result<()> {
        let Some(mut fs) = self.fs.write().take() else {
            return Ok(());
        };
        let waited = Stopwatch::start();
        loop {
            match Arc::try_unwrap(fs) {
                Ok(fs) => return fs.unmount().map_err(volume_error),
                Err(borrowed) if waited.elapsed() >= BORROWERS_WAIT => {
                    borrowed.sync().map_err(volume_error)?;
                    return Err(io::Error::new(
                        io::ErrorKind::ResourceBusy,
                        "the volume's engine is still in use elsewhere in this process",
                    ));
                }
                Err(borrowed) => {
                    fs = borrowed;
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
        }
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
