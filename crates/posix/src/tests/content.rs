//! Names and data meet: what a rename promises, and what becomes of the data of files without names.

use std::thread;

use holdfast_base::Timestamp;
use holdfast_base::prng::Prng;

use super::*;
use crate::file::content;

const BOTH: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);

fn write(v: &Volume, file: &OpenFile, at: u64, bytes: &[u8]) {
    let wrote = v.fs.write(&root(), file, at, bytes, WriteHow::default()).unwrap();
    assert_eq!(wrote, bytes.len());
}

fn open(v: &Volume, name: &str) -> Arc<OpenFile> {
    v.fs.create(&root(), ROOT, name.as_bytes(), 0o644, BOTH, false).unwrap().1
}

fn bytes_of(v: &Volume, name: &str) -> Vec<u8> {
    let file = v.fs.open(&root(), v.find(ROOT, name).unwrap(), OpenFlags::READ).unwrap();
    let mut bytes = vec![0; v.stat(file.inode()).size as usize];
    assert_eq!(v.fs.read(&file, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

fn free(v: &Volume) -> u64 {
    v.fs.sync().unwrap();
    // A second one, because what a checkpoint replaces is free only after the next.
    v.file(ROOT, "tick");
    v.unlink(ROOT, "tick").unwrap();
    v.fs.sync().unwrap();
    v.fs.statfs().blocks_free
}

/// Nodes of the tree come and go; data of the sizes used here does not fit into this.
const NODES: u64 = 64;

#[test]
fn a_file_that_replaces_another_has_its_data() {
    // P4, without any fsync of the file: only the operations are durable, not what is dirty.
    for len in [3, 4096, 100_000, 1_000_000] {
        for flags in [RenameFlags::empty(), RenameFlags::EXCHANGE] {
            let v = Volume::new();
            write(&v, &open(&v, "old"), 0, b"old content");
            let file = open(&v, "new");
            write(&v, &file, 0, &vec![7; len]);
            v.rename_with((ROOT, "new"), (ROOT, "old"), flags).unwrap();
            let v = v.crash_after_sync();
            assert_eq!(bytes_of(&v, "old"), vec![7; len], "{flags:?}");
            if flags == RenameFlags::EXCHANGE {
                assert_eq!(bytes_of(&v, "new"), b"old content");
            }
            v.check();
        }
    }
}

#[test]
fn a_rename_to_a_new_name_writes_no_data() {
    let v = Volume::new();
    let file = open(&v, "a");
    write(&v, &file, 0, &[1; 100_000]);
    let written = v.fs.counters().data_bytes_written.get();
    v.rename((ROOT, "a"), (ROOT, "b")).unwrap();
    assert_eq!(v.fs.counters().data_bytes_written.get(), written);
    assert_eq!(bytes_of(&v, "b"), vec![1; 100_000]);
}

#[test]
fn data_goes_with_the_last_name_and_handle() {
    for len in [100, 5000, 10 << 20] {
        for written in [false, true] {
            for held in [false, true] {
                let v = Volume::new();
                let before = free(&v);
                let file = open(&v, "a");
                for at in (0..len).step_by(1 << 20) {
                    write(&v, &file, at, &vec![5; (len - at).min(1 << 20) as usize]);
                }
                if written {
                    v.fs.fsync(&file, false).unwrap();
                }
                let held = held.then_some(file);
                v.unlink(ROOT, "a").unwrap();
                if let Some(file) = held {
                    let mut byte = [0];
                    v.fs.read(&file, len - 1, &mut byte).unwrap();
                    assert_eq!(byte, [5], "still there while open");
                    write(&v, &file, len, b"more");
                }
                assert_eq!(v.in_tree(), (1, 0), "{len} {written}");
                assert!(v.fs.core.data.totals.bytes() == 0, "nothing dirty stays");
                assert!(free(&v) + NODES >= before, "{len} {written}: blocks are lost");
                v.check();
                v.remount().check();
            }
        }
    }
}

#[test]
fn a_large_file_is_removed_in_bounded_steps_and_a_mount_goes_on() {
    let v = Volume::with(128 << 20, 4096, options());
    let before = free(&v);
    let file = open(&v, "a");
    for at in 0..60 {
        write(&v, &file, at << 20, &vec![9; 1 << 20]);
    }
    v.fs.fsync(&file, false).unwrap();
    let first = v.fs.core.store.latest();
    v.unlink(ROOT, "a").unwrap();
    let inode = file.inode.clone();
    // The first step of a collection, and then the power is gone.
    let mut transaction = holdfast_store::Transaction::new();
    assert!(!content::plan_removal(&v.fs.core, inode.no, &mut transaction, 64).unwrap());
    let need = holdfast_store::Need::Shrink { changes: transaction.changes() };
    let mut reservation = v.fs.core.store.reserve(need).unwrap();
    v.fs.core.store.apply(transaction, &mut reservation).unwrap();
    drop(reservation);
    assert_eq!(v.in_tree(), (2, 1));
    let v = v.crash_after_sync();
    assert_eq!(v.in_tree(), (1, 0));
    assert!(v.fs.core.store.latest() > first.next().next(), "more than one step");
    assert!(free(&v) + NODES >= before);
    v.check();
}

#[test]
fn truncating_at_open_empties_the_file_and_takes_its_rights() {
    let v = Volume::new();
    write(&v, &open(&v, "a"), 0, &[3; 50_000]);
    let a = v.find(ROOT, "a").unwrap();
    let suid = SetAttr { perm: Some(0o6777), ..SetAttr::default() };
    v.fs.setattr(&root(), a, None, suid).unwrap();
    v.fs.open(&user(5, 5), a, BOTH | OpenFlags::TRUNCATE).unwrap();
    let attr = v.stat(a);
    assert_eq!((attr.size, attr.blocks, attr.perm), (0, 0, 0o777));
    // Truncating while opening read-only needs the same permission, and still allows no write.
    write(&v, &open(&v, "a"), 0, &[3; 50_000]);
    let change = |perm| SetAttr { perm: Some(perm), ..SetAttr::default() };
    v.fs.setattr(&root(), a, None, change(0o644)).unwrap();
    let read_only = OpenFlags::READ | OpenFlags::TRUNCATE;
    assert_eq!(errno(v.fs.open(&user(5, 5), a, read_only)), libc::EACCES);
    assert_eq!(v.stat(a).size, 50_000);
    v.fs.setattr(&root(), a, None, change(0o646)).unwrap();
    let file = v.fs.open(&user(5, 5), a, read_only).unwrap();
    assert_eq!(v.stat(a).size, 0);
    let written = v.fs.write(&user(5, 5), &file, 0, b"no", WriteHow::default());
    assert_eq!(errno(written), libc::EBADF);
    drop(file);
    v.remount().check();
}

#[test]
fn a_size_needs_a_right_or_a_handle() {
    let v = Volume::new();
    let d = v.fs.mkdir(&root(), ROOT, b"d", 0o777).unwrap().inode;
    let me = user(5, 5);
    let (attr, file) = v.fs.create(&me, d, b"f", 0o400, BOTH, true).unwrap();
    let size = SetAttr { size: Some(10_000), ..SetAttr::default() };
    assert_eq!(errno(v.fs.setattr(&me, attr.inode, None, size)), libc::EACCES);
    assert_eq!(v.fs.setattr(&me, attr.inode, Some(&file), size).unwrap().size, 10_000);
    let reader = v.fs.open(&me, attr.inode, OpenFlags::READ).unwrap();
    assert_eq!(errno(v.fs.setattr(&me, attr.inode, Some(&reader), size)), libc::EBADF);
    assert_eq!(errno(v.fs.setattr(&root(), d, None, size)), libc::EISDIR);
    let huge = SetAttr { size: Some(u64::MAX), ..SetAttr::default() };
    assert_eq!(errno(v.fs.setattr(&root(), attr.inode, None, huge)), libc::EFBIG);
}

#[test]
fn a_time_that_is_set_after_a_write_stays() {
    let v = Volume::new();
    let file = open(&v, "a");
    write(&v, &file, 0, &[1; 10_000]);
    let old = Timestamp { secs: 1000, nanos: 5 };
    let change = SetAttr { mtime: Some(SetTime::At(old)), ..SetAttr::default() };
    v.fs.setattr(&root(), file.inode(), None, change).unwrap();
    assert_eq!(v.stat(file.inode()).mtime, old);
    let a = file.inode();
    drop(file);
    let v = v.remount();
    assert_eq!((v.stat(a).mtime, v.stat(a).size), (old, 10_000));
}

#[test]
fn changing_rights_keeps_what_is_not_written_yet() {
    let v = Volume::new();
    let file = open(&v, "a");
    write(&v, &file, 0, &[1; 10_000]);
    let a = file.inode();
    let mode = SetAttr { perm: Some(0o600), ..SetAttr::default() };
    assert_eq!(v.fs.setattr(&root(), a, None, mode).unwrap().size, 10_000);
    v.fs.link(&root(), a, ROOT, b"b").unwrap();
    assert_eq!(v.stat(a).size, 10_000);
    // The operations are durable, the data is not: so the size is not either (P5).
    drop(file);
    let v = v.crash_after_sync();
    assert_eq!((v.stat(a).size, v.stat(a).perm, v.stat(a).nlink), (0, 0o600, 2));
    v.check();
}

#[test]
fn a_volume_full_of_data_can_be_emptied() {
    let v = Volume::with(16 << 20, 4096, options());
    let before = free(&v);
    let mut names = Vec::new();
    'full: loop {
        let name = format!("f{}", names.len());
        let Ok((_, file)) = v.fs.create(&root(), ROOT, name.as_bytes(), 0o644, BOTH, true) else {
            break;
        };
        names.push(name);
        for at in 0..32 {
            let bytes = [at as u8; 8192];
            if v.fs.write(&root(), &file, at * 8192, &bytes, WriteHow::default()).is_err() {
                break 'full;
            }
        }
    }
    // What was accepted can be written (P8).
    v.fs.sync().unwrap();
    assert!(v.fs.statfs().blocks_available < before / 10);
    for name in &names {
        v.unlink(ROOT, name).unwrap();
    }
    assert!(free(&v) + NODES >= before);
    v.check();
}

#[test]
fn a_storm_of_data_and_names_loses_no_block() {
    for seed in 0..3u64 {
        println!("seed {seed}");
        let v = Volume::with(128 << 20, 4096, options());
        let before = free(&v);
        thread::scope(|scope| {
            for thread in 0..4 {
                let v = &v;
                scope.spawn(move || {
                    let mut chance = Prng::seeded(seed * 100 + thread);
                    let mut held = Vec::new();
                    for _ in 0..400 {
                        let name = format!("n{}", chance.below(6));
                        let other = format!("n{}", chance.below(6));
                        match chance.below(8) {
                            0..=2 => {
                                let (_, file) =
                                    v.fs.create(&root(), ROOT, name.as_bytes(), 0o644, BOTH, false)
                                        .unwrap();
                                let len = 1 + chance.below(60_000) as usize;
                                write(v, &file, chance.below(100_000), &vec![thread as u8; len]);
                                if chance.one_in(3) {
                                    held.push(file);
                                }
                            }
                            3 => drop(v.unlink(ROOT, &name)),
                            4 => drop(v.rename((ROOT, &name), (ROOT, &other))),
                            5 => {
                                let flags = RenameFlags::EXCHANGE;
                                drop(v.rename_with((ROOT, &name), (ROOT, &other), flags));
                            }
                            6 => {
                                held.pop();
                            }
                            _ => {
                                if let Ok(inode) = v.find(ROOT, &name) {
                                    let size = Some(chance.below(50_000));
                                    let change = SetAttr { size, ..SetAttr::default() };
                                    drop(v.fs.setattr(&root(), inode, None, change));
                                }
                            }
                        }
                        if chance.one_in(50) {
                            v.fs.sync().unwrap();
                        }
                    }
                });
            }
        });
        v.check();
        let v = v.remount();
        v.check();
        for name in v.ls(ROOT) {
            bytes_of(&v, &name);
            v.unlink(ROOT, &name).unwrap();
        }
        assert_eq!(v.in_tree(), (1, 0));
        assert!(free(&v) + NODES >= before, "blocks are lost");
    }
}
