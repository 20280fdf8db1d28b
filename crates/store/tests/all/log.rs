//! The log when a program ends or power fails at unlucky moments: between a batch and a commit that are
//! on their way at the same time, and before an opening that writes nothing.

use std::sync::Arc;
use std::thread;

use holdfast_base::counters::Counters;
use holdfast_base::units::BLOCK_SIZE;
use holdfast_base::{BlockNo, InodeNo, LogFallback};
use holdfast_device::memory::MemoryDevice;
use holdfast_device::sim::Policy;
use holdfast_device::{Device, DeviceError, SimDevice, forward};
use holdfast_format::checksum::block_sums;
use holdfast_format::log::{DATA_BLOCKS_MAX, LogHeader};
use holdfast_format::{Geometry, ItemKind, Key};
use holdfast_store::{
    Branch, Need, OpenOptions, Reservation, Store, StoreError, Transaction, Written,
};
use parking_lot::{Condvar, Mutex};

use crate::small;

const BYTES: u64 = 8 << 20;
const ABOUT: InodeNo = InodeNo(20);

fn formatted() -> MemoryDevice {
    formatted_as(Geometry::for_device(BYTES, 4096).unwrap())
}

fn formatted_as(geometry: Geometry) -> MemoryDevice {
    small::formatted_as(geometry).snapshot()
}

fn open(device: Arc<dyn Device>, read_only: bool) -> Result<Branch, StoreError> {
    let options = OpenOptions { read_only, ..OpenOptions::default() };
    Store::open(device, &options, Arc::new(Counters::default())).map(Store::into_main)
}

fn key(number: u64) -> Key {
    Key::new(InodeNo(20 + number), ItemKind::Extent, 0)
}

/// Writes a block and publishes it under a key. Answers where it is.
fn write(store: &Branch, number: u64) -> BlockNo {
    let mut room = store.reserve(Need::Grow { changes: 1, blocks: 1 }).unwrap();
    let placed = store.allocate(&mut room, 1, None).unwrap();
    let at = placed.blocks().start;
    let written = store.write(placed, &[number as u8 + 1; BLOCK_SIZE]).unwrap();
    let mut transaction = Transaction::new();
    let value = transaction.publish(written).encode();
    transaction.put(key(number), value);
    store.apply(transaction, &mut room).unwrap();
    at
}

/// A device whose writes to one range wait as long as it is closed.
#[derive(Debug)]
struct Gate {
    device: Arc<SimDevice>,
    range: std::ops::Range<u64>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    waiting: bool,
}

