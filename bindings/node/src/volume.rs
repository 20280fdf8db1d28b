//! A volume, at one of its branches or snapshots, and every call that takes a path.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast::{CreateOptions, Dir, FileTimes, Metadata, OpenOptions, Permissions, VolumeOptions};
use napi::bindgen_prelude::{BigInt, Buffer, ToNapiValue, TypeName};
use napi_derive::napi;

use crate::call::{Open, Promised, guarded, invalid, promised, promised_of, told};
use crate::file::NativeFile;

/// What is known of a file; times in nanoseconds since 1970.
#[napi(object)]
pub struct Stat {
    /// Type and permission bits.
    pub mode: u32,
    /// The inode number.
    pub ino: BigInt,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file.
    pub rdev: i64,
    /// Bytes.
    pub size: i64,
    /// Units of 512 bytes in use.
    pub blocks: i64,
    /// Last access.
    pub atime_ns: BigInt,
    /// Last change of the content.
    pub mtime_ns: BigInt,
    /// Last change.
    pub ctime_ns: BigInt,
    /// Creation.
    pub birthtime_ns: BigInt,
}

pub(crate) fn stat(of: &Metadata) -> Stat {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    Stat {
        mode: of.mode(),
        ino: of.ino().into(),
        nlink: of.nlink(),
        uid: of.uid(),
        gid: of.gid(),
        rdev: number(of.rdev()),
        size: number(of.len()),
        blocks: number(of.blocks()),
        atime_ns: nanoseconds(of.accessed()),
        mtime_ns: nanoseconds(of.modified()),
        ctime_ns: nanoseconds(of.changed()),
        birthtime_ns: nanoseconds(of.created()),
    }
}

/// Nanoseconds since 1970.
pub(crate) fn nanoseconds(time: SystemTime) -> BigInt {
    let (sign_bit, len) = match time.duration_since(UNIX_EPOCH) {
        Ok(since) => (false, since),
        Err(before) => (true, before.duration()),
    };
    BigInt { sign_bit, ..(len.as_nanos()).into() }
}

/// Times to set: whole seconds since 1970, rounded down, and the nanoseconds behind them.
#[napi(object)]
pub struct Times {
    /// Last access.
    pub atime: i64,
    /// Nanoseconds of it.
    pub atime_rest: u32,
    /// Last change of the content.
    pub mtime: i64,
    /// Nanoseconds of it.
    pub mtime_rest: u32,
}

impl Times {
    pub(crate) fn checked(&self) -> io::Result<FileTimes> {
        let accessed = moment(self.atime, self.atime_rest)?;
        let modified = moment(self.mtime, self.mtime_rest)?;
        Ok(FileTimes::new().set_accessed(accessed).set_modified(modified))
    }
}

fn moment(seconds: i64, rest: u32) -> io::Result<SystemTime> {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let whole = match seconds < 0 {
        true => UNIX_EPOCH.checked_sub(whole),
        false => UNIX_EPOCH.checked_add(whole),
    };
    let rest = Duration::from_nanos(rest.into());
    whole.and_then(|time| time.checked_add(rest)).ok_or_else(invalid)
}

/// How a volume is made.
#[napi(object)]
pub struct Making {
    /// Bytes.
    pub size: i64,
    /// A name for people.
    pub label: Option<String>,
    /// Bytes of a tree node.
    pub node_size: Option<u32>,
    /// How often metadata is stored.
    pub metadata_copies: Option<u8>,
    /// Whether all space is taken from the host now.
    pub allocate: Option<bool>,
}

/// How a volume is opened.
#[napi(object)]
pub struct Opening {
    /// Nothing is written.
    pub read_only: Option<bool>,
    /// This branch.
    pub branch: Option<String>,
    /// This snapshot of it.
    pub snapshot: Option<String>,
    /// Whether a volume that is mounted is reached through that.
    pub through_mount: Option<bool>,
}

/// What a volume is.
#[napi(object)]
pub struct Info {
    /// Its id.
    pub uuid: Buffer,
    /// Its label.
    pub label: String,
    /// Bytes.
    pub size: i64,
    /// Bytes of a tree node.
    pub node_size: u32,
}

/// How full a volume is.
#[napi(object)]
pub struct Space {
    /// Bytes of a block.
    pub bsize: u32,
    /// Blocks in all.
    pub blocks: i64,
    /// Blocks in no use.
    pub bfree: i64,
    /// Blocks that data can take.
    pub bavail: i64,
    /// Inodes, used and possible.
    pub files: i64,
    /// Inodes still possible.
    pub ffree: i64,
}

