//! What every handle of a volume shares: the engine, until the volume is closed, and inodes that are held.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use holdfast_base::InodeNo;
use holdfast_base::clock::Stopwatch;
use holdfast_posix::{Caller, FileSystem, FsError};
use parking_lot::RwLock;

use crate::error::{Errno, Result, volume_error};
use crate::locks::Locks;
use crate::path::Call;

/// How long `close` waits for others that borrowed the engine (a FUSE server's last threads).
const BORROWERS_WAIT: Duration = Duration::from_secs(10);

/// Has a branch become what a fork is, both by their numbers, see [`FileSystem::promote`]: the name for what it was, and whether it
/// must be unchanged.
type Promote = dyn Fn(&FileSystem, u64, u64, Option<&[u8]>, bool) -> io::Result<()> + Send + Sync;

/// What every handle of a volume shares. `None` once closed.
pub(crate) struct Shared {
    fs: RwLock<Option<Arc<FileSystem>>>,
    caller: Caller,
    promote: OnceLock<Box<Promote>>,
    pub(crate) locks: Locks,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("fs", &self.fs).finish_non_exhaustive()
    }
}

impl Shared {
    /// What the handles of an engine share.
    pub(crate) fn new(fs: FileSystem, caller: Caller) -> Shared {
        Shared {
            fs: RwLock::new(Some(Arc::new(fs))),
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
        let fs = self.fs.read_recursive();
        let fs = fs.as_ref().ok_or(Errno(libc::EBADF))?;
        call(fs).map_err(volume_error)
    }

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

impl Shared {
    /// The engine, or EBADF when the volume is closed.
    pub(crate) fn engine(&self) -> io::Result<Arc<FileSystem>> {
        let fs = self.fs.read();
        Ok(fs.as_ref().ok_or(Errno(libc::EBADF))?.clone())
    }

    /// Forgets the engine as a power cut would.
    pub(crate) fn abandon(&self) {
        drop(self.fs.write().take());
        self.locks.closed();
    }

    /// Ends the engine, unless that was done.
    pub(crate) fn close(&self) -> io::Result<()> {
        let Some(mut fs) = self.fs.write().take() else {
            return Ok(());
        };
        self.locks.closed();
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
