//! What waits for the log: operations as they arrived, and what is folded of them.
//!
//! P3 holds because operations arrive under the trees' lock, with their LSNs, and are folded in that order: whatever is
//! taken for a batch is everything up to a moment.

use std::sync::Arc;

use holdfast_base::Lsn;
use holdfast_base::mutants::{self, Mutant};
use holdfast_base::recover::RecoveryWork;
use holdfast_base::stop::Stop;
use holdfast_format::log::LogMark;
use parking_lot::{Mutex, MutexGuard};

use super::arrivals::{Arrival, Arrivals};
use super::pending::{Generations, Pending};
use super::position::LogPosition;
use crate::dropped_extents::{Counts, DroppedExtents};
use crate::log_resident::LogResident;
use crate::step::Step;
use crate::transaction::{Changes, Taken};

/// What is asked for and said under the trees' lock: nothing here takes long.
#[derive(Debug)]
struct Arrived {
    arrivals: Arrivals,
    /// Where the next batch goes.
    place: LogPosition,
    /// The commit that is being made changes the lineage: no batch holds what comes behind it before it is durable, or a
    /// replay would have to seal.
    is_held_back: bool,
}

/// Memory for which there is no use now.
pub(crate) struct Spares {
    _generations: Generations,
    _arrivals: [Arrivals; 2],
}

/// What waits for the log, and where the log stands. Its locks come after that of the space.
#[derive(Debug)]
pub(crate) struct PendingLog {
    /// Taken last.
    arrived: Mutex<Arrived>,
    pending: Mutex<Pending>,
    stop: Arc<Stop>,
}

impl PendingLog {
    /// Nothing is pending; everything up to `lsn` is durable.
    pub(crate) fn new(lsn: Lsn, mark: LogMark, stop: Arc<Stop>) -> PendingLog {
        let place = LogPosition::at(mark);
        let arrived = Arrived { arrivals: Arrivals::default(), place, is_held_back: false };
        let pending = Mutex::new(Pending::new(lsn, place));
        PendingLog { arrived: Mutex::new(arrived), pending, stop }
    }

    /// An operation became visible: everything that it changed. The caller holds the trees' lock. Returns how many bytes
    /// wait to be folded, about.
    pub(crate) fn arrive(
        &self,
        operation: (Lsn, Counts, bool),
        changes: &Changes,
        taken: Vec<Taken>,
        dropped_extents: DroppedExtents,
    ) -> usize {
        let mut arrived = self.arrived.lock();
        arrived.arrivals.add(operation, changes, taken, dropped_extents);
        arrived.arrivals.bytes()
    }

