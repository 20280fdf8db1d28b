//! Space is taken from the host ahead of need, where the volume is a sparse image: what was accepted is never refused
//! by a full host afterwards, and what the host has no room for is refused when it is asked for (P8).
//!
//! ```text
//!  open: what is in use of both rings, or nothing is written at all; of a new volume: the first change, or it is refused
//!  a promise that finds no room -> 4 MiB from the host -> the free blocks among them are shown -> again
//! ```
//!
//! A host that cannot give ahead of need is not asked. Then data that it refuses stays in memory, and is
//! tried again; a refused write of the log, of a commit or of a checkpoint stops the volume, as any other.

use std::collections::VecDeque;
use std::time::Duration;

use holdfast_base::clock::Stopwatch;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, BlockRange, Epoch, wait};
use holdfast_device::DeviceError;
use holdfast_format::Geometry;
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::limits::GROUP_BLOCKS;
use holdfast_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use parking_lot::Mutex;

use crate::space::alloc::Space;
use crate::space::discard::LEAST_BLOCKS;
use crate::space::hidden::{Next, PIECE_BYTES};
use crate::space::promise::Floor;
use crate::{Inner, Result, StoreError};

/// Pieces that the host may refuse before nothing more is asked for this time: parts of it may be given already.
const REFUSED_MAX: u32 = 8;
/// A search for what an earlier mount was given, which costs the host nothing, may be refused as often as so many groups have parts...
const GROUPS_AT_ONCE: u64 = 1;
/// ... and of so many groups, 8 GiB, where it is for a removal or a writeback.
const GROUPS_FOR_RESERVE: u64 = 64;
/// As much is taken whatever the host has, since some of it may be given already.
const LITTLE: u64 = 16 << 20;
/// Zeros that are written at a time.
const ZEROS_BYTES: usize = 1 << 20;
/// The epoch in which mkfs leaves a volume.
pub(crate) const MADE: Epoch = Epoch(2);

/// Bytes that the first change of a new volume takes of the host of a sparse image: what is in use of both rings, and a piece each for nodes,
/// their copies and data.
pub fn first_change_bytes(geometry: &Geometry) -> u64 {
    let rings: u64 = geometry.with_first_rings().rings().map(|ring| ring.count * BLOCK_BYTES).sum();
    rings + (geometry.node_copies().0 + 1) * PIECE_BYTES
}

/// Whether the rings of a new volume are still to be taken from the host.
#[derive(Debug, Default)]
pub(crate) struct Rings {
    wait: AtomicBool,
    /// Held by the taker.
    one: Mutex<()>,
}

/// What came of asking the host for pieces.
enum Asking {
    /// It has given something, or others have heard its answer.
    Gave,
    /// It may have something that was not asked for.
    Refused,
    /// There is nothing left to ask for.
    Nothing,
}

/// So long what the host has said of its room is told again, to callers that ask and ask.
const SAID_MAX: Duration = Duration::from_millis(10);

/// What the host said last.
#[derive(Debug, Default)]
pub(crate) struct HostSaid {
    room: Mutex<Option<Said>>,
    /// Bytes that it had given beyond what is known, when a search of all pieces found none of them.
    idle_of_nothing: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
struct Said {
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
        let mut said = self.host_said.room.lock();
        if let Some(Said { room, given, .. }) =
            said.filter(|of| of.done == done && of.time.elapsed() < SAID_MAX)
        {
            return (room, given);
        }
        // Begun before the question: the answer is no younger than that.
        let time = Stopwatch::start();
        let (room, given) = (self.device.room(), self.device.given());
        *said = Some(Said { room, given, time, done });
        (room, given)
    }

    /// An opening for writing takes both rings from the host. Those of a new volume, without a write yet, are
    /// taken by its first change: until then an image of any size takes no more of the host than mkfs wrote. Nothing is
    /// there that could be removed to make room, so that change may be refused (P8).
    pub(crate) fn take_rings_from_host(&self, is_new: bool) -> Result<()> {
        if self.device.room().is_none() {
            return Ok(());
        }
        if is_new {
            // What mkfs has written is asked for, to learn whether the host can give ahead of need.
            let written = SUPERBLOCK_SLOTS[0].0 * BLOCK_BYTES;
            match self.device.take_room(written, BLOCK_BYTES) {
                Err(error) if !error.is_no_space() => return Err(error.into()),
                _ => self.rings.wait.store(self.device.room().is_some(), Ordering::Release),
            }
            return Ok(());
        }
        self.take_rings().map_err(|error| match error.is_no_space() {
            true => StoreError::Refused(format!(
                "the host has no room for the log and the journal of this volume ({} MiB); make room there, or mount it read-only",
                self.ring_bytes() >> 20
            )),
            false => error.into(),
        })
    }

