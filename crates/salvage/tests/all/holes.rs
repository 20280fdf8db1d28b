//! What an image does not hold is not read: a salvage costs what the host has given, not what the volume could become.

use std::fs::File;
use std::sync::Arc;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_device::{Device, FileDevice, OpenMode};
use holdfast_salvage::{Choice, SalvageError};

use crate::accidents::salvage;
use crate::common::Made;

const LEN: u64 = 2 << 40;
/// Far more than the volume holds, and far less than its holes.
const READ_MAX: u64 = 1 << 30;

/// A volume of 2 TiB in a sparse file, with one file in it.
fn sparse(dir: &tempfile::TempDir) -> Arc<FileDevice> {
    let path = dir.path().join("image");
    File::create(&path).unwrap().set_len(LEN).unwrap();
    let device = Arc::new(FileDevice::open(&path, OpenMode::ReadWrite).unwrap());
    let target: Arc<dyn Device> = device.clone();
    holdfast::CreateOptions::new().format(&target).unwrap();
    let volume = holdfast::VolumeOptions::new().open_device(target).unwrap();
    volume.write("/file", b"content").unwrap();
    volume.close().unwrap();
    device
}

#[test]
fn a_salvage_without_a_superblock_reads_no_holes() {
    let dir = tempfile::tempdir().unwrap();
    let device = sparse(&dir);
    let middle = LEN / 4 * 3;
    if device.data_from(middle) == middle {
        return holdfast_base::skip::skipped("the host knows no holes");
    }
    for block in [16, 48, LEN / BLOCK_BYTES - 16] {
        device.write(block * BLOCK_BYTES, &[0; 4096]).unwrap();
    }
    let before = device.stats().read_bytes;
    let outcome = salvage(&*device, "main", &Choice::default()).unwrap();
    let read = device.stats().read_bytes - before;
    assert!(read < READ_MAX, "{read} bytes were read");
    let made = &outcome.memory.made["/file"];
    assert!(matches!(made, Made::File(content) if content == b"content"));
    // What is older than all that is left is no state, not an empty one.
    let none = salvage(&*device, "main", &Choice { epoch: Some(0), ..Choice::default() });
    assert!(matches!(none, Err(SalvageError::NoSuchEpoch(0, 1..))));
}