    /// What is pending, with all that has arrived.
    pub(crate) fn folded(&self) -> MutexGuard<'_, Pending> {
        let mut pending = self.pending.lock();
        self.fold(&mut pending, Pending::add);
        pending
    }

    /// Passes what has arrived to `each`.
    fn fold(&self, pending: &mut Pending, mut each: impl FnMut(&mut Pending, Arrival<'_, '_>)) {
        // What is folded in part would be a batch that misses some of it. Ends before the caller's lock does.
        let step = Step::begin(&self.stop, "the folding of operations");
        let spare = std::mem::take(&mut pending.spare_arrivals);
        let mut arrivals = std::mem::replace(&mut self.arrived.lock().arrivals, spare);
        arrivals.drain(|arrival| each(pending, arrival));
        pending.spare_arrivals = arrivals;
        step.end();
    }

    /// Where the log stands. What a batch on its way to the device holds may lie behind it.
    pub(crate) fn place(&self) -> LogPosition {
        self.arrived.lock().place
    }

    /// A batch is durable, or a recovery has found where the log goes on.
    pub(crate) fn set_place(&self, place: LogPosition) {
        self.arrived.lock().place = place;
    }

    /// An opening has found nothing in the log, which goes on here.
    pub(super) fn begin_at(&self, place: LogPosition) {
        self.set_place(place);
        self.pending.lock().begin_at(place);
    }

    /// Where the log begins that a recovery would read.
    pub(super) fn tail(&self) -> LogPosition {
        self.pending.lock().tail()
    }

    /// Tells what a recovery would have to do with the log, what of that once the commit is durable that is being made,
    /// and the bytes that wait. Told under the lock, or what is older could be told later.
    pub(super) fn tell_work(
        &self,
        resident: &LogResident,
        told: impl FnOnce(RecoveryWork, RecoveryWork, usize),
    ) {
        let pending = self.folded();
        let (all, fresh) = pending.work(self.place(), resident);
        told(all, fresh, pending.bytes());
    }

    /// The present moment becomes a commit, which needs nothing of the log before `log`. The caller holds the trees' lock.
    pub(crate) fn freeze(&self, log: LogPosition) {
        self.arrived.lock().arrivals.freeze(log);
    }

    /// Nothing goes into the log until the commit that begins now is durable. Else the number that a change of the lineage
    /// leaves out would be named as durable before it is.
    pub(crate) fn hold_back(&self) {
        self.arrived.lock().is_held_back = !mutants::is(Mutant::SealNotAwaited);
    }

    /// Whether nothing may go into the log at this moment. The caller holds what is [folded](PendingLog::folded): it was
    /// before what comes behind that commit, or that is durable.
    pub(super) fn is_held_back(&self) -> bool {
        self.arrived.lock().is_held_back
    }

    /// That commit is durable: the log before it is dead. Returns what it contains, which is no longer needed, as far as
    /// it was folded: the rest is forgotten as it came.
    pub(crate) fn thaw(&self) -> Generations {
        let mut pending = self.pending.lock();
        // Each of these goes wrong with what is folded.
        let folding = [Mutant::LoggedAgain, Mutant::DroppedWithCommit, Mutant::BatchOverFreeze];
        // The freeze is this commit's, and no other can arrive before its thaw.
        let mut is_contained =
            self.arrived.lock().arrivals.holds_a_freeze() && !folding.into_iter().any(mutants::is);
        let (mut last, mut gone) = (None, Generations::new());
        self.fold(&mut pending, |pending, arrival| match arrival {
            Arrival::Freeze(log) if is_contained => {
                is_contained = false;
                gone = pending.drop_all(last, log);
            }
            Arrival::Operation(operation) if is_contained => last = Some(operation.lsn),
            arrival => pending.add(arrival),
        });
        self.arrived.lock().is_held_back = false;
        gone.append(&mut pending.thaw());
        gone
    }

    /// Blocks of data that wait for the next batch's flush.
    pub(crate) fn unflushed_blocks(&self) -> u64 {
        let pending = self.pending.lock();
        pending.unflushed_blocks() + self.arrived.lock().arrivals.unflushed_blocks()
    }

    /// Keeps emptied generations for their memory, and returns those for which there is no use: to be dropped without
    /// the lock.
    #[must_use = "the lock is better let go first"]
    pub(super) fn give_back(&self, spares: Generations) -> Generations {
        self.pending.lock().give_back(spares)
    }

    /// Takes out what is kept for its memory; to be dropped without the locks.
    pub(crate) fn take_spares(&self) -> Spares {
        let mut pending = self.pending.lock();
        let mut arrived = self.arrived.lock();
        let was_empty = arrived.arrivals.is_empty();
        let arrivals =
            if was_empty { std::mem::take(&mut arrived.arrivals) } else { Arrivals::default() };
        Spares {
            _generations: pending.take_spares(),
            _arrivals: [arrivals, std::mem::take(&mut pending.spare_arrivals)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transaction::TakenContent;
    use holdfast_base::{BlockNo, BlockRange, InodeNo};
    use holdfast_format::Key;
    use holdfast_format::item::InodeItem;
    use holdfast_format::item::lineage::MAIN;
    use proptest::prelude::*;

    fn arrive(pending: &PendingLog, lsn: u64) {
        let mut changes = Changes::default();
        changes.put(Key::inode(InodeNo(20 + lsn % 3)), &[lsn as u8; InodeItem::SIZE]);
        changes.delete(Key::orphan(InodeNo(lsn)));
        let blocks = BlockRange::new(BlockNo(lsn * 10), 2);
        let taken = vec![Taken { blocks, content: TakenContent::Written(lsn) }];
        let counts = Counts { branch: MAIN, inodes: lsn, main: lsn };
        let free = BlockRange::new(BlockNo(lsn * 10 + 5), 1);
        let dropped_extents = DroppedExtents { free: vec![free], dropped: Vec::new() };
        pending.arrive((Lsn(lsn), counts, false), &changes, taken, dropped_extents);
    }

    fn shown(pending: &PendingLog) -> Vec<String> {
        let taken = pending.folded().take();
        taken.iter().map(|generation| generation.shown(&[20, 21, 22])).collect()
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Operation,
        Fold,
        Freeze,
        Thaw,
    }

    proptest! {
        /// Whenever it is folded: what a batch would hold is the same.
        #[test]
        fn when_arrivals_are_folded_is_not_seen(
            steps in prop::collection::vec(
                prop_oneof![Just(Step::Operation), Just(Step::Fold), Just(Step::Freeze), Just(Step::Thaw)],
                1..60,
            ),
        ) {
            let new = || PendingLog::new(Lsn(0), LogMark::START, Arc::default());
            let (late, early) = (new(), new());
            let (mut lsn, mut freezes, mut unflushed) = (0, false, [0, 0]);
            for step in steps {
                match step {
                    Step::Operation => {
                        lsn += 1;
                        arrive(&late, lsn);
                        arrive(&early, lsn);
                        unflushed[1] += 2;
                    }
                    Step::Fold => drop(late.folded()),
                    Step::Freeze if !freezes => {
                        let log = LogPosition { head: lsn, ..LogPosition::at(LogMark::START) };
                        late.freeze(log);
                        early.freeze(log);
                        freezes = true;
                        unflushed = [unflushed[0] + unflushed[1], 0];
                    }
                    Step::Thaw if freezes => {
                        drop(late.thaw());
                        drop(early.thaw());
                        freezes = false;
                        unflushed[0] = 0;
                    }
                    Step::Freeze | Step::Thaw => {}
                }
                drop(early.folded());
                prop_assert_eq!(late.unflushed_blocks(), unflushed[0] + unflushed[1]);
            }
            prop_assert_eq!(late.tail().head, early.tail().head);
            prop_assert_eq!(shown(&late), shown(&early));
            prop_assert_eq!(late.unflushed_blocks(), 0);
        }
    }

    #[test]
    fn what_a_commit_contains_is_not_folded_at_its_thaw() {
        let pending = PendingLog::new(Lsn(0), LogMark::START, Arc::default());
        (1..=3).for_each(|lsn| arrive(&pending, lsn));
        pending.freeze(pending.place());
        arrive(&pending, 4);
        assert_eq!(pending.thaw().iter().map(|of| of.len()).sum::<usize>(), 0);
        let taken = pending.folded().take();
        assert_eq!((taken.len(), taken[0].after, taken[0].last), (1, Lsn(3), Lsn(4)));
    }
}
