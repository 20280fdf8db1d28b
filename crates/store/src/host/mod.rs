//! Space is taken from the host ahead of need, where the volume is a sparse image: what was accepted is never refused
//! by a full host afterwards, and what the host has no room for is refused when it is asked for (P8).
//!
//! ```text
//!  open: what is in use of both rings, or nothing is written at all; of a new volume: the first change, or it is refused
//!  a promise that finds no room -> 4 MiB from the host, or parts that it gave before -> the free blocks among them are shown -> again
//! ```
//!
//! `rings.rs` has the first line, `asking.rs` the second. A host that cannot give ahead of need is not asked. Then data that it refuses stays in
//! memory, and is tried again; a refused write of the log, of a commit or of a checkpoint stops the volume, as any other.

mod asking;
mod rings;

use std::time::Duration;

use holdfast_base::clock::Stopwatch;
use parking_lot::Mutex;

use crate::Inner;
use crate::space::alloc::Space;
use crate::space::promise::Floor;
use asking::{Asking, Patience};
pub use rings::first_change_bytes;
pub(crate) use rings::{MADE, Rings};

/// As much is taken whatever the host has, since some of it may be given already.
const LITTLE: u64 = 16 << 20;
/// So long what the host has said of its room is told again, to callers that ask and ask.
const SAID_MAX: Duration = Duration::from_millis(10);

/// What the host said last.
#[derive(Debug, Default)]
pub(crate) struct HostSaid(Mutex<Option<HostAnswer>>);

#[derive(Clone, Copy, Debug)]
struct HostAnswer {
    room: Option<u64>,
    given: u64,
    time: Stopwatch,
    /// What the volume itself had done to that.
    done: [u64; 3],
}

impl Inner {
    /// Bytes that the host has left, and those that it has given, as the device says them now, or as it said them less than 10 ms
    /// ago: a flood of statfs costs no two system calls each. They are asked for anew at once when an operation was refused
    /// for space, the host was asked for more, or space went back to it.
    pub(crate) fn host_lately(&self) -> (Option<u64>, u64) {
        let answers = self.space.lock().host_answers();
        let counters = &self.counters;
        let done = [answers, counters.no_space.get(), counters.discard_ranges.get()];
        let mut said = self.host_said.0.lock();
        if let Some(HostAnswer { room, given, .. }) =
            said.filter(|of| of.done == done && of.time.elapsed() < SAID_MAX)
        {
            return (room, given);
        }
        // Begun before the question: the answer is no younger than that.
        let time = Stopwatch::start();
        let (room, given) = (self.device.room(), self.device.given());
        *said = Some(HostAnswer { room, given, time, done });
        (room, given)
    }

    /// From here on nothing is promised that the host has not given.
    pub(crate) fn hide_from_host(&self) {
        if self.device.room().is_some() {
            self.space.lock().hide();
        }
    }

    /// Takes some more from the host, unless that has less than is `lacking`, in bytes, or waits for what is being
    /// discarded. For what may use what lies below `floor`. Says whether it is worth trying again. No lock is held.
    pub(crate) fn take_from_host(&self, lacking: impl Fn(&Space) -> u64, floor: Floor) -> bool {
        let has_room = || {
            let (idle, lacking) = (self.idle_of_host(), lacking(&self.space.lock()));
            let room = self.device.room().map(|room| room.saturating_add(idle));
            lacking <= LITTLE || room.is_none_or(|room| room >= lacking)
        };
        let patience = if floor < Floor::Grow { Patience::long } else { Patience::short };
        has_room() && matches!(self.ask_host(patience), Asking::Gave) || self.wait_for_discard()
    }

    /// Before free space goes back: a reserve that lies in what is unbacked is asked for again, as far as the image has it. What an opening
    /// finds given is unbacked, and so is what becomes free in pieces that a full host has given in parts; it would go as space that no call
    /// needs. An unchanged volume has no reserve. Says how much the reserve lacks that was not found.
    /// `go_on` is asked before each piece; `None`: it has said no, and nothing may go back.
    pub(crate) fn take_back_reserve(&self, go_on: &mut dyn FnMut() -> bool) -> Option<u64> {
        loop {
            let lacks = self.space.lock().reserve_lacks();
            if lacks == 0 || self.rings_to_take() > 0 || !self.is_worth_a_search() {
                return Some(lacks);
            }
            if !go_on() {
                return None;
            }
            if matches!(self.ask_host(Patience::short), Asking::Nothing) {
                return Some(lacks);
            }
        }
    }
}
