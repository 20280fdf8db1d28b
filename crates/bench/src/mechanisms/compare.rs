//! What the mechanisms share: volumes in a position of a switch, rounds, and a table of befores and afters.

use std::fmt::Display;
use std::io;

use holdfast::{Volume, VolumeOptions};

use super::{Devices, Gain, Scale, rounds_text};
use crate::counts::{Counts, median, ratio};
use crate::folder::Folder;
use crate::result::{Axis, Cell, Plot, Row, Section, Series, Table, Unit};
use crate::systems::{Bed, Mounted, Ours, System};
use crate::undo::interrupted;
use crate::work::quiesce;

/// Bytes of a tree node, where they are not what is compared.
pub(super) const NODE: usize = 16384;

/// Where the volumes are.
pub enum Volumes<'a> {
    /// The library opens them, on these devices.
    Library(&'a mut Devices<'a>),
    /// They are made on a file, and mounted.
    Mount(&'a Bed, Ours),
}

/// How much is done, and where.
pub struct Bench<'a> {
    /// How much.
    pub scale: Scale,
    /// Where.
    pub ground: Volumes<'a>,
    /// Hears of each run.
    pub seen: fn(String),
}

/// A volume that is wanted. In a mount its options are those of `mount`.
pub(super) struct Wanted {
    /// Bytes of its device; a mount has a file of its own size.
    pub(super) bytes: u64,
    pub(super) node_size: usize,
    pub(super) library: VolumeOptions,
    pub(super) mount: String,
}

/// An empty volume in use.
pub(super) enum Ready<'a> {
    Library(Volume),
    Mounted(Mounted<'a>),
}

impl Ready<'_> {
    pub(super) fn root(&self) -> Folder {
        match self {
            Ready::Library(volume) => Folder::Library((**volume).clone()),
            Ready::Mounted(mounted) => Folder::Host(mounted.dir().to_path_buf()),
        }
    }

    /// Everything so far is durable and at its location.
    pub(super) fn quiesce(&self) -> io::Result<()> {
        match self {
            Ready::Library(volume) => quiesce(volume),
            Ready::Mounted(mounted) => mounted.quiesce(),
        }
    }

    pub(super) fn counts(&self) -> io::Result<Counts> {
        match self {
            Ready::Library(volume) => Counts::of(volume),
            Ready::Mounted(mounted) => Ok(mounted.counts()?.unwrap_or_default()),
        }
    }

    /// It is used no more. What was mounted must be in order then.
    pub(super) fn end(self) -> io::Result<()> {
        match self {
            Ready::Library(volume) => volume.abandon(),
            Ready::Mounted(mounted) => mounted.leave()?,
        }
        Ok(())
    }
}

impl Bench<'_> {
    pub(super) fn is_library(&self) -> bool {
        matches!(self.ground, Volumes::Library(_))
    }

    /// `library` or `mount`: a word for people and keys.
    pub(super) fn place(&self) -> &'static str {
        if self.is_library() { "library" } else { "mount" }
    }

    /// Makes a volume, in place of the one before.
    pub(super) fn volume(&mut self, wanted: Wanted) -> io::Result<Ready<'_>> {
        match &mut self.ground {
            Volumes::Library(devices) => {
                let device = devices(wanted.bytes)?;
                crate::new_volume().node_size(wanted.node_size).format(&device)?;
                wanted.library.open_device(device).map(Ready::Library)
            }
            Volumes::Mount(bed, ours) => {
                let ours = Ours {
                    options: wanted.mount,
                    mkfs: vec!["--node-size".into(), format!("{}k", wanted.node_size >> 10)],
                    program: ours.program.clone(),
                };
                Mounted::new(System::Holdfast, bed, &ours).map(Ready::Mounted)
            }
        }
    }

    /// Says what a run gave.
    pub(super) fn say(&mut self, what: impl Display) {
        let place = self.place();
        (self.seen)(format!("{place}: {what}"));
    }

    /// What is compared, and the aim beside what was published; ratios.
    pub(super) fn gain(
        &self,
        mechanism: &str,
        what: String,
        ours: Option<f64>,
        published: f64,
        aim: f64,
    ) -> Gain {
        let place = format!("{mechanism} {}", self.place());
        Gain { place, what, ours, published, aim, unit: Unit::Ratio }
    }

    /// Runs of each kind, in words.
    pub(super) fn rounds_text(&self) -> String {
        rounds_text(self.scale.rounds())
    }
}

