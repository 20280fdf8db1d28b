//! Completion callbacks instead of waiting for durability: which thread runs them, in which order, and what they get
//! when durability cannot be reached (P1, P7).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, ThreadId};
use std::time::Duration;

use holdfast_base::clock::Stopwatch;
use holdfast_base::counters::Counters;
use holdfast_base::{InodeNo, LogFallback, Lsn, Receipt, wait};
use holdfast_device::memory::MemoryDevice;
use holdfast_device::{Device, DeviceError, Flushed, forward};
use holdfast_format::{Geometry, ItemKind, Key};
use holdfast_store::{Branch, Need, OpenOptions, Store, StoreError, Transaction};
use parking_lot::{Condvar, Mutex};

use crate::small;

const BYTES: u64 = 8 << 20;
const ABOUT: InodeNo = InodeNo(20);
/// Long enough for what is only slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// A device whose flushes wait while it is closed, and fail or panic when they are told to. Writes to the journal
/// wait as long as that is closed.
#[derive(Debug)]
struct Gate {
    device: MemoryDevice,
    journal: std::ops::Range<u64>,
    state: Mutex<State>,
    changed: Condvar,
    fails: AtomicBool,
    panics: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    is_closed: bool,
    is_journal_closed: bool,
    waiting: usize,
}

impl Gate {
    fn close(&self, is_closed: bool) {
        self.state.lock().is_closed = is_closed;
        self.changed.notify_all();
    }

    fn close_journal(&self, is_closed: bool) {
        self.state.lock().is_journal_closed = is_closed;
        self.changed.notify_all();
    }

    fn wait_until_reached(&self) {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.waiting == 0);
    }
}

