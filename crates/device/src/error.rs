//! What a device says when it refuses.

use rustix::io::Errno;

/// A call that a device did not carry out.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The host or the hardware reported an error.
    #[error("{call} of {len} bytes at {at} failed: {source}")]
    Io {
        /// `read`, `write`, `flush` or `discard`.
        call: &'static str,
        /// Byte offset.
        at: u64,
        /// Bytes.
        len: u64,
        /// What the host said.
        source: std::io::Error,
    },
    /// The range does not lie inside the device.
    #[error("{call} of {len} bytes at {at} is beyond the end of the device at {end}")]
    BeyondEnd {
        /// `read`, `write` or `discard`.
        call: &'static str,
        /// Byte offset.
        at: u64,
        /// Bytes.
        len: u64,
        /// Bytes of the device.
        end: u64,
    },
    /// The volume on it has stopped (P7): nothing is written any more.
    #[error("the volume stopped after an error: {0}")]
    Stopped(String),
    /// The device could not be opened.
    #[error("{path}: {why}")]
    Open {
        /// What was to be opened.
        path: String,
        /// Why it was not, as a sentence that says what to do.
        why: String,
    },
    /// Another program has taken the volume since; nothing is asked of the device any more.
    #[error("{why}; nothing more is written here: unmount it")]
    TakenOver {
        /// Which program, and what it did.
        why: String,
    },
    /// Another process has it open for writing.
    #[error("{path} is in use by {holder}; unmount it or end that program first")]
    InUse {
        /// What was to be opened.
        path: String,
        /// The holder: `process 123 (holdfast)`, or `another program`.
        holder: String,
    },
}

impl DeviceError {
    /// The device does not know this call.
    pub fn unsupported(call: &'static str) -> DeviceError {
        let source = std::io::Error::from_raw_os_error(Errno::OPNOTSUPP.raw_os_error());
        DeviceError::Io { call, at: 0, len: 0, source }
    }

    /// Whether the device does not know the call at all.
    pub fn is_unsupported(&self) -> bool {
        let DeviceError::Io { source, .. } = self else {
            return false;
        };
        let unknown = [Errno::OPNOTSUPP, Errno::NOSYS, Errno::NOTTY];
        unknown.iter().any(|errno| source.raw_os_error() == Some(errno.raw_os_error()))
    }

    /// Whether the host had no room (or allowed no more of it): the same call may work when it has.
    pub fn is_no_space(&self) -> bool {
        let DeviceError::Io { source, .. } = self else {
            return false;
        };
        let full = [Errno::NOSPC, Errno::DQUOT].map(|errno| Some(errno.raw_os_error()));
        full.contains(&source.raw_os_error())
    }
}
