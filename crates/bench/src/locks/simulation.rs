//! How many operations so many threads do, each on a processor of its own, when nothing but locks is in their way.
//!
//! Each thread does operation after operation, and each operation is a row of steps: it works for a while, takes a lock,
//! gives one back. A lock is given to those who wait in the order in which they came. To wake a thread and to fetch a
//! cache line take no time here, so real threads are slower: this is a bound.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Operations of each thread, at least: the begin, when all threads are at different steps, then weighs little.
const OPERATIONS_MIN: usize = 200;

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Works for so many nanoseconds.
    Work(u64),
    /// Takes a lock, with others if `shared`. If it `tries`, it goes on without the lock where that is not free.
    Take { lock: usize, shared: bool, tries: bool },
    /// Gives a lock back, if it has it.
    Give { lock: usize },
}

/// Steps of one operation. Each lock that it takes, it gives back, and none twice.
pub(super) type Steps = Vec<Step>;

#[derive(Clone, Debug, Default)]
struct Lock {
    /// The threads that have it: one, or those that share it.
    holders: Vec<usize>,
    is_shared: bool,
    /// Those that wait, the first in front, and whether they would share it.
    waiting: VecDeque<(usize, bool)>,
}

impl Lock {
    fn is_free_for(&self, shared: bool) -> bool {
        self.holders.is_empty() || shared && self.is_shared
    }

    fn give_to(&mut self, thread: usize, shared: bool) {
        self.holders.push(thread);
        self.is_shared = shared;
    }
}

/// Where a thread is.
#[derive(Clone, Debug)]
struct Thread {
    operation: usize,
    step: usize,
}

struct Simulation<'a> {
    operations: &'a [Steps],
    locks: Vec<Lock>,
    threads: Vec<Thread>,
    /// Which thread goes on when; at the same time the one that was put in first.
    ready: BinaryHeap<Reverse<(u64, u64, usize)>>,
    /// Entries of `ready` so far.
    order: u64,
    done: usize,
}

impl Simulation<'_> {
    fn wake(&mut self, at: u64, thread: usize) {
        self.ready.push(Reverse((at, self.order, thread)));
        self.order += 1;
    }

    /// Lets a thread go on from `now` until it works, waits, or has ended an operation.
    fn go_on(&mut self, now: u64, thread: usize) {
        let Thread { operation, step } = self.threads[thread];
        let Some(next) = self.operations[operation].get(step) else {
            self.done += 1;
            self.threads[thread] =
                Thread { operation: (operation + 1) % self.operations.len(), step: 0 };
            return self.wake(now, thread);
        };
        self.threads[thread].step += 1;
        match *next {
            Step::Work(nanos) => self.wake(now + nanos, thread),
            Step::Take { lock, shared, tries } => {
                let lock = &mut self.locks[lock];
                // A reader waits behind a writer that came before, as with parking_lot.
                if lock.is_free_for(shared) && lock.waiting.is_empty() {
                    lock.give_to(thread, shared);
                } else if !tries {
                    return lock.waiting.push_back((thread, shared));
                }
                self.wake(now, thread);
            }
            Step::Give { lock } => {
                let lock = &mut self.locks[lock];
                let mut next = Vec::new();
                if let Some(at) = lock.holders.iter().position(|holder| *holder == thread) {
                    lock.holders.swap_remove(at);
                    while let Some(&(waiter, shared)) = lock.waiting.front()
                        && lock.is_free_for(shared)
                    {
                        lock.waiting.pop_front();
                        lock.give_to(waiter, shared);
                        next.push(waiter);
                    }
                }
                self.wake(now, thread);
                next.into_iter().for_each(|waiter| self.wake(now, waiter));
            }
        }
    }
}

/// Operations in a nanosecond when `threads` threads do `operations` again and again, each beginning with another one.
/// `None` if they take no time, or if all threads wait for each other.
fn rate(operations: &[Steps], locks: usize, threads: usize) -> Option<f64> {
    let count = operations.len();
    let begin = |thread: usize| Thread { operation: thread * count / threads, step: 0 };
    let mut simulation = Simulation {
        operations,
        locks: vec![Lock::default(); locks],
        threads: (0..threads).map(begin).collect(),
        ready: BinaryHeap::new(),
        order: 0,
        done: 0,
    };
    (0..threads).for_each(|thread| simulation.wake(0, thread));
    // Of each operation as many: they take different times.
    let enough = (threads * OPERATIONS_MIN).next_multiple_of(count);
    let mut now = 0;
    while simulation.done < enough {
        let Reverse((at, _, thread)) = simulation.ready.pop()?;
        now = at;
        simulation.go_on(now, thread);
    }
    (now > 0).then(|| simulation.done as f64 / now as f64)
}

