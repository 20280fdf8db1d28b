//! What an image does not hold is not read: the search for older versions of a lost node costs what the host has given.

use std::fs::File;
use std::sync::Arc;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_check::reading::VolumeReading;
use holdfast_device::{Device, FileDevice, OpenMode};
use holdfast_repair::is_repaired;

use crate::every_finding::{LOSS, found, planned};

const LEN: u64 = 2 << 40;
/// Far more than the volume holds, and far less than its holes.
const READ_MAX: u64 = 1 << 30;

#[test]
fn a_repair_of_a_large_sparse_image_reads_no_holes() {
    let dir = tempfile::tempdir().expect("there is room");
    let path = dir.path().join("image");
    let file = File::create(&path).expect("the directory is there");
    file.set_len(LEN).expect("the host takes large files");
    drop(file);
    let device = Arc::new(FileDevice::open(&path, OpenMode::ReadWrite).expect("it is a file"));
    let target: Arc<dyn Device> = device.clone();
    holdfast::CreateOptions::new().format(&target).expect("it is large enough");
    for content in ["old", "new"] {
        let volume =
            holdfast::VolumeOptions::new().open_device(device.clone()).expect("it is whole");
        volume.write("/file", content.as_bytes()).expect("there is room");
        volume.close().expect("the host takes it");
    }
    let middle = LEN / 4 * 3;
    if device.data_from(middle) == middle {
        return holdfast_base::skip::skipped("the host knows no holes");
    }
    let reading = VolumeReading::open(&*device, false).expect("it is whole");
    let root = reading.trees()[0].place().pointer.block.0;
    drop(reading);
    device.write(root * BLOCK_BYTES, &[0x55; 4096]).expect("the host takes it");
    let before = device.stats().read_bytes;
    let plan = planned(&*device, &LOSS).expect("older versions are there");
    let read = device.stats().read_bytes - before;
    assert!(read < READ_MAX, "{read} bytes were read");
    plan.write(&*device).expect("the host takes it");
    assert!(is_repaired(&found(&*device)));
}
