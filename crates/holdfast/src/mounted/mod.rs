//! A volume that a daemon has mounted here, reached through the kernel as any program reaches it.
//!
//! ```text
//! Volume::open ── free ────▶ engine in this process
//!              └─ in use ──▶ find.rs: the mount of it ──▶ Mount: root descriptor
//!                              Dir ──▶ Directory: O_PATH descriptor, resolve.rs
//!                              File ─▶ OpenFile: descriptor
//! ```
//! Nothing leaves the mount: each path is resolved by openat2(2) as if the root of the volume were the root of everything, neither
//! through what is mounted over a directory of it nor through links of /proc. Nothing but files and directories is ever opened, so no
//! device and no pipe is. What the kernel answers is passed on.

mod attributes;
mod branches;
mod daemon;
mod directory;
mod find;
mod tree_id;
mod open_file;
mod resolve;
mod mount_view;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_posix::StatFs;
use rustix::fs::{Mode, OFlags};

pub(crate) use daemon::nonsense;
pub(crate) use find::{covering, newest};
pub(crate) use mount_view::{MountView, Wanted};
pub(crate) use open_file::OpenFile;
pub(crate) use tree_id::TreeId;

/// The directory of the snapshots of a branch, in the root of its mount.
const SNAPSHOTS: &str = ".snapshots";
/// Reading this attribute makes everything durable.
const SYNC: &str = "system.holdfast.sync";

/// What all handles of a mounted volume share.
#[derive(Debug)]
pub(crate) struct Mount {
    /// The root of the volume, as a place.
    root: OwnedFd,
    /// Which file that is: `..` stays there.
    root_is: (u64, u64),
    dir: PathBuf,
    shown: MountView,
    /// What holds the volume, as the mount names it.
    source: PathBuf,
    /// Where that is not the root of the volume: the root of the mount, which shows a snapshot in a directory, and the number of that.
    top: Option<OwnedFd>,
    inside: Option<u64>,
    /// No file of it is changed, whatever the mount allows.
    read_only: bool,
    /// Nor is anything else of the volume.
    changes_nothing: bool,
}

/// A directory of a mounted volume, as a place.
#[derive(Debug)]
pub(crate) struct Directory {
    mount: Arc<Mount>,
    place: OwnedFd,
    inode: InodeNo,
}

impl Directory {
    /// Its inode number.
    pub(crate) fn inode(&self) -> InodeNo {
        self.inode
    }

    /// The mount that it is in.
    pub(crate) fn mount(&self) -> &Arc<Mount> {
        &self.mount
    }
}

impl Mount {
    /// The mount of the volume at `path` that shows what is `wanted`.
    ///
    /// # Errors
    /// A sentence that says why there is none, to be added to another one.
    pub(crate) fn of(path: &Path, wanted: &Wanted<'_>, read_only: bool) -> Result<Mount, String> {
        wanted.by_this_process()?;
        let mut why = None;
        let mut mounts = covering(path);
        // The newest, but for one that cannot be written.
        mounts.sort_by_key(|mount| !mount.is_writable && !read_only);
        for mount in mounts {
            match Mount::at(mount, wanted, read_only) {
                Ok(mount) => return Ok(mount),
                Err(said) => why = why.or(Some(said)),
            }
        }
        Err(why.unwrap_or_else(|| "no mount of it is seen from here".into()))
    }

