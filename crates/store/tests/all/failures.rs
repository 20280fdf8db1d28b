//! Callers and devices that fail in the middle of something.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use holdfast_base::InodeNo;
use holdfast_base::counters::Counters;
use holdfast_device::memory::MemoryDevice;
use holdfast_device::sim::{Action, Call, Faults, When};
use holdfast_device::{Device, DeviceError, Flushed, SimDevice, forward};
use holdfast_format::{Geometry, ItemKind, Key};
use holdfast_store::{Branch, Need, OpenOptions, Store, Transaction};

use crate::small;

fn formatted() -> MemoryDevice {
    small::formatted_as(Geometry::for_device(16 << 20, 4096).unwrap()).snapshot()
}

fn open(device: Arc<dyn Device>) -> Branch {
    let options = OpenOptions { read_only: false, cache_bytes: 0, ..OpenOptions::default() };
    Store::open(device, &options, Arc::new(Counters::default())).map(Store::into_main).unwrap()
}

fn key(number: u64) -> Key {
    Key::new(InodeNo(20 + number), ItemKind::Dentry, 0)
}

fn put(store: &Branch, number: u64) {
    let mut transaction = Transaction::new();
    transaction.put(key(number), vec![1; 500]);
    let mut room = store.reserve(Need::Grow { changes: 1, blocks: 0 }).unwrap();
    store.apply(transaction, &mut room).unwrap();
}

/// P3: a batch that a caller's mistake breaks off is not half there.
#[test]
fn a_batch_with_a_value_that_is_too_long_changes_nothing() {
    let device = Arc::new(formatted());
    let store = open(device.clone());
    let mut transaction = Transaction::new();
    transaction.put(key(1), vec![1]);
    transaction.put(key(2), vec![1; store.value_max() + 1]);
    let mut room = store.reserve(Need::Grow { changes: 2, blocks: 0 }).unwrap();
    let applied = catch_unwind(AssertUnwindSafe(|| store.apply(transaction, &mut room)));
    assert!(applied.is_err());
    put(&store, 3);
    let _ = store.close();
    let store = open(device);
    assert_eq!(store.get(&key(1)).unwrap(), None, "half a transaction became durable");
}

/// P7: a commit without room has become a checkpoint, and the frame that says so to the journal cannot be
/// written. Everything is durable; but a write has failed, so the store does not write on as if the device were fine.
#[test]
fn a_journal_that_cannot_be_told_of_a_checkpoint_stops_the_store() {
    let sim = Arc::new(SimDevice::new(&small::formatted().snapshot()));
    let store = small::open(&sim);
    small::put_one_transaction(&store, 0..400, 3, 9);
    let ring = small::geometry().journal();
    let start = ring.start.byte_offset().unwrap();
    let end = start + ring.bytes().unwrap();
    let inside = When::Inside { start, end, skip: 0, times: 1 };
    sim.set_faults(Faults::none().with(Call::Write, inside, Action::Fail));
    let error = store.commit().unwrap_err().to_string();
    assert_eq!((sim.faults_fired(), store.counters().journal_full.get()), (1, 1));
    assert!(store.stop_reason().is_some(), "nobody is told but the one who asked: {error}");
    assert!(store.reserve(Need::Shrink { changes: 1 }).is_err());
    assert!(store.checkpoint().is_err());
    drop(store);
    let store = small::open(&sim);
    assert!((0..400).all(|number| small::first(&store, number) == Some(3)));
}

/// A node that cannot be read once fails one call and nothing more; none, if it was read with others.
#[test]
fn a_read_that_fails_once_is_not_remembered() {
    let sim = Arc::new(SimDevice::new(&formatted()));
    let store = open(sim.clone());
    for number in 0..600 {
        put(&store, number);
    }
    store.close().unwrap();
    let mut failed = 0;
    for nth in 1.. {
        let store = open(sim.clone());
        sim.set_faults(Faults::fail_once(Call::Read, nth));
        for number in (0..600).step_by(7) {
            match store.get(&key(number)) {
                Ok(value) => assert_eq!(value, Some(vec![1; 500])),
                Err(_) => {
                    failed += 1;
                    assert_eq!(store.get(&key(number)).unwrap(), Some(vec![1; 500]));
                }
            }
        }
        assert_eq!(store.stop_reason(), None);
        let has_failed = sim.faults_fired() > 0;
        sim.set_faults(Faults::none());
        if !has_failed {
            assert!(nth > 10 && failed > 0, "{nth} reads, of which {failed} failed for a caller");
            break;
        }
    }
}

/// P7: each call of a checkpoint fails once. The store stops, and what was durable is still there.
#[test]
fn every_call_of_a_checkpoint_fails_once() {
    for call in [Call::Write, Call::Flush] {
        for nth in 1.. {
            let sim = Arc::new(SimDevice::new(&formatted()));
            let store = open(sim.clone());
            put(&store, 1);
            store.commit().unwrap();
            for number in 2..200 {
                put(&store, number);
            }
            sim.set_faults(Faults::fail_once(call, nth));
            // The background may meet the fault first; then the next one waits for it and says so.
            let done = store.commit().and_then(|()| store.checkpoint());
            if sim.faults_fired() == 0 {
                done.unwrap();
                assert!(nth > 3, "no {call:?} failed");
                break;
            }
            done.unwrap_err();
            assert!(store.stop_reason().is_some());
            assert!(store.reserve(Need::Shrink { changes: 1 }).is_err());
            let durable = store.durable() == store.latest();
            let again = store.commit();
            assert!(durable || again.is_err(), "a failed flush was tried again");
            assert_eq!(store.get(&key(150)).unwrap(), Some(vec![1; 500]), "it can still be read");
            drop(store);
            sim.set_faults(Faults::none());
            assert!(open(sim.clone()).get(&key(1)).unwrap().is_some());
        }
    }
}

