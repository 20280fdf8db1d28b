//! Histories in which one step of an opening stands alone, because the others that usually help see nothing wrong.
//!
//! A superblock that can be read and was never flushed, on a volume so full that the recovery behind it uses
//! what only the one before reaches; a batch of a history that a crash has ended, at the very place, with
//! the very number and operation, where the new history goes on; a commit that lacks its data until the
//! recovery brings it.
//!
//! The error says what was lost. Knows nothing of what the checks look like.

use std::sync::{Arc, Mutex};

use holdfast_base::{BLOCK_SIZE, InodeNo};
use holdfast_device::sim::{Event, Policy};
use holdfast_device::{Device, DeviceError, Flushed, MemoryDevice, Page, SimDevice, forward};
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::log::LogHeader;
use holdfast_format::{Geometry, Superblock};
use holdfast_store::{Branch, LoggedBlock, Need, Transaction};

use crate::small::{self, first, formatted_as, key, open, prepared, put_one_transaction, sync};

/// Rings in which nothing becomes urgent.
fn large_rings() -> Geometry {
    let volume = Geometry::for_device(64 << 20, 4096).expect("a size that is offered");
    volume.with_ring_blocks(4096, 4096)
}

/// Values of this volume: some 500 leaves.
const VALUES: u64 = 1600;
/// Blocks that are left free for what comes: more than the leaves, less than twice as many.
const LEFT: u64 = 680;
/// Values that are changed at once.
const AT_ONCE: u64 = 10;

/// A program ends between the write of a superblock and its flush, with batches behind it. The next one reads that
/// superblock, and everything but its own writes may still be lost: power fails at each of them.
pub(crate) fn a_superblock_that_was_not_flushed() -> Result<(), String> {
    let device = formatted_as(large_rings());
    let store = open(&device);
    let all = || (0..VALUES).step_by(AT_ONCE as usize).map(|at| at..at + AT_ONCE);
    all().for_each(|keys| put_one_transaction(&store, keys, 1, 9));
    fill_up(&store);
    store.checkpoint().map_err(|error| error.to_string())?;
    all().for_each(|keys| put_one_transaction(&store, keys, 2, 9));
    store.commit().map_err(|error| error.to_string())?;
    let before = newest(&device);
    store.checkpoint().map_err(|error| error.to_string())?;
    let superblock = newest(&device);
    assert_ne!(before.epoch, superblock.epoch, "a superblock was written");
    let slot = SUPERBLOCK_SLOTS[(superblock.epoch.0 % 2) as usize];
    let at = slot.byte_offset().expect("it lies at the start");
    let mut written = [0; BLOCK_SIZE];
    device.read(at, &mut written).expect("memory reads");
    // Batches that were durable before the superblock was written: a checkpoint works beside them.
    // They are small, and change most leaves.
    for keys in all() {
        let mut transaction = Transaction::new();
        keys.step_by(5).for_each(|number| transaction.put(key(number), vec![3; 30]));
        let need = Need::Grow { changes: transaction.changes(), blocks: 0 };
        let mut room = store.reserve(need).map_err(|error| error.to_string())?;
        store.apply(transaction, &mut room).map_err(|error| error.to_string())?;
    }
    sync(&store);
    let latest = store.latest();
    drop(store);
    assert_eq!(newest(&device), superblock, "nothing was written to the trees behind it");
    // What was in the slot before makes no difference: it was older than what is in the other one.
    device.write(at, &[0; BLOCK_SIZE]).expect("memory writes");
    let sim = Arc::new(SimDevice::new(&device.snapshot()));
    sim.write(at, &written).expect("it is written, and not flushed");
    let store = open(&sim);
    assert_eq!(store.latest(), latest);
    drop(store);
    let judge = |written: usize| -> Result<(), String> {
        let place = || format!("after {written} writes of an opening");
        let store = small::try_open(&Arc::new(device.snapshot()))
            .map_err(|error| format!("P9: {}: {error}", place()))?;
        let value = |number| if number % 5 == 0 { 3 } else { 2 };
        let is_whole = (0..VALUES).all(|number| first(&store, number) == Some(value(number)));
        let words = || format!("P1: {}: {:?}, not {latest:?}", place(), store.latest());
        (store.latest() == latest && is_whole).then_some(()).ok_or_else(words)
    };
    judge(0)?;
    // All that the opening writes before a flush arrives, but for that superblock.
    let recording = sim.recording();
    let calls = recording.events[1..].iter().filter(|event| event.changes_images());
    let writes = calls.map_while(|event| match event {
        Event::Write { at, bytes, .. } => Some((*at, bytes)),
        _ => None,
    });
    for (count, (at, bytes)) in (1..).zip(writes) {
        device.write(at, bytes).expect("memory writes");
        judge(count)?;
    }
    Ok(())
}

