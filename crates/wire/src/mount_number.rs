//! The number that no other mount ever has or had, of a mount that tells its user alone what lies in it.
//!
//! statx(2) asks a mount of FUSE for leave, and gets none where only its user is let in. This call does not ask.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_long};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// AT_HANDLE_MNT_ID_UNIQUE, of Linux 6.12.
const UNIQUE: c_int = 1;
/// Bytes of a handle, which is not wanted: the kernel wants room for one.
const HANDLE: u32 = 128;

/// What is before a handle, and the handle.
#[repr(C, align(8))]
struct Room {
    bytes: u32,
    kind: c_int,
    handle: [u8; HANDLE as usize],
}

/// The number of the mount that one sees at `name` in a directory. Follows no link and asks no server.
///
/// # Errors
/// There is nothing, or the kernel is older than 6.12.
pub fn mount_number(directory: impl AsFd, name: &CStr) -> io::Result<u64> {
    let mut room = Room { bytes: HANDLE, kind: 0, handle: [0; HANDLE as usize] };
    let mut number = 0u64;
    let directory = c_long::from(directory.as_fd().as_raw_fd());
    // SAFETY: the descriptor is open and the name ends with a zero. The kernel writes no more than `bytes` of the handle, and
    // with this flag a number of 64 bits.
    let done = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            directory,
            name.as_ptr(),
            &raw mut room,
            &raw mut number,
            c_long::from(UNIQUE),
        )
    };
    match done {
        0 => Ok(number),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_has_one_number() {
        let root = std::fs::File::open("/").expect("it is there");
        // Older kernels and some filesystems have none.
        if let (Ok(one), Ok(two)) = (mount_number(&root, c"."), mount_number(&root, c"..")) {
            assert_eq!(one, two);
            let process = mount_number(&root, c"proc/self");
            assert!(process.map_or(true, |it| it != one), "another mount");
        }
        assert!(mount_number(&root, c"no such").is_err());
    }
}
