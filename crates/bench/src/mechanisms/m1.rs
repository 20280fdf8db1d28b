//! M1: group records that did not change are not written (`accounting=changed`).
//!
//! Two workloads, each for a fixed time under a commit timer: random writes of 4 KiB by several threads, each into a
//! file of its own, with so little memory for waiting data that every write soon goes to the device; and creates and
//! unlinks over many directories. What a commit costs is a mean over the run.
//!
//! Each runs once more with a checkpoint in place of every commit. A commit of ours only logs: of the nodes that it
//! logs none gets a new place before the next checkpoint. One of btrfs gives every node that changed a new place, so
//! that carrying a record takes and frees blocks itself, and visits groups again. A checkpoint does that, too.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdfast::{Accounting, VolumeOptions};
use holdfast_base::clock::{Deadline, Stopwatch};
use holdfast_base::prng::Prng;

use super::compare::{Better, Both, Comparison, Line, NODE, Pair, Ready, Wanted, in_rounds};
use super::{Bench, Measured, Scale, rounds_text};
use crate::counts::{Counts, median, ratio};
use crate::folder::Folder;
use crate::result::{Cell, Unit};
use crate::work::{on_threads, pattern, repeat};

/// Of btrfs, "do not update unchanged block group items": fio, 4 jobs with 512 MiB each, random direct writes of
/// 4 KiB, depth 64, 300 s, fsync at close. Nanoseconds of a commit's critical section; the authors give no unit.
const CRITICAL_SECTION: Both = (229_247_198.0, 215_000_000.0);
/// Of the same, the loop over block groups.
const GROUP_LOOP: Both = (23_133.0, 18_969.0);
/// Updates of a transaction: 2,062 in 101 transactions.
const RECORDS: f64 = 2_062.0 / 101.0;
/// Share of the updates that were skipped: the least and the most.
const SKIPPED: (f64, f64) = (0.4, 0.8);

/// Threads; for random writes each has a file.
const JOBS: u64 = 4;
/// Bytes of a write.
const WRITE: usize = 4096;
/// Written data that may wait: the least that the engine offers.
const DIRTY_BYTES: usize = 4 << 20;
/// Files that a thread keeps, so that it creates and unlinks alike.
const KEPT: usize = 2000;

struct Plan {
    file_bytes: u64,
    dirs: u64,
    time: Duration,
    commit_secs: u32,
}

/// Prepares below a directory, calls its last argument, and works until it is time; how many operations that were.
type Work = fn(&Folder, &Plan, &mut dyn FnMut() -> io::Result<()>) -> io::Result<u64>;

/// The workloads; whether each commit is a checkpoint.
const WORKS: [(&str, Work, bool); 4] = [
    ("random writes of 4 KiB", random_writes, false),
    ("random writes, each commit a checkpoint", random_writes, true),
    ("creates and unlinks", creates_and_unlinks, false),
    ("creates and unlinks, each commit a checkpoint", creates_and_unlinks, true),
];

struct Run {
    per_second: f64,
    counts: Counts,
}

impl Run {
    /// For each time that changers were frozen: once by each commit, whether it also began a checkpoint, wrote frames,
    /// or found the journal full and became a checkpoint.
    fn per_freeze(&self, value: u64) -> Option<f64> {
        let freezes = self.counts.get("commits") + self.counts.get("journal_full");
        ratio(value as f64, freezes as f64)
    }

    /// Records that were carried, and how many of them were skipped.
    fn records(&self) -> (u64, u64) {
        let skipped = self.counts.get("group_records_skipped");
        (self.counts.get("group_records_written") + skipped, skipped)
    }

    fn skipped_share(&self) -> f64 {
        let (carried, skipped) = self.records();
        ratio(skipped as f64, carried as f64).unwrap_or(0.0)
    }
}

/// The published job took 300 s, and some thirty commits fell into them.
fn plan(scale: Scale) -> (Plan, u64) {
    let usual =
        scale.pick(Duration::from_millis(600), Duration::from_secs(15), Duration::from_secs(60));
    let (time, commit_secs, rounds) = match scale {
        Scale::Published => (Duration::from_secs(300), 10, 1),
        _ => (usual, scale.pick(1, 1, 5), scale.rounds()),
    };
    let (file_bytes, dirs) = (scale.pick(4, 512, 512) << 20, scale.pick(20, 1000, 1000));
    (Plan { file_bytes, dirs, time, commit_secs }, rounds)
}