/// Takes space until little is left.
fn fill_up(store: &Branch) {
    for number in 0.. {
        let free = store.space_use().free;
        if free <= LEFT {
            return;
        }
        let blocks = (free - LEFT).min(64);
        let mut room =
            store.reserve(Need::Grow { changes: 1, blocks }).expect("the space is there");
        let placed = store.allocate(&mut room, blocks, None).expect("it was reserved");
        let bytes = vec![number as u8; placed.blocks().count as usize * BLOCK_SIZE];
        let written = store.write(placed, &bytes).expect("memory writes");
        let mut transaction = Transaction::new();
        let value = transaction.publish(written).encode();
        transaction.put(key(10_000 + number), value);
        store.apply(transaction, &mut room).expect("there is room");
    }
}

fn newest(device: &MemoryDevice) -> Superblock {
    let slots = SUPERBLOCK_SLOTS.into_iter().filter_map(|slot| {
        let mut block = [0; BLOCK_SIZE];
        device.read(slot.byte_offset()?, &mut block).ok()?;
        Superblock::decode(&block, slot).ok()
    });
    slots.max_by_key(|superblock| superblock.epoch).expect("one is valid")
}

/// Does something of its own at the first write into a part of the device.
struct Meanwhile {
    device: Arc<MemoryDevice>,
    range: std::ops::Range<u64>,
    act: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl std::fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meanwhile")
    }
}

impl Device for Meanwhile {
    forward!(device: read, discard, room, take_room, len, sector_size, reach, stats);

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        if self.range.contains(&at) {
            let act = self.act.lock().unwrap().take();
            act.into_iter().for_each(|act| act());
        }
        self.device.write(at, bytes)
    }

    fn flush(&self) -> Result<Flushed, DeviceError> {
        self.device.flush()
    }
}

/// Values that nearly fill a batch, so that another one is begun behind them.
const MANY: std::ops::Range<u64> = 100..3700;

/// Three batches go out with one flush; power fails, the first of them is torn and the last one arrives. The new
/// history has a batch as long as the first two, which leads to the same operation: behind it lies the
/// last one of the old history, with the number that comes next.
pub(crate) fn a_batch_of_another_history() -> Result<(), String> {
    let geometry = large_rings();
    let left = torn(geometry);
    let log = geometry.log().start.byte_offset().expect("it lies inside");
    let mark = newest(&left).log;
    let header = |at: u64| {
        let mut bytes = [0; 512];
        left.read(log + at, &mut bytes).expect("memory reads");
        LogHeader::decode(&bytes).expect("a batch was written there")
    };
    let one = header(mark.next);
    let two = header(mark.next + u64::from(one.bytes));
    let both = u64::from(one.bytes) + u64::from(two.bytes);
    let three = header(mark.next + both);
    assert_eq!((two.number, three.number), (one.number + 1, one.number + 2));
    // The flush had not returned, and one sector is missing.
    left.write(log + mark.next, &[0; 512]).expect("memory writes");

    // Values that make up for the header that the new history does without.
    for more in (0..450).step_by(50) {
        let image = Arc::new(left.snapshot());
        let store = open(&image);
        assert_eq!(first(&store, 0), None, "it is torn");
        let (mut small, mut small_room) = prepared(&store, 0..1, 2, 9);
        small.put(key(50), vec![2; 1 + more]);
        small.put(key(51), vec![2; 1 + more]);
        let room = store.reserve(Need::Grow { changes: 2, blocks: 0 }).expect("there is room");
        small_room.merge(room);
        let (many, mut room) = prepared(&store, MANY, 2, 9);
        store.apply(small, &mut small_room).expect("there is room");
        store.apply(many, &mut room).expect("there is room");
        let latest = store.latest();
        let receipt = store.sync(latest, InodeNo(20)).map_err(|error| error.to_string())?;
        drop(store);
        if receipt.log_bytes == both {
            let store = small::try_open(&image).map_err(|error| format!("P9: {error}"))?;
            let is_as_it_was = store.latest() == latest && first(&store, 1).is_none();
            let found = store.latest();
            let words = format!("P3: a batch of another history counts: {found:?}, not {latest:?}");
            return is_as_it_was.then_some(()).ok_or(words);
        }
    }
    panic!("no batch was as long as the first two");
}

