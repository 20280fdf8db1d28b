//! When reading updates the access time, which access times wait to be written, and what utimens sets.

use std::sync::atomic::Ordering;

use holdfast_base::{InodeNo, Lsn, Timestamp};
use holdfast_format::item::InodeItem;
use holdfast_sync::atomic::AtomicU64;

use crate::{Atime, FileType, SetTime};

const DAY_SECS: i64 = 24 * 60 * 60;

/// The access times that wait to be written.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) inodes: Vec<InodeNo>,
    /// They could not be written, and this was the newest commit: not tried again by readers before the next one.
    pub(crate) stuck_at: Option<Lsn>,
}

impl Waiting {
    /// How many.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.inodes.len()
    }
}

/// When reading updates access times. A remount may change it at any time.
#[derive(Debug)]
pub(crate) struct Policy(AtomicU64);

/// In a policy beside its [`Atime`]: not those of directories.
const NOT_OF_DIRECTORIES: u64 = 1 << 2;

impl Policy {
    pub(crate) fn new(atime: Atime) -> Policy {
        Policy(AtomicU64::new(atime as u64))
    }

    /// From now on it is `atime`, for directories only if `directories`.
    pub(crate) fn set(&self, atime: Atime, directories: bool) {
        let not = if directories { 0 } else { NOT_OF_DIRECTORIES };
        self.0.store(atime as u64 | not, Ordering::Relaxed);
    }

    /// That of files of this type.
    pub(crate) fn of(&self, file_type: FileType) -> Atime {
        let policy = self.0.load(Ordering::Relaxed);
        match policy & (NOT_OF_DIRECTORIES - 1) {
            _ if file_type == FileType::Directory && policy & NOT_OF_DIRECTORIES != 0 => {
                Atime::Never
            }
            always if always == Atime::Always as u64 => Atime::Always,
            relative if relative == Atime::Relative as u64 => Atime::Relative,
            _ => Atime::Never,
        }
    }
}

/// Whether reading `item` at `now` sets its access time.
pub(crate) fn atime_is_due(policy: Atime, item: &InodeItem, now: Timestamp) -> bool {
    match policy {
        Atime::Never => false,
        Atime::Always => item.atime != now,
        Atime::Relative => {
            item.atime <= item.mtime
                || item.atime <= item.ctime
                || now.secs.saturating_sub(item.atime.secs) >= DAY_SECS
        }
    }
}

/// The moment that is to be set.
pub(crate) fn resolve(time: SetTime, now: Timestamp) -> Timestamp {
    match time {
        SetTime::Now => now,
        SetTime::At(moment) => moment,
    }
}
