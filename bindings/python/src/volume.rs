//! A volume, at one of its branches or snapshots, and every call that takes a path.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast::{
    Branch, Change, ChangeKind, Dir, DirEntry, FileTimes, Metadata, OpenOptions, Permissions,
    RenameFlags, VolumeOptions, XattrFlags,
};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::{EBADF, InCall, Own, call};
use crate::file::Handle;

/// Attributes in the order of `os.stat_result`, with times in nanoseconds, and the creation and the blocks behind them.
pub(crate) type Stat = (u32, u64, u32, u32, u32, u64, i128, i128, i128, i128, u64, u64);

/// A change between two moments: its kind, the paths before and after.
type Changed = (&'static str, Option<OsString>, Option<OsString>);

pub(crate) fn stat(of: &Metadata) -> Stat {
    let [accessed, modified, changed, created] =
        [of.accessed(), of.modified(), of.changed(), of.created()].map(nanoseconds);
    let ids = (of.mode(), of.ino(), of.nlink(), of.uid(), of.gid(), of.len());
    let (mode, ino, nlink, uid, gid, len) = ids;
    let (blocks, rdev) = (of.blocks(), of.rdev());
    (mode, ino, nlink, uid, gid, len, accessed, modified, changed, created, blocks, rdev)
}

fn nanoseconds(time: SystemTime) -> i128 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_nanos() as i128,
        Err(before) => -(before.duration().as_nanos() as i128),
    }
}

/// The moment so many nanoseconds after 1970.
pub(crate) fn moment(nanoseconds: i128) -> io::Result<SystemTime> {
    const SECOND: i128 = 1_000_000_000;
    let (seconds, rest) = (nanoseconds.div_euclid(SECOND), nanoseconds.rem_euclid(SECOND));
    let wrong = || io::Error::from(io::ErrorKind::InvalidInput);
    let seconds = i64::try_from(seconds).map_err(|_| wrong())?;
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let whole = match seconds < 0 {
        true => UNIX_EPOCH.checked_sub(whole),
        false => UNIX_EPOCH.checked_add(whole),
    };
    let rest = Duration::from_nanos(u64::try_from(rest).map_err(|_| wrong())?);
    whole.and_then(|time| time.checked_add(rest)).ok_or_else(wrong)
}

/// An open volume. Calls on paths need only its root; calls about the volume as a whole, the rest. Once it is closed there is neither: a root that
/// is kept keeps a mount busy. The lock of the root is held for a moment only, and as of [`Handle`] the process is asked before it is taken.
#[pyclass(frozen, module = "holdfast._native")]
pub struct Volume {
    root: Own<Mutex<Option<Arc<Dir>>>>,
    volume: RwLock<Own<holdfast::Volume>>,
}

impl Volume {
    fn new(volume: holdfast::Volume) -> Volume {
        let root = Mutex::new(Some(Arc::new((*volume).clone())));
        Volume { root: Own::new(root), volume: RwLock::new(Own::new(volume)) }
    }

    /// Its root; `None` once it is closed. A call that is under way keeps it.
    fn root_or_none(&self) -> io::Result<Option<Arc<Dir>>> {
        Ok(self.root.get()?.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    fn root(&self) -> io::Result<Arc<Dir>> {
        self.root_or_none()?.ok_or_else(|| io::Error::from_raw_os_error(EBADF))
    }

    /// A call about `path`.
    fn at<T: Send>(
        &self,
        py: Python<'_>,
        path: &Path,
        body: impl FnOnce(&Dir) -> io::Result<T> + Send,
    ) -> PyResult<T> {
        call(py, Some(path), || {
            let root = self.root()?;
            let _in_call = InCall(&root);
            body(&root)
        })
    }

    /// A call about the volume.
    fn whole<T: Send>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&holdfast::Volume) -> io::Result<T> + Send,
    ) -> PyResult<T> {
        call(py, None, || {
            // First of all: in a child the lock may be held for ever.
            let root = self.root()?;
            let _in_call = InCall(&root);
            body(self.volume.read().unwrap_or_else(PoisonError::into_inner).get()?)
        })
    }

