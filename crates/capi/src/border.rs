//! The border: pointers come in and are checked, errors and panics go out as errno.

use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::io;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use holdfast::Dir;

thread_local! {
    /// The sentence about the last failure in this thread.
    static SENTENCE: RefCell<CString> = RefCell::default();
}

/// A sentence about the last call that failed in this thread; empty if none has. It is there until the next call fails
/// in this thread, or the thread ends.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_error() -> *const c_char {
    SENTENCE.try_with(|said| said.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// The version of this library, as text.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Runs a call of C: what it returns, or `failed` with errno set.
pub(crate) fn call<T>(failed: T, body: impl FnOnce() -> io::Result<T>) -> T {
    let error = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(done)) => return done,
        Ok(Err(error)) => error,
        Err(panic) => {
            // What was thrown may throw when it is dropped.
            std::mem::forget(panic);
            let why = "a mistake in the library has ended this call, and its volume has stopped";
            io::Error::other(why)
        }
    };
    let sentence = CString::new(error.to_string().replace('\0', "?")).unwrap_or_default();
    // In a thread that is ending there may be none any more.
    let _ = SENTENCE.try_with(|said| *said.borrow_mut() = sentence);
    // SAFETY: the C library gives each thread an errno of its own, at an address that is good as long as the thread lives.
    unsafe { *libc::__errno_location() = holdfast::errno(&error) };
    failed
}

/// As [`call`], for calls that return 0.
pub(crate) fn done(body: impl FnOnce() -> io::Result<()>) -> libc::c_int {
    call(-1, || body().map(|()| 0))
}

/// As [`call`], for calls that return a handle.
pub(crate) fn made<T>(body: impl FnOnce() -> io::Result<T>) -> *mut T {
    call(std::ptr::null_mut(), || Ok(Box::into_raw(Box::new(body()?))))
}

/// The failure of a caller that has passed what makes no sense.
pub(crate) fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// The text at `text`.
///
/// # Safety
/// It is NULL, or ends with a 0 and stays as it is during the call.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> io::Result<&'a OsStr> {
    if text.is_null() {
        return Err(invalid("NULL where a text must be"));
    }
    // SAFETY: the caller says that it ends with a 0 and stays.
    Ok(OsStr::from_bytes(unsafe { CStr::from_ptr(text) }.to_bytes()))
}

/// The name of a branch or snapshot at `name`.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn name<'a>(name: *const c_char) -> io::Result<&'a str> {
    // SAFETY: the caller says what it asks for.
    unsafe { text(name) }?.to_str().ok_or_else(|| invalid("the name is not UTF-8"))
}

/// As [`name`]; NULL is none.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn name_or_none<'a>(text: *const c_char) -> io::Result<Option<&'a str>> {
    match text.is_null() {
        true => Ok(None),
        // SAFETY: the caller says what it asks for.
        false => unsafe { name(text) }.map(Some),
    }
}

/// The bytes that a caller has at `bytes`.
///
/// # Safety
/// They are there, are initialised and stay as they are during the call, or `len` is 0.
pub(crate) unsafe fn bytes<'a>(bytes: *const c_void, len: usize) -> io::Result<&'a [u8]> {
    match (bytes.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(invalid("NULL where bytes must be")),
        (_, len) if isize::try_from(len).is_err() => Err(invalid("more bytes than there can be")),
        // SAFETY: the caller says that they are there, and they are no more than there can be.
        _ => Ok(unsafe { std::slice::from_raw_parts(bytes.cast(), len) }),
    }
}

/// The place that a caller has for `len` bytes at `place`. It is filled with zeros first, since a reference must not lead to memory
/// that was never written; so `len` is no more than can be answered, however large the caller's place is.
///
/// # Safety
/// It is there, and no other thread uses it during the call, or `len` is 0.
pub(crate) unsafe fn place<'a>(place: *mut c_void, len: usize) -> io::Result<&'a mut [u8]> {
    match (place.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(invalid("NULL where a place for bytes must be")),
        (_, len) if isize::try_from(len).is_err() => Err(invalid("more bytes than there can be")),
        // SAFETY: the caller says that it is there and its own, it is no more than there can be, and every byte of it is
        // written before it is looked at.
        _ => Ok(unsafe {
            let place = place.cast::<u8>();
            place.write_bytes(0, len);
            std::slice::from_raw_parts_mut(place, len)
        }),
    }
}

