//! Those who are told that they are durable instead of waiting for it: by whom, in which order, and also when
//! that cannot be (P1, P7).

#![allow(missing_docs, clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, ThreadId};
use std::time::Duration;

use holdfast_base::counters::Counters;
use holdfast_base::{InodeNo, Lsn, Receipt};
use holdfast_device::memory::MemoryDevice;
use holdfast_device::{Device, DeviceError, Flushed, forward};
use holdfast_format::{Geometry, Key, Kind};
use holdfast_store::{Batch, CreateOptions, Need, OpenOptions, Store, StoreError};
use parking_lot::{Condvar, Mutex};

const BYTES: u64 = 8 << 20;
const ABOUT: InodeNo = InodeNo(20);
/// Long enough for what is only slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// A device whose flushes wait while it is closed, and fail or panic when they are told to.
#[derive(Debug)]
struct Gate {
    device: MemoryDevice,
    state: Mutex<State>,
    changed: Condvar,
    fails: AtomicBool,
    panics: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    is_closed: bool,
    waiting: usize,
}

impl Gate {
    fn close(&self, is_closed: bool) {
        self.state.lock().is_closed = is_closed;
        self.changed.notify_all();
    }

    fn wait_until_reached(&self) {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.waiting == 0);
    }
}

impl Device for Gate {
    forward!(device: read, write, discard, len, sector_size, stats);

    fn flush(&self) -> Result<Flushed, DeviceError> {
        let mut state = self.state.lock();
        state.waiting += 1;
        self.changed.notify_all();
        self.changed.wait_while(&mut state, |state| state.is_closed);
        state.waiting -= 1;
        drop(state);
        assert!(!self.panics.load(Ordering::Relaxed), "as wanted by the test");
        if self.fails.load(Ordering::Relaxed) {
            let source = std::io::Error::other("as wanted by the test");
            return Err(DeviceError::Io { call: "flush", at: 0, len: 0, source });
        }
        self.device.flush()
    }
}

fn volume() -> (Arc<Gate>, Arc<Store>) {
    let device = Arc::new(MemoryDevice::new(BYTES));
    let options = CreateOptions {
        geometry: Geometry::for_device(BYTES, 4096).unwrap(),
        uuid: uuid::Uuid::from_u128(3),
        label: String::new(),
        hash_seed: 1,
    };
    Store::create(&(device.clone() as Arc<dyn Device>), &options).unwrap();
    let gate = Arc::new(Gate {
        device: device.snapshot(),
        state: Mutex::default(),
        changed: Condvar::new(),
        fails: AtomicBool::new(false),
        panics: AtomicBool::new(false),
    });
    let options = OpenOptions::default();
    let store = Store::open(gate.clone(), &options, Arc::new(Counters::default())).unwrap();
    (gate, Arc::new(store))
}

/// An operation. Returns its place in history.
fn change(store: &Store, number: u64) -> Lsn {
    let mut batch = Batch::new();
    batch.put(Key::new(InodeNo(20), Kind::Xattr, number * 4096), vec![1; 100]);
    store.apply(batch, &mut store.reserve(Need::Grow { changes: 1, blocks: 0 }).unwrap()).unwrap()
}

/// What somebody was told, and on which thread.
type Heard = (Result<Receipt, StoreError>, ThreadId);

fn told(store: &Store, upto: Lsn) -> Receiver<Heard> {
    let (tell, hear) = channel();
    store.persist_then(upto, ABOUT, move |done| {
        tell.send((done, thread::current().id())).unwrap();
    });
    hear
}

#[test]
fn who_is_alone_is_told_at_once_and_by_himself() {
    let (_gate, store) = volume();
    let lsn = change(&store, 1);
    let (done, by) = told(&store, lsn).try_recv().unwrap();
    assert!(done.unwrap().led);
    assert_eq!((by, store.durable()), (thread::current().id(), lsn));
    // Nothing is left to be done.
    let (done, by) = told(&store, lsn).try_recv().unwrap();
    assert_eq!((done.unwrap(), by), (Receipt::default(), thread::current().id()));
    assert_eq!(store.counters().log_flushes.get(), 1);
}