impl Device for Gate {
    forward!(device: read, discard, room, take_room, len, sector_size, reach, stats);

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        if self.journal.contains(&at) {
            let mut state = self.state.lock();
            self.changed.wait_while_for(&mut state, |state| state.is_journal_closed, PATIENCE);
        }
        self.device.write(at, bytes)
    }

    fn flush(&self) -> Result<Flushed, DeviceError> {
        let mut state = self.state.lock();
        state.waiting += 1;
        self.changed.notify_all();
        // Not for ever: a test that fails opens nothing.
        self.changed.wait_while_for(&mut state, |state| state.is_closed, PATIENCE);
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

fn volume() -> (Arc<Gate>, Branch) {
    volume_of(BYTES, 4096)
}

fn volume_of(bytes: u64, node_size: usize) -> (Arc<Gate>, Branch) {
    let geometry = Geometry::for_device(bytes, node_size).unwrap();
    let device = small::formatted_as(geometry);
    let ring = geometry.journal();
    let start = ring.start.byte_offset().unwrap();
    let gate = Arc::new(Gate {
        device: device.snapshot(),
        journal: start..start + ring.bytes().unwrap(),
        state: Mutex::default(),
        changed: Condvar::new(),
        fails: AtomicBool::new(false),
        panics: AtomicBool::new(false),
    });
    let options = OpenOptions::default();
    let store = Store::open(gate.clone(), &options, Arc::new(Counters::default()))
        .map(Store::into_main)
        .unwrap();
    (gate, store)
}

/// An operation. Returns its place in history.
fn change(store: &Branch, number: u64) -> Lsn {
    let mut transaction = Transaction::new();
    transaction.put(Key::new(InodeNo(20), ItemKind::Xattr, number * 4096), vec![1; 100]);
    store
        .apply(transaction, &mut store.reserve(Need::Grow { changes: 1, blocks: 0 }).unwrap())
        .unwrap()
}

/// What a callback got, and on which thread.
type Heard = (Result<Receipt, StoreError>, ThreadId);

fn told(store: &Branch, upto: Lsn) -> Receiver<Heard> {
    let (tell, hear) = channel();
    store.sync_then(upto, ABOUT, move |done| {
        tell.send((done, thread::current().id())).unwrap();
    });
    hear
}

/// Does `body` while a leader with a callback makes a batch, then lets the leader go on. Also returns how its thread
/// ended.
fn behind_a_leader<T>(
    gate: &Gate,
    store: &Branch,
    body: impl FnOnce() -> T,
) -> (thread::Result<Receiver<Heard>>, T) {
    gate.close(true);
    let first = change(store, 0);
    thread::scope(|scope| {
        let leader = scope.spawn(|| told(store, first));
        gate.wait_until_reached();
        let done = body();
        gate.close(false);
        (leader.join(), done)
    })
}

/// So many operations, each with a callback.
fn changes_told(store: &Branch, count: u64) -> Vec<Receiver<Heard>> {
    (1..=count).map(|number| told(store, change(store, number))).collect()
}

/// Each hears that the volume has stopped.
fn assert_stopped(hears: Vec<Receiver<Heard>>) {
    for hear in hears {
        let error = hear.recv_timeout(PATIENCE).unwrap().0.unwrap_err();
        assert!(matches!(error, StoreError::Stopped(_)), "{error}");
    }
}

#[test]
fn a_lone_caller_is_answered_at_once_on_its_own_thread() {
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

/// While one batch is on its way, any number of threads register callbacks and go on; the next batch holds them all.
#[test]
fn no_caller_waits_for_a_leader_that_goes_on() {
    let (gate, store) = volume();
    let (leader, hears) = behind_a_leader(&gate, &store, || {
        // None of these waits.
        let hears = changes_told(&store, 8);
        assert!(hears.iter().all(|hear| hear.try_recv().is_err()), "nothing is durable");
        hears
    });
    let (done, leader) = leader.unwrap().recv().unwrap();
    assert!(done.unwrap().led);
    let answered: Vec<_> =
        hears.into_iter().map(|hear| hear.recv_timeout(PATIENCE).unwrap()).collect();
    assert!(answered.iter().all(|(_, by)| *by == leader), "the leader went on leading");
    let receipts: Vec<_> = answered.into_iter().map(|(done, _)| done.unwrap()).collect();
    assert_eq!(receipts.iter().filter(|receipt| receipt.led).count(), 1);
    assert!(receipts.iter().all(|receipt| receipt.batch == receipts[0].batch));
    assert!(receipts.iter().all(|receipt| receipt.wait_ns > 0));
    let counters = store.counters();
    assert_eq!((counters.log_flushes.get(), counters.log_followers.get()), (2, 7));
    // Another caller may lead.
    let lsn = change(&store, 9);
    assert!(store.sync(lsn, ABOUT).unwrap().led);
}

/// While one caller waits, another one that is answered asks again. Says whether one batch was for both.
fn shares_a_batch() -> bool {
    let (gate, store) = volume();
    gate.close(true);
    let first = change(&store, 0);
    let (tell, hear) = channel();
    let then = move |done: Result<_, StoreError>| tell.send(done.map(drop)).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| store.sync_then(first, ABOUT, then));
        gate.wait_until_reached();
        let waits = told(&store, change(&store, 1));
        // Half as long the leader waits.
        thread::sleep(Duration::from_millis(30));
        gate.close(false);
        hear.recv_timeout(PATIENCE).unwrap().unwrap();
        // Without that the next batch would be under way.
        thread::sleep(Duration::from_millis(2));
        let again = told(&store, change(&store, 2));
        for hear in [waits, again] {
            hear.recv_timeout(PATIENCE).unwrap().0.unwrap();
        }
    });
    store.counters().log_flushes.get() == 2
}

#[test]
fn a_leader_waits_for_a_caller_that_was_just_answered() {
    // On a busy machine it may come too late now and then.
    let shared = (0..10).filter(|_| shares_a_batch()).count();
    assert!(shared > 5, "{shared} of 10");
}

