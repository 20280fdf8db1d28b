//! Free space goes back to the device: what was freed and nothing else, with no call refused for it (P8), whatever the device
//! answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use holdfast_base::counters::Counters;
use holdfast_base::prng::Prng;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockRange, InodeNo, Timestamp};
use holdfast_device::sim::{Call, Faults, HostedDevice, SimDevice};
use holdfast_device::{Device, DeviceError, Discards, MemoryDevice, forward};
use holdfast_format::item::Extent;
use holdfast_format::{Geometry, ItemKind, Key};
use holdfast_store::{Branch, Discard, Need, NewSize, OpenOptions, Store, StoreError, Transaction};
use parking_lot::{Condvar, Mutex};

use super::{fill, formatted, formatted_as, shapes};

/// A device that may hold discards off, refuse them or die of them, and counts them.
#[derive(Debug)]
struct Watched<D> {
    under: D,
    discards: AtomicU64,
    /// Let through from now on: as many as this.
    let_through: Mutex<u64>,
    changed: Condvar,
}

impl<D> Watched<D> {
    fn over(under: D) -> Arc<Watched<D>> {
        let let_through = Mutex::new(u64::MAX);
        let discards = AtomicU64::new(0);
        Arc::new(Watched { under, discards, let_through, changed: Condvar::new() })
    }

    fn let_through(&self, calls: u64) {
        *self.let_through.lock() = calls;
        self.changed.notify_all();
    }

    fn wait_for_discards(&self, calls: u64) {
        while self.discards.load(Ordering::SeqCst) < calls {
            std::thread::yield_now();
        }
    }
}

impl<D: Device> Device for Watched<D> {
    forward!(under: read, write, flush, room, take_room, len, sector_size, reach, stats);

    fn discard(&self, at: u64, len: u64) -> Result<(), DeviceError> {
        self.discards.fetch_add(1, Ordering::SeqCst);
        let mut left = self.let_through.lock();
        self.changed.wait_while(&mut left, |left| *left == 0);
        *left -= 1;
        drop(left);
        self.under.discard(at, len)
    }

    fn discards(&self) -> Discards {
        self.under.discards()
    }
}

/// Discards at once, by the caller that goes on; or only when asked.
fn open(device: Arc<dyn Device>, discard: Discard) -> Branch {
    open_with(
        device,
        OpenOptions {
            threads: false,
            discard,
            discard_delay: Duration::ZERO,
            ..OpenOptions::default()
        },
    )
}

fn open_with(device: Arc<dyn Device>, options: OpenOptions) -> Branch {
    Store::open(device, &options, Arc::new(Counters::default())).map(Store::into_main).unwrap()
}

fn key(number: u64) -> Key {
    Key::new(InodeNo(50), ItemKind::Extent, number)
}

/// Frees one extent of [`fill`].
fn free(store: &Branch, number: u64, blocks: BlockRange) {
    let mut transaction = Transaction::new();
    transaction.delete(key(number));
    transaction.free(blocks, Extent::UNBORN, key(number));
    let mut room = store.reserve(Need::Shrink { changes: transaction.changes() }).unwrap();
    store.apply(transaction, &mut room).unwrap();
}

/// The next operation.
fn go_on(store: &Branch) {
    drop(store.reserve(Need::Shrink { changes: 1 }).unwrap());
}

/// Frees every other extent of [`fill`].
fn free_every_other(store: &Branch, extents: &[BlockRange], first: usize) {
    for (number, blocks) in extents.iter().enumerate().skip(first).step_by(2) {
        free(store, number as u64, *blocks);
    }
    store.commit().unwrap();
    go_on(store);
}

/// Writes to all extents of [`fill`], and frees every other one.
fn half_full(host: &HostedDevice, store: &Branch, blocks: u64) -> Vec<BlockRange> {
    let mut extents = Vec::new();
    fill(store, blocks, &mut extents);
    extents.iter().for_each(|blocks| device_write(host, *blocks));
    free_every_other(store, &extents, 0);
    extents
}

