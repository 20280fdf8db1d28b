//! Calls that take paths.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;

use holdfast::{FileTimes, OpenOptions, Permissions, RenameFlags, XattrFlags};
use libc::ssize_t;

use crate::border::{Handle, bytes, call, done, handle, invalid, place, put, text};
use crate::stat::{holdfast_stat_t, holdfast_time};
use crate::volume::holdfast_volume;

/// For holdfast_rename: EEXIST if something is at the new path.
pub const HOLDFAST_RENAME_NOREPLACE: c_uint = 1;
/// For holdfast_rename: both exist, and change places.
pub const HOLDFAST_RENAME_EXCHANGE: c_uint = 2;

/// As stat(2), or lstat(2) with `follow` 0.
///
/// # Safety
/// `volume` is NULL or a handle of this library; `path` is NULL, or ends with a 0; `answer` is NULL or a place for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_stat(
    volume: *const holdfast_volume,
    path: *const c_char,
    follow: c_int,
    answer: *mut holdfast_stat_t,
) -> c_int {
    done(|| {
        // SAFETY: as the caller says.
        let (volume, path) = unsafe { (handle(volume)?, text(path)?) };
        let found = match follow {
            0 => volume.root().symlink_metadata(path)?,
            _ => volume.root().metadata(path)?,
        };
        // SAFETY: as the caller says.
        unsafe { put(answer, found.into()) }
    })
}

/// Makes a directory. `mode`: its permission bits; there is no umask.
///
/// # Safety
/// `volume` is NULL or a handle of this library; `path` is NULL, or ends with a 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_mkdir(
    volume: *const holdfast_volume,
    path: *const c_char,
    mode: c_uint,
) -> c_int {
    done(|| {
        // SAFETY: as the caller says.
        let (volume, path) = unsafe { (handle(volume)?, text(path)?) };
        volume.root().create_dir_with_mode(path, mode)
    })
}

/// Removes an empty directory. Works on a full volume (P8).
///
/// # Safety
/// As holdfast_mkdir.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_rmdir(
    volume: *const holdfast_volume,
    path: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: as the caller says.
        let (volume, path) = unsafe { (handle(volume)?, text(path)?) };
        volume.root().remove_dir(path)
    })
}

/// Removes a name of anything but a directory. Works on a full volume (P8).
///
/// # Safety
/// As holdfast_mkdir.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_unlink(
    volume: *const holdfast_volume,
    path: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: as the caller says.
        let (volume, path) = unsafe { (handle(volume)?, text(path)?) };
        volume.root().remove_file(path)
    })
}

/// Moves `from` to `to` in one step: a crash leaves all of it or nothing, and a file that replaces another has its data
/// (P4). `flags`: 0, HOLDFAST_RENAME_NOREPLACE or HOLDFAST_RENAME_EXCHANGE.
///
/// # Safety
/// `volume` is NULL or a handle of this library; each path is NULL, or ends with a 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_rename(
    volume: *const holdfast_volume,
    from: *const c_char,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    done(|| {
        // SAFETY: as the caller says.
        let (volume, from, to) = unsafe { (handle(volume)?, text(from)?, text(to)?) };
        let flags = match flags {
            0 => RenameFlags::empty(),
            HOLDFAST_RENAME_NOREPLACE => RenameFlags::NOREPLACE,
            HOLDFAST_RENAME_EXCHANGE => RenameFlags::EXCHANGE,
            _ => return Err(invalid("a flag that is unknown")),
        };
        volume.root().rename_with(from, volume.root(), to, flags)
    })
}

/// Gives what is at `from` another name. A symbolic link gets one itself.
///
/// # Safety
/// As holdfast_rename.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_link(
    volume: *const holdfast_volume,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: as the caller says.
        let (volume, from, to) = unsafe { (handle(volume)?, text(from)?, text(to)?) };
        volume.root().hard_link(from, to)
    })
}

/// Makes a symbolic link at `path` that holds `target`.
///
/// # Safety
/// `volume` is NULL or a handle of this library; each text is NULL, or ends with a 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_symlink(
    volume: *const holdfast_volume,
    target: *const c_char,
    path: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: as the caller says.
        let (volume, target, path) = unsafe { (handle(volume)?, text(target)?, text(path)?) };
        volume.root().symlink(target, path)
    })
}

/// Copies `found` to where a caller wants it: all of it, or ERANGE; `len` 0 asks only how long it is.
///
/// # Safety
/// There is room for `len` bytes at `into`.
unsafe fn answer(found: &[u8], into: *mut c_void, len: usize) -> io::Result<ssize_t> {
    if len != 0 {
        if into.is_null() {
            return Err(invalid("NULL where a place for bytes must be"));
        }
        if found.len() > len {
            return Err(io::Error::from_raw_os_error(libc::ERANGE));
        }
        // SAFETY: as the caller says, of no more than it says.
        unsafe { place(into, found.len()) }?.copy_from_slice(found);
    }
    Ok(ssize_t::try_from(found.len()).unwrap_or(ssize_t::MAX))
}

/// What a symbolic link holds, without a 0 behind it. Returns its length; ERANGE if that is more than `len`, and with
/// `len` 0 only the length.
///
/// # Safety
/// `volume` is NULL or a handle of this library; `path` is NULL, or ends with a 0; there is room for `len` bytes at
/// `into`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_readlink(
    volume: *const holdfast_volume,
    path: *const c_char,
    into: *mut c_void,
    len: usize,
) -> ssize_t {
    call(-1, || {
        // SAFETY: as the caller says.
        let (volume, path) = unsafe { (handle(volume)?, text(path)?) };
        let target = volume.root().read_link(path)?;
        // SAFETY: as the caller says.
        unsafe { answer(target.as_os_str().as_bytes(), into, len) }
    })
}

