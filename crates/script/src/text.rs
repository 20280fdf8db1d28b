//! Text into operations: one a line, or several separated by `;`. `#` begins a comment.
//!
//! Words are separated by blanks. Bytes that are not plain are written `%41`,
//! runs of one character `{x*255}`. Numbers of bytes take `k`, `M`, `G` and `T`
//! (powers of 1024), modes are octal, literal data stands in double quotes.
//! Every error names line and column.

use std::str::FromStr;

use crate::bytes::Data;
use crate::op::*;
use crate::print::{DIR_MODE, FILE_MODE, is_plain};

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
            let mut words = Words {
                text: line.as_bytes(),
                at: 0,
                line: number + 1,
            };
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
            _ => Err(ParseError {
                line: 1,
                column: 1,
                what: "expected one operation".into(),
            }),
        }
    }
}

/// The words of one line.
struct Words<'a> {
    text: &'a [u8],
    at: usize,
    line: usize,
}

impl<'a> Words<'a> {
    fn fail<T>(&self, at: usize, what: impl Into<String>) -> Parsed<T> {
        Err(ParseError {
            line: self.line,
            column: at + 1,
            what: what.into(),
        })
    }

    fn skip_blanks(&mut self) {
        while self
            .text
            .get(self.at)
            .is_some_and(|byte| b" \t\r".contains(byte))
        {
            self.at += 1;
        }
    }

    /// Moves to the next statement of the line, if there is one.
    fn skip_to_statement(&mut self) -> bool {
        while self
            .text
            .get(self.at)
            .is_some_and(|byte| b" \t\r;".contains(byte))
        {
            self.at += 1;
        }
        self.text.get(self.at).is_some_and(|&byte| byte != b'#')
    }

    /// Whether the statement has no more words.
    fn ended(&mut self) -> bool {
        self.skip_blanks();
        matches!(self.text.get(self.at), None | Some(b';' | b'#'))
            || self.text[self.at..].starts_with(b"->")
    }

    /// The next word as it stands, and where it begins.
    fn raw(&mut self, what: &str) -> Parsed<(&'a str, usize)> {
        if self.ended() {
            return self.fail(self.at, format!("expected {what}"));
        }
        let start = self.at;
        while self
            .text
            .get(self.at)
            .is_some_and(|byte| !b" \t\r;#".contains(byte))
        {
            self.at += 1;
        }
        match std::str::from_utf8(&self.text[start..self.at]) {
            Ok(word) => Ok((word, start)),
            Err(_) => self.fail(start, "not plain text; write other bytes as %41"),
        }
    }

    /// The next word with runs and escapes resolved.
    fn bytes(&mut self, what: &str) -> Parsed<(Vec<u8>, usize)> {
        let (word, start) = self.raw(what)?;
        let mut bytes = Vec::new();
        let mut rest = word.as_bytes();
        while let Some((&byte, after)) = rest.split_first() {
            let column = start + word.len() - rest.len();
            rest = match byte {
                b'%' => match after.get(..2).and_then(hex_byte) {
                    Some(byte) => {
                        bytes.push(byte);
                        &after[2..]
                    }
                    None => return self.fail(column, "expected two hex digits after %"),
                },
                b'{' => match run(after) {
                    Some((byte, count, after)) => {
                        bytes.resize(bytes.len() + count, byte);
                        after
                    }
                    None => return self.fail(column, "expected a run such as {x*255}"),
                },
                byte if is_plain(byte) => {
                    bytes.push(byte);
                    after
                }
                _ => {
                    return self.fail(column, format!("write {:?} as %{byte:02x}", byte as char));
                }
            };
        }
        Ok((bytes, start))
    }

    fn path(&mut self) -> Parsed<Path> {
        let (bytes, start) = self.bytes("a path")?;
        match Path::new(bytes) {
            Some(path) => Ok(path),
            None => self.fail(start, "expected a path from the root, without . and .."),
        }
    }

    fn handle(&mut self) -> Parsed<Handle> {
        let (word, start) = self.raw("the name of a handle")?;
        self.handle_from(word, start)
    }

