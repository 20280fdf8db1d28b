//! M5: an fsync waits for its own data only (`fsync_wait=writeback`).

use std::io;

use holdfast::FsyncWait;

use super::beside::{self, Better, Pair, points};
use super::published::{self, Both};
use super::workloads::fsyncs::{self, WORKS};
use super::workloads::in_rounds;
use super::{Devices, Gain, Measured, Mechanism, Place, Progress, Scale};
use crate::result::{Axis, Plot, Section, Series, Unit};

/// MiB per second with one number of jobs.
#[derive(Clone, Debug, Default)]
pub(super) struct Jobs {
    pub(super) jobs: u64,
    pub(super) rate: Pair,
}

/// One workload.
#[derive(Clone, Debug)]
pub(super) struct Work {
    /// Key.
    pub(super) key: &'static str,
    pub(super) name: &'static str,
    pub(super) rows: Vec<Jobs>,
}

pub(super) fn jobs(scale: Scale) -> Vec<u64> {
    scale.pick(vec![1, 8], vec![1, 2, 4, 8, 16, 32, 64], vec![1, 2, 4, 8, 16, 32, 64])
}

pub(super) fn library(
    scale: Scale,
    devices: &mut Devices<'_>,
    seen: &mut Progress<'_>,
) -> io::Result<Measured> {
    let file_bytes: u64 = scale.pick(1, 16, 16) << 20;
    let jobs = jobs(scale);
    let bytes = fsyncs::device_bytes(jobs.iter().copied().max().unwrap_or(0), file_bytes);
    // All kinds take turns, positions side by side.
    let mut kinds = Vec::new();
    for at in 0..WORKS.len() {
        for &jobs in &jobs {
            kinds.extend([(at, jobs, FsyncWait::Writeback), (at, jobs, FsyncWait::Completion)]);
        }
    }
    let found = in_rounds(&kinds, scale.rounds(), |(at, jobs, wait)| {
        let work = &WORKS[at];
        let rate = fsyncs::run(devices(bytes)?, wait, work, jobs, file_bytes, scale.time())?;
        seen(format!("M5 library, {}, {jobs} jobs, {wait}: {rate:.1} MiB/s", work.name));
        Ok(rate)
    })?;
    let mut works = WORKS.map(|work| Work { key: work.key, name: work.name, rows: Vec::new() });
    for (kinds, rates) in kinds.chunks(2).zip(found.chunks(2)) {
        let (at, jobs, _) = kinds[0];
        let rate = Pair { before: rates[1].clone(), after: rates[0].clone() };
        works[at].rows.push(Jobs { jobs, rate });
    }
    let about = about(file_bytes, scale);
    Ok(measured(Place::Library, &about, &works))
}

/// How it was measured, in words.
pub(super) fn about(file_bytes: u64, scale: Scale) -> String {
    format!(
        "Each job a thread with a full file of {} MiB of its own; runs of {} s, {}.",
        file_bytes >> 20,
        scale.time().as_secs_f64(),
        scale.rounds_text()
    )
}

/// The sections and the gains of what was measured.
pub(super) fn measured(place: Place, about: &str, works: &[Work]) -> Measured {
    let mut measured = Measured::default();
    for work in works {
        let (table, aim): (&[(u64, Both)], f64) = match work.key {
            "sequential" => (published::SEQUENTIAL, 1.35),
            _ => (published::RANDOM, 1.0),
        };
        measured.sections.push(section(place, about, work, table));
        // The published best is with 8 jobs; where that was not measured, the most jobs.
        let row = work.rows.iter().find(|row| row.jobs == 8).or(work.rows.last());
        let published = published::of(table, 8).map_or(1.0, |both| Better::More.published(both));
        measured.gains.extend(row.map(|row| Gain {
            mechanism: Mechanism::M5,
            place,
            what: format!("{}, {} jobs, MiB/s after over before", work.name, row.jobs),
            ours: row.rate.faster(),
            published,
            aim,
            unit: Unit::Ratio,
        }));
    }
    measured
}

fn section(place: Place, about: &str, work: &Work, published: &[(u64, Both)]) -> Section {
    let words = (FsyncWait::Completion.word(), FsyncWait::Writeback.word());
    let mut table = beside::table("jobs", words, Unit::MibPerSecond);
    for row in &work.rows {
        let beside = published::of(published, row.jobs);
        table.push(beside::row(row.jobs.to_string(), &row.rate, Better::More, beside, ""));
    }
    let line =
        |of: fn(&Jobs) -> &Vec<f64>| points(work.rows.iter().map(|row| (row.jobs, &of(row)[..])));
    let of_published = |of: fn(Both) -> f64| {
        published.iter().map(|(jobs, both)| (*jobs as f64, of(*both))).collect()
    };
    let x = Axis::log("jobs", Unit::Count);
    let y = Axis::log("written", Unit::MibPerSecond);
    let plot = Plot::new(format!("MiB/s against jobs: {}", work.name), x, y)
        .series(Series::new("before: completion", line(|row| &row.rate.before)))
        .series(Series::new("after: writeback", line(|row| &row.rate.after)))
        .series(Series::new("published, before", of_published(|both| both.before)).dashed())
        .series(Series::new("published, after", of_published(|both| both.after)).dashed());
    let name = format!("m5-{}-{}", place.word(), work.key);
    let title = format!("M5, {}: an fsync waits for its own data; {}", place.word(), work.name);
    Section::new(name, title, about, table).plot(plot)
}
