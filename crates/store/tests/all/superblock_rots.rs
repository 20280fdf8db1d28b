//! The newest superblock of a checkpoint that no commit says, and what was written behind it (P6, P3).
//!
//! A recovery, mkfs, and a commit without room publish such checkpoints. When the superblock rots, the one before
//! it must lead to the same, or show that something is missing. And what proves that must not pass for the
//! frame that says a volume was left in order.

use std::sync::Arc;

use holdfast_device::{Device, MemoryDevice};
use holdfast_format::Superblock;
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_store::Branch;

use crate::small::{
    after_a_commit_without_room, first, formatted, geometry, open, put, put_one_transaction,
    sectors, sync, try_open, write_sectors,
};

pub(crate) fn rot_newest(image: &MemoryDevice) {
    let slots = SUPERBLOCK_SLOTS.into_iter().filter_map(|slot| {
        let at = slot.byte_offset().unwrap();
        let mut block = [0; 4096];
        image.read(at, &mut block).unwrap();
        Some((Superblock::decode(&block, slot).ok()?.epoch, at))
    });
    let at = slots.max().unwrap().1;
    let mut block = [0; 512];
    image.read(at, &mut block).unwrap();
    block[100] ^= 4;
    image.write(at, &block).unwrap();
}

/// After the newest superblock has rotted, the volume is refused, or it is as it was: its last operation, and value
/// 0 as it was written last. `gone` is what is said otherwise.
fn is_refused_or_holds(device: &Arc<MemoryDevice>, store: Branch, gone: &str) {
    let lsn = store.latest();
    drop(store);
    rot_newest(device);
    match try_open(device) {
        Err(error) => println!("refused: {error}"),
        Ok(store) => assert_eq!((store.latest(), first(&store, 0)), (lsn, Some(5)), "{gone}"),
    }
}

/// An END in the middle of a life: batches follow it, and what says that none is missing is a lie.
#[test]
fn no_frame_in_mid_life_hides_a_hole_of_the_log() {
    let (device, store) = after_a_commit_without_room();
    let zone = geometry().log();
    let before = sectors(&device, zone);
    put(&store, 0..1, 5, 9);
    sync(&store);
    let after = sectors(&device, zone);
    put(&store, 1..2, 5, 9);
    sync(&store);
    put(&store, 2..3, 5, 9);
    sync(&store);
    drop(store);
    let rot = (0..after.len()).find(|at| before[*at] != after[*at]).unwrap();
    write_sectors(&device, zone, &before, &[rot]);
    match try_open(&device) {
        Err(error) => println!("refused, as it should be: {error}"),
        Ok(store) => panic!("three fsyncs are gone, nobody says so: {:?}", first(&store, 2)),
    }
}

/// The first commit behind such an END is lost by the device (lost write); later ones do not prove it.
#[test]
fn no_frame_in_mid_life_hides_a_lost_commit() {
    let (device, store) = after_a_commit_without_room();
    let zone = geometry().journal();
    let before = sectors(&device, zone);
    put(&store, 0..1, 5, 9);
    store.commit().unwrap();
    let after = sectors(&device, zone);
    put(&store, 1..2, 5, 9);
    store.commit().unwrap();
    drop(store);
    let lost: Vec<usize> = (0..after.len()).filter(|at| before[*at] != after[*at]).collect();
    write_sectors(&device, zone, &before, &lost);
    match try_open(&device) {
        Err(error) => println!("refused, as it should be: {error}"),
        Ok(store) => panic!("two commits are gone, nobody says so: {:?}", first(&store, 1)),
    }
}

/// A checkpoint that only batches say, and a commit behind it: without its superblock the commit is applied to
/// nodes of before the batch.
#[test]
fn a_checkpoint_that_only_batches_say() {
    let device = formatted();
    let store = open(&device);
    for from in 0..10 {
        put_one_transaction(&store, from * 40..from * 40 + 40, 3, 9);
        store.checkpoint().unwrap();
    }
    println!("full {}", store.counters().journal_full.get());
    // C1 makes copies of some leaves and stays in the journal.
    put_one_transaction(&store, 0..400, 4, 9);
    store.commit().unwrap();
    // In the log only.
    put_one_transaction(&store, 0..400, 5, 8);
    sync(&store);
    let full = store.counters().journal_full.get();
    let commits = store.counters().commits.get();
    store.checkpoint().unwrap();
    println!("full {full} -> {}", store.counters().journal_full.get());
    assert_eq!(store.counters().journal_full.get(), full + 1);
    put(&store, 7..8, 6, 8);
    store.commit().unwrap();
    assert_eq!(store.counters().commits.get(), commits + 1);
    let lsn = store.latest();
    drop(store);
    rot_newest(&device);
    match try_open(&device) {
        Err(error) => println!("refused: {error}"),
        Ok(store) => {
            assert_eq!(store.latest(), lsn);
            let seen: Vec<_> = (0..10).map(|number| first(&store, number)).collect();
            assert_eq!(
                seen[..7],
                vec![Some(5); 7],
                "an older state passes for the newest: {seen:?}"
            );
        }
    }
}

/// The superblock that an opening after a crash writes rots. What was fsynced behind it must be found from the one
/// before, or be noticed as missing.
fn after_a_crash(durable: fn(&Branch)) {
    let device = formatted();
    let store = open(&device);
    put(&store, 0..2, 3, 9);
    store.checkpoint().unwrap();
    store.close().unwrap();
    drop(open(&device));
    let store = open(&device);
    put(&store, 0..1, 5, 9);
    durable(&store);
    is_refused_or_holds(&device, store, "it was fsynced, and is gone");
}

#[test]
fn after_a_crash_a_batch() {
    after_a_crash(sync);
}

#[test]
fn after_a_crash_a_commit() {
    after_a_crash(|store| store.commit().unwrap());
}

/// Right after mkfs: its two superblocks are an epoch apart, and the first commit fits behind one of them.
#[test]
fn after_mkfs_a_commit() {
    let device = formatted();
    let store = open(&device);
    put(&store, 0..1, 5, 9);
    store.commit().unwrap();
    is_refused_or_holds(&device, store, "it was durable, and is gone");
}
