//! Creates with many pending files and one fsync behind them (M4).
//!
//! Empty files in several directories, nothing synced until all are there, and
//! then one fsync, which has to log them all. What background commits have
//! taken before is no part of its batch, so a run reports how many records the
//! batches held. Or commits are held back: then the fsync logs all files, in batches as
//! long as the format allows.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdfast::{Batching, CreateOptions, Volume, VolumeOptions};
use holdfast_base::clock::Stopwatch;
use holdfast_device::Device;

use crate::Counts;
use crate::counts::ratio;
use crate::held::HeldDevice;
use crate::work::{fill_dirs, open_dirs, quiesce};

/// Bytes of a tree node.
const NODE: usize = 16384;
/// Bytes of the log, of the journal and of the cache that let so much wait that no creating thread is slowed down: for
/// each file, and for all of them.
const LOG_BYTES: (u64, u64) = (512, 64 << 20);
const JOURNAL_BYTES: (u64, u64) = (2048, 64 << 20);
const CACHE_BYTES: (u64, u64) = (4096, 256 << 20);
/// No recovery follows.
const RECOVER: Duration = Duration::from_secs(24 * 3600);

/// One run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Nanoseconds of the creates, for each file.
    pub(crate) create_ns: f64,
    /// Nanoseconds of creates and fsync together, for each file.
    pub(crate) total_ns: f64,
    /// Nanoseconds in which batches were formatted, for each record in them.
    pub(crate) format_ns: f64,
    /// Everything that was counted.
    pub(crate) counts: Counts,
}

/// Bytes of the device that so many files need.
pub(crate) fn device_bytes(dirs: u64, files: u64) -> u64 {
    (2 << 30) + dirs * files * 2048
}

/// The same with commits held back.
pub(crate) fn held_device_bytes(dirs: u64, files: u64) -> u64 {
    let rings = for_files(LOG_BYTES, dirs * files) + for_files(JOURNAL_BYTES, dirs * files);
    device_bytes(dirs, files) + rings
}

fn for_files((each, more): (u64, u64), files: u64) -> u64 {
    more + files * each
}

/// Creates `files` files in each of `dirs` directories on `device`, which is empty, and fsyncs the last.
pub(crate) fn run(
    device: Arc<dyn Device>,
    switch: Batching,
    dirs: u64,
    files: u64,
) -> io::Result<Run> {
    CreateOptions::new().node_size(NODE).format(&device)?;
    let volume = VolumeOptions::new().batching(switch).commit_secs(0).open_device(device)?;
    fill_dirs(&volume, dirs, 0)?;
    quiesce(&volume)?;
    let run = create_and_sync(&volume, dirs, files)?;
    volume.abandon();
    Ok(run)
}

/// As [`run`], and no commit ends before the fsync has.
pub(crate) fn run_held(
    device: Arc<dyn Device>,
    switch: Batching,
    dirs: u64,
    files: u64,
) -> io::Result<Run> {
    let held = Arc::new(HeldDevice::new(device));
    let device: Arc<dyn Device> = held.clone();
    let count = dirs * files;
    CreateOptions::new()
        .node_size(NODE)
        .log_size(for_files(LOG_BYTES, count))
        .journal_size(for_files(JOURNAL_BYTES, count))
        .format(&device)?;
    let volume = VolumeOptions::new()
        .batching(switch)
        .commit_secs(0)
        .cache_bytes(for_files(CACHE_BYTES, count) as usize)
        .recover(RECOVER)
        .open_device(device)?;
    fill_dirs(&volume, dirs, 0)?;
    quiesce(&volume)?;
    let holding = held.hold();
    let run = create_and_sync(&volume, dirs, files);
    drop(holding);
    volume.abandon();
    run
}

/// What is measured.
fn create_and_sync(volume: &Volume, dirs: u64, files: u64) -> io::Result<Run> {
    let dirs = open_dirs(volume, dirs)?;
    let names: Vec<String> = (0..files).map(|file| format!("file-{file}")).collect();
    let before = Counts::of(volume)?;
    let time = Stopwatch::start();
    for dir in &dirs {
        for name in &names {
            drop(dir.create(name)?);
        }
    }
    let created = time.nanos();
    // Of one that was made earlier a commit may have everything: the last one has all files before it.
    if let (Some(dir), Some(name)) = (dirs.last(), names.last()) {
        dir.open_file(name)?.sync_all()?;
    }
    let total = time.nanos();
    let counts = Counts::of(volume)?.since(&before);
    let count = (dirs.len() * names.len()) as f64;
    Ok(Run {
        create_ns: ratio(created as f64, count).unwrap_or(0.0),
        total_ns: ratio(total as f64, count).unwrap_or(0.0),
        format_ns: ratio(counts.log_format_ns as f64, counts.log_records as f64).unwrap_or(0.0),
        counts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_device::MemoryDevice;

    #[test]
    fn one_fsync_makes_all_files_durable_in_either_position() {
        for &switch in Batching::ALL {
            let device = Arc::new(MemoryDevice::new(64 << 20));
            let run = run(device, switch, 3, 32).expect("the workload runs");
            assert!(run.create_ns > 0.0 && run.total_ns >= run.create_ns, "{run:?}");
            assert_eq!((run.counts.fsyncs, run.counts.clean_fsyncs), (1, 0), "{run:?}");
            assert_eq!(run.counts.escapes(), 0, "{run:?}");
        }
    }

    #[test]
    fn with_commits_held_back_the_fsync_logs_all_files() {
        // More than two batches hold.
        let (dirs, files) = (4, 8192);
        for &switch in Batching::ALL {
            let device = Arc::new(MemoryDevice::new(held_device_bytes(dirs, files)));
            let Run { counts, .. } = run_held(device, switch, dirs, files).expect("it runs");
            // An inode and a name each, and the directories.
            assert!(counts.log_records >= 2 * dirs * files + dirs, "{counts:?}");
            assert!(counts.log_batches > 2, "{counts:?}");
            assert_eq!((counts.commits, counts.escapes()), (0, 0), "{counts:?}");
        }
    }
}
