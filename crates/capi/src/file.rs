//! Open files.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::fs::TryLockError;
use std::io::{self, Read, Seek, SeekFrom, Write};

use holdfast::{Dir, File, OpenOptions};
use libc::ssize_t;

use crate::border::{Handle, bytes, call, done, handle, invalid, made, place, put, take, text};
use crate::stat::holdfast_stat_t;
use crate::volume::holdfast_volume;

/// An open file. It has a position, which holdfast_read, holdfast_write and holdfast_lseek share.
#[expect(non_camel_case_types, reason = "this is its name in C")]
pub struct holdfast_file {
    root: Dir,
    file: File,
}

impl Handle for holdfast_file {
    fn root(&self) -> &Dir {
        &self.root
    }
}

/// Bits of open(2) that mean nothing here.
const WITHOUT_MEANING: c_int =
    libc::O_CLOEXEC | libc::O_LARGEFILE | libc::O_NOCTTY | libc::O_NONBLOCK;

/// What fallocate(2) wants for a hole.
const HOLE: c_int = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;

/// What the bits of open(2) ask for, but for O_TMPFILE; and whether the file is emptied afterwards.
fn options(flags: c_int, mode: c_uint) -> io::Result<(OpenOptions, bool)> {
    let has = |flag: c_int| flags & flag == flag;
    let known = libc::O_ACCMODE
        | libc::O_CREAT
        | libc::O_EXCL
        | libc::O_TRUNC
        | libc::O_APPEND
        | libc::O_SYNC
        | libc::O_DSYNC
        | libc::O_NOFOLLOW
        | libc::O_NOATIME
        | WITHOUT_MEANING;
    if flags & !known != 0 {
        return Err(invalid("a flag that is unknown"));
    }
    let (read, write) = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => (true, false),
        libc::O_WRONLY => (false, true),
        libc::O_RDWR => (true, true),
        _ => return Err(invalid("neither O_RDONLY nor O_WRONLY nor O_RDWR")),
    };
    let append = write && has(libc::O_APPEND);
    let options = OpenOptions::new()
        .read(read)
        .write(write)
        .append(append)
        .create(has(libc::O_CREAT))
        .create_new(has(libc::O_CREAT | libc::O_EXCL))
        .truncate(has(libc::O_TRUNC) && !append)
        .sync(has(libc::O_SYNC))
        .dsync(has(libc::O_DSYNC))
        .follow(!has(libc::O_NOFOLLOW))
        .noatime(has(libc::O_NOATIME))
        .mode(mode);
    Ok((options, has(libc::O_TRUNC) && append))
}

/// Opens a file. `flags` are those of open(2): O_RDONLY, O_WRONLY or O_RDWR, O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_SYNC,
/// O_DSYNC, O_NOFOLLOW, O_NOATIME; O_TMPFILE makes a file without a name in the directory at `path`. O_CREAT and
/// O_TRUNC need a way to write (EINVAL). `mode`: permission bits of a file that is made; there is no umask.
///
/// # Safety
/// `volume` is NULL or a handle of this library; `path` is NULL, or ends with a 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_file_open(
    volume: *const holdfast_volume,
    path: *const c_char,
    flags: c_int,
    mode: c_uint,
) -> *mut holdfast_file {
    made(|| {
        // SAFETY: as the caller says.
        let (volume, path) = unsafe { (handle(volume)?, text(path)?) };
        let root = volume.root();
        let file = match flags & libc::O_TMPFILE == libc::O_TMPFILE {
            true => {
                let (options, _) = options(flags & !libc::O_TMPFILE, mode)?;
                root.tmpfile(path, &options)?
            }
            false => {
                let (options, emptied) = options(flags, mode)?;
                let file = root.open_with(path, &options)?;
                if emptied {
                    file.set_len(0)?;
                }
                file
            }
        };
        Ok(holdfast_file { root: root.clone(), file })
    })
}

/// Closes the file; the handle is gone. Nothing becomes durable by it. NULL: nothing happens.
///
/// # Safety
/// `file` is NULL or a handle of this library that no thread uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_file_close(file: *mut holdfast_file) -> c_int {
    done(|| {
        // SAFETY: as the caller says.
        drop(unsafe { take(file) });
        Ok(())
    })
}

