//! A small volume whose rings are small, values that differ in their beginning, and the sectors of a zone.
//!
//! Nothing works in the background: the same calls leave the same bytes.

// Each test that uses it takes a part.
#![allow(dead_code)]

use std::sync::Arc;

use holdfast_base::counters::Counters;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockRange, InodeNo};
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::log::LogHeader;
use holdfast_format::{Geometry, ItemKind, Key};
use holdfast_store::{
    Branch, CreateOptions, Need, OpenOptions, Reservation, Result, Store, Transaction,
};

const BYTES: u64 = 16 << 20;
const SECTOR: usize = 512;

pub(crate) fn key(number: u64) -> Key {
    Key::new(InodeNo(20), ItemKind::Extent, number)
}

pub(crate) fn geometry() -> Geometry {
    Geometry::for_device(BYTES, 4096).unwrap().with_ring_blocks(512, 64)
}

pub(crate) fn formatted() -> Arc<MemoryDevice> {
    formatted_as(geometry())
}

pub(crate) fn formatted_as(geometry: Geometry) -> Arc<MemoryDevice> {
    formatted_on(MemoryDevice::new(geometry.volume_blocks * BLOCK_BYTES), geometry)
}

/// On a disk whose physical sectors are blocks, and logical ones are not: a torn write takes the whole block.
pub(crate) fn formatted_on_512e() -> Arc<MemoryDevice> {
    formatted_on(MemoryDevice::with_sector_sizes(BYTES, 512, 4096), geometry())
}

pub(crate) fn formatted_on(device: MemoryDevice, geometry: Geometry) -> Arc<MemoryDevice> {
    let formatted = Arc::new(device);
    let shared: Arc<dyn Device> = formatted.clone();
    let options = CreateOptions {
        geometry,
        uuid: uuid::Uuid::from_u128(3),
        label: String::new(),
        hash_seed: 1,
        node_tag: *b"of nodes",
        created: Default::default(),
    };
    Store::create(&shared, &options).unwrap();
    formatted
}

pub(crate) fn try_open(device: &Arc<impl Device + 'static>) -> Result<Branch> {
    Store::open(
        device.clone(),
        &OpenOptions { threads: false, ..OpenOptions::default() },
        Arc::new(Counters::default()),
    )
    .map(Store::into_main)
}

pub(crate) fn open(device: &Arc<impl Device + 'static>) -> Branch {
    try_open(device).unwrap()
}

/// Each value in a batch of its own.
pub(crate) fn put(store: &Branch, keys: std::ops::Range<u64>, fill: u8, rest: u8) {
    keys.for_each(|number| put_one_transaction(store, number..number + 1, fill, rest));
}

/// Values whose first bytes are `fill` and the other ones `rest`.
pub(crate) fn put_one_transaction(store: &Branch, keys: std::ops::Range<u64>, fill: u8, rest: u8) {
    let (batch, mut room) = prepared(store, keys, fill, rest);
    store.apply(batch, &mut room).unwrap();
}

/// A closed volume with some hundred nodes, and what is written for them lies scattered.
pub(crate) fn scattered(geometry: Geometry, items: u64) -> MemoryDevice {
    let device = formatted_as(geometry);
    let store = open(&device);
    for number in 0..items {
        let scattered = number * 131 % items;
        put(&store, scattered..scattered + 1, scattered as u8, 0);
    }
    store.close().unwrap();
    device.snapshot()
}

/// The same, not applied: a store without threads does what is due when a caller asks for room.
pub(crate) fn prepared(
    store: &Branch,
    keys: std::ops::Range<u64>,
    fill: u8,
    rest: u8,
) -> (Transaction, Reservation) {
    let mut transaction = Transaction::new();
    for number in keys {
        let mut value = vec![rest; 900];
        value[..40].fill(fill);
        transaction.put(key(number), value);
    }
    let room = store.reserve(Need::Grow { changes: transaction.changes(), blocks: 0 }).unwrap();
    (transaction, room)
}

/// Of a batch of the log in which nothing is, but for its place and number.
pub(crate) fn log_header() -> LogHeader {
    LogHeader {
        magic: *b"hfLb",
        bytes: 0,
        sum: 0,
        address: 0,
        volume: [0; 8],
        number: 0,
        durable: 0,
        prior: 0,
        after: 1,
        last: 2,
        inode_next: 20,
        inode_count: 1,
        len: 0,
        records: 0,
        flags: 0,
        reserved: [0; 12],
    }
}

/// The batch of a header, without records.
pub(crate) fn log_batch(header: LogHeader) -> Vec<u8> {
    let mut batch = Vec::new();
    LogHeader::reserve(&mut batch);
    header.finish(&mut batch, 0, 512);
    batch
}

pub(crate) fn sync(store: &Branch) {
    let receipt = store.sync(store.latest(), InodeNo(20)).unwrap();
    assert!(receipt.fallback.is_none());
}

pub(crate) fn first(store: &Branch, number: u64) -> Option<u8> {
    store.get(&key(number)).unwrap().map(|value| value[0])
}

/// The bytes of a zone, sector by sector.
pub(crate) fn sectors(image: &MemoryDevice, zone: BlockRange) -> Vec<Vec<u8>> {
    let mut bytes = vec![0; zone.bytes().unwrap() as usize];
    image.read(zone.start.byte_offset().unwrap(), &mut bytes).unwrap();
    bytes.chunks(SECTOR).map(<[u8]>::to_vec).collect()
}

/// Writes some sectors of `from` into the zone.
pub(crate) fn write_sectors(
    image: &MemoryDevice,
    zone: BlockRange,
    from: &[Vec<u8>],
    which: &[usize],
) {
    for &at in which {
        let place = zone.start.byte_offset().unwrap() + (at * SECTOR) as u64;
        image.write(place, &from[at]).unwrap();
    }
}

/// A volume, in use, after a commit that had no room and became a checkpoint.
pub(crate) fn after_a_commit_without_room() -> (Arc<MemoryDevice>, Branch) {
    let device = formatted();
    let store = open(&device);
    put_one_transaction(&store, 0..400, 3, 9);
    store.commit().unwrap();
    assert_eq!(store.counters().journal_full.get(), 1);
    (device, store)
}
