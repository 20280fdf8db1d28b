//! What operations changed and the log does not hold yet.
//!
//! Always true: a [`Generation`] holds every change of the operations behind
//! `after`, up to `last`, each key once with its final value. The generations
//! follow one another without a gap, from what is durable to what was folded last. A
//! commit begins a new one at the moment of its freeze, so that no batch of the
//! log reaches over it, and drops those before when it is durable. Until then an
//! fsync logs them too: it never waits for the commit.

mod sent;

use std::collections::VecDeque;

use holdfast_base::mutants::{self, Mutant};
use holdfast_base::recover::RecoveryWork;
use holdfast_base::{InodeNo, Lsn};

use super::arrivals::{Arrival, Arrivals};
use super::generation::Generation;
use super::position::LogPosition;
use crate::log_resident::LogResident;

/// Generations whose memory is kept for the next ones: while one is filled, a batch and a commit may each bring one
/// back.
pub(super) const SPARES: usize = 2;

/// Generations, the oldest first. Each has its own allocation: they move from here to the leader and back.
pub(super) type Generations = VecDeque<Box<Generation>>;

/// What waits for the log, but for what has only arrived ([`super::PendingLog`]).
#[derive(Debug)]
pub(crate) struct Pending {
    /// One after the other; operations go to the last one. No other is empty.
    generations: Generations,
    /// The commit that is being made.
    frozen: Option<FrozenGenerations>,
    /// Some that went, for their memory. Each comes to use in turn, and is judged by that.
    spares: Generations,
    /// Empty, for its memory.
    pub(super) spare_arrivals: Arrivals,
    /// No recovery reads what lies before.
    tail: LogPosition,
}

/// What a commit takes that is being made.
#[derive(Debug)]
struct FrozenGenerations {
    /// The generations that it contains, from the first on.
    generations: usize,
    /// What lies in the log before is dead when it is durable.
    log: LogPosition,
}

impl Pending {
    /// Nothing is pending; everything up to `lsn` is durable.
    pub(super) fn new(lsn: Lsn, tail: LogPosition) -> Pending {
        let generations = Generations::from([Generation::new(lsn)]);
        Pending {
            generations,
            frozen: None,
            spares: VecDeque::new(),
            spare_arrivals: Arrivals::default(),
            tail,
        }
    }

    fn open(&mut self) -> &mut Generation {
        self.generations.back_mut().expect("there is always one to add to")
    }

    /// What comes next is of another generation than what was added last.
    fn end(&mut self) {
        if !self.open().is_empty() {
            self.begin();
        }
    }

    fn begin(&mut self) {
        let after = self.open().last;
        let spare = self.spares.pop_front();
        let mut next = spare.unwrap_or_else(|| Generation::new(after));
        (next.after, next.last) = (after, after);
        self.generations.push_back(next);
    }

    /// Keeps emptied generations for their memory, and returns those for which there is no use: to be dropped
    /// without the lock.
    #[must_use = "the lock is better let go first"]
    pub(super) fn give_back(&mut self, mut spares: Generations) -> Generations {
        let kept = spares.len().min(SPARES.saturating_sub(self.spares.len()));
        self.spares.extend(spares.drain(..kept));
        spares
    }

    /// Takes out what is kept for its memory.
    pub(super) fn take_spares(&mut self) -> Generations {
        std::mem::take(&mut self.spares)
    }

    /// Folds an operation in, or begins a commit.
    pub(super) fn add(&mut self, arrival: Arrival<'_, '_>) {
        match arrival {
            Arrival::Freeze(log) => self.freeze(log),
            Arrival::Operation(operation) => {
                if self.open().is_full() {
                    self.begin();
                }
                self.open().add(operation);
            }
        }
    }

    /// Whether only a commit can make durable what is pending.
    pub(super) fn has_moves(&self) -> bool {
        self.generations.iter().any(|generation| generation.moves)
    }

    /// Where the log begins that a recovery would read.
    pub(super) fn tail(&self) -> LogPosition {
        self.tail
    }

    /// What a recovery would have to do with the log up to `place`, and what of that once the commit is durable that is being made.
    pub(super) fn work(
        &self,
        place: LogPosition,
        resident: &LogResident,
    ) -> (RecoveryWork, RecoveryWork) {
        let dead_soon = self.frozen.as_ref().map_or(&self.tail, |frozen| &frozen.log);
        let all = place.since(&self.tail, resident.bytes());
        (all, place.since(dead_soon, resident.fresh_bytes()))
    }

