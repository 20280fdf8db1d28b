//! M5 through the mount: writes with fsyncs by many threads.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use holdfast::FsyncWait;
use holdfast_base::clock::{Deadline, Stopwatch};
use holdfast_base::prng::Prng;

use super::volume::{Mounts, Volume};
use super::{NODE, in_turn};
use crate::fsync;
use crate::mechanisms::{Measured, Place, Progress, Scale, m5};
use crate::work::{on_threads, pattern};

/// Key, bytes of a write, writes for each fsync, whether places are chosen.
const WORKS: [(&str, usize, u64, bool); 2] =
    [("sequential", 64 << 10, 1, false), ("random", 4 << 10, 16, true)];

pub(super) fn measure(
    scale: Scale,
    mounts: &Mounts,
    seen: &mut Progress<'_>,
) -> io::Result<Measured> {
    let file_bytes = scale.pick(1u64, 16, 16) << 20;
    let jobs: &[u64] = scale.pick(&[1, 4], &[1, 8, 32], &[1, 2, 4, 8, 16, 32, 64]);
    let mut works = Vec::new();
    for ((key, write, writes, is_random), name) in WORKS.into_iter().zip(fsync::names()) {
        let mut work = m5::Work { key, name, rows: Vec::new() };
        for &jobs in jobs {
            let mut row = m5::Jobs { jobs, ..m5::Jobs::default() };
            for round in 0..scale.rounds() {
                for switch in in_turn(FsyncWait::ALL, round) {
                    let volume = Volume::new(mounts, NODE, &format!("fsync_wait={switch}"))?;
                    let dir = volume.dir();
                    let files = on_threads(jobs, |job| full(&dir, job, file_bytes))?;
                    volume.settle()?;
                    let time = Stopwatch::start();
                    let until = Deadline::after(scale.time());
                    let written = on_threads(jobs, |job| {
                        let task = Task { write, writes, is_random, file_bytes, until };
                        task.run(&files[job as usize], Prng::seeded(job + 1))
                    })?;
                    let seconds = time.elapsed().as_secs_f64();
                    drop(files);
                    volume.end()?;
                    let rate = written.iter().sum::<u64>() as f64 / f64::from(1 << 20) / seconds;
                    seen(format!("M5 mount, {name}, {jobs} jobs, {switch}: {rate:.1} MiB/s"));
                    match switch {
                        FsyncWait::Completion => row.rate.before.push(rate),
                        FsyncWait::Writeback => row.rate.after.push(rate),
                    }
                }
            }
            work.rows.push(row);
        }
        works.push(work);
    }
    let about = format!(
        "Each job a thread with a full file of {} MiB of its own; runs of {} s, {}.",
        file_bytes >> 20,
        Duration::as_secs_f64(&scale.time()),
        scale.rounds_text()
    );
    Ok(m5::measured(Place::Mount, &about, &works))
}

fn full(dir: &Path, job: u64, bytes: u64) -> io::Result<File> {
    let file = File::options().write(true).create_new(true).open(dir.join(format!("job{job}")))?;
    let chunk = pattern(1 << 20);
    (0..bytes >> 20).try_for_each(|number| file.write_all_at(&chunk, number << 20))?;
    Ok(file)
}

/// What a thread does until it is time.
struct Task {
    write: usize,
    writes: u64,
    is_random: bool,
    file_bytes: u64,
    until: Deadline,
}

impl Task {
    /// Bytes written; at least one fsync.
    fn run(&self, file: &File, mut prng: Prng) -> io::Result<u64> {
        let mut chunk = pattern(self.write);
        let places = (self.file_bytes / self.write as u64).max(1);
        let mut count: u64 = 0;
        while count == 0 || !self.until.is_over() {
            for _ in 0..self.writes {
                chunk[..8].copy_from_slice(&count.to_le_bytes());
                let place = if self.is_random { prng.below(places) } else { count % places };
                file.write_all_at(&chunk, place * self.write as u64)?;
                count += 1;
            }
            file.sync_all()?;
        }
        Ok(count * self.write as u64)
    }
}