    fn handle_from(&self, word: &str, start: usize) -> Parsed<Handle> {
        if !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            Ok(Handle(word.into()))
        } else {
            self.fail(start, "a handle is named by letters and digits")
        }
    }

    fn place(&mut self) -> Parsed<Place> {
        if !self.ended() && self.text[self.at] == b'@' {
            let (word, start) = self.raw("a handle")?;
            return Ok(Place::Handle(self.handle_from(&word[1..], start + 1)?));
        }
        self.path().map(Place::Path)
    }

    fn number<T: FromStr>(&mut self, what: &str) -> Parsed<T> {
        let (word, start) = self.raw(what)?;
        word.parse()
            .or_else(|_| self.fail(start, format!("expected {what}")))
    }

    fn size(&mut self) -> Parsed<u64> {
        let (word, start) = self.raw("a number of bytes")?;
        let (digits, shift) = match word.as_bytes().last() {
            Some(b'k') => (&word[..word.len() - 1], 10),
            Some(b'M') => (&word[..word.len() - 1], 20),
            Some(b'G') => (&word[..word.len() - 1], 30),
            Some(b'T') => (&word[..word.len() - 1], 40),
            _ => (word, 0),
        };
        match digits
            .parse::<u64>()
            .ok()
            .and_then(|count| count.checked_mul(1 << shift))
        {
            Some(size) => Ok(size),
            None => self.fail(start, "expected a number of bytes such as 0, 4k or 8T"),
        }
    }

    fn mode(&mut self) -> Parsed<u32> {
        let (word, start) = self.raw("a mode")?;
        match u32::from_str_radix(word, 8) {
            Ok(mode) if mode <= 0o7777 => Ok(mode),
            _ => self.fail(start, "expected an octal mode of at most 7777"),
        }
    }

    fn mode_or(&mut self, default: u32) -> Parsed<u32> {
        if self.ended() {
            Ok(default)
        } else {
            self.mode()
        }
    }

    fn data(&mut self) -> Parsed<Data> {
        if !self.ended() && self.text[self.at] == b'"' {
            return self.literal().map(Data::Literal);
        }
        let len = self.size()?;
        Ok(Data::Pattern {
            len,
            seed: self.number("the seed of a pattern")?,
        })
    }

    /// A text in double quotes with the escapes \" \\ \n and \x41.
    fn literal(&mut self) -> Parsed<Vec<u8>> {
        let start = self.at;
        let mut bytes = Vec::new();
        self.at += 1;
        loop {
            let rest = &self.text[self.at..];
            let (byte, used) = match rest {
                [b'"', ..] => {
                    self.at += 1;
                    return Ok(bytes);
                }
                [b'\\', b'n', ..] => (b'\n', 2),
                [b'\\', byte @ (b'"' | b'\\'), ..] => (*byte, 2),
                [b'\\', b'x', digits @ ..] => match digits.get(..2).and_then(hex_byte) {
                    Some(byte) => (byte, 4),
                    None => return self.fail(self.at, "expected two hex digits after \\x"),
                },
                [b'\\', ..] => return self.fail(self.at, "unknown escape"),
                [byte, ..] => (*byte, 1),
                [] => return self.fail(start, "the text does not end"),
            };
            bytes.push(byte);
            self.at += used;
        }
    }

    /// One of `choices` if a word follows, else the first.
    fn option<T: Copy>(&mut self, none: T, choices: &[(&str, T)]) -> Parsed<T> {
        if self.ended() {
            Ok(none)
        } else {
            self.choice(choices)
        }
    }

    fn choice<T: Copy>(&mut self, choices: &[(&str, T)]) -> Parsed<T> {
        let names = choices
            .iter()
            .map(|(name, _)| *name)
            .collect::<Vec<_>>()
            .join(" or ");
        let (word, start) = self.raw(&names)?;
        match choices.iter().find(|(name, _)| *name == word) {
            Some((_, value)) => Ok(*value),
            None => self.fail(start, format!("expected {names}")),
        }
    }

    fn id(&mut self) -> Parsed<Option<u32>> {
        let (word, start) = self.raw("an id or -")?;
        match word {
            "-" => Ok(None),
            digits => digits
                .parse()
                .map(Some)
                .or_else(|_| self.fail(start, "expected an id or -")),
        }
    }

    fn time(&mut self) -> Parsed<SetTime> {
        let (word, start) = self.raw("a time")?;
        let time = match word {
            "omit" => Some(SetTime::Omit),
            "now" => Some(SetTime::Now),
            _ => {
                let (secs, nanos) = word.split_once('.').unwrap_or((word, "0"));
                let nanos = match nanos.len() {
                    0..=9 => format!("{nanos:0<9}").parse().ok(),
                    _ => None,
                };
                secs.parse()
                    .ok()
                    .zip(nanos)
                    .map(|(secs, nanos)| SetTime::At { secs, nanos })
            }
        };
        time.map_or_else(
            || self.fail(start, "expected omit, now or seconds such as 5.25"),
            Ok,
        )
    }

    fn node_kind(&mut self) -> Parsed<NodeKind> {
        let (word, start) = self.raw("fifo, socket, char:MAJOR:MINOR or block:MAJOR:MINOR")?;
        let parts: Vec<&str> = word.split(':').collect();
        let number = |index: usize| parts[index].parse::<u32>().ok();
        let kind = match parts[..] {
            ["fifo"] => Some(NodeKind::Fifo),
            ["socket"] => Some(NodeKind::Socket),
            ["char", ..] if parts.len() == 3 => number(1)
                .zip(number(2))
                .map(|(major, minor)| NodeKind::Char(major, minor)),
            ["block", ..] if parts.len() == 3 => number(1)
                .zip(number(2))
                .map(|(major, minor)| NodeKind::Block(major, minor)),
            _ => None,
        };
        kind.map_or_else(
            || {
                self.fail(
                    start,
                    "expected fifo, socket, char:MAJOR:MINOR or block:MAJOR:MINOR",
                )
            },
            Ok,
        )
    }

    fn open_how(&mut self) -> Parsed<OpenHow> {
        let (word, start) = self.raw("flags such as read,write,create")?;
        let mut how = OpenHow::default();
        for flag in word.split(',') {
            match how.flags().into_iter().find(|(name, _)| *name == flag) {
                Some((_, set)) => *set = true,
                None => return self.fail(start, format!("unknown flag {flag}")),
            }
        }
        if !how.read && !how.write {
            return self.fail(start, "expected read or write among the flags");
        }
        Ok(how)
    }

    fn step(&mut self) -> Parsed<Step> {
        let op = self.op()?;
        if !self.ended() {
            return self.fail(self.at, "expected the end of the operation");
        }
        let mut expect = None;
        if self.text[self.at..].starts_with(b"->") {
            let rest = &self.text[self.at + 2..];
            let end = rest
                .iter()
                .position(|byte| b";#".contains(byte))
                .unwrap_or(rest.len());
            expect = Some(String::from_utf8_lossy(&rest[..end]).trim().to_string());
            self.at += 2 + end;
        }
        Ok(Step { op, expect })
    }

    fn op(&mut self) -> Parsed<Op> {
        let (verb, start) = self.raw("an operation")?;
        let keep = |none, keep| (none, [("keep", keep)]);
        Ok(match verb {
            "mkdir" => Op::Mkdir {
                path: self.path()?,
                mode: self.mode_or(DIR_MODE)?,
            },
            "mkfile" => Op::Mkfile {
                path: self.path()?,
                mode: self.mode_or(FILE_MODE)?,
            },
            "mknod" => Op::Mknod {
                path: self.path()?,
                kind: self.node_kind()?,
                mode: self.mode_or(FILE_MODE)?,
            },
            "symlink" => Op::Symlink {
                target: self.bytes("a target")?.0,
                path: self.path()?,
            },
            "readlink" => Op::Readlink { path: self.path()? },
            "link" => Op::Link {
                from: self.place()?,
                to: self.path()?,
            },
            "unlink" => Op::Unlink { path: self.path()? },
            "rmdir" => Op::Rmdir { path: self.path()? },
            "rename" => Op::Rename {
                from: self.path()?,
                to: self.path()?,
                how: self.option(
                    RenameHow::Replace,
                    &[
                        ("noreplace", RenameHow::NoReplace),
                        ("exchange", RenameHow::Exchange),
                    ],
                )?,
            },
            "open" => Op::Open {
                handle: self.handle()?,
                path: self.path()?,
                how: self.open_how()?,
            },
            "tmpfile" => Op::Tmpfile {
                handle: self.handle()?,
                dir: self.path()?,
                mode: self.mode_or(FILE_MODE)?,
            },
            "close" => Op::Close {
                handle: self.handle()?,
            },
            "write" => Op::Write {
                place: self.place()?,
                offset: self.size()?,
                data: self.data()?,
            },
            "append" => Op::Append {
                path: self.path()?,
                data: self.data()?,
            },
            "read" => Op::Read {
                place: self.place()?,
                offset: self.size()?,
                len: self.size()?,
            },
            "sum" => Op::Sum {
                place: self.place()?,
            },
            "truncate" => Op::Truncate {
                place: self.place()?,
                size: self.size()?,
            },
            "fallocate" | "punch" | "zero" => {
                let (place, offset, len) = (self.place()?, self.size()?, self.size()?);
                let how = match verb {
                    "punch" => Fallocate::Punch,
                    "zero" => {
                        let (none, choices) = keep(Fallocate::Zero, Fallocate::ZeroKeep);
                        self.option(none, &choices)?
                    }
                    _ => {
                        let (none, choices) = keep(Fallocate::Allocate, Fallocate::Keep);
                        self.option(none, &choices)?
                    }
                };
                Op::Fallocate {
                    place,
                    how,
                    offset,
                    len,
                }
            }
            "seek" => Op::Seek {
                place: self.place()?,
                whence: self.choice(&[("data", Whence::Data), ("hole", Whence::Hole)])?,
                offset: self.size()?,
            },
            "stat" => Op::Stat {
                place: self.place()?,
            },
            "chmod" => Op::Chmod {
                place: self.place()?,
                mode: self.mode()?,
            },
            "chown" => Op::Chown {
                place: self.place()?,
                uid: self.id()?,
                gid: self.id()?,
            },
            "utimes" => Op::Utimes {
                place: self.place()?,
                atime: self.time()?,
                mtime: self.time()?,
            },
            "setxattr" => Op::Setxattr {
                place: self.place()?,
                name: self.bytes("the name of an attribute")?.0,
                value: self.data()?,
                how: self.option(
                    XattrHow::Any,
                    &[("create", XattrHow::Create), ("replace", XattrHow::Replace)],
                )?,
            },
            "getxattr" => Op::Getxattr {
                place: self.place()?,
                name: self.bytes("the name of an attribute")?.0,
            },
            "removexattr" => Op::Removexattr {
                place: self.place()?,
                name: self.bytes("the name of an attribute")?.0,
            },
            "listxattr" => Op::Listxattr {
                place: self.place()?,
            },
            "ls" => Op::Ls { path: self.path()? },
            "fsync" => Op::Fsync {
                place: self.place()?,
            },
            "fdatasync" => Op::Fdatasync {
                place: self.place()?,
            },
            "fsyncdir" => Op::Fsyncdir { path: self.path()? },
            "sync" => Op::Sync,
            "evict" => Op::Evict,
            "remount" => Op::Remount,
            "crash" => Op::Crash,
            "tree" => Op::Tree,
            _ => return self.fail(start, format!("unknown operation {verb}")),
        })
    }
}

