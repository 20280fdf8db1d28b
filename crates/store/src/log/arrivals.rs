//! Operations that became visible, one behind the other, as they came: all that the trees' lock is held for is a copy.
//!
//! What an operation changed is folded into a [`Generation`](super::generation::Generation) by the caller that needs one: an
//! fsync, as a rule. What a commit contains by then is dropped as it is. The moment of a commit is one among the operations.

use holdfast_base::{BlockRange, Lsn};
use holdfast_format::log::Dropped;

use super::bounds;
use super::position::LogPosition;
use crate::dropped_extents::{Counts, DroppedExtents};
use crate::transaction::{Change, Changes, Taken};

/// More memory than this is not kept for what comes: it was for a burst.
const SPARE_BYTES: usize = 4 << 20;

/// An operation that is folded: everything that it changed.
pub(super) struct Operation<'a, 'c> {
    pub(super) lsn: Lsn,
    pub(super) counts: Counts,
    /// Blocks have moved within a file.
    pub(super) moves: bool,
    pub(super) changes: &'a mut dyn Iterator<Item = Change<'c>>,
    pub(super) taken: &'a mut dyn Iterator<Item = Taken>,
    pub(super) freed: &'a mut dyn Iterator<Item = BlockRange>,
    pub(super) dropped: &'a mut dyn Iterator<Item = Dropped>,
}

/// How many there are of each kind.
#[derive(Debug)]
struct Lengths {
    changes: usize,
    taken: usize,
    freed: usize,
    dropped: usize,
}

#[derive(Debug)]
enum Event {
    Operation { lsn: Lsn, counts: Counts, moves: bool, lengths: Lengths },
    Freeze(LogPosition),
}

/// What is folded, in the order in which it came.
pub(super) enum Arrival<'a, 'c> {
    Operation(Operation<'a, 'c>),
    /// The moment of a commit, which needs nothing of the log before this place.
    Freeze(LogPosition),
}

/// Operations that arrived.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    events: Vec<Event>,
    changes: Changes,
    taken: Vec<Taken>,
    freed: Vec<BlockRange>,
    dropped: Vec<Dropped>,
    /// More bytes than a batch would hold for what came behind the last freeze.
    bytes: usize,
    unflushed_blocks: u64,
}

impl Arrivals {
    /// An operation became visible.
    pub(super) fn add(
        &mut self,
        (lsn, counts, moves): (Lsn, Counts, bool),
        changes: &Changes,
        taken: Vec<Taken>,
        dropped_extents: DroppedExtents,
    ) {
        let DroppedExtents { free, dropped } = dropped_extents;
        let lengths = Lengths {
            changes: changes.len(),
            taken: taken.len(),
            freed: free.len(),
            dropped: dropped.len(),
        };
        self.bytes += bounds::bound_of(changes, &taken, free.len(), dropped.len());
        self.unflushed_blocks += taken.iter().map(Taken::unflushed_blocks).sum::<u64>();
        self.events.push(Event::Operation { lsn, counts, moves, lengths });
        self.changes.extend(changes);
        self.taken.extend(taken);
        self.freed.extend(free);
        self.dropped.extend(dropped);
    }

    /// The present moment becomes a commit.
    pub(super) fn freeze(&mut self, log: LogPosition) {
        self.events.push(Event::Freeze(log));
        self.bytes = 0;
    }

    /// Whether nothing has arrived.
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// See the field.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Blocks of data that wait for a flush.
    pub(super) fn unflushed_blocks(&self) -> u64 {
        self.unflushed_blocks
    }

    /// Passes all of it to `each` and forgets it, but keeps the memory; that of a burst goes.
    pub(super) fn drain(&mut self, mut each: impl FnMut(Arrival<'_, '_>)) {
        let is_burst = self.capacity() > SPARE_BYTES;
        let (mut taken, mut freed) = (self.taken.drain(..), self.freed.drain(..));
        let mut dropped = self.dropped.drain(..);
        let mut changes = self.changes.iter();
        for event in self.events.drain(..) {
            match event {
                Event::Freeze(log) => each(Arrival::Freeze(log)),
                Event::Operation { lsn, counts, moves, lengths } => {
                    let mut changes = changes.by_ref().take(lengths.changes);
                    let mut taken = taken.by_ref().take(lengths.taken);
                    let mut freed = freed.by_ref().take(lengths.freed);
                    let mut dropped = dropped.by_ref().take(lengths.dropped);
                    each(Arrival::Operation(Operation {
                        lsn,
                        counts,
                        moves,
                        changes: &mut changes,
                        taken: &mut taken,
                        freed: &mut freed,
                        dropped: &mut dropped,
                    }));
                    // Items that `each` left must not be taken for those of the next operation.
                    changes.for_each(drop);
                    taken.for_each(drop);
                    freed.for_each(drop);
                    dropped.for_each(drop);
                }
            }
        }
        drop((changes, taken, freed, dropped));
        self.changes.clear();
        (self.bytes, self.unflushed_blocks) = (0, 0);
        if is_burst {
            *self = Arrivals::default();
        }
    }

    /// Bytes for which there is memory.
    fn capacity(&self) -> usize {
        self.events.capacity() * size_of::<Event>()
            + self.changes.capacity()
            + self.taken.capacity() * size_of::<Taken>()
            + self.freed.capacity() * size_of::<BlockRange>()
            + self.dropped.capacity() * size_of::<Dropped>()
    }

    /// Whether a commit is being made that began with one of these. Little has arrived behind its freeze.
    pub(super) fn holds_a_freeze(&self) -> bool {
        self.events.iter().rev().any(|event| matches!(event, Event::Freeze(_)))
    }
}
