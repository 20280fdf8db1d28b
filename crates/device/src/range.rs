//! The checks that every device makes before it touches a byte.
//!
//! Arithmetic on offsets is checked here once (R8), so that no device has to
//! think about `at + len` running over 64 bits.

use std::io;

use crate::DeviceError;

/// The error of a call that the device refuses as misused.
pub(crate) fn misused(call: &'static str, at: u64, len: u64, why: &'static str) -> DeviceError {
    DeviceError::Io { call, at, len, source: io::Error::new(io::ErrorKind::InvalidInput, why) }
}

/// Whether `len` bytes at `at` lie inside a device of `end` bytes.
pub(crate) fn inside(call: &'static str, at: u64, len: u64, end: u64) -> Result<(), DeviceError> {
    match at.checked_add(len) {
        Some(last) if last <= end => Ok(()),
        _ => Err(DeviceError::BeyondEnd { call, at, len, end }),
    }
}

/// Whether `len` bytes at `at` are whole sectors of the device.
pub(crate) fn writable(at: u64, len: u64, end: u64, sector: u32) -> Result<(), DeviceError> {
    inside("write", at, len, end)?;
    if !at.is_multiple_of(u64::from(sector)) || !len.is_multiple_of(u64::from(sector)) {
        return Err(misused("write", at, len, "not a multiple of the sector size"));
    }
    Ok(())
}
