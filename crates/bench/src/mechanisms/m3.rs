//! M3: a node remembers what changed in at most four ranges (`dirty=ranges`).

use std::io;

use holdfast::Dirty;

use super::beside::{self, Better, Pair};
use super::workloads::logged::{Plan, Work};
use super::workloads::{creates, in_rounds};
use super::{Gain, Measured, Mechanism, Place, Progress, Scale, published};
use crate::counts::{median, ratio};
use crate::result::{Axis, Cell, Column, Plot, Row, Section, Series, Table, Unit};

/// Node sizes of the published comparison and the one between.
pub(super) const NODES: [usize; 3] = [4096, 16384, 65536];

/// Creates per second with one node size.
#[derive(Clone, Debug, Default)]
pub(super) struct Creates {
    pub(super) node_size: usize,
    /// `bitmap` before, `ranges` after.
    pub(super) rate: Pair,
    /// With whole nodes.
    pub(super) whole: Vec<f64>,
}

pub(super) fn library(scale: Scale, seen: &mut Progress<'_>) -> io::Result<Measured> {
    let files = scale.pick(3_000, 300_000, 1_000_000);
    let dirs = scale.pick(10, 100, 100);
    let switches = [Dirty::Ranges, Dirty::Bitmap, Dirty::Whole];
    let kinds: Vec<(usize, Dirty)> =
        switches.iter().flat_map(|dirty| NODES.map(|node_size| (node_size, *dirty))).collect();
    let found = in_rounds(&kinds, scale.rounds(), |(node_size, dirty)| {
        let rate = creates::run(node_size, dirty, files, dirs)?;
        seen(format!("M3 library, nodes of {node_size}, {dirty}: {rate:.0}/s"));
        Ok(rate)
    })?;
    let of = |node_size: usize, dirty: Dirty| {
        let mut runs = kinds.iter().zip(&found).filter(|(kind, _)| **kind == (node_size, dirty));
        runs.next().map(|(_, rates)| rates.clone()).unwrap_or_default()
    };
    let rows = NODES.map(|node_size| Creates {
        node_size,
        rate: Pair { before: of(node_size, Dirty::Bitmap), after: of(node_size, Dirty::Ranges) },
        whole: of(node_size, Dirty::Whole),
    });
    let about = format!(
        "One thread creates {} empty files in {} directories with a commit every second, {}.",
        Unit::Count.show(files as f64),
        dirs,
        scale.rounds_text()
    );
    let mut measured = rates(Place::Library, &about, &rows);
    measured.sections.push(bytes(scale, seen)?);
    Ok(measured)
}

/// The section and the gains of creates per second.
pub(super) fn rates(place: Place, about: &str, rows: &[Creates]) -> Measured {
    let words = (Dirty::Bitmap.word(), Dirty::Ranges.word());
    let mut table = beside::table("nodes of", words, Unit::PerSecond);
    let column =
        |key: &str, title: &str, unit| Column { key: key.into(), title: title.into(), unit };
    table.columns.push(column("whole", "whole nodes", Unit::PerSecond));
    table.columns.push(column("to-4k", "after, to 4 KiB", Unit::Ratio));
    let first = rows.iter().find(|row| row.node_size == NODES[0]);
    let to_first = |row: &Creates, of: fn(&Creates) -> &Vec<f64>| {
        let (own, first) = (of(row), of(first?));
        let measured = !own.is_empty() && !first.is_empty();
        measured.then(|| ratio(median(own.clone()), median(first.clone()))).flatten()
    };
    for row in rows {
        let published = (row.node_size == 65536).then_some(published::CREATES_64K);
        let label = Unit::Bytes.show(row.node_size as f64);
        let mut line = beside::row(label, &row.rate, Better::More, published, "");
        if row.node_size == 4096 {
            line.cells[3] = Cell::one(published::CREATES_4K);
        }
        let to_4k = to_first(row, |row| &row.rate.after);
        table.push(line.cell(Cell::of(&row.whole)).cell(Cell::maybe(to_4k)));
    }
    let x = Axis::log("bytes of a node", Unit::Bytes);
    let y = Axis::linear("creates", Unit::PerSecond);
    let line = |of: fn(&Creates) -> &Vec<f64>| {
        beside::points(rows.iter().map(|row| (row.node_size as u64, &of(row)[..])))
    };
    let both = published::CREATES_64K;
    let of_published = |at_64k| vec![(4096.0, published::CREATES_4K), (65536.0, at_64k)];
    let plot = Plot::new("Creates against node size", x, y)
        .series(Series::new("before: bitmap", line(|row| &row.rate.before)))
        .series(Series::new("after: ranges", line(|row| &row.rate.after)))
        .series(Series::new("whole", line(|row| &row.whole)))
        .series(Series::new("published, before", of_published(both.before)).dashed())
        .series(Series::new("published, after", of_published(both.after)).dashed());
    let last = rows.iter().find(|row| row.node_size == 65536);
    let gain = |what: &str, ours, published, aim| Gain {
        mechanism: Mechanism::M3,
        place,
        what: what.into(),
        ours,
        published,
        aim,
        unit: Unit::Ratio,
    };
    let gains = vec![
        gain(
            "creates/s with nodes of 64 KiB over 4 KiB, after",
            last.and_then(|row| to_first(row, |row| &row.rate.after)),
            both.after / published::CREATES_4K,
            0.9,
        ),
        gain(
            "creates/s with nodes of 64 KiB, after over before",
            last.and_then(|row| row.rate.faster()),
            both.after / both.before,
            1.0,
        ),
    ];
    let name = format!("m3-{}", place.word());
    let title = format!("M3, {}: four ranges instead of a bitmap", place.word());
    let section = Section::new(name, title, about, table).plot(plot).note(format!(
        "Published share of the processor for formatting: {} before, {} after. Ours is counted in instructions, by \
         scripts/prove/callgrind.sh.",
        Unit::Share.show(published::FORMATTING.before),
        Unit::Share.show(published::FORMATTING.after)
    ));
    Measured { sections: vec![section], gains }
}

