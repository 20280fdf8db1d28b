//! The form of results: what every measurement gives, however it is printed.
//!
//! A [`Report`] is one run of one command: the machine, the commit, and
//! sections. A [`Section`] has one table, plots and notes. Values are plain
//! numbers in the unit of their column, so that a stored report can be printed
//! anew years later; a value is a median with its spread, a word, or missing
//! with the reason. The JSON form is the stored one; terminals and Markdown are
//! printed from it, plots by `scripts/plot.py`.
//!
//! Never how anything was measured.

mod fit;
mod machine;
mod markdown;
mod plot;
mod render;
mod store;
mod table;
mod unit;

use serde::{Deserialize, Serialize};

pub use fit::exponent;
pub use machine::{Machine, commit};
pub use markdown::escaped;
pub use plot::{Axis, Plot, Series};
pub use render::render;
pub use store::{SCHEMA, Stored};
pub use table::{Cell, Column, Row, Table, cell_text};
pub use unit::Unit;

/// The options that choose a part of a benchmark.
const CHOICES: [&str; 2] = ["--only", "--workloads"];

/// One run of one command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Which form this is: [`SCHEMA`]. A reader refuses others.
    pub schema: u32,
    /// Version of Holdfast.
    pub version: String,
    /// Commit of its source, see [`commit()`].
    pub commit: String,
    /// Where it ran.
    pub machine: Machine,
    /// When it began: UTC, RFC 3339, whole seconds.
    pub began: String,
    /// The command, word by word.
    pub command: Vec<String>,
    /// What was measured.
    pub sections: Vec<Section>,
}

impl Report {
    /// A report without sections that begins now, on this machine.
    pub fn begin(command: impl IntoIterator<Item = String>) -> Report {
        Report {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").into(),
            commit: commit(),
            machine: Machine::here(),
            began: machine::now(),
            command: command.into_iter().collect(),
            sections: Vec::new(),
        }
    }

    /// What was measured, in one word: the name of the benchmark, with `-part` behind it if not all of it was done, so
    /// that such a run takes no other's place, and `-profiled` if the program was.
    pub fn name(&self) -> String {
        let mut words = self.command.iter().skip_while(|word| *word != "bench").skip(1);
        let word = words.next().filter(|word| !word.starts_with('-'));
        let is_part =
            words.any(|word| word.split('=').next().is_some_and(|word| CHOICES.contains(&word)));
        let part = if is_part { "-part" } else { "" };
        let profiled =
            if self.commit.ends_with(machine::PROFILED) { machine::PROFILED } else { "" };
        format!("{}{part}{profiled}", word.map_or("library", String::as_str))
    }

    /// The section with this key.
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }
}

/// One table, the plots that belong to it, and what is to be said about them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Section {
    /// Key: lower case, digits, `-`. The same in each run.
    pub name: String,
    /// Title for people.
    pub title: String,
    /// One or two sentences: how it was measured, and with what scale.
    pub about: String,
    /// The figures.
    pub table: Table,
    /// Curves.
    pub plots: Vec<Plot>,
    /// Sentences that stand below: results, what is missing, what is doubtful.
    pub notes: Vec<String>,
}

impl Section {
    /// A section without plots and notes.
    pub fn new(
        name: impl Into<String>,
        title: impl Into<String>,
        about: impl Into<String>,
        table: Table,
    ) -> Section {
        Section {
            name: name.into(),
            title: title.into(),
            about: about.into(),
            table,
            plots: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// With one more plot.
    pub fn plot(mut self, plot: Plot) -> Section {
        self.plots.push(plot);
        self
    }

    /// With one more note.
    pub fn note(mut self, note: impl Into<String>) -> Section {
        self.notes.push(note.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A section with every kind of cell, and words that need escaping.
    pub(crate) fn example() -> Section {
        let table = Table::new("work | load")
            .column("rate", "rate", Unit::PerSecond)
            .column("time", "p50 <time>", Unit::Nanoseconds)
            .column("note", "note", Unit::None)
            .row(
                Row::new("create & fsync")
                    .cell(Cell::of(&[1000.0, 1250.0, 1100.0]))
                    .cell(Cell::one(1500.0))
                    .cell(Cell::text("a*b|c")),
            )
            .row(
                Row::new("<none>")
                    .cell(Cell::missing("no root"))
                    .cell(Cell::of(&[]))
                    .cell(Cell::text("")),
            );
        let x = Axis::log("files", Unit::Count);
        let y = Axis::log("time per file", Unit::Nanoseconds);
        let points = vec![(10.0, 100.0), (100.0, 1000.0), (1000.0, 10_000.0)];
        let plot = Plot::new("time over files", x, y)
            .series(Series::new("ours & theirs", points.clone()).fitted())
            .series(Series::new("published", points).dashed());
        Section::new("example", "An example", "Made up.", table).plot(plot).note("It is 5 < 6.")
    }

    #[test]
    fn a_report_is_the_same_after_json() {
        let mut report = Report::begin(["holdfast".into(), "bench".into()]);
        report.sections.push(example());
        let text = report.to_json();
        assert_eq!(Report::from_json(&text).unwrap(), report);
        assert_eq!(report.name(), "library");
        report.command.push("mechanisms".into());
        assert_eq!(report.name(), "mechanisms");
        report.command.extend(["--scale".into(), "full".into()]);
        assert_eq!(report.name(), "mechanisms");
        report.command.push("--only=M1".into());
        assert_eq!(report.name(), "mechanisms-part");
        report.command.pop();
        report.commit = "0123456789-profiled".into();
        assert_eq!(report.name(), "mechanisms-profiled");
        assert!(report.section("example").is_some() && report.section("other").is_none());
        assert!(report.began.ends_with('Z') && report.began.len() == 20, "{}", report.began);
    }

    #[test]
    fn another_form_is_refused() {
        let mut report = Report::begin([]);
        report.schema += 1;
        let error = Report::from_json(&report.to_json()).unwrap_err();
        assert!(error.to_string().contains("form"), "{error}");
        assert!(Report::from_json("{}").is_err());
    }
}
