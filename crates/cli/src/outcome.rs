//! How a command ends, as a person and a program are told.

use std::fmt::Display;
use std::io;

pub(crate) use holdfast_daemon::MOUNT_FAILED;
pub(crate) use holdfast_daemon::mounts::with_help;
pub use holdfast_service::outcome::{
    Context, Failure, Outcome, plain_words, printable, printed, shown, words_of_volume,
};

/// `what: error`, and what helps if `what` is a path in a mount whose daemon is dead.
pub fn sentence(what: impl Display, error: &io::Error) -> String {
    with_help(Failure::of(what, error)).sentence
}

/// Says `sentence` to the person, on stderr.
pub fn complain(sentence: &str) {
    say_on_stderr(&format!("holdfast: {}", printable(sentence)));
}

/// Does something with each, also behind one that fails; each failure is said.
///
/// # Errors
/// What all others would meet as well: a command helps, as where the daemon is dead.
pub(crate) fn each<T>(all: &[T], act: impl Fn(&T) -> Result<(), Failure>) -> Outcome {
    let mut code = 0;
    for failure in all.iter().filter_map(|one| act(one).err()) {
        let failure = with_help(failure);
        if failure.hint.is_some() {
            return Err(failure);
        }
        code = code.max(failure.code);
        complain(&failure.sentence);
    }
    Ok(code)
}

/// A line on stderr. A reader that cannot be told is not told: what is being done is done all the same, and the exit code is the same.
pub(crate) fn say_on_stderr(line: &str) {
    use std::io::Write;
    // In one piece, as others may write there too.
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}
