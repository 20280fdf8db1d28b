//! How branches become durable, as a small model: commits, the log beside them, and the replay (S7 of docs/BRANCHES.md).
//!
//! ```text
//!  files, fork, names, a deletion begins:  memory > batch of the log           (an fsync)
//!  snapshot, rollback, a branch goes:      memory, frozen at once > commit     (the log waits for it)
//!  a walk's steps:                         memory                 > the next commit
//!  power cut:                              the last durable commit, and the batches behind it
//! ```
//!
//! Operations and batches go on while a commit is on its way. Power may fail in each state; that a commit or batch may
//! be durable whose call has not returned needs no state of its own: it is the state behind. After each action and each recovery S9
//! and P13 are judged; after a recovery the volume shows what it showed at the last durable moment (P1, P3, P12, P14).
//!
//! [`crate::lineage`] has the rules of one moment, with reserved blocks; here they are only what a replay needs.

mod log;
mod memory;
pub mod mutant;
mod volume;

use std::sync::Arc;

use stateright::{Model, Property};

use log::Batch;
use memory::Memory;
pub use mutant::Mutant;
use volume::{Seen, Volume};

/// A branch out of nothing counts as so many operations: what is special of it shows beside few others.
const NEW_BRANCH: u8 = 2;

/// How much is explored.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// What programs and people do, and checkpoints.
    pub operations: u8,
    /// Power cuts.
    pub crashes: u8,
    /// Keys, two at most.
    pub keys: usize,
}

/// The rules, whole or with something done wrong.
#[derive(Clone, Copy, Debug)]
pub struct Sealing {
    /// How much is explored.
    pub bounds: Bounds,
    /// What is done wrong.
    pub broken: Option<Mutant>,
}

/// What happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// In a branch, to a key.
    Write(usize, usize),
    /// From a branch, of a key.
    Remove(usize, usize),
    /// Of a snapshot.
    Fork(usize),
    /// Of a branch: its item is put again.
    Rename(usize),
    /// Of a snapshot: its deletion begins.
    Delete(usize),
    /// Of a branch. A commit freezes with it.
    Snapshot(usize),
    /// Out of nothing: a branch with an empty tree. A commit freezes with it.
    NewBranch,
    /// Of a branch to a snapshot. A commit freezes with it.
    RollBack {
        /// Which branch.
        branch: usize,
        /// To what.
        snapshot: usize,
        /// What it was before gets a name.
        keep: bool,
    },
    /// Of a branch. A commit freezes with it.
    DeleteBranch(usize),
    /// A commit freezes, and the epoch ends.
    Checkpoint,
    /// A commit freezes.
    Freeze,
    /// It is durable.
    Flush,
    /// What is pending goes to the log, and is durable.
    Sync,
    /// A step of a deletion.
    Walk(usize),
    /// Power fails, and the volume is recovered.
    PowerCut,
}

/// A commit on its way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Frozen {
    volume: Arc<Volume>,
    /// It changes the lineage: the log waits for it.
    seals: bool,
    /// Operations that it contains and the log does not.
    pending: Option<Batch>,
    /// Batches of the log that it contains.
    batches: usize,
}

/// The machine and the disk.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    memory: Memory,
    /// The last durable commit.
    durable: Arc<Volume>,
    /// The batches behind it.
    log: Vec<Batch>,
    frozen: Option<Frozen>,
    /// What the log is to hold next.
    pending: Option<Batch>,
    operations: u8,
    crashes: u8,
}

impl State {
    /// What went wrong.
    pub fn violation(&self) -> Option<&'static str> {
        self.memory.volume.violation
    }

    fn of(volume: Volume) -> State {
        State {
            durable: Arc::new(volume.clone()),
            memory: Memory::of(volume),
            log: Vec::new(),
            frozen: None,
            pending: None,
            operations: 0,
            crashes: 0,
        }
    }
}

impl Sealing {
    /// Whether power may still fail. If not, it is the same what is durable.
    fn may_crash(&self, state: &State) -> bool {
        state.crashes < self.bounds.crashes
    }

