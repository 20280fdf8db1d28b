//! What counting itself costs.

use holdfast_base::clock::Stopwatch;

use super::Mutex;
use super::seen::{take, trace, traced};

/// Acquisitions of a round, and rounds: the fastest counts, as the others were disturbed.
const TIMES: u64 = 20_000;
const ROUNDS: u64 = 10;

/// Nanoseconds that an acquisition and its release take longer than without counting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CountingCost {
    /// All of it.
    pub all: f64,
    /// The part that counts as time in which the lock is held.
    pub held: f64,
}

/// Measures it on a mutex that no other thread has; `is_traced`: with a trace. Forgets what the calling thread has counted
/// and traced.
pub fn cost(is_traced: bool) -> CountingCost {
    let (counted, plain) = (Mutex::new(0_u64), parking_lot::Mutex::new(0_u64));
    let mut least = [f64::INFINITY; 3];
    for _ in 0..ROUNDS {
        drop((take(), traced()));
        if is_traced {
            trace(2 * TIMES as usize);
        }
        let time = Stopwatch::start();
        (0..TIMES).for_each(|_| *counted.lock() += 1);
        let with = time.nanos();
        let held: u64 = take().iter().map(|(_, counts)| counts.held).sum();
        let time = Stopwatch::start();
        (0..TIMES).for_each(|_| *std::hint::black_box(&plain).lock() += 1);
        let without = time.nanos();
        for (least, found) in least.iter_mut().zip([with, held, without]) {
            *least = least.min(found as f64 / TIMES as f64);
        }
    }
    drop(traced());
    let [with, held, without] = least;
    CountingCost { all: (with - without).max(0.0), held: (held - without).max(0.0) }
}