/// Fills a block of each extent with its number.
fn mark(device: &dyn Device, extents: &[BlockRange]) {
    for (number, blocks) in extents.iter().enumerate() {
        let at = blocks.start.byte_offset().unwrap();
        device.write(at, &vec![(number % 255) as u8 + 1; BLOCK_BYTES as usize]).unwrap();
    }
}

fn marked(device: &dyn Device, number: usize, blocks: BlockRange) -> bool {
    let mut block = vec![0; BLOCK_BYTES as usize];
    device.read(blocks.start.byte_offset().unwrap(), &mut block).unwrap();
    block.iter().all(|byte| *byte == (number % 255) as u8 + 1)
}

#[test]
fn what_was_freed_goes_back_when_its_commit_is_durable_and_nothing_else_does() {
    let (image, _) = formatted(64 << 20);
    let device = Watched::over(image);
    let store = open(device.clone(), Discard::On);
    let mut extents = Vec::new();
    fill(&store, 256, &mut extents);
    mark(&*device, &extents);
    store.commit().unwrap();
    go_on(&store);
    let before = store.counters().discarded_bytes.get();
    // The last extents lie far from the reserve, which is kept.
    let gone: Vec<usize> = (0..extents.len()).filter(|number| number % 3 == 0).collect();
    for number in &gone {
        free(&store, *number as u64, extents[*number]);
    }
    go_on(&store);
    assert_eq!(store.counters().discarded_bytes.get(), before, "a recovery may come back to them");
    store.commit().unwrap();
    go_on(&store);
    let bytes = store.counters().discarded_bytes.get() - before;
    assert!(bytes > 0, "nothing went back");
    for (number, blocks) in extents.iter().enumerate() {
        assert!(gone.contains(&number) || marked(&*device, number, *blocks), "extent {number}");
    }
    let unmarked = gone.iter().filter(|number| !marked(&*device, **number, extents[**number]));
    assert!(unmarked.count() > gone.len() / 2, "most of them went back");
    // What was discarded is given away again.
    let again = extents.len();
    fill(&store, 256, &mut extents);
    let blocks = |extents: &[BlockRange]| extents.iter().map(|blocks| blocks.count).sum::<u64>();
    let freed: u64 = gone.iter().map(|number| extents[*number].count).sum();
    assert!(blocks(&extents[again..]) + 64 >= freed, "{} of {freed}", blocks(&extents[again..]));
}

#[test]
fn an_image_gives_its_host_back_what_it_does_not_need() {
    shapes(256 << 20).into_iter().for_each(gives_back);
}

fn gives_back(geometry: Geometry) {
    let image = formatted_as(geometry);
    let host = Arc::new(HostedDevice::new(&image, 300 << 20));
    let store = open(host.clone(), Discard::Auto);
    // A first change: the rings, and the reserve.
    drop(store.reserve(Need::Grow { changes: 1, blocks: 1 }).unwrap());
    store.trim(0, |_| true).unwrap();
    let (empty, usual) = (host.given(), store.space_use());
    let extents = half_full(&host, &store, 4096);
    let half = host.given();
    free_every_other(&store, &extents, 1);
    let (full, now) = (geometry.volume_blocks * BLOCK_BYTES, host.given());
    println!("of {full}: empty {empty}, half {half}, emptied {now}");
    assert!(half < full * 3 / 4 && now <= empty + (8 << 20), "{empty} {half} {now}");
    let differs = store.space_use().available.abs_diff(usual.available);
    assert!(differs < 64, "{:?}, then {:?}", usual, store.space_use());
    // Another file of the host has what was given back: it is no free space any more. The reserve is.
    host.exhaust();
    // What the host said a moment ago is believed for some milliseconds.
    let asked = Instant::now();
    while store.space_use().available >= 1024 {
        assert!(asked.elapsed() < Duration::from_secs(100), "{:?}", store.space_use());
        std::thread::yield_now();
    }
    assert!(matches!(
        store.reserve(Need::Grow { changes: 1, blocks: 4096 }),
        Err(StoreError::NoSpace)
    ));
    go_on(&store);
    store.commit().unwrap();
    host.give(300 << 20);
    drop(store.reserve(Need::Grow { changes: 1, blocks: 4096 }).unwrap());
    assert_eq!((host.refused(), store.stop_reason()), (0, None));
    store.close().unwrap();
}

