//! A volume without space: clear errors, and everything acknowledged is there (P8).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use holdfast_base::InodeNo;
use holdfast_base::prng::Prng;
use holdfast_base::wait::{self, Next};
use holdfast_posix::{Caller, FallocateFlags, FileSystem, MountOptions, OpenFlags};

use crate::common::*;

#[test]
fn what_was_acknowledged_on_a_full_volume_is_readable_after_a_remount() {
    let seed = seed();
    for (round, node_size) in [4096, 16384, 65536].into_iter().enumerate() {
        let device = new_volume(24 * MIB, node_size);
        let options = MountOptions { commit_secs: 1, ..MountOptions::default() };
        let fs = mount(&device, &options);
        let acknowledged: Mutex<BTreeMap<String, Vec<u8>>> = Mutex::default();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (fs, acknowledged) = (&fs, &acknowledged);
                scope.spawn(move || {
                    let mut random = Prng::seeded(seed + thread + 100 * round as u64);
                    let mut refused = 0;
                    for i in 0..100_000 {
                        let name = format!("{thread}-{i}");
                        let flags = OpenFlags::READ | OpenFlags::WRITE;
                        let root = Caller::root();
                        let made =
                            fs.create(&root, InodeNo::ROOT, name.as_bytes(), 0o644, flags, true);
                        let file = match made {
                            Ok((_, file)) => file,
                            Err(error) => {
                                assert!(is_full(&error), "create: {error}");
                                return;
                            }
                        };
                        let mut bytes = vec![0; 1 + random.below(200_000) as usize];
                        random.fill(&mut bytes);
                        let mut done = 0;
                        while done < bytes.len() {
                            match write(fs, &file, done as u64, &bytes[done..]) {
                                Ok(written) => done += written,
                                Err(error) => {
                                    assert!(is_full(&error), "write: {error}");
                                    refused += 1;
                                    break;
                                }
                            }
                        }
                        bytes.truncate(done);
                        acknowledged.lock().expect("lock").insert(name, bytes);
                        if random.one_in(8) {
                            fs.fsync(&file, false).expect("fsync never fails for lack of space");
                        }
                        if refused > 3 {
                            return;
                        }
                    }
                });
            }
        });
        fs.sync().expect("sync never fails for lack of space");
        drop(fs);
        let fs = mount(&device, &quiet());
        let acknowledged = acknowledged.into_inner().expect("lock");
        assert!(acknowledged.len() > 20);
        for (name, bytes) in &acknowledged {
            let file = open(&fs, name, OpenFlags::READ);
            let got = read(&fs, &file, 0, bytes.len() + 10).expect("read");
            assert!(got == *bytes, "{name}: {} of {} bytes", got.len(), bytes.len());
        }
        // Making room works, and then there is room.
        let names: Vec<&String> = acknowledged.keys().collect();
        let (cut, gone) = names.split_at(names.len() / 3);
        for name in cut {
            let file = open(&fs, name, OpenFlags::READ | OpenFlags::WRITE);
            let half = acknowledged[*name].len() as u64 / 2;
            set_size(&fs, &file, half).expect("truncate works on a full volume");
            let got = read(&fs, &file, 0, 1 << 20).expect("read");
            assert!(got == acknowledged[*name][..half as usize]);
        }
        for name in gone {
            fs.unlink(&Caller::root(), InodeNo::ROOT, name.as_bytes())
                .expect("unlink works on a full volume");
        }
        let file = create(&fs, "again");
        write_all(&fs, &file, 0, &vec![3; 4 << 20]);
        fs.fsync(&file, false).expect("fsync");
        drop(file);
        fs.unmount().expect("unmount");
    }
}

#[test]
fn fallocate_takes_all_or_nothing_and_overwrites_work_until_the_end() {
    let device = new_volume(16 * MIB, 4096);
    let fs = mount(&device, &quiet());
    let file = create(&fs, "f");
    let refused = fs.fallocate(&file, FallocateFlags::empty(), 0, 1 << 40);
    assert!(refused.is_err_and(|error| is_full(&error)));
    assert_eq!(fs.getattr(file.inode()).expect("getattr").blocks, 0);
    assert_eq!(size(&fs, &file), 0);
    let room = fs.statfs().blocks_available * 4096;
    fs.fallocate(&file, FallocateFlags::empty(), 0, room / 2).expect("half of the room");
    assert_eq!(size(&fs, &file), room / 2);
    assert_eq!(read(&fs, &file, room / 2 - 10, 20).expect("read"), [0; 10]);
    // Overwriting the same megabyte again and again needs no more than that megabyte at once.
    for i in 0..200u32 {
        write_all(&fs, &file, 0, &vec![i as u8; 1 << 20]);
        if i % 3 == 0 {
            fs.fsync(&file, false).expect("fsync");
        }
    }
    assert!(read(&fs, &file, 0, 1 << 20).expect("read").iter().all(|&b| b == 199));
    drop(file);
    fs.unmount().expect("unmount");
}

/// Fills the volume with a file that loses its name and its only handle; the layer above still remembers it.
fn removed_but_remembered(fs: &FileSystem, closed_first: bool) -> InodeNo {
    let file = create(fs, "big");
    let bytes = vec![9; 1 << 20];
    let (mut at, mut len) = (0, bytes.len());
    while len >= 4096 {
        match write(fs, &file, at, &bytes[..len]) {
            Ok(written) => at += written as u64,
            Err(_) => len /= 2,
        }
    }
    fs.sync().expect("sync");
    let inode = file.inode();
    fs.remember(inode, 1);
    let unlink = || fs.unlink(&Caller::root(), InodeNo::ROOT, b"big").expect("unlink");
    if closed_first {
        drop(file);
        unlink();
    } else {
        unlink();
        drop(file);
    }
    inode
}

/// A mount hears of it behind the answer to the caller that removed the file.
#[test]
fn who_finds_no_space_waits_until_a_removed_file_is_forgotten() {
    for closed_first in [false, true] {
        let device = new_volume(16 * MIB, 4096);
        let fs = Arc::new(mount(&device, &quiet()));
        let inode = removed_but_remembered(&fs, closed_first);
        let refused = fs.counters().no_space.get();
        let thread = std::thread::spawn(move || {
            let forget = fs.clone();
            // The last moment at which it may be heard: it was looked for space, and there was none.
            wait::before_waiting(move |next| {
                if next == Next::Wait && forget.counters().no_space.get() > refused {
                    forget.forget(inode, 1);
                }
            });
            let next = create(&fs, "next");
            write_all(&fs, &next, 0, &vec![3; 1 << 20]);
            assert!(fs.counters().no_space.get() > refused, "there was room at once");
        });
        thread.join().expect("there was room when it was forgotten");
    }
}

#[test]
fn what_stays_remembered_is_waited_for_once() {
    let device = new_volume(16 * MIB, 4096);
    let fs = mount(&device, &quiet());
    let next = create(&fs, "next");
    removed_but_remembered(&fs, true);
    // A second for the first of them; for each it would be minutes.
    let tries = (0..500).map(|number| write(&fs, &next, number << 20, &vec![3; 1 << 20]));
    let refused = tries.filter(|done| done.as_ref().is_err_and(is_full)).count();
    assert!(refused > 400, "{refused} were refused");
}
