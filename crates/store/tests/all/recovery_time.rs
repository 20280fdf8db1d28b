//! What `-o recover=` promises is kept on devices with expensive random access: a disk with an arm, a network. Time is
//! that of the simulated device; no thread sleeps.

use std::sync::Arc;
use std::time::Duration;

use holdfast_base::InodeNo;
use holdfast_base::clock::{SimulatedClock, Stopwatch};
use holdfast_base::counters::Counters;
use holdfast_base::prng::Prng;
use holdfast_device::sim::TimedDevice;
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::{Geometry, ItemKind, Key};
use holdfast_store::{Branch, Need, OpenOptions, Store, Transaction};

use crate::small;

const BYTES: u64 = 256 << 20;
/// Of a disk with an arm; networks are faster.
const BYTES_PER_SECOND: u64 = 150 << 20;
const FILES: u64 = 20_000;
const OPERATIONS: u64 = 1200;

/// Nothing works in the background: the same calls take the same time.
fn open(device: Arc<dyn Device>, recover: Duration) -> Branch {
    let options = OpenOptions { threads: false, recover, ..OpenOptions::default() };
    Store::open(device, &options, Arc::new(Counters::default())).map(Store::into_main).unwrap()
}

fn put(store: &Branch, file: u64, fill: u8) {
    let mut room = store.reserve(Need::Grow { changes: 1, blocks: 0 }).unwrap();
    let mut transaction = Transaction::new();
    transaction.put(Key::new(InodeNo(20 + file), ItemKind::Dentry, 0), vec![fill; 500]);
    store.apply(transaction, &mut room).unwrap();
}

/// A volume whose tree has hundreds of leaves.
fn filled() -> MemoryDevice {
    let device = small::formatted_as(Geometry::for_device(BYTES, 16384).unwrap());
    let store = open(device.clone(), Duration::from_secs(1));
    (0..FILES).for_each(|file| put(&store, file, 1));
    store.close().unwrap();
    device.snapshot()
}

/// What was seen on a device with such places.
#[derive(Debug)]
struct Seen {
    /// The longest opening after a crash.
    longest: Duration,
    checkpoints: u64,
    kept: Duration,
    place: Duration,
}

fn work_and_crash(base: &MemoryDevice, place: Duration, budget: Duration) -> Seen {
    let clock = SimulatedClock::new();
    let _entered = clock.enter();
    let timed = |device: Arc<MemoryDevice>| -> Arc<dyn Device> {
        Arc::new(TimedDevice::new(device, clock, place, BYTES_PER_SECOND))
    };
    let device = Arc::new(base.snapshot());
    let store = open(timed(device.clone()), budget);
    let mut longest = Duration::ZERO;
    let mut prng = Prng::seeded(5);
    for operation in 0..OPERATIONS {
        put(&store, prng.below(FILES), 2);
        if operation % 3 == 0 {
            let _ = store.sync(store.latest(), InodeNo(20)).unwrap();
        }
        if operation % 31 == 30 {
            store.commit().unwrap();
        }
        if operation % 17 == 16 {
            let left = Arc::new(device.snapshot());
            let time = Stopwatch::start();
            let again = open(timed(left), budget);
            longest = longest.max(time.elapsed());
            drop(again);
        }
    }
    let told = store.counters();
    let seen = Seen {
        longest,
        checkpoints: told.checkpoints.get(),
        kept: Duration::from_nanos(told.recovery_kept_ns.get()),
        place: Duration::from_nanos(told.device_place_ns.get()),
    };
    println!("a place takes {place:?}, budget {budget:?}: {seen:?}");
    seen
}

#[test]
fn a_recovery_keeps_its_budget_on_a_disk_with_an_arm_and_over_a_network() {
    let base = filled();
    let budget = Duration::from_secs(1);
    for place in [Duration::from_millis(10), Duration::from_millis(1), Duration::from_micros(100)] {
        let seen = work_and_crash(&base, place, budget);
        assert!(seen.longest <= budget, "{seen:?}");
        assert_eq!(seen.kept, budget);
        // It is measured, a little is taken for the bytes.
        assert!(seen.place > place / 2 && seen.place < place * 2, "{seen:?}");
        assert!(seen.checkpoints < OPERATIONS / 4, "a checkpoint each few operations: {seen:?}");
    }
}

/// Where it cannot be kept, that is said, and checkpoints do not eat the device.
#[test]
fn a_device_that_is_too_slow_for_its_budget_says_so() {
    let seen = work_and_crash(&filled(), Duration::from_millis(100), Duration::from_secs(1));
    assert!(seen.kept > Duration::from_secs(2), "{seen:?}");
    assert!(seen.longest <= seen.kept, "{seen:?}");
    assert!(seen.checkpoints < OPERATIONS / 4, "{seen:?}");
}
