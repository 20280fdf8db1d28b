//! Statistics of all mounts for machines: text that Prometheus and others read, printed once or
//! served to scrapers.
//!
//! `collect` asks the mounts, `families` says what of their reports is published and under which names, `serve` answers
//! HTTP. What programs did is told for each mount; what the engine and the device did for each volume, whose mounts share
//! them.

mod collect;
mod families;
pub mod serve;

pub use self::collect::{Sample, all, of};
use self::families::Families;

/// How statistics are written for machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextForm {
    /// OpenMetrics 1.0: what scrapers ask for that know it.
    OpenMetrics,
    /// The older text of Prometheus: what tools read that take files.
    Prometheus,
}

/// The text for these mounts.
pub fn text(samples: Vec<Sample>, form: TextForm) -> String {
    Families::new(samples).text(form)
}
