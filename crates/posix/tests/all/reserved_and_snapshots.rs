//! What fallocate has reserved, when snapshots share it: none is written in place, and nothing accepted is lost.

use holdfast_base::InodeNo;
use holdfast_posix::{Caller, FallocateFlags, FileSystem, OpenFlags};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::*;

const BLOCK: u64 = 4096;

fn content(fs: &FileSystem, name: &str, len: u64) -> Vec<u8> {
    let file = open(fs, name, OpenFlags::READ | OpenFlags::NOATIME);
    read(fs, &file, 0, len as usize).expect("read")
}

fn in_snapshot(fs: &FileSystem, snapshot: &str, name: &str, len: u64) -> Vec<u8> {
    let snapshot = fs.open_snapshot(b"main", snapshot.as_bytes(), quiet()).expect("it opens");
    let content = content(&snapshot, name, len);
    snapshot.unmount().expect("unmount");
    content
}

#[test]
fn a_snapshot_on_a_full_volume_has_what_was_written_into_reserved_space_and_keeps_it() {
    let device = new_volume(24 * MIB, 4096);
    let fs = mount(&device, &quiet());
    let file = create(&fs, "reserved");
    let blocks = 256;
    fs.fallocate(&file, FallocateFlags::empty(), 0, blocks * BLOCK).expect("there is room");
    fill(&fs, "fill");
    let mut model = vec![0; (blocks * BLOCK) as usize];
    for block in (0..blocks).step_by(3) {
        let at = (block * BLOCK) as usize;
        model[at..at + 4096].fill(block as u8 | 1);
        write_all(&fs, &file, block * BLOCK, &model[at..at + 4096]);
    }
    // All of it is delayed.
    assert!(fs.dirty_bytes() > 0);
    fs.snapshot(b"s").expect("a snapshot needs next to nothing");
    let before = model.clone();
    assert!(in_snapshot(&fs, "s", "reserved", blocks * BLOCK) == before);
    let (mut written, mut refused) = (0, 0);
    for block in (1..blocks).step_by(3) {
        let at = (block * BLOCK) as usize;
        let bytes = [block as u8 | 1; 4096];
        match write(&fs, &file, block * BLOCK, &bytes) {
            Ok(_) => {
                model[at..at + 4096].copy_from_slice(&bytes);
                written += 1;
            }
            Err(error) => {
                assert!(is_full(&error), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0, "{written} written: the snapshot has what was reserved");
    fs.sync().expect("what was accepted finds its place (P8)");
    assert!(content(&fs, "reserved", blocks * BLOCK) == model);
    assert!(in_snapshot(&fs, "s", "reserved", blocks * BLOCK) == before);
    // It is gone, and what was reserved is the file's alone again.
    fs.delete_snapshot(b"main", b"s").expect("deleting works on a full volume");
    fs.commit().expect("commit");
    for block in (2..blocks).step_by(3) {
        let at = (block * BLOCK) as usize;
        model[at..at + 4096].fill(block as u8 | 1);
        write_all(&fs, &file, block * BLOCK, &model[at..at + 4096]);
    }
    fs.sync().expect("sync");
    drop((file, fs));
    let fs = mount(&device, &quiet());
    assert!(content(&fs, "reserved", blocks * BLOCK) == model);
    fs.unmount().expect("unmount");
}

#[test]
fn zeros_and_a_new_reserve_over_shared_blocks_take_blocks_of_their_own() {
    let device = new_volume(24 * MIB, 4096);
    let fs = mount(&device, &quiet());
    let file = create(&fs, "file");
    write_all(&fs, &file, 0, &[7; 64 * BLOCK as usize]);
    fs.fallocate(&file, FallocateFlags::empty(), 64 * BLOCK, 64 * BLOCK).unwrap();
    fs.snapshot(b"s").unwrap();
    let before = content(&fs, "file", 128 * BLOCK);
    // Some blocks are the branch's own by now, and some are not.
    write_all(&fs, &file, 16 * BLOCK, &[8; 16 * BLOCK as usize]);
    fs.fallocate(&file, FallocateFlags::ZERO_RANGE, 10 * BLOCK + 5, 40 * BLOCK).unwrap();
    fs.fallocate(&file, FallocateFlags::empty(), 64 * BLOCK, 64 * BLOCK).unwrap();
    let mut model = before.clone();
    model[10 * BLOCK as usize + 5..50 * BLOCK as usize + 5].fill(0);
    assert!(content(&fs, "file", 128 * BLOCK) == model);
    assert_eq!(fs.getattr(file.inode()).unwrap().blocks, 128 * 8);
    assert!(in_snapshot(&fs, "s", "file", 128 * BLOCK) == before);
    fill(&fs, "fill");
    // All of both is reserved for the file, and for nothing else.
    for block in (11..50).chain(64..128) {
        let bytes = [block as u8; BLOCK as usize];
        write_all(&fs, &file, block * BLOCK, &bytes);
        model[(block * BLOCK) as usize..((block + 1) * BLOCK) as usize].copy_from_slice(&bytes);
    }
    fs.sync().unwrap();
    assert!(content(&fs, "file", 128 * BLOCK) == model);
    assert!(in_snapshot(&fs, "s", "file", 128 * BLOCK) == before);
    drop((file, fs));
    let fs = mount(&device, &quiet());
    assert!(content(&fs, "file", 128 * BLOCK) == model);
    assert!(in_snapshot(&fs, "s", "file", 128 * BLOCK) == before);
    // A large fragmented range, of which a snapshot has each second block: in several transactions.
    let file = open(&fs, "file", OpenFlags::READ | OpenFlags::WRITE);
    fs.unlink(&Caller::root(), InodeNo::ROOT, b"fill").unwrap();
    fs.commit().unwrap();
    for block in (0..1024).step_by(2) {
        write_all(&fs, &file, block * BLOCK, &[9; BLOCK as usize]);
        fs.fsync(&file, false).unwrap();
    }
    fs.snapshot(b"t").unwrap();
    let before = content(&fs, "file", 1024 * BLOCK);
    for block in (0..1024).step_by(4) {
        write_all(&fs, &file, block * BLOCK, &[10; BLOCK as usize]);
    }
    fs.fallocate(&file, FallocateFlags::ZERO_RANGE, 0, 1024 * BLOCK).unwrap();
    assert!(content(&fs, "file", 1024 * BLOCK).iter().all(|byte| *byte == 0));
    assert_eq!(fs.getattr(file.inode()).unwrap().blocks, 1024 * 8);
    assert!(in_snapshot(&fs, "t", "file", 1024 * BLOCK) == before);
    drop(file);
    fs.unmount().unwrap();
}

#[test]
fn snapshots_come_and_go_beside_writers_of_a_full_volume() {
    let device = new_volume(24 * MIB, 4096);
    let fs = mount(&device, &quiet());
    let file = create(&fs, "reserved");
    let blocks = 1024;
    fs.fallocate(&file, FallocateFlags::empty(), 0, blocks * BLOCK).expect("there is room");
    fill(&fs, "fill");
    let ended = AtomicBool::new(false);
    let model = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut model = vec![0; (blocks * BLOCK) as usize];
            for block in 0..blocks {
                let at = (block * BLOCK) as usize;
                let bytes = [block as u8 | 1; 4096];
                match write(&fs, &file, block * BLOCK, &bytes) {
                    Ok(_) => model[at..at + 4096].copy_from_slice(&bytes),
                    // A snapshot has it just now.
                    Err(error) => assert!(is_full(&error), "{error}"),
                }
                if block % 64 == 63 {
                    fs.fsync(&file, false).expect("what was accepted finds its place (P8)");
                }
            }
            ended.store(true, Ordering::Release);
            model
        });
        let mut taken = 0;
        while !ended.load(Ordering::Acquire) || taken == 0 {
            let name = format!("s{taken}");
            match fs.snapshot(name.as_bytes()) {
                Ok(_) => {
                    let first = in_snapshot(&fs, &name, "reserved", blocks * BLOCK);
                    assert!(in_snapshot(&fs, &name, "reserved", blocks * BLOCK) == first);
                    fs.delete_snapshot(b"main", name.as_bytes()).expect("it is deleted");
                    taken += 1;
                }
                Err(error) => assert!(is_full(&error), "{error}"),
            }
        }
        writer.join().expect("the writer")
    });
    fs.sync().expect("sync");
    assert!(content(&fs, "reserved", blocks * BLOCK) == model);
    drop((file, fs));
    let fs = mount(&device, &quiet());
    assert!(content(&fs, "reserved", blocks * BLOCK) == model);
    fs.unmount().expect("unmount");
}
