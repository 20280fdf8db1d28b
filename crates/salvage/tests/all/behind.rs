//! A batch of the log is lost although it was durable: what lies behind it is copied out all the same.

use std::sync::Arc;

use holdfast::{CreateOptions, Volume, VolumeOptions};
use holdfast_base::units::BLOCK_BYTES;
use holdfast_check::reading::VolumeReading;
use holdfast_device::{Device, MemoryDevice};
use holdfast_salvage::Choice;

use crate::accidents::{read, salvage};
use crate::common::Made;

/// A file that is durable when this returns, by a batch of its own.
fn synced(volume: &Volume, path: &str) {
    volume.write(path, path).unwrap();
    volume.open_file(path).unwrap().sync_all().unwrap();
}

#[test]
fn what_lies_behind_a_lost_batch_is_copied_out() {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    let target: Arc<dyn Device> = device.clone();
    CreateOptions::new().format(&target).unwrap();
    let volume = VolumeOptions::new().commit_secs(0).open_device(target).unwrap();
    synced(&volume, "/before");
    let before = device.snapshot();
    synced(&volume, "/lost");
    let behind = device.snapshot();
    for path in ["/one", "/two"] {
        synced(&volume, path);
    }
    let crashed = device.snapshot();
    let log = VolumeReading::open(&crashed, false).unwrap().superblock().geometry.log();
    let differs = |block: &u64| read(&before, *block) != read(&behind, *block);
    let block = (log.start.0..log.start.0 + log.count).find(differs).unwrap();
    let (old, new) = (read(&before, block), read(&behind, block));
    let mut bytes = read(&crashed, block);
    let at = (0..bytes.len()).filter(|at| old[*at] != new[*at]).nth(60).unwrap();
    bytes[at] ^= 0xff;
    crashed.write(block * BLOCK_BYTES, &bytes).unwrap();
    let outcome = salvage(&crashed, "main", &Choice::default()).unwrap();
    assert!(
        outcome.notes.iter().any(|note| note.contains("2 batches behind it count")),
        "{:?}",
        outcome.notes
    );
    for path in ["/before", "/one", "/two"] {
        let made = outcome.memory.made.get(path);
        assert!(
            matches!(made, Some(Made::File(found)) if found == path.as_bytes()),
            "{path}: {made:?}"
        );
    }
    assert!(!outcome.memory.made.contains_key("/lost"));
}