/// How many times as many operations so many threads do as one does alone, where that can be told.
pub(super) fn speed_up(operations: &[Steps], locks: usize, threads: usize) -> Option<f64> {
    if operations.is_empty() {
        return None;
    }
    Some(rate(operations, locks, threads)? / rate(operations, locks, 1)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(lock: usize, shared: bool) -> Step {
        Step::Take { lock, shared, tries: false }
    }

    /// An operation that works without a lock, and then with lock 0.
    fn partly(free: u64, held: u64, shared: bool) -> Steps {
        vec![Step::Work(free), take(0, shared), Step::Work(held), Step::Give { lock: 0 }]
    }

    fn of(operation: Steps, threads: usize) -> f64 {
        speed_up(&[operation], 1, threads).expect("it takes time")
    }

    fn near(found: f64, expected: f64) -> bool {
        (found - expected).abs() < 0.02 * expected
    }

    #[test]
    fn threads_without_locks_do_not_hinder_each_other() {
        for threads in [1, 2, 7, 64] {
            let found = of(vec![Step::Work(100)], threads);
            assert!((found - threads as f64).abs() < 1e-9, "{found} of {threads}");
        }
    }

    #[test]
    fn one_lock_that_is_always_held_leaves_nothing_to_gain() {
        for threads in [1, 2, 32] {
            assert!(near(of(partly(0, 100, false), threads), 1.0));
        }
    }

    #[test]
    fn a_lock_that_is_held_half_of_the_time_bounds_it_by_two() {
        let found: Vec<f64> =
            [1, 2, 3, 32].map(|threads| of(partly(50, 50, false), threads)).into();
        assert_eq!(found[0], 1.0);
        for found in &found[1..] {
            assert!(near(*found, 2.0) && *found < 2.0, "{found}");
        }
        assert!(near(of(partly(90, 10, false), 5), 5.0), "below the bound all are busy");
        assert!(near(of(partly(90, 10, false), 64), 10.0));
    }

    #[test]
    fn readers_share_and_a_writer_does_not() {
        assert_eq!(of(partly(0, 100, true), 8), 8.0);
        // As long as one writes, none reads.
        let operations = [partly(0, 100, true), partly(0, 100, false)];
        let found = speed_up(&operations, 1, 8).unwrap();
        assert!(found > 1.0 && found < 2.0 * 1.02, "{found}");
    }

    #[test]
    fn locks_of_their_own_are_none() {
        let of = |lock| vec![take(lock, false), Step::Work(100), Step::Give { lock }];
        let all: Vec<Steps> = (0..4).map(of).collect();
        assert!(near(speed_up(&all, 4, 4).unwrap(), 4.0));
        assert!(speed_up(&all, 4, 8).unwrap() < 4.01);
    }

    #[test]
    fn what_only_tries_never_waits() {
        let tries = Step::Take { lock: 0, shared: false, tries: true };
        let all = vec![tries, Step::Work(100), Step::Give { lock: 0 }];
        assert_eq!(of(all, 16), 16.0);
    }

    #[test]
    fn inner_locks_count_once() {
        let all = vec![
            take(0, false),
            Step::Work(40),
            take(1, false),
            Step::Work(10),
            Step::Give { lock: 1 },
            Step::Give { lock: 0 },
            Step::Work(50),
        ];
        assert!(near(speed_up(&[all], 2, 16).unwrap(), 2.0));
    }

    #[test]
    fn what_never_ends_or_takes_no_time_has_no_speed() {
        let crossed = |first, second| {
            let (a, b) = (take(first, false), take(second, false));
            vec![a, Step::Work(10), b, Step::Give { lock: first }, Step::Give { lock: second }]
        };
        assert_eq!(speed_up(&[crossed(0, 1), crossed(1, 0)], 2, 2), None);
        assert_eq!(speed_up(&[Vec::new()], 0, 2), None);
        assert_eq!(speed_up(&[], 0, 2), None);
    }
}
