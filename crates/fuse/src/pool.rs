//! Threads for requests that wait for the device.
//!
//! An fsync may wait for a flush; on a reader thread it would keep others
//! from being read. Many fsyncs at once must all be under way, so that the
//! filesystem can answer them with one flush: the pool grows up to its bound
//! while all its threads are busy. Threads without work end after a while.
//!
//! A job is never lost: what is refused is handed back and runs where it came
//! from.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Work for another thread.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// How long a thread waits for work before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// How many jobs may wait for each thread. More are refused, so that what they hold in memory is bounded.
const QUEUE_PER_THREAD: usize = 4;

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
    ended: Condvar,
    most: usize,
}

/// A pool. Dropping it does not wait; [`Pool::finish`] does.
pub(crate) struct Pool {
    shared: Arc<Shared>,
}

impl Pool {
    /// A pool of at most `most` threads; none is started yet.
    pub(crate) fn new(most: usize) -> Pool {
        Pool {
            shared: Arc::new(Shared {
                state: Mutex::default(),
                work: Condvar::new(),
                ended: Condvar::new(),
                most,
            }),
        }
    }

    /// Has `job` run on a thread of the pool, or gives it back: the pool is full, finished, or the
    /// system has no thread left.
    pub(crate) fn submit(&self, job: Job) -> Result<(), Job> {
        let mut state = self.shared.state.lock();
        if state.closed || state.queue.len() >= self.shared.most * QUEUE_PER_THREAD {
            return Err(job);
        }
        if state.idle <= state.queue.len() && state.threads < self.shared.most {
            let shared = Arc::clone(&self.shared);
            let started = std::thread::Builder::new()
                .name("holdfast-wait".into())
                .spawn(move || shared.work());
            match started {
                Ok(_) => state.threads += 1,
                Err(_) if state.threads == 0 => return Err(job),
                Err(_) => {}
            }
        }
        state.queue.push_back(job);
        drop(state);
        self.shared.work.notify_one();
        Ok(())
    }

    /// Takes no more jobs and returns when all that were taken have run.
    pub(crate) fn finish(&self) {
        let mut state = self.shared.state.lock();
        state.closed = true;
        self.shared.work.notify_all();
        while state.threads > 0 {
            self.shared.ended.wait(&mut state);
        }
    }
}

impl Shared {
    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                drop(state);
                // A panic is reported where it happens; here it must only not take the thread along.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
                state = self.state.lock();
                continue;
            }
            if state.closed {
                break;
            }
            state.idle += 1;
            let late = self.work.wait_for(&mut state, IDLE).timed_out();
            state.idle -= 1;
            if late && state.queue.is_empty() {
                break;
            }
        }
        state.threads -= 1;
        self.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn all_jobs_up_to_the_bound_are_under_way_at_once() {
        let pool = Pool::new(8);
        let barrier = Arc::new(Barrier::new(9));
        for _ in 0..8 {
            let barrier = Arc::clone(&barrier);
            assert!(
                pool.submit(Box::new(move || {
                    barrier.wait();
                }))
                .is_ok()
            );
        }
        // Passes only when all eight run at the same time.
        barrier.wait();
        pool.finish();
    }

    #[test]
    fn finish_waits_for_what_was_taken_and_refuses_the_rest() {
        let pool = Pool::new(2);
        let done = Arc::new(AtomicUsize::new(0));
        let mut taken = 0;
        for _ in 0..100 {
            let done = Arc::clone(&done);
            let job: Job = Box::new(move || {
                std::thread::sleep(Duration::from_millis(1));
                done.fetch_add(1, Ordering::Relaxed);
            });
            taken += usize::from(pool.submit(job).is_ok());
        }
        // Two run, eight wait; of the rest only a few find a free place.
        assert!((8..100).contains(&taken), "{taken}");
        pool.finish();
        assert_eq!(done.load(Ordering::Relaxed), taken);
        assert!(pool.submit(Box::new(|| ())).is_err());
    }
}
