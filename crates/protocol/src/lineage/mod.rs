//! Branches, snapshots, forks, rollbacks and deletions as a small model: the rules S1 to S6a of docs/BRANCHES.md in every
//! order.
//!
//! One volume, two branches, a tree of one node and two keys. Programs write, people snapshot, fork, roll back,
//! promote and delete, deletions walk behind the scenes, and power fails: the volume is then as it was at the last durable moment.
//! After each action every branch and snapshot holds what it must (P13, P14), and the blocks in use are those that a
//! tree reaches (S9).
//!
//! That a crash leaves a prefix of transactions is what the other model shows.

pub mod mutant;
mod volume;

use std::sync::Arc;

use stateright::{Model, Property};

pub use mutant::Mutant;
use volume::{Device, Hand, Tag, Volume};

/// A promotion counts as so many operations: it is a deletion of a branch and a rollback of another one.
const PROMOTION: u8 = 2;
/// And a branch out of nothing: what is special of it shows within three others.
const NEW_BRANCH: u8 = 2;

/// How much is explored.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// What programs and people do.
    pub operations: u8,
    /// Power cuts.
    pub crashes: u8,
    /// Keys, two at most.
    pub keys: usize,
}

/// The rules of branches, whole or with something done wrong.
#[derive(Clone, Copy, Debug)]
pub struct Lineage {
    /// How much is explored.
    pub bounds: Bounds,
    /// What is done wrong.
    pub broken: Option<Mutant>,
}

/// One transaction, or what happens to the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// In a branch, to a key.
    Write(usize, usize),
    /// A block for a key of a branch.
    Reserve(usize, usize),
    /// Its data is gone, and its block reserved.
    Unwrite(usize, usize),
    /// The first data of a reserved block; in place, if it may, and then it is on its way only.
    Fill(usize, usize),
    /// The data that was on its way into a reserved block belongs to the file.
    Publish,
    /// What changes from now on is of another epoch.
    Checkpoint,
    /// From a branch, of a key.
    Remove(usize, usize),
    /// Of a branch.
    Snapshot(usize),
    /// Of a snapshot.
    Fork(usize),
    /// Out of nothing: a branch with an empty tree.
    NewBranch,
    /// Of a branch to a snapshot.
    RollBack {
        /// Which branch.
        branch: usize,
        /// To what.
        snapshot: usize,
        /// What it was before gets a name.
        keep: bool,
    },
    /// Of a fork: a branch becomes what it is.
    Promote {
        /// Which branch.
        branch: usize,
        /// What it becomes.
        fork: usize,
        /// What it was before gets a name.
        keep: bool,
    },
    /// The same, if the branch is what the fork has begun with.
    PromoteUnchanged(usize, usize),
    /// Of a snapshot.
    Delete(usize),
    /// Of a branch.
    DeleteBranch(usize),
    /// The deletion of a snapshot without a name begins.
    BeginDeletion(usize),
    /// A step of a deletion.
    Walk(usize),
    /// All so far becomes durable.
    Commit,
    /// Power fails: the volume is as it was at the last durable moment.
    PowerCut,
}

/// The volume, and what a crash may make of it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    device: Device,
    volume: Arc<Volume>,
    /// The last durable moment, if there were transactions since. That more of them may survive needs no state of its
    /// own: they became durable earlier then.
    durable: Option<Arc<Volume>>,
    /// Blocks that were in use at a moment since, but for the present one.
    kept: u16,
    /// Blocks that were made unwritten since.
    unwritten: u16,
    /// What is on its way into a reserved block: of a branch, for a key.
    sent: Option<(usize, usize, Tag)>,
    tag: Tag,
    operations: u8,
    crashes: u8,
}

impl State {
    /// What went wrong.
    pub fn violation(&self) -> Option<&'static str> {
        self.volume.violation
    }
}