    fn operations(&self, state: &State, actions: &mut Vec<Action>) {
        let volume = &state.memory.volume;
        let named: Vec<usize> = (0..volume::SNAPSHOTS)
            .filter(|at| volume.snapshots[*at].is_some_and(|of| of.is_named))
            .collect();
        let may_freeze = state.frozen.is_none();
        for branch in (0..volume::BRANCHES).filter(|at| volume.branches[*at].is_some()) {
            let items = volume.items(volume.branch(branch).root).unwrap_or_default();
            for (key, item) in items.iter().enumerate().take(self.bounds.keys) {
                actions.push(Action::Write(branch, key));
                if item.is_some() {
                    actions.push(Action::Remove(branch, key));
                }
            }
            // It says of the lineage only what was not durable before.
            if self.may_crash(state) && volume.branch(branch).parent.is_some() {
                actions.push(Action::Rename(branch));
            }
            if may_freeze && volume.snapshots.contains(&None) {
                actions.extend([Action::Snapshot(branch), Action::DeleteBranch(branch)]);
                for snapshot in named.iter().copied() {
                    let back = |keep| Action::RollBack { branch, snapshot, keep };
                    actions.extend([false, true].map(back));
                }
            }
        }
        for snapshot in named {
            actions.push(Action::Delete(snapshot));
            if volume.branches.contains(&None) {
                actions.push(Action::Fork(snapshot));
            }
        }
        if may_freeze {
            actions.push(Action::Checkpoint);
            let fits = state.operations + NEW_BRANCH <= self.bounds.operations;
            if fits && volume.branches.contains(&None) {
                actions.push(Action::NewBranch);
            }
        }
    }

    /// Whether the log says nothing of it.
    fn comes_with_a_commit(&self, action: Action) -> bool {
        match action {
            Action::NewBranch => self.broken != Some(Mutant::NewBranchLogged),
            Action::Checkpoint
            | Action::Snapshot(_)
            | Action::RollBack { .. }
            | Action::DeleteBranch(_) => true,
            _ => false,
        }
    }

    /// The present becomes a commit, which is on its way from now on.
    fn freeze(&self, state: &mut State, seals: bool) {
        let mut volume = state.memory.volume.clone();
        match self.broken {
            Some(Mutant::CursorWithoutFrees) => volume.used |= state.memory.walked,
            Some(Mutant::FreesWithoutCursor) => {
                for (at, of) in volume.snapshots.iter_mut().enumerate() {
                    if let (Some(of), Some(before)) = (of, state.durable.snapshots[at]) {
                        of.cursor = before.cursor;
                    }
                }
            }
            _ => {}
        }
        state.memory.freeze(self.broken);
        let (pending, batches) = (state.pending.take(), state.log.len());
        state.frozen = Some(Frozen { volume: Arc::new(volume), seals, pending, batches });
        if !self.may_crash(state) {
            self.flush(state);
        }
    }

    fn flush(&self, state: &mut State) {
        let Some(frozen) = state.frozen.take() else { return };
        state.durable = frozen.volume;
        state.log.drain(..frozen.batches);
        state.memory.thaw(self.broken);
    }

    /// What is pending goes to the log: first what is frozen, as no batch reaches over a freeze.
    fn sync(&self, state: &mut State) {
        if let Some(frozen) = &mut state.frozen
            && let Some(batch) = frozen.pending.take()
        {
            frozen.batches += 1;
            state.log.push(batch);
            return;
        }
        state.log.extend(state.pending.take());
    }

    fn may_sync(&self, state: &State) -> bool {
        let is_held = state.frozen.as_ref().is_some_and(|frozen| frozen.seals)
            && self.broken != Some(Mutant::BarrierMissing);
        let frozen = state.frozen.as_ref().is_some_and(|frozen| frozen.pending.is_some());
        frozen || (state.pending.is_some() && !is_held)
    }

    /// The volume as a recovery finds it.
    fn recover(&self, state: &State) -> Volume {
        let mut volume = (*state.durable).clone();
        let youngest = state.log.iter().map(Batch::youngest).max().unwrap_or(0);
        let above = youngest.max(volume.epoch) + 1;
        volume.epoch = match self.broken {
            Some(Mutant::EpochNotAboveTheLog) => volume.epoch,
            _ => above,
        };
        let mut kept = state.log.iter().fold(0, |named, batch| named | batch.named());
        for batch in &state.log {
            batch.replay(&mut volume, &mut kept, self.broken);
        }
        let shown: Seen = state.log.last().map_or(state.durable.seen(), |last| last.seen.clone());
        if volume.seen() != shown {
            volume.fail("P3: a recovery shows what was not there at the last durable moment");
        }
        volume
    }
}

