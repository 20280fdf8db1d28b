//! What `mount -o remount` changes without an unmount, as far as the kernel leaves it to us.
//!
//! The kernel by itself refuses changes after `ro`. But it does not know that we keep access times, nor that a change
//! of names shall be durable at once (`sync`, `dirsync`): other filesystems look that up, and we are not asked. So the
//! program that remounts writes the attribute `system.holdfast.remount`.

use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_base::InodeNo;
use holdfast_posix::Atime;

use super::Server;
use crate::fsyncs::SyncKind;
use crate::interface::{Answer, Errno};

/// Writing this attribute of anything inside the mount changes how it goes on: words of mount(8) with commas between
/// them. `noatime`, `relatime` and `strictatime` say when reading updates access times; `nodiratime` after one of them
/// excludes those of directories. `sync` or `dirsync` say what is durable before it is answered, `async` nothing.
pub const REMOUNT_XATTR: &[u8] = b"system.holdfast.remount";

/// What is durable before it is answered.
#[derive(Debug, Default)]
pub(super) struct Synchronous {
    /// Every change.
    all: AtomicBool,
    /// Changes of names.
    names: AtomicBool,
    /// The host has every other change before it is answered.
    handover: AtomicBool,
}

impl Server {
    /// From now on every change is durable before it is answered if `all`, those of names if `names`.
    pub fn set_synchronous(&self, all: bool, names: bool) {
        self.synchronous.all.store(all, Ordering::Relaxed);
        self.synchronous.names.store(all || names, Ordering::Relaxed);
    }

    /// From now on the host has every change before it is answered, if `all`: a kill of this process takes none.
    pub fn set_handover(&self, all: bool) {
        self.synchronous.handover.store(all, Ordering::Relaxed);
    }

    /// Whether the host has every change before it is answered.
    pub(crate) fn hands_over(&self) -> bool {
        self.synchronous.handover.load(Ordering::Relaxed)
    }

    /// Whether changes are: of names, or others.
    pub(crate) fn is_synchronous(&self, of_names: bool) -> bool {
        match of_names {
            true => self.synchronous.names.load(Ordering::Relaxed),
            false => self.synchronous.all.load(Ordering::Relaxed),
        }
    }

    /// Makes the last change of `inode` durable. One that is gone needs nothing more.
    pub(crate) fn sync_written(&self, inode: InodeNo) -> Answer<()> {
        match self.durable_inode(inode, SyncKind::Change) {
            Err(Errno(libc::ENOENT | libc::ESTALE)) => Ok(()),
            other => other,
        }
    }

    /// Gives the host the last change of `inode`. One that is gone needs nothing more.
    pub(crate) fn hand_over_written(&self, inode: InodeNo) -> Answer<()> {
        match self.fs()?.hand_over_inode(inode).map_err(Errno::from) {
            Err(Errno(libc::ENOENT | libc::ESTALE)) => Ok(()),
            other => other,
        }
    }

    pub(super) fn remount(&self, words: &[u8]) -> Answer<()> {
        let fs = self.fs()?;
        let words = std::str::from_utf8(words).map_err(|_| Errno(libc::EINVAL))?;
        let (mut atime, mut directories, mut synchronous) = (None, true, None);
        for word in words.split(',') {
            match word {
                "noatime" => atime = Some(Atime::Never),
                "relatime" => atime = Some(Atime::Relative),
                "strictatime" => atime = Some(Atime::Always),
                "nodiratime" => directories = false,
                "sync" => synchronous = Some((true, true)),
                "dirsync" => synchronous = Some((false, true)),
                "async" => synchronous = Some((false, false)),
                _ => return Err(Errno(libc::EINVAL)),
            }
        }
        if let Some(atime) = atime {
            fs.set_atime(atime, directories);
        }
        if let Some((all, names)) = synchronous {
            self.set_synchronous(all, names);
        }
        Ok(())
    }
}
