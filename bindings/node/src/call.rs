//! A call on a thread of libuv, how its errors go out, and what becomes of a panic.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};

use holdfast::Dir;
use napi::bindgen_prelude::{AsyncTask, ToNapiValue, TypeName};
use napi::{Env, Task};

/// Linux has it everywhere.
const EBADF: i32 = 9;

/// A promise of what a call answers.
pub(crate) type Promised<T> = AsyncTask<Work<T>>;

/// A call that has not been made yet.
pub struct Work<T>(Option<Box<dyn FnOnce() -> io::Result<T> + Send>>);

impl<T: ToNapiValue + TypeName + Send + 'static> Task for Work<T> {
    type Output = T;
    type JsValue = T;

    fn compute(&mut self) -> napi::Result<T> {
        // What the call has taken along is dropped here as well, on this thread.
        let body = self.0.take().ok_or_else(|| told(&io::Error::from_raw_os_error(EBADF)))?;
        body().map_err(|error| told(&error))
    }

    fn resolve(&mut self, _: Env, output: T) -> napi::Result<T> {
        Ok(output)
    }
}

/// Makes a call on a thread of libuv.
pub(crate) fn promised<T: ToNapiValue + TypeName + Send + 'static>(
    body: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Promised<T> {
    AsyncTask::new(Work(Some(Box::new(move || guarded(None, body)))))
}

/// What is open, or `None` once it is closed. A call has the lock as long as it lasts, and a close waits for it; nothing is left then that would
/// keep a mount in use, whenever JavaScript forgets the object.
pub(crate) type Open<T> = Arc<RwLock<Option<T>>>;

/// A call about what is open, or EBADF.
pub(crate) fn promised_of<A: Send + Sync + 'static, T: ToNapiValue + TypeName + Send + 'static>(
    open: &Open<A>,
    body: impl FnOnce(&A) -> io::Result<T> + Send + 'static,
) -> Promised<T> {
    let open = open.clone();
    promised(move || {
        let open = open.read().unwrap_or_else(PoisonError::into_inner);
        body(open.as_ref().ok_or_else(|| io::Error::from_raw_os_error(EBADF))?)
    })
}

/// Ends a panic before it reaches Node, which it would end, and stops the volume: what the call was about may be half done (P7).
pub(crate) fn guarded<T>(
    root: Option<&Dir>,
    body: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        // What was thrown may throw when it is dropped.
        std::mem::forget(panic);
        if let Some(root) = root {
            root.stop_volume("a call of a program has panicked");
        }
        let why = "a mistake in the library has ended this call, and its volume has stopped";
        Err(io::Error::other(why))
    })
}

/// An error for `lib/errors.js`, which makes a real one of it: errno, a colon, and a sentence where there is a better one than errno has.
pub(crate) fn told(error: &io::Error) -> napi::Error {
    let sentence = match error.raw_os_error() {
        Some(_) => String::new(),
        None => error.to_string(),
    };
    napi::Error::from_reason(format!("{}:{sentence}", holdfast::errno(error)))
}

/// The error of an argument that `lib` should have refused.
pub(crate) fn invalid() -> io::Error {
    io::ErrorKind::InvalidInput.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_with_an_error_and_stops_the_volume() -> io::Result<()> {
        let volume = holdfast::Volume::in_memory(32 << 20)?;
        assert_eq!(guarded(Some(&volume), || Ok(7))?, 7);
        volume.write("/f", "x")?;
        let ended = guarded(Some(&volume), || -> io::Result<()> { panic!("as the test wants") });
        assert!(ended.is_err_and(|error| error.to_string().contains("has stopped")));
        assert!(volume.write("/f", "x").is_err(), "it has stopped");
        Ok(())
    }

    #[test]
    fn errors_go_out_with_their_number_and_their_sentence() {
        assert_eq!(told(&io::Error::from_raw_os_error(2)).reason, "2:");
        let refused = io::Error::new(io::ErrorKind::ResourceBusy, "in use: by another");
        assert_eq!(told(&refused).reason, "16:in use: by another");
    }
}
