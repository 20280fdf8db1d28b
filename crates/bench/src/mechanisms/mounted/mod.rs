//! The five mechanisms through the mount: the same workloads with the calls of any program.
//!
//! The kernel's share of each call, and the way to the daemon and back, are in
//! these figures, the same in both positions: gains are smaller than in the
//! library. What a mechanism itself costs is read from the daemon's counters.

mod volume;
mod writes;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use holdfast::{Accounting, Batching, Dirty, RenameLog};
use holdfast_base::clock::{Deadline, Stopwatch};
use holdfast_base::prng::Prng;

use super::beside::Pair;
use super::{Measured, Mechanism, Place, Progress, Scale, m1, m2, m3, m4};
use crate::Counts;
use crate::counts::ratio;
use crate::work::{on_threads, pattern};

pub use volume::Mounts;
use volume::Volume;

const NODE: usize = 16384;
/// Threads of M1 and M3.
const JOBS: u64 = 4;

/// Measures `mechanism` through the mount, on volumes of `mounts`.
pub fn mount(
    mechanism: Mechanism,
    scale: Scale,
    mounts: &Mounts,
    seen: &mut Progress<'_>,
) -> io::Result<Measured> {
    match mechanism {
        Mechanism::M1 => group_records(scale, mounts, seen),
        Mechanism::M2 => renames(scale, mounts, seen),
        Mechanism::M3 => creates(scale, mounts, seen),
        Mechanism::M4 => pending(scale, mounts, seen),
        Mechanism::M5 => writes::measure(scale, mounts, seen),
    }
}

/// The first position of the switch first in every second round.
fn in_turn<T: Copy>(all: &[T], round: u64) -> Vec<T> {
    let mut all = all.to_vec();
    if round % 2 == 1 {
        all.reverse();
    }
    all
}

/// An empty file.
fn create(path: &Path) -> io::Result<()> {
    File::create_new(path).map(drop)
}

fn group_records(scale: Scale, mounts: &Mounts, seen: &mut Progress<'_>) -> io::Result<Measured> {
    let file_bytes = scale.pick(4u64, 512, 512) << 20;
    let commit = scale.pick(1, 1, 5);
    let mut work = m1::Work {
        name: "random writes of 4 KiB",
        always: m1::Runs::default(),
        changed: m1::Runs::default(),
    };
    for round in 0..scale.rounds() {
        for switch in in_turn(Accounting::ALL, round) {
            let options = format!("commit={commit},accounting={switch}");
            let volume = Volume::new(mounts, NODE, &options)?;
            let dir = volume.dir();
            volume.quiesce()?;
            let before = volume.counts()?;
            let time = Stopwatch::start();
            let until = Deadline::after(scale.time() * 4);
            let done = on_threads(JOBS, |job| {
                let file = File::create_new(dir.join(format!("job{job}")))?;
                file.set_len(file_bytes)?;
                let mut prng = Prng::seeded(job + 1);
                let chunk = pattern(4096);
                let mut done = 0u64;
                while !until.is_over() {
                    file.write_all_at(&chunk, prng.below(file_bytes >> 12) << 12)?;
                    done += 1;
                }
                file.sync_all()?;
                Ok(done)
            })?;
            let per_second = done.iter().sum::<u64>() as f64 / time.elapsed().as_secs_f64();
            let counts = volume.counts()?.since(&before);
            volume.end()?;
            seen(format!("M1 mount, random writes, {switch}: {per_second:.0}/s"));
            let runs =
                if switch == Accounting::Always { &mut work.always } else { &mut work.changed };
            runs.per_second.push(per_second);
            let mean = |nanos: u64| ratio(nanos as f64, counts.freezes() as f64);
            runs.frozen_ns.extend(mean(counts.frozen_ns));
            runs.groups_ns.extend(mean(counts.frozen_groups_ns));
            runs.carried.extend(counts.records_per_freeze());
            runs.skipped.push(counts.skipped_share());
        }
    }
    let about = format!(
        "{JOBS} threads, each writing 4 KiB at random into a file of {} MiB of its own through the page cache; runs of \
         {} s with a commit every {commit} s, {}.",
        file_bytes >> 20,
        scale.time().as_secs_f64() * 4.0,
        scale.rounds_text()
    );
    Ok(m1::measured(Place::Mount, &about, &[work]))
}

fn renames(scale: Scale, mounts: &Mounts, seen: &mut Progress<'_>) -> io::Result<Measured> {
    let sizes: &[u64] =
        scale.pick(&[50, 200], &[1_000, 5_000, 10_000], &[1_000, 2_000, 5_000, 10_000, 50_000]);
    let longest = scale.pick(60.0, 90.0, 400.0);
    let mut rows = Vec::new();
    // Files and seconds of the last size with whole directories.
    let mut last: Option<(u64, f64)> = None;
    for &files in sizes {
        let mut row = m2::Files { files, ..m2::Files::default() };
        let expected =
            last.map(|(before, seconds)| seconds * (files as f64 / before as f64).powi(2));
        let left_out = expected.filter(|seconds| *seconds > longest);
        row.why = left_out.map_or_else(String::new, |seconds| format!("about {seconds:.0} s"));
        for round in 0..scale.rounds() {
            for switch in in_turn(RenameLog::ALL, round) {
                if switch == RenameLog::Directory && left_out.is_some() {
                    continue;
                }
                let seconds = rename_all(mounts, files, switch)?;
                seen(format!("M2 mount, {files} files, {switch}: {seconds:.3} s"));
                match switch {
                    RenameLog::Directory => row.all_ns.before.push(seconds * 1e9),
                    RenameLog::Names => row.all_ns.after.push(seconds * 1e9),
                }
                if switch == RenameLog::Directory {
                    last = Some((files, seconds));
                }
            }
        }
        rows.push(row);
    }
    let about = format!(
        "Empty files in one directory, at their home; one more, an fsync of the directory, and all are renamed. The time \
         is that of all renames, {}.",
        scale.rounds_text()
    );
    Ok(m2::measured(Place::Mount, &about, &rows))
}