/// Two hex digits.
fn hex_byte(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits).ok()?;
    // from_str_radix would also take a sign.
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}

/// `x*255}` and what follows it.
fn run(text: &[u8]) -> Option<(u8, usize, &[u8])> {
    let end = text.iter().position(|&byte| byte == b'}')?;
    let (byte, count) = (text[..end].first()?, text[..end].get(2..)?);
    let count: usize = std::str::from_utf8(count).ok()?.parse().ok()?;
    // A path is never longer than this anywhere; a limit keeps a slip from eating memory.
    (text[1] == b'*' && is_plain(*byte) && count <= 1 << 16)
        .then(|| (*byte, count, &text[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        text.parse::<Script>().expect_err(text).to_string()
    }

    #[test]
    fn statements_comments_and_expectations() {
        let script: Script = "# first\n\nmkdir /a; write /a/f 4k 1M 7 ; ls /a -> ok # done\n"
            .parse()
            .unwrap();
        assert_eq!(
            script.to_string(),
            "mkdir /a\nwrite /a/f 4k 1M 7\nls /a -> ok\n"
        );
    }

    #[test]
    fn errors_name_line_and_column() {
        assert_eq!(
            error("mkdir /a\n  mkdri /b"),
            "line 2, column 3: unknown operation mkdri"
        );
        assert_eq!(
            error("write /a 4q 1 1").split(':').next(),
            Some("line 1, column 10")
        );
        assert_eq!(error("mkdir a").split(':').next(), Some("line 1, column 7"));
        assert_eq!(
            error("mkdir /a/../b").split(':').next(),
            Some("line 1, column 7")
        );
        assert_eq!(error("rename /a"), "line 1, column 10: expected a path");
        assert_eq!(
            error("sync /a"),
            "line 1, column 6: expected the end of the operation"
        );
        assert_eq!(
            error("write /a 0 \"x"),
            "line 1, column 12: the text does not end"
        );
        assert_eq!(
            error("mkdir /{x*}").split(':').next(),
            Some("line 1, column 8")
        );
        assert_eq!(
            error("open h /f create").split(':').next(),
            Some("line 1, column 11")
        );
    }

    #[test]
    fn odd_names_and_long_names_round_trip() {
        let name = [&b"a b%\xff;\n#"[..], &[b'x'; 255]].concat();
        let op = Op::Mkdir {
            path: Path::root().join(&name),
            mode: 0o700,
        };
        assert_eq!(op.to_string(), "mkdir /a%20b%25%ff%3b%0a%23{x*255} 700");
        assert_eq!(op.to_string().parse(), Ok(op));
    }

    #[test]
    fn times_before_1970_count_their_fraction_forwards() {
        let op: Op = "utimes /a omit -5.25".parse().unwrap();
        let Op::Utimes { mtime, .. } = &op else {
            panic!("{op}")
        };
        assert_eq!(
            *mtime,
            SetTime::At {
                secs: -5,
                nanos: 250_000_000
            }
        );
        assert_eq!(op.to_string(), "utimes /a omit -5.250000000");
    }
}