/// While one batch is on its way, any number of threads leave word and go on; the next batch holds them all.
#[test]
fn nobody_waits_for_a_leader_who_leads_on() {
    let (gate, store) = volume();
    gate.close(true);
    let first = change(&store, 0);
    let (leader, hears) = thread::scope(|scope| {
        let leader = scope.spawn(|| {
            let heard = told(&store, first).recv().unwrap();
            assert!(heard.0.as_ref().unwrap().led);
            heard.1
        });
        gate.wait_until_reached();
        // None of these returns late, or the gate would never be opened.
        let hears: Vec<_> = (1..=8).map(|number| told(&store, change(&store, number))).collect();
        assert!(hears.iter().all(|hear| hear.try_recv().is_err()), "nothing is durable");
        gate.close(false);
        (leader.join().unwrap(), hears)
    });
    let heard: Vec<_> =
        hears.into_iter().map(|hear| hear.recv_timeout(PATIENCE).unwrap()).collect();
    assert!(heard.iter().all(|(_, by)| *by == leader), "he who led has led on");
    let receipts: Vec<_> = heard.into_iter().map(|(done, _)| done.unwrap()).collect();
    assert_eq!(receipts.iter().filter(|receipt| receipt.led).count(), 1);
    assert!(receipts.iter().all(|receipt| receipt.batch == receipts[0].batch));
    assert!(receipts.iter().all(|receipt| receipt.wait_ns > 0));
    let counters = store.counters();
    assert_eq!((counters.log_flushes.get(), counters.log_followers.get()), (2, 7));
    // Somebody else may lead.
    let lsn = change(&store, 9);
    assert!(store.persist(lsn, ABOUT).unwrap().led);
}

/// Who waits on his thread and who left word are in one line, whoever of them leads.
#[test]
fn those_who_wait_and_those_who_are_told_share_batches() {
    for leads_on in [false, true] {
        let (gate, store) = volume();
        gate.close(true);
        let first = change(&store, 0);
        let started = AtomicBool::new(false);
        thread::scope(|scope| {
            let leader = scope.spawn(|| match leads_on {
                true => told(&store, first).recv().unwrap().0.unwrap(),
                false => store.persist(first, ABOUT).unwrap(),
            });
            gate.wait_until_reached();
            let waits = scope.spawn(|| store.persist(change(&store, 1), ABOUT).unwrap());
            let told = scope.spawn(|| {
                let lsn = change(&store, 2);
                started.store(true, Ordering::Release);
                told(&store, lsn).recv_timeout(PATIENCE).unwrap().0.unwrap()
            });
            while !started.load(Ordering::Acquire) {
                thread::yield_now();
            }
            gate.close(false);
            let receipts = [leader, waits, told].map(|thread| thread.join().unwrap());
            assert!(receipts[0].led && receipts[0].batch != receipts[1].batch);
        });
        assert_eq!(store.durable(), store.latest());
    }
}

#[test]
fn all_hear_of_a_flush_that_fails() {
    let (gate, store) = volume();
    gate.close(true);
    let first = change(&store, 0);
    let hears = thread::scope(|scope| {
        let leader = scope.spawn(|| told(&store, first).recv().unwrap());
        gate.wait_until_reached();
        let hears: Vec<_> = (1..=3).map(|number| told(&store, change(&store, number))).collect();
        gate.fails.store(true, Ordering::Relaxed);
        gate.close(false);
        leader.join().unwrap().0.unwrap_err();
        hears
    });
    for hear in hears {
        let error = hear.recv_timeout(PATIENCE).unwrap().0.unwrap_err();
        assert!(matches!(error, StoreError::Stopped(_)), "{error}");
    }
    told(&store, store.latest()).try_recv().unwrap().0.unwrap_err();
}

#[test]
fn all_hear_of_a_leader_who_panics() {
    let (gate, store) = volume();
    gate.close(true);
    let first = change(&store, 0);
    let hears = thread::scope(|scope| {
        let leader = scope.spawn(|| told(&store, first));
        gate.wait_until_reached();
        let hears: Vec<_> = (1..=3).map(|number| told(&store, change(&store, number))).collect();
        gate.panics.store(true, Ordering::Relaxed);
        gate.close(false);
        leader.join().unwrap_err();
        hears
    });
    for hear in hears {
        let error = hear.recv_timeout(PATIENCE).unwrap().0.unwrap_err();
        assert!(matches!(error, StoreError::Stopped(_)), "{error}");
    }
    store.persist(store.latest(), ABOUT).unwrap_err();
}

/// Who cannot hear takes nobody with him but those who would have been told behind him; the lead is free again.
#[test]
fn a_panic_of_who_is_told_leaves_the_lead() {
    let (gate, store) = volume();
    gate.close(true);
    let first = change(&store, 0);
    let hear = thread::scope(|scope| {
        let leader = scope.spawn(|| {
            store.persist_then(first, ABOUT, |_| panic!("as wanted by the test"));
        });
        gate.wait_until_reached();
        let hear = told(&store, change(&store, 1));
        gate.close(false);
        leader.join().unwrap_err();
        hear
    });
    hear.recv_timeout(PATIENCE).unwrap().0.unwrap_err();
    assert!(store.persist(store.latest(), ABOUT).unwrap().led);
}
