//! What is counted is what was done.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::{
    Condvar, LockClass, LockCounts, LockEvent, Mutex, MutexGuard, RwLock, RwLockReadGuard,
    RwLockWriteGuard, Way, cost, mark, sleeps, take, trace, traced,
};

/// Longer than a thread tries before it sleeps.
const LONG: Duration = Duration::from_millis(30);

/// What this thread has counted of locks that guard a `T`.
fn of<T>(seen: &[(LockClass, LockCounts)]) -> LockCounts {
    let name = std::any::type_name::<T>();
    let own = seen.iter().filter(|(class, _)| class.guards == name);
    own.fold(LockCounts::default(), |mut sum, (_, counts)| {
        sum.add(counts);
        sum
    })
}

#[test]
fn an_acquisition_counts_one_for_its_place() {
    drop(take());
    let (one, other) = (Mutex::new(1_u8), Mutex::new(2_u8));
    for lock in [&one, &one, &other] {
        *lock.lock() += 1;
    }
    let seen = take();
    assert_eq!(seen.len(), 1, "one line makes both: {seen:?}");
    let (class, counts) = seen[0];
    assert!(class.file.ends_with("counted/tests.rs") && class.guards == "u8", "{class:?}");
    assert_eq!((counts.taken, counts.contended, counts.slept, counts.shared), (3, 0, 0, 0));
    assert!(counts.held > 0 && counts.waited == 0, "{counts:?}");
    assert!(take().is_empty(), "it was taken");
    assert_eq!((one.into_inner(), other.into_inner()), (3, 3));
}

#[test]
fn a_lock_by_default_is_called_by_its_caller() {
    drop(take());
    let lock = Mutex::<u16>::default();
    let line = line!() - 1;
    drop(lock.lock());
    assert_eq!((take()[0].0.line, RwLock::<u16>::default().into_inner()), (line, 0));
}

/// Tries that a thread gets to sleep in a wait: one from which the processor was taken meanwhile finds that it need not.
const TRIES: usize = 100;

#[test]
fn a_contended_acquisition_counts_its_wait_and_that_it_slept() {
    let slept = (0..TRIES).any(|_| is_slept_in_a_contended_acquisition());
    assert!(slept && sleeps() > 0);
}

fn is_slept_in_a_contended_acquisition() -> bool {
    let lock = Mutex::new(1_i8);
    let (is_held, held) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let guard = lock.lock();
            is_held.send(()).unwrap();
            thread::sleep(LONG);
            drop(guard);
            let counts = of::<i8>(&take());
            assert_eq!((counts.taken, counts.contended), (1, 0));
            assert!(counts.held >= LONG.as_nanos() as u64, "{counts:?}");
        });
        held.recv().unwrap();
        drop(take());
        drop(lock.lock());
        let counts = of::<i8>(&take());
        assert_eq!(counts.taken, 1);
        assert!(counts.slept <= counts.contended && counts.contended <= 1, "{counts:?}");
        assert_eq!(counts.waited > 0, counts.contended > 0, "{counts:?}");
        counts.slept > 0
    })
}

#[test]
fn an_attempt_never_waits() {
    drop(take());
    let lock = Mutex::new(1_i16);
    let first = lock.try_lock().expect("it is free");
    assert!(lock.is_locked() && lock.try_lock().is_none());
    drop(first);
    let both = RwLock::new(1_i16);
    let (read, again) = (both.try_read().expect("it is free"), both.try_read().expect("as well"));
    assert!(both.try_write().is_none());
    drop((read, again));
    assert!(both.try_write().is_some());
    assert!(both.try_read().is_some());
    let counts = of::<i16>(&take());
    assert_eq!((counts.taken, counts.refused, counts.shared, counts.waited), (5, 2, 3, 0));
}

#[test]
fn a_wait_for_a_condition_ends_the_hold() {
    assert!((0..TRIES).any(|_| is_slept_in_a_wait_for_a_condition()));
}

