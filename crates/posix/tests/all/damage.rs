//! Data that rots and devices that refuse: errors, never wrong bytes (P6, P7).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_device::{Device, DeviceError, MemoryDevice, forward};
use holdfast_posix::{FsError, MountOptions, OpenFlags};

use crate::common::*;

#[test]
fn a_flipped_bit_in_data_is_an_error_and_never_wrong_data() {
    let device = new_volume(16 * MIB, 16384);
    // What was just written is asked of the device.
    let fs = mount(&device, &MountOptions { recent_bytes: 0, ..quiet() });
    let file = create(&fs, "f");
    // A pattern that stands nowhere else on the volume.
    let bytes: Vec<u8> =
        (0..40_960u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    write_all(&fs, &file, 0, &bytes);
    fs.fsync(&file, false).expect("fsync");
    let image = device.to_image();
    let places = |block: usize| {
        let pattern = &bytes[block * 4096..(block + 1) * 4096];
        let found = image.chunks_exact(4096).position(|chunk| chunk == pattern);
        found.expect("the block is on the device") as u64 * 4096
    };
    for block in [0usize, 3, 9] {
        let at = places(block) / 512 * 512;
        let mut sector = [0; 512];
        device.read(at, &mut sector).expect("read");
        sector[77] ^= 0x10;
        device.write(at, &sector).expect("write");
        let from = block as u64 * 4096;
        assert!(matches!(read(&fs, &file, from, 4096), Err(FsError::Io(_))), "block {block}");
        assert!(matches!(read(&fs, &file, from + 4095, 1), Err(FsError::Io(_))));
        assert!(matches!(read(&fs, &file, 0, 40_960), Err(FsError::Io(_))), "a long read");
        // A partial write would have to read the damaged block first.
        assert!(matches!(write(&fs, &file, from + 5, b"x"), Err(FsError::Io(_))));
        // Its neighbours are well, and a whole new block heals it.
        let near = if block == 9 { 8 } else { block + 1 };
        let got = read(&fs, &file, near as u64 * 4096, 4096).expect("a neighbour");
        assert!(got == bytes[near * 4096..(near + 1) * 4096]);
        write_all(&fs, &file, from, &bytes[block * 4096..(block + 1) * 4096]);
        assert!(read(&fs, &file, 0, 40_960).expect("healed") == bytes);
        fs.fsync(&file, false).expect("fsync");
    }
    assert!(fs.counters().checksum_failures.get() >= 9);
}

/// A device whose writes of whole blocks fail while it is told so.
#[derive(Debug)]
struct Failing {
    inner: MemoryDevice,
    /// Writes that still fail.
    failures: AtomicU64,
}

impl Device for Failing {
    forward!(inner: read, flush, discard, room, take_room, len, sector_size, reach, stats);

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let left = self.failures.load(Ordering::Relaxed);
        if left > 0 {
            self.failures.store(left - 1, Ordering::Relaxed);
            let source = std::io::Error::other("the test wants it so");
            return Err(DeviceError::Io { call: "write", at, len: bytes.len() as u64, source });
        }
        self.inner.write(at, bytes)
    }
}

fn failing() -> Arc<Failing> {
    let image = new_volume(16 * MIB, 16384);
    Arc::new(Failing { inner: image.snapshot(), failures: AtomicU64::new(0) })
}

#[test]
fn a_data_write_that_fails_once_is_done_elsewhere() {
    let device = failing();
    let fs = mount(&device, &quiet());
    let file = create(&fs, "f");
    write_all(&fs, &file, 0, &[1; 50_000]);
    device.failures.store(1, Ordering::Relaxed);
    fs.fsync(&file, false).expect("the second try went well");
    drop((file, fs));
    let fs = mount(&device, &quiet());
    let file = open(&fs, "f", OpenFlags::READ);
    assert!(read(&fs, &file, 0, 60_000).expect("read") == [1; 50_000]);
}

