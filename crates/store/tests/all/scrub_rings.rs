//! A scrub judges what a recovery would need of the rings, in each of their places, and nothing else of them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast_base::counters::Counters;
use holdfast_base::{BlockNo, InodeNo};
use holdfast_device::sim::{Action, Call, Faults, When};
use holdfast_device::{Device, DeviceError, MemoryDevice, SimDevice, forward};
use holdfast_format::Geometry;
use holdfast_store::{BadRing, Branch, Damaged, Listener, OpenOptions, RingName, Scrub, Store};

use crate::ring_places::{
    COMMITTED, LOGGED, batches_and_frames, crashed_as, distance, fill, geometry, in_use_as,
};
use crate::small;
use crate::superblock_rots::rot_newest;

/// What a scrub says of the rings; something happens behind each read.
struct Heard<'a> {
    bad: Vec<BadRing>,
    bytes: u64,
    beside: &'a mut dyn FnMut(),
    /// As its stopper would keep it.
    stopped: Option<Vec<u8>>,
    stops: bool,
}

impl Heard<'_> {
    fn new(beside: &mut dyn FnMut()) -> Heard<'_> {
        Heard { bad: Vec::new(), bytes: 0, beside, stopped: None, stops: false }
    }
}

impl Listener for Heard<'_> {
    fn has_read(&mut self, scrub: &Scrub, bytes: u64, _: Duration) -> bool {
        self.bytes += bytes;
        (self.beside)();
        if self.stops {
            self.stopped = Some(scrub.to_bytes());
        }
        !self.stops
    }

    fn is_damaged(&mut self, what: Damaged, why: String) {
        panic!("{what:?}: {why}");
    }

    fn has_bad_place(&mut self, block: BlockNo, _: bool, why: String) {
        panic!("{block}: {why}");
    }

    fn has_bad_ring(&mut self, bad: BadRing) {
        self.bad.push(bad);
    }
}

fn scrub_beside(store: &Store, beside: &mut dyn FnMut()) -> (Vec<BadRing>, u64) {
    let mut heard = Heard::new(beside);
    assert!(store.begin_scrub(None, &mut heard).unwrap().is_some());
    (heard.bad, heard.bytes)
}

fn scrub(store: &Store) -> Vec<BadRing> {
    scrub_beside(store, &mut || {}).0
}

fn once() -> Geometry {
    let Geometry { log_blocks, journal_blocks, .. } = geometry();
    Geometry { ring_distance: 0, ..geometry() }.with_ring_blocks(log_blocks, journal_blocks)
}

/// The places that become bad.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Which {
    First,
    Second,
    Both,
    /// The only one there is.
    Only,
}

const ALL: [Which; 4] = [Which::First, Which::Second, Which::Both, Which::Only];

impl Which {
    fn geometry(self) -> Geometry {
        if self == Which::Only { once() } else { geometry() }
    }

    fn is_one_of_two(self) -> bool {
        matches!(self, Which::First | Which::Second)
    }

    /// Damages a part that begins at this byte in its first place. Returns where the first bad place begins.
    fn damage(self, image: &MemoryDevice, at: u64) -> u64 {
        if self != Which::Second {
            fill(image, at, 512, 0xaa);
        }
        if matches!(self, Which::Second | Which::Both) {
            fill(image, at + distance(), 512, 0xaa);
        }
        if self == Which::Second { at + distance() } else { at }
    }
}

/// One from the middle of what is in use of each ring.
fn parts(image: &MemoryDevice) -> [(RingName, (u64, u64)); 2] {
    let [batches, frames] = batches_and_frames(image);
    let middle = |of: &[(u64, u64)]| of[of.len() / 2];
    [(RingName::Log, middle(&batches)), (RingName::Journal, middle(&frames))]
}

fn has_all(store: &Branch, what: &str) {
    for number in 0..COMMITTED + LOGGED {
        assert_eq!(small::first(store, number), Some(7), "{what}: value {number}");
    }
}

