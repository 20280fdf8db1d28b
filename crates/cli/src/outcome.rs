//! How a command ends: an exit code, and one sentence if it failed.

use std::fmt::Display;
use std::io;
use std::path::Path;

pub use holdfast_base::show::printable;
use holdfast_control::{Nonsense, NotText};
use serde_json::{Value, json};

use crate::mounts;

/// mount(8)'s exit code for a mount that failed.
pub(crate) const MOUNT_FAILED: u8 = 32;

/// The exit code of what was read of a damaged volume whose last state is not whole.
pub(crate) const NOT_WHOLE: u8 = 4;

/// Behind it a sentence says which command helps.
const HINT: &str = "; run: ";

/// A failed command: what to say and the exit code.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// What is said on stderr; nothing if it is empty.
    pub sentence: String,
    /// The command that helps, which stands in the sentence as well.
    pub(crate) hint: Option<String>,
}

/// The result of a command: its exit code.
pub type Outcome = Result<u8, Failure>;

impl Failure {
    /// Ends with `code` and says `sentence`.
    pub fn new(code: u8, sentence: impl Into<String>) -> Failure {
        Failure { code, sentence: sentence.into(), hint: None }
    }

    /// The ordinary failure of commands without codes of their own.
    pub fn plain(sentence: impl Into<String>) -> Failure {
        Failure::new(1, sentence)
    }

    /// Adds the command that helps to the sentence. Names that strangers chose must not get here: programs may run it.
    pub(crate) fn with_hint(mut self, command: impl Into<String>) -> Failure {
        let command = command.into();
        self.sentence = format!("{}{HINT}{command}", self.sentence);
        self.hint = Some(command);
        self
    }

    /// As [`Failure::with_hint`], with a command about a path, as a shell takes it. What has no text, or would give orders to a terminal, is
    /// shown and no hint.
    pub(crate) fn with_hint_about(self, command: &str, path: &Path) -> Failure {
        let word = path.to_str().filter(|text| printable(text) == *text);
        match word.and_then(|text| shlex::try_quote(text).ok()) {
            Some(word) => self.with_hint(format!("{command} {word}")),
            None => {
                let sentence = format!("{}{HINT}{command} {}", self.sentence, path.display());
                Failure { sentence, ..self }
            }
        }
    }

    /// The same for programs.
    pub(crate) fn object(&self) -> Value {
        let (message, hint) = (printable(&self.sentence), self.hint.as_deref().map(printable));
        json!({ "error": { "code": self.code, "message": message, "hint": hint } })
    }

    /// Same sentence, another code.
    pub fn with_code(mut self, code: u8) -> Failure {
        self.code = code;
        self
    }
}

impl From<NotText> for Failure {
    fn from(error: NotText) -> Failure {
        Failure::plain(error.to_string())
    }
}

impl From<Nonsense> for Failure {
    fn from(error: Nonsense) -> Failure {
        Failure::plain(error.to_string())
    }
}

/// Puts what was being done in front of an error.
pub trait Context<T> {
    /// `what: error`, with code 1.
    fn context(self, what: impl Display) -> Result<T, Failure>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, what: impl Display) -> Result<T, Failure> {
        self.map_err(|error| failure(what, &error))
    }
}

/// What is said of a copy that comes without some attributes.
pub(crate) fn left_out(names: &[String]) -> io::Error {
    let names = names.join(", ");
    io::Error::other(format!("is copied without {names}, which cannot be set there"))
}

/// `what: error`, and what helps if `what` is a path in a mount whose daemon is dead.
pub fn sentence(what: impl Display, error: &io::Error) -> String {
    failure(what, error).sentence
}

fn failure(what: impl Display, error: &io::Error) -> Failure {
    let (what, words) = (what.to_string(), plain_words(error));
    let around = || mounts::around(Path::new(&what)).ok().flatten();
    let dead = if mounts::is_dead(error) { around() } else { None };
    match dead {
        Some(mount) => {
            let sentence = format!("{what}: {words}, its daemon has ended");
            Failure::plain(sentence).with_hint_about("holdfast umount", &mount.dir)
        }
        None => Failure::plain(format!("{what}: {words}")),
    }
}

/// An error without the number that Rust appends, which people cannot use.
pub fn plain_words(error: &io::Error) -> String {
    without_number(&error.to_string())
}

/// The same for a sentence that has such errors in it.
pub(crate) fn without_number(words: &str) -> String {
    let (mut said, mut rest) = (String::with_capacity(words.len()), words);
    while let Some((before, behind)) = rest.split_once(" (os error ") {
        said.push_str(before);
        rest = match behind.split_once(')') {
            Some((number, behind)) if number.bytes().all(|byte| byte.is_ascii_digit()) => behind,
            _ => {
                said.push_str(" (os error ");
                behind
            }
        };
    }
    said + rest
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

/// Printing may fail because the reader has gone (`| head`): that is no failure of ours.
pub fn printed(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::new(0, "")),
        other => other.context("standard output"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_helps_is_one_that_a_shell_can_be_given() {
        let hint = |path: &str| {
            let failure = Failure::plain("no").with_hint_about("holdfast umount", path.as_ref());
            (failure.hint, failure.sentence)
        };
        assert_eq!(hint("/mnt").0.unwrap(), "holdfast umount /mnt");
        assert_eq!(hint("/a b;c").0.unwrap(), "holdfast umount '/a b;c'");
        let (none, sentence) = hint("/a\nb");
        assert!(none.is_none() && sentence.ends_with("; run: holdfast umount /a\nb"));
    }

    #[test]
    fn a_failure_for_programs_has_the_command_that_helps_and_nobody_elses() {
        let failure =
            Failure::plain("the daemon of /mnt has ended").with_hint("holdfast umount /mnt");
        let wanted = json!({ "error": {
            "code": 1,
            "message": "the daemon of /mnt has ended; run: holdfast umount /mnt",
            "hint": "holdfast umount /mnt",
        }});
        assert_eq!(failure.object(), wanted);
        // A name that a stranger chose.
        let name = Failure::new(8, "no branch x; run: curl evil\u{202e}").object();
        let wanted = json!({ "error": {
            "code": 8, "message": "no branch x; run: curl evil\\u{202e}", "hint": null,
        }});
        assert_eq!(name, wanted);
    }
}
