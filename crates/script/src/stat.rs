//! Attributes of a file, as far as filesystems agree about them, and their text.

use std::fmt::{self, Display, Formatter};

use crate::errno::Errno;
use crate::words::Size;

/// The type of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum FileKind {
    File = 8,
    Dir = 4,
    Symlink = 10,
    Fifo = 1,
    Socket = 12,
    Char = 2,
    Block = 6,
}

impl FileKind {
    /// Each with its word.
    const WORDS: [(FileKind, &str); 7] = [
        (FileKind::File, "file"),
        (FileKind::Dir, "dir"),
        (FileKind::Symlink, "symlink"),
        (FileKind::Fifo, "fifo"),
        (FileKind::Socket, "socket"),
        (FileKind::Char, "char"),
        (FileKind::Block, "block"),
    ];

    /// The type in the upper bits of a mode.
    pub fn from_mode(mode: u32) -> Option<FileKind> {
        FileKind::WORDS.map(|(kind, _)| kind).into_iter().find(|kind| *kind as u32 == mode >> 12)
    }

    /// The upper bits of a mode.
    pub fn mode_bits(self) -> u32 {
        (self as u32) << 12
    }

    /// What an operation on bytes says to a file of this type, if it is not a regular one.
    /// Symbolic links are not followed; special files are not opened, so that a script can
    /// never touch a device or wait for the other end of a pipe.
    pub fn refuses_bytes(self) -> Result<(), Errno> {
        match self {
            FileKind::File => Ok(()),
            FileKind::Dir => Err(Errno::EISDIR),
            FileKind::Symlink => Err(Errno::ELOOP),
            _ => Err(Errno::EINVAL),
        }
    }
}

/// The time of the last change of content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mtime {
    /// The moment of an operation of this script.
    Now,
    /// What utimes set.
    At(i64, u32),
    /// Filesystems differ about whether the last operation set it.
    Unsure,
}

impl Mtime {
    /// A time as a filesystem stores it. Scripts only set times before 2017, so what is later was a clock.
    pub fn seen(secs: i64, nanos: u32) -> Mtime {
        if secs >= 1_500_000_000 { Mtime::Now } else { Mtime::At(secs, nanos) }
    }

    /// Whether both may be the same moment.
    pub fn agrees(self, other: Mtime) -> bool {
        self == other || self == Mtime::Unsure || other == Mtime::Unsure
    }
}

/// Attributes that every filesystem agrees about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat {
    /// Type.
    pub kind: FileKind,
    /// Permission bits, at most 0o7777.
    pub mode: u32,
    /// Names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes; 0 for directories, whose size means something else everywhere.
    pub size: u64,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    /// Last change of content.
    pub mtime: Mtime,
    /// Which inode it is. Never compared: it only says which names are one file.
    pub inode: u64,
}

impl Stat {
    /// Whether both describe the same file as far as filesystems agree.
    pub fn agrees(&self, other: &Stat) -> bool {
        let common = |stat: &Stat| Stat { inode: 0, mtime: Mtime::Now, ..*stat };
        common(self) == common(other) && self.mtime.agrees(other.mtime)
    }
}

impl Display for FileKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let found = FileKind::WORDS.iter().find(|(kind, _)| kind == self);
        f.write_str(found.expect("each has a word").1)
    }
}

impl Display for Mtime {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Mtime::Now => f.write_str("now"),
            Mtime::At(secs, 0) => write!(f, "{secs}"),
            Mtime::At(secs, nanos) => write!(f, "{secs}.{nanos:09}"),
            Mtime::Unsure => f.write_str("?"),
        }
    }
}

impl Display for Stat {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {:o} nlink {} owner {}:{}",
            self.kind, self.mode, self.nlink, self.uid, self.gid
        )?;
        match self.kind {
            FileKind::Dir | FileKind::Fifo | FileKind::Socket => {}
            FileKind::Char | FileKind::Block => {
                write!(f, " dev {}:{}", self.device.0, self.device.1)?
            }
            FileKind::File | FileKind::Symlink => write!(f, " size {}", Size(self.size))?,
        }
        write!(f, " mtime {}", self.mtime)
    }
}