/// Bytes that were read or written, as C counts them. No call takes more.
fn count(len: usize) -> ssize_t {
    ssize_t::try_from(len).unwrap_or(ssize_t::MAX)
}

/// How many of `len` bytes there can be from `offset` on, so that a large place for a small file costs nothing; 1 or more unless `len`
/// is 0, so that a file which must not be read says so.
fn readable(file: &File, offset: u64, len: usize) -> io::Result<usize> {
    let left = file.metadata()?.len().saturating_sub(offset).max(1);
    Ok(usize::try_from(left).map_or(len, |left| left.min(len)))
}

/// Reads up to `len` bytes from the position on; 0 at the end. Returns how many.
///
/// # Safety
/// `file` is NULL or a handle of this library; there is room for `len` bytes at `into`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_read(
    file: *const holdfast_file,
    into: *mut c_void,
    len: usize,
) -> ssize_t {
    call(-1, || {
        // SAFETY: as the caller says.
        let file = unsafe { handle(file) }?;
        let len = readable(&file.file, 0, len)?;
        // SAFETY: as the caller says, of no more than it says.
        let into = unsafe { place(into, len) }?;
        Ok(count((&file.file).read(into)?))
    })
}

/// Writes `len` bytes at the position, or at the end with O_APPEND. Returns how many. Whether there is space is decided
/// now (P8); durable after holdfast_fsync.
///
/// # Safety
/// `file` is NULL or a handle of this library; `from` has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_write(
    file: *const holdfast_file,
    from: *const c_void,
    len: usize,
) -> ssize_t {
    call(-1, || {
        // SAFETY: as the caller says.
        let (file, from) = unsafe { (handle(file)?, bytes(from, len)?) };
        Ok(count((&file.file).write(from)?))
    })
}

/// As holdfast_read, from `offset` on, without the position.
///
/// # Safety
/// As holdfast_read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_pread(
    file: *const holdfast_file,
    into: *mut c_void,
    len: usize,
    offset: u64,
) -> ssize_t {
    call(-1, || {
        // SAFETY: as the caller says.
        let file = unsafe { handle(file) }?;
        let len = readable(&file.file, offset, len)?;
        // SAFETY: as the caller says, of no more than it says.
        let into = unsafe { place(into, len) }?;
        Ok(count(file.file.read_at(into, offset)?))
    })
}

/// As holdfast_write, at `offset`, without the position. With O_APPEND it writes at the end all the same, as Linux does.
///
/// # Safety
/// As holdfast_write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_pwrite(
    file: *const holdfast_file,
    from: *const c_void,
    len: usize,
    offset: u64,
) -> ssize_t {
    call(-1, || {
        // SAFETY: as the caller says.
        let (file, from) = unsafe { (handle(file)?, bytes(from, len)?) };
        Ok(count(file.file.write_at(from, offset)?))
    })
}

/// Moves the position and returns it. `whence`: SEEK_SET, SEEK_CUR, SEEK_END, SEEK_DATA or SEEK_HOLE.
///
/// # Safety
/// `file` is NULL or a handle of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_lseek(
    file: *const holdfast_file,
    offset: i64,
    whence: c_int,
) -> i64 {
    call(-1, || {
        // SAFETY: as the caller says.
        let file = unsafe { handle(file) }?;
        let from_start = || u64::try_from(offset).map_err(|_| invalid("before the start"));
        let no_more = || io::Error::from_raw_os_error(libc::ENXIO);
        let to = match whence {
            libc::SEEK_SET => SeekFrom::Start(from_start()?),
            libc::SEEK_CUR => SeekFrom::Current(offset),
            libc::SEEK_END => SeekFrom::End(offset),
            libc::SEEK_DATA => {
                let data = file.file.seek_data(from_start().map_err(|_| no_more())?)?;
                SeekFrom::Start(data.ok_or_else(no_more)?)
            }
            libc::SEEK_HOLE => {
                SeekFrom::Start(file.file.seek_hole(from_start().map_err(|_| no_more())?)?)
            }
            _ => return Err(invalid("no whence that lseek(2) has")),
        };
        // No position is above that.
        Ok(i64::try_from((&file.file).seek(to)?).unwrap_or(i64::MAX))
    })
}

