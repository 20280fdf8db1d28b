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

/// An open /dev/fuse without a connection.
///
/// # Errors
/// This user may not open it.
pub fn unconnected() -> io::Result<OwnedFd> {
    Ok(rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

/// Gives an open file without a connection ([`unconnected`]) that of `fuse`, for the handshake as well as for requests. An answer must go
/// through the open file that its request came through. May wait for ever where another process has made `fuse` so that it waits to be
/// mounted.
///
/// # Errors
/// `fuse` is no /dev/fuse (`InvalidInput`) or none that is mounted, or `new` has a connection. It is as it was.
pub fn connect(new: impl AsFd, fuse: impl AsFd) -> io::Result<()> {
    let number = fuse.as_fd().as_raw_fd().cast_unsigned();
    // SAFETY: the request reads a number of 32 bits and keeps nothing; the descriptor of that number is open meanwhile.
    unsafe { ioctl(new, Setter::<CLONE, u32>::new(number))? };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_connection_is_refused() {
        let Ok(new) = unconnected() else { return };
        let null = std::fs::File::open("/dev/null").expect("it is there");
        assert!(connect(&new, &null).is_err());
        // Not mounted.
        assert!(connect(&new, unconnected().expect("once more")).is_err());
    }
}
