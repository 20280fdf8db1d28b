//! How a command ends: an exit code, and one sentence if it failed.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

pub use holdfast_base::show::printable;
use holdfast_control::{Nonsense, NotText};
use rustix::io::Errno;
use serde_json::{Value, json};

/// The exit code of what was read of a damaged volume whose last state is not whole.
pub const NOT_WHOLE: u8 = 4;

/// What is said of a volume that is read although something is missing.
pub fn not_whole(missing: &str) -> String {
    format!("its last state is not whole: {missing}; `holdfast fsck -n` says what is lost")
}

/// A path, as a terminal may see it.
pub fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

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
    pub hint: Option<String>,
    /// What it comes from: who prints it may know more of that.
    pub cause: Option<Cause>,
}

/// A system call that failed.
#[derive(Debug)]
pub struct Cause {
    /// What it was about, mostly a path.
    pub what: PathBuf,
    /// The number of the error.
    pub errno: i32,
}

/// The result of a command: its exit code.
pub type Outcome = Result<u8, Failure>;

impl Failure {
    /// Ends with `code` and says `sentence`.
    pub fn new(code: u8, sentence: impl Into<String>) -> Failure {
        Failure { code, sentence: sentence.into(), hint: None, cause: None }
    }

    /// `what: error`, with code 1.
    pub fn of(what: impl Display, error: &io::Error) -> Failure {
        let what = what.to_string();
        let sentence = format!("{what}: {}", plain_words(error));
        let cause = error.raw_os_error().map(|errno| Cause { what: what.into(), errno });
        Failure { cause, ..Failure::plain(sentence) }
    }

    /// The ordinary failure of commands without codes of their own.
    pub fn plain(sentence: impl Into<String>) -> Failure {
        Failure::new(1, sentence)
    }

    /// Adds the command that helps to the sentence. Names that strangers chose must not get here: programs may run it.
    fn with_hint(mut self, command: impl Into<String>) -> Failure {
        let command = command.into();
        self.sentence = format!("{}{HINT}{command}", self.sentence);
        self.hint = Some(command);
        self
    }

    /// Adds the command that helps to the sentence, one about a path, as a shell takes it. What has no text, or would give orders to a terminal, is
    /// shown and no hint.
    pub fn with_hint_about(self, command: &str, path: &Path) -> Failure {
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
    pub fn object(&self) -> Value {
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
    ///
    /// # Errors
    /// That.
    fn context(self, what: impl Display) -> Result<T, Failure>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, what: impl Display) -> Result<T, Failure> {
        self.map_err(|error| Failure::of(what, &error))
    }
}

/// What is said of a copy that comes without some attributes.
pub fn left_out(names: &[String]) -> io::Error {
    let names = names.join(", ");
    io::Error::other(format!("is copied without {names}, which cannot be set there"))
}

/// `what: error`.
pub(crate) fn sentence(what: impl Display, error: &io::Error) -> String {
    Failure::of(what, error).sentence
}

/// An error without the number that Rust appends, which people cannot use.
pub fn plain_words(error: &io::Error) -> String {
    without_number(&error.to_string())
}

/// The same of what a volume answers: the quota is the limit of its branch.
pub fn words_of_volume(error: &io::Error) -> String {
    match error.raw_os_error() == Some(Errno::DQUOT.raw_os_error()) {
        true => "the branch has reached its limit; see `holdfast branch limit`".into(),
        false => plain_words(error),
    }
}

/// The same for a sentence that has such errors in it.
pub fn without_number(words: &str) -> String {
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

/// Printing may fail because the reader has gone (`| head`): that is no failure of ours.
///
/// # Errors
/// It has failed, or the reader has gone: then nothing is said, and the exit code is 0.
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