    fn at(found: find::VolumeMount, wanted: &Wanted<'_>, read_only: bool) -> Result<Mount, String> {
        let dir = found.dir.display();
        let refused = |error: io::Error| match error.raw_os_error() {
            Some(libc::ENOSYS) => {
                format!("reaching it through {dir}, where it is mounted, takes Linux 5.6")
            }
            _ => format!("it is mounted at {dir}, and that does not let this process in: {error}"),
        };
        let root = resolve::root(&found.dir).map_err(refused)?;
        let is = attributes::status(&root).map_err(refused)?;
        // A part of the volume may lie over it, which is on the same device.
        if is.device != found.device || is.mount.is_some_and(|mount| mount != found.mount) {
            return Err(format!("it is mounted at {dir}, and something else over it"));
        }
        let shown = MountView::by(&root).map_err(|error| match error.raw_os_error() {
            Some(libc::ENODATA | libc::EOPNOTSUPP | libc::ENOTTY) => {
                format!("its daemon, of {dir}, is an older program, which says no branch: `holdfast restart` or a new mount")
            }
            _ => refused(error),
        })?;
        if shown.file.as_ref() != Some(&found.file) {
            return Err(format!(
                "what is mounted at {dir} is another file by now, or its daemon an older program that does not say which"
            ));
        }
        let inside = match wanted.within(&shown) {
            None => return Err(format!("{dir} shows another branch or snapshot of it")),
            Some(inside) => inside,
        };
        let (root, top) = match &inside {
            None => (root, None),
            Some(name) => {
                let within = resolve::root_within(&root, format!("{SNAPSHOTS}/{name}"))
                    .map_err(|error| format!("{dir} does not show this snapshot: {error}"))?;
                (within, Some(root))
            }
        };
        let number = match top.is_some() || shown.is_snapshot() {
            true => mount_view::snapshot(&root)
                .map_err(|error| format!("{dir} does not show this snapshot: {error}"))?,
            false => None,
        };
        if top.is_some() && number.is_none() {
            // Where `.snapshots` is not shown the volume may have a directory of that name, which is none of a snapshot's.
            return Err(format!(
                "{dir} does not show this snapshot: what stands there under its name is a directory of the volume, or the daemon is an older program"
            ));
        }
        if !wanted.is_snapshot(number) {
            return Err(format!("{dir} shows another snapshot, or its daemon is an older program"));
        }
        let is = attributes::status(&root).map_err(refused)?;
        Ok(Mount {
            root,
            root_is: (is.device, is.attr.inode.0),
            dir: found.dir,
            shown,
            source: found.source,
            top,
            read_only: read_only || inside.is_some(),
            inside: number.filter(|_| inside.is_some()),
            changes_nothing: read_only,
        })
    }

    /// Where it is mounted.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// What the daemon says that it shows.
    pub(crate) fn shown(&self) -> &MountView {
        &self.shown
    }

    /// The refusal of a call that takes the volume itself.
    pub(crate) fn takes_the_volume(&self, what: &str, command: &str) -> io::Error {
        let dir = self.dir.display();
        let sentence = format!(
            "the volume is mounted at {dir} and reached through that: {what} takes the volume itself; {command}"
        );
        io::Error::new(io::ErrorKind::Unsupported, sentence)
    }

    /// Whether anything may be changed.
    fn change(&self) -> io::Result<()> {
        match self.read_only {
            true => Err(errno(libc::EROFS)),
            false => Ok(()),
        }
    }

    /// Has the daemon make everything durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        // What programs have stored into mappings goes first, if this user may open the root; it is no call, so nothing is promised of it.
        if let Ok(root) = rustix::fs::openat(&self.root, ".", READ_DIRECTORY, Mode::empty()) {
            rustix::fs::syncfs(root)?;
        }
        mount_view::ask(&self.root, SYNC).map(drop)
    }

    /// As statvfs(3) has it.
    pub(crate) fn statfs(&self) -> io::Result<StatFs> {
        let found = rustix::fs::fstatvfs(&self.root)?;
        Ok(StatFs {
            block_size: u32::try_from(found.f_frsize).unwrap_or(u32::MAX),
            blocks: found.f_blocks,
            blocks_free: found.f_bfree,
            blocks_available: found.f_bavail,
            inodes: found.f_files,
            inodes_free: found.f_ffree,
            name_max: u32::try_from(found.f_namemax).unwrap_or(u32::MAX),
        })
    }
}

/// How a directory is opened for what a place is not enough for.
const READ_DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

/// An error by its number.
fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}
