//! Curves of several operations over one thing that grows, and the section that shows them.

use std::io;

use holdfast_base::clock::Stopwatch;
use holdfast_device::Device;

use crate::counts::median;
use crate::result::{Axis, Cell, Plot, Row, Section, Series, Table, Unit, exponent};
use crate::undo::interrupted;

/// Exponents above this are named below the table.
const FLAT: f64 = 0.15;

/// What rounds gave of one operation at one size.
#[derive(Clone, Debug, Default)]
struct Point {
    x: f64,
    /// Nanoseconds of one operation.
    nanos: Vec<f64>,
    /// Bytes that one operation brought to the device, commits behind it included.
    bytes: Vec<f64>,
}

/// Curves of one dimension.
#[derive(Clone, Debug)]
pub(super) struct Curves {
    key: &'static str,
    title: &'static str,
    x: &'static str,
    unit: Unit,
    operations: Vec<(&'static str, Vec<Point>)>,
}

impl Curves {
    /// No curve yet. `x` says what grows, in `unit`.
    pub(super) fn new(
        key: &'static str,
        title: &'static str,
        x: &'static str,
        unit: Unit,
    ) -> Curves {
        Curves { key, title, x, unit, operations: Vec::new() }
    }

    /// One round: times `work`, which does `operation` so many times at `x`, and counts what that and `behind` write
    /// to `device`.
    pub(super) fn measure<R>(
        &mut self,
        operation: &'static str,
        (x, times): (f64, u64),
        device: &dyn Device,
        work: impl FnOnce() -> io::Result<R>,
        behind: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<R> {
        interrupted()?;
        let before = device.stats().written_bytes;
        let time = Stopwatch::start();
        let done = work()?;
        let nanos = time.nanos();
        behind()?;
        let bytes = device.stats().written_bytes - before;
        let each = |value: u64| value as f64 / times.max(1) as f64;
        self.add(operation, x, each(nanos), each(bytes));
        Ok(done)
    }

    /// One round: nanoseconds and bytes of one `operation` at `x`.
    pub(super) fn add(&mut self, operation: &'static str, x: f64, nanos: f64, bytes: f64) {
        let at = self.operations.iter().position(|(name, _)| *name == operation);
        let at = at.unwrap_or_else(|| {
            self.operations.push((operation, Vec::new()));
            self.operations.len() - 1
        });
        let points = &mut self.operations[at].1;
        let known = points.iter().position(|point| point.x == x);
        let known = known.unwrap_or_else(|| {
            points.push(Point { x, ..Point::default() });
            points.len() - 1
        });
        points[known].nanos.push(nanos);
        points[known].bytes.push(bytes);
    }

    /// The table, the plots, and what is not flat.
    pub(super) fn section(self, about: &str) -> Section {
        let mut all: Vec<f64> = self
            .operations
            .iter()
            .flat_map(|(_, points)| points.iter().map(|point| point.x))
            .collect();
        all.sort_by(f64::total_cmp);
        all.dedup();
        let mut table = Table::new("operation");
        for x in &all {
            let shown = self.unit.show(*x);
            table =
                table.column(format!("time-{x}"), format!("time at {shown}"), Unit::Nanoseconds);
        }
        table = table
            .column("exponent", "power of its growth", Unit::Ratio)
            .column("bytes-first", "device bytes, smallest", Unit::Bytes)
            .column("bytes-last", "largest", Unit::Bytes)
            .column("bytes-exponent", "power of its growth", Unit::Ratio);
        let axis = || Axis::log(self.x, self.unit);
        let title = |what: &str| format!("{what} of an operation against {}", self.x);
        let mut times = Plot::new(title("Time"), axis(), Axis::log("time", Unit::Nanoseconds));
        let mut sizes = Plot::new(title("Device bytes"), axis(), Axis::log("bytes", Unit::Bytes));
        let mut grow = Vec::new();
        for (operation, points) in &self.operations {
            let line = |of: fn(&Point) -> &Vec<f64>| -> Vec<(f64, f64)> {
                points.iter().map(|point| (point.x, median(of(point).clone()))).collect()
            };
            let (time, size) = (line(|point| &point.nanos), line(|point| &point.bytes));
            let mut row = Row::new(*operation);
            for x in &all {
                let point = points.iter().find(|point| point.x == *x);
                row = row.cell(Cell::of(point.map_or(&[], |point| &point.nanos)));
            }
            let end = |point: Option<&(f64, f64)>| Cell::maybe(point.map(|(_, bytes)| *bytes));
            table.push(
                row.cell(Cell::maybe(exponent(&time)))
                    .cell(end(size.first()))
                    .cell(end(size.last()))
                    .cell(Cell::maybe(exponent(&size))),
            );
            if let Some(power) = exponent(&time).filter(|power| *power > FLAT) {
                grow.push(format!("{operation} ({power:.2})"));
            }
            times = times.series(Series::new(*operation, time).fitted());
            // A logarithm has no place for nothing.
            let size = size.into_iter().filter(|(_, bytes)| *bytes > 0.0).collect();
            sizes = sizes.series(Series::new(*operation, size).fitted());
        }
        let mut section = Section::new(self.key, self.title, about, table).plot(times);
        if !sizes.series.is_empty() {
            section = section.plot(sizes);
        }
        section.note(match grow.is_empty() {
            true => format!("No time grows faster than with the power {FLAT}."),
            false => format!("Grow faster than with the power {FLAT}: {}.", grow.join(", ")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_operations_and_columns_are_sizes() {
        let mut curves = Curves::new("key", "title", "files", Unit::Count);
        for (x, nanos) in [(10.0, 100.0), (1000.0, 10_000.0), (10.0, 102.0), (10.0, 98.0)] {
            curves.add("grows", x, nanos, 4096.0);
            curves.add("flat", x, 50.0, 0.0);
        }
        let section = curves.section("about");
        let cell = |row: &str, key: &str| section.table.cell(row, key).and_then(Cell::median);
        assert_eq!(cell("grows", "time-10"), Some(100.0));
        assert_eq!(cell("grows", "bytes-last"), Some(4096.0));
        assert!((cell("grows", "exponent").unwrap() - 1.0).abs() < 0.01);
        assert!(cell("flat", "exponent").unwrap().abs() < 0.01);
        assert_eq!((section.plots.len(), section.plots[1].series.len()), (2, 1));
        assert_eq!(section.notes, ["Grow faster than with the power 0.15: grows (1.00)."]);
    }
}
