//! How measurements are printed: tables for people, JSON lines for programs.
//!
//! Progress goes to stderr, and only to a terminal, so that the output
//! is the same wherever it goes.

use std::io::{self, IsTerminal, Write};

use comfy_table::{CellAlignment, Table};
use serde::Serialize;

use crate::outcome::{Failure, printed};

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