impl Lineage {
    fn operations(&self, state: &State, actions: &mut Vec<Action>) {
        let volume = &state.volume;
        let (branch_fits, snapshot_fits) = volume.has_room();
        actions.push(Action::Checkpoint);
        if branch_fits && state.operations + NEW_BRANCH <= self.bounds.operations {
            actions.push(Action::NewBranch);
        }
        for branch in volume.branches() {
            let waits = state.sent.is_some_and(|(of, ..)| of == branch);
            for key in (0..self.bounds.keys).filter(|key| !waits || *key > 0) {
                let (is_there, is_reserved) = volume.holds(branch, key);
                actions.push(Action::Write(branch, key));
                if is_there {
                    actions.push(Action::Remove(branch, key));
                }
                // One key is enough for what is special about reserved blocks.
                if is_reserved && state.sent.is_none() {
                    actions.push(Action::Fill(branch, key));
                } else if key == 0 && !is_reserved {
                    actions.push(Action::Reserve(branch, key));
                    if is_there {
                        actions.push(Action::Unwrite(branch, key));
                    }
                }
            }
            if snapshot_fits && !waits {
                actions.extend([Action::Snapshot(branch), Action::DeleteBranch(branch)]);
                for snapshot in volume.named() {
                    actions.extend([false, true].map(|keep| Action::RollBack {
                        branch,
                        snapshot,
                        keep,
                    }));
                }
            }
            // None has data on its way: the branch stands still, and the fork is not open.
            let is_still =
                state.sent.is_none() && state.operations + PROMOTION <= self.bounds.operations;
            if is_still && volume.has_room_for_promotion() {
                for fork in volume.branches().filter(|fork| *fork != branch) {
                    let promote = |keep| Action::Promote { branch, fork, keep };
                    actions.extend([false, true].map(promote));
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

    fn carry_out(
        &self,
        volume: &mut Volume,
        hand: &mut Hand<'_>,
        sent: &mut Option<(usize, usize, Tag)>,
        action: Action,
    ) {
        let broken = self.broken;
        match action {
            Action::Fill(branch, key) => match volume.send(branch, key, hand) {
                Some(tag) => *sent = Some((branch, key, tag)),
                None => volume.write(branch, key, hand),
            },
            Action::Publish => {
                if let Some((branch, key, tag)) = sent.take() {
                    volume.publish(branch, key, tag, hand);
                }
            }
            Action::Write(branch, key) => volume.write(branch, key, hand),
            Action::Reserve(branch, key) => volume.reserve(branch, key, hand),
            Action::Unwrite(branch, key) => volume.unwrite(branch, key, hand),
            Action::Checkpoint => volume.checkpoint(),
            Action::Remove(branch, key) => volume.remove(branch, key, hand),
            Action::Snapshot(branch) => volume.snapshot(branch, true, broken),
            Action::Fork(snapshot) => volume.fork(snapshot, broken),
            Action::NewBranch => volume.new_branch(hand),
            Action::RollBack { branch, snapshot, keep } => {
                volume.roll_back(branch, snapshot, keep, broken);
            }
            Action::Promote { branch, fork, keep } => volume.promote(branch, fork, keep, broken),
            Action::PromoteUnchanged(branch, fork) => {
                volume.promote_unchanged(branch, fork, broken);
            }
            Action::Delete(snapshot) => volume.delete(snapshot),
            Action::DeleteBranch(branch) => volume.delete_branch(branch, broken),
            Action::BeginDeletion(snapshot) => volume.begin_deletion(snapshot),
            Action::Walk(snapshot) => volume.walk(snapshot, hand),
            Action::Commit | Action::PowerCut => unreachable!("they are no transactions"),
        }
    }
}

impl Model for Lineage {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut device = Device::default();
        let (volume, tag) = Volume::new(&mut device);
        let new = State {
            device,
            volume: Arc::new(volume),
            durable: None,
            kept: 0,
            unwritten: 0,
            sent: None,
            tag,
            operations: 0,
            crashes: 0,
        };
        // Further ones, which would take too many operations. They are so large that they count as two of them.
        let whole = Lineage { broken: None, ..*self };
        let after = |actions: &[Action]| {
            let state = actions.iter().fold(new.clone(), |state, action| {
                whole.next_state(&state, *action).expect("each of them is possible")
            });
            State { durable: None, kept: 0, unwritten: 0, operations: 2, ..state }
        };
        let lineage = [Action::Snapshot(0), Action::Write(0, 0), Action::Snapshot(0)];
        let forked = after(&[&lineage[..], &[Action::Reserve(0, 0), Action::Fork(1)]].concat());
        let walking = [Action::Delete(1), Action::BeginDeletion(1), Action::Walk(1)];
        let walking = after(&[&lineage[..], &walking].concat());
        vec![new, forked, walking]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.violation().is_some() {
            return;
        }
        if state.operations < self.bounds.operations {
            self.operations(state, actions);
        }
        if state.sent.is_some() {
            actions.push(Action::Publish);
        }
        actions.extend(state.volume.deletable(self.broken).into_iter().map(Action::BeginDeletion));
        actions.extend(state.volume.deleted().map(Action::Walk));
        if state.durable.is_some() {
            actions.extend([Action::Commit, Action::PowerCut]);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Commit => (state.durable, state.kept, state.unwritten) = (None, 0, 0),
            Action::PowerCut => {
                let mut volume = (*state.durable.take()?).clone();
                if self.broken == Some(Mutant::CursorKeptInMemory) {
                    volume.forget_cursors();
                }
                volume.judge(&state.device);
                state.volume = Arc::new(volume);
                (state.kept, state.unwritten, state.sent) = (0, 0, None);
                state.crashes += 1;
            }
            _ => {
                let mut volume = (*state.volume).clone();
                let mut hand = Hand {
                    device: &mut state.device,
                    tag: &mut state.tag,
                    kept: state.kept,
                    unwritten: &mut state.unwritten,
                    broken: self.broken,
                };
                self.carry_out(&mut volume, &mut hand, &mut state.sent, action);
                volume.judge(&state.device);
                let before = std::mem::replace(&mut state.volume, Arc::new(volume));
                // Without a crash to come, it is the same whether anything is durable.
                if state.crashes < self.bounds.crashes {
                    state.kept |= before.used();
                    state.durable.get_or_insert(before);
                } else {
                    state.unwritten = 0;
                }
                state.operations += match action {
                    Action::BeginDeletion(_) | Action::Walk(_) | Action::Publish => 0,
                    Action::Promote { .. } | Action::PromoteUnchanged(..) => PROMOTION,
                    Action::NewBranch => NEW_BRANCH,
                    _ => 1,
                };
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let holds = Property::always(crate::HOLDS, |_, state: &State| state.violation().is_none());
        let mut properties = vec![holds];
        // A deletion that never begins would break nothing else.
        properties
            .push(Property::always("deletions go on", |_, state: &State| !state.volume.is_stuck()));
        if self.broken.is_none() {
            // A model in which nothing happens would keep every promise.
            properties.extend([
                Property::sometimes("a deletion goes on after a power cut", |_, state: &State| {
                    state.crashes > 0 && state.volume.deleted().next().is_some()
                }),
                Property::sometimes("data is on its way beside a deletion", |_, state: &State| {
                    state.sent.is_some() && state.volume.deleted().next().is_some()
                }),
                Property::sometimes("two deletions go on at once", |_, state: &State| {
                    state.volume.deleted().count() > 1
                }),
                Property::sometimes("both branches are gone", |_, state: &State| {
                    state.volume.branches().next().is_none() && state.volume.used() == 0
                }),
            ]);
        }
        properties
    }
}
