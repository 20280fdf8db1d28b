//! Sections as Markdown tables, for the README and for reports of measurements.

use std::fmt::Write;

use super::{Cell, Section, Table, Unit, cell_text};

impl Section {
    /// Title in bold, how it was measured, table and notes. Plots have no place in it.
    pub fn to_markdown(&self) -> String {
        let mut text = format!("**{}**: {}\n\n", escaped(&self.title), escaped(&self.about));
        text.push_str(&self.table.to_markdown());
        for note in &self.notes {
            let _ = write!(text, "\n{}\n", escaped(note));
        }
        text
    }
}

impl Table {
    /// The table alone.
    pub fn to_markdown(&self) -> String {
        let mut text = String::new();
        let titles = self.columns.iter().map(|column| escaped(&column.title));
        line(&mut text, std::iter::once(escaped(&self.label)).chain(titles));
        // Numbers stand to the right, words to the left.
        let rule = |unit: Unit| if unit == Unit::None { "---" } else { "---:" };
        let rules = self.columns.iter().map(|column| rule(column.unit).to_owned());
        line(&mut text, std::iter::once("---".to_owned()).chain(rules));
        for row in &self.rows {
            let cells = self.cells(row).map(|(column, cell)| match cell {
                Cell::Missing { why } if why.is_empty() => String::new(),
                cell => escaped(&cell_text(cell, column.unit)),
            });
            line(&mut text, std::iter::once(escaped(&row.label)).chain(cells));
        }
        text
    }
}

fn line(text: &mut String, cells: impl Iterator<Item = String>) {
    text.push('|');
    for cell in cells {
        let _ = write!(text, " {cell} |");
    }
    text.push('\n');
}

/// `text` with nothing in it that Markdown would take for its own: the same words, on one line.
pub fn escaped(text: &str) -> String {
    let part = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let mut out = String::new();
    let mut before = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            '\n' | '\r' => out.push(' '),
            '\\' | '|' | '*' | '`' | '[' | ']' => {
                out.push('\\');
                out.push(c);
            }
            // Inside a word it is nothing special: `rename_log`.
            '_' if !(part(before) && part(chars.peek().copied())) => out.push_str("\\_"),
            c => out.push(c),
        }
        before = Some(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::tests::example;

    #[test]
    fn tables_are_escaped_and_aligned() {
        let text = example().to_markdown();
        let expected = "\
**An example**: Made up.

| work \\| load | rate | p50 &lt;time> | note |
| --- | ---: | ---: | --- |
| create &amp; fsync | 1,100/s ±14% | 1.50 µs | a\\*b\\|c |
| &lt;none> | - (no root) |  |  |

It is 5 &lt; 6.
";
        assert_eq!(text, expected);
    }

    #[test]
    fn words_keep_their_underscores() {
        assert_eq!(escaped("rename_log=_a_"), "rename_log=\\_a\\_");
        assert_eq!(escaped("two\nlines"), "two lines");
    }
}
