//! How a volume in a sparse image asks its host for space: only where that is of use, and without a busy wait.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

mod discards;
mod given_before;
mod host_use;
mod searches;

use holdfast_base::clock::SimulatedClock;
use holdfast_base::counters::Counters;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockRange, InodeNo};
use holdfast_device::sim::HostedDevice;
use holdfast_device::{Device, DeviceError, MemoryDevice, forward};
use holdfast_format::item::Extent;
use holdfast_format::{Geometry, ItemKind, Key};
use holdfast_store::{Branch, Identity, Need, OpenOptions, Store, StoreError, Transaction};
use parking_lot::{Condvar, Mutex};

use crate::small;

/// An image on a host whose answers to a request for space are counted, and can be held back.
#[derive(Debug)]
struct Slow {
    image: HostedDevice,
    asked: AtomicU64,
    looks: AtomicU64,
    panics: AtomicBool,
    is_shut: Mutex<bool>,
    opened: Condvar,
}

impl Slow {
    fn over(image: &MemoryDevice) -> Arc<Slow> {
        Arc::new(Slow {
            image: HostedDevice::new(image, u64::MAX / 2),
            asked: AtomicU64::new(0),
            looks: AtomicU64::new(0),
            panics: AtomicBool::new(false),
            is_shut: Mutex::new(false),
            opened: Condvar::new(),
        })
    }

    fn shut(&self, is_shut: bool) {
        *self.is_shut.lock() = is_shut;
        self.opened.notify_all();
    }
}

impl Device for Slow {
    forward!(image: read, write, flush, discard, len, sector_size, reach, stats);

    fn room(&self) -> Option<u64> {
        self.image.room()
    }

    /// Each search for space in the host asks for this once.
    fn given(&self) -> u64 {
        self.looks.fetch_add(1, Ordering::SeqCst);
        self.image.given()
    }

    fn take_room(&self, at: u64, len: u64) -> Result<(), DeviceError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.opened.wait_while(&mut self.is_shut.lock(), |is_shut| *is_shut);
        assert!(!self.panics.swap(false, Ordering::SeqCst), "as the test wants");
        self.image.take_room(at, len)
    }
}

fn formatted(bytes: u64) -> (MemoryDevice, Geometry) {
    let geometry = Geometry::for_device(bytes, 4096).unwrap();
    (formatted_as(geometry), geometry)
}

fn formatted_as(geometry: Geometry) -> MemoryDevice {
    small::formatted_as(geometry).snapshot()
}

/// Volumes of so many bytes with what is near the roots stored once, and twice: its two places lie in two pieces.
fn shapes(bytes: u64) -> [Geometry; 3] {
    let [small, usual] = [4096, 16384].map(|size| Geometry::for_device(bytes, size).unwrap());
    [small, small.with_root_copies().unwrap(), usual.with_root_copies().unwrap()]
}

/// The same volume, behind a first write: its rings are taken when it is opened.
fn not_new(image: MemoryDevice) -> MemoryDevice {
    let volume = Arc::new(image);
    let store = open(volume.clone());
    let to = Identity { uuid: None, label: Some("not new".into()), clear_fault: false };
    store.change_identity(&to).unwrap();
    store.close().unwrap();
    volume.snapshot()
}

fn open(device: Arc<dyn Device>) -> Branch {
    let options = OpenOptions { threads: false, ..OpenOptions::default() };
    Store::open(device, &options, Arc::new(Counters::default())).map(Store::into_main).unwrap()
}

/// Reserves everything that there is, in pieces of up to `want` blocks.
fn fill(store: &Branch, want: u64, extents: &mut Vec<BlockRange>) {
    loop {
        let mut room = match store.reserve(Need::Grow { changes: 1, blocks: want }) {
            Ok(room) => room,
            Err(StoreError::NoSpace) => return,
            Err(error) => panic!("{error}"),
        };
        let placed = store.allocate(&mut room, want, None).expect("it was reserved");
        let mut transaction = Transaction::new();
        let key = Key::new(InodeNo(50), ItemKind::Extent, extents.len() as u64);
        let extent = transaction.publish_unwritten(placed);
        transaction.put(key, extent.encode());
        store.apply(transaction, &mut room).unwrap();
        extents.push(extent.blocks);
    }
}