/// Large files that a snapshot alone has are few nodes, and main is empty: the snapshot can be deleted all the same.
#[test]
fn a_snapshot_goes_on_a_full_host() {
    for has_data in [false, true] {
        shapes(512 << 20).into_iter().for_each(|geometry| deletes_a_snapshot(geometry, has_data));
    }
}

fn deletes_a_snapshot(geometry: Geometry, has_data: bool) {
    let image = formatted_as(geometry);
    let host = Arc::new(HostedDevice::new(&image, 600 << 20));
    let store = open(host.clone(), Discard::Auto);
    let mut extents = Vec::new();
    if has_data {
        fill(&store, 8192, &mut extents);
    }
    let snapshot = store.snapshot(1, b"all", Timestamp::default()).unwrap();
    for (number, blocks) in extents.iter().enumerate() {
        free(&store, number as u64, *blocks);
    }
    store.checkpoint().unwrap();
    store.trim(0, |_| true).unwrap();
    host.exhaust();
    let given = host.given();
    store.delete_snapshot(snapshot).unwrap_or_else(|error| panic!("{has_data}: {error}"));
    while store.work_off_deletions(9).unwrap() {}
    store.checkpoint().unwrap();
    store.trim(0, |_| true).unwrap();
    println!("{given} bytes beside a snapshot, {} behind it", host.given());
    assert!(!has_data || host.given() < given / 8, "{given} bytes, then {}", host.given());
    assert_eq!(store.stop_reason(), None);
    store.close().unwrap();
}

/// What a reserve keeps of a group keeps nothing else of it: space in pieces that the host must be asked for again is no
/// part of any reserve.
#[test]
fn a_reserve_keeps_no_more_of_the_host_than_it_needs() {
    shapes(512 << 20).into_iter().for_each(keeps_what_it_needs);
}

fn keeps_what_it_needs(geometry: Geometry) {
    const KEPT: u64 = 8192;
    let image = formatted_as(geometry);
    let host = Arc::new(HostedDevice::new(&image, 600 << 20));
    let store = open(host.clone(), Discard::Auto);
    drop(store.reserve(Need::Grow { changes: 1, blocks: 1 }).unwrap());
    store.trim(0, |_| true).unwrap();
    let empty = host.given();
    let extents = half_full(&host, &store, 64);
    let room = store.reserve(Need::Grow { changes: 1, blocks: KEPT }).unwrap();
    free_every_other(&store, &extents, 1);
    let kept = host.given() - empty;
    println!("{empty} of an empty volume, {kept} beside that for {KEPT} blocks");
    // An empty volume keeps no reserve for removals; this one has nodes.
    assert!(kept <= KEPT * BLOCK_BYTES + (8 << 20), "{kept}");
    drop(room);
    store.close().unwrap();
    assert!(host.given() <= empty + (4 << 20), "{} of {empty}", host.given());
}

/// What is free between files in runs too short for the background is as good a reserve as any. When its neighbours are free as
/// well, no more than it stays with the host.
#[test]
fn a_reserve_in_short_runs_keeps_nothing_of_what_lies_between_them() {
    shapes(1 << 30).into_iter().for_each(keeps_short_runs);
}

