//! Written data that the device refuses for good: no caller is told that it is safe, and none is shown what is not
//! there.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_device::sim::{Action, Call, Faults, When};
use holdfast_device::{Device, MemoryDevice, SimDevice};

use holdfast_fuse::Opens;

use crate::common::{Mount, can_mount, mkfs, options, wait_for};

const OLD: usize = 1_000_000;
const NEW: usize = 1_500_000;

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

fn errno(done: std::io::Result<()>) -> Option<i32> {
    done.err().and_then(|error| error.raw_os_error())
}

#[test]
fn after_a_lost_write_no_fsync_works_and_the_kernel_shows_what_is_there() {
    if !can_mount() {
        return;
    }
    let empty: Arc<dyn Device> = Arc::new(MemoryDevice::new(32 << 20));
    mkfs(&empty);
    let mut image = vec![0; 32 << 20];
    empty.read(0, &mut image).unwrap();
    let device = Arc::new(SimDevice::new(&MemoryDevice::from_image(&image)));
    // Where the kernel opens files, the last close of one is not known.
    let mount = Mount::with(device.clone(), options(), |fuse| fuse.opens = Opens::Server);
    let geometry = mount.fs().superblock().geometry;
    let refuse = || {
        let (start, end) = (geometry.first_data_block().0 * 4096, geometry.volume_blocks * 4096);
        let inside = When::Inside { start, end, skip: 0, times: u64::MAX };
        device.set_faults(Faults::none().with(Call::Write, inside, Action::Fail));
    };
    let obey = || device.set_faults(Faults::none());
    let path = mount.path("f");
    fs::write(&path, vec![1; OLD]).unwrap();
    let (one, other) = (open(&path), open(&path));
    one.sync_all().unwrap();
    let lose = || {
        refuse();
        one.write_all_at(&vec![2; NEW], 0).unwrap();
        assert_eq!(errno(one.sync_all()), Some(libc::EIO), "who waited hears of it");
        obey();
    };
    let is_old = |file: &File| {
        let mut bytes = vec![0; NEW];
        // On a busy machine the kernel hears of it a moment later than the program.
        wait_for("it is not what it was before", || {
            file.metadata().unwrap().len() == OLD as u64
                && file.read_at(&mut bytes, 0).unwrap() == OLD
                && bytes[..OLD].iter().all(|byte| *byte == 1)
        });
    };
    lose();
    is_old(&one);
    is_old(&other);
    for file in [&one, &other, &open(&path), &one, &other] {
        assert_eq!(errno(file.sync_all()), Some(libc::EIO), "nothing has brought it back");
    }
    // Written again, but not all of it; then the rest; then nothing is lost any more.
    one.write_all_at(&vec![3; OLD], 0).unwrap();
    assert_eq!(errno(one.sync_data()), Some(libc::EIO));
    one.write_all_at(&vec![3; NEW - OLD], OLD as u64).unwrap();
    for file in [&one, &other] {
        file.sync_all().unwrap();
    }
    one.write_all_at(&vec![1; OLD], 0).unwrap();
    one.set_len(OLD as u64).unwrap();
    one.sync_all().unwrap();
    // Cut off.
    lose();
    assert_eq!(errno(other.sync_all()), Some(libc::EIO));
    one.set_len(0).unwrap();
    for file in [&one, &other] {
        file.sync_all().unwrap();
    }
    // Closed by all.
    (&one).write_all(&vec![1; OLD]).unwrap();
    one.sync_all().unwrap();
    lose();
    drop((one, other));
    // The kernel tells of a close when it has the time, and not before the next opening.
    let until = Instant::now() + Duration::from_secs(60);
    let again = loop {
        let again = open(&path);
        match again.sync_all() {
            Ok(()) => break again,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        drop(again);
        std::thread::sleep(Duration::from_millis(5));
    };
    is_old(&again);
}
