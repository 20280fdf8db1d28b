//! Asking the host for pieces, and searching for what it has given before an opening, or gave of what it refused.

use std::collections::VecDeque;
use std::time::Duration;

use holdfast_base::clock::Stopwatch;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, BlockRange, wait};
use holdfast_format::limits::GROUP_BLOCKS;

use crate::Inner;
use crate::space::discard::LEAST_BLOCKS;
use crate::space::unbacked::Next;

/// Whole pieces that the host may refuse before no other is asked for.
const REFUSED_MAX: u64 = 8;
/// A search costs the host nothing, but time. As often as a group has large parts and small ones it may be refused...
const CALLS: u64 = 2 * GROUP_BLOCKS / LEAST_BLOCKS + GROUP_BLOCKS / 4;
const SHORT: Duration = Duration::from_secs(1);
/// ... and for so long, however often, where it is for a removal or a writeback: they are not refused before all is searched (P8).
const LONG: Duration = Duration::from_secs(30);

/// What came of asking the host for pieces.
pub(super) enum Asking {
    /// There may be room now: it has given something, to this thread or others, or was given something back.
    Gave,
    /// It may have something that was not asked for.
    Refused,
    /// There is nothing left to ask for.
    Nothing,
}

/// How long the host is asked by a caller that is given nothing.
pub(super) struct Patience {
    /// Calls that it may refuse, and bitmaps that may be loaded.
    calls: u64,
    time: Duration,
    since: Stopwatch,
}

impl Patience {
    fn of(calls: u64, time: Duration) -> Patience {
        Patience { calls, time, since: Stopwatch::start() }
    }

    pub(super) fn short() -> Patience {
        Patience::of(CALLS, SHORT)
    }

    pub(super) fn long() -> Patience {
        Patience::of(u64::MAX, LONG)
    }

    fn call(&mut self) {
        self.calls = self.calls.saturating_sub(1);
    }

    fn is_over(&self) -> bool {
        self.calls == 0 || self.since.elapsed() >= self.time
    }
}

impl Inner {
    /// Bytes that the host has given, and that are not known to be.
    pub(super) fn idle_of_host(&self) -> u64 {
        let given = self.device.given();
        given.saturating_sub(self.space.lock().known_bytes())
    }

    /// Whether they are room for a node. Part of what the host counts is of its own: which pieces were searched is known beside that.
    pub(super) fn is_worth_a_search(&self) -> bool {
        self.idle_of_host() >= self.geometry().node_blocks() * BLOCK_BYTES
    }

    /// Asks the host for some more, or looks for what it has given, with this much patience.
    pub(super) fn ask_host(&self, patience: fn() -> Patience) -> Asking {
        if self.space.lock().unbacked_blocks() == 0 {
            return Asking::Nothing;
        }
        let (idle, mut refused) = (self.idle_of_host(), Vec::new());
        let asking = self.ask_pieces(Patience::of(REFUSED_MAX, Duration::MAX), false, &mut refused);
        if matches!(asking, Asking::Gave) {
            return asking;
        }
        if self.idle_of_host() > idle {
            // What a host has of a range that it refuses may stay with the file.
            self.space.lock().search_again(&refused);
        }
        match self.is_worth_a_search() {
            true => self.ask_pieces(patience(), true, &mut refused),
            false => Asking::Nothing,
        }
    }

    /// Asks the host for pieces, or for the parts of those that a search may find given, until one has shown something. One piece is
    /// asked for in any case, as a whole, or each call would begin with the same one.
    fn ask_pieces(
        &self,
        mut patience: Patience,
        is_search: bool,
        refused: &mut Vec<BlockRange>,
    ) -> Asking {
        let gains = self.space.lock().host_gains();
        let mut loading = None;
        loop {
            let mut space = self.space.lock();
            match space.next_unbacked(is_search) {
                Next::Nothing => return Asking::Nothing,
                Next::Load(group) => {
                    drop(space);
                    // The bitmap of one group stays in memory for this, however many are searched.
                    drop(loading.take());
                    patience.call();
                    loading.insert(self.loading()).bring(&[group]);
                }
                Next::Wait(answers) => {
                    drop(space);
                    wait::will_wait();
                    let mut space = self.space.lock();
                    self.host_answered
                        .wait_while(&mut space, |space| space.host_answers() == answers);
                    if space.host_gains() != gains {
                        return Asking::Gave;
                    }
                }
                Next::Ask(piece) => {
                    drop(space);
                    if self.ask_piece(piece, is_search, &mut patience) > 0 {
                        return Asking::Gave;
                    }
                    refused.push(piece);
                    if patience.is_over() {
                        return Asking::Refused;
                    }
                }
            }
        }
    }

    /// Asks for a piece, or for its parts. Returns how many blocks are unbacked no more.
    fn ask_piece(&self, piece: BlockRange, is_search: bool, patience: &mut Patience) -> u64 {
        let mut asked = Asked { inner: self, piece, patience, is_answered: false };
        let given = match asked.gives(piece) {
            true => vec![piece],
            false if is_search => asked.parts(),
            false => Vec::new(),
        };
        asked.answer(Some(&given))
    }
}

/// A piece that the host is being asked for, until it is answered. A panic of the device is an answer as well.
struct Asked<'a> {
    inner: &'a Inner,
    piece: BlockRange,
    patience: &'a mut Patience,
    is_answered: bool,
}

impl Asked<'_> {
    fn gives(&mut self, range: BlockRange) -> bool {
        let (at, len) = (range.start.0 * BLOCK_BYTES, range.count * BLOCK_BYTES);
        let done = self.inner.device.take_room(at, len);
        if let Err(error) = &done {
            tracing::debug!("the host gives nothing: {error}");
            self.patience.call();
        }
        done.is_ok()
    }

    /// A full host refuses a piece of which the image lacks any block. What it has may be as little as one place of a node: so a reserve is
    /// kept, and the places of a pair lie in two pieces. Long parts come first.
    fn parts(&mut self) -> Vec<BlockRange> {
        let place = self.inner.geometry().node_blocks();
        let mut parts = VecDeque::from(self.inner.space.lock().unbacked_parts(self.piece));
        let mut given = Vec::new();
        while let Some(part) = parts.pop_front() {
            if part != self.piece && self.gives(part) {
                given.push(part);
            } else if part.count > place {
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
        given
    }

    fn answer(&mut self, given: Option<&[BlockRange]>) -> u64 {
        self.is_answered = true;
        let shown = self.inner.space.lock().answered(self.piece, given);
        self.inner.host_answered.notify_all();
        shown
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.answer(None);
        }
    }
}
