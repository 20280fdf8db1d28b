//! Branches, snapshots, forks, rollbacks and deletions as a small model: the rules S1 to S7 of docs/BRANCHES.md in every
//! order.
//!
//! One volume, two branches, a tree of one node and two keys. Programs write, people snapshot, fork, roll back,
//! promote and delete, deletions walk behind the scenes, and power fails. After each action every branch and snapshot holds
//! what it must (P13, P14), the blocks in use are those that a tree reaches (S9), and a branch owns what no other tree
//! reaches (S1). There are two ways to be durable, by [`Bounds::log`]:
//!
//! ```text
//!  without a log, each commit is one step:     memory > commit;  blocks are reserved and written in place, too
//!  with a log, S7; commits take time, beside which operations and batches go on:
//!   files, fork, names, a snapshot goes:       memory > batch of the log           (an fsync)
//!   snapshot, rollback, a branch goes:         memory, frozen at once > commit     (the log waits for it)
//!   a walk's steps:                            memory                 > the next commit
//!   power cut:                                 the last durable commit, and the batches behind it
//! ```
//!
//! A recovery shows what was there at the last durable moment (P1, P3, P12). That a commit or batch may be durable whose
//! call has not returned needs no state of its own: it is the state behind. That a crash leaves a prefix of
//! transactions is what the other model shows.

mod changes;
mod deletion;
mod durable;
mod log;
mod mutant;
mod operations;
mod volume;

use stateright::{Model, Property};

use crate::shared::Shared;
use log::{Batch, Judged};
pub use mutant::Mutant;
use volume::{BLOCKS, Blocks, Device, KEYS, SNAPSHOTS, Version, Volume};

/// How much is explored.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// What programs and people do, and checkpoints.
    pub operations: u8,
    /// Power cuts.
    pub crashes: u8,
    /// Keys, two at most.
    pub keys: usize,
    /// Whether commits take time, and operations become durable in a log beside them.
    pub log: bool,
}

/// The rules of branches, whole or with something done wrong.
#[derive(Clone, Copy, Debug)]
pub struct Lineage {
    /// How much is explored.
    pub bounds: Bounds,
    /// What is done wrong.
    pub broken: Option<Mutant>,
}

/// A branch, and one of its keys.
pub type BranchKey = (usize, usize);

/// One transaction, or what happens to the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// New data.
    Write(BranchKey),
    /// A block, which is not written.
    Reserve(BranchKey),
    /// Its data is gone, and its block reserved.
    Unwrite(BranchKey),
    /// The first data of a reserved block; in place, if it may, and then it is on its way only.
    Fill(BranchKey),
    /// The data that was on its way into a reserved block belongs to the file.
    Publish,
    /// Nothing from now on.
    Remove(BranchKey),
    /// Of a snapshot.
    Fork(usize),
    /// Of a branch: its item is put again.
    Rename(usize),
    /// Of a snapshot.
    Delete(usize),
    /// What changes from now on is of another epoch.
    Checkpoint,
    /// Of a branch.
    Snapshot(usize),
    /// Out of nothing: a branch with an empty tree.
    NewBranch,
    /// Of a branch to a snapshot. With `true`, what it was before gets a name.
    RollBack(usize, usize, bool),
    /// A branch becomes what a fork is. With `true`, what it was before gets a name.
    Promote(usize, usize, bool),
    /// The same, if the branch is what the fork has begun with, and without a name.
    PromoteUnchanged(usize, usize),
    /// Of a branch.
    DeleteBranch(usize),
    /// The deletion of a snapshot without a name begins.
    BeginDeletion(usize),
    /// A step of a deletion.
    Walk(usize),
    /// A commit freezes; without a log it is durable.
    Freeze,
    /// It is durable.
    Flush,
    /// What is pending goes to the log, and is durable.
    Sync,
    /// Power fails, and the volume is recovered.
    PowerCut,
}

/// A commit on its way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Frozen {
    volume: Shared<Volume>,
    /// It changes the lineage: the log waits for it.
    seals: bool,
    /// Operations that it contains and the log does not.
    pending: Option<Batch>,
    /// Batches of the log that it contains.
    batches: usize,
}

/// The machine and the disk.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MachineState {
    device: Device,
    volume: Shared<Volume>,
    judged: Judged,
    /// Freed since the last commit froze.
    freed: Blocks,
    /// Freed before, and the commit is on its way.
    freed_frozen: Blocks,
    /// For a mutant: what walks have freed since the last commit froze.
    walked: Blocks,
    /// Blocks that were made unwritten since the last durable moment.
    unwritten: Blocks,
    /// What is on its way into a reserved block.
    sent: Option<(BranchKey, Version)>,
    /// The last durable commit.
    durable: Shared<Volume>,
    /// The batches behind it.
    log: Vec<Batch>,
    frozen: Option<Frozen>,
    /// What the log is to hold next.
    pending: Option<Batch>,
    operations: u8,
    crashes: u8,
}

impl MachineState {
    /// What went wrong.
    pub fn violation(&self) -> Option<&'static str> {
        self.volume.violation
    }

    fn of(volume: Shared<Volume>, device: Device) -> MachineState {
        MachineState {
            device,
            judged: Judged::of(&volume),
            durable: volume.clone(),
            volume,
            freed: 0,
            freed_frozen: 0,
            walked: 0,
            unwritten: 0,
            sent: None,
            log: Vec::new(),
            frozen: None,
            pending: None,
            operations: 0,
            crashes: 0,
        }
    }

    /// Whether a power cut would change nothing.
    fn is_durable(&self) -> bool {
        self.sent.is_none() && self.freed == 0 && self.volume == self.durable
    }

    /// What is in blocks that nothing needs any more makes no difference.
    fn forget_blocks(&mut self) {
        let needed = self.volume.used | self.freed | self.freed_frozen;
        for block in (0..BLOCKS).filter(|block| needed & (1 << block) == 0) {
            self.device[block] = 0;
        }
    }
}

