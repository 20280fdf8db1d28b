//! An answer, before it is bytes, and its bytes.

use std::time::Duration;

use holdfast_posix::{Attr, StatFs};
use holdfast_wire::{abi, reply};

use super::convert;
use crate::interface::{Answer, Entry, Errno, Opened};
use crate::owners::Owners;

/// What direct I/O is aligned to.
const PAGE: usize = 4096;

/// Memory for the bytes of answers.
pub(super) struct Buffer(Vec<u8>);

impl Buffer {
    /// None yet.
    pub(super) const fn new() -> Buffer {
        Buffer(Vec::new())
    }

    /// At least so many bytes, from the start of a page on: a device reads straight to there.
    pub(super) fn at_least(&mut self, most: usize) -> &mut [u8] {
        if self.0.len() < most + PAGE {
            // Not made longer: zeros from the system take memory only where they are used.
            self.0 = vec![0; most + PAGE];
        }
        let at = self.0.as_ptr().align_offset(PAGE);
        &mut self.0[at..]
    }
}

/// An answer, before it is bytes.
#[derive(Debug)]
pub(super) enum Out {
    Nothing,
    Entry(Entry),
    Attr(Attr, Duration),
    Statx(Attr, Duration),
    Opened(Opened),
    Created(Entry, Opened),
    Written(u32),
    StatFs(StatFs),
    Bytes(Vec<u8>),
    Length(u32),
    Offset(i64),
    /// Of an ioctl: these bytes.
    IoctlBytes(Vec<u8>),
}

impl Out {
    /// As a mount shows it that shows owners so.
    pub(super) fn shown(mut self, owners: &Owners) -> Out {
        match &mut self {
            Out::Entry(entry) | Out::Created(entry, _) => {
                entry.attr.iter_mut().for_each(|attr| owners.show(attr));
            }
            Out::Attr(attr, _) | Out::Statx(attr, _) => owners.show(attr),
            _ => {}
        }
        self
    }
}

/// Puts an answer at the front of `out`, which is as long as the longest, and says how many bytes it is.
pub(super) fn encode(answer: &Out, out: &mut [u8]) -> Answer<usize> {
    Ok(match answer {
        Out::Nothing => 0,
        Out::Entry(entry) => reply::put(out, &convert::entry(entry)),
        Out::Attr(attr, ttl) => reply::put(out, &convert::attr_out(attr, *ttl)),
        Out::Statx(attr, ttl) => reply::put(out, &convert::statx_out(attr, *ttl)),
        Out::Opened(opened) => reply::put(out, &convert::opened(opened)),
        Out::Created(entry, opened) => {
            let (entry, open) = (convert::entry(entry), convert::opened(opened));
            reply::put(out, &abi::CreateOut { entry, open })
        }
        Out::Written(size) => reply::put(out, &abi::WriteOut { size: *size, padding: 0 }),
        Out::StatFs(space) => reply::put(out, &convert::statfs(space)),
        Out::Length(size) => reply::put(out, &abi::GetxattrOut { size: *size, padding: 0 }),
        Out::Offset(offset) => reply::put(out, &abi::LseekOut { offset: *offset as u64 }),
        Out::Bytes(bytes) => {
            out.get_mut(..bytes.len()).ok_or(Errno(libc::EIO))?.copy_from_slice(bytes);
            bytes.len()
        }
        Out::IoctlBytes(bytes) => {
            let head = reply::put(out, &abi::IoctlOut::default());
            let end = head + bytes.len();
            out.get_mut(head..end).ok_or(Errno(libc::EIO))?.copy_from_slice(bytes);
            end
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_begin_with_a_page_and_keep_their_memory() {
        let mut buffer = Buffer::new();
        for most in [1, 4096, 128 << 10, 1 << 20] {
            let bytes = buffer.at_least(most);
            assert!(bytes.len() >= most && bytes.as_ptr().addr().is_multiple_of(PAGE), "{most}");
            let start = bytes.as_ptr();
            assert_eq!(buffer.at_least(most / 2).as_ptr(), start);
        }
    }
}
