//! What a full host has given is searched for: all of it is found, by no more calls than that takes, whatever else goes on (P8).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use holdfast_base::clock::SimulatedClock;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_device::sim::HostedDevice;
use holdfast_device::{Device, DeviceError, Discards, MemoryDevice, forward};
use holdfast_format::Geometry;
use holdfast_format::limits::GROUP_BLOCKS;
use holdfast_store::{Need, StoreError};
use parking_lot::{Condvar, Mutex};

use super::given_before::{UNLINK, on_a_full_host, remove};
use super::{formatted_as, gettid, not_new, open, shapes, state_of};

const BLOCK: Need = Need::Grow { changes: 1, blocks: 1 };
/// Bytes of a piece.
const PIECE: u64 = 4 << 20;

/// Which calls wait.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shut {
    Nothing,
    /// Requests for parts of this piece.
    Piece(u64),
    Discards,
}

/// A host that has little, and does what it is told.
#[derive(Debug)]
struct Host {
    image: HostedDevice,
    asked: AtomicU64,
    /// Bytes that it counts as given, and that nothing finds.
    own: u64,
    /// It keeps what it finds of what it refuses.
    keeps_parts: AtomicBool,
    /// What else a call takes.
    takes: Mutex<Option<(SimulatedClock, Duration)>>,
    shut: Mutex<Shut>,
    waiting: AtomicU64,
    opened: Condvar,
    /// Between these it gives nothing, and does not look.
    first: u64,
    gives_from: u64,
}

impl Host {
    /// With nothing left but what the image has, and the rings.
    fn full(image: &MemoryDevice, geometry: Geometry, own: u64) -> Host {
        let image = HostedDevice::new(image, u64::MAX / 2);
        for ring in geometry.rings() {
            image.take_room(ring.start.0 * BLOCK_BYTES, ring.count * BLOCK_BYTES).unwrap();
        }
        image.exhaust();
        Host {
            image,
            asked: AtomicU64::new(0),
            own,
            keeps_parts: AtomicBool::new(false),
            takes: Mutex::new(None),
            shut: Mutex::new(Shut::Nothing),
            waiting: AtomicU64::new(0),
            opened: Condvar::new(),
            first: geometry.first_data_block().0 * BLOCK_BYTES,
            gives_from: 0,
        }
    }

    fn shut(&self, shut: Shut) {
        *self.shut.lock() = shut;
        self.opened.notify_all();
    }

    fn pass(&self, call: Shut) {
        let mut shut = self.shut.lock();
        if *shut == call {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            self.opened.wait_while(&mut shut, |shut| *shut == call);
        }
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Device for Host {
    forward!(image: read, write, flush, len, sector_size, reach, stats);

    fn room(&self) -> Option<u64> {
        self.image.room()
    }

    fn given(&self) -> u64 {
        self.image.given() + self.own
    }

    /// What goes back is another's at once.
    fn discard(&self, at: u64, len: u64) -> Result<(), DeviceError> {
        self.pass(Shut::Discards);
        self.image.discard(at, len)?;
        self.image.exhaust();
        Ok(())
    }

    fn discards(&self) -> Discards {
        self.image.discards()
    }

    fn take_room(&self, at: u64, len: u64) -> Result<(), DeviceError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if let Some((clock, time)) = *self.takes.lock() {
            clock.advance(time);
        }
        if len < PIECE {
            self.pass(Shut::Piece(at / PIECE));
        }
        if self.first <= at && at + len <= self.gives_from {
            let source = std::io::ErrorKind::StorageFull.into();
            return Err(DeviceError::Io { call: "reservation", at, len, source });
        }
        let done = self.image.take_room(at, len);
        if done.is_err() && self.keeps_parts.load(Ordering::SeqCst) {
            let mut blocks = (at..at + len).step_by(BLOCK_BYTES as usize);
            while blocks.next().is_some_and(|at| self.image.take_room(at, BLOCK_BYTES).is_ok()) {}
        }
        done
    }
}

fn small(bytes: u64) -> Geometry {
    Geometry::for_device(bytes, 4096).unwrap()
}

/// Asks for blocks until there are none, and keeps them.
fn take_all(store: &holdfast_store::Branch) {
    while let Ok(room) = store.reserve(BLOCK) {
        std::mem::forget(room);
    }
}

/// Blocks that wait for a commit are not what a search did not find: behind the commit they are looked for.
#[test]
fn what_was_freed_before_a_search_is_found_behind_the_commit() {
    for geometry in shapes(300 << 20) {
        let (host, files) = on_a_full_host(geometry);
        let store = open(host);
        take_all(&store);
        files.into_iter().for_each(|(number, blocks)| remove(&store, number, blocks));
        store.reserve(BLOCK).map(drop).expect("700 blocks were freed");
    }
}

/// As ext4 does: what it had of a range that it refuses stays with the file.
#[test]
fn the_part_that_a_host_gave_of_what_it_refused_is_found() {
    let geometry = small(64 << 20);
    let host = Arc::new(Host::full(&not_new(formatted_as(geometry)), geometry, 1 << 20));
    let store = open(host.clone());
    assert!(matches!(store.reserve(UNLINK), Err(StoreError::NoSpace)), "all was searched");
    host.keeps_parts.store(true, Ordering::SeqCst);
    host.image.give(PIECE - BLOCK_BYTES);
    store.reserve(UNLINK).map(drop).expect("the host has given nearly a piece");
}

/// One thread is at the last piece that has anything: the other one waits for what it finds.
#[test]
fn a_thread_waits_for_what_the_search_of_another_finds() {
    let geometry = small(64 << 20);
    let host = Arc::new(Host::full(&not_new(formatted_as(geometry)), geometry, 0));
    host.image.give(PIECE - BLOCK_BYTES);
    host.image.take_room(14 * PIECE, PIECE - BLOCK_BYTES).unwrap();
    let store = open(host.clone());
    host.shut(Shut::Piece(14));
    let number = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let finds = scope.spawn(|| store.reserve(Need::Shrink { changes: 1 }).map(drop));
        while host.waiting.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let waits = scope.spawn(|| {
            number.store(gettid(), Ordering::SeqCst);
            store.reserve(Need::Shrink { changes: 1 }).map(drop)
        });
        let mut asleep = 0;
        while asleep < 200 && !waits.is_finished() {
            let thread = number.load(Ordering::SeqCst);
            let is_asleep = thread > 0 && state_of(thread) == 'S';
            asleep = if is_asleep { asleep + 1 } else { 0 };
            std::thread::yield_now();
        }
        host.shut(Shut::Nothing);
        assert!(waits.join().unwrap().is_ok(), "it is refused while another thread searches");
        finds.join().unwrap().unwrap();
    });
    assert_eq!(host.waiting.load(Ordering::SeqCst), 1, "two ask for the same");
}