    /// An opening has found nothing in the log, which goes on here.
    pub(super) fn begin_at(&mut self, place: LogPosition) {
        self.tail = place;
    }

    /// A recovery has brought the volume to `lsn`: operations go on from there.
    pub(super) fn restart(&mut self, lsn: Lsn) {
        assert!(
            self.frozen.is_none() && self.open().is_empty(),
            "nobody changes what is recovered"
        );
        self.generations = Generations::from([Generation::new(lsn)]);
    }

    /// The present moment becomes a commit, which needs nothing of the log before `log`.
    fn freeze(&mut self, log: LogPosition) {
        assert!(self.frozen.is_none(), "one commit at a time");
        if !mutants::is(Mutant::BatchOverFreeze) {
            self.end();
        }
        self.frozen = Some(FrozenGenerations { generations: self.generations.len() - 1, log });
    }

    /// That commit is durable: the log before it is dead. Returns what it contains, which is no longer needed.
    pub(super) fn thaw(&mut self) -> Generations {
        let Some(frozen) = self.frozen.take() else {
            return Generations::new();
        };
        self.tail = frozen.log;
        let dropped = match frozen.generations {
            _ if mutants::is(Mutant::LoggedAgain) => 0,
            _ if mutants::is(Mutant::DroppedWithCommit) => {
                self.begin();
                self.generations.len() - 1
            }
            generations => generations,
        };
        self.generations.drain(..dropped).collect()
    }

    /// A commit is durable which contains all that is here, and what came behind it up to `last`; the log before `log` is
    /// dead. Returns what is no longer needed.
    pub(super) fn drop_all(&mut self, last: Option<Lsn>, log: LogPosition) -> Generations {
        assert!(self.frozen.is_none(), "one commit at a time");
        let last = last.unwrap_or(self.open().last);
        self.end();
        let open = self.open();
        (open.after, open.last) = (last, last);
        self.tail = log;
        let gone = self.generations.len() - 1;
        self.generations.drain(..gone).collect()
    }

    /// More bytes than each of the batches can have that would hold what is pending now.
    pub(super) fn bounds(&self) -> impl Iterator<Item = usize> {
        let generations = self.generations.iter().filter(|generation| !generation.is_empty());
        generations.map(|generation| generation.batch_bound())
    }

    fn frozen_generations(&self) -> usize {
        self.frozen.as_ref().map_or(0, |frozen| frozen.generations)
    }

    /// Bytes that wait and that no commit takes away which is being made, about.
    pub(crate) fn bytes(&self) -> usize {
        let waiting = self.generations.iter().skip(self.frozen_generations());
        waiting.map(|generation| generation.bytes()).sum()
    }

    /// Blocks of data that wait for the next batch's flush.
    pub(super) fn unflushed_blocks(&self) -> u64 {
        self.generations.iter().map(|generation| generation.unflushed_blocks()).sum()
    }

    /// Takes what is pending: it is on its way into the log.
    pub(super) fn take(&mut self) -> Generations {
        self.end();
        if mutants::is(Mutant::FrozenNotLogged) {
            self.generations.drain(..self.frozen_generations());
        }
        let taken = self.generations.len() - 1;
        if let Some(frozen) = &mut self.frozen {
            frozen.generations = 0;
        }
        self.generations.drain(..taken).collect()
    }

