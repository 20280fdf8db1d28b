//! Why an archive could not be read or written.

use std::io;

use crate::header::shown;

/// Why an archive could not be read or written. Each is one sentence for people.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The stream of the archive could not be read.
    #[error("the archive cannot be read at byte {offset}: {source}")]
    Read {
        /// Bytes of the archive before that.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// The stream of the archive could not be written.
    #[error("the archive cannot be written: {0}")]
    Write(io::Error),
    /// The archive ends too early.
    #[error("the archive ends at byte {offset}, in the middle of {}", member(.name))]
    Truncated {
        /// Where it ends.
        offset: u64,
        /// The member; empty if its name was not read yet.
        name: Vec<u8>,
    },
    /// The archive is not what it has to be.
    #[error("byte {offset} of the archive, {}: {why}", member(.name))]
    Malformed {
        /// Where the member begins.
        offset: u64,
        /// The member; empty if its name was not read yet.
        name: Vec<u8>,
        /// What is wrong.
        why: &'static str,
    },
    /// It is no archive, or a compressed one.
    #[error("{0}")]
    Foreign(String),
    /// The volume refused a member.
    #[error("byte {offset} of the archive, {}: {source}", member(.name))]
    Refused {
        /// Where the member begins.
        offset: u64,
        /// The member.
        name: Vec<u8>,
        /// What the volume said.
        source: io::Error,
    },
    /// The volume could not be prepared for the archive, or what was done of it not be taken back.
    #[error("{what}: {source}")]
    Volume {
        /// What was tried.
        what: String,
        /// What the volume said.
        source: io::Error,
    },
    /// Files changed while they were read. The archive is whole, but of these it has a mixture.
    #[error("{}{} changed while it was read; take a snapshot and export that", shown(.path), and_others(*.others))]
    Changed {
        /// The path of the first.
        path: Vec<u8>,
        /// How many others did.
        others: u64,
    },
    /// More has to be remembered than may be.
    #[error("{what} take more than {} MiB of memory; unmount the volume and try again, or export smaller directories", .most >> 20)]
    TooMuch {
        /// What has.
        what: &'static str,
        /// Bytes that it may have.
        most: usize,
    },
    /// A file of the volume could not be read, or has no place in an archive.
    #[error("{}: {source}", shown(.path))]
    File {
        /// Its path.
        path: Vec<u8>,
        /// Why.
        source: io::Error,
    },
}

impl Error {
    /// What the volume, or the stream, said, if it was one of them.
    pub fn io(&self) -> Option<&io::Error> {
        match self {
            Error::Read { source, .. }
            | Error::Write(source)
            | Error::Refused { source, .. }
            | Error::Volume { source, .. }
            | Error::File { source, .. } => Some(source),
            Error::Truncated { .. }
            | Error::Malformed { .. }
            | Error::Foreign(_)
            | Error::TooMuch { .. }
            | Error::Changed { .. } => None,
        }
    }
}

fn and_others(count: u64) -> String {
    match count {
        0 => String::new(),
        1 => " and another file".into(),
        count => format!(" and {count} other files"),
    }
}

fn member(name: &[u8]) -> String {
    match name.is_empty() {
        true => "a header".into(),
        false => format!("member `{}`", shown(name)),
    }
}