/// Names of a directory, with a 0 behind each, and a byte for each with its type: bits 12 to 15 of a mode.
#[napi(object)]
pub struct Names {
    /// The names.
    pub names: Buffer,
    /// The types.
    pub types: Buffer,
}

/// An open volume.
#[napi(js_name = "Volume")]
pub struct NativeVolume {
    volume: Open<holdfast::Volume>,
    mounted_at: Option<PathBuf>,
}

pub(crate) fn path_of(bytes: &[u8]) -> PathBuf {
    OsString::from_vec(bytes.to_vec()).into()
}

fn bytes_of(path: &Path) -> Buffer {
    path.as_os_str().as_bytes().into()
}

impl NativeVolume {
    pub(crate) fn new(volume: holdfast::Volume) -> NativeVolume {
        let mounted_at = volume.mounted_at().map(PathBuf::from);
        NativeVolume { volume: Arc::new(RwLock::new(Some(volume))), mounted_at }
    }

    /// A call about `path`.
    fn at<T: ToNapiValue + TypeName + Send + 'static>(
        &self,
        path: &[u8],
        body: impl FnOnce(&Dir, &Path) -> io::Result<T> + Send + 'static,
    ) -> Promised<T> {
        let path = path_of(path);
        self.whole(move |volume| body(volume, &path))
    }

    /// A call about the volume.
    pub(crate) fn whole<T: ToNapiValue + TypeName + Send + 'static>(
        &self,
        body: impl FnOnce(&holdfast::Volume) -> io::Result<T> + Send + 'static,
    ) -> Promised<T> {
        promised_of(&self.volume, |volume| guarded(Some(volume), || body(volume)))
    }
}

/// Closes a volume, after the calls about it that are under way; once more does nothing.
fn close(volume: &RwLock<Option<holdfast::Volume>>) -> io::Result<()> {
    let mut volume = volume.write().unwrap_or_else(PoisonError::into_inner);
    volume.take().map_or(Ok(()), holdfast::Volume::close)
}

/// Of `r`, `w` (write), `a` (append), `t` (truncate), `c` (create), `x` (create new), `s` (sync), `d` (dsync), `n` (noatime), `l` (links are
/// not followed).
fn options(how: &str, mode: u32) -> OpenOptions {
    let has = |what: char| how.contains(what);
    OpenOptions::new()
        .read(has('r'))
        .write(has('w'))
        .append(has('a'))
        .truncate(has('t'))
        .create(has('c'))
        .create_new(has('x'))
        .sync(has('s'))
        .dsync(has('d'))
        .noatime(has('n'))
        .follow(!has('l'))
        .mode(mode)
}

/// Makes a directory and the missing ones above it; the first one that was made.
fn make_all(root: &Dir, path: &Path, mode: u32) -> io::Result<Option<PathBuf>> {
    let mut missing = Vec::new();
    let mut first = None;
    for at in path.ancestors().filter(|at| !at.as_os_str().is_empty()) {
        match root.create_dir_with_mode(at, mode) {
            Ok(()) => first = Some(at),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                missing.push(at);
                continue;
            }
            Err(error) => is_dir_already(root, at, error)?,
        }
        break;
    }
    for at in missing.into_iter().rev() {
        match root.create_dir_with_mode(at, mode) {
            Ok(()) => first = first.or(Some(at)),
            Err(error) => is_dir_already(root, at, error)?,
        }
    }
    Ok(first.map(PathBuf::from))
}

fn is_dir_already(root: &Dir, at: &Path, error: io::Error) -> io::Result<()> {
    let there = error.kind() == io::ErrorKind::AlreadyExists;
    if there && root.metadata(at).is_ok_and(|found| found.is_dir()) { Ok(()) } else { Err(error) }
}

fn remove(root: &Dir, path: &Path, recursive: bool) -> io::Result<()> {
    match recursive && root.symlink_metadata(path)?.is_dir() {
        true => root.remove_dir_all(path),
        false => root.remove_file(path),
    }
}

/// What to change the attributes of: the library's calls change those of a link itself.
fn followed(root: &Dir, path: &Path, follow: bool) -> io::Result<PathBuf> {
    if follow { root.canonicalize(path) } else { Ok(path.to_path_buf()) }
}