/// A device on which the next flush after [`OneBadFlush::arm`] waits for [`OneBadFlush::go_on`] and then fails; every
/// other one succeeds at once, as those of a host that tells of a lost write only once.
#[derive(Debug)]
struct OneBadFlush {
    memory: MemoryDevice,
    gate: Mutex<Gate>,
    changed: Condvar,
    writes: AtomicU64,
}

#[derive(Debug, PartialEq, Eq)]
enum Gate {
    Idle,
    Armed,
    Waiting,
    Open,
}

impl OneBadFlush {
    fn set(&self, gate: Gate) {
        *self.gate.lock().unwrap() = gate;
        self.changed.notify_all();
    }

    fn wait_for(&self, wanted: Gate) {
        let mut gate = self.gate.lock().unwrap();
        while *gate != wanted {
            gate = self.changed.wait(gate).unwrap();
        }
    }
}

impl Device for OneBadFlush {
    forward!(memory: read, discard, room, take_room, len, sector_size, reach, stats);

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        self.memory.write(at, bytes)
    }

    fn flush(&self) -> Result<Flushed, DeviceError> {
        if *self.gate.lock().unwrap() != Gate::Armed {
            return self.memory.flush();
        }
        self.set(Gate::Waiting);
        self.wait_for(Gate::Open);
        let source = std::io::Error::other("a write was lost");
        Err(DeviceError::Io { call: "flush", at: 0, len: 0, source })
    }
}

/// P1, P7: a host tells one of two flushes that a write was lost. The other must not count as a proof.
#[test]
fn a_flush_beside_one_that_fails_proves_nothing() {
    let device = Arc::new(OneBadFlush {
        memory: formatted(),
        gate: Mutex::new(Gate::Idle),
        changed: Condvar::new(),
        writes: AtomicU64::new(0),
    });
    let store = open(device.clone());
    put(&store, 1);
    store.commit().unwrap();
    device.set(Gate::Armed);
    std::thread::scope(|threads| {
        let checkpoint = threads.spawn(|| store.checkpoint());
        device.wait_for(Gate::Waiting);
        put(&store, 2);
        let before = device.writes.load(Ordering::SeqCst);
        let commit = threads.spawn(|| store.commit());
        while device.writes.load(Ordering::SeqCst) == before {
            std::thread::yield_now();
        }
        device.set(Gate::Open);
        checkpoint.join().unwrap().unwrap_err();
        commit.join().unwrap().unwrap_err();
    });
    assert!(store.stop_reason().is_some());
    assert!(store.durable() < store.latest());
}

/// P7: the flush of a batch fails. The leader, the callers that wait for it and all later callers get the error, and
/// nothing is flushed again.
#[test]
fn everybody_hears_of_a_batch_that_failed() {
    let device = Arc::new(OneBadFlush {
        memory: formatted(),
        gate: Mutex::new(Gate::Idle),
        changed: Condvar::new(),
        writes: AtomicU64::new(0),
    });
    let store = open(device.clone());
    put(&store, 1);
    let about = InodeNo(20);
    store.sync(store.latest(), about).unwrap();
    let durable = store.latest();
    put(&store, 2);
    device.set(Gate::Armed);
    std::thread::scope(|threads| {
        let sync = || store.sync(store.latest(), about);
        let leader = threads.spawn(sync);
        device.wait_for(Gate::Waiting);
        let same = threads.spawn(sync);
        put(&store, 3);
        let next = threads.spawn(sync);
        device.set(Gate::Open);
        for waiter in [leader, same, next] {
            waiter.join().unwrap().unwrap_err();
        }
    });
    let writes = device.writes.load(Ordering::SeqCst);
    store.sync(store.latest(), about).unwrap_err();
    store.commit().unwrap_err();
    store.checkpoint().unwrap_err();
    assert_eq!(device.writes.load(Ordering::SeqCst), writes, "nothing is written any more");
    assert_eq!(store.durable(), durable);
    assert!(store.sync(durable, about).unwrap().is_clean(), "what is durable is durable");
    assert!(store.stop_reason().is_some());
}

/// A commit without a node is part of the next checkpoint as well: nothing of it stays in the journal.
#[test]
fn a_checkpoint_takes_commits_without_nodes() {
    let store = open(Arc::new(formatted()));
    let mut room = store.reserve(Need::Shrink { changes: 1 }).unwrap();
    let mut transaction = Transaction::new();
    transaction.delete(key(1));
    store.apply(transaction, &mut room).unwrap();
    store.commit().unwrap();
    store.checkpoint().unwrap();
    assert_eq!(store.superblock().lsn, store.latest());
    assert_eq!(store.counters().journal_bytes_used.get(), 0);
}
