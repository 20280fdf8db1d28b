//! Power cuts: the store runs random batches on a recording device; after every call, what may be
//! left must open as one moment of history, not before the last persist that returned (P3, P9).
//!
//! A *life* is the time from one opening to the end or to a crash of the
//! program alone: what it wrote can be read by the next life, and may still be
//! lost with the power. Lives end by dropping the store, also in the middle of
//! a checkpoint whose flush or write fails.

#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use holdfast_base::counters::Counters;
use holdfast_base::prng::Prng;
use holdfast_base::{BLOCK_SIZE, InodeNo};
use holdfast_device::memory::MemoryDevice;
use holdfast_device::sim::{Call, Event, Faults, Policy};
use holdfast_device::{Device, SimDevice};
use holdfast_format::checksum::crc64;
use holdfast_format::item::Extent;
use holdfast_format::{Geometry, Key, Kind};
use holdfast_store::{Batch, CreateOptions, Need, OpenOptions, Store, Written};

const BYTES: u64 = 8 << 20;

type Map = BTreeMap<Key, Vec<u8>>;

/// What may be found in one life: the map at each place in history.
#[derive(Clone)]
struct Life {
    history: Vec<Arc<Map>>,
}

fn formatted(node_size: usize) -> MemoryDevice {
    let device = Arc::new(MemoryDevice::new(BYTES));
    let shared: Arc<dyn Device> = device.clone();
    let options = CreateOptions {
        geometry: Geometry::for_device(BYTES, node_size).unwrap(),
        uuid: uuid::Uuid::from_u128(9),
        label: String::new(),
        hash_seed: 1,
    };
    Store::create(&shared, &options).unwrap();
    device.snapshot()
}

fn open(device: Arc<dyn Device>, read_only: bool) -> Store {
    let options = OpenOptions { read_only, cache_bytes: 1 << 20, ..OpenOptions::default() };
    Store::open(device, &options, Arc::new(Counters::default())).unwrap()
}

fn contents(store: &Store) -> Map {
    let mut map = Map::new();
    let visit = |key, value: &[u8]| {
        map.insert(key, value.to_vec());
        ControlFlow::Continue(())
    };
    store.scan(&Key::MIN, &Key::MAX, visit).unwrap();
    map
}

/// Writes 1 to 3 blocks of random data.
fn write(store: &Store, prng: &mut Prng) -> (Written, holdfast_store::Reservation) {
    let mut room = store.reserve(Need::Grow { changes: 4, blocks: 3 }).unwrap();
    let placed = store.allocate(&mut room, 1 + prng.below(3), None).unwrap();
    let mut bytes = vec![0; placed.blocks().bytes().unwrap() as usize];
    prng.fill(&mut bytes);
    (store.write(placed, &bytes).unwrap(), room)
}

/// One random batch; returns the map after it.
fn step(store: &Store, map: &Map, prng: &mut Prng) -> Map {
    let mut map = map.clone();
    let mut batch = Batch::new();
    let (written, mut room) = write(store, prng);
    if prng.one_in(4) {
        // Space that never gets an owner.
        drop(written);
    } else {
        let key = Key::new(InodeNo(20 + prng.below(5)), Kind::Extent, prng.below(6) * 4096);
        if let Some(old) = map.get(&key) {
            batch.free(Extent::decode(old).unwrap().blocks);
        }
        let value = batch.publish(written).encode();
        batch.put(key, value.clone());
        map.insert(key, value);
    }
    for _ in 0..prng.below(3) {
        let key = Key::new(InodeNo(20 + prng.below(9)), Kind::Dentry, prng.below(30));
        if prng.one_in(3) {
            batch.delete(key);
            map.remove(&key);
        } else {
            let value = vec![prng.below(256) as u8; prng.below(700) as usize];
            batch.put(key, value.clone());
            map.insert(key, value);
        }
    }
    store.apply(batch, &mut room).unwrap();
    map
}

/// Judges what one cut may leave.
fn judge(image: MemoryDevice, life: &Life, acked: u64, what: &str) {
    let device: Arc<dyn Device> = Arc::new(image);
    let store = open(device.clone(), true);
    let lsn = store.latest().0;
    assert!(lsn >= acked, "{what}: at {lsn}, but {acked} was durable");
    let map = contents(&store);
    let expected = life.history.get(lsn as usize).unwrap_or_else(|| panic!("{what}: {lsn}?"));
    assert!(map == **expected, "{what}: not the map of {lsn}");
    for (key, value) in map.iter().filter(|(key, _)| key.kind == Kind::Extent) {
        let extent = Extent::decode(value).unwrap();
        let mut bytes = vec![0; extent.blocks.bytes().unwrap() as usize];
        store.read(extent.blocks, &mut bytes).unwrap();
        let sums: Vec<u64> = bytes.chunks(BLOCK_SIZE).map(crc64).collect();
        assert_eq!(sums, extent.sums, "{what}: the data of {key:?} at {lsn}");
    }
}