impl Model for Sealing {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let new = State::of(Volume::new());
        // Further ones, which would take too many operations.
        let whole = Sealing { broken: None, ..*self };
        let after = |actions: &[Action]| {
            let state = actions.iter().fold(new.clone(), |state, action| {
                let state = whole.next_state(&state, *action).expect("each of them is possible");
                State::of(State { frozen: None, ..state }.memory.volume)
            });
            State { operations: 1, ..state }
        };
        let lineage = [Action::Snapshot(0), Action::Write(0, 0), Action::Snapshot(0)];
        let forked = after(&[&lineage[..], &[Action::Fork(1)]].concat());
        let walking = after(&[&lineage[..], &[Action::Write(0, 0), Action::Delete(1)]].concat());
        let begun = after(&[&lineage[..], &[Action::Delete(1), Action::Walk(1)]].concat());
        let back = Action::RollBack { branch: 0, snapshot: 0, keep: false };
        let alone = after(&[&lineage[..], &[back], &[Action::Walk(2); volume::KEYS + 1]].concat());
        vec![new, forked, walking, begun, alone]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.violation().is_some() {
            return;
        }
        if state.operations < self.bounds.operations {
            self.operations(state, actions);
        }
        actions.extend(state.memory.walks().into_iter().map(Action::Walk));
        if !self.may_crash(state) {
            return;
        }
        if self.may_sync(state) {
            actions.push(Action::Sync);
        }
        let is_carried = state.memory.volume == *state.durable;
        match state.frozen {
            Some(_) => actions.push(Action::Flush),
            None if !is_carried => actions.push(Action::Freeze),
            None => {}
        }
        if !is_carried {
            actions.push(Action::PowerCut);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::PowerCut => {
                let recovered = self.recover(&state);
                let (operations, crashes) = (state.operations, state.crashes + 1);
                state = State { operations, crashes, ..State::of(recovered) };
                state.memory.volume.judge();
                return Some(state);
            }
            Action::Freeze => self.freeze(&mut state, false),
            Action::Flush => self.flush(&mut state),
            Action::Sync => self.sync(&mut state),
            Action::Walk(snapshot) => state.memory.walk(snapshot, self.broken),
            _ if self.comes_with_a_commit(action) => {
                state.operations += if action == Action::NewBranch { NEW_BRANCH } else { 1 };
                state.memory.by_a_commit(action, self.broken);
                self.freeze(&mut state, action != Action::Checkpoint);
            }
            _ => {
                state.operations += 1;
                let records = state.memory.by_the_log(action, self.broken);
                if self.may_crash(&state) {
                    let seen = state.memory.volume.seen();
                    Batch::add(&mut state.pending, &records, seen);
                }
            }
        }
        state.memory.volume.judge();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let holds = Property::always(crate::HOLDS, |_, state: &State| state.violation().is_none());
        let mut properties = vec![holds];
        if self.broken.is_none() && self.bounds.crashes > 0 {
            // A model in which nothing happens would keep every promise.
            properties.extend([
                Property::sometimes("a batch waits for a snapshot", |_, state: &State| {
                    state.pending.is_some() && state.frozen.as_ref().is_some_and(|of| of.seals)
                }),
                Property::sometimes("the log has batches of two commits", |_, state: &State| {
                    state
                        .frozen
                        .as_ref()
                        .is_some_and(|of| of.batches > 0 && state.log.len() > of.batches)
                }),
                Property::sometimes("a walk ends beside a commit", |_, state: &State| {
                    state.frozen.as_ref().is_some_and(|of| {
                        let now = &state.memory.volume.snapshots;
                        (0..volume::SNAPSHOTS)
                            .any(|at| of.volume.snapshots[at].is_some() && now[at].is_none())
                    })
                }),
            ]);
        }
        properties
    }
}
