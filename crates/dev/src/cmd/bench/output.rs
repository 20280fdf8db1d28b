//! How measurements are printed: tables for people, JSON lines for programs.
//!
//! Progress goes to stderr, and only to a terminal, so that the output
//! is the same wherever it goes.

use std::io::{self, IsTerminal, Write};
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use comfy_table::{CellAlignment, Table};
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_sizes_are_three() {
        assert_eq!(node_size("16k"), Ok(16384));
        assert!(node_size("8k").is_err());
    }
}
