//! A line in the log for a request that is answered with EIO: what was asked, of which file, and why.
//!
//! The kernel and the program get a number only. Lines are bounded: a program may read a damaged file for ever.

use std::cell::RefCell;
use std::time::Duration;

use holdfast_base::InodeNo;
use holdfast_base::clock::Stopwatch;
use holdfast_posix::{FsError, Whereabouts};
use parking_lot::Mutex;

/// How long [`LINES_MAX`] lines have to do.
const WINDOW: Duration = Duration::from_secs(10);
const LINES_MAX: u32 = 16;

thread_local! {
    /// Why the request that this thread serves fails: an error becomes a number long before the request is answered.
    static WHY: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A request begins on this thread; what failed before was another one's.
pub(crate) fn begin() {
    WHY.take();
}

/// The request that this thread serves has met `error`, which becomes a number.
pub(crate) fn met(error: &FsError) {
    if error.errno() == libc::EIO {
        WHY.set(Some(error.to_string()));
    }
}

/// Why the request that this thread serves fails.
pub(crate) fn why() -> String {
    WHY.take().unwrap_or_else(|| "input/output error".into())
}

/// What was said of one mount.
#[derive(Debug, Default)]
pub(crate) struct Troubles(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    began: Option<Stopwatch>,
    said: u32,
    left_out: u64,
}

impl Troubles {
    /// `what` was asked of `inode` and fails because of `why`. `place` is asked only if there is a line.
    pub(crate) fn failed(
        &self,
        what: &str,
        inode: InodeNo,
        why: &str,
        place: impl FnOnce() -> Whereabouts,
    ) {
        let age = self.0.lock().began.map(Stopwatch::elapsed);
        let Some(left_out) = self.0.lock().admit(age) else { return };
        let called = place().of(inode);
        // Most reasons name the file themselves.
        let about = match mentions(why, &called) {
            true => String::new(),
            false => format!(" of {called}"),
        };
        let rest = match left_out {
            0 => String::new(),
            left_out => format!(" ({left_out} more failed before it)"),
        };
        tracing::error!("{what}{about} fails: {why}{rest}");
    }
}

/// Whether a reason names the inode, and not one whose number begins like its.
fn mentions(why: &str, called: &str) -> bool {
    why.match_indices(called).any(|(at, called)| {
        let before = why[..at].chars().next_back();
        let behind = why[at + called.len()..].chars().next();
        ![before, behind].into_iter().flatten().any(char::is_alphanumeric)
    })
}

impl Lines {
    /// Whether there is a line for this one; then, for how many there was none before it. `age`: of the window.
    fn admit(&mut self, age: Option<Duration>) -> Option<u64> {
        if age.is_none_or(|age| age >= WINDOW) {
            (self.began, self.said) = (Some(Stopwatch::start()), 0);
        }
        if self.said >= LINES_MAX {
            self.left_out += 1;
            return None;
        }
        self.said += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_few_and_what_has_none_is_counted() {
        let mut lines = Lines::default();
        for _ in 0..LINES_MAX {
            assert_eq!(lines.admit(lines.began.map(|_| Duration::ZERO)), Some(0));
        }
        assert_eq!(lines.admit(Some(Duration::from_secs(9))), None);
        assert_eq!(lines.admit(Some(Duration::from_secs(9))), None);
        assert_eq!(lines.admit(Some(WINDOW)), Some(2));
    }

    #[test]
    fn a_number_that_begins_like_another_one_is_another_one() {
        assert!(mentions("inode 1: a sum", "inode 1") && mentions("of inode 1", "inode 1"));
        assert!(mentions("inode 17 and inode 1", "inode 1"));
        assert!(!mentions("inode 17: a sum", "inode 1") && !mentions("a sum", "inode 1"));
        assert!(mentions("data of inode 1 (/a) is lost", "inode 1 (/a)"));
        assert!(!mentions("an orphaninode 1", "inode 1"));
    }

    #[test]
    fn the_reason_is_that_of_the_request_that_is_served() {
        met(&FsError::Io("of another request".into()));
        begin();
        met(&FsError::NotFound);
        assert_eq!(why(), "input/output error");
        met(&FsError::Io("a sum".into()));
        assert_eq!(why(), "input/output error: a sum");
    }
}
