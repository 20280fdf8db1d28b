//! M2: a rename logs the two names and not the directory (`rename_log=names`).

use std::io;
use std::time::Duration;

use holdfast::RenameLog;

use super::beside::{self, Better, Pair, points};
use super::workloads::{in_rounds, renames};
use super::{Devices, Gain, Measured, Mechanism, Place, Progress, Scale, published};
use crate::counts::median;
use crate::result::{Axis, Plot, Section, Series, Unit};

/// What rounds with one number of files gave: nanoseconds of all renames.
#[derive(Clone, Debug, Default)]
pub(super) struct Files {
    pub(super) files: u64,
    pub(super) all_ns: Pair,
    /// Why a side was left out.
    pub(super) why: String,
    /// Seconds that a run of that side was expected to take.
    pub(super) expected: Option<f64>,
}

impl Files {
    /// Seconds of a run with `files` files as it was done before, which grow with the square of the files.
    fn expected_before(&self, files: u64) -> Option<f64> {
        let measured =
            (!self.all_ns.before.is_empty()).then(|| median(self.all_ns.before.clone()) / 1e9);
        let more = files as f64 / self.files.max(1) as f64;
        Some(self.expected.or(measured)? * more.powi(2))
    }
}

pub(super) fn sizes(scale: Scale) -> Vec<u64> {
    let sizes: &[u64] = scale.pick(
        &[100, 1_000],
        &[1_000, 2_000, 5_000, 10_000, 50_000],
        &[1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000],
    );
    sizes.to_vec()
}

pub(super) fn library(
    scale: Scale,
    devices: &mut Devices<'_>,
    seen: &mut Progress<'_>,
) -> io::Result<Measured> {
    let longest = Duration::from_secs(scale.pick(60, 90, 400));
    // Small directories get more runs, or chance would decide.
    let renames_min: u64 = scale.pick(0, 20_000, 20_000);
    let bytes = renames::device_bytes(sizes(scale).into_iter().max().unwrap_or(0));
    let mut rows: Vec<Files> = Vec::new();
    for files in sizes(scale) {
        let expected = rows.last().and_then(|row| row.expected_before(files));
        let too_long = expected.filter(|seconds| *seconds > longest.as_secs_f64());
        let positions: &[RenameLog] = match too_long {
            None => &[RenameLog::Names, RenameLog::Directory],
            Some(_) => &[RenameLog::Names],
        };
        let rounds = scale.rounds().max(renames_min.div_ceil(files));
        let mut found = in_rounds(positions, rounds, |switch| {
            let (all_ns, _) = renames::run(devices(bytes)?, switch, files)?;
            let each = all_ns / files as f64;
            seen(format!("M2 library, {files} files, {switch}: {each:.0} ns"));
            Ok(all_ns)
        })?
        .into_iter();
        let mut next = || found.next().unwrap_or_default();
        let (after, before) = (next(), next());
        let why = too_long.map_or_else(String::new, |seconds| format!("about {seconds:.0} s"));
        rows.push(Files { files, all_ns: Pair { before, after }, why, expected: too_long });
    }
    let about = format!(
        "Empty files in one directory, committed; one more, an fsync of the directory, and all are renamed. The time is \
         that of all renames, {}. Sizes that would take longer than {} s are left out.",
        scale.rounds_text(),
        longest.as_secs()
    );
    Ok(measured(Place::Library, &about, &rows))
}

/// The section and the gains of what was measured.
pub(super) fn measured(place: Place, about: &str, rows: &[Files]) -> Measured {
    let words = (RenameLog::Directory.word(), RenameLog::Names.word());
    let mut table = beside::table("files", words, Unit::Nanoseconds);
    table.columns.push(crate::result::Column {
        key: "each".into(),
        title: "one rename, after".into(),
        unit: Unit::Nanoseconds,
    });
    for row in rows {
        let published = published::of(published::RENAMES, row.files).map(milliseconds);
        let label = Unit::Count.show(row.files as f64);
        let each: Vec<f64> =
            row.all_ns.after.iter().map(|nanos| nanos / row.files.max(1) as f64).collect();
        let line = beside::row(label, &row.all_ns, Better::Less, published, &row.why);
        table.push(line.cell(crate::result::Cell::of(&each)));
    }
    let x = Axis::log("files in the directory", Unit::Count);
    let y = Axis::log("time of one rename", Unit::Nanoseconds);
    let each = |of: fn(&Files) -> &Vec<f64>| {
        let of_all = points(rows.iter().map(|row| (row.files, &of(row)[..])));
        of_all.into_iter().map(|(files, nanos)| (files, nanos / files)).collect::<Vec<_>>()
    };
    let of_published = |of: fn(published::Both) -> f64| {
        let points = published::RENAMES.iter();
        points
            .map(|(files, both)| (*files as f64, of(milliseconds(*both)) / *files as f64))
            .collect()
    };
    let after = Series::new("after: names", each(|row| &row.all_ns.after)).fitted();
    let flat = after.exponent;
    let plot = Plot::new("Renames against N", x, y)
        .series(Series::new("before: directory", each(|row| &row.all_ns.before)).fitted())
        .series(after)
        .series(
            Series::new("published, before", of_published(|both| both.before)).fitted().dashed(),
        )
        .series(Series::new("published, after", of_published(|both| both.after)).fitted().dashed());
    // The published size, or the largest that was measured in both positions.
    let largest = rows
        .iter()
        .rfind(|row| row.files <= 10_000 && !row.all_ns.before.is_empty())
        .or(rows.last());
    let gains = largest.map(|row| Gain {
        mechanism: Mechanism::M2,
        place,
        what: format!("{} renames, time before over after", Unit::Count.show(row.files as f64)),
        ours: row.all_ns.shorter(),
        published: published::of(published::RENAMES, row.files.min(10_000))
            .map_or(1.0, |both| Better::Less.published(both)),
        aim: 3.0,
        unit: Unit::Ratio,
    });
    let name = format!("m2-{}", place.word());
    let title = format!("M2, {}: a rename logs its names, not its directory", place.word());
    let mut section = Section::new(name, title, about, table).plot(plot);
    if let Some(flat) = flat {
        section = section.note(format!(
            "After the change the time of one rename grows with the power {flat:.2} of the files."
        ));
    }
    Measured { sections: vec![section], gains: gains.into_iter().collect() }
}

fn milliseconds(both: published::Both) -> published::Both {
    published::Both { before: both.before * 1e6, after: both.after * 1e6 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_out_is_reckoned_from_what_was_not() {
        let all_ns = Pair { before: vec![2e9], after: vec![1e9] };
        let row = Files { files: 10, all_ns, ..Files::default() };
        assert_eq!(row.expected_before(20), Some(8.0));
        let none = Files { files: 20, expected: Some(8.0), ..Files::default() };
        assert_eq!(none.expected_before(40), Some(32.0));
        assert_eq!(Files::default().expected_before(1), None);
    }
}