pub(super) fn run(bench: &mut Bench<'_>) -> io::Result<Measured> {
    let (plan, rounds) = plan(bench.scale);
    // The published job is the first of them, and takes long; a mount makes no checkpoints at will.
    let works = match bench.scale {
        _ if !bench.is_library() => &WORKS[..1],
        Scale::Published => &WORKS[..2],
        _ => &WORKS[..],
    };
    let (mut lines, mut gains) = (Vec::new(), Vec::new());
    for &(name, work, checkpoints) in works {
        let found = in_rounds(&[Accounting::Always, Accounting::Changed], rounds, |switch| {
            let run = one(bench, &plan, switch, work, checkpoints)?;
            bench.say(format_args!("M1, {name}, {switch}: {:.0}/s", run.per_second));
            Ok(run)
        })?;
        let ns = |name: &'static str| {
            let of = |run: &Run| run.per_freeze(run.counts.get(name)).unwrap_or(0.0);
            Pair::of(&found, of)
        };
        let (frozen, groups) = (ns("frozen_ns"), ns("frozen_groups_ns"));
        let rate = Pair::of(&found, |run| run.per_second);
        let carried: Vec<f64> =
            found[1].iter().filter_map(|run| run.per_freeze(run.records().0)).collect();
        let skipped: Vec<f64> = found[1].iter().map(Run::skipped_share).collect();
        let what = format!("{name}: group records skipped");
        let share = median(skipped.clone());
        let gain = bench.gain("M1", what, Some(share), SKIPPED.0, SKIPPED.0);
        gains.push(super::Gain { unit: Unit::Share, ..gain });
        let what = format!("{name}: frozen time, before over after");
        let published = Better::Less.published(CRITICAL_SECTION);
        gains.push(bench.gain("M1", what, frozen.shorter(), published, 1.0));
        let mut more = vec![Cell::of(&carried), Cell::of(&skipped)];
        more.extend(groups.cells(Better::Less));
        more.push(Cell::maybe(rate.faster()));
        let published = (lines.is_empty()).then_some(CRITICAL_SECTION);
        let (label, why) = (name.to_string(), String::new());
        lines.push(Line { label, x: 0.0, pair: frozen, published, why, more });
    }
    let others = match works.len() > 2 {
        true => format!("; then creates and unlinks in {} directories", plan.dirs),
        false => String::new(),
    };
    let about = format!(
        "{JOBS} threads, each writing 4 KiB at random into a file of {} MiB of its own{others}; runs of {} s with a \
         commit every {} s, {}. A mean freeze is what changers wait for a commit; the groups are a part of it. Most \
         records are carried before, while changers go on.",
        plan.file_bytes >> 20,
        plan.time.as_secs_f64(),
        plan.commit_secs,
        rounds_text(rounds)
    );
    let comparison = Comparison {
        key: format!("m1-{}", bench.place()),
        title: format!("M1, {}: group records that did not change are not written", bench.place()),
        about,
        label: "workload, frozen per commit",
        axes: None,
        words: ("always", "changed"),
        unit: Unit::Nanoseconds,
        better: Better::Less,
        lines,
    };
    let section = comparison.section(&[
        ("carried", "records of a commit", Unit::Count),
        ("skipped", "of them skipped", Unit::Share),
        ("groups-before", "groups per commit, before", Unit::Nanoseconds),
        ("groups-after", "after", Unit::Nanoseconds),
        ("groups-gain", "gain", Unit::Ratio),
        ("rate", "throughput, after over before", Unit::Ratio),
    ]);
    Ok(Measured { sections: vec![section.note(published())], gains })
}

/// What was published beside the time frozen, in words.
fn published() -> String {
    format!(
        "Published of random writes: {} records of a commit, {} to {} of them skipped; groups per commit {} before, {} \
         after.",
        Unit::Count.show(RECORDS),
        Unit::Share.show(SKIPPED.0),
        Unit::Share.show(SKIPPED.1),
        Unit::Nanoseconds.show(GROUP_LOOP.0),
        Unit::Nanoseconds.show(GROUP_LOOP.1)
    )
}

