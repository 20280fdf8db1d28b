//! Random lives of a store on a recording device.
//!
//! A *life* is the time from one opening to the end or to a crash of the
//! program alone: what it wrote can be read by the next life, and may still be
//! lost with the power. Lives end by dropping the store, also in the middle of
//! a commit or checkpoint whose flush or write fails.
//!
//! Data goes where data was freed a moment ago, so that what is reused too early
//! (R2) is seen at once. Knows nothing of files.

mod damage;
mod judge;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_base::counters::Counters;
use holdfast_base::prng::Prng;
use holdfast_base::switch::{Accounting, Dirty};
use holdfast_base::{BlockNo, BlockRange, InodeNo};
use holdfast_device::memory::MemoryDevice;
use holdfast_device::sim::{Action, Call, Event, Faults, Recording, When};
use holdfast_device::{Device, SimDevice};
use holdfast_format::item::Extent;
use holdfast_format::journal::FrameHeader;
use holdfast_format::{Geometry, Key, Kind};
use holdfast_store::{
    Batch, CreateOptions, Need, OpenOptions, Reservation, Store, StoreError, Written,
};

use judge::judge_all;

const BYTES: u64 = 8 << 20;

pub(crate) type Map = BTreeMap<Key, Vec<u8>>;

/// How lives are led.
#[derive(Clone, Debug)]
pub(crate) struct Conditions {
    pub node_size: usize,
    /// Blocks of the ring: the fewer, the more commits become checkpoints, and the more wrap around.
    pub journal_blocks: u64,
    /// Memory for nodes: the less, the more checkpoints.
    pub cache_bytes: usize,
    pub dirty: Dirty,
    pub accounting: Accounting,
    /// After one step in so many a checkpoint is made; 0 for never.
    pub checkpoints: u64,
    /// Another thread makes a checkpoint whenever the last one is done.
    pub background: bool,
    /// One call of this kind in so many is answered well and not done.
    pub lies: Option<(Call, u64)>,
    /// After these lives, power is cut at one place, and as many lives go on from there.
    pub generations: u64,
    pub lives: u64,
    pub steps: u64,
}

impl Default for Conditions {
    fn default() -> Conditions {
        Conditions {
            node_size: 4096,
            journal_blocks: 64,
            cache_bytes: 1 << 20,
            dirty: Dirty::default(),
            accounting: Accounting::default(),
            checkpoints: 8,
            background: false,
            lies: None,
            generations: 1,
            lives: 1,
            steps: 40,
        }
    }
}

/// What was seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Different images judged.
    pub images: usize,
    /// The most commits that one of them replays.
    pub commits: u64,
    /// Images of recoveries that were cut as well.
    pub again: usize,
    /// Frames of commits that have more than one, but for their first ones.
    pub spanning: usize,
    /// Commits that became checkpoints for lack of room.
    pub full: u64,
}

impl Conditions {
    fn formatted(&self) -> MemoryDevice {
        let device = Arc::new(MemoryDevice::new(BYTES));
        let shared: Arc<dyn Device> = device.clone();
        let geometry = Geometry::for_device(BYTES, self.node_size).unwrap();
        let options = CreateOptions {
            geometry: Geometry { journal_blocks: self.journal_blocks, ..geometry },
            uuid: uuid::Uuid::from_u128(9),
            label: String::new(),
            hash_seed: 1,
        };
        Store::create(&shared, &options).unwrap();
        device.snapshot()
    }

    /// A volume with something in it whose next commits come to the ring's end soon.
    fn aged(&self, prng: &mut Prng) -> (MemoryDevice, Vec<Arc<Map>>) {
        let device = Arc::new(self.formatted());
        let store = self.open(device.clone(), false).unwrap();
        let ring = store.geometry().journal();
        let near = prng.below(12);
        let mut map = Map::new();
        for _ in 0..500 {
            map = step(&store, &map, prng).unwrap();
            store.checkpoint().unwrap();
            if store.superblock().journal.next.0 + near >= ring.start.0 + ring.count {
                break;
            }
        }
        let lsn = store.latest().0;
        store.close().unwrap();
        // Nothing before it can come back, so nobody asks what it was.
        let map = Arc::new(map);
        (device.snapshot(), vec![map; lsn as usize + 1])
    }