fn keeps_short_runs(geometry: Geometry) {
    const SEED: u64 = 5;
    let image = formatted_as(geometry);
    let host = Arc::new(HostedDevice::new(&image, 2 << 30));
    let options = OpenOptions { discard_delay: Duration::from_millis(1), ..OpenOptions::default() };
    let store = open_with(host.clone(), options);
    drop(store.reserve(Need::Grow { changes: 1, blocks: 1 }).unwrap());
    store.checkpoint().unwrap();
    store.wait_for_discards();
    let empty = host.given();
    let mut prng = Prng::seeded(SEED);
    // Small files and large ones, as in a tree of sources.
    let mut files = BTreeMap::new();
    let mut blocks_left = geometry.data_blocks() * 3 / 4;
    while blocks_left > 64 {
        let want = if prng.one_in(10) { 64 } else { 1 + prng.below(10) };
        let mut room = store.reserve(Need::Grow { changes: 1, blocks: want }).unwrap();
        let placed = store.allocate(&mut room, want, None).unwrap();
        let number = files.len() as u64;
        let mut transaction = Transaction::new();
        let extent = transaction.publish_unwritten(placed);
        transaction.put(key(number), extent.encode());
        store.apply(transaction, &mut room).unwrap();
        device_write(&*host, extent.blocks);
        blocks_left -= extent.blocks.count;
        files.insert(number, extent.blocks);
    }
    let full = host.given();
    for part in [2, 1] {
        let gone: Vec<u64> = files.keys().copied().filter(|_| prng.below(part) == 0).collect();
        for number in gone {
            free(&store, number, files.remove(&number).unwrap());
        }
        store.checkpoint().unwrap();
        store.wait_for_discards();
        println!("{} of {full}, {} files are left", host.given(), files.len());
    }
    let (emptied, bound) = (host.given(), geometry.volume_blocks * BLOCK_BYTES / 50);
    println!("emptied {emptied}, {empty} of an empty volume, {bound} more are allowed");
    assert!(emptied <= empty + bound, "{emptied}");
    store.close().unwrap();
}

fn device_write(device: &dyn Device, blocks: BlockRange) {
    let bytes = vec![7; blocks.bytes().unwrap() as usize];
    device.write(blocks.start.byte_offset().unwrap(), &bytes).unwrap();
}

/// A caller that needs all that is free, while some of it is on its way to the device, waits for it.
#[test]
fn a_caller_that_finds_nothing_else_waits_for_what_is_being_discarded() {
    let (image, _) = formatted(64 << 20);
    waits_for_discards(Watched::over(image.snapshot()));
    waits_for_discards(Watched::over(HostedDevice::new(&image, 100 << 20)));
}

fn waits_for_discards<D: Device + 'static>(device: Arc<Watched<D>>) {
    let store = open(device.clone(), Discard::Off);
    // All that one caller can have.
    let most = |store: &Branch| {
        let (mut least, mut most) = (0_u64, 64 << 8);
        while least + 1 < most {
            let blocks = least.midpoint(most);
            match store.reserve(Need::Grow { changes: 1, blocks }) {
                Ok(_) => least = blocks,
                Err(StoreError::NoSpace) => most = blocks,
                Err(error) => panic!("{error}"),
            }
        }
        least
    };
    let blocks = most(&store);
    device.let_through(0);
    std::thread::scope(|scope| {
        let trims = scope.spawn(|| store.trim(0, |_| true).unwrap());
        device.wait_for_discards(1);
        let takes = scope.spawn(|| store.reserve(Need::Grow { changes: 1, blocks }).map(drop));
        // The reserve is never discarded.
        drop(store.reserve(Need::Shrink { changes: 8 }).unwrap());
        let seen = store.space_use().available;
        assert!(seen + 64 >= blocks, "{seen} blocks are available, {blocks} were");
        assert!(!takes.is_finished(), "it waits, or it was refused");
        device.let_through(u64::MAX);
        takes.join().unwrap().unwrap();
        trims.join().unwrap();
    });
    assert_eq!(most(&store), blocks, "all of it is back");
}

