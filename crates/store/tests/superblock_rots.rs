//! The newest superblock of a checkpoint that no commit says, and what was written behind it (P6, P3).
//!
//! A recovery, mkfs, and a commit without room publish such checkpoints. When the superblock rots, the one before
//! it must lead to the same, or show that something is missing. And what proves that must not pass for the
//! frame that says a volume was left in order.

#![allow(missing_docs, clippy::unwrap_used)]

use std::sync::Arc;

use holdfast_base::counters::Counters;
use holdfast_base::{BlockRange, InodeNo, Lsn};
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::{Geometry, Key, Kind, Superblock};
use holdfast_store::{Batch, CreateOptions, Need, OpenOptions, Result, Store};

const BYTES: u64 = 16 << 20;
const SECTOR: usize = 512;

fn key(number: u64) -> Key {
    Key::new(InodeNo(20), Kind::Extent, number)
}

fn geometry() -> Geometry {
    Geometry { journal_blocks: 64, log_blocks: 512, ..Geometry::for_device(BYTES, 4096).unwrap() }
}

fn formatted() -> Arc<MemoryDevice> {
    let formatted = Arc::new(MemoryDevice::new(BYTES));
    let shared: Arc<dyn Device> = formatted.clone();
    let options = CreateOptions {
        geometry: geometry(),
        uuid: uuid::Uuid::from_u128(3),
        label: String::new(),
        hash_seed: 1,
    };
    Store::create(&shared, &options).unwrap();
    formatted
}

fn try_open(device: &Arc<MemoryDevice>) -> Result<Store> {
    Store::open(
        device.clone(),
        &OpenOptions { threads: false, ..OpenOptions::default() },
        Arc::new(Counters::default()),
    )
}

fn open(device: &Arc<MemoryDevice>) -> Store {
    try_open(device).unwrap()
}

fn put(store: &Store, keys: std::ops::Range<u64>, fill: u8, rest: u8) {
    for number in keys {
        let mut batch = Batch::new();
        let mut value = vec![rest; 900];
        value[..40].fill(fill);
        batch.put(key(number), value);
        let mut room = store.reserve(Need::Grow { changes: batch.changes(), blocks: 0 }).unwrap();
        store.apply(batch, &mut room).unwrap();
    }
}

fn put_one_batch(store: &Store, keys: std::ops::Range<u64>, fill: u8, rest: u8) {
    let mut batch = Batch::new();
    for number in keys {
        let mut value = vec![rest; 900];
        value[..40].fill(fill);
        batch.put(key(number), value);
    }
    let mut room = store.reserve(Need::Grow { changes: batch.changes(), blocks: 0 }).unwrap();
    store.apply(batch, &mut room).unwrap();
}

fn persist(store: &Store) {
    let receipt = store.persist(store.latest(), InodeNo(20)).unwrap();
    assert!(receipt.escape.is_none());
}

fn first(store: &Store, number: u64) -> Option<u8> {
    store.get(&key(number)).unwrap().map(|value| value[0])
}

fn sectors(image: &MemoryDevice, zone: BlockRange) -> Vec<Vec<u8>> {
    let mut bytes = vec![0; zone.bytes().unwrap() as usize];
    image.read(zone.start.byte_offset().unwrap(), &mut bytes).unwrap();
    bytes.chunks(SECTOR).map(<[u8]>::to_vec).collect()
}

fn write_sectors(image: &MemoryDevice, zone: BlockRange, from: &[Vec<u8>], which: &[usize]) {
    for &at in which {
        let place = zone.start.byte_offset().unwrap() + (at * SECTOR) as u64;
        image.write(place, &from[at]).unwrap();
    }
}