/// A host that is slow to refuse keeps no caller for long, and the next one goes on where that has stopped.
#[test]
fn a_search_ends_when_it_takes_too_long_and_is_gone_on_with() {
    let geometry = small(16 << 30);
    let image = not_new(formatted_as(geometry));
    for (need, calls) in [(BLOCK, 1000), (Need::Shrink { changes: 1 }, 30_000)] {
        let mut host = Host::full(&image, geometry, 1 << 20);
        host.gives_from = u64::MAX;
        let host = Arc::new(host);
        let clock = SimulatedClock::new();
        let _entered = clock.enter();
        let store = open(host.clone());
        *host.takes.lock() = Some((clock, Duration::from_millis(1)));
        for _ in 0..2 {
            let asked = host.asked();
            assert!(matches!(store.reserve(need), Err(StoreError::NoSpace)));
            let asked = host.asked() - asked;
            println!("{need:?}: {asked} calls");
            // The last piece is looked at whole, and a reservation tries some times.
            assert!((calls / 2..8 * calls).contains(&asked), "{need:?}: {asked} calls");
        }
    }
}

/// What a removal needs lies far behind all that is in use: it is found, however much has to be searched.
#[test]
fn a_removal_is_not_refused_before_all_is_searched() {
    let far = 70 * GROUP_BLOCKS * BLOCK_BYTES;
    let geometry = small(80 << 27);
    let mut host = Host::full(&not_new(formatted_as(geometry)), geometry, 0);
    host.image.give(2 * PIECE);
    host.image.take_room(far, 2 * PIECE).unwrap();
    host.image.exhaust();
    host.gives_from = far;
    let store = open(Arc::new(host));
    store.reserve(Need::Shrink { changes: 1 }).map(drop).expect("the host has given 8 MiB");
}

/// While a trim goes on, a caller takes what was found of the reserve. The rest of it is among what the trim has before it.
#[test]
fn a_trim_gives_nothing_back_that_a_reserve_has_come_to_need() {
    for geometry in shapes(300 << 20) {
        let (image, _) = on_a_full_host(geometry);
        let host = Arc::new(Host::full(&image.image(), geometry, 0));
        // A whole group is given, and known to no opening.
        let bytes = GROUP_BLOCKS * BLOCK_BYTES;
        host.image.give(bytes);
        host.image.take_room(bytes, bytes).unwrap();
        host.image.exhaust();
        let store = open(host.clone());
        host.shut(Shut::Discards);
        std::thread::scope(|scope| {
            let trims = scope.spawn(|| store.trim(0, |_| true).map(drop));
            while host.waiting.load(Ordering::SeqCst) == 0 && !trims.is_finished() {
                std::thread::yield_now();
            }
            // As many as there are.
            while let Ok(Some(room)) = store.reserve_now(Need::Shrink { changes: 4 }) {
                std::mem::forget(room);
            }
            host.shut(Shut::Nothing);
            trims.join().unwrap().unwrap();
        });
        println!("{} of the host, {:?}", host.given(), store.space_use());
        store.reserve(Need::Shrink { changes: 4 }).map(drop).expect("the trim went on");
    }
}
