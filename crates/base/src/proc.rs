//! Lists of the kernel below `/proc`, as text.

use std::io;
use std::path::Path;

/// A list such as `/proc/self/mountinfo`. Names in it are bytes: what is no UTF-8 is replaced, so that one such name does not hide all
/// others.
///
/// # Errors
/// It is not there, or cannot be read.
pub fn list(path: impl AsRef<Path>) -> io::Result<String> {
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}
