//! The owner of the snapshot and the fork of a transaction: the process that holds a lock.
//!
//! It locks a byte of the root of the mount in which the transaction began, at the place of its number. The kernel keeps such
//! locks, for all processes that see the mount, whatever their namespaces; they end with their process, and with the mount. So
//! what is called by an unlocked number belongs to a process that was killed.

use std::fs::File;
use std::io;
use std::path::Path;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

/// A number that this process owns, until it is dropped.
#[derive(Debug)]
pub(super) struct Owner {
    /// The lock belongs to it, and not to the process: no other file that is closed gives it back.
    _root: File,
}

impl Owner {
    /// Owns a number of the mount at `dir`, which is in use for as long.
    ///
    /// # Errors
    /// This user may not read the root, or the daemon has ended.
    pub(super) fn of(dir: &Path, number: u64) -> io::Result<Owner> {
        let root = File::open(dir)?;
        // Shared: a directory cannot be opened for writing. No other process has the number.
        fcntl(&root, FcntlArg::F_OFD_SETLK(&byte(number, libc::F_RDLCK)))?;
        Ok(Owner { _root: root })
    }
}

/// Whether a process owns a number of the mount at `dir`.
///
/// # Errors
/// As of [`Owner::of`].
pub(super) fn is_owned(dir: &Path, number: u64) -> io::Result<bool> {
    let root = File::open(dir)?;
    let mut wanted = byte(number, libc::F_WRLCK);
    fcntl(&root, FcntlArg::F_OFD_GETLK(&mut wanted))?;
    Ok(i32::from(wanted.l_type) != libc::F_UNLCK)
}

fn byte(number: u64, kind: i32) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: number.min(i64::MAX as u64 - 1).cast_signed(),
        l_len: 1,
        l_pid: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_owned_until_its_owner_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        let (one, other) = (Owner::of(at, 7).unwrap(), Owner::of(at, u64::MAX >> 4).unwrap());
        assert!(is_owned(at, 7).unwrap() && is_owned(at, u64::MAX >> 4).unwrap());
        assert!(!is_owned(at, 8).unwrap() && !is_owned(at, 0).unwrap());
        // Looking has not given it back, nor has the end of another.
        drop(other);
        assert!(is_owned(at, 7).unwrap() && !is_owned(at, u64::MAX >> 4).unwrap());
        drop(one);
        assert!(!is_owned(at, 7).unwrap());
    }
}