/// Data, size, attributes and every name of the file survive any crash once this returns (P1).
///
/// # Safety
/// `file` is NULL or a handle of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_fsync(file: *const holdfast_file) -> c_int {
    // SAFETY: as the caller says.
    done(|| unsafe { handle(file) }?.file.sync_all())
}

/// Data and size of the file survive any crash once this returns (P1).
///
/// # Safety
/// `file` is NULL or a handle of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_fdatasync(file: *const holdfast_file) -> c_int {
    // SAFETY: as the caller says.
    done(|| unsafe { handle(file) }?.file.sync_data())
}

/// Cuts or extends the file; what is added reads as zeros (P5).
///
/// # Safety
/// `file` is NULL or a handle of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_ftruncate(file: *const holdfast_file, len: u64) -> c_int {
    // SAFETY: as the caller says.
    done(|| unsafe { handle(file) }?.file.set_len(len))
}

/// As fallocate(2). `mode`: 0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE,
/// FALLOC_FL_COLLAPSE_RANGE or FALLOC_FL_INSERT_RANGE; others are EOPNOTSUPP.
///
/// # Safety
/// `file` is NULL or a handle of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_fallocate(
    file: *const holdfast_file,
    mode: c_int,
    offset: u64,
    len: u64,
) -> c_int {
    done(|| {
        // SAFETY: as the caller says.
        let file = unsafe { handle(file) }?;
        match mode {
            0 => file.file.allocate(offset, len),
            libc::FALLOC_FL_KEEP_SIZE => file.file.allocate_keep_size(offset, len),
            HOLE => file.file.punch_hole(offset, len),
            libc::FALLOC_FL_ZERO_RANGE => file.file.zero_range(offset, len),
            libc::FALLOC_FL_COLLAPSE_RANGE => file.file.collapse_range(offset, len),
            libc::FALLOC_FL_INSERT_RANGE => file.file.insert_range(offset, len),
            _ => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        }
    })
}

/// Locks the whole file among the handles of this process, as flock(2): `operation` is LOCK_SH, LOCK_EX or LOCK_UN, and
/// LOCK_NB with it to get EWOULDBLOCK instead of waiting. The lock goes with the handle.
///
/// # Safety
/// `file` is NULL or a handle of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_flock(file: *const holdfast_file, operation: c_int) -> c_int {
    done(|| {
        // SAFETY: as the caller says.
        let file = unsafe { handle(file) }?;
        let tried = |result| match result {
            Ok(()) => Ok(()),
            Err(TryLockError::Error(error)) => Err(error),
            Err(TryLockError::WouldBlock) => Err(io::Error::from_raw_os_error(libc::EWOULDBLOCK)),
        };
        let waits = operation & libc::LOCK_NB == 0;
        match (operation & !libc::LOCK_NB, waits) {
            (libc::LOCK_SH, true) => file.file.lock_shared(),
            (libc::LOCK_EX, true) => file.file.lock(),
            (libc::LOCK_SH, false) => tried(file.file.try_lock_shared()),
            (libc::LOCK_EX, false) => tried(file.file.try_lock()),
            (libc::LOCK_UN, _) => file.file.unlock(),
            _ => Err(invalid("no operation that flock(2) has")),
        }
    })
}

/// The attributes of the file.
///
/// # Safety
/// `file` is NULL or a handle of this library; `answer` is NULL or a place for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_fstat(
    file: *const holdfast_file,
    answer: *mut holdfast_stat_t,
) -> c_int {
    done(|| {
        // SAFETY: as the caller says.
        let found = unsafe { handle(file) }?.file.metadata()?;
        // SAFETY: as the caller says.
        unsafe { put(answer, found.into()) }
    })
}

/// Gives the file another name: its first if it was opened with O_TMPFILE.
///
/// # Safety
/// `file` is NULL or a handle of this library; `path` is NULL, or ends with a 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_file_link(
    file: *const holdfast_file,
    path: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: as the caller says.
        let (file, path) = unsafe { (handle(file)?, text(path)?) };
        file.root.link_file(&file.file, path)
    })
}