/// Damage that was found in a new volume is said by its superblock, if the host has room for the rings that it has from then on.
/// Otherwise nothing is written, and it can be opened as before.
#[test]
fn a_new_volume_on_a_full_host_that_is_damaged_can_be_opened_again() {
    let (image, _) = formatted(64 << 20);
    for (room, is_said) in [(0, false), (100 << 10, false), (64 << 20, true)] {
        let hosted: Arc<dyn Device> = Arc::new(HostedDevice::new(&image, room));
        let store = open(hosted.clone());
        assert!(store.is_without_rings());
        store.found_damage("a node is none");
        store.close().unwrap();
        let store = open(hosted);
        assert_eq!(store.is_without_rings(), !is_said, "{room} bytes");
        assert_eq!(store.superblock().fault.is_some(), is_said, "{room} bytes");
        assert_eq!(store.stop_reason(), None);
        store.close().unwrap();
    }
}

/// What an earlier mount has filled is not asked for again: only pieces with a free block are worth a call of the host.
#[test]
fn a_full_image_asks_its_host_for_pieces_with_free_blocks_only() {
    const PIECES: u64 = 256;
    let (image, _) = formatted(PIECES << 22);
    let volume = Arc::new(image);
    let store = open(volume.clone());
    let mut extents = Vec::new();
    for want in [8192, 512, 16, 1] {
        fill(&store, want, &mut extents);
    }
    // The floor stays, scattered at both ends. One extent goes, far from where a search begins.
    let large = (0..extents.len()).filter(|number| extents[*number].count >= 512);
    let freed = large.max_by_key(|number| extents[*number].start).unwrap();
    let mut transaction = Transaction::new();
    transaction.delete(Key::new(InodeNo(50), ItemKind::Extent, freed as u64));
    let at = Key::new(InodeNo(50), ItemKind::Extent, freed as u64);
    transaction.free(extents[freed], Extent::UNBORN, at);
    let mut room = store.reserve(Need::Shrink { changes: transaction.changes() }).unwrap();
    store.apply(transaction, &mut room).unwrap();
    drop(room);
    store.close().unwrap();

    let host = Slow::over(&volume.snapshot());
    let store = open(host.clone());
    let rings = host.asked.load(Ordering::SeqCst);
    let mut total = 0;
    while let Ok(room) = store.reserve(Need::Grow { changes: 1, blocks: 1 }) {
        total += 1;
        std::mem::forget(room);
        assert!(
            total <= extents[freed].count,
            "{total} blocks of {} are free",
            extents[freed].count
        );
    }
    let asked = host.asked.load(Ordering::SeqCst) - rings;
    println!("{asked} pieces of {PIECES} were asked for; {total} blocks were free");
    assert!(total > 0 && asked < PIECES / 8, "{asked} pieces of {PIECES}");
}

/// Blocks of a piece that becomes free while the volume is open are found as well.
#[test]
fn a_piece_is_asked_for_once_blocks_of_it_are_free() {
    let (image, _) = formatted(64 << 20);
    let volume = Arc::new(image);
    let store = open(volume.clone());
    let mut extents = Vec::new();
    for want in [512, 16, 1] {
        fill(&store, want, &mut extents);
    }
    store.close().unwrap();
    let host = Slow::over(&volume.snapshot());
    let store = open(host.clone());
    assert!(matches!(
        store.reserve(Need::Grow { changes: 1, blocks: 300 }),
        Err(StoreError::NoSpace)
    ));
    for (number, extent) in (0..).zip(&extents).filter(|(_, extent)| extent.count == 512) {
        let mut transaction = Transaction::new();
        transaction.delete(Key::new(InodeNo(50), ItemKind::Extent, number));
        transaction.free(*extent, Extent::UNBORN, Key::new(InodeNo(50), ItemKind::Extent, number));
        let mut room = store.reserve(Need::Shrink { changes: transaction.changes() }).unwrap();
        store.apply(transaction, &mut room).unwrap();
        drop(room);
        drop(store.reserve(Need::Grow { changes: 1, blocks: 300 }).unwrap());
        if number == 3 {
            break;
        }
    }
}