#[napi]
impl NativeVolume {
    /// Makes a file of the host with an empty volume in it.
    #[napi]
    pub fn create(path: &[u8], how: Making) -> Promised<NativeVolume> {
        let path = path_of(path);
        promised(move || {
            let size = u64::try_from(how.size).map_err(|_| invalid())?;
            let mut options = CreateOptions::new().size(size);
            if let Some(label) = how.label {
                options = options.label(label);
            }
            if let Some(bytes) = how.node_size {
                options = options.node_size(bytes as usize);
            }
            if let Some(copies) = how.metadata_copies {
                options = options.metadata_copies(copies);
            }
            // Before a file is made, so that a wrong size is EINVAL.
            options.check_size(size)?;
            options.allocate(how.allocate.unwrap_or(false)).create(path).map(NativeVolume::new)
        })
    }

    /// Opens the volume in a file or block device of the host.
    #[napi]
    pub fn open(path: &[u8], how: Opening) -> Promised<NativeVolume> {
        let path = path_of(path);
        promised(move || {
            let mut options = VolumeOptions::new()
                .read_only(how.read_only.unwrap_or(false))
                .through_mount(how.through_mount.unwrap_or(true));
            if let Some(branch) = &how.branch {
                options = options.branch(branch);
            }
            if let Some(snapshot) = &how.snapshot {
                options = options.snapshot(snapshot);
            }
            options.open(path).map(NativeVolume::new)
        })
    }

    /// A volume in memory.
    #[napi]
    pub fn in_memory(size: i64) -> Promised<NativeVolume> {
        promised(move || {
            let size = u64::try_from(size).map_err(|_| invalid())?;
            holdfast::Volume::in_memory(size).map(NativeVolume::new)
        })
    }

    /// Makes everything durable and closes the volume.
    #[napi]
    pub fn close(&self) -> Promised<()> {
        let volume = self.volume.clone();
        promised(move || close(&volume))
    }

    /// The same on this thread.
    #[napi]
    pub fn close_sync(&self) -> napi::Result<()> {
        guarded(None, || close(&self.volume)).map_err(|error| told(&error))
    }

    /// Where it is mounted, if it is reached through that.
    #[napi]
    pub fn mounted_at(&self) -> Option<Buffer> {
        self.mounted_at.as_deref().map(bytes_of)
    }

    /// Makes everything durable.
    #[napi]
    pub fn sync(&self) -> Promised<()> {
        self.whole(holdfast::Volume::sync)
    }

    /// How full it is.
    #[napi]
    pub fn statfs(&self) -> Promised<Space> {
        self.whole(|volume| {
            let found = volume.statfs()?;
            let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
            Ok(Space {
                bsize: found.block_size,
                blocks: number(found.blocks),
                bfree: number(found.blocks_free),
                bavail: number(found.blocks_available),
                files: number(found.inodes),
                ffree: number(found.inodes_free),
            })
        })
    }

    /// What it is.
    #[napi]
    pub fn info(&self) -> Promised<Info> {
        self.whole(|volume| {
            let info = volume.info()?;
            Ok(Info {
                uuid: info.uuid.to_vec().into(),
                label: info.label,
                size: i64::try_from(info.size).unwrap_or(i64::MAX),
                node_size: u32::try_from(info.node_size).unwrap_or(u32::MAX),
            })
        })
    }

    /// Opens a file.
    #[napi]
    pub fn open_file(&self, path: &[u8], how: String, mode: u32) -> Promised<NativeFile> {
        self.at(path, move |root, path| {
            Ok(NativeFile::new(root.open_with(path, &options(&how, mode))?, root.clone()))
        })
    }

    /// All of a file.
    #[napi]
    pub fn read_file(&self, path: &[u8]) -> Promised<Buffer> {
        self.at(path, |root, path| Ok(root.read(path)?.into()))
    }

    /// Opens a file, writes all of it and closes the file, durable if that is wanted.
    #[napi]
    pub fn write_file(
        &self,
        path: &[u8],
        data: &[u8],
        how: String,
        mode: u32,
        flush: bool,
    ) -> Promised<()> {
        let data = data.to_vec();
        self.at(path, move |root, path| {
            let file = root.open_with(path, &options(&how, mode))?;
            (&file).write_all(&data)?;
            if flush { file.sync_all() } else { Ok(()) }
        })
    }

