//! The operations.
//!
//! Paths begin at the root of the target and never contain `.` or `..`; no
//! operation follows a symbolic link, because that is the caller's (the
//! kernel's, the library's) work and not the filesystem's. Operations on bytes
//! and attributes take a [`FileRef`]: a path, or a handle that an earlier `open`
//! or `tmpfile` named, so that files without a name can be spoken of.

use crate::branch::BranchOp;
use crate::bytes::Data;
use crate::stat::FileKind;

/// An absolute path: `/` or names separated by single slashes. Compared as bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(Vec<u8>);

impl Path {
    /// The root.
    pub fn root() -> Path {
        Path(b"/".to_vec())
    }

    /// A path; `None` unless it begins with a slash and has no empty, `.` or `..` name.
    pub fn new(bytes: impl AsRef<[u8]>) -> Option<Path> {
        let bytes = bytes.as_ref();
        let names = bytes.strip_prefix(b"/")?;
        let good = |name: &[u8]| !matches!(name, b"" | b"." | b"..") && !name.contains(&0);
        (names.is_empty() || names.split(|&byte| byte == b'/').all(good))
            .then(|| Path(bytes.to_vec()))
    }

    /// The path of `name` in the directory `self`.
    pub fn join(&self, name: &[u8]) -> Path {
        let mut bytes = if self.is_root() { Vec::new() } else { self.0.clone() };
        bytes.push(b'/');
        bytes.extend_from_slice(name);
        Path(bytes)
    }

    /// The names from the root on.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|&byte| byte == b'/').filter(|name| !name.is_empty())
    }

    /// The directory and the last name; `None` for the root.
    pub fn split(&self) -> Option<(Path, &[u8])> {
        let slash = self.0.iter().rposition(|&byte| byte == b'/')?;
        let name = &self.0[slash + 1..];
        let parent = if slash == 0 { Path::root() } else { Path(self.0[..slash].to_vec()) };
        (!name.is_empty()).then_some((parent, name))
    }

    /// Whether it is the root.
    pub fn is_root(&self) -> bool {
        self.0 == b"/"
    }

    /// Number of names.
    pub fn depth(&self) -> usize {
        self.names().count()
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The name of an open file in a script.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Handle(pub String);

/// What an operation works on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileRef {
    /// Whatever has this name at that moment.
    Path(Path),
    /// The file that was opened as this, even if it has no name any more.
    Handle(Handle),
}

/// What mknod makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeKind {
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device with major and minor number.
    Char(u32, u32),
    /// A block device with major and minor number.
    Block(u32, u32),
}

impl NodeKind {
    /// The type, and the device number where there is one.
    pub fn parts(self) -> (FileKind, (u32, u32)) {
        match self {
            NodeKind::Fifo => (FileKind::Fifo, (0, 0)),
            NodeKind::Socket => (FileKind::Socket, (0, 0)),
            NodeKind::Char(major, minor) => (FileKind::Char, (major, minor)),
            NodeKind::Block(major, minor) => (FileKind::Block, (major, minor)),
        }
    }
}

/// What rename does with an existing new name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RenameHow {
    /// Replaces it.
    Replace,
    /// Fails.
    NoReplace,
    /// Swaps the two.
    Exchange,
}

/// What setxattr insists on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XattrHow {
    /// Nothing.
    Any,
    /// The attribute is new.
    Create,
    /// The attribute exists.
    Replace,
}

/// What fallocate does with the range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fallocate {
    /// Allocates, and grows the file over it.
    Allocate,
    /// Allocates without changing the size.
    Keep,
    /// Makes a hole without changing the size.
    Punch,
    /// Makes it read as zeros, and grows the file over it.
    Zero,
    /// Makes it read as zeros without changing the size.
    ZeroKeep,
    /// Takes it out: what follows moves to its start.
    Collapse,
    /// Puts a hole in: what was there moves behind it.
    Insert,
}

/// What seek looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whence {
    /// SEEK_DATA.
    Data,
    /// SEEK_HOLE.
    Hole,
}

/// A time for utimes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// Stays as it is.
    Omit,
    /// The moment of the call.
    Now,
    /// `secs` after 1970 (below 0: before), plus `nanos` always forwards.
    At {
        /// Whole seconds.
        secs: i64,
        /// Below a thousand million.
        nanos: u32,
    },
}

/// How a file is opened. At least one of `read` and `write` is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenHow {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Every write goes to the end.
    pub append: bool,
    /// Make it (mode 644) if it does not exist.
    pub create: bool,
    /// With `create`: it must not exist.
    pub exclusive: bool,
    /// Empty it.
    pub truncate: bool,
    /// O_SYNC.
    pub sync: bool,
    /// O_DSYNC.
    pub dsync: bool,
}