/// A flood of questions how full a branch is asks the host once in 10 ms, and at once when space was refused.
#[test]
fn a_flood_of_questions_asks_the_host_once_in_a_while() {
    let (image, _) = formatted(64 << 20);
    let host = Slow::over(&not_new(image));
    let store = open(host.clone());
    let clock = SimulatedClock::new();
    let _entered = clock.enter();
    let asked = || {
        let before = host.looks.load(Ordering::SeqCst);
        (0..100).for_each(|_| {
            store.space_use();
        });
        host.looks.load(Ordering::SeqCst) - before
    };
    assert_eq!((asked(), asked()), (1, 0));
    clock.advance(Duration::from_millis(10));
    assert_eq!((asked(), asked()), (1, 0));
    let refused = store.reserve(Need::Grow { changes: 1, blocks: 1 << 30 });
    assert!(matches!(refused, Err(StoreError::NoSpace)));
    assert_eq!((asked(), asked()), (1, 0));
    // So does what the volume is given.
    drop(store.reserve(Need::Grow { changes: 1, blocks: 1 }).unwrap());
    assert!(asked() <= 1);
    let before = host.looks.load(Ordering::SeqCst);
    (0..3).for_each(|_| {
        Store::space_use(&store);
    });
    assert_eq!(host.looks.load(Ordering::SeqCst) - before, 3, "the store says it as it is now");
}

/// The calling thread, as the kernel counts.
fn gettid() -> u64 {
    let link = fs::read_link("/proc/thread-self").unwrap();
    link.file_name().unwrap().to_str().unwrap().parse().unwrap()
}

/// What the kernel says of a thread of this process: `S` when it sleeps.
fn state_of(thread: u64) -> char {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().trim_start().chars().next().unwrap()
}

/// Threads that each want a block, as many as there are pieces, and one more: that one sleeps until the host has
/// answered another, also when that other one dies of it.
#[test]
fn a_thread_that_finds_all_pieces_asked_for_sleeps_until_there_is_an_answer() {
    for panics in [false, true] {
        let (image, geometry) = formatted(32 << 20);
        let host = Slow::over(&not_new(image));
        let store = open(host.clone());
        let pieces = geometry.volume_blocks.div_ceil(1024)
            - geometry.first_data_block().0 * BLOCK_BYTES / (4 << 20);
        let rings = host.asked.load(Ordering::SeqCst);
        host.shut(true);
        host.panics.store(panics, Ordering::SeqCst);
        let before = host.looks.load(Ordering::SeqCst);
        let take = || {
            let reserve = || drop(store.reserve(Need::Grow { changes: 1, blocks: 1 }).unwrap());
            catch_unwind(AssertUnwindSafe(reserve)).is_ok()
        };
        let number = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let asking: Vec<_> = (0..pieces).map(|_| scope.spawn(take)).collect();
            while host.asked.load(Ordering::SeqCst) < rings + pieces {
                std::thread::yield_now();
            }
            let waiting = scope.spawn(|| {
                number.store(gettid(), Ordering::SeqCst);
                take()
            });
            // It sleeps for as long as this looks, or it comes back for more.
            let mut asleep = 0;
            while asleep < 200 {
                let looks = host.looks.load(Ordering::SeqCst) - before - pieces;
                if looks > 20 {
                    host.shut(false);
                    panic!("it has looked {looks} times while it waits");
                }
                let thread = number.load(Ordering::SeqCst);
                let is_asleep = looks > 0 && thread > 0 && state_of(thread) == 'S';
                asleep = if is_asleep { asleep + 1 } else { 0 };
                std::thread::yield_now();
            }
            host.shut(false);
            assert!(waiting.join().unwrap(), "it finds what the others were given");
            let died = asking.into_iter().map(|thread| thread.join().unwrap());
            assert_eq!(died.filter(|lives| !lives).count(), usize::from(panics));
        });
    }
}
