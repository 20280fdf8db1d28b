//! Reserved blocks that a damaged volume gives to two files: the second write is refused, and never lies over the data
//! of the first.

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_base::units::BLOCK_SIZE;
use holdfast_format::item::Extent;
use holdfast_store::{Need, StoreError, Transaction};

use super::in_place::{Room, Wants};
use super::tests::{BOTH, volume, write};
use crate::file::lookup::pieces;
use crate::file::map::extent_key;
use crate::*;

fn create(fs: &FileSystem, name: &str) -> Arc<OpenFile> {
    fs.create(&Caller::root(), InodeNo::ROOT, name.as_bytes(), 0o644, BOTH, false).unwrap().1
}

/// Writes to a file of its own until not even a block finds room.
fn fill(fs: &FileSystem) {
    let file = create(fs, "fill");
    let bytes = vec![7; 1 << 20];
    let (mut at, mut len) = (0, bytes.len());
    while len >= BLOCK_SIZE {
        let how = WriteHow::default();
        match fs.write(&Caller::root(), &file, at, &bytes[..len], how) {
            Ok(written) => at += written as u64,
            Err(_) => len /= 2,
        }
    }
    fs.sync().unwrap();
}

/// Two files whose reserved block is the same, on a volume that has no other.
fn two_with_one_block(fs: &FileSystem) -> [Arc<OpenFile>; 2] {
    let files = [create(fs, "one"), create(fs, "two")];
    for file in &files {
        fs.fallocate(file, FallocateFlags::empty(), 0, BLOCK_SIZE as u64).unwrap();
    }
    let store = &fs.core.store;
    let blocks = pieces(&fs.core, files[0].inode(), 0..1).unwrap()[0].extent.blocks;
    let mut transaction = Transaction::new();
    transaction.put(extent_key(files[1].inode(), 0), Extent::new(blocks, Vec::new()).encode());
    let mut reservation = store.reserve(Need::Writeback { changes: 1 }).unwrap();
    store.apply(transaction, &mut reservation).unwrap();
    drop(reservation);
    fill(fs);
    files
}

fn content(fs: &FileSystem, file: &OpenFile) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_SIZE];
    fs.read(file, 0, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_reserved_block_of_two_files_is_written_for_one_of_them() {
    for together in [false, true] {
        let options = MountOptions { commit_secs: 0, recent_bytes: 0, ..MountOptions::default() };
        let fs = FileSystem::mount(volume(), options).unwrap();
        let [one, two] = two_with_one_block(&fs);
        write(&fs, &one, 0, &[1; BLOCK_SIZE]);
        if !together {
            fs.fsync(&one, false).unwrap();
        }
        write(&fs, &two, 0, &[2; BLOCK_SIZE]);
        fs.fsync(&one, false).unwrap();
        assert!(fs.counters().reserved_bytes_written.get() >= BLOCK_SIZE as u64, "in place");
        // Refused where it would lie over data: the program is told, and the data is what it was.
        let refused = fs.fsync(&two, false).unwrap_err();
        assert!(matches!(refused, FsError::Io(_)), "{refused}");
        assert_eq!(content(&fs, &one), [1; BLOCK_SIZE]);
        assert_eq!(content(&fs, &two), [0; BLOCK_SIZE]);
        // With the first file its block goes, and counts as written no more. It is the other one's as well: an answer.
        let gone = fs.unlink(&Caller::root(), InodeNo::ROOT, b"one");
        assert!(matches!(gone, Ok(()) | Err(FsError::Store(StoreError::Item { .. }))), "{gone:?}");
    }
}

/// Blocks that were taken to replace what a file has are growth once that is gone: the limit of the branch is asked again.
#[test]
fn blocks_that_replace_nothing_any_more_count_for_the_limit() {
    let options = MountOptions { commit_secs: 0, ..MountOptions::default() };
    let fs = FileSystem::mount(volume(), options).unwrap();
    let wants = |growth| Wants { blocks: 2, growth, in_place: 0, runs: 1 };
    let referenced = fs.core.store.referenced_blocks();
    fs.limit(Which::Named(b"main"), Some(referenced + 1)).unwrap();
    let mut room = Room::default();
    room.take(&fs.core, wants(0)).unwrap();
    assert!(room.is_enough(wants(0)) && !room.is_enough(wants(2)));
    let refused = room.take(&fs.core, wants(2)).unwrap_err();
    assert!(matches!(refused, FsError::Store(StoreError::Limit)), "{refused}");
    fs.limit(Which::Named(b"main"), Some(referenced + 20)).unwrap();
    room.take(&fs.core, wants(2)).unwrap();
    assert!(room.is_enough(wants(2)));
}
