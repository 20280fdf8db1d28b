//! What one crash has torn, another does not mend (P3).
//!
//! A program starts again and does nearly the same: its batch, or its commit, goes to the place of the one
//! that the first crash has torn, and is torn itself. Where the first one kept what the second one lost, and
//! the rest is equal, the first one would be whole again, and what was seen to be gone would be back.

#![allow(missing_docs, clippy::unwrap_used)]

use std::sync::Arc;

use holdfast_base::counters::Counters;
use holdfast_base::{BlockRange, InodeNo, Lsn};
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::{Geometry, Key, Kind};
use holdfast_store::{Batch, CreateOptions, Need, OpenOptions, Store};

const BYTES: u64 = 8 << 20;
const SECTOR: usize = 512;

fn key(number: u64) -> Key {
    Key::new(InodeNo(20), Kind::Extent, number)
}

fn open(device: &Arc<MemoryDevice>) -> Store {
    let counters = Arc::new(Counters::default());
    Store::open(device.clone(), &OpenOptions::default(), counters).unwrap()
}

/// Values that differ in their beginning alone, if `rest` is the same, made durable.
fn work(store: &Store, fill: u8, rest: u8, durable: fn(&Store)) {
    let mut batch = Batch::new();
    let mut value = vec![rest; 900];
    value[..40].fill(fill);
    batch.put(key(0), value);
    (1..8).for_each(|number| batch.put(key(number), vec![rest; 900]));
    let mut room = store.reserve(Need::Grow { changes: batch.changes(), blocks: 0 }).unwrap();
    store.apply(batch, &mut room).unwrap();
    drop(room);
    durable(store);
}

/// The bytes of a zone, sector by sector.
fn sectors(image: &MemoryDevice, zone: BlockRange) -> Vec<Vec<u8>> {
    let mut bytes = vec![0; zone.bytes().unwrap() as usize];
    image.read(zone.start.byte_offset().unwrap(), &mut bytes).unwrap();
    bytes.chunks(SECTOR).map(<[u8]>::to_vec).collect()
}

/// Writes some sectors of `from` into the zone.
fn put(image: &MemoryDevice, zone: BlockRange, from: &[Vec<u8>], which: &[usize]) {
    for &at in which {
        let place = zone.start.byte_offset().unwrap() + (at * SECTOR) as u64;
        image.write(place, &from[at]).unwrap();
    }
}

/// `earlier`: a commit stands in the journal already.
fn stays_torn(zone: fn(&Geometry) -> BlockRange, durable: fn(&Store), earlier: bool) {
    let formatted = Arc::new(MemoryDevice::new(BYTES));
    let shared: Arc<dyn Device> = formatted.clone();
    let options = CreateOptions {
        geometry: Geometry::for_device(BYTES, 4096).unwrap(),
        uuid: uuid::Uuid::from_u128(3),
        label: String::new(),
        hash_seed: 1,
    };
    Store::create(&shared, &options).unwrap();
    let zone = zone(&options.geometry);
    // The same beginning for both, behind all that the opening writes.
    let store = open(&formatted);
    if earlier {
        work(&store, 3, 9, |store| store.commit().unwrap());
    }
    let before: Lsn = store.latest();
    let base = formatted.snapshot();
    work(&store, 1, 7, durable);
    let first = sectors(&formatted, zone);
    drop(store);
    let other = Arc::new(base.snapshot());
    let store = open(&other);
    work(&store, 2, 7, durable);
    let second = sectors(&other, zone);
    drop(store);
    let empty = sectors(&base, zone);
    let all = 0..empty.len();
    let differ: Vec<usize> = all.clone().filter(|&at| first[at] != second[at]).collect();
    let same: Vec<usize> =
        all.filter(|at| !differ.contains(at) && first[*at] != empty[*at]).collect();
    assert!(!differ.is_empty() && !same.is_empty(), "{} and {}", differ.len(), same.len());

    let left = Arc::new(base.snapshot());
    put(&left, zone, &first, &differ);
    let store = open(&left);
    assert_eq!(store.latest(), before, "it is torn");
    let opened = left.snapshot();
    work(&store, 2, 7, durable);
    let second = sectors(&left, zone);
    drop(store);
    // Of the second one only that arrives which the first one lacks.
    let opened = Arc::new(opened);
    put(&opened, zone, &second, &same);
    let store = open(&opened);
    assert_eq!(store.latest(), before, "what was gone is back");
    assert_eq!(store.get(&key(0)).unwrap().map(|value| value[0]), earlier.then_some(3));
}

#[test]
fn a_torn_batch_stays_torn() {
    for earlier in [false, true] {
        let durable = |store: &Store| {
            store.persist(store.latest(), InodeNo(20)).unwrap();
        };
        stays_torn(Geometry::log, durable, earlier);
    }
}

#[test]
fn a_torn_commit_stays_torn() {
    for earlier in [false, true] {
        stays_torn(Geometry::journal, |store| store.commit().unwrap(), earlier);
    }
}
