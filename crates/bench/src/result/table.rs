//! Tables: columns with units, rows with cells, and what a cell may be.

use serde::{Deserialize, Serialize};

use super::Unit;
use crate::counts::median;

/// Rows under columns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// What the labels of the rows are.
    pub label: String,
    /// One for each cell of a row; the label has none.
    pub columns: Vec<Column>,
    /// From top to bottom.
    pub rows: Vec<Row>,
}

impl Table {
    /// A table without columns, whose rows are called by what `label` says.
    pub fn new(label: impl Into<String>) -> Table {
        Table { label: label.into(), columns: Vec::new(), rows: Vec::new() }
    }

    /// With one more column.
    pub fn column(mut self, key: impl Into<String>, title: impl Into<String>, unit: Unit) -> Table {
        self.columns.push(Column { key: key.into(), title: title.into(), unit });
        self
    }

    /// With one more row.
    pub fn row(mut self, row: Row) -> Table {
        self.push(row);
        self
    }

    /// Adds a row. What it has too few of is missing without a reason.
    pub fn push(&mut self, mut row: Row) {
        debug_assert!(row.cells.len() <= self.columns.len(), "too many cells: {row:?}");
        row.cells.resize(self.columns.len(), Cell::missing(""));
        self.rows.push(row);
    }

    /// The cell of the row called `label` under the column `key`.
    pub fn cell(&self, label: &str, key: &str) -> Option<&Cell> {
        let at = self.columns.iter().position(|column| column.key == key)?;
        self.rows.iter().find(|row| row.label == label)?.cells.get(at)
    }

    /// The table with these columns and rows only, in this order. The first name that it has not is the error.
    pub fn only(&self, columns: &[&str], rows: &[&str]) -> Result<Table, String> {
        let mut table = Table::new(self.label.clone());
        let mut from = Vec::new();
        for key in columns {
            let at = self.columns.iter().position(|column| column.key == *key);
            let at = at.ok_or_else(|| format!("no column {key:?}"))?;
            table.columns.push(self.columns[at].clone());
            from.push(at);
        }
        for label in rows {
            let row = self.rows.iter().find(|row| row.label == *label);
            let row = row.ok_or_else(|| format!("no row {label:?}"))?;
            let cells = from.iter().map(|at| row.cells[*at].clone()).collect();
            table.rows.push(Row { label: row.label.clone(), cells });
        }
        Ok(table)
    }

    /// The cells with the columns that they stand under.
    pub fn cells<'a>(&'a self, row: &'a Row) -> impl Iterator<Item = (&'a Column, &'a Cell)> {
        self.columns.iter().zip(&row.cells)
    }
}

/// What the cells below have in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// Key, the same in each run.
    pub key: String,
    /// Title for people.
    pub title: String,
    /// Unit of the numbers.
    pub unit: Unit,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What it is about.
    pub label: String,
    /// In the order of the columns.
    pub cells: Vec<Cell>,
}

impl Row {
    /// A row without cells.
    pub fn new(label: impl Into<String>) -> Row {
        Row { label: label.into(), cells: Vec::new() }
    }

    /// With one more cell.
    pub fn cell(mut self, cell: Cell) -> Row {
        self.cells.push(cell);
        self
    }
}

/// One value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Cell {
    /// What rounds have in common.
    Number {
        /// The value in the middle.
        median: f64,
        /// The smallest; of ten rounds and more a tenth is left out at this end.
        low: f64,
        /// The largest, likewise.
        high: f64,
        /// How many rounds there were.
        runs: u32,
    },
    /// A word.
    Text {
        /// It.
        text: String,
    },
    /// Nothing was measured.
    Missing {
        /// Why not; empty where nothing was to be expected.
        why: String,
    },
}

impl Cell {
    /// The median and the spread of what rounds gave. Values that are no numbers are left out; if none
    /// remains, the cell is missing. Of many rounds some are always disturbed: those do not count as spread.
    pub fn of(values: &[f64]) -> Cell {
        let mut values: Vec<f64> =
            values.iter().copied().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let outside = values.len() / 10;
        let inside = &values[outside..values.len() - outside];
        let (Some(&low), Some(&high)) = (inside.first(), inside.last()) else {
            return Cell::missing("");
        };
        let runs = u32::try_from(values.len()).unwrap_or(u32::MAX);
        Cell::Number { low, high, runs, median: median(values) }
    }

    /// A value that has no rounds: a ratio of medians, a published figure, a count.
    pub fn one(value: f64) -> Cell {
        Cell::of(&[value])
    }

    /// The same for a value that may not be there.
    pub fn maybe(value: Option<f64>) -> Cell {
        value.map_or_else(|| Cell::missing(""), Cell::one)
    }

    /// A word.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell::Text { text: text.into() }
    }

    /// Nothing, because of `why`.
    pub fn missing(why: impl Into<String>) -> Cell {
        Cell::Missing { why: why.into() }
    }

    /// The median, if it is a number.
    pub fn median(&self) -> Option<f64> {
        match self {
            Cell::Number { median, .. } => Some(*median),
            Cell::Text { .. } | Cell::Missing { .. } => None,
        }
    }

    /// How far a round was from the median at most, as a share of it; of ten rounds and more, all but a few. `None` for a single round.
    pub fn spread(&self) -> Option<f64> {
        match self {
            Cell::Number { median, low, high, runs } if *runs > 1 && *median != 0.0 => {
                Some((high - median).max(median - low) / median.abs())
            }
            _ => None,
        }
    }
}

/// A cell as one line of plain text: `1,100/s ±14%`, `-` where nothing is.
pub fn cell_text(cell: &Cell, unit: Unit) -> String {
    match cell {
        Cell::Number { median, .. } => match cell.spread() {
            Some(spread) if spread >= 0.005 => {
                format!("{} ±{:.0}%", unit.show(*median), 100.0 * spread)
            }
            _ => unit.show(*median),
        },
        Cell::Text { text } => text.clone(),
        Cell::Missing { why } if why.is_empty() => "-".into(),
        Cell::Missing { why } => format!("- ({why})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_become_a_median_and_a_spread() {
        let cell = Cell::of(&[1000.0, 1250.0, f64::NAN, 1100.0]);
        let expected = Cell::Number { median: 1100.0, low: 1000.0, high: 1250.0, runs: 3 };
        assert_eq!(cell, expected);
        assert_eq!(cell_text(&cell, Unit::PerSecond), "1,100/s ±14%");
        assert_eq!(cell_text(&Cell::one(2.0), Unit::Ratio), "2.00");
        assert_eq!(Cell::one(2.0).spread(), None);
        assert_eq!(Cell::of(&[f64::NAN]), Cell::missing(""));
        let many: Vec<f64> = (1..=20).map(f64::from).collect();
        let expected = Cell::Number { median: 10.0, low: 3.0, high: 18.0, runs: 20 };
        assert_eq!(Cell::of(&many), expected);
        assert_eq!(cell_text(&Cell::missing("no root"), Unit::Count), "- (no root)");
        assert_eq!(Cell::maybe(None).median(), None);
    }

    #[test]
    fn cells_are_found_and_short_rows_are_filled() {
        let table = Table::new("work")
            .column("a", "A", Unit::Count)
            .column("b", "B", Unit::Count)
            .row(Row::new("one").cell(Cell::one(1.0)));
        assert_eq!(table.cell("one", "a").and_then(Cell::median), Some(1.0));
        assert_eq!(table.cell("one", "b"), Some(&Cell::missing("")));
        assert_eq!(table.cell("one", "c"), None);
        assert_eq!(table.cells(&table.rows[0]).count(), 2);
    }
}
