//! A rename that replaces a file which is written all the time: its data comes with its name (P4).

use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_base::InodeNo;
use holdfast_posix::{Caller, RenameFlags};

use crate::common::{self, create, mount, new_volume, quiet, write_all};

#[test]
fn the_data_comes_with_the_name_also_when_writers_never_rest() {
    let device = new_volume(64 << 20, 16384);
    let caller = Caller::root();
    let fs = mount(&device, &quiet());
    for round in 0..20u8 {
        let old = create(&fs, "target");
        write_all(&fs, &old, 0, b"old");
        fs.fsync(&old, false).unwrap();
        let new = create(&fs, "new");
        write_all(&fs, &new, 0, &[round; 9000]);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..2u64 {
                let (fs, new, done) = (&fs, &new, &done);
                scope.spawn(move || {
                    let mut at = 0;
                    while !done.load(Ordering::Relaxed) {
                        write_all(fs, new, 9000 + writer * 5000 + at % 40_000, &[round; 5000]);
                        at += 10_000;
                    }
                });
            }
            let root = InodeNo::ROOT;
            fs.rename(&caller, root, b"new", root, b"target", RenameFlags::empty()).unwrap();
            // What a crash would find from here on: the new name, and no less than was there at first.
            fs.fsync_inode(root).unwrap();
            let after = std::sync::Arc::new(device.snapshot());
            let crashed = mount(&after, &quiet());
            let found = common::open(&crashed, "target", holdfast_posix::OpenFlags::READ);
            let head = common::read(&crashed, &found, 0, 9000).unwrap();
            assert!(head == vec![round; 9000], "round {round}: the name came without its data");
            done.store(true, Ordering::Relaxed);
        });
        drop((old, new));
        fs.unlink(&caller, InodeNo::ROOT, b"target").unwrap();
    }
    fs.unmount().unwrap();
}
