//! The five mechanisms, each with its switch in both positions, beside what was published of it.
//!
//! One file a mechanism: what is done, in one position, and the published sizes and figures. `compare` has what they
//! share: volumes in a position, of the library or mounted, rounds of both positions in turn, and a table of befores
//! and afters with the published ones beside them. What a position cannot do in reasonable time is left out, and the
//! report says so.

mod compare;
mod m1;
mod m2;
pub mod m3;
mod m4;
mod m5;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use holdfast_device::Device;

use crate::result::{Cell, Row, Section, Table, Unit};

pub use compare::{Bench, Volumes};

/// One of the five.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "verbatim")]
pub enum Mechanism {
    /// Group records that did not change are not written.
    M1,
    /// A rename logs its two names, not its directory.
    M2,
    /// A node remembers what changed in four ranges.
    M3,
    /// A log batch finds inodes by an index.
    M4,
    /// An fsync waits for its own data only.
    M5,
}

/// How much to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scale {
    /// Seconds: orders of magnitude.
    Quick,
    /// Minutes: sizes as published, short runs.
    Usual,
    /// Most of an hour: longer runs, more rounds.
    Full,
    /// Half an hour and more: runs as long as the published ones, where that is known.
    Published,
}

impl Scale {
    /// Bytes of the file in which volumes are made that are mounted.
    pub fn mounted_bytes(self) -> u64 {
        self.pick(256 << 20, 4 << 30, 8 << 30)
    }

    /// The value for this scale.
    pub(crate) fn pick<T>(self, quick: T, usual: T, full: T) -> T {
        match self {
            Scale::Quick => quick,
            Scale::Usual | Scale::Published => usual,
            Scale::Full => full,
        }
    }

    /// Runs of each kind.
    pub(crate) fn rounds(self) -> u64 {
        self.pick(1, 3, 5)
    }

    /// How long a run by time takes.
    pub(crate) fn time(self) -> Duration {
        Duration::from_millis(self.pick(150, 1_500, 10_000))
    }
}

/// So many runs of each kind, in words.
pub(crate) fn rounds_text(rounds: u64) -> String {
    holdfast_base::show::count(rounds, "round")
}

/// What was measured of one mechanism.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Tables and curves.
    pub sections: Vec<Section>,
    /// What it gains.
    pub gains: Vec<Gain>,
}

/// What a mechanism gains here, beside what was published.
#[derive(Clone, Debug)]
pub struct Gain {
    /// Of which mechanism, and measured where.
    place: String,
    /// What is compared.
    what: String,
    /// Ours; `None` if a side was not measured.
    ours: Option<f64>,
    /// The authors'.
    published: f64,
    /// What we set out for.
    aim: f64,
    /// In which unit.
    unit: Unit,
}

impl Gain {
    /// Whether the aim is reached, in one word. All gains are better the larger they are.
    fn verdict(&self) -> &'static str {
        match self.ours {
            None => "not measured",
            Some(ours) if ours >= self.aim => "reached",
            Some(_) => "MISSED",
        }
    }

    /// One line for people.
    pub fn line(&self) -> String {
        let Gain { place, what, ours, unit, .. } = self;
        let ours = ours.map_or("-".into(), |ours| unit.show(ours));
        let (published, aim) = (unit.show(self.published), unit.show(self.aim));
        let verdict = self.verdict();
        format!("{place}, {what}: {ours}; published {published}; aim {aim}: {verdict}")
    }
}

/// All of them as a section, which stands first in a report.
pub fn gains_section(gains: &[Gain]) -> Section {
    let mut table = Table::new("mechanism")
        .column("what", "what is compared", Unit::None)
        .column("ours", "here", Unit::None)
        .column("published", "published", Unit::None)
        .column("aim", "aim", Unit::None)
        .column("verdict", "aim is", Unit::None);
    for gain in gains {
        let text = |value: f64| Cell::text(gain.unit.show(value));
        table.push(
            Row::new(&gain.place)
                .cell(Cell::text(&gain.what))
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

/// Makes an empty device of so many bytes; the one before is no longer used.
pub type Devices<'a> = dyn FnMut(u64) -> io::Result<Arc<dyn Device>> + 'a;

/// Receives what was done so far.
pub type Progress<'a> = dyn FnMut(String) + 'a;

/// Measures `mechanism`.
pub fn run(mechanism: Mechanism, bench: &mut Bench<'_>) -> io::Result<Measured> {
    match mechanism {
        Mechanism::M1 => m1::run(bench),
        Mechanism::M2 => m2::run(bench),
        Mechanism::M3 => m3::run(bench),
        Mechanism::M4 => m4::run(bench),
        Mechanism::M5 => m5::run(bench),
    }
}