    /// A call about a branch, without a name the one that is open.
    fn branch<T: Send>(
        &self,
        py: Python<'_>,
        name: Option<&str>,
        body: impl FnOnce(Branch) -> io::Result<T> + Send,
    ) -> PyResult<T> {
        self.whole(py, |volume| body(named(volume, name)?))
    }
}

fn named(volume: &holdfast::Volume, name: Option<&str>) -> io::Result<Branch> {
    name.map_or_else(|| volume.branch_here(), |name| volume.branch(name))
}

/// Where a difference begins or ends: a snapshot, or a branch as it is.
type Where = (Option<String>, Option<String>);

fn changed(change: &Change) -> Changed {
    let kind = match change.kind {
        ChangeKind::Created => "created",
        ChangeKind::Removed => "removed",
        ChangeKind::Renamed => "renamed",
        ChangeKind::Changed => "changed",
        ChangeKind::Attributes => "attributes",
    };
    let [old, new] = [&change.old_path, &change.new_path]
        .map(|path| path.as_ref().map(|path| OsString::from_vec(path.clone())));
    (kind, old, new)
}

#[pymethods]
impl Volume {
    #[staticmethod]
    fn create(py: Python<'_>, path: PathBuf, size: u64) -> PyResult<Volume> {
        call(py, Some(&path), || holdfast::Volume::create_new(&path, size)).map(Volume::new)
    }

    #[staticmethod]
    fn in_memory(py: Python<'_>, size: u64) -> PyResult<Volume> {
        call(py, None, || holdfast::Volume::in_memory(size)).map(Volume::new)
    }

