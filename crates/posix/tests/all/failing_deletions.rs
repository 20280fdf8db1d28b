//! A deletion that does not go on, beside a writer that waits for the room that it would make (P8): the writer gets an answer,
//! and room as soon as the deletion has come further.

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_device::sim::{Action, Call, Faults, SimDevice, When};
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::NodeView;
use holdfast_posix::{Caller, FileSystem, FsError, OpenFlags, SetAttr};
use holdfast_store::{OpenOptions, Store, StoreError};

use crate::common::{create, mount, new_volume, open, quiet, write};

const NODE: usize = 4096;
const FILES: u64 = 200;
const BIG: usize = 6 << 20;

/// Appends until nothing more is taken.
fn fill(fs: &FileSystem, name: &str) {
    let file = create(fs, name);
    for len in [1 << 20, 64 << 10, 4096] {
        let mut at = fs.getattr(file.inode()).unwrap().size;
        while let Ok(written) = write(fs, &file, at, &vec![7; len]) {
            at += written as u64;
        }
    }
}

/// A full volume whose snapshot has what would make room, with the byte at which a leaf of it begins that comes before that.
fn full() -> (MemoryDevice, u64) {
    let device = new_volume(24 << 20, NODE);
    let fs = mount(&device, &quiet());
    let small: Vec<InodeNo> =
        (0..FILES).map(|number| create(&fs, &format!("file {number}")).inode()).collect();
    let big = create(&fs, "big");
    write(&fs, &big, 0, &vec![1; BIG]).unwrap();
    drop(big);
    fs.commit().unwrap();
    let number = fs.snapshot(b"s").unwrap();
    fs.unlink(&Caller::root(), InodeNo::ROOT, b"big").unwrap();
    for inode in small {
        let change = SetAttr { perm: Some(0o600), ..SetAttr::default() };
        fs.setattr(&Caller::root(), inode, None, change).unwrap();
    }
    fs.commit().unwrap();
    fill(&fs, "fill");
    fs.unmount().unwrap();
    let shared: Arc<dyn Device> = device.clone();
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let root = Store::open(shared, &options, Arc::default()).unwrap().tree(number).unwrap();
    assert_eq!(root.level, 1);
    let mut bytes = vec![0; NODE];
    device.read(root.root.block.byte_offset().unwrap(), &mut bytes).unwrap();
    // Names come first, which the branch has as well, then inodes.
    let root = NodeView::trusted(&bytes);
    let leaf = root.child(root.count() * 2 / 3).block;
    (device.snapshot(), leaf.byte_offset().unwrap())
}

fn append(fs: &FileSystem) -> Result<usize, FsError> {
    let file = open(fs, "fill", OpenFlags::WRITE);
    let end = fs.getattr(file.inode()).unwrap().size;
    write(fs, &file, end, &vec![8; 1 << 20])
}

/// Whether there is no more room than what a deletion has freed before it came to the leaf.
fn is_full(done: &Result<usize, FsError>) -> bool {
    match done {
        Ok(written) => *written < BIG / 32,
        Err(error) => matches!(error, FsError::Store(StoreError::NoSpace)),
    }
}

/// Deletes the snapshot, and expects that it fails and keeps no call waiting.
fn delete(fs: &FileSystem) {
    assert!(is_full(&append(fs)), "the volume is full");
    fs.delete_snapshot(b"main", b"s").unwrap();
    for _ in 0..2 {
        let done = append(fs);
        assert!(is_full(&done), "{done:?}");
    }
    let failed = fs.failed_deletions();
    assert_eq!((failed.len(), failed[0].branch), (1, Some(1)), "{failed:?}");
    assert!(failed[0].why.contains(&format!("snapshot {}", failed[0].number)), "{failed:?}");
}

#[test]
fn a_writer_gets_the_room_once_the_device_reads_again() {
    let (image, leaf) = full();
    let sim = Arc::new(SimDevice::new(&image));
    let fs = mount(&sim, &quiet());
    let inside = When::Inside { start: leaf, end: leaf + NODE as u64, skip: 0, times: u64::MAX };
    sim.set_faults(Faults::none().with(Call::Read, inside, Action::Fail));
    delete(&fs);
    // A commit tries it again, and is none the worse for it.
    fs.commit().unwrap();
    assert!(is_full(&append(&fs)));
    sim.set_faults(Faults::none());
    fs.commit().unwrap();
    assert_eq!(append(&fs).unwrap(), 1 << 20);
    assert_eq!(fs.failed_deletions(), []);
    fs.finish_deletions().unwrap();
    fs.unmount().unwrap();
    let fs = mount(&sim, &quiet());
    assert_eq!(fs.snapshots().unwrap(), []);
    assert_eq!(fs.superblock().fault, None, "nothing was damaged");
    fs.unmount().unwrap();
}

#[test]
fn a_writer_does_not_wait_for_a_deletion_that_met_damage() {
    let (image, leaf) = full();
    image.write(leaf, &[0; NODE]).unwrap();
    let device = Arc::new(image);
    let fs = mount(&device, &quiet());
    delete(&fs);
    fs.commit().unwrap();
    assert!(is_full(&append(&fs)));
    assert!(fs.finish_deletions().is_err());
    // What is removed makes room as ever.
    fs.unlink(&Caller::root(), InodeNo::ROOT, b"fill").unwrap();
    fs.commit().unwrap();
    let file = create(&fs, "more");
    assert_eq!(write(&fs, &file, 0, &vec![8; 1 << 20]).unwrap(), 1 << 20);
    drop(file);
    fs.unmount().unwrap();
    let fs = mount(&device, &quiet());
    assert!(fs.superblock().fault.is_some(), "it is known from now on");
    fs.unmount().unwrap();
}