fn rot_newest(image: &MemoryDevice) {
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

/// An END in the middle of a life: batches follow it, and what says that none is missing is a lie.
#[test]
fn end_in_mid_life_hides_a_hole_of_the_log() {
    let device = formatted();
    let store = open(&device);
    put_one_batch(&store, 0..400, 3, 9);
    store.commit().unwrap();
    assert_eq!(store.counters().journal_full.get(), 1);
    let zone = geometry().log();
    let before = sectors(&device, zone);
    put(&store, 0..1, 5, 9);
    persist(&store);
    let after = sectors(&device, zone);
    put(&store, 1..2, 5, 9);
    persist(&store);
    put(&store, 2..3, 5, 9);
    persist(&store);
    drop(store);
    let rot = (0..after.len()).find(|at| before[*at] != after[*at]).unwrap();
    write_sectors(&device, zone, &before, &[rot]);
    match try_open(&device) {
        Err(error) => println!("refused, as it should be: {error}"),
        Ok(store) => panic!("three fsyncs are gone, nobody says so: {:?}", first(&store, 2)),
    }
}

/// What was torn behind such an END is mended by the next torn one.
#[test]
fn end_in_mid_life_mends_what_was_torn() {
    let device = formatted();
    let store = open(&device);
    put_one_batch(&store, 0..400, 3, 9);
    store.commit().unwrap();
    assert_eq!(store.counters().journal_full.get(), 1);
    let zone = geometry().log();
    let before: Lsn = store.latest();
    let base = device.snapshot();
    let work = |store: &Store, fill| {
        put_one_batch(store, 0..1, fill, 7);
        put_one_batch(store, 1..8, 7, 7);
        persist(store);
    };
    work(&store, 1);
    let one = sectors(&device, zone);
    drop(store);
    let other = Arc::new(base.snapshot());
    let store = open(&other);
    work(&store, 2);
    let two = sectors(&other, zone);
    drop(store);
    let empty = sectors(&base, zone);
    let all = 0..empty.len();
    let differ: Vec<usize> = all.clone().filter(|&at| one[at] != two[at]).collect();
    let same: Vec<usize> =
        all.filter(|at| !differ.contains(at) && one[*at] != empty[*at]).collect();
    assert!(!differ.is_empty() && !same.is_empty());
    let left = Arc::new(base.snapshot());
    write_sectors(&left, zone, &one, &differ);
    let store = open(&left);
    assert_eq!(store.latest(), before, "it is torn");
    let opened = left.snapshot();
    work(&store, 2);
    let two = sectors(&left, zone);
    drop(store);
    let opened = Arc::new(opened);
    write_sectors(&opened, zone, &two, &same);
    let store = open(&opened);
    assert_eq!(store.latest(), before, "what was gone is back");
}

/// The first commit behind such an END is lost by the device (lost write); later ones do not prove it.
#[test]
fn end_in_mid_life_hides_a_lost_commit() {
    let device = formatted();
    let store = open(&device);
    put_one_batch(&store, 0..400, 3, 9);
    store.commit().unwrap();
    assert_eq!(store.counters().journal_full.get(), 1);
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
        put_one_batch(&store, from * 40..from * 40 + 40, 3, 9);
        store.checkpoint().unwrap();
    }
    println!("full {}", store.counters().journal_full.get());
    // C1 makes copies of some leaves and stays in the journal.
    put_one_batch(&store, 0..400, 4, 9);
    store.commit().unwrap();
    // In the log only.
    put_one_batch(&store, 0..400, 5, 8);
    persist(&store);
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

/// The superblock that an opening after a crash writes rots; what was fsynced behind it is not found from the
/// one before, and nobody misses it.
fn after_a_crash(durable: fn(&Store)) {
    let device = formatted();
    let store = open(&device);
    put(&store, 0..2, 3, 9);
    store.checkpoint().unwrap();
    store.close().unwrap();
    drop(open(&device));
    let store = open(&device);
    put(&store, 0..1, 5, 9);
    durable(&store);
    let lsn = store.latest();
    drop(store);
    rot_newest(&device);
    match try_open(&device) {
        Err(error) => println!("refused: {error}"),
        Ok(store) => {
            assert_eq!(
                (store.latest(), first(&store, 0)),
                (lsn, Some(5)),
                "it was fsynced, and is gone"
            );
        }
    }
}

#[test]
fn after_a_crash_a_batch() {
    after_a_crash(persist);
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
    let lsn = store.latest();
    drop(store);
    rot_newest(&device);
    match try_open(&device) {
        Err(error) => println!("refused: {error}"),
        Ok(store) => {
            assert_eq!(
                (store.latest(), first(&store, 0)),
                (lsn, Some(5)),
                "it was durable, and is gone"
            );
        }
    }
}
