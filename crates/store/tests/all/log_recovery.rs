//! Recoveries of the log in unlucky places: refused ones, ones behind a flush that failed, ones on another
//! device than the one that crashed, cut at every write (P9); and a leader that panics (P7).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use holdfast_base::counters::Counters;
use holdfast_base::units::BLOCK_SIZE;
use holdfast_base::{BatchNo, BlockNo, CommitNo, Epoch, InodeNo, Lsn};
use holdfast_device::memory::MemoryDevice;
use holdfast_device::page::Page;
use holdfast_device::sim::{Action, Call, Faults, Policy, When};
use holdfast_device::{Device, DeviceError, Flushed, SimDevice, forward};
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::limits::COUNTER_MAX;
use holdfast_format::log::LogHeader;
use holdfast_format::{Geometry, ItemKind, Key, Superblock};
use holdfast_sim::agree_on_log;
use holdfast_store::{Branch, LoggedBlock, Need, OpenOptions, Store, StoreError, Transaction};
use parking_lot::{Condvar, Mutex};

use crate::small;

const BYTES: u64 = 8 << 20;
const ABOUT: InodeNo = InodeNo(20);

fn formatted(sector: u32) -> Arc<MemoryDevice> {
    let device = MemoryDevice::with_sector_size(BYTES, sector);
    small::formatted_on(device, Geometry::for_device(BYTES, 4096).unwrap())
}

fn open(device: Arc<dyn Device>, read_only: bool) -> Result<Branch, StoreError> {
    let options = OpenOptions { read_only, ..OpenOptions::default() };
    Store::open(device, &options, Arc::new(Counters::default())).map(Store::into_main)
}

fn key(number: u64) -> Key {
    Key::new(InodeNo(20 + number), ItemKind::Extent, 0)
}

/// Publishes a block under a key; in the log, or written to its location. Returns its block.
fn write(store: &Branch, number: u64, in_log: bool) -> BlockNo {
    write_page(store, number, in_log, [number as u8 + 1; BLOCK_SIZE])
}

fn write_page(store: &Branch, number: u64, in_log: bool, page: [u8; BLOCK_SIZE]) -> BlockNo {
    let mut room = store.reserve(Need::Grow { changes: 1, blocks: 1 }).unwrap();
    let placed = store.allocate(&mut room, 1, None).unwrap();
    let at = placed.blocks().start;
    let written = match in_log {
        true => {
            let block = LoggedBlock { page: Page::from(&page), base: None, changed: 0..BLOCK_SIZE };
            store.log_data(placed, vec![block]).unwrap()
        }
        false => store.write(placed, &page).unwrap(),
    };
    let mut transaction = Transaction::new();
    let value = transaction.publish(written).encode();
    transaction.put(key(number), value);
    store.apply(transaction, &mut room).unwrap();
    at
}

fn sync(store: &Branch) {
    store.sync(store.latest(), ABOUT).unwrap();
}

/// Every block that is published has its bytes.
fn assert_whole(store: &Branch, keys: std::ops::Range<u64>) {
    for number in keys {
        let value = store.get(&key(number)).unwrap().unwrap_or_else(|| panic!("{number} is gone"));
        let extent = holdfast_format::item::Extent::decode(&value).unwrap();
        let mut bytes = [0; BLOCK_SIZE];
        store.read(extent.blocks, &mut bytes).unwrap();
        assert_eq!(bytes, [number as u8 + 1; BLOCK_SIZE], "{number}");
    }
}

/// What the log says of a commit decides whether a volume may be opened. So nothing is written before the log is
/// read: a refused opening leaves the volume as it was, and when the data of the last commit reads again,
/// all of it is there.
#[test]
fn a_volume_that_is_refused_is_left_as_it_was() {
    let image = formatted(512);
    let store = open(image.clone(), false).unwrap();
    write(&store, 1, false);
    store.commit().unwrap();
    let place = write(&store, 2, false).byte_offset().unwrap();
    store.commit().unwrap();
    write(&store, 3, false);
    sync(&store);
    let latest = store.latest();
    drop(store);
    // The data of the last commit does not read as it was written, this once.
    image.write(place, &[0; BLOCK_SIZE]).unwrap();
    let before = image.to_image();
    let refused = open(image.clone(), false).unwrap_err().to_string();
    assert!(refused.contains("mount it read-only"), "{refused}");
    assert!(image.to_image() == before, "a volume that is refused was written to");
    image.write(place, &[3; BLOCK_SIZE]).unwrap();
    let store = open(image, false).unwrap();
    assert_eq!(store.latest(), latest);
    assert_whole(&store, 1..4);
}