fn one(
    bench: &mut Bench<'_>,
    plan: &Plan,
    switch: Accounting,
    work: Work,
    checkpoints: bool,
) -> io::Result<Run> {
    let secs = if checkpoints { 0 } else { plan.commit_secs };
    let library =
        VolumeOptions::new().accounting(switch).commit_secs(secs).dirty_bytes(DIRTY_BYTES);
    let mount = format!("commit={secs},accounting={switch}");
    let bytes = (1 << 30) + 2 * JOBS * plan.file_bytes;
    let volume = bench.volume(Wanted { bytes, node_size: NODE, library, mount })?;
    let is_over = AtomicBool::new(false);
    let mut before = None;
    let (done, seconds) = std::thread::scope(|scope| {
        let every = Duration::from_secs(plan.commit_secs.into());
        let timer = match &volume {
            Ready::Library(volume) if checkpoints => {
                let engine = volume.engine()?;
                let is_over = &is_over;
                Some(scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        let next = Deadline::after(every);
                        while !next.is_over() && !is_over.load(Ordering::Relaxed) {
                            std::thread::sleep(Duration::from_millis(20));
                        }
                        engine.checkpoint().map_err(io::Error::other)?;
                    }
                    io::Result::Ok(())
                }))
            }
            _ => None,
        };
        let done = work(&volume.root(), plan, &mut || {
            volume.quiesce()?;
            before = Some((volume.counts()?, Stopwatch::start()));
            Ok(())
        });
        let seconds = before.as_ref().map_or(0.0, |(_, time)| time.elapsed().as_secs_f64());
        is_over.store(true, Ordering::Relaxed);
        if let Some(timer) = timer {
            timer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        io::Result::Ok((done?, seconds))
    })?;
    let before = before.map(|(counts, _)| counts).unwrap_or_default();
    let counts = volume.counts()?.since(&before);
    volume.end()?;
    Ok(Run { per_second: done as f64 / seconds.max(1e-9), counts })
}

fn random_writes(
    root: &Folder,
    plan: &Plan,
    begin: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<u64> {
    let file = |job| {
        let file = root.create(&format!("job{job}"))?;
        // A hole at first, as fio leaves it: the space is taken by the writes.
        file.set_len(plan.file_bytes)?;
        Ok(file)
    };
    let files = (0..JOBS).map(file).collect::<io::Result<Vec<_>>>()?;
    begin()?;
    let done = on_threads(JOBS, |job| {
        let file = &files[job as usize];
        let mut prng = Prng::seeded(1 + job);
        let mut chunk = pattern(WRITE);
        let done = repeat(plan.time, |number| {
            chunk[..8].copy_from_slice(&number.to_le_bytes());
            file.write_all_at(&chunk, prng.below(plan.file_bytes / WRITE as u64) * WRITE as u64)
        })?;
        file.sync_all()?;
        Ok(done)
    })?;
    Ok(done.iter().sum())
}

fn creates_and_unlinks(
    root: &Folder,
    plan: &Plan,
    begin: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<u64> {
    let dirs = (0..plan.dirs).map(|number| root.folder(&format!("d{number}")));
    let dirs = dirs.collect::<io::Result<Vec<_>>>()?;
    dirs.iter().try_for_each(|dir| {
        (0..4).try_for_each(|file| dir.create(&format!("old{file}")).map(drop))
    })?;
    begin()?;
    let done = on_threads(JOBS, |job| {
        let mut prng = Prng::seeded(1 + job);
        let mut kept: Vec<(&Folder, String)> = Vec::new();
        repeat(plan.time, |number| {
            if kept.len() < KEPT {
                let dir = prng.pick(&dirs);
                let name = format!("job{job}-{number}");
                drop(dir.create(&name)?);
                kept.push((dir, name));
            }
            // One more than half of the time when full, so that the number of files varies.
            if kept.len() >= KEPT || prng.one_in(2) && kept.len() > KEPT / 2 {
                let at = prng.below(kept.len() as u64) as usize;
                let (dir, name) = kept.swap_remove(at);
                dir.unlink(&name)?;
            }
            Ok(())
        })
    })?;
    Ok(done.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanisms::compare::tests::in_memory;

    #[test]
    fn all_workloads_run_under_both_positions() {
        let (file_bytes, dirs, time) = (1 << 20, 5, Duration::from_millis(60));
        let plan = Plan { file_bytes, dirs, time, commit_secs: 0 };
        for (name, work, checkpoints) in WORKS {
            for &accounting in Accounting::ALL {
                let run = in_memory(|bench| one(bench, &plan, accounting, work, checkpoints));
                assert!(run.per_second > 0.0, "{name}");
                assert_eq!(run.counts.get("checkpoints") > 0, checkpoints, "{name}");
                // Only commits use the switch.
                if accounting == Accounting::Always {
                    assert_eq!(run.records().1, 0, "always means always: {name}");
                }
            }
        }
    }
}