    fn open(&self, device: Arc<dyn Device>, read_only: bool) -> Result<Store, StoreError> {
        let options = OpenOptions {
            read_only,
            cache_bytes: self.cache_bytes,
            dirty: self.dirty,
            accounting: self.accounting,
            ..OpenOptions::default()
        };
        Store::open(device, &options, Arc::new(Counters::default()))
    }
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

/// Writes 1 to 3 blocks of random data near the start of the data zone, where blocks were freed.
fn write(store: &Store, prng: &mut Prng) -> Result<(Written, Reservation), StoreError> {
    let mut room = store.reserve(Need::Grow { changes: 4, blocks: 3 })?;
    let first = store.geometry().first_data_block().0;
    let goal = if prng.one_in(5) { None } else { Some(BlockNo(first + prng.below(24))) };
    let placed = store.allocate(&mut room, 1 + prng.below(3), goal)?;
    // Often the same bytes at the same place, as a program writes that starts again after a crash.
    let mut bytes = vec![7; placed.blocks().bytes().unwrap() as usize];
    if prng.one_in(3) {
        prng.fill(&mut bytes);
    }
    Ok((store.write(placed, &bytes)?, room))
}

/// One random batch; returns the map after it.
fn step(store: &Store, map: &Map, prng: &mut Prng) -> Result<Map, StoreError> {
    let mut map = map.clone();
    let mut batch = Batch::new();
    let (written, mut room) = write(store, prng)?;
    let key = Key::new(InodeNo(20 + prng.below(3)), Kind::Extent, prng.below(4) * 4096);
    match (map.get(&key).map(|old| Extent::decode(old).unwrap()), prng.below(5)) {
        // Space that never gets an owner.
        (_, 0) => drop(written),
        // The end of an extent goes, its beginning stays.
        (Some(old), 1 | 2) if old.blocks.count > 1 => {
            drop(written);
            let kept = 1 + prng.below(old.blocks.count - 1);
            let rest = BlockNo(old.blocks.start.0 + kept);
            batch.free(BlockRange::new(rest, old.blocks.count - kept));
            let kept = Extent {
                blocks: BlockRange::new(old.blocks.start, kept),
                sums: old.sums[..kept as usize].to_vec(),
            };
            batch.put(key, kept.encode());
            map.insert(key, kept.encode());
        }
        (Some(old), 1 | 2) => {
            drop(written);
            batch.free(old.blocks);
            batch.delete(key);
            map.remove(&key);
        }
        (old, _) => {
            if let Some(old) = old {
                batch.free(old.blocks);
            }
            let value = batch.publish(written).encode();
            batch.put(key, value.clone());
            map.insert(key, value);
        }
    }
    // Now and then a whole directory goes: nodes merge, and commits cancel them.
    if prng.one_in(12) {
        let all: Vec<Key> = map.keys().copied().filter(|key| key.kind == Kind::Dentry).collect();
        for key in all.into_iter().take(8) {
            batch.delete(key);
            map.remove(&key);
        }
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
    store.apply(batch, &mut room)?;
    Ok(map)
}

/// Lives on one device, every cut of which is judged; then lives on what one of the cuts left.
/// `again` says in how many images recovery is cut as well: in one of so many.
pub(crate) fn run(seed: u64, how: &Conditions, again: usize) -> Seen {
    let mut prng = Prng::seeded(seed);
    let mut seen = Seen::default();
    let (mut image, mut history) = how.aged(&mut prng);
    for generation in 0..how.generations {
        let what = format!("seed {seed} generation {generation}");
        let sim = Arc::new(SimDevice::new(&image));
        let told = live(&what, how, &sim, history, &mut prng, &mut seen);
        let recording = sim.recording();
        count_frames(&recording, &mut seen);
        let at = prng.below(recording.events.len() as u64) as usize;
        let mut left = judge_all(&what, seed, how, &recording, &told, again, at, &mut seen);
        (image, history) = left.swap_remove(prng.below(left.len() as u64) as usize);
    }
    seen
}

fn count_frames(recording: &Recording, seen: &mut Seen) {
    let writes = recording.events.iter().filter_map(|event| match event {
        Event::Write { bytes, .. } => FrameHeader::decode(bytes).ok(),
        _ => None,
    });
    seen.spanning += writes.filter(|header| header.index > 0).count();
}

/// Lives one after the other; gives what may be found in each.
fn live(
    what: &str,
    how: &Conditions,
    sim: &Arc<SimDevice>,
    mut history: Vec<Arc<Map>>,
    prng: &mut Prng,
    seen: &mut Seen,
) -> Vec<Vec<Arc<Map>>> {
    let mut told: Vec<Vec<Arc<Map>>> = Vec::new();
    let mut acked = 0;
    for life in 0..how.lives {
        sim.mark(life << 32 | acked);
        let store = how.open(sim.clone(), false).unwrap();
        let lsn = store.latest().0;
        assert!(lsn >= acked, "{what}: {lsn} came back, {acked} was durable");
        history.truncate(lsn as usize + 1);
        assert_eq!(contents(&store), *history[lsn as usize], "{what}: life {life}");
        if life > 0 && prng.one_in(2) {
            // One of the next commits or checkpoints fails half way.
            let call = *prng.pick(&[Call::Flush, Call::Write]);
            sim.set_faults(Faults::fail_once(call, 1 + prng.below(12)));
        }
        if let Some((call, n)) = how.lies {
            let seed = prng.next_u64();
            sim.set_faults(Faults::seeded(seed).with(call, When::OneIn(n), Action::Ignore));
        }
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            if how.background {
                scope.spawn(|| {
                    while !ended.load(Ordering::Acquire) && store.checkpoint().is_ok() {
                        std::thread::yield_now();
                    }
                });
            }
            // Also when a step panics, or the thread would run for ever.
            let _end = SetAtEnd(&ended);
            for _ in 0..how.steps {
                let failed = sim.faults_fired() > 0 && how.lies.is_none();
                if store.stop_reason().is_some() || failed {
                    break;
                }
                let before = history.last().unwrap().clone();
                let after = match step(&store, &before, prng) {
                    Ok(after) => after,
                    Err(error) => {
                        let failed = sim.faults_fired() > 0;
                        assert!(failed, "{what}: a step failed without a cause: {error}");
                        break;
                    }
                };
                history.push(Arc::new(after));
                assert_eq!(store.latest().0 as usize, history.len() - 1);
                let durable = match prng.below(4) {
                    0 => store.commit(),
                    1 if how.checkpoints != 0 && prng.one_in(how.checkpoints.div_ceil(4)) => {
                        store.checkpoint()
                    }
                    _ => continue,
                };
                if durable.is_ok() {
                    acked = store.durable().0;
                    assert_eq!(acked, store.latest().0, "{what}: `durable` says too little");
                    sim.mark(life << 32 | acked);
                }
            }
        });
        told.push(history.clone());
        seen.full += store.counters().journal_full.get();
        drop(store);
        sim.set_faults(Faults::none());
    }
    told
}

struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
