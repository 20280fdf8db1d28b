//! Each block that waits to be written belongs to a file whose leaf of the tree is full: the checksum that comes with
//! its data needs a node of its own, on a volume that has no other room (P8).

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_format::Key;
use holdfast_format::item::InodeItem;
use holdfast_format::item::extent::ExtentHead;
use holdfast_format::item::xattr::XattrHead;
use holdfast_format::limits::value_max;
use holdfast_format::node::{SLOT_SIZE, SLOTS_AT};
use holdfast_posix::{Caller, FallocateFlags, FileSystem, OpenFile, OpenFlags, XattrFlags};

use crate::common::*;

const NODE: usize = 4096;
const BLOCK: usize = 4096;

/// Bytes of a record in a leaf.
const fn record(value: usize) -> usize {
    Key::SIZE + SLOT_SIZE + value
}

/// Sets attributes that take `room` bytes of a leaf.
fn fill_leaf(fs: &FileSystem, inode: InodeNo, mut room: usize) {
    let mut number = 0;
    while room > 0 {
        let name = format!("user.{number}");
        let fixed = record(XattrHead::SIZE + name.len());
        let longest = record(value_max(NODE));
        // What is left is enough for another attribute, or nothing.
        let take = if room > longest { longest.min(room - fixed) } else { room };
        let value = vec![7; take - fixed];
        fs.setxattr(&Caller::root(), inode, name.as_bytes(), &value, XattrFlags::empty())
            .expect("there is room for an attribute");
        room -= take;
        number += 1;
    }
}

/// Files whose items fill a leaf each, to the last byte. Each has a block that fallocate has reserved, or none.
fn full_leaves(fs: &FileSystem, count: usize, is_reserved: bool) -> Vec<Arc<OpenFile>> {
    let splits = fs.counters().node_splits.get();
    let extent = if is_reserved { record(ExtentHead::SIZE) } else { 0 };
    let attributes = NODE - SLOTS_AT - record(InodeItem::SIZE) - extent;
    let make = |index: usize| {
        let file = create(fs, &format!("{index}"));
        fill_leaf(fs, file.inode(), attributes);
        if is_reserved {
            fs.fallocate(&file, FallocateFlags::empty(), 0, BLOCK as u64).expect("there is room");
        }
        file
    };
    let files: Vec<_> = (0..count).map(make).collect();
    let splits = fs.counters().node_splits.get() - splits;
    assert!(splits >= count as u64, "a leaf for each: {splits}");
    files
}

/// The bytes of file `index`.
fn bytes(index: usize) -> Vec<u8> {
    (0..BLOCK).map(|at| (at / 7 + index * 3 + 1) as u8).collect()
}

/// Everything that was accepted is there, now and after a remount, and what makes room works.
fn check(fs: FileSystem, device: &Arc<holdfast_device::MemoryDevice>, accepted: &[usize]) {
    let same = |fs: &FileSystem, when: &str| {
        for &index in accepted {
            let file = open(fs, &index.to_string(), OpenFlags::READ);
            let got = read(fs, &file, 0, BLOCK).expect("read");
            assert!(got == bytes(index), "{when}: file {index}");
        }
    };
    same(&fs, "before");
    fs.unmount().expect("unmount");
    let fs = mount(device, &quiet());
    same(&fs, "after a remount");
    for name in accepted.iter().map(usize::to_string).chain(["fill".into()]) {
        fs.unlink(&Caller::root(), InodeNo::ROOT, name.as_bytes()).expect("unlink");
    }
    fs.unmount().expect("unmount");
}

#[test]
fn what_is_accepted_for_reserved_blocks_in_full_leaves_is_carried_out() {
    let device = new_volume(24 * MIB, NODE);
    let fs = mount(&device, &quiet());
    let files = full_leaves(&fs, 900, true);
    fill(&fs, "fill");
    let splits = fs.counters().node_splits.get();
    let mut accepted = Vec::new();
    for (index, file) in files.iter().enumerate() {
        match write(&fs, file, 0, &bytes(index)) {
            Ok(written) => {
                assert_eq!(written, BLOCK);
                accepted.push(index);
            }
            Err(error) => assert!(is_full(&error), "{error}"),
        }
    }
    // Not all: each needs a node, and a 52nd of the volume is kept for those.
    assert!((50..900).contains(&accepted.len()), "{} accepted", accepted.len());
    fs.sync().expect("what was accepted is carried out");
    let splits = fs.counters().node_splits.get() - splits;
    assert!(splits >= accepted.len() as u64, "the leaves were full: {splits}");
    drop(files);
    check(fs, &device, &accepted);
}

#[test]
fn what_is_accepted_for_new_blocks_in_full_leaves_is_carried_out() {
    let device = new_volume(24 * MIB, NODE);
    let fs = mount(&device, &quiet());
    let files = full_leaves(&fs, 900, false);
    let mut accepted = Vec::new();
    for (index, file) in files.iter().enumerate() {
        write_all(&fs, file, 0, &bytes(index));
        accepted.push(index);
    }
    fill(&fs, "fill");
    fs.sync().expect("what was accepted is carried out");
    drop(files);
    check(fs, &device, &accepted);
}