/// Runs every position, in rounds that go forwards and backwards in turn, so that none is always the one after the
/// heaviest. What the rounds gave, in the order of `all`.
pub(super) fn in_rounds<S: Copy, R>(
    all: &[S],
    rounds: u64,
    mut run: impl FnMut(S) -> io::Result<R>,
) -> io::Result<Vec<Vec<R>>> {
    let mut found: Vec<Vec<R>> = all.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for at in 0..all.len() {
            interrupted()?;
            let at = if round % 2 == 0 { at } else { all.len() - 1 - at };
            found[at].push(run(all[at])?);
        }
    }
    Ok(found)
}

/// What rounds gave in both positions of a switch. Empty where it was not measured.
#[derive(Clone, Debug, Default)]
pub(super) struct Pair {
    pub(super) before: Vec<f64>,
    pub(super) after: Vec<f64>,
}

impl Pair {
    /// What `value` says of the rounds of both, the former position first.
    pub(super) fn of<R>(found: &[Vec<R>], value: impl Fn(&R) -> f64) -> Pair {
        let of = |at: usize| found.get(at).into_iter().flatten().map(&value).collect();
        Pair { before: of(0), after: of(1) }
    }

    /// The median of before over that of after: the gain of a time.
    pub(super) fn shorter(&self) -> Option<f64> {
        let measured = !self.before.is_empty() && !self.after.is_empty();
        let gain = ratio(median(self.before.clone()), median(self.after.clone()));
        gain.filter(|gain| measured && *gain > 0.0)
    }

    /// The median of after over that of before: the gain of a rate.
    pub(super) fn faster(&self) -> Option<f64> {
        Pair { before: self.after.clone(), after: self.before.clone() }.shorter()
    }

    /// Cells of both, and of the gain.
    pub(super) fn cells(&self, better: Better) -> [Cell; 3] {
        [Cell::of(&self.before), Cell::of(&self.after), Cell::maybe(better.gain(self))]
    }
}

/// What the figures are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Better {
    /// Rates.
    More,
    /// Times.
    Less,
}

impl Better {
    pub(super) fn gain(self, pair: &Pair) -> Option<f64> {
        match self {
            Better::More => pair.faster(),
            Better::Less => pair.shorter(),
        }
    }

    /// Of figures that were published, before and after.
    pub(super) fn published(self, (before, after): Both) -> f64 {
        match self {
            Better::More => after / before,
            Better::Less => before / after,
        }
    }
}

/// What authors published, before and after their change, on their machines. The sources are cover letters and commit
/// messages. That machines, kernels and loads differ is why gains are compared and not figures.
pub(super) type Both = (f64, f64);

/// A row of a comparison.
pub(super) struct Line {
    pub(super) label: String,
    /// What grows from row to row.
    pub(super) x: f64,
    pub(super) pair: Pair,
    pub(super) published: Option<Both>,
    /// Why a side was not measured.
    pub(super) why: String,
    /// Cells of further columns.
    pub(super) more: Vec<Cell>,
}

/// Befores and afters, the published ones beside them.
pub(super) struct Comparison {
    /// `m1-library`.
    pub(super) key: String,
    pub(super) title: String,
    pub(super) about: String,
    /// The head of the rows.
    pub(super) label: &'static str,
    /// What grows, and what the figures are: of the plot; without it there is none.
    pub(super) axes: Option<(&'static str, &'static str)>,
    /// The positions, before first.
    pub(super) words: (&'static str, &'static str),
    pub(super) unit: Unit,
    pub(super) better: Better,
    pub(super) lines: Vec<Line>,
}