#[test]
fn a_device_that_takes_no_discards_or_fails_stops_nothing() {
    let (image, _) = formatted(64 << 20);
    let device = Arc::new(SimDevice::new(&image));
    let store = open(device.clone(), Discard::On);
    let mut extents = Vec::new();
    fill(&store, 1024, &mut extents);
    store.commit().unwrap();
    go_on(&store);
    for (how, faults) in [
        ("once", Faults::fail_once(Call::Discard, 1)),
        ("for ever", Faults::fail_from(Call::Discard, 1)),
    ] {
        device.set_faults(faults);
        let (last, failed) = (extents.len() - 1, store.counters().discard_failures.get());
        let blocks = extents.remove(last);
        free(&store, last as u64, blocks);
        store.commit().unwrap();
        go_on(&store);
        assert!(store.counters().discard_failures.get() > failed, "{how}: none was made");
        drop(store.reserve(Need::Grow { changes: 1, blocks: blocks.count }).unwrap());
        assert_eq!(store.stop_reason(), None, "{how}");
    }
    assert!(matches!(store.trim(0, |_| true), Err(StoreError::Device(_))));
    device.set_faults(Faults::none());
    assert!(store.trim(0, |_| true).unwrap().bytes > 0);
    store.close().unwrap();
}

/// A thread that dies in a discard has given its blocks back, and the volume goes on without it.
#[test]
fn a_thread_that_dies_in_a_discard_takes_nothing_with_it() {
    let (image, _) = formatted(64 << 20);
    let device = Arc::new(SimDevice::new(&image));
    let options = OpenOptions {
        discard: Discard::On,
        discard_delay: Duration::ZERO,
        ..OpenOptions::default()
    };
    let store = open_with(device.clone(), options);
    let free_before = store.space_use().available;
    let mut extents = Vec::new();
    fill(&store, 1024, &mut extents);
    store.commit().unwrap();
    store.wait_for_discards();
    device.set_faults(Faults::panic_once(Call::Discard, 1));
    for (number, blocks) in extents.iter().enumerate() {
        free(&store, number as u64, *blocks);
    }
    store.commit().unwrap();
    store.wait_for_discards();
    assert_eq!(device.faults_fired(), 1);
    assert_eq!(store.stop_reason(), None);
    let now = store.space_use().available;
    assert!(now + 64 >= free_before, "{now} blocks are available, {free_before} were");
    let mut again = Vec::new();
    fill(&store, 1024, &mut again);
    assert!(again.len() + 2 >= extents.len());
    assert!(store.trim(0, |_| true).is_ok());
    store.close().unwrap();
}

/// The thread waits until what became free is left alone, and sleeps when nothing is left for it.
#[test]
fn the_background_gives_back_what_rests() {
    let (image, _) = formatted(256 << 20);
    let host = Arc::new(HostedDevice::new(&image, 300 << 20));
    let options = OpenOptions { discard_delay: Duration::from_millis(5), ..OpenOptions::default() };
    let store = open_with(host.clone(), options);
    drop(store.reserve(Need::Grow { changes: 1, blocks: 1 }).unwrap());
    let mut extents = Vec::new();
    fill(&store, 4096, &mut extents);
    let full = host.given();
    for (number, blocks) in extents.iter().enumerate() {
        free(&store, number as u64, *blocks);
    }
    store.checkpoint().unwrap();
    store.wait_for_discards();
    assert_eq!(store.counters().discard_waiting_bytes.get(), 0);
    let now = host.given();
    assert!(now < full / 4, "{now} of {full} bytes");
    // Nothing is left but what the reserve keeps.
    let more = store.trim(64 << 10, |_| true).map(|_| host.given()).unwrap();
    assert!(now <= more + (8 << 20), "{now}, and after a trim {more}");
    store.close().unwrap();
}

/// Ends another thread when it is dropped, also by a panic.
struct Ends<'a>(&'a AtomicU64);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(1, Ordering::SeqCst);
    }
}

