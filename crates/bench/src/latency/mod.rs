//! How long an fsync takes, alone and while others are busy on the same volume.
//!
//! One thread appends 4 KiB and calls fsync, again and again, and every call is
//! measured. Beside it, in stages that take turns round after round: nothing;
//! creates without fsync under commits and checkpoints that never pause; a
//! stranger that writes and fsyncs large files; a stranger that renames large
//! files over old ones without any fsync. All on one volume, so that the stages
//! differ in nothing else. In the same rounds a second device of the same kind is
//! written without any filesystem, alone and beside large writes: what it makes
//! a small write wait is not the volume's doing. Each stage ends quietly.

mod others;
mod report;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdfast::{CreateOptions, Receipt, Volume, VolumeOptions};
use holdfast_base::clock::{Deadline, Stopwatch};
use holdfast_device::Device;

use crate::Counts;
use crate::work::{pattern, settle};
use others::Others;
use report::{Phase, Sample};
pub use report::{Row, Split};

/// Bytes of an append.
const APPEND: usize = 4096;
/// Appends that are not measured before each phase.
const WARM_UP: u64 = 20;
/// Directories that creates are spread over.
const DIRS: u64 = 20;
/// Ends of the ranges in [`Row::shares`], in medians of the stage without others.
pub const BOUNDS: [f64; 6] = [1.25, 1.5, 2.0, 3.0, 5.0, 10.0];
/// Bytes of the device that is written without a filesystem.
pub const BARE_BYTES: u64 = 256 << 20;
/// Its first bytes, for small writes; the rest is for large ones.
const SMALL_BYTES: u64 = 64 << 20;

/// What is measured, and what goes on beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The bare device: 4 KiB and a flush.
    Bare,
    /// The same beside large writes.
    BareWrites,
    /// Append and fsync, and nothing beside it.
    Alone,
    /// Beside creates and small writes without fsync, commits and checkpoints.
    Commits,
    /// Beside large files, each written and fsynced.
    Fsyncs,
    /// Beside large files, each written and renamed over an old one.
    Renames,
}

impl Stage {
    /// In the order of the table.
    pub const ALL: [Stage; 6] = [
        Stage::Bare,
        Stage::BareWrites,
        Stage::Alone,
        Stage::Commits,
        Stage::Fsyncs,
        Stage::Renames,
    ];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Bare => "bare device, alone",
            Stage::BareWrites => "bare device, large writes",
            Stage::Alone => "alone",
            Stage::Commits => "commits and checkpoints",
            Stage::Fsyncs => "large files, fsynced",
            Stage::Renames => "large files, renamed over old",
        }
    }

    /// What [`Row::done`] counts.
    pub fn unit(self) -> &'static str {
        match self {
            Stage::Bare | Stage::Alone => "",
            Stage::BareWrites => "MiB",
            Stage::Commits => "checkpoints",
            Stage::Fsyncs => "files",
            Stage::Renames => "renames",
        }
    }

    fn is_bare(self) -> bool {
        matches!(self, Stage::Bare | Stage::BareWrites)
    }

    /// The stage that it is compared with.
    fn alone(self) -> Stage {
        if self.is_bare() { Stage::Bare } else { Stage::Alone }
    }
}

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Turns of all stages.
    pub rounds: usize,
    /// How long a phase takes: one stage in one round.
    pub time: Duration,
    /// Bytes of a file that is fsynced.
    pub large_bytes: u64,
    /// Bytes of a file that is renamed.
    pub renamed_bytes: u64,
    /// How long a recovery may take: less means more checkpoints.
    pub recover: Duration,
}

impl Plan {
    /// Bytes of a volume with room for everything.
    pub fn volume_bytes(&self) -> u64 {
        2 * self.large_bytes + 4 * self.renamed_bytes + (1 << 30)
    }
}

/// Runs all stages on a volume on `device`, and on `bare`, which has [`BARE_BYTES`]; the content of both is
/// lost. `seen` is told of each phase and its p99 in nanoseconds.
pub fn run(
    plan: &Plan,
    device: Arc<dyn Device>,
    bare: &dyn Device,
    mut seen: impl FnMut(usize, Stage, u64),
) -> io::Result<Vec<Row>> {
    CreateOptions::new().format(&device)?;
    let options = VolumeOptions::new().commit_secs(1).recover(plan.recover);
    let volume = options.open_device(device)?;
    (0..DIRS).try_for_each(|dir| volume.create_dir(format!("/d{dir}")))?;
    let mut sums = Stage::ALL.map(|_| Phase::new());
    for round in 0..plan.rounds {
        for turn in 0..Stage::ALL.len() {
            // Another one first in each round.
            let at = (turn + round) % Stage::ALL.len();
            let stage = Stage::ALL[at];
            let phase = one(&volume, bare, plan, stage)?;
            seen(round, stage, phase.p99());
            sums[at].add(phase);
        }
    }
    volume.close()?;
    let of = |wanted| Stage::ALL.iter().zip(&sums).find(|(stage, _)| **stage == wanted);
    let row = |(stage, phase): (&Stage, &Phase)| {
        let (_, alone) = of(stage.alone()).expect("every stage has its sum");
        phase.row(*stage, alone)
    };
    Ok(Stage::ALL.iter().zip(&sums).map(row).collect())
}