impl Gate {
    fn new(base: &MemoryDevice) -> Gate {
        let ring = Geometry::for_device(BYTES, 4096).unwrap().journal();
        let start = ring.start.byte_offset().unwrap();
        Gate {
            device: Arc::new(SimDevice::new(base)),
            range: start..start + ring.bytes().unwrap(),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn close(&self, closed: bool) {
        self.state.lock().closed = closed;
        self.changed.notify_all();
    }

    /// Returns when a thread waits.
    fn wait_until_reached(&self) {
        let mut state = self.state.lock();
        while !state.waiting {
            self.changed.wait(&mut state);
        }
    }
}

impl Device for Gate {
    forward!(device: read, flush, discard, room, take_room, len, sector_size, reach, stats);

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        if self.range.contains(&at) {
            let mut state = self.state.lock();
            while state.closed {
                state.waiting = true;
                self.changed.notify_all();
                self.changed.wait(&mut state);
            }
            state.waiting = false;
        }
        self.device.write(at, bytes)
    }
}

#[test]
fn an_opening_that_writes_nothing_shows_what_the_log_holds() {
    let image = Arc::new(formatted());
    let store = open(image.clone(), false).unwrap();
    write(&store, 1);
    store.sync(store.latest(), ABOUT).unwrap();
    let latest = store.latest();
    drop(store);
    let store = open(image, true).unwrap();
    assert_eq!(store.latest(), latest);
    assert!(store.get(&key(1)).unwrap().is_some());
}

/// While a commit is on its way, an fsync writes two batches with one flush: what was frozen, and what
/// came after. Power may keep both batches and lose the data of the first.
#[test]
fn batches_of_one_flush_count_only_with_their_data() {
    let gate = Arc::new(Gate::new(&formatted()));
    let store = Arc::new(open(gate.clone(), false).unwrap());
    let before = store.latest();
    let first = write(&store, 1);
    gate.close(true);
    let committing = thread::spawn({
        let store = store.clone();
        move || store.commit()
    });
    gate.wait_until_reached();
    write(&store, 2);
    store.sync(store.latest(), ABOUT).unwrap();
    let left = Arc::new(gate.device.image());
    gate.close(false);
    committing.join().unwrap().unwrap();
    let latest = store.latest();
    drop(store);

    let whole = open(Arc::new(left.snapshot()), false).unwrap();
    assert_eq!(whole.latest(), latest, "nothing is missing");
    drop(whole);
    // The flush had not returned.
    left.write(first.byte_offset().unwrap(), &[0; BLOCK_SIZE]).unwrap();
    for read_only in [true, false] {
        let store = open(left.clone(), read_only).unwrap();
        assert_eq!(store.latest(), before, "neither happened");
        assert_eq!(store.get(&key(1)).unwrap(), None);
    }
    // What was given up never comes back, also when the data does.
    left.write(first.byte_offset().unwrap(), &[2; BLOCK_SIZE]).unwrap();
    let store = open(left, false).unwrap();
    assert_eq!((store.latest(), store.get(&key(1)).unwrap()), (before, None));
}

/// Four operations: one in the log, a commit of it, one in the next commit alone, and one in the log again.
/// Answers the image and where the data of each is.
fn between_commits() -> (Arc<MemoryDevice>, Vec<BlockNo>) {
    let image = Arc::new(formatted());
    let store = open(image.clone(), false).unwrap();
    let mut places = vec![write(&store, 1)];
    store.sync(store.latest(), ABOUT).unwrap();
    store.commit().unwrap();
    places.push(write(&store, 2));
    store.commit().unwrap();
    places.push(write(&store, 3));
    store.sync(store.latest(), ABOUT).unwrap();
    (image, places)
}

#[test]
fn a_log_behind_commits_that_are_gone_prevents_no_reading() {
    let (image, _) = between_commits();
    let fresh = open(Arc::new(formatted()), true).unwrap();
    let (before, first) = (fresh.latest(), fresh.superblock().journal.next);
    image.write(first.byte_offset().unwrap(), &[0; BLOCK_SIZE]).unwrap();
    assert!(open(image.clone(), false).is_err(), "a durable commit is gone");
    assert_eq!(open(image, true).unwrap().latest(), before);
}

#[test]
fn a_batch_that_builds_on_a_lost_commit_is_a_hole() {
    let (image, places) = between_commits();
    let latest = open(image.clone(), true).unwrap().latest();
    // The last commit looks like one whose data never arrived, but for what follows it in the log.
    image.write(places[1].byte_offset().unwrap(), &[0; BLOCK_SIZE]).unwrap();
    assert!(open(image.clone(), false).is_err(), "a batch was written when the commit was durable");
    assert_eq!(open(image, true).unwrap().latest().0, latest.0 - 2);
}

/// Each sector of the ring claims to begin a batch as large as can be that calls a lost one durable.
#[test]
fn a_ring_full_of_claims_is_searched_in_bounded_time() {
    let geometry = Geometry::for_device(4 * BYTES, 4096).unwrap();
    let geometry = geometry.with_ring_blocks(1024, geometry.journal_blocks);
    let image = Arc::new(formatted_as(geometry));
    // Not left in order: something may follow.
    let store = open(image.clone(), false).unwrap();
    let (ring, tag, latest) = (geometry.log(), store.superblock().ring_tag, store.latest());
    drop(store);
    let mut bytes = vec![0; ring.bytes().unwrap() as usize];
    image.read(ring.start.byte_offset().unwrap(), &mut bytes).unwrap();
    // What the mark names stays: else the ring counts as wiped.
    for (sector, at) in bytes.chunks_exact_mut(512).zip((0..).step_by(512)).skip(1) {
        let header =
            LogHeader { address: at, volume: tag, number: 9, durable: 8, ..small::log_header() };
        let mut batch = small::log_batch(header);
        // As long as the ring; its sum is that of the header alone.
        let len = ring.bytes().unwrap() as u32;
        batch[4..8].copy_from_slice(&len.to_le_bytes());
        batch[88..][..4].copy_from_slice(&(len - LogHeader::SIZE as u32).to_le_bytes());
        sector.copy_from_slice(&batch);
    }
    image.write(ring.start.byte_offset().unwrap(), &bytes).unwrap();
    let before = image.stats().read_bytes;
    let store = open(image.clone(), false).unwrap();
    assert_eq!(store.latest(), latest);
    drop(store);
    let read = image.stats().read_bytes - before;
    assert!((60 << 20..80 << 20).contains(&read), "{read} bytes were read");
}

/// One operation is larger than a batch may be: it becomes a commit, which is counted, and is durable when
/// the call returns. Nothing of it is in the log.
#[test]
fn more_than_a_batch_may_hold_becomes_a_commit() {
    let geometry = Geometry::for_device(256 << 20, 16384).unwrap();
    let ring = geometry.journal();
    let start = ring.start.byte_offset().unwrap();
    let range = start..start + ring.bytes().unwrap();
    let gate = Arc::new(Gate { range, ..Gate::new(&formatted_as(geometry)) });
    let store = open(gate.clone(), false).unwrap();
    let count = 1200;
    let value = |number: u64| vec![number as u8; 4000];
    let put_all = |from: u64| {
        let mut transaction = Transaction::new();
        for number in from..from + count {
            transaction.put(Key::new(InodeNo(20), ItemKind::Xattr, number * 4096), value(number));
        }
        let need = Need::Grow { changes: count as u32, blocks: 0 };
        store.apply(transaction, &mut store.reserve(need).unwrap()).unwrap();
    };
    // So much wakes the commits of the background as well: they must not be faster.
    gate.close(true);
    put_all(0);
    let receipt = thread::scope(|scope| {
        let sync = scope.spawn(|| store.sync(store.latest(), ABOUT).unwrap());
        while store.counters().log_too_large.get() == 0 {
            thread::yield_now();
        }
        gate.close(false);
        sync.join().unwrap()
    });
    assert_eq!(receipt.fallback, Some(LogFallback::TooLarge));
    // It costs a whole commit, and says so.
    assert!(receipt.led && receipt.flushes >= 1 && receipt.log_writes >= 1, "{receipt:?}");
    assert!(receipt.log_bytes >= count * 4000, "{receipt:?}");
    assert_eq!(store.counters().log_too_large.get(), 1);
    assert_eq!((store.counters().log_batches.get(), store.durable()), (0, store.latest()));
    let lost = Policy::whole_only();
    let left = gate.device.cut().images(&lost).next().unwrap().device();
    let found = open(Arc::new(left), false).unwrap();
    assert_eq!(found.latest(), store.latest());
    for number in 0..count {
        let key = Key::new(InodeNo(20), ItemKind::Xattr, number * 4096);
        assert_eq!(found.get(&key).unwrap(), Some(value(number)));
    }
}

/// Blocks of a file on the device, none of them published.
fn write_many(store: &Branch, room: &mut Reservation, blocks: u64) -> Vec<Written> {
    let mut written = Vec::new();
    let mut left = blocks;
    while left > 0 {
        let placed = store.allocate(room, left.min(store.extent_blocks_max()), None).unwrap();
        let count = placed.blocks().count;
        left -= count;
        let bytes: Vec<u8> = (0..count).flat_map(|at| [at as u8 + 1; BLOCK_SIZE]).collect();
        written.push(store.write(placed, &bytes).unwrap());
    }
    written
}

/// Another inode publishes more data than one flush may bring in, while one inode is fsynced again and again: the data
/// was flushed before, and the next fsync needs one flush for itself (P1, rule R3).
#[test]
fn large_data_of_a_stranger_is_flushed_before_it_is_published() {
    let blocks = DATA_BLOCKS_MAX + 1;
    let device = SimDevice::new(&formatted_as(Geometry::for_device(256 << 20, 16384).unwrap()));
    let device = Arc::new(device);
    let store = open(device.clone(), false).unwrap();
    let mut fsynced = 0;
    let mut fsync = || {
        write(&store, fsynced);
        fsynced += 1;
        store.sync(store.latest(), ABOUT).unwrap()
    };
    // A thread that was paused for long between the two calls finds no recent fsync, and tries again.
    let extents = (1..=100).find_map(|attempt| {
        let mut room = store.reserve(Need::Grow { changes: 100, blocks }).unwrap();
        let mut written = write_many(&store, &mut room, blocks);
        fsync();
        let before = device.stats().flushes;
        store.flush_for_others(written.iter_mut(), blocks, None).unwrap();
        let own = device.stats().flushes - before;
        let mut transaction = Transaction::new();
        let extents: Vec<_> =
            written.into_iter().map(|written| transaction.publish(written)).collect();
        for (number, extent) in extents.iter().enumerate() {
            let key = Key::new(InodeNo(9_000 + attempt), ItemKind::Extent, number as u64);
            transaction.put(key, extent.encode());
        }
        store.apply(transaction, &mut room).unwrap();
        let receipt = fsync();
        assert_eq!(receipt.flushes + own, 2, "the data, and the transaction: {receipt}");
        (own == 1).then_some(extents)
    });
    let extents = extents.expect("in one of a hundred attempts it came in time");
    let left = device.cut().images(&Policy::whole_only()).next().unwrap().device();
    let found = open(Arc::new(left), false).unwrap();
    assert_eq!(found.latest(), store.latest());
    for extent in extents {
        let mut bytes = vec![0; extent.blocks.count as usize * BLOCK_SIZE];
        found.read(extent.blocks, &mut bytes).unwrap();
        let sums: Vec<u64> = block_sums(&bytes).collect();
        assert_eq!(sums, extent.sums);
    }
}