    /// Takes from the host what is in use of both rings, in all their places.
    fn take_rings(&self) -> std::result::Result<(), DeviceError> {
        self.geometry().rings().try_for_each(|ring| {
            self.device.take_room(ring.start.0 * BLOCK_BYTES, ring.count * BLOCK_BYTES)
        })
    }

    /// Before a change: the rings are the volume's, or there is no space.
    ///
    /// The log of a new volume is written as well, not only reserved: a host that must convert blocks under an fsync turns
    /// one flush into two.
    pub(crate) fn expect_rings(&self) -> Result<()> {
        if !self.rings.wait.load(Ordering::Acquire) {
            return Ok(());
        }
        let _one = self.rings.one.lock();
        if !self.rings.wait.load(Ordering::Acquire) {
            return Ok(());
        }
        // A host that gives less than is asked may keep the part that it had: it would be full for nothing.
        let room = self.device.room().map(|room| room.saturating_add(self.device.given()));
        if room.is_some_and(|room| room < self.ring_bytes()) {
            self.counters.no_space.increment();
            return Err(StoreError::NoSpace);
        }
        let geometry = self.geometry();
        // In front of the mark are the markers of mkfs and of recoveries. Where they go up to the very end, all of it is written.
        let marked = match self.pending.lock().place().mark.next.div_ceil(BLOCK_BYTES) {
            0 => geometry.log_blocks,
            blocks => blocks.min(geometry.log_blocks),
        };
        let rest =
            |log: BlockRange| BlockRange::new(BlockNo(log.start.0 + marked), log.count - marked);
        let mut logs = geometry.places_of_ring(geometry.log()).map(rest);
        match self.take_rings().and_then(|()| logs.try_for_each(|log| self.write_zeros(log))) {
            Ok(()) => {
                self.rings.wait.store(false, Ordering::Release);
                Ok(())
            }
            Err(error) if error.is_no_space() => {
                self.counters.no_space.increment();
                Err(StoreError::NoSpace)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// What the host must give besides before anything is changed, in bytes.
    pub(crate) fn rings_to_take(&self) -> u64 {
        match self.rings.wait.load(Ordering::Acquire) {
            true => self.ring_bytes(),
            false => 0,
        }
    }

    /// Bytes that are in use of both rings, in all their places.
    fn ring_bytes(&self) -> u64 {
        self.geometry().rings().map(|ring| ring.count * BLOCK_BYTES).sum()
    }

    pub(crate) fn write_zeros(&self, blocks: BlockRange) -> std::result::Result<(), DeviceError> {
        let zeros = vec![0; ZEROS_BYTES];
        let (start, len) = (blocks.start.0 * BLOCK_BYTES, blocks.count * BLOCK_BYTES);
        for at in (0..len).step_by(ZEROS_BYTES) {
            let part = (len - at).min(ZEROS_BYTES as u64) as usize;
            self.device.write(start + at, &zeros[..part])?;
        }
        Ok(())
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
        let groups = if floor < Floor::Grow { GROUPS_FOR_RESERVE } else { GROUPS_AT_ONCE };
        let has_room = || {
            let (idle, lacking) = (self.idle_of_host(), lacking(&self.space.lock()));
            let room = self.device.room().map(|room| room.saturating_add(idle));
            lacking <= LITTLE || room.is_none_or(|room| room >= lacking)
        };
        has_room() && matches!(self.ask_host(groups), Asking::Gave) || self.wait_for_discard()
    }

    /// Before free space goes back: a reserve that lies in what is hidden is asked for again, as far as the image has it. What an opening
    /// finds given is hidden, and so is what becomes free in pieces that a full host has given in parts; it would go as space that no call
    /// needs. An unchanged volume has no reserve.
    /// `go_on` is asked before each piece; false: it has said no, and nothing may go back.
    pub(crate) fn take_back_reserve(&self, go_on: &mut dyn FnMut() -> bool) -> bool {
        if self.rings_to_take() > 0 {
            return true;
        }
        while self.space.lock().reserve_lacks() > 0 && self.is_worth_a_search(self.idle_of_host()) {
            if !go_on() {
                return false;
            }
            if matches!(self.ask_host(GROUPS_AT_ONCE), Asking::Nothing) {
                break;
            }
        }
        true
    }

    /// Bytes that the host has given, and that are not known to be.
    fn idle_of_host(&self) -> u64 {
        let given = self.device.given();
        given.saturating_sub(self.space.lock().known_bytes())
    }

    /// Asks the host for some more, or looks for what it has given, as long as so many groups take.
    fn ask_host(&self, groups: u64) -> Asking {
        if self.space.lock().hidden_blocks() == 0 {
            return Asking::Nothing;
        }
        let idle = self.idle_of_host();
        let asking = self.ask_pieces(REFUSED_MAX, false);
        if matches!(asking, Asking::Gave) {
            return asking;
        }
        if !self.is_worth_a_search(idle) {
            return Asking::Nothing;
        }
        let parts = 2 * GROUP_BLOCKS / LEAST_BLOCKS + GROUP_BLOCKS / self.geometry().node_blocks();
        let asking = self.ask_pieces((groups * parts) as u32, true);
        if matches!(asking, Asking::Nothing) {
            self.host_said.idle_of_nothing.store(idle, Ordering::Relaxed);
        }
        asking
    }

    /// Part of what the host counts is of its own, and never found: it is looked for again when there is room for a node more.
    fn is_worth_a_search(&self, idle: u64) -> bool {
        let nothing = self.host_said.idle_of_nothing.load(Ordering::Relaxed);
        idle >= nothing.saturating_add(self.geometry().node_blocks() * BLOCK_BYTES)
    }

    /// Asks the host for pieces until it gives one, or for those that a search may find given in parts, or until it has refused so many.
    fn ask_pieces(&self, mut left: u32, is_search: bool) -> Asking {
        let mut loading = self.loading();
        while left > 0 {
            let mut space = self.space.lock();
            let piece = match space.next_hidden(is_search) {
                Next::Ask(piece) => piece,
                Next::Nothing => return Asking::Nothing,
                Next::Load(group) => {
                    drop(space);
                    loading.bring(&[group]);
                    continue;
                }
                Next::Wait(answers) => {
                    drop(space);
                    wait::will_wait();
                    let mut space = self.space.lock();
                    self.host_answered
                        .wait_while(&mut space, |space| space.host_answers() == answers);
                    return Asking::Gave;
                }
            };
            drop(space);
            let is_searched = is_search.then_some(false);
            let mut asked = Asked { inner: self, piece, given: Vec::new(), is_searched };
            if asked.gives(piece, &mut left) || is_search && asked.has_parts(&mut left) {
                return Asking::Gave;
            }
        }
        Asking::Refused
    }
}

/// A piece that the host is being asked for. Dropping it is the answer, and wakes the threads that wait for one. A
/// panic of the device counts as refused.
struct Asked<'a> {
    inner: &'a Inner,
    piece: BlockRange,
    given: Vec<BlockRange>,
    /// Of a search: all was looked for that the image has of it.
    is_searched: Option<bool>,
}

impl Asked<'_> {
    fn gives(&mut self, range: BlockRange, left: &mut u32) -> bool {
        let (at, len) = (range.start.0 * BLOCK_BYTES, range.count * BLOCK_BYTES);
        match self.inner.device.take_room(at, len) {
            Ok(()) => self.given.push(range),
            Err(error) => {
                tracing::debug!("the host gives nothing: {error}");
                *left = left.saturating_sub(1);
                return false;
            }
        }
        true
    }

    /// A full host refuses a piece of which the image lacks any block. What it has may be as little as one place of a node: so a reserve is
    /// kept, and the places of a pair lie in two pieces. Long parts come first.
    fn has_parts(&mut self, left: &mut u32) -> bool {
        let place = self.inner.geometry().node_blocks();
        let mut parts = VecDeque::from(self.inner.space.lock().hidden_parts(self.piece));
        while let Some(part) = parts.pop_front().filter(|_| *left > 0) {
            if !self.gives(part, left) && part.count > place {
                let len = match part.count > LEAST_BLOCKS {
                    true => (part.count / place).div_ceil(2) * place,
                    false => place,
                };
                let starts = (0..part.count).step_by(len as usize);
                parts.extend(starts.map(|at| {
                    BlockRange::new(BlockNo(part.start.0 + at), len.min(part.count - at))
                }));
            }
        }
        self.is_searched = Some(*left > 0);
        !self.given.is_empty()
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.inner.space.lock().answered(self.piece, &self.given, self.is_searched);
        self.inner.host_answered.notify_all();
    }
}