/// One phase, and the way back to a quiet volume.
fn one(volume: &Volume, bare: &dyn Device, plan: &Plan, stage: Stage) -> io::Result<Phase> {
    let others = Others::new(volume, bare, plan);
    let mut phase = Phase::new();
    std::thread::scope(|scope| -> io::Result<()> {
        let others = &others;
        let threads: Vec<_> =
            Others::of(stage).into_iter().map(|work| scope.spawn(move || work(others))).collect();
        let ended = || threads.iter().all(|thread| thread.is_finished());
        let measured = match stage.is_bare() {
            true => writes(others, &mut phase, ended),
            false => appends(others, &mut phase, ended),
        };
        others.stop();
        for thread in threads {
            thread.join().expect("a stranger does not panic")?;
        }
        measured
    })?;
    for name in ["/log", "/large", "/new", "/old"] {
        match volume.remove_file(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    settle(volume)?;
    Ok(phase)
}

/// Appends to a file of the volume.
fn appends(others: &Others<'_>, phase: &mut Phase, ended: impl Fn() -> bool) -> io::Result<()> {
    let chunk = pattern(APPEND);
    let file = others.volume.create("/log")?;
    measure(others, phase, ended, |number| {
        let time = Stopwatch::start();
        file.write_all_at(&chunk, number * APPEND as u64)?;
        let append_ns = time.nanos();
        let receipt = file.sync_all_with_receipt()?;
        Ok(Sample { nanos: time.nanos(), append_ns, receipt })
    })
}

/// Writes to the bare device.
fn writes(others: &Others<'_>, phase: &mut Phase, ended: impl Fn() -> bool) -> io::Result<()> {
    let chunk = pattern(APPEND);
    measure(others, phase, ended, |number| {
        let time = Stopwatch::start();
        let at = number * APPEND as u64 % SMALL_BYTES;
        others.bare.write(at, &chunk).map_err(io::Error::other)?;
        let write_ns = time.nanos();
        let _ = others.bare.flush().map_err(io::Error::other)?;
        let nanos = time.nanos();
        let receipt = Receipt {
            led: true,
            log_bytes: APPEND as u64,
            flushes: 1,
            write_ns,
            flush_ns: nanos - write_ns,
            ..Receipt::default()
        };
        Ok(Sample { nanos, append_ns: 0, receipt })
    })
}

/// Measures for as long as planned, and until the others have done something; they may end early by an error.
fn measure(
    others: &Others<'_>,
    phase: &mut Phase,
    ended: impl Fn() -> bool,
    one: impl Fn(u64) -> io::Result<Sample>,
) -> io::Result<()> {
    (0..WARM_UP).try_for_each(|number| one(number).map(drop))?;
    let before = Counts::of(others.volume)?;
    let done_before = others.done();
    let end = Deadline::after(others.plan.time);
    for number in WARM_UP.. {
        phase.record(one(number)?);
        phase.done = others.done() - done_before;
        if end.is_over() && (phase.done > 0 || ended()) {
            break;
        }
    }
    phase.counts = Counts::of(others.volume)?.since(&before);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delay::{DelayDevice, Delays};
    use holdfast_device::MemoryDevice;

    #[test]
    fn every_stage_measures_and_the_others_are_busy() {
        let plan = Plan {
            rounds: 1,
            time: Duration::from_millis(100),
            large_bytes: 2 << 20,
            renamed_bytes: 1 << 20,
            recover: Duration::from_millis(50),
        };
        let delays = Delays {
            block: Duration::from_micros(5),
            flush: Duration::from_micros(50),
            channels: 8,
        };
        let device = |bytes| DelayDevice::new(Arc::new(MemoryDevice::new(bytes)), delays);
        let volume = Arc::new(device(plan.volume_bytes()));
        let mut stages = Vec::new();
        let rows =
            run(&plan, volume, &device(BARE_BYTES), |_, stage, _| stages.push(stage)).unwrap();
        assert_eq!(stages, Stage::ALL);
        for (row, stage) in rows.iter().zip(Stage::ALL) {
            assert_eq!(row.stage, stage.name());
            assert!(row.fsyncs > 0 && row.p50_ns <= row.p99_ns && row.p99_ns <= row.max_ns);
            assert!((row.shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{row:?}");
            if stage == stage.alone() {
                assert_eq!((row.done, row.p99_to_alone), (0, Some(1.0)));
            } else {
                assert!(row.done > 0, "{row:?}");
            }
        }
        let commits = &rows[3].counts;
        assert!(commits.commits > 0 && commits.checkpoints > 0, "{commits:?}");
    }
}
