//! From what threads took and gave to the steps that a simulation replays, and to the part of an operation that is serial.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_locks::counted::{CountingCost, Lock, LockClass, LockEvent, Way};

use super::simulation::{Step, Steps};
use crate::counts::median;

/// An operation that takes so many times as long as the one in the middle was interrupted: the simulation leaves it out.
const INTERRUPTED: f64 = 10.0;

/// What was found in the traces of two threads.
#[derive(Debug)]
pub(super) struct Traced {
    pub(super) operations: Vec<Steps>,
    /// The locks that both threads took, by the number that steps have for them.
    pub(super) shared: Vec<Lock>,
    /// Nanoseconds of an operation, on average.
    pub(super) time: f64,
    /// The shared lock that operations hold longest for themselves, and for how many nanoseconds each.
    pub(super) serial: Option<(Lock, f64)>,
    /// Operations that were interrupted.
    pub(super) left_out: usize,
}

impl Traced {
    /// Classes of which both threads took the same lock.
    pub(super) fn shared_classes(&self) -> BTreeSet<LockClass> {
        self.shared.iter().map(|lock| lock.class()).collect()
    }
}

/// The locks that a thread took.
fn locks(trace: &[LockEvent]) -> BTreeSet<Lock> {
    let lock = |event: &LockEvent| match event {
        LockEvent::Took { lock, .. } => Some(*lock),
        LockEvent::Mark { .. } | LockEvent::Gave { .. } => None,
    };
    trace.iter().filter_map(lock).collect()
}

/// Reads the traces of two threads, in each of which a mark stands before each operation and behind the last one. `cost` is
/// that of an acquisition.
pub(super) fn read(traces: &[Vec<LockEvent>], cost: &CountingCost) -> Traced {
    let sets: Vec<_> = traces.iter().map(|trace| locks(trace)).collect();
    let shared: Vec<Lock> = match &sets[..] {
        [one, other] => one.intersection(other).copied().collect(),
        _ => Vec::new(),
    };
    let numbers: BTreeMap<Lock, usize> =
        shared.iter().enumerate().map(|(number, lock)| (*lock, number)).collect();
    let is_mark = |event: &LockEvent| matches!(event, LockEvent::Mark { .. });
    let mut operations = Vec::new();
    for trace in traces {
        let marks: Vec<usize> =
            (0..trace.len()).filter(|&number| is_mark(&trace[number])).collect();
        let parts = marks.windows(2).map(|pair| &trace[pair[0]..=pair[1]]);
        operations.extend(parts.map(|events| steps(events, &numbers, cost)));
    }
    let all = operations.len();
    let limit = INTERRUPTED * median(operations.iter().map(time).collect());
    operations.retain(|steps| time(steps) <= limit);
    let count = operations.len().max(1) as f64;
    let mut held = vec![0.0; shared.len()];
    operations.iter().for_each(|steps| add_held(steps, &mut held));
    let longest = (0..held.len()).max_by(|&one, &other| held[one].total_cmp(&held[other]));
    Traced {
        time: operations.iter().map(time).sum::<f64>() / count,
        serial: longest.map(|number| (shared[number], held[number] / count)),
        left_out: all - operations.len(),
        operations,
        shared,
    }
}

/// The steps of one operation, from its mark to the next one. What counting takes is subtracted; locks that are not
/// shared, and the second hold of one that the thread has, are no steps.
fn steps(events: &[LockEvent], numbers: &BTreeMap<Lock, usize>, cost: &CountingCost) -> Steps {
    let mut steps = Steps::new();
    // Since when no event was, and how much of the time to the next one is the cost of counting.
    let (mut since, mut counting) = (None, 0.0);
    let mut work = 0.0;
    let mut depths = BTreeMap::<usize, u32>::new();
    let flush = |work: &mut f64, steps: &mut Steps| {
        let nanos = work.round().max(0.0) as u64;
        if nanos > 0 {
            steps.push(Step::Work(nanos));
        }
        *work = 0.0;
    };
    for event in events {
        let (begin, end) = match *event {
            LockEvent::Mark { at } | LockEvent::Gave { at, .. } => (at, at),
            LockEvent::Took { asked, got, .. } => (asked, got),
        };
        if let Some(since) = since.replace(end) {
            work += begin.saturating_sub(since) as f64 - counting;
        }
        counting = cost.all - cost.held;
        match *event {
            LockEvent::Mark { .. } => {}
            LockEvent::Took { lock, shared, way, .. } => {
                counting = cost.held;
                if way == Way::Again {
                    // A wait for what no thread here does.
                    work += (end - begin) as f64;
                }
                let Some(&lock) = numbers.get(&lock) else { continue };
                let depth = depths.entry(lock).or_default();
                *depth += 1;
                if *depth == 1 {
                    flush(&mut work, &mut steps);
                    steps.push(Step::Take { lock, shared, tries: way == Way::Trying });
                }
            }
            LockEvent::Gave { lock, .. } => {
                let Some(&lock) = numbers.get(&lock) else { continue };
                let Some(depth) = depths.get_mut(&lock).filter(|depth| **depth > 0) else {
                    continue;
                };
                *depth -= 1;
                if *depth == 0 {
                    flush(&mut work, &mut steps);
                    steps.push(Step::Give { lock });
                }
            }
        }
    }
    flush(&mut work, &mut steps);
    let kept = depths.into_iter().filter(|(_, depth)| *depth > 0);
    steps.extend(kept.map(|(lock, _)| Step::Give { lock }));
    steps
}

