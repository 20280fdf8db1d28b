//! Operations as text. What is printed here, `text` parses back to the same value.

use std::fmt::{self, Display, Formatter};

use crate::op::*;
use crate::words::{Size, Word};

impl Display for Path {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Word(self.as_bytes()).fmt(f)
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

impl Display for FileRef {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            FileRef::Path(path) => path.fmt(f),
            FileRef::Handle(handle) => write!(f, "@{}", handle.0),
        }
    }
}

impl Display for NodeKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            NodeKind::Fifo => f.write_str("fifo"),
            NodeKind::Socket => f.write_str("socket"),
            NodeKind::Char(major, minor) => write!(f, "char:{major}:{minor}"),
            NodeKind::Block(major, minor) => write!(f, "block:{major}:{minor}"),
        }
    }
}

impl Display for SetTime {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            SetTime::Omit => f.write_str("omit"),
            SetTime::Now => f.write_str("now"),
            SetTime::At { secs, nanos: 0 } => write!(f, "{secs}"),
            SetTime::At { secs, nanos } => write!(f, "{secs}.{nanos:09}"),
        }
    }
}

impl OpenHow {
    /// Every flag with its word.
    pub(crate) fn flags(&mut self) -> [(&'static str, &mut bool); 8] {
        [
            ("read", &mut self.read),
            ("write", &mut self.write),
            ("append", &mut self.append),
            ("create", &mut self.create),
            ("excl", &mut self.exclusive),
            ("trunc", &mut self.truncate),
            ("sync", &mut self.sync),
            ("dsync", &mut self.dsync),
        ]
    }
}

impl Display for OpenHow {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut how = *self;
        let words: Vec<&str> =
            how.flags().into_iter().filter(|(_, set)| **set).map(|(word, _)| word).collect();
        f.write_str(&words.join(","))
    }
}

impl RenameHow {
    fn word(self) -> &'static str {
        match self {
            RenameHow::Replace => "",
            RenameHow::NoReplace => "noreplace",
            RenameHow::Exchange => "exchange",
        }
    }
}

impl XattrHow {
    fn word(self) -> &'static str {
        match self {
            XattrHow::Any => "",
            XattrHow::Create => "create",
            XattrHow::Replace => "replace",
        }
    }
}

impl Fallocate {
    /// The verb, and the word behind its numbers.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Fallocate::Allocate => ("fallocate", ""),
            Fallocate::Keep => ("fallocate", "keep"),
            Fallocate::Punch => ("punch", ""),
            Fallocate::Zero => ("zero", ""),
            Fallocate::ZeroKeep => ("zero", "keep"),
            Fallocate::Collapse => ("collapse", ""),
            Fallocate::Insert => ("insert", ""),
        }
    }
}

/// A mode, unless it is what the operation takes anyway.
fn mode(f: &mut Formatter<'_>, mode: u32, default: u32) -> fmt::Result {
    if mode == default { Ok(()) } else { write!(f, " {mode:o}") }
}

/// A word, unless it is empty.
fn option(f: &mut Formatter<'_>, word: &str) -> fmt::Result {
    if word.is_empty() { Ok(()) } else { write!(f, " {word}") }
}

/// The mode of directories unless a script says otherwise.
pub(crate) const DIR_MODE: u32 = 0o755;
/// The mode of everything else unless a script says otherwise.
pub(crate) const FILE_MODE: u32 = 0o644;

impl Display for Op {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let id = |id: &Option<u32>| id.map_or("-".into(), |id| id.to_string());
        match self {
            Op::Mkdir { path, mode: bits } => {
                write!(f, "mkdir {path}")?;
                mode(f, *bits, DIR_MODE)
            }
            Op::Mkfile { path, mode: bits } => {
                write!(f, "mkfile {path}")?;
                mode(f, *bits, FILE_MODE)
            }
            Op::Mknod { path, kind, mode: bits } => {
                write!(f, "mknod {path} {kind}")?;
                mode(f, *bits, FILE_MODE)
            }
            Op::Symlink { target, path } => write!(f, "symlink {} {path}", Word(target)),
            Op::Readlink { path } => write!(f, "readlink {path}"),
            Op::Link { from, to } => write!(f, "link {from} {to}"),
            Op::Unlink { path } => write!(f, "unlink {path}"),
            Op::Rmdir { path } => write!(f, "rmdir {path}"),
            Op::Rename { from, to, how } => {
                write!(f, "rename {from} {to}")?;
                option(f, how.word())
            }
            Op::Open { handle, path, how } => write!(f, "open {} {path} {how}", handle.0),
            Op::Tmpfile { handle, dir, mode: bits } => {
                write!(f, "tmpfile {} {dir}", handle.0)?;
                mode(f, *bits, FILE_MODE)
            }
            Op::Close { handle } => write!(f, "close {}", handle.0),
            Op::Write { place, offset, data } => {
                write!(f, "write {place} {} {data}", Size(*offset))
            }
            Op::Append { path, data } => write!(f, "append {path} {data}"),
            Op::Read { place, offset, len } => {
                write!(f, "read {place} {} {}", Size(*offset), Size(*len))
            }
            Op::Sum { place } => write!(f, "sum {place}"),
            Op::Truncate { place, size } => write!(f, "truncate {place} {}", Size(*size)),
            Op::Fallocate { place, how, offset, len } => {
                let (verb, word) = how.words();
                write!(f, "{verb} {place} {} {}", Size(*offset), Size(*len))?;
                option(f, word)
            }
            Op::Seek { place, whence, offset } => {
                let word = if *whence == Whence::Data { "data" } else { "hole" };
                write!(f, "seek {place} {word} {}", Size(*offset))
            }
            Op::Stat { place } => write!(f, "stat {place}"),
            Op::Chmod { place, mode } => write!(f, "chmod {place} {mode:o}"),
            Op::Chown { place, uid, gid } => write!(f, "chown {place} {} {}", id(uid), id(gid)),
            Op::Utimes { place, atime, mtime } => write!(f, "utimes {place} {atime} {mtime}"),
            Op::Setxattr { place, name, value, how } => {
                write!(f, "setxattr {place} {} {value}", Word(name))?;
                option(f, how.word())
            }
            Op::Getxattr { place, name } => write!(f, "getxattr {place} {}", Word(name)),
            Op::Removexattr { place, name } => write!(f, "removexattr {place} {}", Word(name)),
            Op::Listxattr { place } => write!(f, "listxattr {place}"),
            Op::Ls { path } => write!(f, "ls {path}"),
            Op::Fsync { place } => write!(f, "fsync {place}"),
            Op::Fdatasync { place } => write!(f, "fdatasync {place}"),
            Op::Fsyncdir { path } => write!(f, "fsyncdir {path}"),
            Op::Sync => f.write_str("sync"),
            Op::Grow { bytes } => write!(f, "grow {}", Size(*bytes)),
            Op::Shrink { bytes } => write!(f, "shrink {}", Size(*bytes)),
            Op::Evict => f.write_str("evict"),
            Op::Remount => f.write_str("remount"),
            Op::Crash => f.write_str("crash"),
            Op::Tree => f.write_str("tree"),
            Op::Branch(op) => op.fmt(f),
        }
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.op.fmt(f)?;
        match &self.expect {
            Some(answer) => write!(f, " -> {answer}"),
            None => Ok(()),
        }
    }
}

impl Display for Script {
    /// One step a line.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}
