//! Names of directories.

use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, PoisonError};

use holdfast::{Dir, ReadDir};

use crate::border::{Handle, call, done, handle, invalid, made, put, take, text};
use crate::volume::holdfast_volume;

/// Bytes of the longest name, with the 0 behind it.
pub const HOLDFAST_NAME_SIZE: usize = 256;

/// A directory that is being read.
#[expect(non_camel_case_types, reason = "this is its name in C")]
pub struct holdfast_dir {
    root: Dir,
    entries: Mutex<ReadDir>,
}

impl Handle for holdfast_dir {
    fn root(&self) -> &Dir {
        &self.root
    }
}

/// One name of a directory.
#[repr(C)]
pub struct holdfast_dirent_t {
    /// Inode number.
    pub ino: u64,
    /// The type, as the upper bits of `mode` in holdfast_stat_t have it: S_IFREG and its kin.
    pub mode: u32,
    /// The name, with a 0 behind it.
    pub name: [c_char; HOLDFAST_NAME_SIZE],
}

/// Begins to read the directory at `path`.
///
/// # Safety
/// `volume` is NULL or a handle of this library; `path` is NULL, or ends with a 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_opendir(
    volume: *const holdfast_volume,
    path: *const c_char,
) -> *mut holdfast_dir {
    made(|| {
        // SAFETY: as the caller says.
        let (volume, path) = unsafe { (handle(volume)?, text(path)?) };
        let entries = Mutex::new(volume.root().read_dir(path)?);
        Ok(holdfast_dir { root: volume.root().clone(), entries })
    })
}

/// The next name, without `.` and `..`, in no particular order: 1 if there was one, 0 at the end. A name that is there
/// all the time is given exactly once.
///
/// # Safety
/// `dir` is NULL or a handle of this library; `answer` is NULL or a place for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_readdir(
    dir: *const holdfast_dir,
    answer: *mut holdfast_dirent_t,
) -> c_int {
    call(-1, || {
        // SAFETY: as the caller says.
        let dir = unsafe { handle(dir) }?;
        if answer.is_null() {
            // Before a name is taken, which no later call would give again.
            return Err(invalid("NULL where a place for an answer must be"));
        }
        let mut entries = dir.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = entries.next().transpose()? else { return Ok(0) };
        let mut found = holdfast_dirent_t {
            ino: entry.ino(),
            mode: entry.file_type().mode_bits(),
            name: [0; HOLDFAST_NAME_SIZE],
        };
        // No name is longer than 255 bytes. The last byte stays 0.
        for (to, from) in
            found.name[..HOLDFAST_NAME_SIZE - 1].iter_mut().zip(entry.file_name().as_bytes())
        {
            *to = *from as c_char;
        }
        // SAFETY: as the caller says.
        unsafe { put(answer, found) }.map(|()| 1)
    })
}

/// Ends the reading; the handle is gone. NULL: nothing happens.
///
/// # Safety
/// `dir` is NULL or a handle of this library that no thread uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_closedir(dir: *mut holdfast_dir) -> c_int {
    done(|| {
        // SAFETY: as the caller says.
        drop(unsafe { take(dir) });
        Ok(())
    })
}
