//! The words of a line, each as the value that an operation wants there.

use std::str::FromStr;

use super::{ParseError, Parsed};
use crate::bytes::Data;
use crate::op::*;
use crate::words::is_plain;

/// The words of one line.
pub(super) struct Words<'a> {
    pub(super) text: &'a [u8],
    pub(super) at: usize,
    pub(super) line: usize,
}

impl<'a> Words<'a> {
    pub(super) fn fail<T>(&self, at: usize, what: impl Into<String>) -> Parsed<T> {
        Err(ParseError { line: self.line, column: at + 1, what: what.into() })
    }

    pub(super) fn skip_blanks(&mut self) {
        while self.text.get(self.at).is_some_and(|byte| b" \t\r".contains(byte)) {
            self.at += 1;
        }
    }

    /// Moves to the next statement of the line, if there is one.
    pub(super) fn skip_to_statement(&mut self) -> bool {
        while self.text.get(self.at).is_some_and(|byte| b" \t\r;".contains(byte)) {
            self.at += 1;
        }
        self.text.get(self.at).is_some_and(|&byte| byte != b'#')
    }

    /// Whether the statement has no more words.
    pub(super) fn ended(&mut self) -> bool {
        self.skip_blanks();
        matches!(self.text.get(self.at), None | Some(b';' | b'#'))
            || self.text[self.at..].starts_with(b"->")
    }

    /// The next word as it stands, and where it begins.
    pub(super) fn raw(&mut self, what: &str) -> Parsed<(&'a str, usize)> {
        if self.ended() {
            return self.fail(self.at, format!("expected {what}"));
        }
        let start = self.at;
        while self.text.get(self.at).is_some_and(|byte| !b" \t\r;#".contains(byte)) {
            self.at += 1;
        }
        match std::str::from_utf8(&self.text[start..self.at]) {
            Ok(word) => Ok((word, start)),
            Err(_) => self.fail(start, "not plain text; write other bytes as %41"),
        }
    }

    /// The next word with runs and escapes resolved.
    pub(super) fn bytes(&mut self, what: &str) -> Parsed<(Vec<u8>, usize)> {
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

    pub(super) fn path(&mut self) -> Parsed<Path> {
        let (bytes, start) = self.bytes("a path")?;
        match Path::new(bytes) {
            Some(path) => Ok(path),
            None => self.fail(start, "expected a path from the root, without . and .."),
        }
    }

    pub(super) fn handle(&mut self) -> Parsed<Handle> {
        let (word, start) = self.raw("the name of a handle")?;
        self.handle_from(word, start)
    }

    pub(super) fn handle_from(&self, word: &str, start: usize) -> Parsed<Handle> {
        if !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            Ok(Handle(word.into()))
        } else {
            self.fail(start, "a handle is named by letters and digits")
        }
    }

    pub(super) fn place(&mut self) -> Parsed<FileRef> {
        if !self.ended() && self.text[self.at] == b'@' {
            let (word, start) = self.raw("a handle")?;
            return Ok(FileRef::Handle(self.handle_from(&word[1..], start + 1)?));
        }
        self.path().map(FileRef::Path)
    }

    pub(super) fn number<T: FromStr>(&mut self, what: &str) -> Parsed<T> {
        let (word, start) = self.raw(what)?;
        word.parse().or_else(|_| self.fail(start, format!("expected {what}")))
    }

    pub(super) fn size(&mut self) -> Parsed<u64> {
        let (word, start) = self.raw("a number of bytes")?;
        let (digits, shift) = match word.as_bytes().last() {
            Some(b'k') => (&word[..word.len() - 1], 10),
            Some(b'M') => (&word[..word.len() - 1], 20),
            Some(b'G') => (&word[..word.len() - 1], 30),
            Some(b'T') => (&word[..word.len() - 1], 40),
            _ => (word, 0),
        };
        match digits.parse::<u64>().ok().and_then(|count| count.checked_mul(1 << shift)) {
            Some(size) => Ok(size),
            None => self.fail(start, "expected a number of bytes such as 0, 4k or 8T"),
        }
    }

    pub(super) fn mode(&mut self) -> Parsed<u32> {
        let (word, start) = self.raw("a mode")?;
        match u32::from_str_radix(word, 8) {
            Ok(mode) if mode <= 0o7777 => Ok(mode),
            _ => self.fail(start, "expected an octal mode of at most 7777"),
        }
    }

    pub(super) fn mode_or(&mut self, default: u32) -> Parsed<u32> {
        if self.ended() { Ok(default) } else { self.mode() }
    }

    pub(super) fn data(&mut self) -> Parsed<Data> {
        if !self.ended() && self.text[self.at] == b'"' {
            return self.literal().map(Data::Literal);
        }
        let len = self.size()?;
        Ok(Data::Pattern { len, seed: self.number("the seed of a pattern")? })
    }

    /// A text in double quotes with the escapes \" \\ \n and \x41.
    pub(super) fn literal(&mut self) -> Parsed<Vec<u8>> {
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
    pub(super) fn option<T: Copy>(&mut self, none: T, choices: &[(&str, T)]) -> Parsed<T> {
        if self.ended() { Ok(none) } else { self.choice(choices) }
    }

    pub(super) fn choice<T: Copy>(&mut self, choices: &[(&str, T)]) -> Parsed<T> {
        let names = choices.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" or ");
        let (word, start) = self.raw(&names)?;
        match choices.iter().find(|(name, _)| *name == word) {
            Some((_, value)) => Ok(*value),
            None => self.fail(start, format!("expected {names}")),
        }
    }

    pub(super) fn id(&mut self) -> Parsed<Option<u32>> {
        let (word, start) = self.raw("an id or -")?;
        match word {
            "-" => Ok(None),
            digits => digits.parse().map(Some).or_else(|_| self.fail(start, "expected an id or -")),
        }
    }

    pub(super) fn time(&mut self) -> Parsed<SetTime> {
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
                secs.parse().ok().zip(nanos).map(|(secs, nanos)| SetTime::At { secs, nanos })
            }
        };
        time.map_or_else(|| self.fail(start, "expected omit, now or seconds such as 5.25"), Ok)
    }

    pub(super) fn node_kind(&mut self) -> Parsed<NodeKind> {
        let (word, start) = self.raw("fifo, socket, char:MAJOR:MINOR or block:MAJOR:MINOR")?;
        let parts: Vec<&str> = word.split(':').collect();
        let number = |index: usize| parts[index].parse::<u32>().ok();
        let kind = match parts[..] {
            ["fifo"] => Some(NodeKind::Fifo),
            ["socket"] => Some(NodeKind::Socket),
            ["char", ..] if parts.len() == 3 => {
                number(1).zip(number(2)).map(|(major, minor)| NodeKind::Char(major, minor))
            }
            ["block", ..] if parts.len() == 3 => {
                number(1).zip(number(2)).map(|(major, minor)| NodeKind::Block(major, minor))
            }
            _ => None,
        };
        kind.map_or_else(
            || self.fail(start, "expected fifo, socket, char:MAJOR:MINOR or block:MAJOR:MINOR"),
            Ok,
        )
    }

    pub(super) fn open_how(&mut self) -> Parsed<OpenHow> {
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