/// A device that stops in the middle of a commit, and panics when it is told to.
#[derive(Debug)]
struct Gate {
    device: Arc<SimDevice>,
    /// Writes there wait while it is closed.
    range: std::ops::Range<u64>,
    /// Whether it is closed, and whether a thread waits.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
    panics: AtomicBool,
}

impl Gate {
    fn new(base: &MemoryDevice) -> Arc<Gate> {
        let ring = Geometry::for_device(BYTES, 4096).unwrap().journal();
        let start = ring.start.byte_offset().unwrap();
        Arc::new(Gate {
            device: Arc::new(SimDevice::new(base)),
            range: start..start + ring.bytes().unwrap(),
            state: Mutex::default(),
            changed: Condvar::new(),
            panics: AtomicBool::new(false),
        })
    }

    fn close(&self, closed: bool) {
        self.state.lock().0 = closed;
        self.changed.notify_all();
    }

    fn wait_until_reached(&self) {
        let mut state = self.state.lock();
        while !state.1 {
            self.changed.wait(&mut state);
        }
    }

    fn pass(&self) {
        let mut state = self.state.lock();
        while state.0 {
            state.1 = true;
            self.changed.notify_all();
            self.changed.wait(&mut state);
        }
        state.1 = false;
    }
}

impl Device for Gate {
    forward!(device: read, discard, room, take_room, len, sector_size, reach, stats);

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        if self.range.contains(&at) {
            self.pass();
        }
        self.device.write(at, bytes)
    }

    fn flush(&self) -> Result<Flushed, DeviceError> {
        if self.panics.load(Ordering::SeqCst) {
            self.pass();
            panic!("the device's code panics, as the test wants it");
        }
        self.device.flush()
    }
}

/// A commit and a batch that it contains were both written, and the flush of neither returned. The next opening
/// reads both, and has nothing to replay of the log: but where the log goes on must hold without them.
#[test]
fn a_log_whose_batches_are_all_contained_in_a_commit_that_was_not_flushed() {
    let gate = Gate::new(&formatted(512));
    let store = Arc::new(open(gate.clone(), false).unwrap());
    write(&store, 1, true);
    sync(&store);
    let acknowledged = store.latest();
    write(&store, 2, true);
    gate.close(true);
    let committing = thread::spawn({
        let store = store.clone();
        move || store.commit()
    });
    gate.wait_until_reached();
    gate.device.set_faults(Faults::fail_from(Call::Flush, 1));
    store.sync(store.latest(), ABOUT).unwrap_err();
    gate.close(false);
    committing.join().unwrap().unwrap_err();
    drop(store);
    gate.device.set_faults(Faults::none());
    // The same machine, without a power cut: everything that was written can be read, and may be lost.
    let store = open(gate.device.clone(), false).unwrap();
    assert_eq!(store.counters().recovered_batches.get(), 0, "the commit contains all of them");
    assert_eq!(store.latest(), acknowledged.next(), "the commit is read");
    write(&store, 3, true);
    sync(&store);
    let latest = store.latest();
    drop(store);
    let cut = gate.device.cut();
    let policy = Policy { each: 20, samples: 60, torn: 40, ..Policy::default() };
    let mut images = 0;
    for image in cut.images(&policy) {
        let found = open(Arc::new(image.device()), false).unwrap();
        assert_eq!(found.latest(), latest, "{}", image.describe());
        assert_whole(&found, 1..4);
        images += 1;
    }
    assert!(images > 0);
}

