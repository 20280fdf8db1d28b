//! An inode that has no name but was open: its item is empty, the key says it all.

use crate::Malformed;

/// The bytes on disk: none.
pub const VALUE: &[u8] = &[];

/// Fails unless `bytes` are an orphan's.
pub fn decode(bytes: &[u8]) -> Result<(), Malformed> {
    if bytes.is_empty() { Ok(()) } else { Err(Malformed::new("orphan", "it is not empty")) }
}
