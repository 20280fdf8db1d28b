//! The value of an option, read.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use holdfast::Dirty;
use holdfast_service::size;

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