impl Comparison {
    /// As a section. `more` are keys, titles and units of further columns.
    pub(super) fn section(self, more: &[(&str, &str, Unit)]) -> Section {
        let (unit, better) = (self.unit, self.better);
        let mut table = Table::new(self.label)
            .column("before", format!("before: {}", self.words.0), unit)
            .column("after", format!("after: {}", self.words.1), unit)
            .column("gain", "gain", Unit::Ratio)
            .column("published-before", "published before", unit)
            .column("published-after", "after", unit)
            .column("published-gain", "gain", Unit::Ratio);
        table =
            more.iter().fold(table, |table, (key, title, unit)| table.column(*key, *title, *unit));
        for line in &self.lines {
            let mut cells = line.pair.cells(better).to_vec();
            for (cell, rounds) in cells.iter_mut().zip([&line.pair.before, &line.pair.after]) {
                if rounds.is_empty() {
                    *cell = Cell::missing(&line.why);
                }
            }
            let published = line.published.map(|both| (both.0, both.1, better.published(both)));
            let (before, after, gain) = published.unwrap_or((f64::NAN, f64::NAN, f64::NAN));
            cells.extend([before, after, gain].map(Cell::one));
            cells.extend(line.more.iter().cloned());
            table.push(Row { label: line.label.clone(), cells });
        }
        let section = Section::new(self.key, self.title, self.about, table);
        let Some((x, y)) = self.axes else { return section };
        let curve = |value: &dyn Fn(&Line) -> Option<f64>| -> Vec<(f64, f64)> {
            self.lines.iter().filter_map(|line| Some((line.x, value(line)?))).collect()
        };
        let mid = |rounds: &Vec<f64>| (!rounds.is_empty()).then(|| median(rounds.clone()));
        let (before, after) = self.words;
        let plot =
            Plot::new(format!("{y} against {x}"), Axis::log(x, Unit::Count), Axis::log(y, unit))
                .series(Series::new(before, curve(&|line| mid(&line.pair.before))).fitted())
                .series(Series::new(after, curve(&|line| mid(&line.pair.after))).fitted())
                .series(
                    Series::new("published, before", curve(&|line| Some(line.published?.0)))
                        .dashed(),
                )
                .series(
                    Series::new("published, after", curve(&|line| Some(line.published?.1)))
                        .dashed(),
                );
        section.plot(plot)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use holdfast_device::MemoryDevice;
    use std::sync::Arc;

    /// Runs a workload of the library once, in memory.
    pub(crate) fn in_memory<R>(run: impl FnOnce(&mut Bench<'_>) -> io::Result<R>) -> R {
        let mut devices = |bytes| Ok(Arc::new(MemoryDevice::new(bytes)) as _);
        let ground = Volumes::Library(&mut devices);
        run(&mut Bench { scale: Scale::Quick, ground, seen: |_| () }).expect("it runs")
    }

    #[test]
    fn positions_take_turns() {
        let mut order = String::new();
        let run = |position: char| {
            order.push(position);
            Ok(order.len())
        };
        let found = in_rounds(&['a', 'b'], 3, run).expect("nothing fails");
        assert_eq!(found, [[1, 4, 5], [2, 3, 6]]);
        assert_eq!(order, "abbaab");
    }

    #[test]
    fn gains_are_above_one_when_it_got_better_and_what_was_left_out_says_why() {
        let pair = Pair { before: vec![30.0, 31.0, 29.0], after: vec![10.0] };
        assert_eq!((pair.shorter(), pair.faster()), (Some(3.0), Some(1.0 / 3.0)));
        let line = |label: &str, x, pair| Line {
            label: label.into(),
            x,
            pair,
            published: Some((27.0, 9.0)),
            why: "it would take 90 s".into(),
            more: vec![Cell::one(5.0)],
        };
        let lines = vec![
            line("1", 1.0, pair),
            line("2", 2.0, Pair { before: Vec::new(), after: vec![1.0] }),
        ];
        let comparison = Comparison {
            key: "k".into(),
            title: "T".into(),
            about: "A".into(),
            label: "files",
            axes: Some(("files", "time")),
            words: ("a", "b"),
            unit: Unit::Nanoseconds,
            better: Better::Less,
            lines,
        };
        let section = comparison.section(&[("more", "more", Unit::Count)]);
        let cell = |row, key| section.table.cell(row, key).expect("it is there");
        assert_eq!(
            (cell("1", "gain"), cell("1", "published-gain")),
            (&Cell::one(3.0), &Cell::one(3.0))
        );
        assert_eq!(cell("2", "before"), &Cell::missing("it would take 90 s"));
        assert_eq!((cell("2", "gain"), cell("2", "more")), (&Cell::missing(""), &Cell::one(5.0)));
        let points: Vec<usize> =
            section.plots[0].series.iter().map(|series| series.points.len()).collect();
        assert_eq!(points, [1, 2, 2, 2]);
    }
}
