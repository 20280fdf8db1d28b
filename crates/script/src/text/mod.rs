//! Text into operations: one a line, or several separated by `;`. `#` begins a comment.
//!
//! Words are separated by blanks. Bytes that are not plain are written `%41`,
//! runs of one character `{x*255}`. Numbers of bytes take `k`, `M`, `G` and `T`
//! (powers of 1024), modes are octal, literal data stands in double quotes.
//! Every error names line and column.

mod branch;
mod words;

use std::str::FromStr;

use words::Words;

use crate::op::*;
use crate::print::{DIR_MODE, FILE_MODE};

/// Why a text is not a script.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub struct ParseError {
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1, in bytes.
    pub column: usize,
    /// What is wrong there.
    pub what: String,
}

type Parsed<T> = Result<T, ParseError>;

impl FromStr for Script {
    type Err = ParseError;

    fn from_str(text: &str) -> Parsed<Script> {
        let mut steps = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let mut words = Words { text: line.as_bytes(), at: 0, line: number + 1 };
            while words.skip_to_statement() {
                steps.push(words.step()?);
            }
        }
        Ok(Script { steps })
    }
}

impl FromStr for Op {
    type Err = ParseError;

    /// Exactly one operation.
    fn from_str(text: &str) -> Parsed<Op> {
        let mut script: Script = text.parse()?;
        match (script.steps.pop(), script.steps.is_empty()) {
            (Some(Step { op, expect: None }), true) => Ok(op),
            _ => Err(ParseError { line: 1, column: 1, what: "expected one operation".into() }),
        }
    }
}

