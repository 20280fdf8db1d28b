//! What the tests of file content share: volumes in memory, and files in them.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_base::prng::entropy;
use holdfast_device::{Device, MemoryDevice};
use holdfast_posix::{
    Caller, FileSystem, FsError, MkfsOptions, MountOptions, OpenFile, OpenFlags, WriteHow,
};
use holdfast_store::StoreError;

pub const MIB: u64 = 1 << 20;

/// An empty device with a filesystem.
pub fn new_volume(bytes: u64, node_size: usize) -> Arc<MemoryDevice> {
    new_volume_with(bytes, node_size, 1)
}

/// The same, each node of which is stored so often.
pub fn new_volume_with(bytes: u64, node_size: usize, metadata_copies: u8) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(bytes));
    let shared: Arc<dyn Device> = device.clone();
    let options = MkfsOptions {
        node_size,
        label: String::new(),
        uuid: None,
        owner: (0, 0),
        metadata_copies,
        ..MkfsOptions::default()
    };
    FileSystem::mkfs(&shared, &options).expect("mkfs");
    device
}

/// No background commit, so that nothing happens but what the test does.
pub fn quiet() -> MountOptions {
    MountOptions { commit_secs: 0, ..MountOptions::default() }
}

pub fn mount(device: &Arc<impl Device + 'static>, options: &MountOptions) -> FileSystem {
    FileSystem::mount(device.clone(), options.clone()).expect("mount")
}

pub fn create(fs: &FileSystem, name: &str) -> Arc<OpenFile> {
    let flags = OpenFlags::READ | OpenFlags::WRITE;
    let (_, file) = fs
        .create(&Caller::root(), InodeNo::ROOT, name.as_bytes(), 0o644, flags, false)
        .expect("create");
    file
}

pub fn open(fs: &FileSystem, name: &str, flags: OpenFlags) -> Arc<OpenFile> {
    let attr = fs.lookup(&Caller::root(), InodeNo::ROOT, name.as_bytes()).expect("lookup");
    fs.open(&Caller::root(), attr.inode, flags).expect("open")
}

pub fn write(fs: &FileSystem, file: &OpenFile, at: u64, bytes: &[u8]) -> Result<usize, FsError> {
    fs.write(&Caller::root(), file, at, bytes, WriteHow::default())
}

pub fn write_all(fs: &FileSystem, file: &OpenFile, at: u64, bytes: &[u8]) {
    let written = write(fs, file, at, bytes).expect("write");
    assert_eq!(written, bytes.len());
}

pub fn set_size(fs: &FileSystem, file: &OpenFile, size: u64) -> Result<(), FsError> {
    let change = holdfast_posix::SetAttr { size: Some(size), ..Default::default() };
    fs.setattr(&Caller::root(), file.inode(), Some(file), change).map(|_| ())
}

pub fn read(fs: &FileSystem, file: &OpenFile, at: u64, len: usize) -> Result<Vec<u8>, FsError> {
    let mut bytes = vec![0xee; len];
    let read = fs.read(file, at, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

pub fn size(fs: &FileSystem, file: &OpenFile) -> u64 {
    fs.getattr(file.inode()).expect("getattr").size
}

/// A fresh seed, printed, or the one in HOLDFAST_SEED.
pub fn seed() -> u64 {
    let seed = std::env::var("HOLDFAST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(entropy);
    println!("HOLDFAST_SEED={seed}");
    seed
}

pub fn is_full(error: &FsError) -> bool {
    matches!(error, FsError::Store(StoreError::NoSpace))
}

/// Writes to a file of its own until not even a block finds room.
pub fn fill(fs: &FileSystem, name: &str) {
    const BLOCK: usize = 4096;
    let file = create(fs, name);
    let bytes = vec![0x77; 1 << 20];
    let (mut at, mut len) = (0, bytes.len());
    while len >= BLOCK {
        match write(fs, &file, at, &bytes[..len]) {
            Ok(written) => at += written as u64,
            Err(error) => {
                assert!(is_full(&error), "{error}");
                // What was freed on the way is free with the next commit.
                fs.sync().expect("what was accepted is carried out");
                len /= 2;
            }
        }
    }
}
