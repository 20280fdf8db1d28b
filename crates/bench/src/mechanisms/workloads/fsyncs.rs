//! Writes with fsyncs by many threads, each into a file of its own: what M5 was published with.
//!
//! Two workloads: sequential writes of 64 KiB with an fsync after each, and
//! random writes of 4 KiB with an fsync after every sixteenth. Files are full
//! and committed before. A run takes a fixed time.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdfast::{CreateOptions, File, FsyncWait, Volume, VolumeOptions};
use holdfast_base::clock::{Deadline, Stopwatch};
use holdfast_base::prng::Prng;
use holdfast_device::Device;

use crate::work::{on_threads, pattern, quiesce};

/// Bytes of a tree node.
const NODE: usize = 16384;
/// Seconds between background commits.
const COMMIT_SECS: u32 = 5;

/// What a thread does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// Key.
    pub(crate) key: &'static str,
    /// In words.
    pub(crate) name: &'static str,
    /// Bytes of a write.
    pub(crate) write: usize,
    /// Writes before an fsync.
    pub(crate) writes_per_fsync: u64,
    /// At random offsets, or one after the other.
    pub(crate) random: bool,
}

/// The sequential one, then the random one.
pub(crate) const WORKS: [Work; 2] = [
    Work {
        key: "sequential",
        name: "sequential 64 KiB, fsync after each",
        write: 64 << 10,
        writes_per_fsync: 1,
        random: false,
    },
    Work {
        key: "random",
        name: "random 4 KiB, fsync after 16",
        write: 4 << 10,
        writes_per_fsync: 16,
        random: true,
    },
];

/// Bytes of the device that as many files need: themselves, what replaces them between two commits, and room.
pub(crate) fn device_bytes(jobs: u64, file_bytes: u64) -> u64 {
    (3 << 30) + 3 * jobs * file_bytes
}

/// Works on `device`, which is empty, for `time`, with `jobs` files of `file_bytes`; MiB written per second.
pub(crate) fn run(
    device: Arc<dyn Device>,
    wait: FsyncWait,
    work: &Work,
    jobs: u64,
    file_bytes: u64,
    time: Duration,
) -> io::Result<f64> {
    CreateOptions::new().node_size(NODE).format(&device)?;
    let options = VolumeOptions::new().commit_secs(COMMIT_SECS).fsync_wait(wait);
    let volume = options.open_device(device)?;
    let files =
        (0..jobs).map(|job| full(&volume, job, file_bytes)).collect::<io::Result<Vec<_>>>()?;
    quiesce(&volume)?;
    let (watch, until) = (Stopwatch::start(), Deadline::after(time));
    let written = on_threads(jobs, |job| {
        write(&files[job as usize], work, file_bytes, Prng::seeded(1 + job), &until)
    })?;
    let seconds = watch.elapsed().as_secs_f64().max(1e-9);
    drop(files);
    volume.abandon();
    Ok(written.iter().sum::<u64>() as f64 / f64::from(1 << 20) / seconds)
}

/// A file with `file_bytes` bytes in it.
fn full(volume: &Volume, job: u64, file_bytes: u64) -> io::Result<File> {
    let file = volume.create(format!("/job{job}"))?;
    let chunk = pattern(1 << 20);
    let mut at = 0;
    while at < file_bytes {
        let len = (chunk.len() as u64).min(file_bytes - at);
        file.write_all_at(&chunk[..len as usize], at)?;
        at += len;
    }
    Ok(file)
}

/// A file of the volume, or of a mount.
pub(crate) trait Syncs {
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;
    fn sync(&self) -> io::Result<()>;
}

impl Syncs for File {
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }
}

impl Syncs for std::fs::File {
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(self, bytes, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }
}

/// Writes until it is time, with one fsync at least; how many bytes.
pub(crate) fn write(
    file: &impl Syncs,
    work: &Work,
    file_bytes: u64,
    mut prng: Prng,
    until: &Deadline,
) -> io::Result<u64> {
    let mut chunk = pattern(work.write);
    let places = (file_bytes / work.write as u64).max(1);
    let mut written: u64 = 0;
    while written == 0 || !until.is_over() {
        for _ in 0..work.writes_per_fsync {
            chunk[..8].copy_from_slice(&written.to_le_bytes());
            let place = if work.random { prng.below(places) } else { written % places };
            file.write_at(&chunk, place * work.write as u64)?;
            written += 1;
        }
        file.sync()?;
    }
    Ok(written * work.write as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_device::{Device, MemoryDevice};

    #[test]
    fn both_workloads_write_and_flush_in_both_positions() {
        for work in &WORKS {
            for &wait in FsyncWait::ALL {
                let memory = Arc::new(MemoryDevice::new(256 << 20));
                let time = Duration::from_millis(20);
                let rate = run(memory.clone(), wait, work, 3, 1 << 20, time).expect("it runs");
                assert!(rate > 0.0 && memory.stats().flushes > 0, "{}, {wait}", work.name);
            }
        }
    }
}
