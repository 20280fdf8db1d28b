//! What every handle of a volume shares: the engine, or the mount through which the volume is reached, until it is closed; and inodes
//! that are held.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use holdfast_base::InodeNo;
use holdfast_base::clock::Stopwatch;
use holdfast_posix::{Caller, FileSystem, FsError};
use parking_lot::RwLock;

use crate::error::{Errno, Result, volume_error};
use crate::locks::Locks;
use crate::mounted::{Directory, Mount};
use crate::path::Call;

/// How long `close` waits for others that borrowed the engine (a FUSE server's last threads).
const BORROWERS_WAIT: Duration = Duration::from_secs(10);

/// Has a branch become what a fork is, both by their numbers, see [`FileSystem::promote`]: the name for what it was, and whether it
/// must be unchanged.
type Promote = dyn Fn(&FileSystem, u64, u64, Option<&[u8]>, bool) -> io::Result<()> + Send + Sync;

/// How an open volume is reached.
#[derive(Debug)]
enum Reach {
    /// It is in this process.
    Engine(Arc<FileSystem>),
    /// A daemon has it.
    Mounted(Arc<Mount>),
}

/// What every handle of a volume shares. `None` once closed.
pub(crate) struct Shared {
    reach: RwLock<Option<Reach>>,
    caller: Caller,
    promote: OnceLock<Box<Promote>>,
    pub(crate) locks: Locks,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("reach", &self.reach).finish_non_exhaustive()
    }
}

impl Shared {
    /// What the handles of an engine share.
    pub(crate) fn new(fs: FileSystem, caller: Caller) -> Shared {
        Shared::by(Reach::Engine(Arc::new(fs)), caller)
    }

    /// What the handles of a mount share.
    pub(crate) fn mounted(mount: Arc<Mount>, caller: Caller) -> Shared {
        Shared::by(Reach::Mounted(mount), caller)
    }

    fn by(reach: Reach, caller: Caller) -> Shared {
        Shared {
            reach: RwLock::new(Some(reach)),
            caller,
            promote: OnceLock::new(),
            locks: Locks::default(),
        }
    }

    /// From now on forks are promoted by this.
    pub(crate) fn set_promote(&self, promote: Box<Promote>) {
        let _ = self.promote.set(promote);
    }

    /// Promotes a fork.
    pub(crate) fn promote(
        &self,
        branch: u64,
        fork: u64,
        keep: Option<&[u8]>,
        unchanged: bool,
    ) -> io::Result<()> {
        match self.promote.get() {
            None => self.with_volume(|fs| fs.promote(branch, fork, keep, unchanged)),
            Some(promote) => promote(&*self.engine()?, branch, fork, keep, unchanged),
        }
    }

    /// As which user calls are made.
    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Carries out a call about the volume as a whole, whose failure is a sentence for people.
    pub(crate) fn with_volume<T>(
        &self,
        call: impl FnOnce(&FileSystem) -> std::result::Result<T, FsError>,
    ) -> io::Result<T> {
        let reach = self.reach.read_recursive();
        call(engine_of(&reach)?).map_err(volume_error)
    }

