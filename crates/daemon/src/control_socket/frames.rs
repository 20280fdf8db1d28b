//! What goes through the control socket once a daemon works: frames in both directions.
//!
//! A frame is one byte that says what it is, four with the length of its body, little-endian, and the body.

use std::io::{self, Read};

use holdfast_service::outcome::{Failure, Outcome};
use holdfast_stream::Progress;
use serde::{Deserialize, Serialize};

/// Bytes of a body. Both sides keep one frame in memory.
pub(crate) const BODY_MAX: usize = 256 << 10;
/// Bytes in front of a body.
pub(crate) const HEAD: usize = 5;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// To the command: bytes for standard output. To the daemon: bytes of the input.
    Bytes = 1,
    /// To the daemon: the input is over; the next one follows, if there is one.
    EndOfInput = 2,
    /// To the command: a sentence for the person.
    Note = 3,
    /// To the command: how far it has come.
    Progress = 4,
    /// To the command: how it has ended; nothing follows.
    End = 5,
    /// To the command, as the first: the kernel is to hand over pages of mapped files in these mounts, which show what the work is about.
    /// Once more before one of them becomes another branch. The answer is [`Kind::Go`].
    Pages = 6,
    /// To the daemon: it has.
    Go = 7,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        use Kind::{Bytes, End, EndOfInput, Go, Note, Pages, Progress};
        let all = [Bytes, EndOfInput, Note, Progress, End, Pages, Go];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// A frame with this body, which is not longer than [`BODY_MAX`].
pub(crate) fn frame(kind: Kind, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("bodies are short");
    [&[kind as u8][..], &length.to_le_bytes(), body].concat()
}

/// What the head of a frame says.
///
/// # Errors
/// It makes no sense.
pub(crate) fn head(bytes: [u8; HEAD]) -> io::Result<(Kind, usize)> {
    let [kind, length @ ..] = bytes;
    let length = u32::from_le_bytes(length) as usize;
    match Kind::of(kind) {
        Some(kind) if length <= BODY_MAX => Ok((kind, length)),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a frame makes no sense")),
    }
}

/// The next frame.
///
/// # Errors
/// The connection breaks, or a frame makes no sense.
pub(crate) fn read(from: &mut impl Read) -> io::Result<(Kind, Vec<u8>)> {
    let mut start = [0; HEAD];
    from.read_exact(&mut start)?;
    let (kind, length) = head(start)?;
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    Ok((kind, body))
}

/// The peer says what it cannot mean.
pub(crate) fn nonsense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it answers nonsense")
}

/// The body that says how far work has come.
pub(crate) fn progress(at: Progress) -> Vec<u8> {
    [at.bytes, at.files, at.files_in_all].map(u64::to_le_bytes).concat()
}

/// What such a body says.
pub(crate) fn read_progress(body: &[u8]) -> Option<Progress> {
    let mut numbers = body.as_chunks::<8>().0.iter().map(|it| u64::from_le_bytes(*it));
    let mut next = || numbers.next();
    Some(Progress { bytes: next()?, files: next()?, files_in_all: next()? })
}

/// How work has ended.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Ended {
    code: u8,
    /// Why it failed, if it did.
    failed: Option<String>,
    /// Because the daemon ended.
    #[serde(default)]
    pub(crate) is_cut: bool,
}

impl From<Outcome> for Ended {
    fn from(outcome: Outcome) -> Ended {
        match outcome {
            Ok(code) => Ended { code, failed: None, is_cut: false },
            Err(Failure { code, sentence, .. }) => {
                Ended { code, failed: Some(sentence), is_cut: false }
            }
        }
    }
}

impl From<Ended> for Outcome {
    fn from(Ended { code, failed, .. }: Ended) -> Outcome {
        match failed {
            None => Ok(code),
            Some(sentence) => Err(Failure::new(code, sentence)),
        }
    }
}

impl Ended {
    /// The body that says it; a sentence that is too long is cut.
    pub(crate) fn body(mut self) -> Vec<u8> {
        const LETTERS: usize = 16 << 10;
        self.failed = self.failed.map(|sentence| sentence.chars().take(LETTERS).collect());
        serde_json::to_vec(&self).expect("a number and a sentence")
    }

    /// What such a body says.
    pub(crate) fn read(body: &[u8]) -> Option<Ended> {
        serde_json::from_slice(body).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_as_it_was_written_and_nonsense_is_refused() {
        let whole = frame(Kind::Note, b"a sentence");
        let (start, body) = whole.split_first_chunk::<HEAD>().unwrap();
        assert_eq!(head(*start).unwrap(), (Kind::Note, 10));
        assert_eq!(body, b"a sentence");
        for nonsense in [[0, 0, 0, 0, 0], [8, 0, 0, 0, 0], [1, 0, 0, 0, 1], [0xff; 5]] {
            assert!(head(nonsense).is_err(), "{nonsense:?}");
        }
        let at = Progress { bytes: 1, files: 2, files_in_all: 3 };
        assert_eq!(read_progress(&progress(at)), Some(at));
        assert_eq!(read_progress(&[0; 23]), None);
    }

    #[test]
    fn an_end_is_a_code_or_a_sentence() {
        let read = |outcome: Outcome| {
            let body = Ended::from(outcome).body();
            assert!(body.len() <= BODY_MAX);
            Outcome::from(Ended::read(&body).unwrap())
        };
        assert_eq!(read(Ok(3)).unwrap(), 3);
        let failure = read(Err(Failure::new(2, "\u{1}".repeat(1 << 20)))).unwrap_err();
        assert_eq!((failure.code, failure.sentence.len()), (2, 16 << 10));
        assert!(Ended::read(b"{}").is_none());
    }
}
