//! The names in a directory, in an order.

use std::ffi::OsString;
use std::io;

use holdfast::Dir;

#[cfg(test)]
thread_local! {
    /// Directories that this thread has looked through.
    pub(crate) static LOOKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// The names in a directory, in the order of their bytes.
pub(crate) fn names(dir: &Dir) -> io::Result<Vec<OsString>> {
    #[cfg(test)]
    LOOKS.set(LOOKS.get() + 1);
    let names = dir.entries().map(|entry| Ok(entry?.file_name().to_os_string()));
    let mut names = names.collect::<io::Result<Vec<_>>>()?;
    names.sort_unstable();
    Ok(names)
}
