//! Random crash generations of a store on a recording device.
//!
//! A *opening* is the time from one opening to the end or to a crash of the
//! program alone: what it wrote can be read by the next opening, and may still be
//! lost with the power. Crash generations end by dropping the store, also in the middle of
//! a commit or checkpoint whose flush or write fails.
//!
//! Data goes where data was freed a moment ago, so that what is reused too early
//! (R2) is seen at once. Knows nothing of files.

// Each test that leads openings uses a part of it.
#![allow(dead_code)]

mod judge;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_base::counters::Counters;
use holdfast_base::prng::{Prng, pin};
use holdfast_base::switch::{Accounting, Dirty};
use holdfast_base::units::{BLOCK_BYTES, BLOCK_SIZE};
use holdfast_base::{BlockNo, BlockRange, InodeNo};
use holdfast_device::memory::MemoryDevice;
use holdfast_device::sim::{Action, Call, Event, Faults, Recording, When};
use holdfast_device::{Device, Page, SimDevice};
use holdfast_format::geometry::LOG_START;
use holdfast_format::item::Extent;
use holdfast_format::journal::FrameHeader;
use holdfast_format::log::LogHeader;
use holdfast_format::{Geometry, ItemKind, Key, Superblock};
use holdfast_store::{
    Branch, CreateOptions, LoggedBlock, Need, OpenOptions, Reservation, Store, StoreError,
    Transaction, Written,
};

use judge::judge_all;

const BYTES: u64 = 8 << 20;

pub(crate) type Map = BTreeMap<Key, Vec<u8>>;

/// How openings are led.
#[derive(Clone, Debug)]
pub(crate) struct Conditions {
    pub node_size: usize,
    /// Bytes of a sector, where writes tear and batches begin.
    pub sector: u32,
    /// Bytes of a physical sector, which a torn write takes along.
    pub physical_sector: u32,
    /// Blocks of the ring: the fewer, the more commits become checkpoints, and the more wrap around.
    pub journal_blocks: u64,
    /// Blocks for which both rings have room, each in use from 64 on; 0: all that they have is in use.
    pub ring_room: u64,
    /// After one step in so many the rings get other lengths; 0 for never, but for those that they take when they fill.
    pub turns: u64,
    /// Another thread gives the rings other lengths whenever it has done so.
    pub turns_beside: bool,
    /// What follows a step: by sync, by commit, by neither, in shares.
    pub syncs: u64,
    pub commits: u64,
    pub neither: u64,
    /// After one in so many steps that nothing else follows, the volume rests: what is pending is appended to the log,
    /// or what is durable is confirmed; 0 for never.
    pub rests: u64,
    /// One write of data in so many travels inside the log; 0 for none.
    pub log_data: u64,
    /// Memory for nodes: the less, the more checkpoints.
    pub cache_bytes: usize,
    /// Each node is stored twice.
    pub copies: bool,
    pub dirty: Dirty,
    pub accounting: Accounting,
    /// After one step in so many a checkpoint is made; 0 for never.
    pub checkpoints: u64,
    /// Another thread makes a checkpoint whenever the last one is done.
    pub background: bool,
    /// Another thread makes a commit whenever the last one is done.
    pub commits_beside: bool,
    /// One call of this kind in so many is answered well and not done.
    pub lies: Option<(Call, u64)>,
    /// After these openings, power is cut at one place, and as many openings go on from there.
    pub generations: u64,
    pub openings: u64,
    pub steps: u64,
}

