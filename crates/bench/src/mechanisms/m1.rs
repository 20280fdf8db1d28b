//! M1: group records that did not change are not written (`accounting=changed`).

use std::io;
use std::time::Duration;

use holdfast::Accounting;

use super::scale::rounds_text;
use super::workloads::group_records::{self, Plan, WORKS};
use super::workloads::in_rounds;
use super::{Devices, Gain, Measured, Mechanism, Place, Progress, Scale, published};
use crate::counts::{median, ratio};
use crate::result::{Axis, Cell, Plot, Row, Section, Series, Table, Unit};

/// What rounds of one workload gave in one position.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs {
    pub(super) per_second: Vec<f64>,
    pub(super) frozen_ns: Vec<f64>,
    pub(super) groups_ns: Vec<f64>,
    /// Records that a commit carried, skipped or not.
    pub(super) carried: Vec<f64>,
    /// Share of records that were skipped.
    pub(super) skipped: Vec<f64>,
    /// Commits and share, of one round.
    pub(super) skips: Vec<(f64, f64)>,
}

/// One workload.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) name: &'static str,
    pub(super) always: Runs,
    pub(super) changed: Runs,
}

/// How long it is, and how often: the published job took 300 s, and some thirty commits fell into them.
fn plan(scale: Scale) -> (Plan, u64) {
    let (time, commit_secs, rounds) = match scale {
        Scale::Published => (Duration::from_secs(300), 10, 1),
        _ => (
            scale.pick(
                Duration::from_millis(600),
                Duration::from_secs(15),
                Duration::from_secs(60),
            ),
            scale.pick(1, 1, 5),
            scale.rounds(),
        ),
    };
    let plan = Plan {
        jobs: 4,
        file_bytes: scale.pick(4, 512, 512) << 20,
        dirs: scale.pick(20, 1000, 1000),
        time,
        commit_secs,
        seed: 1,
    };
    (plan, rounds)
}

pub(super) fn library(
    scale: Scale,
    devices: &mut Devices<'_>,
    seen: &mut Progress<'_>,
) -> io::Result<Measured> {
    let (plan, rounds) = plan(scale);
    let bytes = (1 << 30) + 2 * plan.jobs * plan.file_bytes;
    let runs = |rounds: &[group_records::Run]| Runs {
        per_second: rounds.iter().map(|run| run.per_second).collect(),
        frozen_ns: rounds.iter().map(|run| run.frozen_ns).collect(),
        groups_ns: rounds.iter().map(|run| run.groups_ns).collect(),
        carried: rounds.iter().filter_map(|run| run.counts.records_per_freeze()).collect(),
        skipped: rounds.iter().map(|run| run.counts.skipped_share()).collect(),
        skips: rounds.last().map_or_else(Vec::new, |run| {
            run.skips.iter().map(|skips| (skips.commits as f64, skips.share)).collect()
        }),
    };
    let mut works = Vec::new();
    // The published job is the first of them, and takes long.
    let all = if scale == Scale::Published { &WORKS[..2] } else { &WORKS[..] };
    for &(name, work, ends) in all {
        let positions = [Accounting::Always, Accounting::Changed];
        let found = in_rounds(&positions, rounds, |switch| {
            let run = group_records::run(&plan, devices(bytes)?, switch, (work, ends))?;
            seen(format!("M1 library, {name}, {switch}: {:.0}/s", run.per_second));
            Ok(run)
        })?;
        works.push(Work { name, always: runs(&found[0]), changed: runs(&found[1]) });
    }
    let others = match scale {
        Scale::Published => String::new(),
        _ => format!("; then creates and unlinks in {} directories", plan.dirs),
    };
    let about = format!(
        "{} threads, each writing 4 KiB at random into a file of {} MiB of its own{others}; \
         runs of {} s with a commit every {} s, {}. A mean freeze is what changers wait for a \
         commit; the groups are a part of it. Most records are carried before, while changers go on.",
        plan.jobs,
        plan.file_bytes >> 20,
        plan.time.as_secs_f64(),
        plan.commit_secs,
        rounds_text(rounds)
    );
    Ok(measured(Place::Library, &about, &works))
}

/// The section and the gains of what was measured.
pub(super) fn measured(place: Place, about: &str, works: &[Work]) -> Measured {
    let mut table = Table::new("workload")
        .column("carried", "records of a commit", Unit::Count)
        .column("skipped", "of them skipped", Unit::Share)
        .column("frozen-before", "frozen per commit, before: always", Unit::Nanoseconds)
        .column("frozen-after", "after: changed", Unit::Nanoseconds)
        .column("frozen-gain", "gain", Unit::Ratio)
        .column("groups-before", "groups per commit, before", Unit::Nanoseconds)
        .column("groups-after", "after", Unit::Nanoseconds)
        .column("groups-gain", "gain", Unit::Ratio)
        .column("rate", "throughput, after over before", Unit::Ratio);
    for Work { name, always, changed } in works {
        table.push(
            Row::new(*name)
                .cell(Cell::of(&changed.carried))
                .cell(Cell::of(&changed.skipped))
                .cell(Cell::of(&always.frozen_ns))
                .cell(Cell::of(&changed.frozen_ns))
                .cell(Cell::maybe(over(&always.frozen_ns, &changed.frozen_ns)))
                .cell(Cell::of(&always.groups_ns))
                .cell(Cell::of(&changed.groups_ns))
                .cell(Cell::maybe(over(&always.groups_ns, &changed.groups_ns)))
                .cell(Cell::maybe(over(&changed.per_second, &always.per_second))),
        );
    }
    let (section, groups) = (published::CRITICAL_SECTION, published::GROUP_LOOP);
    let (least, most) = published::SKIPPED;
    table.push(
        Row::new("published: random writes")
            .cell(Cell::one(published::RECORDS))
            .cell(Cell::text(format!("{:.0} to {:.0} %", 100.0 * least, 100.0 * most)))
            .cell(Cell::one(section.before))
            .cell(Cell::one(section.after))
            .cell(Cell::one(section.before / section.after))
            .cell(Cell::one(groups.before))
            .cell(Cell::one(groups.after))
            .cell(Cell::one(groups.before / groups.after))
            .cell(Cell::one(1.0)),
    );
    let x = Axis::linear("commits of the run", Unit::Count);
    let y = Axis::linear("group records skipped", Unit::Share);
    let plot = works.iter().fold(Plot::new("Skip rate over commits", x, y), |plot, work| {
        plot.series(Series::new(work.name, work.changed.skips.clone()))
    });
    let gain = |what: &str, ours, published, aim, unit| Gain {
        mechanism: Mechanism::M1,
        place,
        what: what.into(),
        ours,
        published,
        aim,
        unit,
    };
    let mut gains = Vec::new();
    for work in works {
        let skipped = &work.changed.skipped;
        let skipped = (!skipped.is_empty()).then(|| median(skipped.clone()));
        let what = format!("{}: group records skipped", work.name);
        gains.push(gain(&what, skipped, least, least, Unit::Share));
        let frozen = over(&work.always.frozen_ns, &work.changed.frozen_ns);
        let what = format!("{}: frozen time, before over after", work.name);
        gains.push(gain(&what, frozen, section.before / section.after, 1.0, Unit::Ratio));
    }
    let name = format!("m1-{}", place.word());
    let title = format!("M1, {}: group records that did not change are not written", place.word());
    let section = Section::new(name, title, about, table).plot(plot);
    Measured { sections: vec![section], gains }
}

fn over(one: &[f64], other: &[f64]) -> Option<f64> {
    ratio(median(one.to_vec()), median(other.to_vec())).filter(|ratio| *ratio > 0.0)
}
