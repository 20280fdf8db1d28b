//! How a command ends, as a person and a program are told.

use std::fmt::Display;
use std::io;
use std::path::Path;

pub use holdfast_service::outcome::{Context, Failure, Outcome, plain_words, printable, printed};

use crate::mounts;

/// mount(8)'s exit code for a mount that failed.
pub(crate) const MOUNT_FAILED: u8 = 32;

/// With what helps, if it was met in a mount whose daemon is dead.
pub(crate) fn with_help(failure: Failure) -> Failure {
    let cause = failure.cause.as_ref().filter(|cause| {
        failure.hint.is_none() && mounts::is_dead(&io::Error::from_raw_os_error(cause.errno))
    });
    match cause.and_then(|cause| mounts::around(&cause.what).ok().flatten()) {
        Some(mount) => {
            let sentence = format!("{}, its daemon has ended", failure.sentence);
            Failure { sentence, ..failure }.with_hint_about("holdfast umount", &mount.dir)
        }
        None => failure,
    }
}

/// `what: error`, and what helps if `what` is a path in a mount whose daemon is dead.
pub fn sentence(what: impl Display, error: &io::Error) -> String {
    with_help(Failure::of(what, error)).sentence
}

/// A path, as a terminal may see it.
pub fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

/// Says `sentence` to the person, on stderr.
pub fn complain(sentence: &str) {
    say_on_stderr(&format!("holdfast: {}", printable(sentence)));
}

/// A line on stderr. A reader that cannot be told is not told: what is being done is done all the same, and the exit code is the same.
pub(crate) fn say_on_stderr(line: &str) {
    use std::io::Write;
    // In one piece, as others may write there too.
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}