/// A volume crashes on sectors of 512 bytes and is recovered on sectors of 4,096, or the other way round: its
/// log ends where no batch of the new device may begin. Power fails at every call of that recovery, and of
/// the life behind it.
#[test]
fn a_recovery_on_other_sectors_is_cut_at_every_call() {
    let mut images = 0;
    for (sector, other) in [(512, 4096), (4096, 512)] {
        let image = formatted(sector);
        let store = open(image.clone(), false).unwrap();
        write(&store, 1, true);
        sync(&store);
        write(&store, 2, false);
        sync(&store);
        let mut transaction = Transaction::new();
        transaction.put(Key::new(ABOUT, ItemKind::Xattr, 256), vec![7; 100]);
        let mut room = store.reserve(Need::Grow { changes: 1, blocks: 0 }).unwrap();
        store.apply(transaction, &mut room).unwrap();
        sync(&store);
        let latest = store.latest();
        drop(store);
        let copy = MemoryDevice::with_sector_size(BYTES, other);
        copy.write(0, &image.to_image()).unwrap();
        let device = Arc::new(SimDevice::new(&copy));
        let store = open(device.clone(), false).unwrap();
        assert_eq!((store.latest(), store.counters().recovered_batches.get()), (latest, 3));
        device.mark(1);
        write(&store, 3, true);
        sync(&store);
        device.mark(2);
        drop(store);
        let recording = device.recording();
        let policy = Policy { each: 40, samples: 10, torn: 10, ..Policy::default() };
        for index in 0..=recording.events.len() {
            let is_done = !recording.events[index..]
                .iter()
                .any(|event| matches!(event, holdfast_device::sim::Event::Mark(2)));
            let least = Lsn(latest.0 + u64::from(is_done));
            for image in recording.cut_at(index).images(&policy) {
                let left = Arc::new(image.device());
                // Twice: what a recovery leaves is whole as well, on either kind of sector.
                let found = open(left.clone(), false).unwrap();
                assert!(found.latest() >= least, "{sector} {index}: {}", image.describe());
                assert_whole(&found, 1..3 + u64::from(is_done));
                drop(found);
                let copy = MemoryDevice::with_sector_size(BYTES, sector);
                copy.write(0, &left.to_image()).unwrap();
                let found = open(Arc::new(copy), false).unwrap();
                assert!(found.latest() >= least, "{sector} {index}: {}", image.describe());
                images += 1;
            }
        }
    }
    println!("{images} images");
    assert!(images > 60, "{images}");
}

/// A leader that panics leaves no caller waiting: all callers of its batch or the next hear that the volume stopped,
/// and what was acknowledged before is there afterwards.
#[test]
fn a_waiter_of_a_leader_that_panics_gets_an_error() {
    let gate = Gate::new(&formatted(512));
    let store = open(gate.clone(), false).unwrap();
    write(&store, 1, true);
    sync(&store);
    let acknowledged = store.latest();
    write(&store, 2, true);
    gate.close(true);
    gate.panics.store(true, Ordering::SeqCst);
    thread::scope(|scope| {
        let sync = || store.sync(store.latest(), ABOUT).map(drop);
        let leader = scope.spawn(sync);
        gate.wait_until_reached();
        let same: Vec<_> = (0..4).map(|_| scope.spawn(sync)).collect();
        write(&store, 3, true);
        let next: Vec<_> = (0..4).map(|_| scope.spawn(sync)).collect();
        gate.close(false);
        leader.join().unwrap_err();
        for waiter in same.into_iter().chain(next) {
            let error = waiter.join().expect("nobody else panics").unwrap_err();
            assert!(matches!(error, StoreError::Stopped(_)), "{error}");
        }
    });
    assert_eq!(store.durable(), acknowledged);
    store.sync(store.latest(), ABOUT).map(drop).unwrap_err();
    store.commit().unwrap_err();
    store.sync(acknowledged, ABOUT).map(drop).unwrap();
    assert_whole(&store, 1..4);
    drop(store);
    gate.panics.store(false, Ordering::SeqCst);
    let found = open(gate, false).unwrap();
    assert!(found.latest() >= acknowledged);
    assert_whole(&found, 1..2);
}

/// The device refuses the one place that data of the log belongs to, at every opening. Nothing is lost: it can be
/// read, on a copy of the device it is recovered, and the refusal names the block and the file.
#[test]
fn data_of_the_log_that_finds_no_place_is_named_and_kept() {
    let base = formatted(512);
    let store = open(base.clone(), false).unwrap();
    write(&store, 1, true);
    let bad = write(&store, 2, true);
    write(&store, 3, true);
    sync(&store);
    let latest = store.latest();
    drop(store);
    let device = Arc::new(SimDevice::new(&base));
    let start = bad.byte_offset().unwrap();
    let inside = When::Inside { start, end: start + BLOCK_SIZE as u64, skip: 0, times: u64::MAX };
    let refuse = || Faults::none().with(Call::Write, inside, Action::Fail);
    for _ in 0..3 {
        device.set_faults(refuse());
        let refused = open(device.clone(), false).unwrap_err().to_string();
        for word in [&format!("block {bad}"), "inode 22", "read-only", "another device"] {
            assert!(refused.contains(word), "{word} is missing: {refused}");
        }
        let store = open(device.clone(), true).unwrap();
        assert_eq!(store.latest(), latest);
        assert_whole(&store, 1..4);
    }
    let store = open(Arc::new(device.image()), false).unwrap();
    assert_eq!(store.latest(), latest);
    assert_whole(&store, 1..4);
}