    #[staticmethod]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        branch: Option<&str>,
        snapshot: Option<&str>,
        read_only: bool,
        through_mount: bool,
    ) -> PyResult<Volume> {
        let mut options = VolumeOptions::new().read_only(read_only).through_mount(through_mount);
        if let Some(branch) = branch {
            options = options.branch(branch);
        }
        if let Some(snapshot) = snapshot {
            options = options.snapshot(snapshot);
        }
        call(py, Some(&path), || options.open(&path)).map(Volume::new)
    }

    /// Makes everything durable and closes the volume; once more does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        call(py, None, || {
            let Some(root) = self.root_or_none()? else { return Ok(()) };
            let _in_call = InCall(&root);
            let mut volume = self.volume.write().unwrap_or_else(PoisonError::into_inner);
            let closed = volume.take()?.map_or(Ok(()), holdfast::Volume::close);
            self.root.get()?.lock().unwrap_or_else(PoisonError::into_inner).take();
            closed
        })
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.whole(py, holdfast::Volume::sync)
    }

    /// Where it is mounted, if it is reached through that.
    fn mounted_at(&self, py: Python<'_>) -> PyResult<Option<PathBuf>> {
        self.whole(py, |volume| Ok(volume.mounted_at().map(PathBuf::from)))
    }

    /// Bytes of a block; blocks in all, free, and free for data.
    fn statfs(&self, py: Python<'_>) -> PyResult<(u32, u64, u64, u64)> {
        self.whole(py, |volume| {
            let found = volume.statfs()?;
            Ok((found.block_size, found.blocks, found.blocks_free, found.blocks_available))
        })
    }

    /// Id, label, bytes.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyBytes>, String, u64)> {
        let info = self.whole(py, holdfast::Volume::info)?;
        Ok((PyBytes::new(py, &info.uuid), info.label, info.size))
    }

    /// Opens a file. `how`: of `r`, `w` (write), `a` (append), `t` (truncate), `c` (create), `x` (create new).
    fn open_file(&self, py: Python<'_>, path: PathBuf, how: &str, mode: u32) -> PyResult<Handle> {
        let has = |what: char| how.contains(what);
        let options = OpenOptions::new()
            .read(has('r'))
            .write(has('w'))
            .append(has('a'))
            .truncate(has('t'))
            .create(has('c'))
            .create_new(has('x'))
            .mode(mode);
        self.at(py, &path, |root| Ok(Handle::new(root.open_with(&path, &options)?, root.clone())))
    }

    fn stat(&self, py: Python<'_>, path: PathBuf, follow: bool) -> PyResult<Stat> {
        self.at(py, &path, |root| {
            Ok(stat(&if follow { root.metadata(&path)? } else { root.symlink_metadata(&path)? }))
        })
    }

    fn mkdir(&self, py: Python<'_>, path: PathBuf, mode: u32) -> PyResult<()> {
        self.at(py, &path, |root| root.create_dir_with_mode(&path, mode))
    }

    fn rmdir(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.at(py, &path, |root| root.remove_dir(&path))
    }

    fn rmtree(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.at(py, &path, |root| root.remove_dir_all(&path))
    }

    fn unlink(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.at(py, &path, |root| root.remove_file(&path))
    }

    fn rename(
        &self,
        py: Python<'_>,
        from: PathBuf,
        to: PathBuf,
        replace: bool,
        exchange: bool,
    ) -> PyResult<()> {
        let mut flags = RenameFlags::empty();
        flags.set(RenameFlags::NOREPLACE, !replace && !exchange);
        flags.set(RenameFlags::EXCHANGE, exchange);
        self.at(py, &from, |root| root.rename_with(&from, root, &to, flags))
    }

    fn link(&self, py: Python<'_>, from: PathBuf, to: PathBuf) -> PyResult<()> {
        self.at(py, &from, |root| root.hard_link(&from, &to))
    }

    fn symlink(&self, py: Python<'_>, target: PathBuf, path: PathBuf) -> PyResult<()> {
        self.at(py, &path, |root| root.symlink(&target, &path))
    }

    fn readlink(&self, py: Python<'_>, path: PathBuf) -> PyResult<OsString> {
        self.at(py, &path, |root| root.read_link(&path)).map(Into::into)
    }

    fn canonicalize(&self, py: Python<'_>, path: PathBuf) -> PyResult<OsString> {
        self.at(py, &path, |root| root.canonicalize(&path)).map(Into::into)
    }

    /// Copies a file to a path of a volume, this one or another.
    fn copy_to(
        &self,
        py: Python<'_>,
        from: PathBuf,
        other: &Bound<'_, Volume>,
        to: PathBuf,
    ) -> PyResult<u64> {
        let other = other.get();
        self.at(py, &from, |root| {
            let other = other.root()?;
            let _in_call = InCall(&other);
            root.copy_to(&from, &other, &to)
        })
    }

    fn chmod(&self, py: Python<'_>, path: PathBuf, mode: u32) -> PyResult<()> {
        self.at(py, &path, |root| root.set_permissions(&path, Permissions::from_mode(mode)))
    }

    fn chown(
        &self,
        py: Python<'_>,
        path: PathBuf,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> PyResult<()> {
        self.at(py, &path, |root| root.chown(&path, uid, gid))
    }

    fn utime(&self, py: Python<'_>, path: PathBuf, at: i128, changed: i128) -> PyResult<()> {
        self.at(py, &path, |root| {
            let times = FileTimes::new();
            root.set_times(&path, times.set_accessed(moment(at)?).set_modified(moment(changed)?))
        })
    }

    /// Names of a directory, with the bits of their types.
    fn scandir(&self, py: Python<'_>, path: PathBuf) -> PyResult<Vec<(OsString, u32)>> {
        self.at(py, &path, |root| {
            let all = root.read_dir(&path)?;
            let name = |entry: DirEntry| (entry.file_name().into(), entry.file_type().mode_bits());
            all.map(|entry| entry.map(name)).collect()
        })
    }

    fn sync_dir(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.at(py, &path, |root| root.open_dir(&path)?.sync_all())
    }

    fn getxattr<'py>(
        &self,
        py: Python<'py>,
        path: PathBuf,
        name: &str,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let value = self.at(py, &path, |root| root.xattr(&path, name))?;
        Ok(PyBytes::new(py, &value))
    }

    fn setxattr(&self, py: Python<'_>, path: PathBuf, name: &str, value: &[u8]) -> PyResult<()> {
        self.at(py, &path, |root| root.set_xattr(&path, name, value, XattrFlags::empty()))
    }

    fn listxattr(&self, py: Python<'_>, path: PathBuf) -> PyResult<Vec<OsString>> {
        self.at(py, &path, |root| root.xattrs(&path))
    }

    fn removexattr(&self, py: Python<'_>, path: PathBuf, name: &str) -> PyResult<()> {
        self.at(py, &path, |root| root.remove_xattr(&path, name))
    }

    // Branches and snapshots.

    fn branch_here(&self, py: Python<'_>) -> PyResult<String> {
        self.branch(py, None, |branch| Ok(branch.name().to_string()))
    }

    fn branches(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.whole(py, |volume| {
            Ok(volume.branches()?.iter().map(|branch| branch.name().to_string()).collect())
        })
    }

    /// Names of snapshots, and when each was taken in nanoseconds since 1970.
    fn snapshots(&self, py: Python<'_>, branch: Option<&str>) -> PyResult<Vec<(String, i128)>> {
        self.branch(py, branch, |branch| {
            let all = branch.snapshots()?;
            Ok(all.iter().map(|it| (it.name().to_string(), nanoseconds(it.created()))).collect())
        })
    }

    fn open_branch(
        &self,
        py: Python<'_>,
        branch: Option<&str>,
        snapshot: Option<&str>,
    ) -> PyResult<Volume> {
        let opened = self.branch(py, branch, |branch| match snapshot {
            None => branch.open(),
            Some(snapshot) => branch.snapshot_named(snapshot)?.open(),
        })?;
        Ok(Volume::new(opened))
    }

    fn snapshot(&self, py: Python<'_>, branch: Option<&str>, name: &str) -> PyResult<()> {
        self.branch(py, branch, |branch| branch.snapshot(name).map(drop))
    }

    fn fork(
        &self,
        py: Python<'_>,
        branch: Option<&str>,
        snapshot: Option<&str>,
        name: &str,
    ) -> PyResult<()> {
        self.branch(py, branch, |branch| match snapshot {
            None => branch.fork(name).map(drop),
            Some(snapshot) => branch.snapshot_named(snapshot)?.fork(name).map(drop),
        })
    }

    fn rollback(
        &self,
        py: Python<'_>,
        branch: Option<&str>,
        snapshot: &str,
        keep: Option<&str>,
    ) -> PyResult<()> {
        self.branch(py, branch, |branch| {
            branch.rollback_to(&branch.snapshot_named(snapshot)?, keep)
        })
    }

    fn promote(
        &self,
        py: Python<'_>,
        branch: Option<&str>,
        fork: &str,
        keep: Option<&str>,
        replace: bool,
    ) -> PyResult<()> {
        self.whole(py, |volume| {
            let (branch, fork) = (named(volume, branch)?, volume.branch(fork)?);
            if replace { branch.replace_by(fork, keep) } else { branch.promote(fork, keep) }
        })
    }

    fn delete(&self, py: Python<'_>, branch: Option<&str>, snapshot: Option<&str>) -> PyResult<()> {
        self.branch(py, branch, |branch| match snapshot {
            None => branch.delete(),
            Some(snapshot) => branch.snapshot_named(snapshot)?.delete(),
        })
    }

    fn rename_branch(
        &self,
        py: Python<'_>,
        branch: Option<&str>,
        snapshot: Option<&str>,
        name: &str,
    ) -> PyResult<()> {
        self.branch(py, branch, |mut branch| match snapshot {
            None => branch.rename(name),
            Some(snapshot) => branch.snapshot_named(snapshot)?.rename(name),
        })
    }

    /// What became of each file from one moment to another: branches, or snapshots of them.
    fn diff(&self, py: Python<'_>, old: Where, new: Where) -> PyResult<Vec<Changed>> {
        self.whole(py, |volume| {
            let [old, new] = [&old, &new].map(|(branch, snapshot)| {
                let branch = named(volume, branch.as_deref())?;
                let snapshot = snapshot.as_deref().map(|name| branch.snapshot_named(name));
                Ok::<_, io::Error>((branch, snapshot.transpose()?))
            });
            let (old, new) = (old?, new?);
            let [old, new] = [&old, &new].map(|(branch, snapshot)| match snapshot {
                Some(snapshot) => snapshot.moment(),
                None => branch.moment(),
            });
            volume.diff(old, new, false)?.map(|change| Ok(changed(&change?))).collect()
        })
    }
}
