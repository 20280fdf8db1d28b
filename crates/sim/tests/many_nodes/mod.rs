//! A volume with so much in it that several threads work on its data, its nodes and its recovery.

#![allow(dead_code, reason = "not every test needs all of it")]

use std::sync::Arc;
use std::time::Duration;

use holdfast_base::InodeNo;
use holdfast_base::switch::FsyncWait;
use holdfast_device::{Device, MemoryDevice};
use holdfast_posix::{
    Caller, FileSystem, FsError, MkfsOptions, MountOptions, OpenFlags, WriteHow, XattrFlags,
};

const VOLUME: u64 = 96 << 20;
/// Files whose attributes make more nodes than one thread of a checkpoint writes alone: 4 MiB.
const SMALL: u64 = 1800;
const VALUE: usize = 3000;
/// Files with more data than one thread writes back alone: 8 MiB each.
const LARGE: u64 = 2;
const LARGE_BYTES: usize = 9 << 20;

/// An empty volume.
pub(crate) fn formatted() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(VOLUME));
    let made = MkfsOptions {
        node_size: 16384,
        label: "threads".into(),
        uuid: Some([5; 16]),
        owner: (0, 0),
        ..MkfsOptions::default()
    };
    FileSystem::mkfs(&(device.clone() as Arc<dyn Device>), &made).unwrap();
    device
}

/// With all threads that a mount may have. No checkpoint begins by itself, for the time that passes or for that which a recovery would take
/// on a machine that is slow today: it would leave too few nodes for several threads.
pub(crate) fn options() -> MountOptions {
    let never = Duration::from_secs(3600);
    let fsync_wait = FsyncWait::Completion;
    MountOptions { commit_secs: 3600, recover: never, fsync_wait, ..MountOptions::default() }
}

fn small(number: u64) -> Vec<u8> {
    format!("small-{number}").into_bytes()
}

fn large(number: u64) -> Vec<u8> {
    format!("large-{number}").into_bytes()
}

/// Makes all files, and everything durable: data by several threads, then many nodes by several.
pub(crate) fn work(fs: &FileSystem) -> Result<(), FsError> {
    let root = Caller::root();
    let flags = OpenFlags::READ | OpenFlags::WRITE;
    for number in 0..LARGE {
        let (_, file) = fs.create(&root, InodeNo::ROOT, &large(number), 0o644, flags, true)?;
        let bytes = vec![number as u8 + 1; 1 << 20];
        for at in (0..LARGE_BYTES).step_by(bytes.len()) {
            fs.write(&root, &file, at as u64, &bytes, WriteHow::default())?;
        }
    }
    fs.sync()?;
    for number in 0..SMALL {
        let (attr, _) = fs.create(&root, InodeNo::ROOT, &small(number), 0o644, flags, true)?;
        let value = vec![number as u8; VALUE];
        fs.setxattr(&root, attr.inode, b"user.a", &value, XattrFlags::empty())?;
    }
    fs.sync()?;
    Ok(())
}

/// All that was promised is there.
pub(crate) fn look(fs: &FileSystem) {
    let root = Caller::root();
    for number in 0..LARGE {
        let attr = fs.lookup(&root, InodeNo::ROOT, &large(number)).unwrap();
        assert_eq!(attr.size, LARGE_BYTES as u64);
        let file = fs.open(&root, attr.inode, OpenFlags::READ).unwrap();
        let mut bytes = vec![0; LARGE_BYTES];
        fs.read(&file, 0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == number as u8 + 1), "file {number}");
    }
    for number in (0..SMALL).rev() {
        let attr = fs.lookup(&root, InodeNo::ROOT, &small(number)).unwrap();
        let value = fs.getxattr(&root, attr.inode, b"user.a").unwrap();
        assert_eq!(value, vec![number as u8; VALUE]);
    }
}

/// Gives every small file its attribute once more: all nodes are dirty.
pub(crate) fn touch(fs: &FileSystem) {
    let root = Caller::root();
    for number in 0..SMALL {
        let attr = fs.lookup(&root, InodeNo::ROOT, &small(number)).unwrap();
        let value = vec![number as u8; VALUE];
        fs.setxattr(&root, attr.inode, b"user.a", &value, XattrFlags::empty()).unwrap();
    }
    fs.sync().unwrap();
}
