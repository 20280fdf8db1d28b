//! Operations by many threads, each in a directory and a file of its own, or with names of its own.

use std::io;

use holdfast::VolumeOptions;
use holdfast_base::clock::{Deadline, Stopwatch};

use super::curves::Curves;
use crate::mechanisms::{Devices, Progress, Scale, rounds_text};
use crate::result::{Section, Unit};
use crate::undo::interrupted;
use crate::work::{fill_dirs, on_threads, pattern, quiesce};

/// Bytes of an append.
const APPEND: usize = 4096;
/// A run by time ends earlier after so many operations of a thread: space is not endless.
const MOST: u64 = 100_000;

/// What the threads do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Create,
    AppendAndFsync,
    Fork,
}

impl Operation {
    const ALL: [Operation; 3] = [Operation::Create, Operation::AppendAndFsync, Operation::Fork];

    fn title(self) -> &'static str {
        match self {
            Operation::Create => "create",
            Operation::AppendAndFsync => "append 4 KiB + fsync",
            Operation::Fork => "fork of one snapshot, durable",
        }
    }
}

pub(super) fn run(
    scale: Scale,
    devices: &mut Devices<'_>,
    seen: &mut Progress<'_>,
) -> io::Result<Section> {
    let threads: &[u64] = scale.pick(&[1, 4], &[1, 2, 4, 8, 16, 32, 64], &[1, 2, 4, 8, 16, 32, 64]);
    let time = scale.time() / 3;
    let mut curves = Curves::new("scaling-threads", "Threads at work", "threads", Unit::Count);
    for round in 0..scale.rounds() {
        for &threads in threads {
            for operation in Operation::ALL {
                let device = devices(32 << 30)?;
                crate::new_volume().format(&device)?;
                let volume = VolumeOptions::new().open_device(device.clone())?;
                let dirs = fill_dirs(&volume, threads, 1)?;
                let base = volume.branch("main")?.snapshot("base")?;
                quiesce(&volume)?;
                let before = device.stats().written_bytes;
                let watch = Stopwatch::start();
                let until = Deadline::after(time);
                let done = on_threads(threads, |thread| {
                    let dir = &dirs[thread as usize];
                    let chunk = pattern(APPEND);
                    let file = dir.create("appended")?;
                    let mut done = 0;
                    while done == 0 || (done < MOST && !until.is_over()) {
                        interrupted()?;
                        match operation {
                            Operation::Create => drop(dir.create(format!("file-{done}"))?),
                            Operation::AppendAndFsync => {
                                file.write_all_at(&chunk, done * APPEND as u64)?;
                                file.sync_all()?;
                            }
                            Operation::Fork => drop(base.fork(&format!("{thread}-{done}"))?),
                        }
                        done += 1;
                    }
                    Ok(done)
                })?;
                let nanos = watch.nanos() as f64;
                drop((dirs, base));
                volume.commit()?;
                let bytes = (device.stats().written_bytes - before) as f64;
                volume.abandon();
                let done = done.iter().sum::<u64>() as f64;
                curves.add(operation.title(), threads as f64, nanos / done, bytes / done);
            }
            seen(format!("threads: round {}, {threads}", round + 1));
        }
    }
    let about = format!(
        "In memory, where a flush costs nothing; runs of {} s, {}. The time is that of all threads together over their \
         operations, so that it falls while more threads do more.",
        time.as_secs_f64(),
        rounds_text(scale.rounds())
    );
    Ok(curves.section(&about))
}