fn read_only(device: &Arc<MemoryDevice>) -> Branch {
    let options = OpenOptions { read_only: true, threads: false, ..OpenOptions::default() };
    Store::open(device.clone(), &options, Arc::new(Counters::default())).unwrap().into_main()
}

#[test]
fn sound_rings_are_read_in_each_place() {
    for geometry in [geometry(), once()] {
        let places = geometry.ring_places().count() as u64;
        let (device, store) = in_use_as(geometry);
        let [batches, frames] = batches_and_frames(&device);
        let used: u64 = batches.iter().chain(&frames).map(|(_, bytes)| bytes).sum();
        let (bad, bytes) = scrub_beside(&store, &mut || {});
        assert_eq!((bad, bytes), (Vec::new(), used * places));
        // A checkpoint was made: nothing is needed.
        let (bad, bytes) = scrub_beside(&store, &mut || {});
        assert_eq!((bad, bytes), (Vec::new(), 0));
    }
}

/// What rots in the rings of a volume in use is in memory: behind the scrub nothing of it is needed.
#[test]
fn what_is_bad_under_a_volume_in_use_is_told_and_needed_no_more() {
    for which in ALL {
        for ring in [0, 1] {
            let (device, store) = in_use_as(which.geometry());
            let (name, (at, len)) = parts(&device)[ring];
            let what = format!("{which:?} of {name:?}");
            let start = which.damage(&device, at);
            let found = scrub(&store);
            let [bad] = &found[..] else { panic!("{what}: {found:?}") };
            assert_eq!((bad.ring, bad.bytes.start), (name, start), "{what}: {bad:?}");
            assert!(bad.is_mended && !bad.is_lost, "{what}: {bad:?}");
            assert!(bad.why.contains("nothing is lost"), "{what}: {bad:?}");
            assert!(bad.why.contains(&format!("byte {start} ")), "{what}: {bad:?}");
            let unit = if name == RingName::Log { 512 } else { 4096 };
            let bytes = if which.is_one_of_two() { len } else { unit };
            assert_eq!(bad.bytes.end - start, bytes, "{what}: {bad:?}");
            assert_eq!(store.counters().scrub_damages.get(), 1, "{what}");
            assert_eq!(scrub(&store), [], "{what}");
            // What is durable behind it is found although that has rotted.
            small::put(&store, 70..71, 5, 5);
            small::sync(&store);
            let left = Arc::new(device.snapshot());
            drop(store);
            let store = small::open(&left);
            has_all(&store, &what);
            assert_eq!(small::first(&store, 70), Some(5), "{what}");
        }
    }
}

/// A device that calls something once, before it writes into the journal.
struct Calls {
    inner: MemoryDevice,
    once: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(out)
    }
}

impl Device for Calls {
    forward!(inner: read, flush, discard, len, room, take_room, sector_size, reach, stats);

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let journal = geometry().journal();
        if (journal.start.0..journal.end().unwrap().0).contains(&(at / 4096)) {
            let once = self.once.lock().unwrap().take();
            once.into_iter().for_each(|call| call());
        }
        self.inner.write(at, bytes)
    }
}

/// What a checkpoint holds already makes a hole of the log nevertheless, if it rots before a later batch comes. And nothing is left
/// that another checkpoint would take.
#[test]
fn what_is_in_its_place_and_still_in_the_log_is_made_unneeded_as_well() {
    let formatted = small::formatted_as(once()).snapshot();
    let device = Arc::new(Calls { inner: formatted, once: Mutex::default() });
    let store = small::open(&device);
    small::put(&store, 0..3, 5, 5);
    let within = store.clone();
    *device.once.lock().unwrap() = Some(Box::new(move || small::sync(&within)));
    store.checkpoint().unwrap();
    let [batches, _] = batches_and_frames(&device.inner);
    let (at, _) = *batches.last().expect("the fsync did not wait for the checkpoint");
    fill(&device.inner, at, 512, 0xaa);
    let found = scrub(&store);
    assert!(found.len() == 1 && found[0].is_mended, "{found:?}");
    small::put(&store, 3..4, 5, 5);
    small::sync(&store);
    let left = Arc::new(device.inner.snapshot());
    drop(store);
    let store = small::open(&left);
    assert_eq!([0, 1, 2, 3].map(|number| small::first(&store, number)), [Some(5); 4]);
}

