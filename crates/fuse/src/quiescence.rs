//! Pages of memory maps that the kernel has sent: a process that makes the kernel write them can see when they have arrived.
//!
//! syncfs(2) makes the kernel send what programs have stored into mappings, and returns before the writes are answered: Linux
//! waits for no writeback of FUSE there (until 6.15 since it has copied the pages, later by a rule of its own). So the writes
//! may lie before /dev/fuse, or in the hands of a thread that has just read them.
//!
//! The kernel hands out requests in their order. A question that comes after the syncfs is answered by a thread that has read it,
//! so those before it have been read, and each lies in a hand: every thread says so before it reads, and puts it down when
//! there was nothing, or a request that holds up no write, or when it is done. The answer names the hands that are up; the caller
//! again until each of them has been down has waited for those writes, as in quiescent-state-based reclamation (McKenney and
//! Slingwine, 1998). Nothing waits here: a question costs the same whatever is under way.
//!
//! Of more writes than the kernel sends at once the others follow when those are answered, and reads take the same places: a hand
//! is up for reads as well, and the caller goes on until no data has come between two answers.
//!
//! With rings there is one queue for each processor: the caller asks on each of them. A thread of a ring cannot say that it is
//! about to take a request, since it sleeps where it takes them; there, one that was taken and not yet looked at is missed.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use holdfast_base::counters::Counter;
use holdfast_wire::Op;
use parking_lot::Mutex;

/// The hands of all threads of a mount.
#[derive(Debug, Default)]
pub(crate) struct PageWrites {
    hands: Mutex<Counters>,
    has_rings: AtomicBool,
    /// Reads and writes that have come.
    data: Counter,
}

#[derive(Debug, Default)]
struct Counters {
    all: Vec<(u64, Arc<AtomicU64>)>,
    last: u64,
}

/// That of one thread. Odd: it may hold a write.
#[derive(Debug)]
pub(crate) struct QuiescenceCounter {
    of: Arc<PageWrites>,
    turn: Arc<AtomicU64>,
}

impl PageWrites {
    /// A hand for a thread that reads requests. It lies down.
    pub(crate) fn hand(self: &Arc<Self>) -> QuiescenceCounter {
        let turn = Arc::<AtomicU64>::default();
        let mut hands = self.hands.lock();
        hands.last += 1;
        let number = hands.last;
        hands.all.push((number, Arc::clone(&turn)));
        drop(hands);
        QuiescenceCounter { of: Arc::clone(self), turn }
    }

    /// The same for a thread that serves a ring.
    pub(crate) fn hand_at_ring(self: &Arc<Self>) -> QuiescenceCounter {
        self.has_rings.store(true, Ordering::Relaxed);
        self.hand()
    }

    /// How many requests for data have come, how they come, and each hand that is up with its turn: `17 device 3:41 5:77`. The
    /// calling thread has put its own down.
    pub(crate) fn describe(&self) -> String {
        let way = if self.has_rings.load(Ordering::Relaxed) { "rings" } else { "device" };
        // Counters first: what is counted behind has been in one of them.
        let mut up = String::new();
        for (number, turn) in &self.hands.lock().all {
            let turn = turn.load(Ordering::Acquire);
            if turn % 2 == 1 {
                let _ = write!(up, " {number}:{turn}");
            }
        }
        format!("{} {way}{up}", self.data.get())
    }
}

impl QuiescenceCounter {
    /// To be called before the thread takes a request. What it held is done.
    pub(crate) fn lift(&self) {
        self.put_down();
        // Before the system call that takes the request, whose locks keep the order.
        self.set(self.turn.load(Ordering::Relaxed) | 1);
    }

    /// This request is in it: a read or a write, or a change of a size, behind which the kernel holds writes back. Of all others the
    /// hand is put down.
    pub(crate) fn holds(&self, op: &Op<'_>) {
        match op {
            Op::Read(_) | Op::Write { .. } => self.of.data.increment(),
            Op::Setattr(_) => {}
            _ => self.put_down(),
        }
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
impl Drop for QuiescenceCounter {
    fn drop(&mut self) {
        self.put_down();
        self.of.hands.lock().all.retain(|(_, turn)| !Arc::ptr_eq(turn, &self.turn));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hand_that_is_up_is_named_until_it_has_been_down() {
        let all = Arc::<PageWrites>::default();
        let (busy, idle) = (all.hand(), all.hand());
        idle.lift();
        idle.put_down();
        assert_eq!(all.describe(), "0 device");
        busy.lift();
        let (up, again) = (all.describe(), all.describe());
        assert_eq!((up.as_str(), again.as_str()), ("0 device 1:1", "0 device 1:1"));
        // Another request: it is up, and has been down.
        busy.lift();
        assert_eq!(all.describe(), "0 device 1:3");
        busy.put_down();
        busy.put_down();
        assert_eq!(all.describe(), "0 device");
        // One that ends holds nothing, and its number is free again.
        idle.lift();
        drop(idle);
        let next = all.hand_at_ring();
        next.lift();
        assert_eq!(all.describe(), "0 rings 3:1");
    }

    #[test]
    fn what_holds_up_writes_stays_in_hand_and_all_else_does_not() {
        let all = Arc::<PageWrites>::default();
        let hand = all.hand();
        hand.lift();
        hand.holds(&Op::Statfs);
        assert_eq!(all.describe(), "0 device");
        hand.lift();
        hand.holds(&Op::Read(Default::default()));
        assert_eq!(all.describe(), "1 device 1:3");
    }
}
