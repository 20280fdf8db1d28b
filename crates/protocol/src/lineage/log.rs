//! S7, the log: what an operation says there, how a batch joins several, and how a replay carries a batch out.

use super::BranchKey;
use super::mutant::Mutant;
use super::volume::{
    BRANCHES, Blocks, Branch, Broken, Epoch, Hand, Pointer, UserView, Value, Volume,
};

/// Which parents a recovery may judge by what a branch drops.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Judged {
    /// Of each branch: no commit that a recovery may begin with has a later parent.
    from: [Epoch; BRANCHES],
    /// Branches whose parent went since the last commit began, with the epoch of the parent since.
    orphaned: [Option<Epoch>; BRANCHES],
    /// The same, of the commit that is on its way.
    frozen: [Option<Epoch>; BRANCHES],
}

impl Judged {
    /// What a volume is that was just recovered, or made.
    pub(super) fn of(volume: &Volume) -> Judged {
        let from = volume.branches.map(|of| volume.epoch_of(of.and_then(|of| of.parent)));
        Judged { from, ..Judged::default() }
    }

    /// A transaction has changed parents. What a deletion has ended a recovery may find until the next commit is durable.
    pub(super) fn follow(&mut self, before: &Volume, volume: &Volume) {
        let parent = |of: &Volume, at: usize| of.branches[at].map(|of| of.parent);
        for at in 0..BRANCHES {
            let (was, is) = (parent(before, at), parent(volume, at));
            let now = volume.epoch_of(is.flatten());
            match was.flatten() {
                _ if was == is => {}
                gone @ Some(at_before) if volume.snapshots[at_before].is_none() => {
                    self.from[at] = self.from[at].max(before.epoch_of(gone));
                    self.orphaned[at] = Some(now);
                }
                _ => (self.from[at], self.orphaned[at]) = (now, None),
            }
        }
    }

    /// The present moment becomes a commit.
    pub(super) fn freeze(&mut self) {
        for (frozen, orphaned) in self.frozen.iter_mut().zip(&mut self.orphaned) {
            *frozen = orphaned.take().or(*frozen);
        }
    }

    /// That commit is durable.
    pub(super) fn thaw(&mut self, broken: Broken) {
        for at in 0..BRANCHES {
            let early = self.orphaned[at].filter(|_| broken == Some(Mutant::JudgedFromEndsEarly));
            let parent = self.frozen[at].take();
            let parent = early.or(parent.filter(|_| self.orphaned[at].is_none()));
            self.from[at] = parent.unwrap_or(self.from[at]);
        }
    }

    /// What the log says of `old`, which a branch gave up and which was its own: it is free, or a replay judges.
    pub(super) fn dropped(
        &self,
        volume: &Volume,
        at: BranchKey,
        old: Pointer,
        broken: Broken,
    ) -> Option<Record> {
        let parent = volume.epoch_of(volume.branch(at.0).parent);
        let sure = match broken {
            Some(Mutant::JudgedFromForgotten) => parent,
            _ => parent.max(self.from[at.0]),
        };
        if old.birth > sure || broken == Some(Mutant::DropLoggedAsFree) {
            return Some(Record::Free(old));
        }
        (broken != Some(Mutant::DropNotLogged)).then_some(Record::Drop(at, old))
    }
}

/// One record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Record {
    /// A key of a branch has another value.
    Put(BranchKey, Value),
    /// A block is in use.
    Take(Pointer),
    /// Free, whatever commit a replay begins with.
    Free(Pointer),
    /// A branch drops it, at a place: the replay judges.
    Drop(BranchKey, Pointer),
    /// The item of a branch.
    Item {
        branch: usize,
        /// As it was in memory.
        parent: Option<usize>,
        /// It is new: as it was put, beside the snapshot that is its parent here.
        fork: Option<Branch>,
    },
    /// A snapshot has lost its name.
    Delete(usize),
}

/// Operations that are durable together, or not at all.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Batch {
    records: Vec<Record>,
    /// What a user sees behind it.
    pub(super) seen: UserView,
}

impl Batch {
    /// An operation is added. Of each item and key the last value counts.
    pub(super) fn add(batch: &mut Option<Batch>, records: Vec<Record>, seen: UserView) {
        use Record::{Item, Put};
        let of = batch.get_or_insert(Batch { records: Vec::new(), seen });
        of.seen = seen;
        for record in records {
            let known = of.records.iter_mut().find(|known| match (record, &**known) {
                (Put(at, _), Put(other, _)) => at == *other,
                (Item { branch, .. }, Item { branch: other, .. }) => branch == *other,
                _ => false,
            });
            match (known, record) {
                (Some(Item { parent: known, .. }), Item { parent, .. }) => *known = parent,
                (Some(known), record) => *known = record,
                (None, record) => of.records.push(record),
            }
        }
    }

    /// Blocks that it names, where a replay copies no node, and the youngest birth.
    pub(super) fn named(&self) -> (Blocks, Epoch) {
        self.records.iter().fold((0, 0), |(named, youngest), record| match record {
            Record::Take(at) => (named | at.bit(), youngest.max(at.birth)),
            Record::Free(at) | Record::Drop(_, at) => (named | at.bit(), youngest),
            _ => (named, youngest),
        })
    }

    /// A replay carries it out.
    pub(super) fn replay(&self, volume: &mut Volume, hand: &mut Hand<'_>) {
        for record in &self.records {
            match *record {
                // A branch that is there keeps its parent: only commits change parents, and the log has what it was in memory.
                // The parent of one that is new is the snapshot that it was put beside, for the same reason.
                Record::Item { branch, parent, fork } => match (&mut volume.branches[branch], fork)
                {
                    (Some(known), _) if hand.is(Mutant::ParentFromLog) => known.parent = parent,
                    (Some(_), _) => {}
                    (None, Some(fork)) => {
                        let from_item = hand.is(Mutant::ParentOfNewFromItem);
                        let parent = if from_item { parent } else { fork.parent };
                        volume.branches[branch] = Some(Branch { parent, ..fork });
                    }
                    (None, None) => volume.fail("S7: a replay changes a branch that is not there"),
                },
                Record::Delete(snapshot) if volume.snapshots[snapshot].is_some() => {
                    volume.snapshot_mut(snapshot).is_named = false;
                }
                Record::Delete(_) => volume.fail("S7: a replay deletes what is not there"),
                _ => {}
            }
        }
        let mut freed = Vec::new();
        for record in &self.records {
            match *record {
                Record::Put((branch, _), _) | Record::Drop((branch, _), _)
                    if volume.branches[branch].is_none() =>
                {
                    return volume.fail("S7: a replay changes a branch that is not there");
                }
                // The log says for itself what the branch gives up.
                Record::Put(at, value) => {
                    volume.set(at, value, hand);
                }
                Record::Take(at) if volume.used & at.bit() != 0 => {
                    volume.fail("R7: a replay takes a block that is in use");
                }
                Record::Take(at) => volume.used |= at.bit(),
                Record::Free(at) => freed.push(at),
                Record::Drop(place, at) => {
                    let is_own = match hand.broken {
                        Some(Mutant::ReplayFreesAll) => true,
                        Some(Mutant::ReplayFreesNothing) => false,
                        broken => volume.owns(place, at, broken),
                    };
                    freed.extend(is_own.then_some(at));
                }
                Record::Item { .. } | Record::Delete(_) => {}
            }
        }
        // Last: some of it may have been taken by the same batch.
        for at in freed {
            volume.free(at, hand);
        }
    }
}