    /// Records that tell of an inode and its names, and all records.
    pub(super) fn records(&self, of: InodeNo) -> (u64, u64) {
        let each = self.generations.iter().map(|generation| generation.records(of));
        each.fold((0, 0), |sum, (own, all)| (sum.0 + own, sum.1 + all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dropped_extents::{Counts, DroppedExtents};
    use crate::transaction::{Changes, Taken, TakenContent};
    use holdfast_base::BlockNo;
    use holdfast_base::BlockRange;
    use holdfast_format::item::lineage::MAIN;
    use holdfast_format::item::{Dentry, FileType, InodeItem};
    use holdfast_format::log::LogMark;
    use holdfast_format::{ItemKind, Key};

    impl Pending {
        /// An operation arrives and is folded in at once.
        pub(in crate::log) fn arrive(
            &mut self,
            lsn: Lsn,
            counts: Counts,
            changes: &Changes,
            taken: Vec<Taken>,
            dropped_extents: DroppedExtents,
        ) {
            let mut arrivals = Arrivals::default();
            arrivals.add((lsn, counts, false), changes, taken, dropped_extents);
            arrivals.drain(|arrival| self.add(arrival));
        }
    }

    fn counts(main: u64) -> Counts {
        Counts { branch: MAIN, inodes: main, main }
    }

    fn put(numbers: &[u64]) -> Changes {
        let mut changes = Changes::default();
        for no in numbers {
            changes.put(Key::inode(InodeNo(*no)), &[*no as u8; InodeItem::SIZE]);
        }
        changes
    }

    #[test]
    fn a_key_is_kept_once_with_its_last_value() {
        let mut pending = Pending::new(Lsn(4), LogPosition::at(LogMark::START));
        pending.arrive(
            Lsn(5),
            counts(1),
            &put(&[20, 21, 20]),
            Vec::new(),
            DroppedExtents::default(),
        );
        let mut gone = Changes::default();
        gone.delete(Key::inode(InodeNo(21)));
        pending.arrive(Lsn(6), counts(1), &gone, Vec::new(), DroppedExtents::default());
        assert_eq!(pending.records(InodeNo(21)), (1, 2));
        let taken = pending.take();
        assert_eq!((taken.len(), taken[0].after, taken[0].last), (1, Lsn(4), Lsn(6)));
        assert_eq!(taken[0].inode(MAIN, InodeNo(21)), Some(1));
        assert_eq!(taken[0].change(0).value, Some(&[20; InodeItem::SIZE][..]));
        assert!(taken[0].change(1).value.is_none());
        assert!(pending.take().is_empty());
    }

    #[test]
    fn no_batch_reaches_over_the_freeze_of_a_commit() {
        let mut pending = Pending::new(Lsn(0), LogPosition::at(LogMark::START));
        pending.arrive(Lsn(1), counts(1), &put(&[20]), Vec::new(), DroppedExtents::default());
        pending.freeze(LogPosition::at(LogMark::START));
        pending.arrive(Lsn(2), counts(1), &put(&[20]), Vec::new(), DroppedExtents::default());
        let taken = pending.take();
        let spans: Vec<_> = taken.iter().map(|g| (g.after.0, g.last.0)).collect();
        assert_eq!(
            spans,
            [(0, 1), (1, 2)],
            "the commit is not durable: its changes are logged too"
        );
        pending.arrive(Lsn(3), counts(1), &put(&[20]), Vec::new(), DroppedExtents::default());
        pending.thaw();
        pending.freeze(LogPosition::at(LogMark::START));
        pending.thaw();
        assert!(pending.take().is_empty(), "the commit holds it");
        pending.arrive(Lsn(4), counts(1), &put(&[20]), Vec::new(), DroppedExtents::default());
        assert_eq!(
            pending.take().iter().map(|g| (g.after.0, g.last.0)).collect::<Vec<_>>(),
            [(3, 4)]
        );
    }

    #[test]
    fn the_log_before_a_commit_is_dead_when_it_is_durable() {
        let (mut pending, resident) =
            (Pending::new(Lsn(0), LogPosition::at(LogMark::START)), LogResident::default());
        let bytes = |pending: &mut Pending, head: u64, data: u64| {
            let place = LogPosition { head, data, ..LogPosition::at(LogMark::START) };
            let (all, fresh) = pending.work(place, &resident);
            [all.log_bytes, all.log_data_bytes, fresh.log_bytes, fresh.log_data_bytes]
        };
        assert_eq!(bytes(&mut pending, 5000, 4000), [5000, 4000, 5000, 4000]);
        // The place was read before the last batch.
        pending.freeze(LogPosition { head: 4000, data: 3000, ..LogPosition::at(LogMark::START) });
        assert_eq!(bytes(&mut pending, 6000, 4500), [6000, 4500, 2000, 1500]);
        assert_eq!(pending.tail().head, 0, "it may be read yet");
        pending.thaw();
        assert_eq!(bytes(&mut pending, 6000, 4500), [2000, 1500, 2000, 1500]);
        assert_eq!(pending.tail().head, 4000);
    }

    /// Names, values, data and freed blocks.
    fn all_kinds(pending: &mut Pending, lsn: u64) {
        let mut changes = put(&[lsn, lsn + 100]);
        let name = Dentry { inode: InodeNo(lsn), file_type: FileType::Regular, name: b"name" };
        changes.put_with(Key::new(InodeNo(2), ItemKind::Dentry, lsn << 8), |out| name.write(out));
        changes.delete(Key::orphan(InodeNo(lsn)));
        let blocks = BlockRange::new(BlockNo(lsn), 2);
        let taken = vec![Taken { blocks, content: TakenContent::Written(lsn) }];
        let dropped_extents = DroppedExtents { free: vec![blocks], dropped: Vec::new() };
        pending.arrive(Lsn(lsn), counts(lsn), &changes, taken, dropped_extents);
    }

    #[test]
    fn a_generation_in_used_memory_is_as_one_in_new() {
        let mut used = Pending::new(Lsn(4), LogPosition::at(LogMark::START));
        all_kinds(&mut used, 5);
        let gone: Generations = used.take().into_iter().filter_map(Generation::emptied).collect();
        assert_eq!(gone.len(), 1, "there is something to use again");
        assert!(used.give_back(gone).is_empty());
        all_kinds(&mut used, 6);
        used.take();
        assert!(used.spares.is_empty(), "it is used");
        all_kinds(&mut used, 7);

        let mut new = Pending::new(Lsn(6), LogPosition::at(LogMark::START));
        all_kinds(&mut new, 7);
        assert_eq!(used.records(InodeNo(7)), new.records(InodeNo(7)));
        assert_eq!(used.bounds().collect::<Vec<_>>(), new.bounds().collect::<Vec<_>>());
        assert_eq!(used.unflushed_blocks(), new.unflushed_blocks());
        let (used, new) = (used.take(), new.take());
        assert_eq!((used.len(), new.len()), (1, 1));
        let of = [2, 5, 105, 7, 107];
        assert_eq!(used[0].shown(&of), new[0].shown(&of));
    }

    /// Puts and deletes a long value, as often as it takes to fill a generation; how often that was.
    fn burst(pending: &mut Pending, mut lsn: u64) -> u64 {
        let first = lsn;
        while !pending.open().is_full() {
            let mut changes = Changes::default();
            changes.put(Key::new(InodeNo(lsn), ItemKind::Extent, 0), &[7; 4000]);
            changes.delete(Key::new(InodeNo(lsn), ItemKind::Extent, 0));
            pending.arrive(Lsn(lsn), counts(1), &changes, Vec::new(), DroppedExtents::default());
            lsn += 1;
        }
        lsn - first
    }

    #[test]
    fn what_was_deleted_takes_memory_until_its_generation_goes() {
        let mut pending = Pending::new(Lsn(0), LogPosition::at(LogMark::START));
        let count = burst(&mut pending, 1);
        assert!(count < 1000, "{count} operations until it is much");
        assert!(pending.open().is_full());
        pending.arrive(
            Lsn(count + 1),
            counts(1),
            &put(&[20]),
            Vec::new(),
            DroppedExtents::default(),
        );
        assert_eq!(pending.take().len(), 2, "what is full in memory is followed by another");
    }

    #[test]
    fn memory_of_a_burst_is_not_kept() {
        let mut pending = Pending::new(Lsn(0), LogPosition::at(LogMark::START));
        let count = burst(&mut pending, 1);
        let mut lsn = count + 1;
        let mut next = |pending: &mut Pending| {
            pending.arrive(Lsn(lsn), counts(1), &put(&[20]), Vec::new(), DroppedExtents::default());
            lsn += 1;
            let taken = pending.take();
            assert_eq!(pending.take().len(), 0, "an empty one stays for what comes");
            taken
        };
        let give = |pending: &mut Pending, gone: Generations| {
            let spares: Generations = gone.into_iter().filter_map(Generation::emptied).collect();
            pending.give_back(spares).len()
        };
        let large = |pending: &Pending| {
            let all = pending.spares.iter().chain(&pending.generations);
            all.filter(|generation| generation.is_large()).count()
        };
        let both = next(&mut pending);
        assert_eq!((both.len(), give(&mut pending, both), large(&pending)), (2, 0, 1));
        // There is room for two; the third has no use.
        let third = next(&mut pending);
        assert_eq!(pending.spares.len(), 1);
        let more = Generations::from([Generation::new(Lsn(0))]);
        assert_eq!((give(&mut pending, third), give(&mut pending, more)), (0, 1));
        // Each is used in turn, and the large one goes once it was used for little.
        for _ in 0..4 {
            let gone = next(&mut pending);
            give(&mut pending, gone);
        }
        assert_eq!(large(&pending), 0);
        assert!(!pending.spares.is_empty());
    }
}