fn is_slept_in_a_wait_for_a_condition() -> bool {
    let (lock, changed) = (Mutex::new(false), Condvar::new());
    let (is_held, held) = mpsc::channel();
    thread::scope(|scope| {
        let (lock, changed) = (&lock, &changed);
        scope.spawn(move || {
            held.recv().unwrap();
            // It is free only while the other thread waits.
            let mut guard = lock.lock();
            thread::sleep(LONG);
            *guard = true;
            changed.notify_all();
        });
        drop(take());
        let mut guard = lock.lock();
        is_held.send(()).unwrap();
        changed.wait_while(&mut guard, |done| !*done);
        drop(guard);
        let counts = of::<bool>(&take());
        assert!(counts.conditions >= 1 && counts.taken == 1 + counts.conditions, "{counts:?}");
        assert_eq!((counts.contended, counts.waited), (0, 0));
        let long = LONG.as_nanos() as u64;
        assert!(counts.paused >= long, "{counts:?}");
        counts.slept > 0 && counts.held < counts.paused
    })
}

#[test]
fn times_of_conditions_run_out() {
    let (lock, changed) = (Mutex::new(1_u32), Condvar::default());
    let mut guard = lock.lock();
    assert!(changed.wait_for(&mut guard, Duration::from_millis(1)).timed_out());
    let short = Duration::from_millis(1);
    assert!(changed.wait_while_for(&mut guard, |value| *value == 1, short).timed_out());
    assert!(!changed.wait_while_for(&mut guard, |value| *value == 2, short).timed_out());
    assert!(!changed.notify_one() && *guard == 1);
    assert!(MutexGuard::unlocked(&mut guard, || lock.try_lock().is_some()));
    MutexGuard::unlock_fair(guard);
    assert!(!lock.is_locked());
}

#[test]
fn readers_and_writers_count_each_for_its_own() {
    drop(take());
    let lock = RwLock::new(Some(1_i32));
    {
        let read = lock.read();
        let part = RwLockReadGuard::try_map(lock.read_recursive(), Option::as_ref);
        assert_eq!((*read, *part.expect("there is one")), (Some(1), 1));
    }
    *lock.write() = None;
    assert!(RwLockReadGuard::try_map(lock.read(), Option::as_ref).is_err());
    RwLockWriteGuard::unlock_fair(lock.write());
    let counts = of::<Option<i32>>(&take());
    assert_eq!((counts.taken, counts.shared, counts.within), (5, 3, 1));
}

#[test]
fn a_trace_has_what_was_done_in_its_order() {
    let (outer, inner) = (Mutex::new(1_u64), RwLock::new(1_u64));
    drop(outer.lock());
    trace(4);
    mark();
    let guard = outer.lock();
    drop(inner.read());
    drop(guard);
    drop(outer.try_lock());
    let events = traced();
    drop(outer.lock());
    assert!(traced().is_empty(), "it has ended");
    let (mut at, mut locks, mut said) = (0, Vec::new(), String::new());
    for event in events {
        let (letter, lock, begin, end) = match event {
            LockEvent::Mark { at } => ('m', None, at, at),
            LockEvent::Took { lock, shared, way, asked, got } => {
                let letter = match (way, shared) {
                    (Way::Trying, _) => 't',
                    (_, true) => 'r',
                    _ => 'w',
                };
                (letter, Some(lock), asked, got)
            }
            LockEvent::Gave { lock, at } => ('g', Some(lock), at, at),
        };
        assert!(begin >= at && end >= begin, "{event:?}");
        at = end;
        said.push(letter);
        locks.extend(lock);
    }
    assert_eq!(said, "mwrggtg");
    let [a, b, c, d, e, f] = locks[..] else { panic!("{locks:?}") };
    assert!(a == d && a == e && a == f && b == c && a != b, "{locks:?}");
    assert_eq!((a.class().guards, b.class().guards), ("u64", "u64"));
    assert_ne!(a, Mutex::new(0_u64).lock_for_test());
}

impl<T> Mutex<T> {
    /// The lock that an acquisition is told of.
    fn lock_for_test(&self) -> super::Lock {
        trace(2);
        drop(self.lock());
        match traced()[0] {
            LockEvent::Took { lock, .. } => lock,
            event => panic!("{event:?}"),
        }
    }
}

#[test]
fn what_counting_costs_is_measured() {
    for is_traced in [false, true] {
        let cost = cost(is_traced);
        assert!(cost.all > 0.0 && cost.held >= 0.0 && cost.held < cost.all, "{cost:?}");
    }
}
