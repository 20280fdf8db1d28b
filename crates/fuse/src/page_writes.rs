//! Pages of memory maps that the kernel has sent: whoever makes the kernel write them can wait until they have arrived.
//!
//! syncfs(2) makes the kernel send what programs have stored into mappings, and returns before the writes are answered: Linux
//! waits for no writeback of FUSE there (until 6.15 since it has copied the pages, later by a rule of its own). So the writes
//! may lie before /dev/fuse, or in the hands of a thread that has just read them.
//!
//! The kernel hands out requests in their order. Who asks after the syncfs is served by a thread that has read the question,
//! so those before it have been read, and each lies in a hand: every thread says so before it reads, and puts it down when
//! there was nothing, or another request, or when the write is done. To settle is to see each hand down once, as in
//! quiescent-state-based reclamation (McKenney and Slingwine, 1998). Of more writes than the kernel sends at once the others
//! follow when those are answered: who asks again, until no data came between two questions, has seen them all.
//!
//! With rings there is one queue for each processor: who asks does so on each of them. A thread of a ring cannot say that it is
//! about to take a request, since it sleeps where it takes them; there, one that was taken and not yet looked at is missed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use holdfast_base::wait;
use parking_lot::Mutex;

/// How often a hand is looked at that holds something: first, and at last.
const SOON: Duration = Duration::from_micros(20);
const LATE: Duration = Duration::from_millis(5);

/// The hands of all threads of a mount.
#[derive(Debug, Default)]
pub(crate) struct PageWrites {
    hands: Mutex<Vec<Arc<AtomicU64>>>,
    has_rings: AtomicBool,
}

/// That of one thread. Odd: it may hold a write.
#[derive(Debug)]
pub(crate) struct Hand {
    all: Arc<PageWrites>,
    turn: Arc<AtomicU64>,
}

impl PageWrites {
    /// A hand for a thread that reads requests. It lies down.
    pub(crate) fn hand(self: &Arc<Self>) -> Hand {
        let turn = Arc::<AtomicU64>::default();
        self.hands.lock().push(Arc::clone(&turn));
        Hand { all: Arc::clone(self), turn }
    }

    /// The same for a thread that serves a ring.
    pub(crate) fn hand_at_ring(self: &Arc<Self>) -> Hand {
        self.has_rings.store(true, Ordering::Relaxed);
        self.hand()
    }

    /// Whether requests come through rings.
    pub(crate) fn has_rings(&self) -> bool {
        self.has_rings.load(Ordering::Relaxed)
    }

    /// Waits until each write that had been read is done. The calling thread must have put its own hand down.
    pub(crate) fn settle(&self) {
        let held = |turn: u64| turn % 2 == 1;
        let hands: Vec<_> = self.hands.lock().clone();
        let hands = hands.into_iter().map(|hand| (hand.load(Ordering::Acquire), hand));
        let mut up: Vec<_> = hands.filter(|(turn, _)| held(*turn)).collect();
        let mut pause = SOON;
        while !up.is_empty() {
            // Another thread reads meanwhile.
            wait::will_wait();
            thread::sleep(pause);
            pause = (pause * 2).min(LATE);
            up.retain(|(turn, hand)| hand.load(Ordering::Acquire) == *turn);
        }
    }
}

impl Hand {
    /// To be called before the thread takes a request.
    pub(crate) fn lift(&self) {
        // Before the system call that takes the request, whose locks keep the order.
        self.set(self.turn.load(Ordering::Relaxed) | 1);
    }

    /// It holds no write.
    pub(crate) fn put_down(&self) {
        let turn = self.turn.load(Ordering::Relaxed);
        self.set(turn.wrapping_add(turn % 2));
    }

    fn set(&self, turn: u64) {
        self.turn.store(turn, Ordering::Release);
    }
}

/// A thread that ends, even by a panic, holds nothing.
impl Drop for Hand {
    fn drop(&mut self) {
        self.put_down();
        self.all.hands.lock().retain(|hand| !Arc::ptr_eq(hand, &self.turn));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_was_read_is_waited_for_and_nothing_that_comes_later() {
        let all = Arc::<PageWrites>::default();
        let (busy, idle) = (all.hand(), all.hand());
        idle.lift();
        idle.put_down();
        all.settle();
        busy.lift();
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            let settled = scope.spawn(|| {
                all.settle();
                assert!(is_done.load(Ordering::SeqCst), "the write was under way");
            });
            // It must be waiting by now, or will see the hand up, or down and up again: each is right.
            thread::sleep(Duration::from_millis(30));
            is_done.store(true, Ordering::SeqCst);
            busy.put_down();
            busy.lift();
            settled.join().unwrap();
        });
        // One that ends holds nothing.
        drop(busy);
        all.settle();
        assert_eq!(all.hands.lock().len(), 1);
    }

    #[test]
    fn a_hand_that_is_lifted_twice_is_down_after_one_time() {
        let all = Arc::<PageWrites>::default();
        let hand = all.hand();
        for _ in 0..3 {
            hand.lift();
            hand.lift();
            hand.put_down();
            hand.put_down();
            all.settle();
        }
    }
}
