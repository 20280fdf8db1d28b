//! M5: an fsync waits for its own data only (`fsync_wait=writeback`).
//!
//! Two workloads of many threads, each with a file of its own, as it was published: sequential writes of 64 KiB with an
//! fsync after each, and random writes of 4 KiB with an fsync after every sixteenth. Files are full and committed
//! before. A run takes a fixed time.

use std::io;
use std::os::unix::fs::FileExt;

use holdfast::{FsyncWait, VolumeOptions};
use holdfast_base::clock::Stopwatch;
use holdfast_base::prng::Prng;

use super::compare::{Better, Both, Comparison, Line, NODE, Pair, Wanted, in_rounds};
use super::{Bench, Measured, Scale};
use crate::result::Unit;
use crate::work::{fill, on_threads, pattern, repeat};

/// What a thread does.
struct Work {
    key: &'static str,
    name: &'static str,
    /// Bytes of a write.
    write: u64,
    writes_per_fsync: u64,
    /// At random offsets, or one after the other.
    random: bool,
    /// Of btrfs, "fast fsync only waits for writeback": jobs, and MiB/s.
    published: [(u64, Both); 7],
    aim: f64,
}

const WORKS: [Work; 2] = [
    Work {
        key: "sequential",
        name: "sequential 64 KiB, fsync after each",
        write: 64 << 10,
        writes_per_fsync: 1,
        random: false,
        published: [
            (1, (36.6, 40.2)),
            (2, (35.8, 43.5)),
            (4, (50.1, 64.5)),
            (8, (64.0, 86.8)),
            (16, (79.8, 107.0)),
            (32, (93.2, 111.0)),
            (64, (108.0, 133.0)),
        ],
        aim: 1.35,
    },
    Work {
        key: "random",
        name: "random 4 KiB, fsync after 16",
        write: 4 << 10,
        writes_per_fsync: 16,
        random: true,
        published: [
            (1, (11.5, 11.6)),
            (2, (12.8, 13.1)),
            (4, (15.4, 17.8)),
            (8, (19.9, 22.2)),
            (16, (29.3, 30.4)),
            (32, (36.9, 41.6)),
            (64, (45.9, 48.8)),
        ],
        aim: 1.0,
    },
];

pub(super) fn run(bench: &mut Bench<'_>) -> io::Result<Measured> {
    let scale = bench.scale;
    let jobs: &[u64] = match (scale, bench.is_library()) {
        (Scale::Quick, true) => &[1, 8],
        (Scale::Quick, false) => &[1, 4],
        (Scale::Usual, false) => &[1, 8, 32],
        _ => &[1, 2, 4, 8, 16, 32, 64],
    };
    let file_bytes = scale.pick(1u64, 16, 16) << 20;
    let about = format!(
        "Each job a thread with a full file of {} MiB of its own; runs of {} s, {}.",
        file_bytes >> 20,
        scale.time().as_secs_f64(),
        bench.rounds_text()
    );
    let mut measured = Measured::default();
    for work in &WORKS {
        let mut lines = Vec::new();
        for &jobs in jobs {
            let positions = [FsyncWait::Completion, FsyncWait::Writeback];
            let found = in_rounds(&positions, scale.rounds(), |wait| {
                let rate = writes(bench, wait, work, jobs, file_bytes)?;
                bench.say(format_args!("M5, {}, {jobs} jobs, {wait}: {rate:.1} MiB/s", work.name));
                Ok(rate)
            })?;
            let published = work.published.iter().find(|(of, _)| *of == jobs);
            lines.push(Line {
                label: jobs.to_string(),
                x: jobs as f64,
                pair: Pair::of(&found, |rate| *rate),
                published: published.map(|(_, both)| *both),
                why: String::new(),
                more: Vec::new(),
            });
        }
        // The published best is with 8 jobs; where that was not measured, the most jobs.
        let line = lines.iter().find(|line| line.x == 8.0).or(lines.last());
        let published = Better::More.published(work.published[3].1);
        measured.gains.extend(line.map(|line| {
            let what = format!("{}, {} jobs, MiB/s after over before", work.name, line.label);
            bench.gain("M5", what, line.pair.faster(), published, work.aim)
        }));
        let comparison = Comparison {
            key: format!("m5-{}-{}", bench.place(), work.key),
            title: format!("M5, {}: an fsync waits for its own data; {}", bench.place(), work.name),
            about: about.clone(),
            label: "jobs",
            axes: Some(("jobs", work.name)),
            words: ("completion", "writeback"),
            unit: Unit::MibPerSecond,
            better: Better::More,
            lines,
        };
        measured.sections.push(comparison.section(&[]));
    }
    Ok(measured)
}

/// MiB written per second by `jobs` threads, each in a file of `file_bytes`.
fn writes(
    bench: &mut Bench<'_>,
    wait: FsyncWait,
    work: &Work,
    jobs: u64,
    file_bytes: u64,
) -> io::Result<f64> {
    let time = bench.scale.time();
    let volume = bench.volume(Wanted {
        // The files, what replaces them between two commits, and room.
        bytes: (3 << 30) + 3 * jobs * file_bytes,
        node_size: NODE,
        library: VolumeOptions::new().fsync_wait(wait),
        mount: format!("fsync_wait={wait}"),
    })?;
    let root = volume.root();
    let files = on_threads(jobs, |job| {
        let file = root.create(&format!("job{job}"))?;
        fill(&file, file_bytes)?;
        Ok(file)
    })?;
    volume.quiesce()?;
    let watch = Stopwatch::start();
    let places = (file_bytes / work.write).max(1);
    let fsyncs = on_threads(jobs, |job| {
        let file = &files[job as usize];
        let (mut prng, mut chunk) = (Prng::seeded(1 + job), pattern(work.write as usize));
        repeat(time, |fsyncs| {
            for more in 0..work.writes_per_fsync {
                let written = fsyncs * work.writes_per_fsync + more;
                chunk[..8].copy_from_slice(&written.to_le_bytes());
                let place = if work.random { prng.below(places) } else { written % places };
                file.write_all_at(&chunk, place * work.write)?;
            }
            file.sync_all()
        })
    })?;
    let seconds = watch.elapsed().as_secs_f64().max(1e-9);
    drop((files, root));
    volume.end()?;
    let written = fsyncs.iter().sum::<u64>() * work.writes_per_fsync * work.write;
    Ok(written as f64 / f64::from(1 << 20) / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanisms::compare::tests::in_memory;

    #[test]
    fn both_workloads_write_in_both_positions() {
        for work in &WORKS {
            for &wait in FsyncWait::ALL {
                let rate = in_memory(|bench| writes(bench, wait, work, 3, 1 << 20));
                assert!(rate > 0.0, "{}, {wait}", work.name);
            }
        }
    }
}