/// A volume with three batches in its log that came with one flush. A commit has frozen two; while it is
/// written, an fsync makes both, and one with what came behind them.
fn torn(geometry: Geometry) -> MemoryDevice {
    let base = formatted_as(geometry);
    let ring = geometry.journal();
    let start = ring.start.byte_offset().expect("it lies inside");
    let range = start..start + ring.bytes().expect("it lies inside");
    let meanwhile = Arc::new(Meanwhile { device: base.clone(), range, act: Mutex::new(None) });
    let store = Arc::new(open(&meanwhile));
    let left = Arc::new(Mutex::new(None));
    let operations = [MANY, 0..1, 1..2].map(|keys| prepared(&store, keys, 1, 9));
    let [many, small, (batch, mut room)] = operations;
    for (batch, mut room) in [many, small] {
        store.apply(batch, &mut room).expect("there is room");
    }
    *meanwhile.act.lock().unwrap() = Some(Box::new({
        let (store, base, left) = (Arc::downgrade(&store), base.clone(), left.clone());
        move || {
            let store = store.upgrade().expect("it commits");
            store.apply(batch, &mut room).expect("there is room");
            sync(&store);
            *left.lock().unwrap() = Some(base.snapshot());
        }
    }));
    store.commit().expect("memory writes");
    assert_eq!(store.counters().log_batches.get(), 3, "they went out with one flush");
    left.lock().unwrap().take().expect("another thread fsynced meanwhile")
}

/// The data that a commit lacks may lie in the log: then the recovery that gives the commit up brings the data to
/// its place itself, and uses blocks that only the commit reaches. Power fails in it, and the commit, whose
/// frames and data are all there now, must not count.
pub(crate) fn a_commit_that_was_given_up() -> Result<(), String> {
    let device = formatted_as(small::geometry());
    let store = open(&device);
    let need = Need::Grow { changes: 1, blocks: 1 };
    let mut room = store.reserve(need).expect("there is room");
    let placed = store.allocate(&mut room, 1, None).expect("it was reserved");
    let at = placed.blocks().start.byte_offset().expect("it lies inside");
    let page = Page::from(&[7; BLOCK_SIZE]);
    let block = LoggedBlock { page, base: None, changed: 0..BLOCK_SIZE };
    let written = store.log_data(placed, vec![block]).expect("the store works");
    let mut transaction = Transaction::new();
    let value = transaction.publish(written).encode();
    transaction.put(key(1), value);
    store.apply(transaction, &mut room).expect("there is room");
    sync(&store);
    let logged = store.latest();
    put_one_transaction(&store, 2..3, 1, 9);
    store.commit().expect("memory writes");
    drop(store);
    // The frame arrived, the data of the log did not reach its place: the flush had not returned.
    device.write(at, &[0; BLOCK_SIZE]).expect("memory writes");
    let recovery = Arc::new(SimDevice::new(&device.snapshot()));
    let store = open(&recovery);
    assert_eq!(store.latest(), logged, "the commit lacks its data");
    drop(store);
    let recording = recovery.recording();
    // The data arrives, and the marker that goes over the frame of that commit does not.
    let images = Policy { each: 64, ..Policy::whole_only() };
    for index in 0..=recording.events.len() {
        for image in recording.cut_at(index).images(&images) {
            let place = || format!("cut at {index}: {}", image.describe());
            let store = small::try_open(&Arc::new(image.device()))
                .map_err(|error| format!("P9: {}: {error}", place()))?;
            if store.latest() != logged {
                return Err(format!("P3: {}: {:?}, not {logged:?}", place(), store.latest()));
            }
        }
    }
    Ok(())
}
