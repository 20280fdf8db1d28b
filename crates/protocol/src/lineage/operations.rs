//! What programs and people may do, and what each transaction does.

use super::log::Record;
use super::mutant::Mutant;
use super::volume::{Broken, Extent, Hand, NODE, Version, Volume};
use super::{Action, BranchKey, Lineage, MachineState};

/// A promotion counts as so many operations: it is a deletion of a branch and a rollback of another one.
const PROMOTION: u8 = 2;
/// And a branch out of nothing: what is special of it shows within three others.
const NEW_BRANCH: u8 = 2;
/// Where a walk has left nothing to do but to end.
const PAST: usize = NODE + 1;

impl Action {
    /// As so many operations it counts.
    pub(super) fn operations(self) -> u8 {
        match self {
            Action::BeginDeletion(_) | Action::Walk(_) | Action::Publish => 0,
            Action::Promote(..) | Action::PromoteUnchanged(..) => PROMOTION,
            Action::NewBranch => NEW_BRANCH,
            _ => 1,
        }
    }

    /// Whether the log says nothing of it: a commit freezes with it.
    pub(super) fn comes_with_a_commit(self, broken: Broken) -> bool {
        match self {
            Action::NewBranch => broken != Some(Mutant::NewBranchLogged),
            Action::Checkpoint
            | Action::Snapshot(_)
            | Action::RollBack(..)
            | Action::Promote(..)
            | Action::PromoteUnchanged(..)
            | Action::DeleteBranch(_) => true,
            _ => false,
        }
    }
}

impl Lineage {
    /// What programs and people may do.
    pub(super) fn operations(&self, state: &MachineState, actions: &mut Vec<Action>) {
        let volume = &state.volume;
        let fits = |operations| state.operations + operations <= self.bounds.operations;
        let branch_fits = volume.branches.contains(&None);
        let room = volume.snapshots.iter().filter(|of| of.is_none()).count();
        let may_freeze = state.frozen.is_none();
        if may_freeze {
            actions.push(Action::Checkpoint);
            if branch_fits && fits(NEW_BRANCH) {
                actions.push(Action::NewBranch);
            }
        }
        for branch in volume.branches() {
            self.files(state, branch, actions);
            // It says of the lineage only what was not durable before.
            if self.bounds.log && self.may_crash(state) && volume.branch(branch).parent.is_some() {
                actions.push(Action::Rename(branch));
            }
            let waits = state.sent.is_some_and(|((of, _), _)| of == branch);
            if may_freeze && room > 0 && !waits {
                actions.extend([Action::Snapshot(branch), Action::DeleteBranch(branch)]);
                let back = |to| [false, true].map(|keep| Action::RollBack(branch, to, keep));
                actions.extend(volume.named().flat_map(back));
            }
            // None has data on its way: the branch stands still, and the fork is not open. The log sees a rollback in it.
            if !self.bounds.log && room > 1 && state.sent.is_none() && fits(PROMOTION) {
                for fork in volume.branches().filter(|fork| *fork != branch) {
                    actions.extend([false, true].map(|keep| Action::Promote(branch, fork, keep)));
                    let is_unasked = self.broken == Some(Mutant::PromotedAsItWas);
                    if is_unasked || !volume.has_diverged(branch, fork) {
                        actions.push(Action::PromoteUnchanged(branch, fork));
                    }
                }
            }
        }
        for snapshot in volume.named() {
            actions.push(Action::Delete(snapshot));
            if branch_fits {
                actions.push(Action::Fork(snapshot));
            }
        }
    }

    fn files(&self, state: &MachineState, branch: usize, actions: &mut Vec<Action>) {
        let waits = state.sent.is_some_and(|((of, _), _)| of == branch);
        for key in (0..self.bounds.keys).filter(|key| !waits || *key > 0) {
            let at = (branch, key);
            let item = state.volume.item(at);
            actions.push(Action::Write(at));
            if item.is_some() {
                actions.push(Action::Remove(at));
            }
            // What is special about reserved blocks shows without a log, and with one key.
            if self.bounds.log {
                continue;
            }
            if item.is_some_and(|extent| extent.version == 0) {
                actions.extend(state.sent.is_none().then_some(Action::Fill(at)));
            } else if key == 0 {
                actions.push(Action::Reserve(at));
                actions.extend(item.map(|_| Action::Unwrite(at)));
            }
        }
    }

