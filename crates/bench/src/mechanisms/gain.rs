//! What each mechanism gains here, beside what was published: the last lines of a run.

use super::{Mechanism, Place};
use crate::result::{Cell, Row, Section, Table, Unit};

/// One gain.
#[derive(Clone, Debug)]
pub struct Gain {
    /// Of which mechanism.
    pub mechanism: Mechanism,
    /// Measured where.
    pub place: Place,
    /// What is compared.
    pub what: String,
    /// Ours; `None` if a side was not measured.
    pub ours: Option<f64>,
    /// The authors'.
    pub published: f64,
    /// What we set out for.
    pub aim: f64,
    /// In which unit.
    pub unit: Unit,
}

impl Gain {
    /// Whether the aim is reached. All gains are better the larger they are.
    pub fn is_reached(&self) -> bool {
        self.ours.is_some_and(|ours| ours >= self.aim)
    }

    /// `reached` or not, in one word.
    pub fn verdict(&self) -> &'static str {
        match self.ours {
            None => "not measured",
            Some(_) if self.is_reached() => "reached",
            Some(_) => "MISSED",
        }
    }

    /// One line for people.
    pub fn line(&self) -> String {
        let ours = self.ours.map_or("-".into(), |ours| self.unit.show(ours));
        format!(
            "{} {}, {}: {ours}; published {}; aim {}: {}",
            self.mechanism.word(),
            self.place.word(),
            self.what,
            self.unit.show(self.published),
            self.unit.show(self.aim),
            self.verdict()
        )
    }
}

/// All of them as a section, which stands first in a report.
pub fn section(gains: &[Gain]) -> Section {
    let mut table = Table::new("mechanism")
        .column("what", "what is compared", Unit::None)
        .column("ours", "here", Unit::None)
        .column("published", "published", Unit::None)
        .column("aim", "aim", Unit::None)
        .column("verdict", "aim is", Unit::None);
    for gain in gains {
        let text = |value: f64| Cell::text(gain.unit.show(value));
        table.push(
            Row::new(format!("{} {}", gain.mechanism.word(), gain.place.word()))
                .cell(Cell::text(gain.what.clone()))
                .cell(gain.ours.map_or(Cell::missing(""), text))
                .cell(text(gain.published))
                .cell(text(gain.aim))
                .cell(Cell::text(gain.verdict())),
        );
    }
    let about = "What each mechanism gains over what was done before it, in one program by a switch, and what its \
                 authors published of theirs. Rounds of both positions are interleaved.";
    Section::new("gains", "Five mechanisms, before and after", about, table)
}
