//! What an operation answers: an observation or an errno, each with one line of text.
//!
//! Answers are made to be compared between filesystems. What legitimately
//! differs is left out or written in a common form: the size of a directory
//! (each filesystem measures something else), blocks in use, inode numbers,
//! access times (a kernel may serve reads from its own cache), and the exact
//! present time, which reads `now`.

use std::fmt::{self, Display, Formatter};

use crate::bytes::Digest;
use crate::errno::Errno;
use crate::print::{Size, Word};
use crate::tree::Tree;

/// What an operation answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It worked.
    Ok(Answer),
    /// It was refused.
    Err(Errno),
}

impl From<Result<Answer, Errno>> for Outcome {
    fn from(result: Result<Answer, Errno>) -> Outcome {
        match result {
            Ok(answer) => Outcome::Ok(answer),
            Err(errno) => Outcome::Err(errno),
        }
    }
}

/// What was observed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Nothing but success.
    Done,
    /// Content, of a file or an attribute.
    Bytes(Vec<u8>),
    /// Size and digest of a whole file.
    Sum(u64, Digest),
    /// Attributes.
    Stat(Stat),
    /// Names with their types, sorted.
    Names(Vec<(Vec<u8>, Kind)>),
    /// Names of attributes, sorted.
    Attributes(Vec<Vec<u8>>),
    /// The target of a symbolic link.
    Target(Vec<u8>),
    /// An offset.
    Position(u64),
    /// Everything there is.
    Tree(Box<Tree>),
}

/// The type of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Kind {
    File,
    Dir,
    Symlink,
    Fifo,
    Socket,
    Char,
    Block,
}

impl Kind {
    /// The type in the upper bits of a mode.
    pub fn from_mode(mode: u32) -> Option<Kind> {
        Some(match mode >> 12 {
            1 => Kind::Fifo,
            2 => Kind::Char,
            4 => Kind::Dir,
            6 => Kind::Block,
            8 => Kind::File,
            10 => Kind::Symlink,
            12 => Kind::Socket,
            _ => return None,
        })
    }

    /// What an operation on bytes says to a file of this type, if it is not a regular one.
    /// Symbolic links are not followed; special files are not opened, so that a script can
    /// never touch a device or wait for the other end of a pipe.
    pub fn refuses_bytes(self) -> Result<(), Errno> {
        match self {
            Kind::File => Ok(()),
            Kind::Dir => Err(Errno::EISDIR),
            Kind::Symlink => Err(Errno::ELOOP),
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
    pub kind: Kind,
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

/// What two targets may differ in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// SEEK_DATA and SEEK_HOLE name exactly the blocks that hold data in the model. Otherwise
    /// the second target may take holes for data, never data for holes: ext4 zeroes instead of
    /// splitting a small extent, and a file that is stored inside its inode has no holes.
    pub exact_seek: bool,
}

impl Rules {
    /// Nothing but what [`Stat`] already leaves out.
    pub const EXACT: Rules = Rules { exact_seek: true };
    /// What POSIX allows as well.
    pub const LENIENT: Rules = Rules { exact_seek: false };
}

impl Outcome {
    /// Whether `other`, the answer of the target under test, is as good as this, the model's.
    pub fn agrees(&self, other: &Outcome, op: &crate::Op, rules: Rules) -> bool {
        use crate::op::{Op, Whence};
        match (self, other) {
            (Outcome::Ok(Answer::Stat(a)), Outcome::Ok(Answer::Stat(b))) => a.agrees(b),
            (Outcome::Ok(Answer::Tree(a)), Outcome::Ok(Answer::Tree(b))) => {
                a.differences(b).is_empty()
            }
            (a, b) if a == b => true,
            (a, b) if !rules.exact_seek => match (op, a, b) {
                // More may be data than must be.
                (
                    Op::Seek { whence: Whence::Data, offset, .. },
                    a,
                    Outcome::Ok(Answer::Position(b)),
                ) => {
                    b >= offset
                        && match a {
                            Outcome::Ok(Answer::Position(a)) => b <= a,
                            other => *other == Outcome::Err(Errno::ENXIO),
                        }
                }
                (
                    Op::Seek { whence: Whence::Hole, .. },
                    Outcome::Ok(Answer::Position(a)),
                    Outcome::Ok(Answer::Position(b)),
                ) => b >= a,
                _ => false,
            },
            _ => false,
        }
    }
}

impl Stat {
    /// Whether both describe the same file as far as filesystems agree.
    pub fn agrees(&self, other: &Stat) -> bool {
        let common = |stat: &Stat| Stat { inode: 0, mtime: Mtime::Now, ..*stat };
        common(self) == common(other) && self.mtime.agrees(other.mtime)
    }
}

/// Bytes in double quotes, as a script writes them.
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'a>(pub &'a [u8]);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for &byte in self.0 {
            match byte {
                b'"' | b'\\' => write!(f, "\\{}", byte as char)?,
                b'\n' => f.write_str("\\n")?,
                // These would end an expected answer.
                b';' | b'#' => write!(f, "\\x{byte:02x}")?,
                b' '..=b'~' => write!(f, "{}", byte as char)?,
                _ => write!(f, "\\x{byte:02x}")?,
            }
        }
        f.write_str("\"")
    }
}

impl Display for Kind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::File => "file",
            Kind::Dir => "dir",
            Kind::Symlink => "symlink",
            Kind::Fifo => "fifo",
            Kind::Socket => "socket",
            Kind::Char => "char",
            Kind::Block => "block",
        })
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
            Kind::Dir | Kind::Fifo | Kind::Socket => {}
            Kind::Char | Kind::Block => write!(f, " dev {}:{}", self.device.0, self.device.1)?,
            Kind::File | Kind::Symlink => write!(f, " size {}", Size(self.size))?,
        }
        write!(f, " mtime {}", self.mtime)
    }
}

impl Display for Answer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Done => f.write_str("ok"),
            Answer::Bytes(bytes) if bytes.len() <= 32 => Quoted(bytes).fmt(f),
            Answer::Bytes(bytes) => {
                let mut digest = Digest::default();
                digest.add(0, bytes);
                write!(f, "{} sum {digest}", Size(bytes.len() as u64))
            }
            Answer::Sum(size, digest) => write!(f, "{} sum {digest}", Size(*size)),
            Answer::Stat(stat) => stat.fmt(f),
            Answer::Names(names) => {
                let names: Vec<String> =
                    names.iter().map(|(name, kind)| format!("{} {kind}", Word(name))).collect();
                write!(f, "[{}]", names.join(", "))
            }
            Answer::Attributes(names) => {
                let names: Vec<String> = names.iter().map(|name| Word(name).to_string()).collect();
                write!(f, "[{}]", names.join(", "))
            }
            Answer::Target(target) => Word(target).fmt(f),
            Answer::Position(offset) => Size(*offset).fmt(f),
            Answer::Tree(tree) => tree.fmt(f),
        }
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Ok(answer) => answer.fmt(f),
            Outcome::Err(errno) => errno.fmt(f),
        }
    }
}
