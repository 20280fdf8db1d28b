//! How many large writes are on their way to the device at once.
//!
//! A device takes calls in about the order in which they come, so an fsync's write waits behind what was sent before
//! it. All files of a volume together send one large write per processor, two to four. That is enough to keep a disk
//! with a queue busy (four of 256 KiB were as fast as four of 2 MiB), it bounds how long another caller's fsync waits,
//! and it leaves that caller a processor. Small writes are not counted.

use parking_lot::{Condvar, Mutex};

use holdfast_base::units::BLOCK_SIZE;
use holdfast_base::{parallel, wait};

/// A write of at most so many bytes is sent at once.
const SMALL_BYTES: usize = 16 * BLOCK_SIZE;

/// Large writes that may still be sent.
#[derive(Debug)]
pub(crate) struct InFlight {
    most: usize,
    left: Mutex<usize>,
    returned: Condvar,
}

impl Default for InFlight {
    fn default() -> InFlight {
        let most = parallel::large_writes(parallel::processors());
        InFlight { most, left: Mutex::new(most), returned: Condvar::new() }
    }
}

impl InFlight {
    /// How many large writes there may be at once.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Waits until a write of so many bytes may be sent. The returned guard is dropped when the write has returned.
    pub(crate) fn enter(&self, bytes: usize) -> Option<Sent<'_>> {
        if bytes <= SMALL_BYTES {
            return None;
        }
        let mut left = self.left.lock();
        if *left == 0 {
            wait::will_wait();
        }
        self.returned.wait_while(&mut left, |left| *left == 0);
        *left -= 1;
        Some(Sent(self))
    }
}

/// A large write on its way.
#[derive(Debug)]
pub(crate) struct Sent<'a>(&'a InFlight);

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        *self.0.left.lock() += 1;
        self.0.returned.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_writes_wait_for_one_another_and_small_ones_do_not_wait() {
        let in_flight = InFlight::default();
        let large = || in_flight.enter(SMALL_BYTES + 1);
        let mut sent: Vec<_> = (0..in_flight.most()).map(|_| large()).collect();
        assert!(in_flight.enter(SMALL_BYTES).is_none());
        assert_eq!(*in_flight.left.lock(), 0);
        std::thread::scope(|scope| {
            let next = scope.spawn(|| drop(large()));
            assert!(!next.is_finished(), "nobody has returned");
            sent.pop();
            next.join().expect("it does not panic");
        });
        drop(sent);
        assert_eq!(*in_flight.left.lock(), in_flight.most());
    }
}
