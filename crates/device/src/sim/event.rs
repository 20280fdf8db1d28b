//! One call of a run, as a recording lists it.
//!
//! Events stand in the order in which they took effect. A write has a second
//! moment, its return, because a flush covers only writes that returned before
//! it began; both moments are places in the same list.

use std::fmt;
use std::sync::Arc;

use super::faults::Call;

/// One call, as it took effect.
#[derive(Clone, PartialEq, Eq)]
pub enum Event {
    /// Bytes were read.
    Read {
        /// Byte offset.
        at: u64,
        /// Bytes.
        len: u64,
    },
    /// Bytes were stored (where and as they really were: faults have been applied).
    Write {
        /// Byte offset.
        at: u64,
        /// The bytes.
        bytes: Arc<[u8]>,
        /// How many events there were when it returned; `None` while it is under way.
        returned: Option<usize>,
    },
    /// A flush returned without error.
    Flush {
        /// How many events there were when it began.
        began: usize,
    },
    /// A flush failed: what was not durable before it may never be.
    FlushFailed {
        /// How many events there were when it began.
        began: usize,
    },
    /// A range lost its meaning.
    Discard {
        /// Byte offset of the first whole sector.
        at: u64,
        /// Bytes that were asked for.
        len: u64,
        /// What the sectors read as from now on; empty: as before.
        junk: Arc<[u8]>,
        /// As in [`Event::Write`].
        returned: Option<usize>,
    },
    /// A read, write or discard answered with an error. What a failed write stored stands before it.
    Failed {
        /// Which call.
        call: Call,
        /// Byte offset.
        at: u64,
        /// Bytes.
        len: u64,
    },
    /// A call answered well and did nothing: the device lied.
    Ignored {
        /// Which call.
        call: Call,
        /// Byte offset.
        at: u64,
        /// Bytes.
        len: u64,
    },
    /// The caller's own sign, see [`super::SimDevice::mark`].
    Mark(u64),
}

impl Event {
    /// Whether a power cut after this event can leave other images than one before it.
    pub fn changes_images(&self) -> bool {
        !matches!(
            self,
            Event::Read { .. } | Event::Mark(_) | Event::Failed { .. } | Event::Ignored { .. }
        )
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Read { at, len } => write!(f, "read {at}+{len}"),
            Event::Write { at, bytes, .. } => write!(f, "write {at}+{}", bytes.len()),
            Event::Flush { .. } => f.write_str("flush"),
            Event::FlushFailed { .. } => f.write_str("flush failed"),
            Event::Discard { at, len, .. } => write!(f, "discard {at}+{len}"),
            Event::Failed { call, at, len } => write!(f, "{} {at}+{len} failed", call.name()),
            Event::Ignored { call, at, len } => write!(f, "{} {at}+{len} ignored", call.name()),
            Event::Mark(mark) => write!(f, "mark {mark}"),
        }
    }
}
