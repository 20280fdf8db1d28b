//! Where salvaged files go: a directory of a host, an archive, or the memory of a test.

use std::io;

use holdfast_base::Timestamp;

use crate::report::FileNote;

/// What a file has beside its content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Type and permissions as in `st_mode`; `None` if they are lost.
    pub mode: Option<u32>,
    /// User and group.
    pub owner: Option<(u32, u32)>,
    /// Last access and last change of the content.
    pub times: Option<(Timestamp, Timestamp)>,
    /// Names and values of extended attributes.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Takes a tree, one directory after the other: what is made comes into the one that was entered last.
///
/// No name has a `/` or a NUL, and none is `.` or `..`. A volume may be hostile: a destination makes nothing through what it has
/// made itself, such as a symbolic link, and never takes what is there already for what it is to make.
///
/// # Errors
/// `AlreadyExists`: the name is taken; the file gets another one. `StorageFull`, `QuotaExceeded` and `ReadOnlyFilesystem` end the
/// salvage; every other error is said of the one file, and the salvage goes on.
pub trait Destination {
    /// Makes a directory and enters it.
    fn enter(&mut self, name: &[u8]) -> io::Result<()>;
    /// Gives the directory that was entered last its attributes, and leaves it. Called for the first one as well, which no call
    /// entered.
    fn leave(&mut self, attributes: &Attributes) -> io::Result<()>;
    /// Begins a regular file.
    fn begin(&mut self, name: &[u8]) -> io::Result<()>;
    /// Writes bytes of the file that was begun last.
    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Gives that file its length, and its attributes. What was not written of it is a hole.
    fn end(&mut self, len: u64, attributes: &Attributes) -> io::Result<()>;
    /// Makes a symbolic link.
    fn symlink(&mut self, name: &[u8], target: &[u8], attributes: &Attributes) -> io::Result<()>;
    /// Makes a pipe, a socket or a device.
    fn node(&mut self, name: &[u8], rdev: u64, attributes: &Attributes) -> io::Result<()>;
    /// Gives a file one more name. `old` are the names from the first directory to it.
    fn link(&mut self, name: &[u8], old: &[Vec<u8>]) -> io::Result<()>;
    /// Takes which attributes the host did not take of what was made, ended or left last: `owner`, `mode`, `times`, names of extended
    /// attributes. The content is as it was without them.
    fn take_not_set(&mut self) -> Vec<String> {
        Vec::new()
    }
    /// Hears what became of a file.
    fn report(&mut self, found: &FileNote) -> io::Result<()>;
}
