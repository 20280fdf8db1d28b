//! The floor of a workload: what the device below does without a filesystem, with direct I/O.
//!
//! A floor writes or reads as many bytes as the workload's operation has to, and flushes as often as
//! that has promises to keep. Nothing can be faster on the same device, except what never reaches it.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use holdfast_base::prng::Prng;
use holdfast_device::AlignedBuf;

use super::Scale;
use super::run::{Host, Phase, Reading, Run, Unit};
use crate::counts::Counts;
use crate::systems::Bed;

/// What stands for one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Floor {
    /// Bytes of a call.
    bytes: usize,
    /// Calls before a flush; 0: there is none.
    per_flush: u64,
    /// How often that is done for one operation.
    times: u64,
    is_read: bool,
    is_random: bool,
}

const PLAIN: Floor =
    Floor { bytes: 4096, per_flush: 1, times: 1, is_read: false, is_random: false };

/// By how its name begins.
const FLOORS: &[(&str, Floor)] = &[
    ("create 4 KiB + fsync", PLAIN),
    ("append 4 KiB + fsync", PLAIN),
    ("SQLite WAL", PLAIN),
    ("safe-save", Floor { times: 2, ..PLAIN }),
    ("maildir delivery", Floor { times: 2, ..PLAIN }),
    ("write 64 KiB + fsync", Floor { bytes: 64 << 10, ..PLAIN }),
    ("write 4 KiB at random, fsync after 16", Floor { per_flush: 16, is_random: true, ..PLAIN }),
    ("write 1 MiB after the other", Floor { bytes: 1 << 20, per_flush: 0, ..PLAIN }),
    (
        "read 1 MiB after the other, cold",
        Floor { bytes: 1 << 20, per_flush: 0, is_read: true, ..PLAIN },
    ),
    ("read 4 KiB at random, cold", Floor { per_flush: 0, is_read: true, is_random: true, ..PLAIN }),
];

/// The floor of a phase, if it has one: what leaves fsyncs out need not reach the device at all.
pub(super) fn floor_of(phase: &str) -> Option<Floor> {
    let durable = !phase.ends_with("left out");
    let found = FLOORS.iter().find(|(name, _)| durable && phase.starts_with(name));
    found.map(|(_, floor)| *floor)
}

/// The device of a bed as a host.
struct Bare<'a>(&'a Bed);

impl Host for Bare<'_> {
    fn dir(&self) -> &Path {
        self.0.device()
    }

    fn quiesce(&self) -> io::Result<()> {
        Ok(())
    }

    fn cool(&self) -> io::Result<Result<(), String>> {
        Ok(Ok(()))
    }

    fn reading(&self) -> io::Result<Reading> {
        Reading::now(None, Some(self.0.asked()?))
    }

    fn counts(&self) -> io::Result<Option<Counts>> {
        Ok(None)
    }
}

/// Measures the floors of `phases` on `bed`, which has no filesystem any more then.
pub(crate) fn on_bed(bed: &Bed, scale: &Scale, phases: &[Phase]) -> io::Result<Vec<Phase>> {
    let host = Bare(bed);
    let mut run = Run::new(&host, scale, bed.device().to_path_buf(), true);
    for phase in phases.iter().filter(|phase| phase.skipped.is_none()) {
        if let Some(floor) = floor_of(&phase.name) {
            one(&mut run, bed, phase, floor)?;
        }
    }
    Ok(run.phases())
}

fn one(run: &mut Run<'_>, bed: &Bed, phase: &Phase, floor: Floor) -> io::Result<()> {
    let jobs = phase.jobs.max(1);
    let places = bed.bytes() / jobs / floor.bytes as u64;
    let seed = run.scale().seed;
    let (counts_bytes, bytes) = (phase.unit == Unit::Bytes, floor.bytes as u64);
    run.repeat(&phase.name, phase.unit, jobs, |job| {
        let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
        let mut options = File::options();
        let file = options.read(true).write(true).custom_flags(direct).open(bed.device())?;
        let mut buffer = AlignedBuf::copy_of(&crate::work::pattern(floor.bytes));
        let mut prng = Prng::seeded(seed + job);
        let mut done = 0u64;
        Ok(move || {
            for _ in 0..floor.times {
                for _ in 0..floor.per_flush.max(1) {
                    let place = if floor.is_random { prng.below(places) } else { done % places };
                    let at = (job * places + place) * bytes;
                    match floor.is_read {
                        true => file.read_exact_at(&mut buffer, at)?,
                        false => file.write_all_at(&buffer, at)?,
                    }
                    done += 1;
                }
                if floor.per_flush > 0 {
                    file.sync_data()?;
                }
            }
            let moved = floor.times * floor.per_flush.max(1) * bytes;
            Ok(Some(if counts_bytes { moved } else { 1 }))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_must_reach_the_device_has_a_floor() {
        assert_eq!(floor_of("create 4 KiB + fsync, 16 threads"), Some(PLAIN));
        assert_eq!(floor_of("create 4 KiB + fsync, 16 threads, fsync left out"), None);
        assert_eq!(floor_of("create 4 KiB, 16 threads"), None);
        assert_eq!(floor_of("safe-save (tmp, fsync, rename, fsync dir)").unwrap().times, 2);
        assert_eq!(floor_of("read 1 MiB after the other, warm"), None);
    }
}
