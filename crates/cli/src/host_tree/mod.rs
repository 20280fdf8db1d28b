//! Trees of the host, by directories that are held open.
//!
//! Others may rename what lies in a tree, and put links in its place, while a command of root's reads or makes it. So a path is followed
//! where the user has named it, once, and from there on everything is a name in a directory that is held: no link is followed, what is
//! opened is compared with what was found, and attributes are read and set through what is open. What has changed its place meanwhile is
//! an error.

mod attributes;
mod dir;
mod new_file;
mod place;
#[cfg(test)]
mod tests;

pub(crate) use attributes::{is_missed, set, xattrs};
pub(crate) use dir::{Dir, Id};
pub(crate) use new_file::NewFile;
pub(crate) use place::{EntryStat, HostEntry, Made, There, data_after, read_link};

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// What is open, by a path: what only holds a place takes no other calls.
fn by_proc(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// What was found is not what is there.
fn another() -> io::Error {
    io::Error::other("something else has come into its place meanwhile")
}
