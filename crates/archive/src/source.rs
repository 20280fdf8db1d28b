//! The bytes of an archive on their way in: one buffer, whose content is handed on without a copy.

use std::io::{self, Read};

use crate::Error;

/// Bytes that are asked of the stream at once.
const BUFFER: usize = 1 << 20;
/// The most that [`Source::want`] is asked for.
pub(crate) const WANT_MAX: usize = BUFFER / 2;

/// A stream that is read once.
pub(crate) struct Source<R> {
    from: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    offset: u64,
}

impl<R: Read> Source<R> {
    pub(crate) fn new(from: R) -> Source<R> {
        Source { from, buffer: vec![0; BUFFER], start: 0, end: 0, offset: 0 }
    }

    /// Bytes that were taken so far.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next `len` bytes, at most [`WANT_MAX`]; fewer where the stream ends.
    pub(crate) fn want(&mut self, len: usize) -> Result<&[u8], Error> {
        debug_assert!(len <= WANT_MAX);
        if self.buffer.len() - self.start < len {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        while self.end - self.start < len {
            match self.from.read(&mut self.buffer[self.end..]) {
                Ok(0) => break,
                Ok(more) => self.end += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(Error::Read { offset: self.offset, source }),
            }
        }
        let there = len.min(self.end - self.start);
        Ok(&self.buffer[self.start..self.start + there])
    }

    /// Goes on behind bytes that [`Source::want`] has shown.
    pub(crate) fn take(&mut self, len: usize) {
        debug_assert!(len <= self.end - self.start);
        self.start += len;
        self.offset += len as u64;
    }
}