impl Default for Conditions {
    fn default() -> Conditions {
        Conditions {
            node_size: 4096,
            sector: 512,
            physical_sector: 512,
            journal_blocks: 64,
            ring_room: 0,
            turns: 0,
            turns_beside: false,
            syncs: 0,
            commits: 1,
            neither: 3,
            rests: 0,
            log_data: 0,
            cache_bytes: 1 << 20,
            copies: false,
            dirty: Dirty::default(),
            accounting: Accounting::default(),
            checkpoints: 8,
            background: false,
            commits_beside: false,
            lies: None,
            generations: 1,
            openings: 1,
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
    /// The most batches of the log that one image replays.
    pub batches: u64,
    /// Batches of the log that go on at the ring's start.
    pub wrapped: usize,
    /// Batches that were written together with another one.
    pub together: usize,
    /// Batches that became commits for lack of room.
    pub log_full: u64,
    /// Superblocks that say another length of a ring.
    pub turned: usize,
}

impl Conditions {
    /// Fsyncs, and now and then a commit.
    pub(crate) fn fsyncs() -> Conditions {
        Conditions { syncs: 6, commits: 1, neither: 5, log_data: 2, ..Conditions::default() }
    }
}

impl Conditions {
    pub(crate) fn formatted(&self) -> MemoryDevice {
        let physical = self.physical_sector.max(self.sector);
        let device = Arc::new(MemoryDevice::with_sector_sizes(BYTES, self.sector, physical));
        let shared: Arc<dyn Device> = device.clone();
        let plain = Geometry::for_device(BYTES, self.node_size).unwrap();
        let plain = match self.ring_room {
            0 => plain,
            room => plain.with_ring_blocks(room, room),
        };
        let geometry = if self.copies { plain.with_copies().unwrap() } else { plain };
        let geometry = match self.ring_room {
            0 => geometry.with_ring_blocks(geometry.log_blocks, self.journal_blocks),
            _ => Geometry { log_blocks: 64, journal_blocks: 64, ..geometry },
        };
        let options = CreateOptions {
            geometry,
            uuid: uuid::Uuid::from_u128(9),
            label: String::new(),
            hash_seed: 1,
            node_tag: *b"of nodes",
            created: Default::default(),
        };
        let _pinned = pin(1);
        Store::create(&shared, &options).unwrap();
        device.snapshot()
    }

    /// A volume with something in it whose next commits come to the ring's end soon.
    pub(crate) fn aged(&self, prng: &mut Prng) -> (MemoryDevice, Vec<Arc<Map>>) {
        let device = Arc::new(self.formatted());
        let store = self.open(device.clone(), false).unwrap();
        let (ring, log) = (store.geometry().journal(), store.geometry().log());
        let near = prng.below(12);
        let mut map = Map::new();
        for _ in 0..500 {
            map = self.step(&store, &map, prng).unwrap();
            store.checkpoint().unwrap();
            if store.superblock().journal.next.0 + near >= ring.start.0 + ring.count {
                break;
            }
        }
        let near = (8 + prng.below(40)) << 10;
        while self.syncs > 0 && store.superblock().log.next + near < log.count * BLOCK_BYTES {
            map = self.step(&store, &map, prng).unwrap();
            store.sync(store.latest(), InodeNo(1)).unwrap();
            store.checkpoint().unwrap();
        }
        let lsn = store.latest().0;
        store.close().unwrap();
        // Nothing before it can come back, so it need not be known.
        let map = Arc::new(map);
        (device.snapshot(), vec![map; lsn as usize + 1])
    }

    pub(crate) fn step(
        &self,
        store: &Branch,
        map: &Map,
        prng: &mut Prng,
    ) -> Result<Map, StoreError> {
        step(store, map, prng, self.log_data)
    }

    pub(crate) fn open(
        &self,
        device: Arc<dyn Device>,
        read_only: bool,
    ) -> Result<Branch, StoreError> {
        let options = OpenOptions {
            read_only,
            cache_bytes: self.cache_bytes,
            dirty: self.dirty,
            accounting: self.accounting,
            ..OpenOptions::default()
        };
        Store::open(device, &options, Arc::new(Counters::default())).map(Store::into_main)
    }
}

/// All items; extents as they were put, without the birth that the store gives them.
pub(crate) fn contents(store: &Branch) -> Map {
    let mut map = Map::new();
    let visit = |key: Key, value: &[u8]| {
        let mut value = value.to_vec();
        if key.kind == ItemKind::Extent {
            let extent = Extent::decode(&value).unwrap();
            assert_ne!(extent.birth, Extent::UNBORN, "{key:?}");
            value = Extent { birth: Extent::UNBORN, ..extent }.encode();
        }
        map.insert(key, value);
        ControlFlow::Continue(())
    };
    store.scan(&Key::MIN, &Key::MAX, visit).unwrap();
    map
}

/// Makes 1 to 3 blocks of random data near the start of the data zone, where blocks were freed. They are
/// written, or travel inside the log: as a whole, or as what is changed over the blocks of `old`, which
/// are given back.
fn write(
    store: &Branch,
    prng: &mut Prng,
    in_log: bool,
    old: Option<&Extent>,
) -> Result<(Written, Reservation), StoreError> {
    let mut room = store.reserve(Need::Grow { changes: 4, blocks: 3 })?;
    let first = store.geometry().first_data_block().0;
    let goal = if prng.one_in(5) { None } else { Some(BlockNo(first + prng.below(24))) };
    let placed = store.allocate(&mut room, 1 + prng.below(3), goal)?;
    // Often the same bytes at the same place, as a program writes that starts again after a crash.
    let mut bytes = vec![7; placed.blocks().bytes().unwrap() as usize];
    if prng.one_in(3) {
        prng.fill(&mut bytes);
    }
    if !in_log {
        return Ok((store.write(placed, &bytes)?, room));
    }
    let mut blocks = Vec::new();
    for (index, bytes) in (0..).zip(bytes.as_chunks::<BLOCK_SIZE>().0) {
        let base = old.filter(|old| index < old.blocks.count && !prng.one_in(4));
        let base = base.map(|old| BlockNo(old.blocks.start.0 + index));
        let start = prng.below(BLOCK_SIZE as u64) as usize;
        let changed = match base {
            // Nothing, a few bytes, anything.
            Some(_) => start..(start + prng.below(200) as usize * 20).min(BLOCK_SIZE),
            None if prng.one_in(2) => 0..start,
            None => 0..BLOCK_SIZE,
        };
        let mut page = [0; BLOCK_SIZE];
        if let Some(base) = base {
            store.read(BlockRange::new(base, 1), &mut page)?;
        }
        page[changed.clone()].copy_from_slice(&bytes[changed.clone()]);
        blocks.push(LoggedBlock { page: Page::from(&page), base, changed });
    }
    Ok((store.log_data(placed, blocks)?, room))
}

/// One random batch; returns the map after it. One write of data in `log_data` travels inside the log.
pub(crate) fn step(
    store: &Branch,
    map: &Map,
    prng: &mut Prng,
    log_data: u64,
) -> Result<Map, StoreError> {
    let mut map = map.clone();
    let mut transaction = Transaction::new();
    let key = Key::new(InodeNo(20 + prng.below(3)), ItemKind::Extent, prng.below(4) * 4096);
    let old = map.get(&key).map(|old| Extent::decode(old).unwrap());
    let in_log = log_data != 0 && prng.one_in(log_data);
    let (written, mut room) = write(store, prng, in_log, old.as_ref())?;
    match (old, prng.below(5)) {
        // Space that never gets an owner.
        (_, 0) => drop(written),
        // The end of an extent goes, its beginning stays.
        (Some(old), 1 | 2) if old.blocks.count > 1 => {
            drop(written);
            let kept = 1 + prng.below(old.blocks.count - 1);
            let rest = BlockNo(old.blocks.start.0 + kept);
            let at = Key { offset: key.offset + kept * 4096, ..key };
            transaction.free(BlockRange::new(rest, old.blocks.count - kept), old.birth, at);
            let kept = Extent {
                blocks: BlockRange::new(old.blocks.start, kept),
                sums: old.sums[..kept as usize].to_vec(),
                birth: old.birth,
            };
            transaction.put(key, kept.encode());
            map.insert(key, kept.encode());
        }
        (Some(old), 1 | 2) => {
            drop(written);
            transaction.free(old.blocks, old.birth, key);
            transaction.delete(key);
            map.remove(&key);
        }
        (old, _) => {
            if let Some(old) = old {
                transaction.free(old.blocks, old.birth, key);
            }
            let value = transaction.publish(written).encode();
            transaction.put(key, value.clone());
            map.insert(key, value);
        }
    }
    // Now and then a whole directory goes: nodes merge, and commits cancel them.
    if prng.one_in(12) {
        let all: Vec<Key> =
            map.keys().copied().filter(|key| key.kind == ItemKind::Dentry).collect();
        for key in all.into_iter().take(8) {
            transaction.delete(key);
            map.remove(&key);
        }
    }
    for _ in 0..prng.below(3) {
        let key = Key::new(InodeNo(20 + prng.below(9)), ItemKind::Dentry, prng.below(30));
        if prng.one_in(3) {
            transaction.delete(key);
            map.remove(&key);
        } else {
            let value = vec![prng.below(256) as u8; prng.below(700) as usize];
            transaction.put(key, value.clone());
            map.insert(key, value);
        }
    }
    store.apply(transaction, &mut room)?;
    Ok(map)
}

/// Crash generations on one device, every cut of which is judged; then openings on what one of the cuts left.
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

/// What is written into a slot.
fn superblock(at: u64, bytes: &[u8]) -> Option<Superblock> {
    Superblock::decode(bytes.try_into().ok()?, BlockNo(at / BLOCK_BYTES)).ok()
}

fn count_frames(recording: &Recording, seen: &mut Seen) {
    let (mut was, mut distance) = (None, 0);
    let ring = LOG_START.0 * BLOCK_BYTES;
    for event in &recording.events {
        let Event::Write { at, bytes, .. } = event else { continue };
        if let Some(superblock) = superblock(*at, bytes) {
            distance = superblock.geometry.ring_distance * BLOCK_BYTES;
            let lengths = (superblock.geometry.log_blocks, superblock.geometry.journal_blocks);
            seen.turned += usize::from(was.replace(lengths).is_some_and(|was| was != lengths));
        }
        let frame = FrameHeader::decode(bytes);
        seen.spanning += usize::from(frame.is_ok_and(|header| header.index > 0));
        if let Ok(header) = LogHeader::decode(bytes) {
            let places = [header.address, header.address + distance];
            assert!(places.contains(&(at - ring)), "a batch lies where it says");
            let wraps = bytes.len() < header.bytes as usize;
            seen.wrapped += usize::from(wraps);
            seen.together += usize::from(bytes.len() > header.bytes as usize);
        }
    }
}

/// Crash generations one after the other; gives what may be found in each.
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
    for opening in 0..how.openings {
        sim.mark(opening << 32 | acked);
        let store = how.open(sim.clone(), false).unwrap();
        let lsn = store.latest().0;
        assert!(lsn >= acked, "{what}: {lsn} came back, {acked} was durable");
        history.truncate(lsn as usize + 1);
        assert_eq!(contents(&store), *history[lsn as usize], "{what}: opening {opening}");
        if opening > 0 && prng.one_in(2) {
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
            let beside = |work: fn(&Store) -> Result<(), StoreError>| {
                let (store, ended) = (&store, &ended);
                scope.spawn(move || {
                    while !ended.load(Ordering::Acquire) && work(store).is_ok() {
                        std::thread::yield_now();
                    }
                });
            };
            if how.background {
                beside(|store| store.checkpoint());
            }
            if how.commits_beside {
                beside(Store::commit);
            }
            if how.turns_beside {
                beside(turn);
            }
            // Also when a step panics, or the thread would run for ever.
            let _end = SetAtEnd(&ended);
            for _ in 0..how.steps {
                let failed = sim.faults_fired() > 0 && how.lies.is_none();
                if store.stop_reason().is_some() || failed {
                    break;
                }
                let before = history.last().unwrap().clone();
                let after = match how.step(&store, &before, prng) {
                    Ok(after) => after,
                    Err(error) => {
                        let failed = sim.faults_fired() > 0;
                        assert!(failed, "{what}: a step failed without a cause: {error}");
                        break;
                    }
                };
                history.push(Arc::new(after));
                assert_eq!(store.latest().0 as usize, history.len() - 1);
                if how.turns != 0 && prng.one_in(how.turns) {
                    let turned = turn(&store);
                    assert!(turned.is_ok() || sim.faults_fired() > 0, "{what}: {turned:?}");
                }
                let ticket = prng.below(how.commits + how.syncs + how.neither);
                let durable = if ticket < how.commits {
                    store.commit()
                } else if ticket < how.commits + how.syncs {
                    store.sync(store.latest(), InodeNo(20)).map(drop)
                } else if ticket == how.commits + how.syncs
                    && how.checkpoints != 0
                    && prng.one_in(how.checkpoints.div_ceil(4))
                {
                    store.checkpoint()
                } else if how.rests != 0 && prng.one_in(how.rests) {
                    let rested = match prng.one_in(2) {
                        true => store.append(),
                        false => store.confirm().map(drop),
                    };
                    assert!(rested.is_ok() || sim.faults_fired() > 0, "{what}: {rested:?}");
                    continue;
                } else {
                    continue;
                };
                if durable.is_ok() {
                    acked = store.durable().0;
                    assert_eq!(acked, store.latest().0, "{what}: `durable` says too little");
                    sim.mark(opening << 32 | acked);
                }
            }
        });
        told.push(history.clone());
        seen.full += store.counters().journal_full.get();
        seen.log_full += store.counters().log_full.get();
        assert_eq!(store.counters().log_too_large.get(), 0, "{what}");
        drop(store);
        sim.set_faults(Faults::none());
    }
    told
}

/// Gives both rings other lengths.
fn turn(store: &Store) -> Result<(), StoreError> {
    let lengths = [64, 80, 128, 144];
    let at = store.superblock().epoch.0 as usize;
    store.rings_of(lengths[at % 4], lengths[at / 4 % 4])
}

struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Runs seeds from `first` on, usually so many.
pub(crate) fn survive(first: u64, usual: u64, again: usize, how: &Conditions) -> Seen {
    let asked = std::env::var("HOLDFAST_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let mut all = Seen::default();
    for seed in first..first + asked.unwrap_or(usual) {
        println!("seed {seed} of {how:?}");
        let seen = run(seed, how, again);
        println!("{seen:?}");
        all.images += seen.images;
        all.commits = all.commits.max(seen.commits);
        all.again += seen.again;
        all.spanning += seen.spanning;
        all.full += seen.full;
        all.batches = all.batches.max(seen.batches);
        all.wrapped += seen.wrapped;
        all.together += seen.together;
        all.log_full += seen.log_full;
        all.turned += seen.turned;
    }
    assert!(all.images > 60, "{all:?}");
    all
}
