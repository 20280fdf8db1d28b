//! A volume in memory, and errors by their numbers.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

use std::io;

use holdfast::Volume;

pub fn volume() -> Volume {
    Volume::in_memory(32 << 20).unwrap()
}

/// The call is refused with this errno.
#[track_caller]
pub fn errno<T: std::fmt::Debug>(result: io::Result<T>, number: i32) {
    assert_eq!(result.unwrap_err().raw_os_error(), Some(number));
}
