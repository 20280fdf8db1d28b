//! What an operation answers: an observation or an errno, each with one line of text.
//!
//! Answers are made to be compared between filesystems. What legitimately
//! differs is left out or written in a common form: the size of a directory
//! (each filesystem measures something else), blocks in use, inode numbers,
//! access times (a kernel may serve reads from its own cache), and the exact
//! present time, which reads `now`.

use std::fmt::{self, Display, Formatter};

use crate::branch::TreeName;
use crate::bytes::Digest;
use crate::errno::Errno;
use crate::op::{Op, Whence};
use crate::stat::{FileKind, Stat};
use crate::tree::Tree;
use crate::words::{Quoted, Size, Word};

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
    Names(Vec<(Vec<u8>, FileKind)>),
    /// Names of attributes, sorted.
    Attributes(Vec<Vec<u8>>),
    /// The target of a symbolic link.
    Target(Vec<u8>),
    /// An offset.
    Position(u64),
    /// Everything there is.
    Tree(Box<Tree>),
    /// Branches, sorted, and in which the script is.
    Branches {
        /// In which the script is.
        current: TreeName,
        /// All, sorted.
        all: Vec<TreeName>,
    },
    /// Snapshots of the branch, sorted.
    Snapshots(Vec<TreeName>),
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
    pub fn agrees(&self, other: &Outcome, op: &Op, rules: Rules) -> bool {
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

impl Display for Answer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Done => f.write_str("ok"),
            Answer::Bytes(bytes) if bytes.len() <= 32 => Quoted(bytes).fmt(f),
            Answer::Bytes(bytes) => {
                write!(f, "{} sum {}", Size(bytes.len() as u64), Digest::of(bytes))
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
            Answer::Branches { current, all } => write!(f, "{all:?} in {current}"),
            Answer::Snapshots(all) => write!(f, "{all:?}"),
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
