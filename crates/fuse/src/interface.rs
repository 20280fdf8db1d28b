//! Between the transports and the [`crate::server`]: what a request carries and what an answer carries, in plain structs.
//!
//! Nothing here is tied to a crate or a protocol version: ids are numbers, names are bytes, flags are those of the
//! system calls.

use std::time::Duration;

use holdfast_base::InodeNo;
use holdfast_posix::{Attr, DirEntry, FileSystem, FsError, NewHead, Told};

use crate::troubles;

/// The number with which a request fails. Always positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl From<FsError> for Errno {
    fn from(error: FsError) -> Errno {
        troubles::met(&error);
        Errno(error.errno())
    }
}

/// What every request is answered with.
pub type Answer<T> = Result<T, Errno>;

/// A completion callback: it gets the answer, on any thread.
pub trait Completion: FnOnce(Answer<()>) + Send + 'static {}

impl<T: FnOnce(Answer<()>) + Send + 'static> Completion for T {}

/// In place of a user or a group that the kernel does not tell.
pub const NO_ID: u32 = holdfast_wire::abi::NO_ID;

/// The caller.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// User, as the filesystem sees it (fsuid). [`NO_ID`] in requests that make nothing, where mounts may have other
    /// owners than the volume: the kernel has checked permissions, then.
    pub uid: u32,
    /// Group, or [`NO_ID`].
    pub gid: u32,
    /// Thread id, 0 if it is in another pid namespace or the kernel asks by itself.
    pub pid: u32,
}

/// What kind of inode is wanted, with which permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// Type and permission bits, as the caller gave them.
    pub mode: u32,
    /// Bits that the caller does not want, unless a list of the directory decides.
    pub umask: u32,
}

/// By what the kernel knows an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeId {
    /// The number that requests about it name.
    pub number: u64,
    /// Of one number and another generation is another inode: what the kernel knows of the former is over.
    pub generation: u32,
}

/// What a name leads to. The kernel may believe it until `ttl` has passed.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// By what the kernel knows it from now on.
    pub node: NodeId,
    /// The inode as programs see it, counted as one more reference of the kernel; `None` if there is no such name.
    pub attr: Option<Attr>,
    /// How long name and attributes stay true.
    pub ttl: Duration,
}

impl Entry {
    /// There is no such name.
    pub(crate) fn none(ttl: Duration) -> Entry {
        Entry { node: NodeId::default(), attr: None, ttl }
    }
}

/// A handle, and how the kernel may treat it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Number of the handle.
    pub fh: u64,
    /// No page cache: every read and write comes here, writes of one file at the same time.
    pub direct: bool,
    /// Pages cached earlier are still right.
    pub keep_cache: bool,
}

/// The open file that a request is about.
#[derive(Clone, Copy, Debug)]
pub struct FileId {
    /// Its inode.
    pub inode: InodeNo,
    /// Number of the handle; means nothing if the kernel opens files itself.
    pub fh: u64,
    /// How it was opened, as for open(2), where the request says so; otherwise 0.
    pub flags: i32,
}

/// A write.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// Into which file. Its flags are those of this call, too (O_SYNC, O_DSYNC).
    pub file: FileId,
    /// Where. The kernel has already added the size of the file for O_APPEND.
    pub offset: u64,
    /// What.
    pub bytes: &'a [u8],
    /// Set-id bits must go.
    pub kill_suid_sgid: bool,
    /// The kernel writes pages that programs have stored into through a mapping.
    pub is_cached: bool,
}

/// A copy from file to file.
#[derive(Clone, Copy, Debug)]
pub struct CopyRange {
    /// File to read from.
    pub from: FileId,
    /// Where to read.
    pub offset_in: u64,
    /// File to write to.
    pub to: FileId,
    /// Where to write.
    pub offset_out: u64,
    /// How many bytes at most.
    pub len: u64,
}

/// The answer to a question for an extended attribute or for their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum XattrReply {
    /// Only the length was asked for.
    Length(u32),
    /// The value, or the names, each ended by a zero byte.
    Bytes(Vec<u8>),
}

/// Takes the entries of a directory.
pub trait DirSink {
    /// Takes one entry, with attributes if they are wanted. False if it had no room (the entry was not taken).
    fn add(&mut self, entry: &DirEntry<'_>, attr: Option<(&Attr, Duration)>) -> bool;
    /// Takes out all that it has taken.
    fn clear(&mut self);
}

/// A mount that a command is carried out for.
pub trait Controlled {
    /// What is mounted.
    fn fs(&self) -> &FileSystem;
    /// Whether the caller has shown that the mount may be written where it stands.
    fn may_change(&self) -> bool;
    /// Gives the branch another head, and says what the kernel knows of it.
    ///
    /// # Errors
    /// As of [`NewHead::give`]: the branch is what it was.
    fn give_head(&self, head: NewHead<'_>) -> holdfast_posix::Result<Told>;
    /// Takes the branch back to one of its snapshots. See [`Controlled::give_head`].
    fn roll_back(&self, to: &[u8], keep: Option<&[u8]>) -> holdfast_posix::Result<Told> {
        self.give_head(NewHead::Snapshot { to: to.into(), keep })
    }
}

/// What a server tells the kernel without being asked.
pub trait Kernel: Send + Sync {
    /// The attributes of `inode` have changed behind the kernel's back. Never called on a thread that the kernel needs
    /// for reading requests.
    fn attr_changed(&self, inode: u64);
    /// The content of `inode` has changed, too: the attributes and all pages that the kernel holds are not true any
    /// more. Waits for pages that are being read. Never called on a thread that serves a request.
    fn content_changed(&self, inode: u64);
    /// The pages that hold `len` bytes of `inode` from `offset` on are not true any more. As [`Kernel::content_changed`].
    fn bytes_changed(&self, inode: u64, offset: u64, len: u64);
    /// `inode` has at least `size` bytes, the last of which is `last`. As [`Kernel::content_changed`].
    fn grown(&self, inode: u64, size: u64, last: u8);
    /// What `name` in the directory `parent` leads to has changed. Never called on a thread that serves a request.
    fn name_changed(&self, parent: u64, name: &[u8]);
    /// The kernel forgets these inodes, but for those that a program uses. One that does not understand that goes on knowing them.
    fn unwanted(&self, inodes: &[u64]);
    /// Whether [`Kernel::all_names_changed`] is understood.
    fn takes_all_names(&self) -> bool;
    /// What any name leads to may have changed. Waits for nothing.
    fn all_names_changed(&self);
}
