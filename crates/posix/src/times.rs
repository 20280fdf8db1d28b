//! When reading updates the access time, and what utimens sets: pure decisions.

use holdfast_base::Timestamp;
use holdfast_format::item::InodeItem;

use crate::{Atime, SetTime};

const DAY_SECS: i64 = 24 * 60 * 60;

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
