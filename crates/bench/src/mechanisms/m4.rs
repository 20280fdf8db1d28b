//! M4: a log batch finds the inode of a name by an index (`batch=indexed`).

use std::io;

use holdfast::Batching;

use super::beside::{self, Better, Pair, points};
use super::workloads::{in_rounds, pending};
use super::{Devices, Gain, Measured, Mechanism, Place, Progress, Scale, published};
use crate::counts::ratio;
use crate::result::{Axis, Cell, Column, Plot, Section, Series, Unit};

/// What rounds with one number of files gave.
#[derive(Clone, Debug, Default)]
pub(super) struct Files {
    pub(super) dirs: u64,
    pub(super) files: u64,
    /// Files per second, the fsync included.
    pub(super) rate: Pair,
    /// Nanoseconds of formatting for each record.
    pub(super) format_ns: Pair,
    /// Records of a mean batch.
    pub(super) records: f64,
}

/// Directories and files in each.
pub(super) fn sizes(scale: Scale) -> Vec<(u64, u64)> {
    let all = published::PENDING.iter().map(|(dirs, files, _)| (*dirs, *files));
    match scale {
        Scale::Quick => vec![(2, 2), (8, 8), (16, 64)],
        Scale::Usual | Scale::Full | Scale::Published => all.collect(),
    }
}

/// Small runs are repeated, or chance would decide.
pub(super) fn rounds(scale: Scale, files: u64) -> u64 {
    scale.rounds().max(scale.pick(0, 10_000 / files.max(1), 50_000 / files.max(1)).min(40))
}

pub(super) fn library(
    scale: Scale,
    devices: &mut Devices<'_>,
    seen: &mut Progress<'_>,
) -> io::Result<Measured> {
    let mut rows = Vec::new();
    for (dirs, files) in sizes(scale) {
        let bytes = pending::device_bytes(dirs, files);
        let positions = [Batching::Indexed, Batching::Scan];
        let found = in_rounds(&positions, rounds(scale, dirs * files), |switch| {
            let run = pending::run(devices(bytes)?, switch, dirs, files)?;
            let each = run.total_ns;
            seen(format!("M4 library, {dirs} x {files} files, {switch}: {each:.0} ns each"));
            Ok(run)
        })?;
        let of = |at: usize, value: fn(&pending::Run) -> f64| found[at].iter().map(value).collect();
        let pair =
            |value: fn(&pending::Run) -> f64| Pair { before: of(1, value), after: of(0, value) };
        let batches: u64 = found[0].iter().map(|run| run.counts.log_batches).sum();
        let records: u64 = found[0].iter().map(|run| run.counts.log_records).sum();
        rows.push(Files {
            dirs,
            files,
            rate: pair(|run| 1e9 / run.total_ns.max(1e-9)),
            format_ns: pair(|run| run.format_ns),
            records: ratio(records as f64, batches as f64).unwrap_or(0.0),
        });
    }
    let about = format!(
        "Empty files in several directories, nothing synced, then one fsync that has to log what is still pending; {}, \
         more of few files. The rate contains the fsync.",
        scale.rounds_text()
    );
    Ok(measured(Place::Library, &about, &rows))
}

/// The section and the gains of what was measured.
pub(super) fn measured(place: Place, about: &str, rows: &[Files]) -> Measured {
    let words = (Batching::Scan.word(), Batching::Indexed.word());
    let mut table = beside::table("directories x files", words, Unit::PerSecond);
    let column =
        |key: &str, title: &str, unit| Column { key: key.into(), title: title.into(), unit };
    table.columns.extend([
        column("records", "records of a batch", Unit::Count),
        column("format-before", "to format one, before", Unit::Nanoseconds),
        column("format-after", "after", Unit::Nanoseconds),
        column("format-gain", "gain", Unit::Ratio),
    ]);
    for row in rows {
        let published = published::PENDING
            .iter()
            .find(|(dirs, files, _)| (*dirs, *files) == (row.dirs, row.files))
            .map(|(_, _, both)| *both);
        let label = format!("{} x {}", row.dirs, Unit::Count.show(row.files as f64));
        let line = beside::row(label, &row.rate, Better::More, published, "");
        table.push(
            line.cell(Cell::one(row.records))
                .cell(Cell::of(&row.format_ns.before))
                .cell(Cell::of(&row.format_ns.after))
                .cell(Cell::maybe(row.format_ns.shorter())),
        );
    }
    let x = || Axis::log("pending files", Unit::Count);
    let line = |of: fn(&Files) -> &Vec<f64>| {
        points(rows.iter().map(|row| (row.dirs * row.files, &of(row)[..])))
    };
    let of_published = |of: fn(published::Both) -> f64| {
        let points = published::PENDING.iter();
        points.map(|(dirs, files, both)| ((dirs * files) as f64, of(*both))).collect()
    };
    let rates =
        Plot::new("Creates against pending files", x(), Axis::log("creates", Unit::PerSecond))
            .series(Series::new("before: scan", line(|row| &row.rate.before)).fitted())
            .series(Series::new("after: indexed", line(|row| &row.rate.after)).fitted())
            .series(Series::new("published, before", of_published(|both| both.before)).dashed())
            .series(Series::new("published, after", of_published(|both| both.after)).dashed());
    let by_records = |of: fn(&Files) -> &Vec<f64>| {
        let rows = rows.iter().filter(|row| row.records >= 1.0);
        points(rows.map(|row| (row.records as u64, &of(row)[..])))
    };
    let y = Axis::log("to format a record", Unit::Nanoseconds);
    let formats =
        Plot::new("Formatting against records", Axis::log("records of a batch", Unit::Count), y)
            .series(Series::new("before: scan", by_records(|row| &row.format_ns.before)).fitted())
            .series(Series::new("after: indexed", by_records(|row| &row.format_ns.after)).fitted());
    let best = published::PENDING.iter().map(|(_, _, both)| both.after / both.before);
    let best = best.fold(0.0, f64::max);
    let gain = |what: String, ours| Gain {
        mechanism: Mechanism::M4,
        place,
        what,
        ours,
        published: best,
        aim: 100.0,
        unit: Unit::Ratio,
    };
    let largest = rows.iter().max_by_key(|row| row.dirs * row.files);
    let gains = largest.map(|row| {
        let pending = Unit::Count.show((row.dirs * row.files) as f64);
        vec![
            gain(format!("creates/s with {pending} files, after over before"), row.rate.faster()),
            gain(
                format!("to format a record of {pending} files, before over after"),
                row.format_ns.shorter(),
            ),
        ]
    });
    let name = format!("m4-{}", place.word());
    let title = format!("M4, {}: a batch finds inodes by an index", place.word());
    let section = Section::new(name, title, about, table).plot(rates).plot(formats).note(
        "Commits in the background take records out of what is pending: `records of a batch` says how many the fsync \
         had left. The published change had all of them in one batch.",
    );
    Measured { sections: vec![section], gains: gains.unwrap_or_default() }
}