/// Cuts or extends the file at `path`.
///
/// # Safety
/// As holdfast_mkdir.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_truncate(
    volume: *const holdfast_volume,
    path: *const c_char,
    len: u64,
) -> c_int {
    done(|| {
        // SAFETY: as the caller says.
        let (volume, path) = unsafe { (handle(volume)?, text(path)?) };
        OpenOptions::new().write(true).open(volume.root(), path)?.set_len(len)
    })
}

/// Sets permission bits, symbolic links followed.
///
/// # Safety
/// As holdfast_mkdir.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_chmod(
    volume: *const holdfast_volume,
    path: *const c_char,
    mode: c_uint,
) -> c_int {
    done(|| {
        // SAFETY: as the caller says.
        let (volume, path) = unsafe { (handle(volume)?, text(path)?) };
        volume.root().set_permissions(path, Permissions::from_mode(mode))
    })
}

/// Sets owner and group, of a symbolic link itself; UINT32_MAX leaves one as it is.
///
/// # Safety
/// As holdfast_mkdir.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_chown(
    volume: *const holdfast_volume,
    path: *const c_char,
    uid: u32,
    gid: u32,
) -> c_int {
    done(|| {
        // SAFETY: as the caller says.
        let (volume, path) = unsafe { (handle(volume)?, text(path)?) };
        let wanted = |id: u32| (id != u32::MAX).then_some(id);
        volume.root().chown(path, wanted(uid), wanted(gid))
    })
}

/// Sets the times of the last access and the last change, of a symbolic link itself; NULL leaves one as it is.
///
/// # Safety
/// As holdfast_mkdir; each time is NULL or one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_utimens(
    volume: *const holdfast_volume,
    path: *const c_char,
    atime: *const holdfast_time,
    mtime: *const holdfast_time,
) -> c_int {
    done(|| {
        // SAFETY: as the caller says.
        let (volume, path) = unsafe { (handle(volume)?, text(path)?) };
        let mut times = FileTimes::new();
        let moment = |time: &holdfast_time| {
            time.to_system().ok_or_else(|| invalid("nanoseconds are 0 to 999999999"))
        };
        // SAFETY: as the caller says.
        let (atime, mtime) = unsafe { (atime.as_ref(), mtime.as_ref()) };
        if let Some(time) = atime {
            times = times.set_accessed(moment(time)?);
        }
        if let Some(time) = mtime {
            times = times.set_modified(moment(time)?);
        }
        volume.root().set_times(path, times)
    })
}

/// The names in the directory at `path` are durable when this returns, as an fsync of it makes them (P2).
///
/// # Safety
/// As holdfast_mkdir.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_fsync_dir(
    volume: *const holdfast_volume,
    path: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: as the caller says.
        let (volume, path) = unsafe { (handle(volume)?, text(path)?) };
        volume.root().open_dir(path)?.sync_all()
    })
}

/// The value of an extended attribute, symbolic links not followed. Returns its length; ERANGE if that is more than
/// `len`, and with `len` 0 only the length. ENODATA if there is none.
///
/// # Safety
/// As holdfast_readlink; `name` is NULL, or ends with a 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_getxattr(
    volume: *const holdfast_volume,
    path: *const c_char,
    name: *const c_char,
    into: *mut c_void,
    len: usize,
) -> ssize_t {
    call(-1, || {
        // SAFETY: as the caller says.
        let (volume, path, name) = unsafe { (handle(volume)?, text(path)?, text(name)?) };
        let value = volume.root().xattr(path, name)?;
        // SAFETY: as the caller says.
        unsafe { answer(&value, into, len) }
    })
}

/// Sets an extended attribute, symbolic links not followed. `flags`: 0, XATTR_CREATE or XATTR_REPLACE.
///
/// # Safety
/// `volume` is NULL or a handle of this library; each text is NULL, or ends with a 0; `value` has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_setxattr(
    volume: *const holdfast_volume,
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    len: usize,
    flags: c_int,
) -> c_int {
    done(|| {
        // SAFETY: as the caller says.
        let (volume, path, name) = unsafe { (handle(volume)?, text(path)?, text(name)?) };
        // SAFETY: as the caller says.
        let value = unsafe { bytes(value, len) }?;
        let flags = match flags {
            0 => XattrFlags::empty(),
            libc::XATTR_CREATE => XattrFlags::CREATE,
            libc::XATTR_REPLACE => XattrFlags::REPLACE,
            _ => return Err(invalid("a flag that is unknown")),
        };
        volume.root().set_xattr(path, name, value, flags)
    })
}

/// The names of all extended attributes, each with a 0 behind it, symbolic links not followed. Returns their length;
/// ERANGE if that is more than `len`, and with `len` 0 only the length.
///
/// # Safety
/// As holdfast_readlink.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_listxattr(
    volume: *const holdfast_volume,
    path: *const c_char,
    into: *mut c_void,
    len: usize,
) -> ssize_t {
    call(-1, || {
        // SAFETY: as the caller says.
        let (volume, path) = unsafe { (handle(volume)?, text(path)?) };
        let mut names = Vec::new();
        for name in volume.root().xattrs(path)? {
            names.extend_from_slice(name.as_bytes());
            names.push(0);
        }
        // SAFETY: as the caller says.
        unsafe { answer(&names, into, len) }
    })
}

/// Removes an extended attribute, symbolic links not followed; ENODATA if there is none.
///
/// # Safety
/// `volume` is NULL or a handle of this library; each text is NULL, or ends with a 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_removexattr(
    volume: *const holdfast_volume,
    path: *const c_char,
    name: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: as the caller says.
        let (volume, path, name) = unsafe { (handle(volume)?, text(path)?, text(name)?) };
        volume.root().remove_xattr(path, name)
    })
}