impl Model for Lineage {
    type State = MachineState;
    type Action = Action;

    fn init_states(&self) -> Vec<MachineState> {
        use Action::{BeginDeletion, Delete, Fork, Reserve, RollBack, Snapshot, Walk, Write};
        let mut device = Device::default();
        let volume = Volume::new(&mut device);
        let new = MachineState::of(Shared::new(volume), device);
        // Further ones, which would take too many operations. They are so large that they count as some of them.
        let operations = if self.bounds.log { 1 } else { 2 };
        let whole = Lineage { broken: None, ..*self };
        let after = |actions: &[Action]| {
            let lineage = [Snapshot(0), Write((0, 0)), Snapshot(0)];
            let state = lineage.iter().chain(actions).fold(new.clone(), |state, action| {
                let state = whole.next_state(&state, *action).expect("each of them is possible");
                MachineState::of(state.volume, state.device)
            });
            MachineState { operations, ..state }
        };
        if !self.bounds.log {
            let begun = after(&[Delete(1), BeginDeletion(1), Walk(1)]);
            return vec![new.clone(), after(&[Reserve((0, 0)), Fork(1)]), begun];
        }
        let begun = after(&[Delete(1), BeginDeletion(1)]);
        let walking = after(&[Write((0, 0)), Delete(1)]);
        let back = [RollBack(0, 0, false), BeginDeletion(2)];
        let alone = after(&[&back[..], &[Walk(2); KEYS]].concat());
        vec![new.clone(), after(&[Fork(1)]), walking, begun, alone]
    }

    fn actions(&self, state: &MachineState, actions: &mut Vec<Action>) {
        if state.violation().is_some() {
            return;
        }
        if state.operations < self.bounds.operations {
            self.operations(state, actions);
        }
        actions.extend(state.sent.map(|_| Action::Publish));
        // Deletions beside one another are explored without a log.
        if !self.bounds.log || state.volume.deleted().next().is_none() {
            actions.extend(state.volume.deletable(self.broken).map(Action::BeginDeletion));
        }
        actions.extend(state.volume.deleted().map(Action::Walk));
        if !self.may_crash(state) {
            return;
        }
        if self.may_sync(state) {
            actions.push(Action::Sync);
        }
        let is_durable = state.is_durable();
        match state.frozen {
            Some(_) => actions.push(Action::Flush),
            None if !is_durable => actions.push(Action::Freeze),
            None => {}
        }
        if !is_durable {
            actions.push(Action::PowerCut);
        }
    }

    fn next_state(&self, last: &MachineState, action: Action) -> Option<MachineState> {
        let mut state = last.clone();
        match action {
            Action::Freeze => self.freeze(&mut state, false),
            Action::Flush => self.flush(&mut state),
            Action::Sync => self.sync(&mut state),
            Action::PowerCut => state = self.recover(last),
            _ => {
                let records = self.carry_out(&mut state, action);
                if self.bounds.log && action.comes_with_a_commit(self.broken) {
                    self.freeze(&mut state, action != Action::Checkpoint);
                } else if self.bounds.log && !records.is_empty() {
                    Batch::add(&mut state.pending, records, state.volume.seen());
                }
            }
        }
        if !self.may_crash(&state) {
            let MachineState { volume, device, sent, operations, crashes, .. } = state;
            state = MachineState { sent, operations, crashes, ..MachineState::of(volume, device) };
        }
        if !self.bounds.log || !self.may_crash(&state) {
            state.judged = Judged::default();
        }
        state.forget_blocks();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(crate::HOLDS, |_, state: &MachineState| state.violation().is_none()),
            // A deletion that never begins would break nothing else.
            Property::always("deletions go on", |_, state: &MachineState| !state.volume.is_stuck()),
        ];
        if self.broken.is_some() || self.bounds.crashes == 0 {
            return properties;
        }
        // A model in which nothing happens would keep every promise.
        let sometimes = Property::<Self>::sometimes;
        properties.extend(match self.bounds.log {
            false => vec![
                sometimes("two deletions go on at once", |_, state| {
                    state.volume.deleted().count() > 1
                }),
                sometimes("a deletion goes on after a power cut", |_, state| {
                    state.crashes > 0 && state.volume.deleted().next().is_some()
                }),
                sometimes("data is on its way beside a deletion", |_, state| {
                    state.sent.is_some() && state.volume.deleted().next().is_some()
                }),
                sometimes("both branches are gone", |_, state| {
                    state.volume.branches().next().is_none() && state.volume.used == 0
                }),
            ],
            true => vec![
                sometimes("a batch waits for a snapshot", |_, state| {
                    state.pending.is_some() && state.frozen.as_ref().is_some_and(|of| of.seals)
                }),
                sometimes("the log has batches of two commits", |_, state| {
                    let batches = state.frozen.as_ref().map_or(0, |of| of.batches);
                    batches > 0 && state.log.len() > batches
                }),
                sometimes("a walk ends beside a commit", |_, state| {
                    let now = &state.volume.snapshots;
                    let is_gone = |of: &Volume| {
                        (0..SNAPSHOTS).any(|at| of.snapshots[at].is_some() && now[at].is_none())
                    };
                    state.frozen.as_ref().is_some_and(|of| is_gone(&of.volume))
                }),
            ],
        });
        properties
    }
}
