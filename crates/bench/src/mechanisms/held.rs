//! M4 with commits held back: as many files pending as were published, which our commits in the background never let
//! come.

use std::io;

use holdfast::Batching;

use super::beside::{self, Better, Pair};
use super::workloads::{in_rounds, pending};
use super::{Devices, Gain, Measured, Mechanism, Place, Progress, Scale, published};
use crate::counts::ratio;
use crate::result::{Axis, Cell, Column, Plot, Section, Series, Unit};

/// What rounds with one number of files gave.
struct Files {
    dirs: u64,
    files: u64,
    /// Files per second, the fsync included.
    rate: Pair,
    /// Nanoseconds of the fsync.
    fsync_ns: Pair,
    /// Nanoseconds of formatting for each record.
    format_ns: Pair,
    /// Batches that the fsync made.
    batches: f64,
    /// Records of a mean batch.
    records: f64,
}

/// Directories and files in each: those of the published table that need it.
fn sizes(scale: Scale) -> Vec<(u64, u64)> {
    match scale {
        Scale::Quick => vec![(4, 64)],
        _ => vec![(64, 64), (64, 1_024), (64, 16_384)],
    }
}

pub(super) fn library(
    scale: Scale,
    devices: &mut Devices<'_>,
    seen: &mut Progress<'_>,
) -> io::Result<Measured> {
    let mut rows = Vec::new();
    for (dirs, files) in sizes(scale) {
        let bytes = pending::held_device_bytes(dirs, files);
        let positions = [Batching::Indexed, Batching::Scan];
        let found = in_rounds(&positions, scale.rounds(), |switch| {
            let run = pending::run_held(devices(bytes)?, switch, dirs, files)?;
            let each = run.total_ns;
            seen(format!("M4 held back, {dirs} x {files} files, {switch}: {each:.0} ns each"));
            Ok(run)
        })?;
        let pair = |value: &dyn Fn(&pending::Run) -> f64| {
            let of = |at: usize| found[at].iter().map(value).collect();
            Pair { before: of(1), after: of(0) }
        };
        let count = (dirs * files) as f64;
        let counts = &found[0][0].counts;
        rows.push(Files {
            dirs,
            files,
            rate: pair(&|run| 1e9 / run.total_ns.max(1e-9)),
            fsync_ns: pair(&|run| (run.total_ns - run.create_ns).max(0.0) * count),
            format_ns: pair(&|run| run.format_ns),
            batches: counts.log_batches as f64,
            records: ratio(counts.log_records as f64, counts.log_batches as f64).unwrap_or(0.0),
        });
    }
    let about = format!(
        "As above, but the device lets no commit end before the fsync has, and log, journal and cache are so large that \
         nothing else slows the creates down: all files are pending; {}.",
        scale.rounds_text()
    );
    Ok(measured(&about, &rows))
}

fn measured(about: &str, rows: &[Files]) -> Measured {
    let words = (Batching::Scan.word(), Batching::Indexed.word());
    let mut table = beside::table("directories x files", words, Unit::PerSecond);
    let column =
        |key: &str, title: &str, unit| Column { key: key.into(), title: title.into(), unit };
    table.columns.extend([
        column("batches", "batches", Unit::Count),
        column("records", "records of a batch", Unit::Count),
        column("fsync-before", "the fsync, before", Unit::Nanoseconds),
        column("fsync-after", "after", Unit::Nanoseconds),
        column("fsync-gain", "gain", Unit::Ratio),
        column("format-before", "to format a record, before", Unit::Nanoseconds),
        column("format-after", "after", Unit::Nanoseconds),
        column("format-gain", "gain", Unit::Ratio),
    ]);
    for row in rows {
        let published = published::PENDING
            .iter()
            .find(|(dirs, files, _)| (*dirs, *files) == (row.dirs, row.files))
            .map(|(_, _, both)| *both);
        let label = format!("{} x {}", row.dirs, Unit::Count.show(row.files as f64));
        let mut line = beside::row(label, &row.rate, Better::More, published, "")
            .cell(Cell::one(row.batches))
            .cell(Cell::one(row.records));
        for times in [&row.fsync_ns, &row.format_ns] {
            line = line
                .cell(Cell::of(&times.before))
                .cell(Cell::of(&times.after))
                .cell(Cell::maybe(times.shorter()));
        }
        table.push(line);
    }
    let line = |of: fn(&Files) -> &Vec<f64>| {
        beside::points(rows.iter().map(|row| (row.dirs * row.files, &of(row)[..])))
    };
    let x = Axis::log("pending files", Unit::Count);
    let plot =
        Plot::new("The fsync against pending files", x, Axis::log("fsync", Unit::Nanoseconds))
            .series(Series::new("before: scan", line(|row| &row.fsync_ns.before)).fitted())
            .series(Series::new("after: indexed", line(|row| &row.fsync_ns.after)).fitted());
    let best = published::PENDING.iter().map(|(_, _, both)| both.after / both.before);
    let best = best.fold(0.0, f64::max);
    let gains = rows.iter().max_by_key(|row| row.dirs * row.files).map(|row| {
        let pending = Unit::Count.show((row.dirs * row.files) as f64);
        let gain = |what, ours| Gain {
            mechanism: Mechanism::M4,
            place: Place::Library,
            what,
            ours,
            published: best,
            aim: 100.0,
            unit: Unit::Ratio,
        };
        vec![
            gain(
                format!("creates/s with {pending} files held back, after over before"),
                row.rate.faster(),
            ),
            gain(
                format!("an fsync of {pending} files held back, before over after"),
                row.fsync_ns.shorter(),
            ),
        ]
    });
    let title = "M4, library: a batch finds inodes by an index; commits held back";
    let section = Section::new("m4-held", title, about, table).plot(plot).note(
        "A batch of the log holds at most 4 MiB, by the format: what is pending becomes several, and each is searched by \
         itself.",
    );
    Measured { sections: vec![section], gains: gains.unwrap_or_default() }
}