/// The first opening recovers; after it, opening and closing writes nothing that can be told from
/// what was there.
fn open_twice(image: MemoryDevice, what: &str) {
    let image = Arc::new(image);
    let mut before = None;
    for _ in 0..3 {
        let store = open(image.clone(), false);
        #[cfg(debug_assertions)]
        store.invariants();
        store.close().unwrap();
        let after = image.to_image();
        if let Some(before) = before {
            assert!(after == before, "{what}: opening changed the volume");
        }
        before = Some(after);
    }
}

/// Lives on one device: returns what each may leave, and checks every cut.
fn run(seed: u64, node_size: usize, lives: u64, steps: u64) -> usize {
    let mut prng = Prng::seeded(seed);
    let sim = Arc::new(SimDevice::new(&formatted(node_size)));
    let mut told: Vec<Life> = Vec::new();
    let first = open(Arc::new(sim.image()), true).latest().0;
    let mut history: Vec<Arc<Map>> = (0..=first).map(|_| Arc::default()).collect();
    let mut acked = 0;
    for life in 0..lives {
        sim.mark(life << 32 | acked);
        let store = open(sim.clone(), false);
        let lsn = store.latest().0;
        assert!(lsn >= acked, "seed {seed}: {lsn} came back, {acked} was durable");
        history.truncate(lsn as usize + 1);
        assert_eq!(contents(&store), *history[lsn as usize], "seed {seed}: life {life}");
        if life > 0 && prng.one_in(2) {
            // One of the next checkpoints fails half way.
            let call = *prng.pick(&[Call::Flush, Call::Write]);
            sim.set_faults(Faults::fail_once(call, 1 + prng.below(12)));
        }
        for _ in 0..steps {
            if store.stop_reason().is_some() || sim.faults_fired() > 0 {
                break;
            }
            let before = history.last().unwrap().clone();
            let mut after = None;
            let attempt = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                after = Some(step(&store, &before, &mut prng));
            }));
            let failed = sim.faults_fired() > 0;
            assert!(attempt.is_ok() || failed, "seed {seed}: a step failed without a cause");
            let Some(after) = after else { break };
            history.push(Arc::new(after));
            assert_eq!(store.latest().0 as usize, history.len() - 1);
            if prng.one_in(4) && store.persist(store.latest()).is_ok() {
                acked = store.durable().0;
                sim.mark(life << 32 | acked);
            }
        }
        told.push(Life { history: history.clone() });
        drop(store);
        sim.set_faults(Faults::none());
    }
    let policy = Policy { seed, exhaustive: 4, each: 5, samples: 5, torn: 6 };
    let recording = sim.recording();
    let mut cut = recording.start();
    let mut judged = HashSet::new();
    let (mut life, mut acked) = (0, 0);
    for (index, event) in recording.events.iter().enumerate() {
        cut.advance(event);
        if let Event::Mark(mark) = event {
            (life, acked) = ((mark >> 32) as usize, mark & 0xffff_ffff);
        }
        if !event.changes_images() {
            continue;
        }
        for image in cut.images(&policy) {
            if !judged.insert((image.fingerprint(), life, acked)) {
                continue;
            }
            let what = format!("seed {seed} life {life} cut {index}: {}", image.describe());
            judge(image.device(), &told[life], acked, &what);
            if judged.len() % 50 == 0 {
                open_twice(image.device(), &what);
            }
        }
    }
    judged.len()
}

#[test]
fn one_life_and_every_cut() {
    for (seed, node_size) in [(1, 4096), (2, 16384), (3, 65536)] {
        let images = run(seed, node_size, 1, 40);
        assert!(images > 300, "only {images} images");
    }
}

#[test]
fn many_lives_that_end_without_a_flush() {
    let more = std::env::var("HOLDFAST_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    for seed in 10..10 + more.unwrap_or(6) {
        let images = run(seed, 4096, 6, 12);
        assert!(images > 200, "only {images} images");
    }
}
