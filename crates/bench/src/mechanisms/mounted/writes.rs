//! M5 through the mount: writes with fsyncs by many threads.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use holdfast::FsyncWait;
use holdfast_base::clock::{Deadline, Stopwatch};
use holdfast_base::prng::Prng;

use super::volume::{Mounts, Volume};
use super::{NODE, in_turn};
use crate::mechanisms::workloads::fsyncs::{WORKS, write};
use crate::mechanisms::{Measured, Place, Progress, Scale, m5};
use crate::work::{on_threads, pattern};

pub(super) fn measure(
    scale: Scale,
    mounts: &Mounts,
    seen: &mut Progress<'_>,
) -> io::Result<Measured> {
    let file_bytes = scale.pick(1u64, 16, 16) << 20;
    let all: &[u64] = &[1, 2, 4, 8, 16, 32, 64];
    let jobs: &[u64] = match scale {
        Scale::Quick => &[1, 4],
        Scale::Usual => &[1, 8, 32],
        Scale::Full | Scale::Published => all,
    };
    let mut works = Vec::new();
    for task in &WORKS {
        let name = task.name;
        let mut work = m5::Work { key: task.key, name, rows: Vec::new() };
        for &jobs in jobs {
            let mut row = m5::Jobs { jobs, ..m5::Jobs::default() };
            for round in 0..scale.rounds() {
                for switch in in_turn(FsyncWait::ALL, round) {
                    let volume = Volume::new(mounts, NODE, &format!("fsync_wait={switch}"))?;
                    let dir = volume.dir();
                    let files = on_threads(jobs, |job| full(&dir, job, file_bytes))?;
                    volume.quiesce()?;
                    let time = Stopwatch::start();
                    let until = Deadline::after(scale.time());
                    let written = on_threads(jobs, |job| {
                        write(&files[job as usize], task, file_bytes, Prng::seeded(1 + job), &until)
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
    let about = m5::about(file_bytes, scale);
    Ok(m5::measured(Place::Mount, &about, &works))
}

fn full(dir: &Path, job: u64, bytes: u64) -> io::Result<File> {
    let file = File::options().write(true).create_new(true).open(dir.join(format!("job{job}")))?;
    let chunk = pattern(1 << 20);
    (0..bytes >> 20).try_for_each(|number| file.write_all_at(&chunk, number << 20))?;
    Ok(file)
}
