//! What several workloads need: content, volumes that are prepared once, directories full of files.
//!
//! A prepared volume is closed before it is measured, so that a measurement
//! starts with an empty journal and with every node clean at its location; each
//! run gets a copy of its own.

use std::io;
use std::sync::Arc;

use holdfast::{CreateOptions, Dir, Volume, VolumeOptions};
use holdfast_base::prng::Prng;
use holdfast_device::{Device, MemoryDevice};

/// Bytes that do not compress and are the same in each run.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Prng::seeded(1).fill(&mut bytes);
    bytes
}

/// A volume in memory with nodes of `node_size` bytes, filled by `fill` and closed.
pub(crate) fn prepared(
    bytes: u64,
    node_size: usize,
    fill: impl FnOnce(&Volume) -> io::Result<()>,
) -> io::Result<Arc<MemoryDevice>> {
    let memory = Arc::new(MemoryDevice::new(bytes));
    let device: Arc<dyn Device> = memory.clone();
    CreateOptions::new().node_size(node_size).format(&device)?;
    let volume = VolumeOptions::new().open_device(device)?;
    fill(&volume)?;
    volume.close()?;
    Ok(memory)
}

/// A device with the same bytes as `base`, which stays as it is.
pub(crate) fn copy(base: &MemoryDevice) -> Arc<dyn Device> {
    Arc::new(base.snapshot())
}

/// Makes `/d0` to `/d<dirs - 1>`, each with the empty files `old0` to `old<files - 1>`.
pub(crate) fn fill_dirs(volume: &Volume, dirs: u64, files: u64) -> io::Result<()> {
    for dir in 0..dirs {
        volume.create_dir(dir_name(dir))?;
        let dir = volume.open_dir(dir_name(dir))?;
        (0..files).try_for_each(|file| dir.create(format!("old{file}")).map(drop))?;
    }
    Ok(())
}

/// Opens what [`fill_dirs`] made.
pub(crate) fn open_dirs(volume: &Volume, dirs: u64) -> io::Result<Vec<Dir>> {
    (0..dirs).map(|dir| volume.open_dir(dir_name(dir))).collect()
}

fn dir_name(dir: u64) -> String {
    format!("/d{dir}")
}

/// The numbers below `count` in a random order.
pub(crate) fn shuffled(count: u64, prng: &mut Prng) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..count).collect();
    prng.shuffle(&mut numbers);
    numbers
}

/// Everything so far is part of a commit and at its location: neither log nor journal hold any of it.
pub(crate) fn quiesce(volume: &Volume) -> io::Result<()> {
    volume.sync()?;
    volume.engine()?.checkpoint().map_err(io::Error::other)
}

/// Runs `job` with the numbers below `jobs`, each on a thread of its own, and answers with what each
/// gave, in their order.
pub(crate) fn on_threads<T: Send>(
    jobs: u64,
    job: impl Fn(u64) -> io::Result<T> + Sync,
) -> io::Result<Vec<T>> {
    std::thread::scope(|scope| {
        let job = &job;
        let threads: Vec<_> = (0..jobs).map(|number| scope.spawn(move || job(number))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, io::Result<T>>| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).collect()
    })
}
