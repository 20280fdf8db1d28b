//! Volumes that the bytes under test are put into.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use holdfast::device::{Device, MemoryDevice};
use holdfast::{CreateOptions, Volume, VolumeOptions};

/// Bytes of the volumes.
const BYTES: u64 = 16 << 20;

pub(crate) fn open(device: &Arc<MemoryDevice>) -> io::Result<Volume> {
    let device: Arc<dyn Device> = device.clone();
    VolumeOptions::new().commit_secs(0).open_device(device)
}

pub(crate) fn empty(id: u8) -> io::Result<Arc<MemoryDevice>> {
    let device = Arc::new(MemoryDevice::new(BYTES));
    let any: Arc<dyn Device> = device.clone();
    CreateOptions::new().node_size(4096).uuid([id; 16]).format(&any)?;
    Ok(device)
}

/// A copy of what a closed volume lies on, and it, open.
pub(crate) fn copy_of(image: &[u8]) -> (Arc<MemoryDevice>, Volume) {
    let device = Arc::new(MemoryDevice::from_image(image));
    let volume = open(&device).expect("it was closed whole");
    (device, volume)
}

/// Whatever was `done` to it, it can be closed, and is clean.
pub(crate) fn ends_clean(volume: Volume, device: &MemoryDevice, done: &impl Debug) {
    volume.close().expect("the volume is whole");
    let report = holdfast_check::check(device, &holdfast_check::Options::default());
    let report = report.expect("it is a volume");
    assert!(report.is_clean(), "{:?} after {done:?}", report.findings);
}
