//! Renames in a directory that was just fsynced (M2).
//!
//! As published: empty files in one directory, everything committed, one more
//! file, an fsync of the directory, and then every file gets another name. One
//! fsync of the directory ends it.

use std::io;
use std::sync::Arc;

use holdfast::{CreateOptions, RenameLog, VolumeOptions};
use holdfast_base::clock::Stopwatch;
use holdfast_device::Device;

use crate::Counts;
use crate::work::quiesce;

/// Bytes of a tree node.
const NODE: usize = 16384;

/// Bytes of the device that `files` files need.
pub(crate) fn device_bytes(files: u64) -> u64 {
    (1 << 30) + files * 4096
}

/// Renames `files` files on `device`, which is empty. Nanoseconds of all renames, and everything that was counted
/// from the first of them to the end of the fsync behind the last.
pub(crate) fn run(
    device: Arc<dyn Device>,
    switch: RenameLog,
    files: u64,
) -> io::Result<(f64, Counts)> {
    CreateOptions::new().node_size(NODE).format(&device)?;
    let volume = VolumeOptions::new()
        .rename_log(switch)
        // A commit begins anew what a rename has to log.
        .commit_secs(0)
        // All of the directory, as a kernel keeps it.
        .inode_cache(files as usize + 1000)
        .open_device(device)?;
    volume.create_dir("/d")?;
    let dir = volume.open_dir("/d")?;
    let names: Vec<(String, String)> =
        (0..files).map(|file| (format!("file-{file}"), format!("renamed-{file}"))).collect();
    names.iter().try_for_each(|(name, _)| dir.create(name).map(drop))?;
    quiesce(&volume)?;
    drop(dir.create("one more")?);
    dir.sync_all()?;
    let before = Counts::of(&volume)?;
    let time = Stopwatch::start();
    names.iter().try_for_each(|(old, new)| dir.rename(old, new))?;
    let all_ns = time.nanos() as f64;
    dir.sync_all()?;
    let counts = Counts::of(&volume)?.since(&before);
    drop(dir);
    volume.abandon();
    Ok((all_ns, counts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_device::MemoryDevice;

    #[test]
    fn only_before_a_rename_logs_its_directory() {
        for &switch in RenameLog::ALL {
            let device = Arc::new(MemoryDevice::new(64 << 20));
            let (all_ns, counts) = run(device, switch, 80).expect("the workload runs");
            assert!(all_ns > 0.0);
            // Nothing else of the engine commits meanwhile, and a log that is not full escapes nothing.
            assert_eq!(counts.escapes(), 0, "{counts:?}");
            let logged = counts.log_directories > 0;
            assert_eq!(logged, switch == RenameLog::Directory, "{counts:?}");
        }
    }
}