/// P7: a reader says whether a place is bad or none is left, and writes nothing.
#[test]
fn a_reader_tells_of_one_place_and_of_damage() {
    for which in ALL {
        let sound = crashed_as(which.geometry());
        for (name, (at, _)) in parts(&sound) {
            for is_open_before in [false, true] {
                let what = format!("{which:?} of {name:?}, open before: {is_open_before}");
                let image = Arc::new(sound.snapshot());
                let opened = is_open_before.then(|| read_only(&image));
                let start = which.damage(&image, at);
                let before = image.to_image();
                let store = opened.unwrap_or_else(|| read_only(&image));
                let found = scrub(&store);
                let [bad] = &found[..] else { panic!("{what}: {found:?}") };
                assert_eq!((bad.ring, bad.bytes.start), (name, start), "{what}: {bad:?}");
                let is_lost = !which.is_one_of_two();
                assert_eq!((bad.is_mended, bad.is_lost), (false, is_lost), "{what}: {bad:?}");
                assert_eq!(scrub(&store), found, "{what}");
                assert!(image.to_image() == before, "{what}: it was written to");
            }
        }
    }
}

/// The superblock from which it was opened rots under a reader: then that is said, and the journal is not blamed.
#[test]
fn a_superblock_that_rots_under_a_reader_is_told_as_that() {
    for (geometry, is_crashed) in [(geometry(), true), (once(), true), (once(), false)] {
        let image = Arc::new(crashed_as(geometry));
        if !is_crashed {
            small::open(&image).close().unwrap();
        }
        let store = read_only(&image);
        assert_eq!(store.scrub_superblocks().unwrap(), None);
        rot_newest(&image);
        let why = store.scrub_superblocks().unwrap().expect("it has rotted");
        assert!(why.contains("the superblock at byte ") && why.contains("is damaged"), "{why}");
        let far_copy = "its far copy is whole: unmount, and `holdfast fsck -y` writes it back";
        assert!(why.contains(far_copy), "{why}");
        assert_eq!(scrub(&store), []);
        fill(&image, geometry.far_copy().0 * 4096, 4096, 0);
        let why = store.scrub_superblocks().unwrap().expect("it has rotted");
        assert!(why.contains("copy files out before you unmount"), "{why}");
    }
}

/// A crash may leave the last batch in one place, or in none.
#[test]
fn what_nothing_calls_durable_is_no_damage_for_a_reader() {
    let sound = crashed_as(geometry());
    let (at, _) = *batches_and_frames(&sound)[0].last().unwrap();
    for which in [Which::First, Which::Second, Which::Both] {
        let image = Arc::new(sound.snapshot());
        which.damage(&image, at);
        assert_eq!(scrub(&read_only(&image)), [], "{which:?}");
    }
    // Nor is a volume that was left in order.
    let image = Arc::new(sound.snapshot());
    small::open(&image).close().unwrap();
    assert_eq!(scrub(&read_only(&image)), []);
}

/// Parts of one place that follow each other are told once.
#[test]
fn a_stretch_of_a_place_is_one_finding() {
    let (device, store) = in_use_as(geometry());
    let [batches, _] = batches_and_frames(&device);
    let (from, to) = (batches[3].0, batches[9]);
    fill(&device, from, to.0 + to.1 - from, 0);
    let found = scrub(&store);
    let [bad] = &found[..] else { panic!("{found:?}") };
    assert_eq!(bad.bytes, from..to.0 + to.1);
    assert!(bad.why.contains("what follows up to"), "{}", bad.why);
}

