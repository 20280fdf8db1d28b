//! Each word of `-o` is looked up in the table, and sets what that says.

use super::DaemonOptions;
use super::given::Given;
use super::table::{GROUPS, IGNORED, REFUSED, Scope, Word};

/// The name of an option, and its value if one is given.
pub(super) fn parted(option: &str) -> (&str, Option<&str>) {
    option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)))
}

/// The word of this name, and how far it holds.
pub(super) fn find(name: &str) -> Option<(Scope, &'static Word)> {
    let rows = GROUPS.iter().flat_map(|group| group.rows);
    let mut words =
        rows.flat_map(|row| row.words.iter().chain(row.also).map(move |it| (row.scope, it)));
    words.find(|(_, word)| word.name == name)
}

/// What is said of a word whose absence would be missed.
fn refused(name: &str) -> Option<&'static str> {
    let found = REFUSED.iter().find(|(words, _)| words.split(' ').any(|it| it == name));
    found.map(|(_, why)| *why)
}

/// Whether a word is known and means nothing here.
fn is_ignored(name: &str) -> bool {
    name.is_empty()
        || name.starts_with("x-")
        || name.starts_with("X-")
        || IGNORED.iter().any(|words| words.split(' ').any(|it| it == name))
}

impl DaemonOptions {
    /// Sets one option of a list.
    ///
    /// # Errors
    /// It is unknown, would be missed, or its value is wrong.
    pub fn set(&mut self, option: &str) -> Result<(), String> {
        let (name, value) = parted(option);
        let Some((_, word)) = find(name) else {
            return match refused(name) {
                Some(why) => Err(format!("option {name} {why}")),
                None if is_ignored(name) => Ok(()),
                None => Err(format!(
                    "unknown mount option {option:?}; `holdfast mount --help` lists them"
                )),
            };
        };
        match value.or(word.form.is_empty().then_some("")) {
            Some(value) => (word.set)(self, &Given { option, value }),
            None => Err(format!("option {name} needs a value: {name}=...")),
        }
    }
}