    /// The names in a directory.
    #[napi]
    pub fn readdir(&self, path: &[u8]) -> Promised<Names> {
        self.at(path, |root, path| {
            let (mut names, mut types) = (Vec::new(), Vec::new());
            for entry in root.read_dir(path)? {
                let entry = entry?;
                names.extend_from_slice(entry.file_name().as_bytes());
                names.push(0);
                types.push((entry.file_type().mode_bits() >> 12) as u8);
            }
            Ok(Names { names: names.into(), types: types.into() })
        })
    }

    /// Attributes.
    #[napi]
    pub fn stat(&self, path: &[u8], follow: bool) -> Promised<Stat> {
        self.at(path, move |root, path| {
            Ok(stat(&if follow { root.metadata(path)? } else { root.symlink_metadata(path)? }))
        })
    }

    /// Makes a directory; with `recursive` the missing ones above it as well, and says which was the first.
    #[napi]
    pub fn mkdir(&self, path: &[u8], mode: u32, recursive: bool) -> Promised<Option<Buffer>> {
        self.at(path, move |root, path| {
            if recursive {
                return Ok(make_all(root, path, mode)?.as_deref().map(bytes_of));
            }
            root.create_dir_with_mode(path, mode).map(|()| None)
        })
    }

    /// Removes a file, or with `recursive` anything.
    #[napi]
    pub fn rm(&self, path: &[u8], recursive: bool, force: bool) -> Promised<()> {
        self.at(path, move |root, path| match remove(root, path, recursive) {
            Err(error) if force && error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        })
    }

    /// Removes an empty directory.
    #[napi]
    pub fn rmdir(&self, path: &[u8]) -> Promised<()> {
        self.at(path, |root, path| root.remove_dir(path))
    }

    /// Removes a name.
    #[napi]
    pub fn unlink(&self, path: &[u8]) -> Promised<()> {
        self.at(path, |root, path| root.remove_file(path))
    }

    /// Moves a name, in one step.
    #[napi]
    pub fn rename(&self, from: &[u8], to: &[u8]) -> Promised<()> {
        let to = path_of(to);
        self.at(from, move |root, from| root.rename(from, to))
    }

    /// Gives a file one more name.
    #[napi]
    pub fn link(&self, from: &[u8], to: &[u8]) -> Promised<()> {
        let to = path_of(to);
        self.at(from, move |root, from| root.hard_link(from, to))
    }

    /// Makes a symbolic link.
    #[napi]
    pub fn symlink(&self, target: &[u8], path: &[u8]) -> Promised<()> {
        let target = path_of(target);
        self.at(path, move |root, path| root.symlink(target, path))
    }

    /// What a symbolic link says.
    #[napi]
    pub fn readlink(&self, path: &[u8]) -> Promised<Buffer> {
        self.at(path, |root, path| Ok(bytes_of(&root.read_link(path)?)))
    }

    /// Where a path leads.
    #[napi]
    pub fn realpath(&self, path: &[u8]) -> Promised<Buffer> {
        self.at(path, |root, path| Ok(bytes_of(&root.canonicalize(path)?)))
    }

    /// Cuts or extends a file.
    #[napi]
    pub fn truncate(&self, path: &[u8], len: i64) -> Promised<()> {
        self.at(path, move |root, path| {
            root.truncate(path, u64::try_from(len).map_err(|_| invalid())?)
        })
    }

    /// Sets the permission bits.
    #[napi]
    pub fn chmod(&self, path: &[u8], mode: u32) -> Promised<()> {
        self.at(path, move |root, path| root.set_permissions(path, Permissions::from_mode(mode)))
    }

    /// Sets owner and group.
    #[napi]
    pub fn chown(
        &self,
        path: &[u8],
        uid: Option<u32>,
        gid: Option<u32>,
        follow: bool,
    ) -> Promised<()> {
        self.at(path, move |root, path| root.chown(followed(root, path, follow)?, uid, gid))
    }

    /// Sets the times.
    #[napi]
    pub fn utimes(&self, path: &[u8], times: Times, follow: bool) -> Promised<()> {
        self.at(path, move |root, path| {
            root.set_times(followed(root, path, follow)?, times.checked()?)
        })
    }

    /// Makes the names in a directory durable.
    #[napi]
    pub fn sync_dir(&self, path: &[u8]) -> Promised<()> {
        self.at(path, |root, path| root.open_dir(path)?.sync_all())
    }
}