    /// Carries out a transaction. Answers what the log is told of it.
    pub(super) fn carry_out(&self, state: &mut MachineState, action: Action) -> Vec<Record> {
        let MachineState { device, unwritten, judged, sent, .. } = state;
        let kept = state.freed | state.freed_frozen;
        let broken = self.broken;
        let hand = &mut Hand { device, kept, freed: 0, unwritten, broken };
        let before = state.volume.clone();
        let mut records = Vec::new();
        state.volume.change(|volume| {
            match action {
                Action::Write(at) | Action::Remove(at) => {
                    let is_written = matches!(action, Action::Write(..));
                    let value = is_written.then(|| volume.write(hand));
                    records.extend(value.map(|value| Record::Take(value.at)));
                    records.push(Record::Put(at, value));
                    if let Some(old) = volume.put(at, value, hand) {
                        records.extend(judged.dropped(volume, at, old, broken));
                    }
                }
                Action::Fork(snapshot) => {
                    let branch = volume.fork(snapshot, broken);
                    let fork = volume.branches[branch];
                    records.push(Record::Item { branch, parent: Some(snapshot), fork });
                }
                Action::Rename(branch) => {
                    let parent = volume.branch(branch).parent;
                    records.push(Record::Item { branch, parent, fork: None });
                }
                Action::NewBranch => {
                    let branch = volume.new_branch(hand);
                    records.push(Record::Item { branch, parent: None, fork: None });
                }
                Action::Delete(snapshot) => {
                    volume.snapshot_mut(snapshot).is_named = false;
                    records.push(Record::Delete(snapshot));
                }
                _ => self.unlogged(volume, sent, hand, action),
            }
            volume.judge(hand.device);
        });
        let freed = hand.freed;
        state.judged.follow(&before, &state.volume);
        state.freed |= freed;
        if broken == Some(Mutant::CursorWithoutFrees)
            && matches!(action, Action::BeginDeletion(_) | Action::Walk(_))
        {
            state.walked |= freed;
        }
        state.operations += action.operations();
        records
    }

    /// What no log tells of.
    fn unlogged(
        &self,
        volume: &mut Volume,
        sent: &mut Option<(BranchKey, Version)>,
        hand: &mut Hand<'_>,
        action: Action,
    ) {
        let broken = self.broken;
        match action {
            Action::Reserve(at) => volume.reserve(at, hand),
            Action::Unwrite(at) => volume.unwrite(at, hand),
            Action::Fill(at) => {
                *sent = volume.send(at, hand).map(|version| (at, version));
                if sent.is_none() {
                    let value = volume.write(hand);
                    volume.put(at, Some(value), hand);
                }
            }
            Action::Publish => {
                let (at, version) = sent.take().expect("it is on its way");
                let filled = |old: Extent| Extent { version, ..old };
                volume.put(at, volume.item(at).map(filled), hand);
            }
            Action::Checkpoint => volume.epoch += 1,
            Action::Snapshot(branch) => {
                volume.snapshot_of(branch, true, broken);
            }
            Action::RollBack(branch, snapshot, keep) => {
                volume.roll_back(branch, snapshot, keep, broken);
            }
            Action::Promote(branch, fork, keep) => volume.promote(branch, fork, keep, broken),
            Action::PromoteUnchanged(branch, fork) => {
                if volume.has_diverged(branch, fork) {
                    volume.fail("S6a: a promotion takes back what was done since the fork");
                }
                volume.promote(branch, fork, false, broken);
            }
            Action::DeleteBranch(branch) => volume.delete_branch(branch, broken),
            Action::BeginDeletion(at) => volume.snapshot_mut(at).cursor = Some(0),
            Action::Walk(at) => volume.walk(at, hand),
            _ => unreachable!("{action:?} is no transaction, or logged"),
        }
        // Beside a log a deletion begins with its first step, and ends with its last one.
        if let Action::BeginDeletion(at) | Action::Walk(at) = action
            && self.bounds.log
            && volume.snapshots[at].is_some_and(|of| matches!(of.cursor, Some(0 | PAST)))
        {
            volume.walk(at, hand);
        }
    }
}