/// Bytes of files travel inside batches, and the ring is searched for batches. A user that writes a forged batch, made
/// for its future location, must not make a volume that lost one (P10): without reading the device, the user does not
/// know what every batch of this volume carries.
#[test]
fn a_user_cannot_write_what_is_taken_for_a_batch() {
    let base = formatted(512);
    let fsynced = |page: [u8; BLOCK_SIZE]| {
        let image = Arc::new(base.snapshot());
        let store = open(image.clone(), false).unwrap();
        write_page(&store, 1, true, page);
        sync(&store);
        image
    };
    let ring = Geometry::for_device(BYTES, 4096).unwrap().log();
    let mut bytes = vec![0; ring.bytes().unwrap() as usize];
    fsynced([0xa5; BLOCK_SIZE]).read(ring.start.byte_offset().unwrap(), &mut bytes).unwrap();
    let at = bytes.windows(64).position(|part| part == [0xa5; 64]).unwrap();
    let sector = at.next_multiple_of(512);
    let store = open(Arc::new(base.snapshot()), true).unwrap();
    let superblock = store.superblock();
    for (tag, is_believed) in [(superblock.node_tag, false), (superblock.ring_tag, true)] {
        let header = LogHeader {
            address: sector as u64,
            volume: tag,
            number: 900,
            durable: 899,
            ..small::log_header()
        };
        let batch = small::log_batch(header);
        let mut page = [0xa5; BLOCK_SIZE];
        page[sector - at..][..batch.len()].copy_from_slice(&batch);
        let opened = open(fsynced(page), false);
        assert_eq!(opened.is_err(), is_believed, "{:?}", opened.err());
    }
}

/// What a hostile disk counts, near the largest numbers there are: an error, and no volume that its own program
/// cannot open again.
#[test]
fn counters_near_their_end_are_refused_before_anything_is_written() {
    type Change = fn(&mut Superblock, u64);
    let changes: [Change; 6] = [
        |superblock, most| superblock.lsn = Lsn(most),
        |superblock, most| superblock.inode_next = InodeNo(most),
        |superblock, most| superblock.inode_count = most,
        |superblock, most| superblock.epoch = Epoch(most - most % 2),
        |superblock, most| superblock.journal.commit = CommitNo(most),
        |superblock, most| superblock.log.batch = BatchNo(most),
    ];
    for change in changes {
        for most in [COUNTER_MAX, COUNTER_MAX - 1, COUNTER_MAX / 2 + 2, COUNTER_MAX + 2, u64::MAX] {
            let image = formatted(512);
            let mut superblock = open(image.clone(), true).unwrap().superblock();
            change(&mut superblock, most);
            for slot in SUPERBLOCK_SLOTS {
                let block = match SUPERBLOCK_SLOTS[(superblock.epoch.0 % 2) as usize] == slot {
                    true => superblock.encode(slot),
                    false => Box::new([0; BLOCK_SIZE]),
                };
                image.write(slot.byte_offset().unwrap(), &block[..]).unwrap();
            }
            let before = image.to_image();
            let refused = open(image.clone(), false).unwrap_err().to_string();
            assert!(image.to_image() == before, "it was written to");
            assert_eq!(open(image.clone(), true).is_ok(), most <= COUNTER_MAX, "{most}: {refused}");
            // The second opinion says so as well.
            agree_on_log(&image).unwrap();
        }
    }
    // In the header of a batch.
    for most in [COUNTER_MAX, COUNTER_MAX / 2 + 2] {
        let image = formatted(512);
        let superblock = open(image.clone(), true).unwrap().superblock();
        // Not left in order: batches may follow.
        drop(open(image.clone(), false).unwrap());
        let header = LogHeader {
            address: superblock.log.next,
            volume: superblock.ring_tag,
            number: superblock.log.batch.0 + 1,
            durable: superblock.log.batch.0,
            prior: superblock.log.sum,
            after: superblock.lsn.0,
            last: most,
            inode_next: most,
            inode_count: most,
            ..small::log_header()
        };
        let batch = small::log_batch(header);
        let at = superblock.geometry.log().start.byte_offset().unwrap() + superblock.log.next;
        image.write(at, &batch).unwrap();
        let before = image.to_image();
        open(image.clone(), false).unwrap_err();
        assert!(image.to_image() == before, "it was written to");
        agree_on_log(&image).unwrap();
        assert_eq!(open(image, true).unwrap().latest(), Lsn(most));
    }
}
