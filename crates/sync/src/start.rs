//! The one function through which threads start.
//!
//! A system may give no thread at any moment: a limit of processes, no memory for a stack. The standard library's
//! `spawn` panics then; here that is an answer, and the caller does the work with fewer threads, or
//! refuses to begin. A test can make it the answer of any start, see [`refuse`].

use std::io;
use std::panic::Location;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, Builder, JoinHandle};

/// Starts a thread with this name. The error is that of a system that gives none.
#[track_caller]
pub fn start<T: Send + 'static>(
    name: impl Into<String>,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    is_given(Location::caller())?;
    Builder::new().name(name.into()).spawn(body)
}

/// Does `work` on `threads` threads at once, the calling one among them, or on as many as the system gives. Returns when
/// all are done; a panic of one goes on in the caller.
#[track_caller]
pub fn on_threads(threads: usize, work: impl Fn() + Sync) {
    if threads <= 1 {
        return work();
    }
    let caller = Location::caller();
    thread::scope(|scope| {
        let work = &work;
        let start = || {
            is_given(caller)?;
            Builder::new().spawn_scoped(scope, work)
        };
        let others: Vec<_> = (1..threads).map_while(|_| start().ok()).collect();
        work();
        for other in others {
            other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
}

/// Starts since [`refuse`].
static ASKED: AtomicU64 = AtomicU64::new(0);
/// The first start that is refused, counted from 1, and the last.
static FIRST: AtomicU64 = AtomicU64::new(u64::MAX);
static LAST: AtomicU64 = AtomicU64::new(u64::MAX);
static REFUSED: Mutex<Vec<&'static Location<'static>>> = Mutex::new(Vec::new());

fn is_given(caller: &'static Location<'static>) -> io::Result<()> {
    let first = FIRST.load(Ordering::Relaxed);
    if first == u64::MAX {
        return Ok(());
    }
    let number = ASKED.fetch_add(1, Ordering::Relaxed) + 1;
    if number < first || number > LAST.load(Ordering::Relaxed) {
        return Ok(());
    }
    REFUSED.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(caller);
    Err(io::ErrorKind::WouldBlock.into())
}

/// For tests: from now on the `first` start of a thread in the whole program, counted from 1, is refused, as a system
/// without any left would; with `from_then_on` all later ones as well. `None`: the system alone decides.
pub fn refuse(first: Option<u64>, from_then_on: bool) {
    FIRST.store(u64::MAX, Ordering::Relaxed);
    ASKED.store(0, Ordering::Relaxed);
    REFUSED.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clear();
    if let Some(first) = first {
        LAST.store(if from_then_on { u64::MAX } else { first }, Ordering::Relaxed);
        FIRST.store(first, Ordering::Relaxed);
    }
}

/// Which places in the source have been refused a thread since [`refuse`], in their order.
pub fn refused() -> Vec<&'static Location<'static>> {
    REFUSED.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test: the switch is the program's.
    #[test]
    fn a_start_that_is_refused_is_an_answer_and_the_work_is_done_with_fewer() {
        let done = AtomicU64::new(0);
        let work = || {
            done.fetch_add(1, Ordering::Relaxed);
        };
        on_threads(3, work);
        assert_eq!(done.swap(0, Ordering::Relaxed), 3);
        refuse(Some(2), false);
        on_threads(3, work);
        assert_eq!(done.swap(0, Ordering::Relaxed), 2, "no more are asked for behind the first no");
        assert_eq!(refused().len(), 1);
        assert!(refused()[0].file().ends_with("start.rs"));
        refuse(Some(1), true);
        on_threads(3, work);
        assert_eq!(done.swap(0, Ordering::Relaxed), 1, "the caller does it alone");
        assert!(start("test", || ()).is_err());
        assert_eq!(refused().len(), 2);
        refuse(None, false);
        start("test", || ()).expect("the system has threads").join().expect("it does not panic");
        let caller = thread::current().id();
        for of_caller in [true, false] {
            let caught = std::panic::catch_unwind(|| {
                on_threads(3, || {
                    let is_caller = thread::current().id() == caller;
                    assert!(is_caller != of_caller, "as the test wants");
                });
            });
            // With its own words: the standard library's scope would say only that some thread has panicked.
            assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"as the test wants"));
        }
    }
}
