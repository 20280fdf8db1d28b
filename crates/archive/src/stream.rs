//! The bytes of one member after the other: how many are left, and what an error says of them.

use std::io::Read;

use crate::Error;
use crate::header::BLOCK;
use crate::pax;
use crate::source::{Source, WANT_MAX};

type Result<T> = std::result::Result<T, Error>;

/// A stream at a member.
pub(crate) struct Stream<R> {
    pub(crate) source: Source<R>,
    /// Where the present header begins, and the name that an error shows.
    pub(crate) offset: u64,
    pub(crate) name: Vec<u8>,
    /// Bytes of the present member that were not taken, and the padding behind them.
    pub(crate) left: u64,
    padding: u64,
}

impl<R: Read> Stream<R> {
    pub(crate) fn new(from: R) -> Stream<R> {
        Stream { source: Source::new(from), offset: 0, name: Vec::new(), left: 0, padding: 0 }
    }

    /// An error about the present member.
    pub(crate) fn malformed(&self, why: &'static str) -> Error {
        Error::Malformed { offset: self.offset, name: self.name.clone(), why }
    }

    pub(crate) fn truncated(&mut self, there: usize) -> Error {
        let offset = self.source.offset() + there as u64;
        Error::Truncated { offset, name: self.name.clone() }
    }

    /// The next bytes of the present member, at most `most` and [`WANT_MAX`], at least one if `most` is.
    pub(crate) fn bytes(&mut self, most: u64) -> Result<&[u8]> {
        let len = most.min(self.left).min(WANT_MAX as u64) as usize;
        let there = self.source.want(len)?.len();
        if there < len {
            return Err(self.truncated(there));
        }
        self.source.want(len)
    }

    /// Goes on behind bytes that [`Stream::bytes`] has shown.
    pub(crate) fn take(&mut self, len: usize) {
        self.source.take(len);
        self.left = self.left.saturating_sub(len as u64);
    }

    /// All bytes of the present member, if they are few.
    pub(crate) fn whole(&mut self) -> Result<Vec<u8>> {
        if self.left > pax::BYTES_MAX {
            return Err(self.malformed("its records or its name are longer than 8 MiB"));
        }
        let mut all = Vec::new();
        while self.left > 0 {
            let bytes = self.bytes(self.left)?;
            all.extend_from_slice(bytes);
            let len = bytes.len();
            self.take(len);
        }
        Ok(all)
    }

    /// Goes on behind the present member.
    pub(crate) fn skip(&mut self) -> Result<()> {
        self.left += self.padding;
        self.padding = 0;
        while self.left > 0 {
            let len = self.bytes(self.left)?.len();
            self.take(len);
        }
        Ok(())
    }

    pub(crate) fn expect_body(&mut self, size: u64) -> Result<()> {
        self.padding = size.wrapping_neg() % BLOCK;
        if size.checked_add(self.padding).is_none_or(|sum| sum > i64::MAX as u64) {
            return Err(self.malformed("its size is more than there can be"));
        }
        self.left = size;
        Ok(())
    }
}
