//! A connection to the kernel, opened once more.
//!
//! What two processes share when one hands a descriptor to the other is the open file behind it, with its flags: either can make the
//! other's reads wait for ever. A clone has an open file of its own on the same connection.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

/// FUSE_DEV_IOC_CLONE: gives a new open file the connection of the descriptor with this number.
const CLONE: Opcode = opcode::read::<u32>(229, 0);

/// Another open file on the connection of `fuse`, for the handshake as well as for requests. An answer must go through the open file
/// that its request came through. May wait for ever where another process has made `fuse` so that it waits to be mounted.
///
/// # Errors
/// `fuse` is no /dev/fuse (`InvalidInput`) or none that is mounted, or this user may not open /dev/fuse.
pub fn cloned(fuse: impl AsFd) -> io::Result<OwnedFd> {
    let how = OFlags::RDWR | OFlags::CLOEXEC;
    let new = rustix::fs::open("/dev/fuse", how, Mode::empty())?;
    let number = fuse.as_fd().as_raw_fd().cast_unsigned();
    // SAFETY: the request reads a number of 32 bits and keeps nothing; the descriptor of that number is open meanwhile.
    unsafe { ioctl(&new, Setter::<CLONE, u32>::new(number))? };
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_connection_is_refused() {
        if !std::fs::exists("/dev/fuse").is_ok_and(|it| it) || cloned(io::stdin()).is_ok() {
            return;
        }
        let null = std::fs::File::open("/dev/null").expect("it is there");
        assert!(cloned(&null).is_err());
        // Not mounted.
        if let Ok(fuse) = std::fs::File::options().read(true).write(true).open("/dev/fuse") {
            assert!(cloned(&fuse).is_err());
        }
    }
}
