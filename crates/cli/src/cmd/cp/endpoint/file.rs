//! Files of either side while they are copied.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::rc::Rc;

use holdfast_service::work::files::message::{Attributes, DATA_MAX, Reply, Request};

use super::{Copied, Image, bytes, nonsense};
use crate::host_tree::{self, NewFile};

/// What is read. Of a volume one at a time.
pub(in crate::cmd::cp) enum Reading {
    Host(File),
    /// No file.
    Held(OwnedFd),
    Volume(Rc<Image>, PathBuf),
}

impl Reading {
    /// Reads some bytes into `into`, at most as many as it has.
    pub(in crate::cmd::cp) fn read_at(
        &self,
        into: &mut Vec<u8>,
        at: u64,
        len: u64,
    ) -> io::Result<()> {
        let len = len.min(DATA_MAX as u64) as usize;
        match self {
            Reading::Host(file) => {
                into.resize(len, 0);
                let read = std::os::unix::fs::FileExt::read_at(file, into, at)?;
                into.truncate(read);
                Ok(())
            }
            Reading::Held(_) => nonsense(),
            Reading::Volume(image, _) => {
                match image.ask(Request::Read { at, len: len as u32 }, into)? {
                    Reply::Done if into.len() <= len => Ok(()),
                    _ => nonsense(),
                }
            }
        }
    }

    /// The next stretch of data at or after `at`: its start and end. `None` if only a hole is left.
    pub(in crate::cmd::cp) fn data_after(
        &self,
        at: u64,
        len: u64,
    ) -> io::Result<Option<(u64, u64)>> {
        match self {
            Reading::Host(file) => host_tree::data_after(file, at, len),
            Reading::Held(_) => Ok(None),
            Reading::Volume(image, _) => match image.ask(Request::Data { at }, &mut Vec::new())? {
                Reply::Data(Some((start, end))) if start < at || end <= start => nonsense(),
                Reply::Data(found) => Ok(found),
                _ => nonsense(),
            },
        }
    }

    /// How far its bytes go at most. Files of /proc have some, and say that they have none.
    pub(in crate::cmd::cp) fn end(&self, len: u64) -> u64 {
        match self {
            Reading::Host(_) if len == 0 => u64::MAX,
            _ => len,
        }
    }

    /// Where a link leads.
    pub(in crate::cmd::cp) fn target(&self) -> io::Result<PathBuf> {
        match self {
            Reading::Host(_) => nonsense(),
            Reading::Held(link) => host_tree::read_link(link),
            Reading::Volume(image, path) => {
                match image.ask(Request::Target { path: bytes(path) }, &mut Vec::new())? {
                    Reply::Target(target) => Ok(OsString::from_vec(target).into()),
                    _ => nonsense(),
                }
            }
        }
    }

    /// Names and values of the extended attributes; none where the host has none.
    pub(in crate::cmd::cp) fn xattrs(&self) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        match self {
            Reading::Host(file) => host_tree::xattrs(file),
            Reading::Held(held) => host_tree::xattrs(held),
            Reading::Volume(image, path) => image.xattrs(path),
        }
    }
}

/// A file that has no name yet.
pub(in crate::cmd::cp) enum Writing {
    Host(NewFile),
    Volume(Rc<Image>, PathBuf),
}

impl Writing {
    pub(in crate::cmd::cp) fn write_all_at(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        match self {
            Writing::Host(file) => file.write_all_at(bytes, at),
            Writing::Volume(image, _) => image.say(Request::Write { at }, bytes),
        }
    }

    /// It is whole: it gets its length, its attributes, and its name; durable, if `sync`.
    pub(in crate::cmd::cp) fn end(
        self,
        len: u64,
        attributes: Attributes,
        sync: bool,
    ) -> io::Result<Copied> {
        match self {
            Writing::Host(file) => Ok(file.end(len, &attributes, sync)?.into()),
            Writing::Volume(image, path) => {
                let path = bytes(&path);
                Ok(image.made(Request::End { path, len, attributes, sync })?.into())
            }
        }
    }
}