/// A volume goes on beside discards of everything, and none of its data is hit.
#[test]
fn data_that_is_written_beside_discards_stays() {
    const SEED: u64 = 11;
    println!("cargo test -p holdfast-store --test all data_that_is_written_beside, seed {SEED}");
    let (image, _) = formatted(64 << 20);
    let host = Arc::new(HostedDevice::new(&image, 80 << 20));
    let store = open(host.clone(), Discard::Auto);
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let trims = scope.spawn(|| {
            let mut rounds = 0;
            while done.load(Ordering::SeqCst) == 0 {
                store.trim(0, |_| done.load(Ordering::SeqCst) == 0).unwrap();
                rounds += 1;
            }
            rounds
        });
        let ends = Ends(&done);
        let mut prng = Prng::seeded(SEED);
        let mut files: Vec<(u64, BlockRange, u8)> = Vec::new();
        for number in 0..600 {
            let want = 1 + prng.below(store.extent_blocks_max());
            let mut room = store.reserve(Need::Grow { changes: 1, blocks: want }).unwrap();
            let placed = store.allocate(&mut room, want, None).unwrap();
            let byte = number as u8 | 1;
            let bytes = vec![byte; placed.blocks().bytes().unwrap() as usize];
            let written = store.write(placed, &bytes).map_err(StoreError::from).unwrap();
            let mut transaction = Transaction::new();
            let extent = transaction.publish(written);
            transaction.put(key(number), extent.encode());
            let blocks = extent.blocks;
            store.apply(transaction, &mut room).unwrap();
            files.push((number, blocks, byte));
            if files.len() > 20 {
                let (gone, blocks, _) = files.swap_remove(prng.below(20) as usize);
                free(&store, gone, blocks);
            }
            if number % 16 == 0 {
                store.commit().unwrap();
            }
            let (number, blocks, byte) = files[prng.below(files.len() as u64) as usize];
            let mut found = vec![0; blocks.bytes().unwrap() as usize];
            host.read(blocks.start.byte_offset().unwrap(), &mut found).unwrap();
            assert!(found.iter().all(|found| *found == byte), "file {number} has lost its data");
        }
        drop(ends);
        let rounds: u64 = trims.join().unwrap();
        println!("{rounds} trims, {} ranges", store.counters().discard_ranges.get());
        assert!(store.counters().discard_ranges.get() > 0);
    });
    assert_eq!(host.refused(), 0);
    store.close().unwrap();
}

/// A volume of many terabytes holds no memory for the groups that a trim has looked at.
#[test]
fn a_trim_of_empty_groups_is_over_and_leaves_nothing_in_memory() {
    let (image, geometry) = formatted(1 << 38);
    let device = Watched::over(image);
    let store = open(device.clone(), Discard::Off);
    let trimmed = store.trim(0, |_| true).unwrap();
    assert_eq!(trimmed.groups, geometry.group_count());
    let free = store.space_use().free * BLOCK_BYTES;
    assert!(trimmed.bytes > free - free / 16, "{} of {free}", trimmed.bytes);
    let most = store.trim(1 << 40, |_| true).unwrap();
    assert_eq!(most.bytes, 0, "no range is that long");
    let stopped = store.trim(0, |at| at.groups < 3).unwrap();
    assert_eq!(stopped.groups, 3);
    store.close().unwrap();
}

/// A volume grows while ranges of it are on their way to the device; then its new part goes there as well, the place of the old far
/// copy among it, and is given away again.
#[test]
fn a_volume_grows_beside_discards_and_is_trimmed_as_a_whole() {
    let (image, geometry) = formatted(36 << 20);
    let longer = |bytes: u64| {
        let longer = MemoryDevice::new(bytes);
        let mut bytes = vec![0; image.len() as usize];
        image.read(0, &mut bytes).unwrap();
        longer.write(0, &bytes).unwrap();
        longer
    };
    let host = HostedDevice::new(&longer(300 << 20), 400 << 20);
    grows_beside_discards(Watched::over(host), Discard::Auto, geometry.far_copy().0);
    grows_beside_discards(Watched::over(longer(300 << 20)), Discard::On, geometry.far_copy().0);
}