/// A volume that has stopped writes nothing: only the rings hold it.
#[test]
fn a_volume_that_has_stopped_tells_what_is_lost() {
    for which in [Which::Both, Which::First] {
        let sound = crashed_as(geometry());
        let device = Arc::new(SimDevice::new(&small::formatted_as(geometry())));
        let store = small::open(&device);
        for number in 0..12 {
            small::put(&store, number..number + 1, 7, 9);
            small::sync(&store);
        }
        let fails = Faults::none().with(Call::Write, When::From(1), Action::Fail);
        device.set_faults(fails);
        small::put(&store, 12..13, 7, 9);
        store.sync(store.latest(), InodeNo(20)).unwrap_err();
        device.set_faults(Faults::none());
        assert_eq!(scrub(&store), [], "what was cut short is not in use");
        let (at, _) = batches_and_frames(&sound)[0][5];
        let bad = vec![0xaa; 512];
        device.write(at, &bad).unwrap();
        if which == Which::Both {
            device.write(at + distance(), &bad).unwrap();
        }
        let found = scrub(&store);
        let [bad] = &found[..] else { panic!("{found:?}") };
        assert_eq!((bad.ring, bad.is_mended), (RingName::Log, false), "{bad:?}");
        assert_eq!(bad.is_lost, which == Which::Both, "{bad:?}");
    }
}

/// Both rings become free and are written over between any two reads of them.
#[test]
fn rings_that_go_on_while_they_are_read_are_no_damage() {
    for geometry in [geometry(), once()] {
        let device = small::formatted_as(geometry);
        let store = small::open(&device);
        let mut round = 0u64;
        let mut work = |operations: u64, commits: bool| {
            for _ in 0..operations {
                round += 1;
                let at = round % 200;
                small::put(&store, at..at + 1, round as u8, 3);
                if commits && round.is_multiple_of(8) {
                    store.commit().unwrap();
                } else {
                    // A full ring makes it a commit.
                    store.sync(store.latest(), InodeNo(20)).unwrap();
                }
            }
        };
        let mut reads = 0;
        for turn in 0..6 {
            work(600, turn % 2 == 0);
            let mut beside = || {
                reads += 1;
                // More than a whole ring.
                work(2000, true);
                store.checkpoint().unwrap();
                work(100, turn % 3 == 0);
            };
            assert_eq!(scrub_beside(&store, &mut beside).0, []);
        }
        assert!(reads >= 6, "{reads}");
        let ring = geometry.log_blocks * 4096;
        assert!(store.counters().log_bytes_written.get() > 3 * ring, "the ring did not go round");
    }
}

/// A device that calls something before it reads, but not within that.
struct OnRead {
    inner: MemoryDevice,
    #[expect(clippy::type_complexity, reason = "it is used here alone")]
    call: Mutex<Option<Box<dyn FnMut(u64) + Send>>>,
}

impl std::fmt::Debug for OnRead {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(out)
    }
}

impl Device for OnRead {
    forward!(inner: write, flush, discard, len, room, take_room, sector_size, reach, stats);

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let call = self.call.lock().unwrap().take();
        if let Some(mut call) = call {
            call(at);
            *self.call.lock().unwrap() = Some(call);
        }
        self.inner.read(at, into)
    }
}

/// The ring goes round, and is written over, before a part of it is read that was in use a moment ago.
#[test]
fn a_part_that_is_written_over_before_it_is_read_is_no_damage() {
    for geometry in [geometry(), once()] {
        for (name, zone) in [("log", geometry.log()), ("journal", geometry.journal())] {
            let formatted = small::formatted_as(geometry).snapshot();
            let device = Arc::new(OnRead { inner: formatted, call: Mutex::default() });
            let store = small::open(&device);
            let (within, mut round) = (store.clone(), 0u64);
            let mut work = move |operations: u64| {
                for _ in 0..operations {
                    round += 1;
                    let at = round % 200;
                    small::put(&within, at..at + 1, round as u8, 3);
                    if round.is_multiple_of(8) {
                        within.commit().unwrap();
                    } else {
                        within.sync(within.latest(), InodeNo(20)).unwrap();
                    }
                }
            };
            work(100);
            let times = Arc::new(AtomicU64::new(0));
            let (bytes, called) =
                (zone.start.0 * 4096..zone.end().unwrap().0 * 4096, times.clone());
            let call = move |at: u64| {
                if bytes.contains(&at) && called.fetch_add(1, Ordering::Relaxed) == 0 {
                    work(2000);
                }
            };
            *device.call.lock().unwrap() = Some(Box::new(call));
            assert_eq!(scrub(&store), [], "{name}");
            assert!(times.load(Ordering::Relaxed) > 0, "{name}: it was not read");
            // It holds the store.
            *device.call.lock().unwrap() = None;
        }
    }
}

