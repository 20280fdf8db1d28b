//! The device refuses a page that is on its way while its block is overwritten in memory (P7): every handle
//! hears of it, also again until the bytes are written once more, a reader sees one content or the other, and the file
//! can be used on.

use std::ops::Range;
use std::sync::Arc;
use std::thread;

use holdfast_base::InodeNo;
use holdfast_device::sim::{Action, Call, Faults, When};
use holdfast_device::{Device, DeviceError, MemoryDevice, SimDevice, forward};
use holdfast_posix::{Caller, FileSystem, OpenFile, OpenFlags, WriteHow};
use holdfast_sim::{Setup, judge};
use parking_lot::{Condvar, Mutex};

const VOLUME: u64 = 16 << 20;
/// More than travels inside the log.
const LEN: usize = 64 << 10;

/// A device whose writes to a range wait while it is closed.
#[derive(Debug)]
struct Gate {
    device: Arc<SimDevice>,
    range: Mutex<Option<Range<u64>>>,
    waiting: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn close(&self, range: Option<Range<u64>>) {
        *self.range.lock() = range;
        self.changed.notify_all();
    }

    fn wait_until_reached(&self) {
        let mut waiting = self.waiting.lock();
        self.changed.wait_while(&mut waiting, |waiting| !*waiting);
    }
}

impl Device for Gate {
    forward!(device: read, flush, discard, room, take_room, len, sector_size, reach, stats);

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let mut range = self.range.lock();
        while range.as_ref().is_some_and(|range| range.contains(&at)) {
            *self.waiting.lock() = true;
            self.changed.notify_all();
            self.changed.wait(&mut range);
        }
        drop(range);
        self.device.write(at, bytes)
    }
}

fn write(fs: &FileSystem, file: &OpenFile, byte: u8) {
    fs.write(&Caller::root(), file, 0, &[byte; LEN], WriteHow::default()).map(drop).unwrap();
}

fn read(fs: &FileSystem, file: &OpenFile) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    fs.read(file, 0, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_block_is_overwritten_while_the_device_refuses_it() {
    let setup = Setup::new(4096, 16);
    let base = Arc::new(MemoryDevice::new(VOLUME));
    FileSystem::mkfs(&(base.clone() as Arc<dyn Device>), &setup.mkfs).unwrap();
    let gate = Arc::new(Gate {
        device: Arc::new(SimDevice::new(&base)),
        range: Mutex::new(None),
        waiting: Mutex::new(false),
        changed: Condvar::new(),
    });
    let fs = FileSystem::mount(gate.clone(), setup.mount.clone()).unwrap();
    let (root, flags) = (Caller::root(), OpenFlags::READ | OpenFlags::WRITE);
    let (stat, one) = fs.create(&root, InodeNo::ROOT, b"f", 0o644, flags, false).unwrap();
    let other = fs.open(&root, stat.inode, flags).unwrap();
    write(&fs, &one, 1);
    fs.fsync(&one, false).unwrap();
    let geometry = fs.superblock().geometry;
    let data = geometry.first_data_block().0 * 4096..geometry.volume_blocks * 4096;

    write(&fs, &one, 2);
    gate.close(Some(data.clone()));
    thread::scope(|scope| {
        let fsync = scope.spawn(|| fs.fsync(&one, false));
        gate.wait_until_reached();
        write(&fs, &other, 3);
        assert_eq!(read(&fs, &one), [3; LEN], "readers see it at once");
        let inside = When::Inside { start: data.start, end: data.end, skip: 0, times: u64::MAX };
        gate.device.set_faults(Faults::none().with(Call::Write, inside, Action::Fail));
        gate.close(None);
        assert_eq!(fsync.join().unwrap().unwrap_err().errno(), 5, "who waited hears of it");
    });
    gate.device.set_faults(Faults::none());
    assert_eq!(fs.stop_reason(), None, "a file's data stops nobody else");
    assert_eq!(fs.fsync(&other, false).unwrap_err().errno(), 5, "every handle hears of it");
    let found = read(&fs, &other);
    assert!(found == [1; LEN] || found == [3; LEN], "one content or the other");
    for file in [&one, &other] {
        assert_eq!(fs.fsync(file, false).unwrap_err().errno(), 5, "what is lost stays lost");
    }
    assert_eq!(read(&fs, &one), found, "what was there after the error stays");
    write(&fs, &one, 4);
    for file in [&one, &other] {
        fs.fsync(file, false).unwrap();
    }
    drop((one, other));
    drop(fs);
    let left = Arc::new(gate.device.image());
    judge(&*left).unwrap();
    let fs = FileSystem::mount(left, setup.mount).unwrap();
    let file = fs.open(&root, stat.inode, OpenFlags::READ).unwrap();
    assert_eq!(read(&fs, &file), [4; LEN]);
    drop(file);
    fs.unmount().unwrap();
}