    /// Carries out a call, or says EBADF when the volume is closed.
    pub(crate) fn with<T>(&self, call: impl FnOnce(Call<'_>) -> Result<T>) -> io::Result<T> {
        // Recursive, because a visitor of one call may make another while a close waits.
        let reach = self.reach.read_recursive();
        Ok(call(Call { fs: engine_of(&reach)?, caller: &self.caller })?)
    }

    /// The mount, if there is no engine here; EBADF when the volume is closed.
    pub(crate) fn mount(&self) -> io::Result<Option<Arc<Mount>>> {
        match &*self.reach.read_recursive() {
            None => Err(Errno(libc::EBADF).into()),
            Some(Reach::Engine(_)) => Ok(None),
            Some(Reach::Mounted(mount)) => Ok(Some(Arc::clone(mount))),
        }
    }

    /// Fails unless `other` is a handle of the same volume: the numbers of its branches and snapshots say nothing here otherwise.
    pub(crate) fn expect_volume_of(&self, other: &Shared) -> io::Result<()> {
        let is_same = match (&*self.reach.read_recursive(), &*other.reach.read_recursive()) {
            (None, _) | (_, None) => return Err(Errno(libc::EBADF).into()),
            (Some(Reach::Engine(one)), Some(Reach::Engine(other))) => one.is_of_volume_of(other),
            (Some(Reach::Mounted(one)), Some(Reach::Mounted(other))) => {
                one.shown().is_volume_of(other.shown())
            }
            // A process that serves the volume may have it mounted, too.
            (Some(Reach::Engine(fs)), Some(Reach::Mounted(mount)))
            | (Some(Reach::Mounted(mount)), Some(Reach::Engine(fs))) => {
                mount.shown().uuid == *fs.superblock().uuid.as_bytes()
            }
        };
        match is_same {
            true => Ok(()),
            false => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the other one is of another volume",
            )),
        }
    }

    /// For a call that takes the engine: through a mount it is refused, with a sentence about `what` takes it and what does that there.
    pub(crate) fn takes_the_volume(&self, what: &str, command: &str) -> io::Result<()> {
        match self.mount()? {
            None => Ok(()),
            Some(mount) => Err(mount.takes_the_volume(what, command)),
        }
    }

    /// As [`Shared::takes_the_volume`], for what an fsync has cost.
    pub(crate) fn has_receipts(&self) -> io::Result<()> {
        self.takes_the_volume("a receipt", "`holdfast explain` shows the last one of a file")
    }
}

/// The engine; EBADF when the volume is closed, and a refusal where there is a mount in its place.
fn engine_of(reach: &Option<Reach>) -> io::Result<&Arc<FileSystem>> {
    match reach {
        None => Err(Errno(libc::EBADF).into()),
        Some(Reach::Engine(fs)) => Ok(fs),
        Some(Reach::Mounted(mount)) => {
            Err(mount
                .takes_the_volume("this", "`holdfast help` names the commands that do it there"))
        }
    }
}

/// A directory that lives as long as this, whatever happens to its names.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) shared: Arc<Shared>,
    pub(crate) inode: InodeNo,
    /// In a mount: what holds it.
    pub(crate) there: Option<Directory>,
}

impl Held {
    pub(crate) fn new(shared: Arc<Shared>, inode: InodeNo) -> io::Result<Arc<Held>> {
        shared.with(|call| {
            call.fs.remember(inode, 1);
            Ok(())
        })?;
        Ok(Held::remembered(shared, inode))
    }

    /// An inode that the engine has remembered for this.
    pub(crate) fn remembered(shared: Arc<Shared>, inode: InodeNo) -> Arc<Held> {
        Arc::new(Held { shared, inode, there: None })
    }

    /// A directory of a mount.
    pub(crate) fn in_mount(shared: Arc<Shared>, there: Directory) -> Arc<Held> {
        Arc::new(Held { shared, inode: there.inode(), there: Some(there) })
    }

    /// Carries out a call by the engine, or by the mount. EBADF when the volume is closed.
    pub(crate) fn reach<T>(
        &self,
        engine: impl FnOnce(Call<'_>) -> Result<T>,
        mounted: impl FnOnce(&Directory) -> io::Result<T>,
    ) -> io::Result<T> {
        match &self.there {
            None => self.shared.with(engine),
            // Not with the lock: a daemon may take its time, and a close does not wait for it.
            Some(there) => self.shared.mount().and_then(|_| mounted(there)),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.there.is_some() {
            return;
        }
        // A closed volume has forgotten everything already.
        let _ = self.shared.with(|call| {
            call.fs.forget(self.inode, 1);
            Ok(())
        });
    }
}

impl Shared {
    /// The engine, or EBADF when the volume is closed.
    pub(crate) fn engine(&self) -> io::Result<Arc<FileSystem>> {
        engine_of(&self.reach.read()).cloned()
    }

    /// Forgets the engine as a power cut would.
    pub(crate) fn abandon(&self) {
        drop(self.reach.write().take());
        self.locks.closed();
    }

    /// Ends the engine, unless that was done. The daemon of a mount goes on.
    pub(crate) fn close(&self) -> io::Result<()> {
        let reach = self.reach.write().take();
        self.locks.closed();
        let Some(Reach::Engine(mut fs)) = reach else {
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