/// Puts `value` where the caller wants it.
///
/// # Safety
/// `place` is NULL, or no other thread uses it during the call.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) -> io::Result<()> {
    if place.is_null() {
        return Err(invalid("NULL where a place for an answer must be"));
    }
    // SAFETY: the caller says that it may be written, and what was there has nothing to drop.
    unsafe { place.write(value) };
    Ok(())
}

/// What a handle of C leads to.
pub(crate) trait Handle {
    /// The root of the volume that it belongs to.
    fn root(&self) -> &Dir;
}

/// A handle during a call. A panic under way stops its volume: what it was about may be half done (P7).
pub(crate) struct InCall<'a, T: Handle>(&'a T);

impl<T: Handle> Deref for InCall<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0
    }
}

impl<T: Handle> Drop for InCall<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.root().stop_volume("a call of a program has panicked");
        }
    }
}

/// The handle at `handle`.
///
/// # Safety
/// It is NULL, or one that this library has made and that is not closed before the call ends.
pub(crate) unsafe fn handle<'a, T: Handle>(handle: *const T) -> io::Result<InCall<'a, T>> {
    // SAFETY: the caller says that it is NULL or alive, and handles are only shared: all that changes in them is behind locks.
    unsafe { handle.as_ref() }.map(InCall).ok_or_else(|| invalid("NULL where a handle must be"))
}

/// Takes the handle at `handle` back to be dropped; `None` for NULL.
///
/// # Safety
/// As [`handle`], and no thread uses it any more.
pub(crate) unsafe fn take<T>(handle: *mut T) -> Option<Box<T>> {
    // SAFETY: the caller says that it comes from `made`, which has it from a box, and that it has no other holder.
    (!handle.is_null()).then(|| unsafe { Box::from_raw(handle) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errno() -> i32 {
        io::Error::last_os_error().raw_os_error().unwrap()
    }

    fn sentence() -> String {
        // SAFETY: the sentence ends with a 0 and stays until this thread fails again.
        unsafe { CStr::from_ptr(holdfast_error()) }.to_str().unwrap().to_string()
    }

    #[test]
    fn a_panic_is_an_error_and_stops_the_volume() {
        let volume = crate::holdfast_volume::memory();
        let root = volume.root().clone();
        let said = call(-1, || -> io::Result<i32> {
            // SAFETY: the volume lives longer than the call.
            let volume = unsafe { handle(&volume) }?;
            volume.root().write("/f", "x")?;
            panic!("as the test wants");
        });
        assert_eq!((said, errno()), (-1, libc::EIO));
        assert!(sentence().contains("mistake in the library"), "{}", sentence());
        assert!(root.write("/g", "x").is_err(), "it has stopped");
        assert_eq!(root.read("/f").unwrap(), b"x");
    }

    #[test]
    fn what_panics_when_it_is_dropped_does_not_get_out_either() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("once more");
            }
        }
        assert_eq!(done(|| std::panic::panic_any(Bomb)), -1);
    }

    #[test]
    fn failures_have_the_number_of_their_kind_and_a_sentence() {
        let busy = io::Error::new(io::ErrorKind::ResourceBusy, "in use by\0 process 1");
        assert_eq!(done(|| Err(busy)), -1);
        assert_eq!((errno(), sentence().as_str()), (libc::EBUSY, "in use by? process 1"));
        for (kind, number) in [
            (io::ErrorKind::NotFound, libc::ENOENT),
            (io::ErrorKind::InvalidData, libc::EUCLEAN),
            (io::ErrorKind::QuotaExceeded, libc::EDQUOT),
            (io::ErrorKind::UnexpectedEof, libc::EIO),
        ] {
            assert_eq!((done(|| Err(kind.into())), errno()), (-1, number));
        }
        assert_eq!(done(|| Err(io::Error::from_raw_os_error(libc::ENOTDIR))), -1);
        assert_eq!(errno(), libc::ENOTDIR);
    }
}