/// Seconds of all renames.
fn rename_all(mounts: &Mounts, files: u64, switch: RenameLog) -> io::Result<f64> {
    let mut volume = Volume::new(mounts, NODE, "commit=0")?;
    let dir = volume.dir().join("dir");
    std::fs::create_dir(&dir)?;
    let name = |what: &str, number: u64| dir.join(format!("{what}-{number}"));
    (0..files).try_for_each(|number| create(&name("file", number)))?;
    volume.again(&format!("commit=0,rename_log={switch}"))?;
    // The kernel knows all names, as after making them.
    (0..files).try_for_each(|number| std::fs::metadata(name("file", number)).map(drop))?;
    create(&dir.join("one more"))?;
    File::open(&dir)?.sync_all()?;
    let time = Stopwatch::start();
    (0..files)
        .try_for_each(|number| std::fs::rename(name("file", number), name("renamed", number)))?;
    let seconds = time.elapsed().as_secs_f64();
    File::open(&dir)?.sync_all()?;
    volume.end()?;
    Ok(seconds)
}

fn creates(scale: Scale, mounts: &Mounts, seen: &mut Progress<'_>) -> io::Result<Measured> {
    let files = scale.pick(200, 20_000, 100_000);
    let mut rows = m3::NODES.map(|node_size| m3::Creates { node_size, ..m3::Creates::default() });
    for round in 0..scale.rounds() {
        for row in &mut rows {
            for switch in in_turn(Dirty::ALL, round) {
                let volume =
                    Volume::new(mounts, row.node_size, &format!("commit=1,dirty={switch}"))?;
                let dir = volume.dir();
                let time = Stopwatch::start();
                on_threads(JOBS, |job| {
                    let dir = dir.join(format!("d{job}"));
                    std::fs::create_dir(&dir)?;
                    (0..files / JOBS)
                        .try_for_each(|number| create(&dir.join(format!("file-{number}"))))
                })?;
                let rate = files as f64 / time.elapsed().as_secs_f64();
                volume.end()?;
                seen(format!("M3 mount, nodes of {}, {switch}: {rate:.0}/s", row.node_size));
                match switch {
                    Dirty::Ranges => row.rate.after.push(rate),
                    Dirty::Bitmap => row.rate.before.push(rate),
                    Dirty::Whole => row.whole.push(rate),
                }
            }
        }
    }
    let about = format!(
        "{JOBS} threads create {files} empty files, each in a directory of its own, with a commit every second, {}.",
        scale.rounds_text()
    );
    Ok(m3::rates(Place::Mount, &about, &rows))
}

fn pending(scale: Scale, mounts: &Mounts, seen: &mut Progress<'_>) -> io::Result<Measured> {
    let sizes: &[(u64, u64)] = scale.pick(
        &[(2, 2), (8, 8)],
        &[(8, 8), (32, 32), (64, 64), (64, 1_024)],
        &[(8, 8), (32, 32), (64, 64), (64, 1_024), (64, 16_384)],
    );
    let mut rows = Vec::new();
    for &(dirs, files) in sizes {
        let mut row = m4::Files { dirs, files, ..m4::Files::default() };
        for round in 0..m4::rounds(scale, dirs * files).min(scale.pick(1, 5, 9)) {
            for switch in in_turn(Batching::ALL, round) {
                let (rate, counts) = create_pending(mounts, dirs, files, switch)?;
                seen(format!("M4 mount, {dirs} x {files} files, {switch}: {rate:.0}/s"));
                let format = ratio(counts.log_format_ns as f64, counts.log_records as f64);
                let add = |to: &mut Pair, value: f64| match switch {
                    Batching::Scan => to.before.push(value),
                    Batching::Indexed => to.after.push(value),
                };
                add(&mut row.rate, rate);
                if let Some(format) = format {
                    add(&mut row.format_ns, format);
                }
                row.records = counts.records_per_batch();
            }
        }
        rows.push(row);
    }
    let about = format!(
        "Empty files in several directories, nothing synced, then one fsync that has to log what is still pending; {}, \
         more of few files. The rate contains the fsync.",
        scale.rounds_text()
    );
    Ok(m4::measured(Place::Mount, &about, &rows))
}

/// Files per second, the fsync included, and what was counted.
fn create_pending(
    mounts: &Mounts,
    dirs: u64,
    files: u64,
    switch: Batching,
) -> io::Result<(f64, Counts)> {
    let volume = Volume::new(mounts, NODE, &format!("commit=0,batch={switch}"))?;
    let root = volume.dir();
    let dir = |number: u64| root.join(format!("d{number}"));
    (0..dirs).try_for_each(|number| std::fs::create_dir(dir(number)))?;
    volume.quiesce()?;
    let before = volume.counts()?;
    let time = Stopwatch::start();
    for number in 0..dirs {
        let dir = dir(number);
        (0..files).try_for_each(|file| create(&dir.join(format!("file-{file}"))))?;
    }
    // Of one that was made earlier a commit may have everything: the last one has all files before it.
    let last = dir(dirs - 1).join(format!("file-{}", files - 1));
    File::options().write(true).open(last)?.sync_all()?;
    let rate = (dirs * files) as f64 / time.elapsed().as_secs_f64();
    let counts = volume.counts()?.since(&before);
    volume.end()?;
    Ok((rate, counts))
}
