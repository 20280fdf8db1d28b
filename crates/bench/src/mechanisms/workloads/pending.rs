//! Creates with many pending files and one fsync behind them (M4).
//!
//! Empty files in several directories, nothing synced until all are there, and
//! then one fsync, which has to log them all. What background commits have
//! taken before is no part of its batch, so a run reports how many records the
//! batches held.

use std::io;
use std::sync::Arc;

use holdfast::{Batching, CreateOptions, VolumeOptions};
use holdfast_base::clock::Stopwatch;
use holdfast_device::Device;

use crate::Counts;
use crate::counts::ratio;
use crate::work::{fill_dirs, open_dirs, quiesce};

/// Bytes of a tree node.
const NODE: usize = 16384;

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
    let dirs = open_dirs(&volume, dirs)?;
    let names: Vec<String> = (0..files).map(|file| format!("file-{file}")).collect();
    quiesce(&volume)?;
    let before = Counts::of(&volume)?;
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
    let counts = Counts::of(&volume)?.since(&before);
    let count = (dirs.len() * names.len()) as f64;
    drop(dirs);
    volume.abandon();
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
}
