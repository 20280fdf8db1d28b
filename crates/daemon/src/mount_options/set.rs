//! What is done with each word of `-o`: looked up in the table, and its value read.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use holdfast::Dirty;
use holdfast_service::size;

use super::DaemonOptions;
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
            None => Err(format!("option {name} needs a value: {name}={}", word.form)),
        }
    }
}

/// An option as it is given. Each method reads the value; its errors name the option.
pub(super) struct Given<'a> {
    /// All of it.
    pub(super) option: &'a str,
    pub(super) value: &'a str,
}

impl Given<'_> {
    pub(super) fn is_not(&self, what: &str) -> String {
        format!("option {} is not {what}", self.option)
    }

    pub(super) fn number<T: FromStr + PartialOrd>(
        &self,
        range: RangeInclusive<T>,
        what: &str,
    ) -> Result<T, String> {
        let number = self.value.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| self.is_not(what))
    }

    /// Bytes, at most `most`.
    pub(super) fn size(&self, most: u64) -> Result<u64, String> {
        match size::parse(self.value) {
            Ok(bytes) if bytes <= most => Ok(bytes),
            Ok(_) => Err(format!("option {} is more than {}", self.option, size::show(most))),
            Err(why) => Err(format!("option {}: {why}", self.option)),
        }
    }

    /// Seconds with a fraction, more than none.
    pub(super) fn seconds(&self) -> Result<Duration, String> {
        let time = self.value.parse().ok().and_then(|it| Duration::try_from_secs_f64(it).ok());
        time.filter(|it| !it.is_zero()).ok_or_else(|| self.is_not("a number of seconds above 0"))
    }

    pub(super) fn dirty(&self) -> Result<Dirty, String> {
        self.value.parse().map_err(|why| match size::parse(self.value) {
            // What this option meant before.
            Ok(_) => format!("{why}; for a limit of memory write dirty_bytes={}", self.value),
            Err(_) => why,
        })
    }

    /// Without the quotes that keep commas together.
    pub(super) fn unquoted(&self) -> &str {
        let inner = self.value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        inner.unwrap_or(self.value)
    }
}
