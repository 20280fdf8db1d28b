//! How measurements are printed: tables for people, JSON lines for programs.
//!
//! Progress goes to stderr, and only when somebody looks, so that the output
//! is the same wherever it goes.

use std::io::{self, IsTerminal, Write};
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use comfy_table::{CellAlignment, Table};
use holdfast::Dirty;
use serde::Serialize;

use crate::outcome::{Failure, printed};
use crate::size;

/// A table whose columns are numbers, except the first ones.
pub(crate) fn table(header: &[&str], words: usize) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(header);
    for column in table.column_iter_mut().skip(words) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Prints `what` and a line end.
pub(crate) fn line(what: impl std::fmt::Display) -> Result<(), Failure> {
    printed(writeln!(io::stdout().lock(), "{what}"))
}

/// One JSON object per row, on one line.
pub(crate) fn json<T: Serialize>(rows: &[T]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    rows.iter().try_for_each(|row| {
        let text = serde_json::to_string(row).map_err(io::Error::other);
        printed(text.and_then(|text| writeln!(out, "{text}")))
    })
}

/// Says what has been done so far.
pub(crate) fn progress(what: impl std::fmt::Display) {
    let mut err = io::stderr().lock();
    if err.is_terminal() {
        let _ = writeln!(err, "{what}");
    }
}

/// `1.23`, or nothing where there is no ratio.
pub(crate) fn ratio(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.2}"))
}

/// Nanoseconds with a unit that suits them.
pub(crate) fn time(nanos: f64) -> String {
    match nanos {
        n if n < 1e3 => format!("{n:.0} ns"),
        n if n < 1e6 => format!("{:.1} us", n / 1e3),
        n if n < 1e9 => format!("{:.2} ms", n / 1e6),
        n => format!("{:.2} s", n / 1e9),
    }
}

/// A size that fits memory.
pub(crate) fn bytes(text: &str) -> Result<usize, String> {
    usize::try_from(size::parse(text)?).map_err(|_| format!("{text} is too large"))
}

/// The sizes that mkfs offers.
pub(crate) fn node_size(text: &str) -> Result<usize, String> {
    match bytes(text)? {
        size @ (4096 | 16384 | 65536) => Ok(size),
        _ => Err(format!("{text} is no node size; 4k, 16k and 64k are")),
    }
}

/// The positions of a switch.
pub(crate) fn position<T>(
    all: &'static [T],
    word: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T>
where
    T: Copy + FromStr<Err = String> + Send + Sync + 'static,
{
    let words = all.iter().map(move |position| word(*position));
    PossibleValuesParser::new(words).try_map(|word| word.parse())
}

/// The positions of the switch `dirty`.
pub(crate) fn dirty() -> impl TypedValueParser<Value = Dirty> {
    position(Dirty::ALL, Dirty::word)
}

/// A time in seconds, with a fraction.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    number.ok_or_else(|| format!("{text} is not a number of seconds"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_node_sizes_are_three() {
        assert_eq!(time(999.0), "999 ns");
        assert_eq!(time(1_500_000.0), "1.50 ms");
        assert_eq!(node_size("16k"), Ok(16384));
        assert!(node_size("8k").is_err());
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(seconds("-1").is_err());
        assert_eq!((ratio(None), ratio(Some(1.0))), ("-".into(), "1.00".into()));
    }
}
