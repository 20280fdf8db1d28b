//! Why a stream cannot be sent or received.

use std::io;

use holdfast_posix::FsError;

/// Why a stream cannot be sent or received. Each is a sentence for people.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The stream ends before its end.
    #[error("the stream is damaged, or was cut, before byte {position}")]
    Cut {
        /// The first byte that did not come.
        position: u64,
    },
    /// Its bytes do not come, or cannot be written.
    #[error("the stream: {0}")]
    Io(io::Error),
    /// It is no stream, or damaged.
    #[error("the stream is damaged at byte {position}: {why}")]
    Malformed {
        /// Where the record begins that makes no sense.
        position: u64,
        /// What is wrong with it.
        why: String,
    },
    /// It cannot be received here, or what is asked for cannot be sent.
    #[error("{0}")]
    Refused(String),
    /// The volume answers with an error.
    #[error("{what}: {source}")]
    Volume {
        /// What was to be done.
        what: String,
        /// What the volume says.
        source: io::Error,
    },
}

impl StreamError {
    pub(crate) fn refused<T>(why: impl Into<String>) -> crate::Result<T> {
        Err(StreamError::Refused(why.into()))
    }
}

/// Says what was to be done when a call failed.
pub(crate) trait Doing<T> {
    /// Says what.
    fn doing(self, what: impl FnOnce() -> String) -> crate::Result<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> crate::Result<T> {
        self.map_err(|source| StreamError::Volume { what: what(), source })
    }
}

impl<T> Doing<T> for Result<T, FsError> {
    fn doing(self, what: impl FnOnce() -> String) -> crate::Result<T> {
        self.map_err(|error| {
            let kind = io::Error::from_raw_os_error(error.errno()).kind();
            StreamError::Volume { what: what(), source: io::Error::new(kind, error.to_string()) }
        })
    }
}