impl Words<'_> {
    fn step(&mut self) -> Parsed<Step> {
        let op = self.op()?;
        if !self.ended() {
            return self.fail(self.at, "expected the end of the operation");
        }
        let mut expect = None;
        if self.text[self.at..].starts_with(b"->") {
            let rest = &self.text[self.at + 2..];
            let end = rest.iter().position(|byte| b";#".contains(byte)).unwrap_or(rest.len());
            expect = Some(String::from_utf8_lossy(&rest[..end]).trim().to_string());
            self.at += 2 + end;
        }
        Ok(Step { op, expect })
    }

    fn op(&mut self) -> Parsed<Op> {
        let (verb, start) = self.raw("an operation")?;
        Ok(match verb {
            "mkdir" => Op::Mkdir { path: self.path()?, mode: self.mode_or(DIR_MODE)? },
            "mkfile" => Op::Mkfile { path: self.path()?, mode: self.mode_or(FILE_MODE)? },
            "mknod" => Op::Mknod {
                path: self.path()?,
                kind: self.node_kind()?,
                mode: self.mode_or(FILE_MODE)?,
            },
            "symlink" => Op::Symlink { target: self.bytes("a target")?.0, path: self.path()? },
            "readlink" => Op::Readlink { path: self.path()? },
            "link" => Op::Link { from: self.place()?, to: self.path()? },
            "unlink" => Op::Unlink { path: self.path()? },
            "rmdir" => Op::Rmdir { path: self.path()? },
            "rename" => self.rename()?,
            "open" => {
                Op::Open { handle: self.handle()?, path: self.path()?, how: self.open_how()? }
            }
            "tmpfile" => Op::Tmpfile {
                handle: self.handle()?,
                dir: self.path()?,
                mode: self.mode_or(FILE_MODE)?,
            },
            "close" => Op::Close { handle: self.handle()? },
            "write" => Op::Write { place: self.place()?, offset: self.size()?, data: self.data()? },
            "append" => Op::Append { path: self.path()?, data: self.data()? },
            "read" => Op::Read { place: self.place()?, offset: self.size()?, len: self.size()? },
            "sum" => Op::Sum { place: self.place()? },
            "truncate" => Op::Truncate { place: self.place()?, size: self.size()? },
            "fallocate" | "punch" | "zero" | "collapse" | "insert" => self.fallocate(verb)?,
            "seek" => Op::Seek {
                place: self.place()?,
                whence: self.choice(&[("data", Whence::Data), ("hole", Whence::Hole)])?,
                offset: self.size()?,
            },
            "stat" => Op::Stat { place: self.place()? },
            "chmod" => Op::Chmod { place: self.place()?, mode: self.mode()? },
            "chown" => Op::Chown { place: self.place()?, uid: self.id()?, gid: self.id()? },
            "utimes" => {
                Op::Utimes { place: self.place()?, atime: self.time()?, mtime: self.time()? }
            }
            "setxattr" => self.setxattr()?,
            "getxattr" => Op::Getxattr {
                place: self.place()?,
                name: self.bytes("the name of an attribute")?.0,
            },
            "removexattr" => Op::Removexattr {
                place: self.place()?,
                name: self.bytes("the name of an attribute")?.0,
            },
            "listxattr" => Op::Listxattr { place: self.place()? },
            "ls" => Op::Ls { path: self.path()? },
            "fsync" => Op::Fsync { place: self.place()? },
            "fdatasync" => Op::Fdatasync { place: self.place()? },
            "fsyncdir" => Op::Fsyncdir { path: self.path()? },
            "sync" => Op::Sync,
            "grow" => Op::Grow { bytes: self.size()? },
            "shrink" => Op::Shrink { bytes: self.size()? },
            "evict" => Op::Evict,
            "remount" => Op::Remount,
            "crash" => Op::Crash,
            "tree" => Op::Tree,
            verb => match self.branch_op(verb)? {
                Some(op) => Op::Branch(op),
                None => return self.fail(start, format!("unknown operation {verb}")),
            },
        })
    }

    fn rename(&mut self) -> Parsed<Op> {
        let choices = [("noreplace", RenameHow::NoReplace), ("exchange", RenameHow::Exchange)];
        let (from, to) = (self.path()?, self.path()?);
        Ok(Op::Rename { from, to, how: self.option(RenameHow::Replace, &choices)? })
    }

    fn fallocate(&mut self, verb: &str) -> Parsed<Op> {
        let (place, offset, len) = (self.place()?, self.size()?, self.size()?);
        let how = match verb {
            "punch" => Fallocate::Punch,
            "collapse" => Fallocate::Collapse,
            "insert" => Fallocate::Insert,
            "zero" => self.option(Fallocate::Zero, &[("keep", Fallocate::ZeroKeep)])?,
            _ => self.option(Fallocate::Allocate, &[("keep", Fallocate::Keep)])?,
        };
        Ok(Op::Fallocate { place, how, offset, len })
    }

    fn setxattr(&mut self) -> Parsed<Op> {
        let choices = [("create", XattrHow::Create), ("replace", XattrHow::Replace)];
        Ok(Op::Setxattr {
            place: self.place()?,
            name: self.bytes("the name of an attribute")?.0,
            value: self.data()?,
            how: self.option(XattrHow::Any, &choices)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        text.parse::<Script>().expect_err(text).to_string()
    }

    #[test]
    fn statements_comments_and_expectations() {
        let script: Script =
            "# first\n\nmkdir /a; write /a/f 4k 1M 7 ; ls /a -> ok # done\n".parse().unwrap();
        assert_eq!(script.to_string(), "mkdir /a\nwrite /a/f 4k 1M 7\nls /a -> ok\n");
    }

    #[test]
    fn errors_name_line_and_column() {
        assert_eq!(error("mkdir /a\n  mkdri /b"), "line 2, column 3: unknown operation mkdri");
        assert_eq!(error("write /a 4q 1 1").split(':').next(), Some("line 1, column 10"));
        assert_eq!(error("mkdir a").split(':').next(), Some("line 1, column 7"));
        assert_eq!(error("mkdir /a/../b").split(':').next(), Some("line 1, column 7"));
        assert_eq!(error("rename /a"), "line 1, column 10: expected a path");
        assert_eq!(error("sync /a"), "line 1, column 6: expected the end of the operation");
        assert_eq!(error("write /a 0 \"x"), "line 1, column 12: the text does not end");
        assert_eq!(error("mkdir /{x*}").split(':').next(), Some("line 1, column 8"));
        assert_eq!(error("open h /f create").split(':').next(), Some("line 1, column 11"));
    }

    #[test]
    fn odd_names_and_long_names_round_trip() {
        let name = [&b"a b%\xff;\n#"[..], &[b'x'; 255]].concat();
        let op = Op::Mkdir { path: Path::root().join(&name), mode: 0o700 };
        assert_eq!(op.to_string(), "mkdir /a%20b%25%ff%3b%0a%23{x*255} 700");
        assert_eq!(op.to_string().parse(), Ok(op));
    }

    #[test]
    fn times_before_1970_count_their_fraction_forwards() {
        let op: Op = "utimes /a omit -5.25".parse().unwrap();
        let Op::Utimes { mtime, .. } = &op else { panic!("{op}") };
        assert_eq!(*mtime, SetTime::At { secs: -5, nanos: 250_000_000 });
        assert_eq!(op.to_string(), "utimes /a omit -5.250000000");
    }
}