/// Blocked callers and callbacks share one queue, whichever of them leads.
#[test]
fn waiters_and_completion_callbacks_share_batches() {
    for leads_on in [false, true] {
        let (gate, store) = volume();
        gate.close(true);
        let first = change(&store, 0);
        // A thread says that it waits while it holds the lock of the queue.
        let queued = Arc::new(AtomicUsize::new(0));
        let counts = || {
            let queued = Arc::clone(&queued);
            wait::before_waiting(move |_| {
                queued.fetch_add(1, Ordering::SeqCst);
            });
        };
        thread::scope(|scope| {
            let leader = scope.spawn(|| match leads_on {
                true => told(&store, first).recv().unwrap().0.unwrap(),
                false => store.sync(first, ABOUT).unwrap(),
            });
            gate.wait_until_reached();
            let waits = scope.spawn(|| {
                let lsn = change(&store, 1);
                counts();
                store.sync(lsn, ABOUT).unwrap()
            });
            let told = scope.spawn(|| {
                let lsn = change(&store, 2);
                counts();
                let hear = told(&store, lsn);
                if leads_on {
                    queued.fetch_add(1, Ordering::SeqCst);
                }
                hear.recv_timeout(PATIENCE).unwrap().0.unwrap()
            });
            until(|| queued.load(Ordering::SeqCst) == 2);
            gate.close(false);
            let receipts = [leader, waits, told].map(|thread| thread.join().unwrap());
            assert!(receipts[0].led && receipts[0].batch != receipts[1].batch);
            assert_eq!(receipts[1].batch, receipts[2].batch);
            assert!(receipts[1].led != receipts[2].led);
        });
        assert_eq!((store.durable(), store.counters().log_flushes.get()), (store.latest(), 2));
    }
}

fn until(is_so: impl Fn() -> bool) {
    let waiting = Stopwatch::start();
    while !is_so() {
        assert!(waiting.elapsed() < PATIENCE);
        thread::yield_now();
    }
}

/// A commit makes durable what no batch can hold: all callers that waited for it get the fallback and its reason.
#[test]
fn all_hear_of_an_escape() {
    let (gate, store) = volume_of(256 << 20, 16384);
    gate.close(true);
    gate.close_journal(true);
    let first = change(&store, 0);
    let hears = thread::scope(|scope| {
        let leader = scope.spawn(|| told(&store, first).recv().unwrap());
        gate.wait_until_reached();
        let count = 1200;
        let mut transaction = Transaction::new();
        for number in 1..=count {
            transaction.put(Key::new(InodeNo(20), ItemKind::Xattr, number * 4096), vec![1; 4000]);
        }
        let need = Need::Grow { changes: count as u32, blocks: 0 };
        let lsn = store.apply(transaction, &mut store.reserve(need).unwrap()).unwrap();
        let hears = [told(&store, lsn), told(&store, lsn)];
        gate.close(false);
        until(|| store.counters().log_too_large.get() == 1);
        gate.close_journal(false);
        leader.join().unwrap().0.unwrap();
        hears
    });
    let receipts = hears.map(|hear| hear.recv_timeout(PATIENCE).unwrap().0.unwrap());
    assert!(receipts.iter().all(|receipt| receipt.fallback == Some(LogFallback::TooLarge)));
    assert!(receipts.iter().all(|receipt| receipt.batch.is_none()));
    assert_eq!((store.durable(), store.counters().log_too_large.get()), (store.latest(), 1));
}

#[test]
fn all_hear_of_a_flush_that_fails() {
    let (gate, store) = volume();
    let (leader, hears) = behind_a_leader(&gate, &store, || {
        gate.fails.store(true, Ordering::Relaxed);
        changes_told(&store, 3)
    });
    leader.unwrap().recv().unwrap().0.unwrap_err();
    assert_stopped(hears);
    told(&store, store.latest()).try_recv().unwrap().0.unwrap_err();
}

#[test]
fn all_callers_get_the_panic_of_a_leader() {
    let (gate, store) = volume();
    let (leader, hears) = behind_a_leader(&gate, &store, || {
        gate.panics.store(true, Ordering::Relaxed);
        changes_told(&store, 3)
    });
    leader.unwrap_err();
    assert_stopped(hears);
    store.sync(store.latest(), ABOUT).unwrap_err();
}

/// A callback that panics takes no other with it: the others of its batch hear that they are durable, and the lead is
/// free.
#[test]
fn a_panic_of_a_completion_callback_stays_in_it() {
    let (gate, store) = volume();
    let (leader, hears) = behind_a_leader(&gate, &store, || {
        let second = change(&store, 1);
        let before = told(&store, second);
        store.sync_then(second, ABOUT, |_| panic!("as wanted by the test"));
        [before, told(&store, second)]
    });
    leader.unwrap_err();
    let receipts = hears.map(|hear| hear.recv_timeout(PATIENCE).unwrap().0.unwrap());
    assert_eq!(receipts.map(|receipt| receipt.led), [true, false]);
    let lsn = change(&store, 2);
    assert!(store.sync(lsn, ABOUT).unwrap().led);
}
