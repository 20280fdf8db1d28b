//! Volumes: making, opening, closing, and what they are as a whole.

use std::ffi::{c_char, c_int, c_uint};

use holdfast::{Dir, Volume, VolumeOptions};

use crate::border::{Handle, call, done, handle, invalid, made, name_or_none, put, take, text};

/// For holdfast_open: nothing is written, whatever is called.
pub const HOLDFAST_READ_ONLY: c_uint = 1;
/// For holdfast_open: a volume that is in use is refused (EBUSY), not reached through its mount.
pub const HOLDFAST_NOT_THROUGH_MOUNT: c_uint = 2;

/// An open volume, at one of its branches or snapshots.
#[expect(non_camel_case_types, reason = "this is its name in C")]
pub struct holdfast_volume(pub(crate) Volume);

impl Handle for holdfast_volume {
    fn root(&self) -> &Dir {
        &self.0
    }
}

impl holdfast_volume {
    #[cfg(test)]
    pub(crate) fn memory() -> holdfast_volume {
        holdfast_volume(Volume::in_memory(64 << 20).expect("a volume in memory"))
    }
}

/// Makes a file of `size` bytes with an empty volume in it, and opens it. The file must not exist (EEXIST), and is
/// readable by its owner alone.
///
/// # Safety
/// `host_path` is NULL, or ends with a 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_create(
    host_path: *const c_char,
    size: u64,
) -> *mut holdfast_volume {
    made(|| {
        // SAFETY: as the caller says.
        let host_path = unsafe { text(host_path) }?;
        Ok(holdfast_volume(Volume::create_new(host_path, size)?))
    })
}

/// Opens the volume in a file or block device. `branch`: NULL for `main`; `snapshot`: one of that branch, which is only
/// read, or NULL for the branch itself. `flags`: 0, or HOLDFAST_READ_ONLY and HOLDFAST_NOT_THROUGH_MOUNT, joined by `|`. After a crash this
/// recovers the volume first: everything that was acknowledged is there (P1 to P5, P9). A volume that is mounted is reached through its mount, unless a
/// flag says otherwise: files, directories and locks, with the rights of the process; branches and snapshots for root and the user who has mounted (EACCES for others);
/// EOPNOTSUPP of holdfast_open_branch for what no mount shows. Where no mount shows `branch` or
/// `snapshot` this call says EBUSY. Calls about branches and snapshots wait for the daemon without an end, also for one that is stopped.
///
/// # Safety
/// Each text is NULL, or ends with a 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_open(
    host_path: *const c_char,
    branch: *const c_char,
    snapshot: *const c_char,
    flags: c_uint,
) -> *mut holdfast_volume {
    made(|| {
        if flags & !(HOLDFAST_READ_ONLY | HOLDFAST_NOT_THROUGH_MOUNT) != 0 {
            return Err(invalid("a flag that is unknown"));
        }
        let has = |flag| flags & flag != 0;
        let mut options = VolumeOptions::new()
            .read_only(has(HOLDFAST_READ_ONLY))
            .through_mount(!has(HOLDFAST_NOT_THROUGH_MOUNT));
        // SAFETY: as the caller says.
        let (host_path, branch, snapshot) =
            unsafe { (text(host_path)?, name_or_none(branch)?, name_or_none(snapshot)?) };
        if let Some(branch) = branch {
            options = options.branch(branch);
        }
        if let Some(snapshot) = snapshot {
            options = options.snapshot(snapshot);
        }
        Ok(holdfast_volume(options.open(host_path)?))
    })
}

/// Makes everything durable and closes the volume; the host file is free when the last branch of it that is open here
/// is closed. If this fails, what was not fsynced before is lost. The handle is gone in any case. NULL: nothing happens.
/// Files and directories that are still open answer EBADF; they are closed all the same.
///
/// # Safety
/// `volume` is NULL or a handle of this library that no thread uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_close(volume: *mut holdfast_volume) -> c_int {
    done(|| {
        // SAFETY: as the caller says.
        let Some(volume) = (unsafe { take(volume) }) else { return Ok(()) };
        volume.0.close()
    })
}

/// Everything that any thread did before is durable when this returns (P1 to P3).
///
/// # Safety
/// `volume` is NULL or a handle of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_sync(volume: *const holdfast_volume) -> c_int {
    // SAFETY: as the caller says.
    done(|| unsafe { handle(volume) }?.0.sync())
}

/// How full a volume is.
#[repr(C)]
pub struct holdfast_statfs_t {
    /// Bytes of a block.
    pub block_size: u64,
    /// Blocks of data and metadata in all.
    pub blocks: u64,
    /// Blocks in no use.
    pub blocks_free: u64,
    /// Blocks that can still be filled with data.
    pub blocks_available: u64,
}

/// How full the volume is.
///
/// # Safety
/// `volume` is NULL or a handle of this library; `answer` is NULL or a place for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_statfs(
    volume: *const holdfast_volume,
    answer: *mut holdfast_statfs_t,
) -> c_int {
    done(|| {
        // SAFETY: as the caller says.
        let found = unsafe { handle(volume) }?.0.statfs()?;
        let found = holdfast_statfs_t {
            block_size: found.block_size.into(),
            blocks: found.blocks,
            blocks_free: found.blocks_free,
            blocks_available: found.blocks_available,
        };
        // SAFETY: as the caller says.
        unsafe { put(answer, found) }
    })
}

/// Whether the volume has stopped after a write or flush that the device refused (P7): 1 or 0. Nothing becomes durable any more
/// then, and what is there can be read. It stays so until it is opened again. Through a
/// mount it is not known, and 0.
///
/// # Safety
/// `volume` is NULL or a handle of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_has_stopped(volume: *const holdfast_volume) -> c_int {
    call(-1, || {
        // SAFETY: as the caller says.
        let volume = unsafe { handle(volume) }?;
        Ok(volume.0.stop_reason().is_some().into())
    })
}