#[test]
fn a_data_write_that_fails_is_reported_by_every_handle_until_it_is_made_good() {
    let device = failing();
    let fs = mount(&device, &quiet());
    let first = create(&fs, "f");
    write_all(&fs, &first, 0, &[1; 20_000]);
    fs.fsync(&first, false).expect("fsync");
    let second = open(&fs, "f", OpenFlags::READ | OpenFlags::WRITE);
    let third = open(&fs, "f", OpenFlags::READ);
    write_all(&fs, &first, 4096, &[2; 30_000]);
    device.failures.store(u64::MAX, Ordering::Relaxed);
    assert!(matches!(fs.fsync(&first, false), Err(FsError::Io(_))));
    device.failures.store(0, Ordering::Relaxed);
    for handle in [&second, &third] {
        assert!(matches!(fs.fsync(handle, true), Err(FsError::Io(_))));
    }
    let late = open(&fs, "f", OpenFlags::READ);
    for handle in [&first, &second, &third, &late] {
        let again = fs.fsync(handle, false).expect_err("nothing has brought it back").to_string();
        assert!(again.contains("bytes 4096 to 34096"), "{again}");
    }
    // What was durable is there, what was not is not, and the size covers nothing that is missing (P5).
    assert!(read(&fs, &late, 0, 60_000).expect("read") == [1; 20_000]);
    // The handles that wrote it are closed: no program relies on it any more.
    drop((first, second, third, late));
    let first = open(&fs, "f", OpenFlags::WRITE);
    fs.fsync(&first, false).expect("opened after it was reported to all");
    // The device is well again: so are writes.
    write_all(&fs, &first, 100, &[3; 10_000]);
    fs.fsync(&first, false).expect("fsync");
    drop((first, fs));
    let fs = mount(&device, &quiet());
    let file = open(&fs, "f", OpenFlags::READ);
    let got = read(&fs, &file, 0, 60_000).expect("read");
    assert!(got.len() == 20_000 && got[100..10_100] == [3; 10_000] && got[10_100] == 1);
}

#[test]
fn a_file_whose_data_was_lost_replaces_nothing_until_the_loss_is_reported() {
    let device = failing();
    let fs = mount(&device, &quiet());
    let old = create(&fs, "old");
    write_all(&fs, &old, 0, &[1; 20_000]);
    fs.fsync(&old, false).expect("fsync");
    let new = create(&fs, "new");
    write_all(&fs, &new, 0, &[2; 20_000]);
    let replace = || {
        let root = holdfast_base::InodeNo::ROOT;
        let caller = holdfast_posix::Caller::root();
        fs.rename(&caller, root, b"new", root, b"old", holdfast_posix::RenameFlags::empty())
    };
    // The first try meets the device and drops the data; the next finds nothing left to write.
    device.failures.store(u64::MAX, Ordering::Relaxed);
    assert!(replace().is_err());
    device.failures.store(0, Ordering::Relaxed);
    assert!(
        matches!(replace(), Err(FsError::Io(_))),
        "the old data would be gone for nothing (P4)"
    );
    assert!(read(&fs, &open(&fs, "old", OpenFlags::READ), 0, 30_000).expect("read") == [1; 20_000]);
    assert!(matches!(fs.fsync(&new, false), Err(FsError::Io(_))));
    write_all(&fs, &new, 0, &[3; 20_000]);
    replace().expect("the loss is known, and the data was written again");
    assert!(read(&fs, &open(&fs, "old", OpenFlags::READ), 0, 30_000).expect("read") == [3; 20_000]);
}

#[test]
fn when_a_write_that_many_files_share_fails_each_file_is_written_alone() {
    let device = failing();
    let fs = mount(&device, &quiet());
    for i in 0..20u8 {
        let file = create(&fs, &format!("f{i}"));
        write_all(&fs, &file, 0, &[i; 10_000]);
    }
    // The shared write and its second try.
    device.failures.store(2, Ordering::Relaxed);
    fs.sync().expect("sync");
    assert_eq!(device.failures.load(Ordering::Relaxed), 0);
    drop(fs);
    let fs = mount(&device, &quiet());
    for i in 0..20u8 {
        let file = open(&fs, &format!("f{i}"), OpenFlags::READ);
        assert!(read(&fs, &file, 0, 20_000).expect("read") == [i; 10_000]);
    }
}

#[test]
fn files_written_together_share_their_writes() {
    let device = new_volume(64 * MIB, 16384);
    let fs = mount(&device, &quiet());
    for i in 0..100u8 {
        let file = create(&fs, &format!("f{i}"));
        write_all(&fs, &file, 0, &[i; 10_000]);
    }
    let before = device.stats();
    fs.sync().expect("sync");
    let after = device.stats();
    // 300 blocks of data, a few dozen nodes, one superblock.
    assert!(after.writes - before.writes < 60, "{} writes", after.writes - before.writes);
    assert!(after.flushes - before.flushes <= 2);
}
