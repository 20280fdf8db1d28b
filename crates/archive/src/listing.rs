//! The names in a directory, in an order.

use std::ffi::OsString;
use std::io;

use holdfast::Dir;

/// The names in a directory, in the order of their bytes.
pub(crate) fn names(dir: &Dir) -> io::Result<Vec<OsString>> {
    let names = dir.entries().map(|entry| Ok(entry?.file_name().to_os_string()));
    let mut names = names.collect::<io::Result<Vec<_>>>()?;
    names.sort_unstable();
    Ok(names)
}
