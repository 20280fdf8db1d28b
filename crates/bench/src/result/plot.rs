//! Curves: axes, and series of points.

use serde::{Deserialize, Serialize};

use super::{Unit, exponent};

/// One axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// What it counts.
    pub label: String,
    /// In which unit.
    pub unit: Unit,
    /// By powers of ten (or two).
    pub log: bool,
}

impl Axis {
    /// An axis of powers.
    pub fn log(label: impl Into<String>, unit: Unit) -> Axis {
        Axis { label: label.into(), unit, log: true }
    }
}

/// Points that are joined by a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// What it is, for the legend.
    pub name: String,
    /// x and y, in the units of the axes; x goes up.
    pub points: Vec<(f64, f64)>,
    /// The fitted exponent, if it was asked for and there is one.
    pub exponent: Option<f64>,
    /// Drawn with a dashed line: published figures of others.
    #[serde(default)]
    pub dashed: bool,
}

impl Series {
    /// A series in the order of x. Points that are no numbers are left out.
    pub fn new(name: impl Into<String>, mut points: Vec<(f64, f64)>) -> Series {
        points.retain(|(x, y)| x.is_finite() && y.is_finite());
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Series { name: name.into(), points, exponent: None, dashed: false }
    }

    /// With its exponent.
    pub fn fitted(mut self) -> Series {
        self.exponent = exponent(&self.points);
        self
    }

    /// Drawn with a dashed line.
    pub fn dashed(mut self) -> Series {
        self.dashed = true;
        self
    }
}

/// One plot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plot {
    /// Title for people.
    pub title: String,
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// The curves.
    pub series: Vec<Series>,
}

impl Plot {
    /// A plot without curves.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Plot {
        Plot { title: title.into(), x, y, series: Vec::new() }
    }

    /// With one more curve; one without points is left out.
    pub fn series(mut self, series: Series) -> Plot {
        if !series.points.is_empty() {
            self.series.push(series);
        }
        self
    }
}