/// Journal bytes of each position, in the order of [`Dirty::ALL`], with one rhythm of one workload.
struct Logged {
    work: Work,
    per_commit: u64,
    node_size: usize,
    each: Vec<f64>,
}

impl Logged {
    fn of(&self, dirty: Dirty) -> Option<f64> {
        let mut found = Dirty::ALL.iter().zip(&self.each).filter(|(of, _)| **of == dirty);
        found.next().map(|(_, bytes)| *bytes)
    }

    /// Bytes of `dirty` over those of ranges.
    fn over_ranges(&self, dirty: Dirty) -> Option<f64> {
        ratio(self.of(dirty)?, self.of(Dirty::Ranges)?).filter(|ratio| *ratio > 0.0)
    }
}

/// Bytes that a commit logs, over node size.
fn bytes(scale: Scale, seen: &mut Progress<'_>) -> io::Result<Section> {
    let file_bytes = scale.pick(8 << 20, 512 << 20, 2 << 30);
    let dir_files = scale.pick(10, 100, 100);
    let rhythms: &[u64] = scale.pick(&[10], &[10, 1000], &[10, 1000]);
    let works = [
        (Work::Overwrites, scale.pick(100, 2_000, 10_000)),
        (Work::Creates, scale.pick(50, 1_000, 1_000)),
    ];
    let mut rows: Vec<Logged> = Vec::new();
    for node_size in NODES {
        for (work, items) in works {
            let plan = Plan { work, node_size, items, file_bytes, dir_files, seed: 1 };
            let base = plan.prepare()?;
            for &per_commit in rhythms {
                let mut each = Vec::new();
                for &dirty in Dirty::ALL {
                    let bytes = plan.run(&base, dirty, per_commit)?.journal_per_item;
                    let work = work.name();
                    seen(format!(
                        "M3 library, {work}, {per_commit} in a commit, {dirty}: {bytes:.0} B each"
                    ));
                    each.push(bytes);
                }
                rows.push(Logged { work, per_commit, node_size, each });
            }
        }
    }
    let mut table =
        Table::new("workload, items in a commit").column("node", "nodes of", Unit::Bytes);
    for dirty in Dirty::ALL {
        table = table.column(dirty.word(), dirty.word(), Unit::Bytes);
    }
    table = table.column("bitmap-gain", "bitmap over ranges", Unit::Ratio).column(
        "whole-gain",
        "whole over ranges",
        Unit::Ratio,
    );
    for row in &rows {
        let label = format!("{}, {}", row.work.name(), row.per_commit);
        let line = Row::new(label).cell(Cell::one(row.node_size as f64));
        let line = row.each.iter().fold(line, |line, bytes| line.cell(Cell::one(*bytes)));
        let gain = |dirty| Cell::maybe(row.over_ranges(dirty));
        table.push(line.cell(gain(Dirty::Bitmap)).cell(gain(Dirty::Whole)));
    }
    let about = "Journal bytes, headers and padding included, for each file created in a directory of its own, and for \
                 each overwrite of 4 KiB at a random place of a large file.";
    let mut section = Section::new(
        "m3-bytes",
        "M3, library: what a commit logs for each thing that changed",
        about,
        table,
    );
    // Runs with the same rhythm of the same workload belong together.
    for (work, _) in works {
        for &per_commit in rhythms {
            let name = work.name();
            let title =
                format!("Journal bytes against node size: {name}, {per_commit} in a commit");
            let x = Axis::log("bytes of a node", Unit::Bytes);
            let y = Axis::log("journal bytes each", Unit::Bytes);
            let line = |dirty: Dirty| {
                let own =
                    rows.iter().filter(|row| (row.work, row.per_commit) == (work, per_commit));
                own.filter_map(|row| Some((row.node_size as f64, row.of(dirty)?)))
                    .collect::<Vec<_>>()
            };
            let plot = Dirty::ALL.iter().fold(Plot::new(title, x, y), |plot, dirty| {
                plot.series(Series::new(dirty.word(), line(*dirty)).fitted())
            });
            section = section.plot(plot);
        }
    }
    Ok(section)
}
