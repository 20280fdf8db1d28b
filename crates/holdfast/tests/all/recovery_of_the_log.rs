//! What is said of a recovery of the log, and that it does not read the log batch by batch.

use std::io::Write;
use std::sync::Arc;

use holdfast::device::{Device, MemoryDevice};
use holdfast::{CreateOptions, Volume, VolumeOptions};

fn value(volume: &Volume, name: &str) -> u64 {
    let counters = volume.counters().unwrap();
    counters.iter().find(|counter| counter.name == name).unwrap().value
}

#[test]
fn many_fsyncs_are_recovered_with_few_reads_and_as_estimated() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(128 << 20));
    CreateOptions::new().format(&device).unwrap();
    let open = || VolumeOptions::new().commit_secs(0).open_device(device.clone()).unwrap();
    let volume = open();
    let mut file = volume.create("/file").unwrap();
    volume.commit().unwrap();
    assert_eq!(value(&volume, "log_bytes_used"), 0);
    let base = value(&volume, "recovery_estimate_ns");
    for round in 0..500 {
        writeln!(file, "line {round}").unwrap();
        file.sync_all().unwrap();
    }
    let used = value(&volume, "log_bytes_used");
    assert!(used >= 500 * 512, "{used}");
    assert_eq!(used, value(&volume, "log_bytes_written"), "no commit made any of it dead");
    assert!(value(&volume, "recovery_estimate_ns") > base);
    volume.abandon();

    let before = device.stats().reads;
    let volume = open();
    let reads = device.stats().reads - before;
    assert_eq!(value(&volume, "recovered_batches"), 500);
    assert_eq!(value(&volume, "recovered_log_bytes"), used);
    assert!(reads < 150, "{reads} reads");
    assert_eq!(volume.read_to_string("/file").unwrap().lines().count(), 500);
    // It is at its location now: nothing is left to recover.
    assert_eq!(value(&volume, "log_bytes_used"), 0);
    volume.close().unwrap();
}