fn grows_beside_discards<D: Device + 'static>(
    device: Arc<Watched<D>>,
    discard: Discard,
    old_far_copy: u64,
) {
    let store = open(device.clone(), discard);
    let mut extents = Vec::new();
    fill(&store, 64, &mut extents);
    for (number, blocks) in extents.drain(..).enumerate() {
        free(&store, number as u64, blocks);
    }
    store.checkpoint().unwrap();
    // The rings become short before a range goes: what is waited for below is a range, which no other caller discards beside it.
    store.trim(0, |_| false).unwrap();
    device.let_through(0);
    let calls = device.discards.load(Ordering::SeqCst);
    std::thread::scope(|scope| {
        let trims = scope.spawn(|| store.trim(0, |_| true).unwrap());
        device.wait_for_discards(calls + 1);
        let grows = scope.spawn(|| store.resize(NewSize::Bytes(300 << 20)).unwrap());
        let takes = scope.spawn(|| store.reserve(Need::Shrink { changes: 1 }).map(drop));
        takes.join().unwrap().unwrap();
        device.let_through(u64::MAX);
        trims.join().unwrap();
        assert_eq!(grows.join().unwrap(), 300 << 20);
    });
    let total = store.geometry().data_blocks();
    assert_eq!(store.space_use().total, total);
    let trimmed = store.trim(0, |_| true).unwrap();
    assert!(trimmed.bytes > total * BLOCK_BYTES / 4 * 3, "{} of {total} blocks", trimmed.bytes);
    for _ in 0..2 {
        let first = extents.len();
        fill(&store, 4096, &mut extents);
        fill(&store, 1, &mut extents);
        let is_used = |block: u64| {
            let has =
                |blocks: &BlockRange| blocks.start.0 <= block && block < blocks.end().unwrap().0;
            extents[first..].iter().any(has)
        };
        assert!(
            is_used(old_far_copy),
            "the place of the old far copy is free space like any other"
        );
        mark(&*device, &extents[first..]);
        for (number, blocks) in extents.iter().enumerate().skip(first) {
            assert!(marked(&*device, number - first, *blocks), "extent {number}");
            free(&store, number as u64, *blocks);
        }
        store.commit().unwrap();
        go_on(&store);
    }
    assert_eq!(store.stop_reason(), None);
    store.close().unwrap();
    let device: Arc<dyn Device> = device;
    assert_eq!(open(device, Discard::Off).geometry().data_blocks(), total);
}

/// A volume is left when no discard is under way any more: from then on another program may have the device, and these blocks.
#[test]
fn a_volume_is_left_behind_the_last_discard() {
    let (image, _) = formatted(64 << 20);
    let device = Watched::over(image);
    let store = open_with(
        device.clone(),
        OpenOptions {
            discard: Discard::On,
            discard_delay: Duration::ZERO,
            ..OpenOptions::default()
        },
    );
    let mut extents = Vec::new();
    fill(&store, 256, &mut extents);
    store.commit().unwrap();
    store.wait_for_discards();
    let calls = device.discards.load(Ordering::SeqCst);
    device.let_through(0);
    for (number, blocks) in extents.iter().enumerate() {
        free(&store, number as u64, *blocks);
    }
    store.commit().unwrap();
    device.wait_for_discards(calls + 1);
    let is_closed = AtomicU64::new(0);
    // Counted before it begins, or it may be past them.
    let flushes = device.stats().flushes;
    std::thread::scope(|scope| {
        let closes = scope.spawn(|| {
            store.close().unwrap();
            is_closed.store(1, Ordering::SeqCst);
        });
        // The checkpoint of the close, and then it waits.
        while device.stats().flushes == flushes && !closes.is_finished() {
            std::thread::yield_now();
        }
        for _ in 0..1000 {
            std::thread::yield_now();
        }
        assert_eq!(is_closed.load(Ordering::SeqCst), 0, "it is closed beside a discard");
        device.let_through(u64::MAX);
    });
    let calls = device.discards.load(Ordering::SeqCst);
    assert_eq!(device.under.stats().discards, calls);
}
