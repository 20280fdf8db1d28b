//! A volume without threads of its own starts none to write either: what its device gets, and in which order, depends on nothing but
//! the calls. Simulations stand on that.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use holdfast_device::{Device, DeviceError, MemoryDevice, forward};
use holdfast_posix::{Caller, MountOptions, XattrFlags};

use crate::common::*;

/// Remembers which threads write.
#[derive(Debug)]
struct Writers {
    under: Arc<MemoryDevice>,
    seen: Mutex<HashSet<ThreadId>>,
}

impl Device for Writers {
    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.seen.lock().unwrap().insert(thread::current().id());
        self.under.write(at, bytes)
    }

    forward!(under: read, flush, discard, room, take_room, len, sector_size, reach, stats);
}

/// The threads that write 32 MiB in an fsync, and 6 MiB of nodes in a checkpoint.
fn writers(threads: bool) -> HashSet<ThreadId> {
    let under = new_volume(128 * MIB, 4096);
    let device = Arc::new(Writers { under, seen: Mutex::default() });
    let fs = mount(&device, &MountOptions { threads, ..quiet() });
    let file = create(&fs, "f");
    write_all(&fs, &file, 0, &vec![7; 32 << 20]);
    fs.fsync(&file, false).unwrap();
    drop(file);
    for number in 0..1800 {
        let file = create(&fs, &number.to_string());
        let value = [number as u8; 3000];
        fs.setxattr(&Caller::root(), file.inode(), b"user.a", &value, XattrFlags::empty()).unwrap();
    }
    fs.checkpoint().unwrap();
    fs.unmount().unwrap();
    device.seen.lock().unwrap().clone()
}

#[test]
fn a_volume_without_threads_writes_by_its_caller_alone() {
    assert_eq!(writers(false), HashSet::from([thread::current().id()]));
    assert!(writers(true).len() > 1, "others write side by side");
}
