//! Holes with more extents than one transaction changes: one step of history, also when it is cut in the middle.

use holdfast_format::Key;
use holdfast_format::item::PunchItem;
use holdfast_store::{Need, Transaction};

use super::*;

const EXTENTS: u64 = 200;
const SIZE: u64 = EXTENTS * 8192 - 4096;

/// A file of many extents.
fn scattered(v: &Volume, name: &str) -> InodeNo {
    let inode = v.file(ROOT, name);
    let file = v.fs.open(&root(), inode, OpenFlags::WRITE).unwrap();
    for extent in 0..EXTENTS {
        let block = vec![extent as u8 | 1; 4096];
        v.fs.write(&root(), &file, extent * 8192, &block, WriteHow::default()).unwrap();
    }
    v.fs.fsync(&file, false).unwrap();
    assert_eq!(v.stat(inode).blocks / 8, EXTENTS);
    inode
}

fn bytes(v: &Volume, inode: InodeNo) -> Vec<u8> {
    let mut bytes = vec![0; v.stat(inode).size as usize];
    let file = v.fs.open(&root(), inode, OpenFlags::READ).unwrap();
    assert_eq!(v.fs.read(&file, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// Blocks of the file that hold data, as SEEK_DATA and SEEK_HOLE say.
fn data_blocks(v: &Volume, inode: InodeNo) -> u64 {
    let file = v.fs.open(&root(), inode, OpenFlags::READ).unwrap();
    let (mut at, mut blocks) = (0, 0);
    while let Ok(data) = v.fs.seek(&file, at, Seek::Data) {
        at = v.fs.seek(&file, data, Seek::Hole).unwrap();
        blocks += (at - data) / 4096;
    }
    blocks
}

/// Only the first step of a hole in blocks 10 to 390.
fn begin(v: &Volume, inode: InodeNo, state: u32) {
    let core = &v.fs.core;
    let punch = PunchItem { first: 10, end: 390, state, reserved: [0; 4] };
    let mut transaction = Transaction::new();
    transaction.put(Key::punch(inode), punch.encode());
    let mut reservation = core.store.reserve(Need::Writeback { changes: 1 }).unwrap();
    core.store.apply(transaction, &mut reservation).unwrap();
}

fn with_hole(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[10 * 4096..390 * 4096].fill(0);
    bytes
}

#[test]
fn a_hole_that_a_crash_has_cut_is_carried_out_by_the_next_mount() {
    for (state, blocks_left) in [(0, 10), (PunchItem::KEEPS_BLOCKS, EXTENTS)] {
        let v = Volume::new();
        let inode = scattered(&v, "a");
        let expected = with_hole(bytes(&v, inode));
        begin(&v, inode, state);
        let mut v = v.crash_after_sync();
        assert!(bytes(&v, inode) == expected, "state {state}");
        assert_eq!(v.stat(inode).blocks / 8, blocks_left, "state {state}");
        assert_eq!(v.fs.core.store.get(&Key::punch(inode)).unwrap(), None);
        v = v.remount();
        assert!(bytes(&v, inode) == expected);
        v.check();
    }
}

#[test]
fn a_hole_that_a_crash_has_cut_reads_as_zeros_on_a_mount_for_reading() {
    let v = Volume::new();
    let inode = scattered(&v, "a");
    let expected = with_hole(bytes(&v, inode));
    begin(&v, inode, 0);
    let core = &v.fs.core;
    core.store.sync(core.store.latest(), InodeNo::ROOT).unwrap();
    let Volume { device, fs } = v;
    drop(fs);
    let v = Volume {
        fs: FileSystem::mount(device.clone(), MountOptions { read_only: true, ..super::options() })
            .unwrap(),
        device,
    };
    assert!(bytes(&v, inode) == expected);
    assert_eq!(data_blocks(&v, inode), 10);
    assert!(v.fs.core.store.get(&Key::punch(inode)).unwrap().is_some(), "nothing was written");
}

/// What an error has left is done by the next change, which would otherwise put extents into the range; and by a removal.
#[test]
fn a_hole_that_an_error_has_cut_is_carried_out_by_the_next_change() {
    let v = Volume::new();
    let punch = PunchItem { first: 10, end: 390, state: 0, reserved: [0; 4] };
    let (a, b) = (scattered(&v, "a"), scattered(&v, "b"));
    let mut expected = with_hole(bytes(&v, a));
    for inode in [a, b] {
        begin(&v, inode, 0);
        v.fs.core.data.punches.begin(inode, punch);
        assert_eq!(data_blocks(&v, inode), 10);
    }
    let file = v.fs.open(&root(), a, OpenFlags::WRITE).unwrap();
    v.fs.write(&root(), &file, 50_000, &[9; 100], WriteHow::default()).unwrap();
    expected[50_000..50_100].fill(9);
    v.fs.fsync(&file, false).unwrap();
    assert!(bytes(&v, a) == expected);
    assert_eq!(v.stat(a).blocks / 8, 11);
    v.unlink(ROOT, "b").unwrap();
    for inode in [a, b] {
        assert_eq!(v.fs.core.store.get(&Key::punch(inode)).unwrap(), None);
    }
    v.check();
}

#[test]
fn holes_with_edges_leave_what_lies_around_them() {
    let keep = FallocateFlags::KEEP_SIZE;
    let ways = [
        (FallocateFlags::PUNCH_HOLE | keep, 100..SIZE - 100),
        (FallocateFlags::PUNCH_HOLE | keep, 4096..SIZE + 5000),
        (FallocateFlags::PUNCH_HOLE | keep, 8192 * 3 + 50..8192 * 3 + 90),
        (FallocateFlags::ZERO_RANGE | keep, 5000..SIZE + 5000),
        (FallocateFlags::ZERO_RANGE, 5000..SIZE + 5000),
        (FallocateFlags::ZERO_RANGE, 8192..8192 * 4 + 10),
    ];
    for (how, at) in ways {
        let v = Volume::new();
        let inode = scattered(&v, "a");
        let mut expected = bytes(&v, inode);
        if !how.contains(keep) {
            expected.resize(expected.len().max(at.end as usize), 0);
        }
        let end = expected.len().min(at.end as usize);
        expected[at.start as usize..end].fill(0);
        let file = v.fs.open(&root(), inode, OpenFlags::WRITE).unwrap();
        v.fs.fallocate(&file, how, at.start, at.end - at.start).unwrap();
        assert!(bytes(&v, inode) == expected, "{how:?} {at:?}");
        if how.contains(FallocateFlags::ZERO_RANGE) {
            assert!(v.stat(inode).blocks * 512 >= (at.end - at.start) / 4096 * 4096);
        }
        drop(file);
        let v = v.crash_after_sync();
        assert!(bytes(&v, inode) == expected, "{how:?} {at:?}");
        v.check();
    }
}
