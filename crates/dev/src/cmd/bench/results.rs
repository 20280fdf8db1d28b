//! What every benchmark does with its report: print its sections, and store it where it was asked to.

use std::fs::File;
use std::path::PathBuf;

use comfy_table::{Attribute, Cell as Shown, CellAlignment, Table as Grid};
use holdfast_bench::result::{Report, Section, Unit, cell_text};
use holdfast_bench::systems;

use crate::cmd::bench::output::line;
use crate::outcome::{Context, Failure, Outcome};

/// What glibc reads in the environment.
const TUNABLES: &str = "GLIBC_TUNABLES";

/// Where a report goes besides the terminal.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Results {
    /// Store the results in this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Keep them in a directory of this one, named after the date, the kernel and the commit.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

impl Results {
    /// A report that begins now, on this machine, of which it tells. From now on a signal makes everything end.
    pub(crate) fn begin(&self) -> Result<Report, Failure> {
        self.check()?;
        systems::watch().context("signals")?;
        let report = Report::begin(command());
        line(report.machine.line())?;
        line("")?;
        Ok(report)
    }

    /// Prints the sections, but for those that are only stored.
    pub(crate) fn show(&self, report: &Report, hidden: &[&str]) -> Result<(), Failure> {
        let shown = report.sections.iter().filter(|of| !hidden.contains(&of.name.as_str()));
        shown.into_iter().try_for_each(section)
    }

    /// Prints and stores `report`.
    pub(crate) fn end(&self, report: &Report, hidden: &[&str]) -> Outcome {
        self.show(report, hidden)?;
        self.store(report)?;
        Ok(0)
    }

    /// Finds out before hours of measuring whether the files can be made.
    fn check(&self) -> Result<(), Failure> {
        for path in self.json.iter() {
            File::options().append(true).create(true).open(path).context(path.display())?;
        }
        for dir in self.keep.iter() {
            std::fs::create_dir_all(dir).context(dir.display())?;
        }
        Ok(())
    }

    /// Stores `report` where it was asked to.
    pub(crate) fn store(&self, report: &Report) -> Result<(), Failure> {
        for path in self.json.iter() {
            report.write(path).context(path.display())?;
        }
        for dir in self.keep.iter() {
            let kept = report.keep(dir).context(dir.display())?;
            line(format_args!("kept as {}", kept.display()))?;
        }
        Ok(())
    }
}

/// The command as it is kept: without the paths of the program, of the results, and of what was there meanwhile. That it
/// was a file stays, as it makes other figures than memory, and how the C library was told to get memory.
fn command() -> Vec<String> {
    let tunables = std::env::var(TUNABLES).ok().filter(|value| !value.is_empty());
    let before = tunables.map(|value| format!("{TUNABLES}={value}"));
    before.into_iter().chain(without_paths(std::env::args().skip(1))).collect()
}

fn without_paths(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut kept = vec!["holdfast-dev".to_owned()];
    let mut words = words;
    while let Some(word) = words.next() {
        let is = |option: &&&str| word.split('=').next() == Some(**option);
        match ["--json", "--keep", "--dir", "--file", "--program"].iter().find(is) {
            Some(option) => {
                // The path is the next word, if it is not in this one.
                if !word.contains('=') {
                    drop(words.next());
                }
                if ["--file", "--program"].contains(option) {
                    kept.extend([(*option).to_owned(), "FILE".to_owned()]);
                }
            }
            None => kept.push(word),
        }
    }
    kept
}

/// Prints a section: title, how it was measured, table, notes, and the exponents of its curves.
fn section(section: &Section) -> Result<(), Failure> {
    line(format_args!("{}\n{}", section.title, section.about))?;
    line(grid(section))?;
    // Where they are not in the table already.
    let told = section.table.columns.iter().any(|column| column.key == "exponent");
    for plot in section.plots.iter().filter(|_| !told) {
        for series in &plot.series {
            if let Some(exponent) = series.exponent {
                line(format_args!(
                    "{}, {}: grows with the power {exponent:.2} of {}",
                    plot.title, series.name, plot.x.label
                ))?;
            }
        }
    }
    section.notes.iter().try_for_each(line)?;
    line("")
}

fn grid(section: &Section) -> Grid {
    let table = &section.table;
    let mut grid = Grid::new();
    grid.load_style(comfy_table::presets::NOTHING);
    let titles = table.columns.iter().map(|column| column.title.as_str());
    let bold = |title: &str| Shown::new(title).add_attribute(Attribute::Bold);
    grid.set_header(std::iter::once(table.label.as_str()).chain(titles).map(bold));
    for row in &table.rows {
        let cells = table.cells(row).map(|(column, cell)| cell_text(cell, column.unit));
        grid.add_row(std::iter::once(row.label.clone()).chain(cells));
    }
    for (at, column) in table.columns.iter().enumerate() {
        if column.unit != Unit::None
            && let Some(column) = grid.column_mut(at + 1)
        {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    grid
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_bench::result::{Cell, Row, Table};

    #[test]
    fn numbers_stand_to_the_right_with_their_units() {
        let table = Table::new("work")
            .column("rate", "rate of it", Unit::PerSecond)
            .row(Row::new("create").cell(Cell::of(&[100.0, 200.0, 150.0])));
        let text = grid(&Section::new("a", "A", "B", table)).to_string();
        let row = text.lines().last().unwrap();
        assert!(row.contains("create") && row.trim_end().ends_with("150/s ±33%"), "{text}");
    }

    #[test]
    fn what_cannot_be_stored_is_found_before() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| Results { json: Some(dir.path().join(name)), ..Results::default() };
        at("report.json").check().unwrap();
        at("report.json").store(&Report::begin([])).unwrap();
        assert!(Report::read(&dir.path().join("report.json")).is_ok());
        assert!(at("no/such/report.json").check().is_err());
    }

    #[test]
    fn kept_commands_have_no_paths_of_results() {
        let words = [
            "bench",
            "ops",
            "--json",
            "/a/b",
            "--quick",
            "--json=/c",
            "--keep",
            "d",
            "--dir",
            "/e",
            "--file",
            "/f",
            "--file=/g",
            "--program=/h",
            "x",
        ];
        let kept = without_paths(words.map(String::from).into_iter());
        let expected = "holdfast-dev bench ops --quick --file FILE --file FILE --program FILE x";
        assert_eq!(kept.join(" "), expected);
    }
}
