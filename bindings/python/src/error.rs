//! Errors as Python has them: `OSError` with errno, which makes FileNotFoundError and its kin of itself; and the process that a
//! volume belongs to.

use std::io;
use std::path::Path;

use holdfast::Dir;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

/// The error of a call about `path`.
pub(crate) fn os_error(error: &io::Error, path: Option<&Path>) -> PyErr {
    let number = holdfast::errno(error);
    let text = match error.raw_os_error() {
        // Without the number, which Python puts in front.
        Some(_) => error.to_string().split(" (os error").next().unwrap_or_default().to_string(),
        None => error.to_string(),
    };
    match path {
        Some(path) => PyOSError::new_err((number, text, path.as_os_str().to_os_string())),
        None => PyOSError::new_err((number, text)),
    }
}

/// Runs a call with the interpreter's lock released.
pub(crate) fn call<T: Send>(
    py: Python<'_>,
    path: Option<&Path>,
    body: impl FnOnce() -> io::Result<T> + Send,
) -> PyResult<T> {
    py.detach(body).map_err(|error| os_error(&error, path))
}

/// A call on a volume, known by its root, as long as it runs. A panic under way stops the volume: what the call was about may be half done (P7).
pub(crate) struct InCall<'a>(pub(crate) &'a Dir);

impl Drop for InCall<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop_volume("a call of a program has panicked");
        }
    }
}

/// A value that belongs to the process that made it. In a child of fork(2) there are none of the threads of a volume, and its locks may be
/// held for ever: nothing there may use it, drop it, or write to the device beside its parent.
#[derive(Debug)]
pub(crate) struct Own<T> {
    value: Option<T>,
    process: u32,
}

impl<T> Own<T> {
    pub(crate) fn new(value: T) -> Own<T> {
        Own { value: Some(value), process: std::process::id() }
    }

    /// The value; EBADF if it was given away, or in another process.
    pub(crate) fn get(&self) -> io::Result<&T> {
        self.is_here()?;
        self.value.as_ref().ok_or_else(|| io::Error::from_raw_os_error(EBADF))
    }

    /// Gives the value away, if it is there.
    pub(crate) fn take(&mut self) -> io::Result<Option<T>> {
        self.is_here()?;
        Ok(self.value.take())
    }

    fn is_here(&self) -> io::Result<()> {
        match self.process == std::process::id() {
            true => Ok(()),
            false => Err(io::Error::from_raw_os_error(EBADF)),
        }
    }
}

/// Linux has it everywhere.
pub(crate) const EBADF: i32 = 9;

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if self.is_here().is_err() {
            std::mem::forget(self.value.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;

    use super::*;

    #[test]
    fn a_panic_stops_the_volume() -> io::Result<()> {
        let volume = holdfast::Volume::in_memory(32 << 20)?;
        let panicked = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let _in_call = InCall(&volume);
            panic!("as the test wants");
        }));
        assert!(panicked.is_err());
        assert!(volume.write("/f", "x").is_err(), "it has stopped");
        drop(InCall(&volume));
        Ok(())
    }
}
