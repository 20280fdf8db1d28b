//! M3: a node remembers what changed in at most four ranges (`dirty=ranges`).

use std::io;

use holdfast::Dirty;

use super::beside::{self, Better, Pair};
use super::{Gain, Measured, Mechanism, Place, Progress, Scale, published};
use crate::counts::{median, ratio};
use crate::result::{Axis, Cell, Column, Plot, Row, Section, Series, Table, Unit};
use crate::{journal, nodes};

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
    let plan = nodes::Plan {
        node_sizes: NODES.to_vec(),
        switches: Dirty::ALL.to_vec(),
        files: scale.pick(3_000, 300_000, 1_000_000),
        dirs: scale.pick(10, 100, 100),
        rounds: scale.rounds(),
        commit_secs: 1,
    };
    let rows = nodes::run(&plan, |node_size, dirty, rate| {
        seen(format!("M3 library, nodes of {node_size}, {dirty}: {rate:.0}/s"));
    })?;
    let of = |node_size: usize, switch: Dirty| {
        let row = rows.iter().find(|row| row.node_size == node_size && row.dirty == switch.word());
        row.map(|row| row.rounds.clone()).unwrap_or_default()
    };
    let creates = NODES.map(|node_size| Creates {
        node_size,
        rate: Pair { before: of(node_size, Dirty::Bitmap), after: of(node_size, Dirty::Ranges) },
        whole: of(node_size, Dirty::Whole),
    });
    let about = format!(
        "One thread creates {} empty files in {} directories with a commit every second, {}.",
        Unit::Count.show(plan.files as f64),
        plan.dirs,
        scale.rounds_text()
    );
    let mut measured = rates(Place::Library, &about, &creates);
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

/// Bytes that a commit logs, over node size.
fn bytes(scale: Scale, seen: &mut Progress<'_>) -> io::Result<Section> {
    let plan = journal::Plan {
        node_sizes: NODES.to_vec(),
        switches: Dirty::ALL.to_vec(),
        file_bytes: scale.pick(8 << 20, 512 << 20, 2 << 30),
        overwrites: scale.pick(100, 2_000, 10_000),
        overwrites_per_commit: scale.pick(vec![10], vec![10, 1000], vec![10, 1000]),
        creates: scale.pick(50, 1_000, 1_000),
        dir_files: scale.pick(10, 100, 100),
        creates_per_commit: scale.pick(vec![10], vec![10, 1000], vec![10, 1000]),
        seed: 1,
    };
    let rows = journal::run(&plan, |row| {
        let (work, each) = (row.workload, row.per_commit);
        let (dirty, bytes) = (row.dirty, row.journal_per_item);
        seen(format!("M3 library, {work}, {each} in a commit, {dirty}: {bytes:.0} B each"));
    })?;
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
    for of in journal::ratios(&rows) {
        let each = |dirty: Dirty| {
            let row = rows.iter().find(|row| {
                (row.workload, row.node_size, row.per_commit)
                    == (of.workload, of.node_size, of.per_commit)
                    && row.dirty == dirty.word()
            });
            row.map(|row| row.journal_per_item)
        };
        let mut line = Row::new(format!("{}, {}", of.workload, of.per_commit))
            .cell(Cell::one(of.node_size as f64));
        for dirty in Dirty::ALL {
            line = line.cell(Cell::maybe(each(*dirty)));
        }
        let bitmap = of.ranges_to_bitmap.and_then(|value| ratio(1.0, value));
        table.push(line.cell(Cell::maybe(bitmap)).cell(Cell::maybe(of.whole_to_ranges)));
    }
    let about = "Journal bytes, heads and padding included, for each file created in a directory of its own, and for \
                 each overwrite of 4 KiB at a random place of a large file.";
    let mut section = Section::new(
        "m3-bytes",
        "M3, library: what a commit logs for each thing that changed",
        about,
        table,
    );
    // Runs with the same rhythm of the same workload belong together.
    let mut kinds: Vec<(&str, u64)> =
        rows.iter().map(|row| (row.workload, row.per_commit)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for (workload, per_commit) in kinds {
        let title =
            format!("Journal bytes against node size: {workload}, {per_commit} in a commit");
        let x = Axis::log("bytes of a node", Unit::Bytes);
        let y = Axis::log("journal bytes each", Unit::Bytes);
        let line = |dirty: Dirty| {
            let own = rows.iter().filter(|row| {
                (row.workload, row.per_commit, row.dirty) == (workload, per_commit, dirty.word())
            });
            own.map(|row| (row.node_size as f64, row.journal_per_item)).collect::<Vec<_>>()
        };
        let plot = Dirty::ALL.iter().fold(Plot::new(title, x, y), |plot, dirty| {
            plot.series(Series::new(dirty.word(), line(*dirty)).fitted())
        });
        section = section.plot(plot);
    }
    Ok(section)
}