/// Runs one that the listener stops in the rings. Returns what it says, and what it leaves.
fn stopped(store: &Store) -> (Vec<BadRing>, Vec<u8>) {
    let beside = &mut || {};
    let mut heard = Heard { stops: true, ..Heard::new(beside) };
    assert!(store.begin_scrub(None, &mut heard).unwrap().is_none());
    (heard.bad, heard.stopped.expect("it has read"))
}

#[test]
fn what_was_found_before_it_was_stopped_is_told_and_needed_no_more() {
    for which in ALL {
        for ring in [0, 1] {
            let (device, store) = in_use_as(which.geometry());
            let (name, (at, _)) = parts(&device)[ring];
            let what = format!("{which:?} of {name:?}");
            let start = which.damage(&device, at);
            let (found, _) = stopped(&store);
            let [bad] = &found[..] else { panic!("{what}: {found:?}") };
            assert_eq!((bad.ring, bad.bytes.start), (name, start), "{what}: {bad:?}");
            assert!(bad.is_mended && !bad.is_lost, "{what}: {bad:?}");
            let left = Arc::new(device.snapshot());
            drop(store);
            has_all(&small::open(&left), &what);
        }
    }
    // A reader says the same as one that is not stopped.
    let image = Arc::new(crashed_as(once()));
    Which::Only.damage(&image, parts(&image)[0].1.0);
    let store = read_only(&image);
    let (found, _) = stopped(&store);
    assert!(found.len() == 1 && found[0].is_lost, "{found:?}");
    assert_eq!(scrub(&store), found);
}

/// It has verified nothing yet: what has come since would be passed as too young.
#[test]
fn one_that_was_stopped_in_the_rings_begins_anew() {
    let (_device, store) = in_use_as(geometry());
    let (_, kept) = stopped(&store);
    store.checkpoint().unwrap();
    small::put(&store, 0..9, 1, 2);
    store.checkpoint().unwrap();
    let begun = |from: Option<&[u8]>| {
        let beside = &mut || {};
        let mut heard = Heard::new(beside);
        store.begin_scrub(from, &mut heard).unwrap().unwrap().to_bytes()
    };
    let anew = begun(None);
    assert_ne!(kept, anew);
    assert!(begun(Some(&kept)) == anew, "it judges as much as a new one");
}

#[test]
fn scrubs_beside_threads_that_fsync_find_nothing() {
    let device = small::formatted_as(geometry());
    let store = &small::open(&device);
    let is_over = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            scope.spawn(move || {
                let mut round = thread;
                while !is_over.load(Ordering::Relaxed) {
                    round += 2;
                    let at = round % 100;
                    small::put(store, at..at + 1, round as u8, 3);
                    store.sync(store.latest(), InodeNo(20)).unwrap();
                    if round.is_multiple_of(37) {
                        store.commit().unwrap();
                    }
                }
            });
        }
        for _ in 0..60 {
            let beside = &mut || {};
            let mut heard = Heard::new(beside);
            let done = store.begin_scrub(None, &mut heard);
            if done.is_err() || !heard.bad.is_empty() {
                is_over.store(true, Ordering::Relaxed);
                panic!("{done:?}: {:?}", heard.bad);
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
