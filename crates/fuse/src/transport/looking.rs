//! Whether two readers that poll for requests, each on its own processor, are of use there.
//!
//! Each always yields. So where others use the processors for longer than a request, each waits for their turns to end.
//! And if both clients are on one processor, they stay there, as the other one is never idle.

use std::cell::Cell;
use std::time::Duration;

use holdfast_base::clock::{Deadline, Stopwatch};

/// Yielding takes longer than this if others, or the client, compute.
const LONG: Duration = Duration::from_micros(500);
/// No more of it counts: the whole machine may have stood still.
const TURN: Duration = Duration::from_millis(4);
/// A reader that has yielded for more than [`LOST`] of such a time shares its processor with others,
const WINDOW: Duration = Duration::from_millis(50);
const LOST: Duration = Duration::from_millis(10);
/// and stops polling for so long.
const SHARED: Duration = Duration::from_secs(1);
/// The client is looked for once in so many requests: a prime, or it could be the same one of two each time.
const OFTEN: u32 = 31;
/// If it is somewhere else so often in a row, the processor is left alone
const STRAYS: u32 = 4;
/// for so long.
const BREAK: Duration = Duration::from_millis(4);

/// What one reader knows of that.
pub(super) struct Looking {
    /// Since when it counts how long others ran.
    since: Cell<Stopwatch>,
    lost: Cell<Duration>,
    /// Requests since it looked for a client, and how often in a row it did not find it.
    served: Cell<u32>,
    strays: Cell<u32>,
    /// Until when it is of no use.
    pause: Cell<Option<Deadline>>,
}

impl Looking {
    pub(super) fn new() -> Looking {
        Looking {
            since: Cell::new(Stopwatch::start()),
            lost: Cell::default(),
            served: Cell::default(),
            strays: Cell::default(),
            pause: Cell::default(),
        }
    }

    /// Whether it is of use, as far as is known.
    pub(super) fn is_of_use(&self) -> bool {
        let is_of_use = self.pause.get().is_none_or(Deadline::is_over);
        if is_of_use {
            // The clock need not be read again.
            self.pause.set(None);
        }
        is_of_use
    }

    /// Others ran for `time` while this thread yielded.
    pub(super) fn gave_way(&self, time: Duration) {
        if time < LONG {
            return;
        }
        if self.since.get().elapsed() > WINDOW {
            self.since.set(Stopwatch::start());
            self.lost.set(Duration::ZERO);
        }
        self.lost.set(self.lost.get() + time.min(TURN));
        if self.lost.get() > LOST {
            self.stop(SHARED);
        }
    }

    /// A request of a known client has come. `is_here` tells whether the client sleeps on this processor, if that is
    /// known.
    pub(super) fn serves(&self, is_here: impl FnOnce() -> Option<bool>) {
        self.served.set(self.served.get() + 1);
        if self.served.get() < OFTEN {
            return;
        }
        self.served.set(0);
        let strays = self.strays.get();
        self.strays.set(is_here().map_or(strays, |here| if here { 0 } else { strays + 1 }));
        if self.strays.get() >= STRAYS {
            self.strays.set(0);
            self.stop(BREAK);
        }
    }

    fn stop(&self, time: Duration) {
        self.pause.set(Some(Deadline::after(time)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gave way for so long, so often, within one window.
    fn gave_way(looking: &Looking, time: Duration, times: u32) -> bool {
        for _ in 0..times {
            // However slow this test is.
            looking.since.set(Stopwatch::start());
            looking.gave_way(time);
        }
        looking.is_of_use()
    }

    #[test]
    fn a_processor_that_others_use_as_well_is_of_no_use() {
        let looking = Looking::new();
        assert!(gave_way(&looking, LONG / 2, 10_000));
        assert!(gave_way(&looking, 100 * LOST, 2));
        assert!(!gave_way(&looking, LONG, 5));
        looking.stop(Duration::ZERO);
        assert!(looking.is_of_use());
    }

    #[test]
    fn what_was_lost_long_ago_does_not_count() {
        let looking = Looking::new();
        assert!(gave_way(&looking, TURN, 2));
        while looking.since.get().elapsed() <= WINDOW {
            std::thread::sleep(WINDOW);
        }
        looking.gave_way(TURN);
        assert!(gave_way(&looking, TURN, 1));
        assert!(!gave_way(&looking, TURN, 1));
    }

    #[test]
    fn only_a_client_that_is_never_here_is_a_stray() {
        let looking = Looking::new();
        let serve = |here: &[Option<bool>]| {
            for &is_here in here {
                (0..OFTEN).for_each(|_| looking.serves(|| is_here));
            }
            looking.pause.get().is_none()
        };
        assert!(serve(&[Some(false), Some(false), Some(false), Some(true), Some(false)]));
        assert!(serve(&[Some(false), None, Some(false), None]));
        assert!(!serve(&[Some(false)]));
        // One of two that take turns is here.
        for number in 0..100 * OFTEN {
            looking.serves(|| Some(number % 2 == 0));
            assert!(looking.strays.get() < 2);
        }
    }
}