/// One operation.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // The fields are named after what the manual pages call them.
pub enum Op {
    /// `mkdir /d [mode]`
    Mkdir { path: Path, mode: u32 },
    /// `mkfile /f [mode]`: a new empty file; the name must not exist.
    Mkfile { path: Path, mode: u32 },
    /// `mknod /p fifo|socket|char:MAJOR:MINOR|block:MAJOR:MINOR [mode]`
    Mknod { path: Path, kind: NodeKind, mode: u32 },
    /// `symlink TARGET /l`
    Symlink { target: Vec<u8>, path: Path },
    /// `readlink /l`
    Readlink { path: Path },
    /// `link /f|@h /g`
    Link { from: FileRef, to: Path },
    /// `unlink /f`
    Unlink { path: Path },
    /// `rmdir /d`
    Rmdir { path: Path },
    /// `rename /a /b [noreplace|exchange]`
    Rename { from: Path, to: Path, how: RenameHow },
    /// `open h /f read,write,append,create,excl,trunc,sync,dsync`
    Open { handle: Handle, path: Path, how: OpenHow },
    /// `tmpfile h /d [mode]`: a file without a name, open for reading and writing.
    Tmpfile { handle: Handle, dir: Path, mode: u32 },
    /// `close h`
    Close { handle: Handle },
    /// `write /f|@h OFFSET LEN SEED` or `write /f|@h OFFSET "text"`
    Write { place: FileRef, offset: u64, data: Data },
    /// `append /f LEN SEED`
    Append { path: Path, data: Data },
    /// `read /f|@h OFFSET LEN`
    Read { place: FileRef, offset: u64, len: u64 },
    /// `sum /f|@h`: the digest of the whole content.
    Sum { place: FileRef },
    /// `truncate /f|@h SIZE`
    Truncate { place: FileRef, size: u64 },
    /// `fallocate /f|@h OFFSET LEN [keep]`, `punch /f|@h OFFSET LEN`, `zero /f|@h OFFSET LEN [keep]`,
    /// `collapse /f|@h OFFSET LEN`, `insert /f|@h OFFSET LEN`
    Fallocate { place: FileRef, how: Fallocate, offset: u64, len: u64 },
    /// `seek /f|@h data|hole OFFSET`
    Seek { place: FileRef, whence: Whence, offset: u64 },
    /// `stat /f|@h`
    Stat { place: FileRef },
    /// `chmod /f|@h MODE`
    Chmod { place: FileRef, mode: u32 },
    /// `chown /f|@h UID|- GID|-`
    Chown { place: FileRef, uid: Option<u32>, gid: Option<u32> },
    /// `utimes /f|@h ATIME MTIME`, each `omit`, `now` or seconds with an optional fraction
    Utimes { place: FileRef, atime: SetTime, mtime: SetTime },
    /// `setxattr /f|@h NAME LEN SEED|"value" [create|replace]`
    Setxattr { place: FileRef, name: Vec<u8>, value: Data, how: XattrHow },
    /// `getxattr /f|@h NAME`
    Getxattr { place: FileRef, name: Vec<u8> },
    /// `removexattr /f|@h NAME`
    Removexattr { place: FileRef, name: Vec<u8> },
    /// `listxattr /f|@h`: sorted names of the user and trusted families.
    Listxattr { place: FileRef },
    /// `ls /d`: sorted.
    Ls { path: Path },
    /// `fsync /f|/d|@h`
    Fsync { place: FileRef },
    /// `fdatasync /f|@h`
    Fdatasync { place: FileRef },
    /// `fsyncdir /d`
    Fsyncdir { path: Path },
    /// `sync`: all of the filesystem.
    Sync,
    /// `grow SIZE`: the volume becomes that large, and nothing of the tree is another. Targets without a volume do nothing.
    Grow { bytes: u64 },
    /// `shrink SIZE`: as `remount`, and the volume is made that small while it is at rest. Targets without a volume only remount.
    Shrink { bytes: u64 },
    /// `evict`: what is cached and clean is forgotten.
    Evict,
    /// `remount`: handles are closed, everything is written, unmounted and mounted again.
    Remount,
    /// `crash`: power fails, what was not durable may be lost, mounted again. Handles are gone.
    Crash,
    /// `tree`: everything there is in the branch.
    Tree,
    /// Of branches and snapshots.
    Branch(BranchOp),
}

/// An operation, and the answer that the author of the script expects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// What is done.
    pub op: Op,
    /// `op -> answer`: the text of the outcome.
    pub expect: Option<String>,
}

impl From<Op> for Step {
    fn from(op: Op) -> Step {
        Step { op, expect: None }
    }
}

/// Operations in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Script {
    /// The steps.
    pub steps: Vec<Step>,
}

impl Script {
    /// The operations without expectations.
    pub fn ops(&self) -> impl Iterator<Item = &Op> {
        self.steps.iter().map(|step| &step.op)
    }
}

impl FromIterator<Op> for Script {
    fn from_iter<I: IntoIterator<Item = Op>>(ops: I) -> Script {
        Script { steps: ops.into_iter().map(Step::from).collect() }
    }
}