/// Nanoseconds of work.
fn time(steps: &Steps) -> f64 {
    let work = |step: &Step| match step {
        Step::Work(nanos) => *nanos as f64,
        Step::Take { .. } | Step::Give { .. } => 0.0,
    };
    steps.iter().map(work).sum()
}

/// Adds for each lock how many nanoseconds it is held by one thread for itself.
fn add_held(steps: &Steps, held: &mut [f64]) {
    let mut own = BTreeSet::new();
    for step in steps {
        match *step {
            Step::Work(nanos) => own.iter().for_each(|lock: &usize| held[*lock] += nanos as f64),
            Step::Take { lock, shared: false, .. } => {
                own.insert(lock);
            }
            Step::Take { .. } => {}
            Step::Give { lock } => {
                own.remove(&lock);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_locks::counted::{Mutex, RwLock, mark, trace, traced};

    const FREE: CountingCost = CountingCost { all: 0.0, held: 0.0 };

    /// What a thread does with a lock of its own and one of all, twice.
    fn worked(all: &Mutex<u8>, read: &RwLock<u16>) -> Vec<LockEvent> {
        let own = Mutex::new(0_u8);
        trace(64);
        for _ in 0..2 {
            mark();
            let outer = read.read();
            let again = read.read_recursive();
            drop((own.lock(), again));
            drop(all.try_lock());
            drop((all.lock(), outer));
        }
        mark();
        traced()
    }

    #[test]
    fn shared_locks_become_steps_and_others_work() {
        let (all, read) = (Mutex::new(0_u8), RwLock::new(0_u16));
        let traces = [worked(&all, &read), worked(&all, &read)];
        let found = super::read(&traces, &FREE);
        assert_eq!((found.operations.len() + found.left_out, found.shared.len()), (4, 2));
        assert_eq!(found.shared_classes().len(), 2);
        let words = |steps: &Steps| {
            let word = |step: &Step| match *step {
                Step::Work(_) => None,
                Step::Take { shared: true, tries: false, .. } => Some("read"),
                Step::Take { tries: true, .. } => Some("try"),
                Step::Take { .. } => Some("lock"),
                Step::Give { .. } => Some("give"),
            };
            steps.iter().filter_map(word).collect::<Vec<_>>().join(" ")
        };
        for steps in &found.operations {
            assert_eq!(words(steps), "read try give lock give give");
        }
        assert!(found.time > 0.0);
        let alone = super::read(&traces[..1], &FREE);
        assert!(alone.shared.is_empty() && alone.serial.is_none());
    }

    /// A lock that only tells them apart.
    fn lock() -> Lock {
        let traced = worked(&Mutex::new(0), &RwLock::new(0));
        locks(&traced).into_iter().next().expect("it took some")
    }

    /// An operation of 100 ns, of which the lock is held from 20 to 50.
    fn operation(lock: Lock, begin: u64, shared: bool) -> [LockEvent; 3] {
        let (asked, got) = (begin + 10, begin + 20);
        [
            LockEvent::Mark { at: begin },
            LockEvent::Took { lock, shared, way: Way::Waiting, asked, got },
            LockEvent::Gave { lock, at: begin + 50 },
        ]
    }

    #[test]
    fn the_serial_part_is_what_one_thread_holds_for_itself() {
        let lock = lock();
        for (shared, serial) in [(false, 30.0), (true, 0.0)] {
            let mut one = Vec::new();
            for number in 0..20 {
                one.extend(operation(lock, number * 100, shared));
            }
            // One that was interrupted.
            one.extend([LockEvent::Mark { at: 2_000 }, LockEvent::Mark { at: 9_000 }]);
            let found = super::read(&[one.clone(), one.clone()], &FREE);
            // To wait is no work: the ten nanoseconds before the lock was had.
            assert_eq!((found.time, found.serial, found.left_out), (90.0, Some((lock, serial)), 2));
            let take = Step::Take { lock: 0, shared, tries: false };
            let give = Step::Give { lock: 0 };
            let expected = [Step::Work(10), take, Step::Work(30), give, Step::Work(50)];
            assert_eq!(found.operations[0], expected);
            let cost = CountingCost { all: 15.0, held: 5.0 };
            let found = super::read(&[one.clone(), one], &cost);
            assert_eq!(found.operations[0][..3], [take, Step::Work(25), give]);
        }
    }
}
