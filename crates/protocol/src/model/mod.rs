//! The protocol as a transition system: its states, its actions and what each action does. Which of them may come next is
//! in `enabled`, and what must hold in every state in `properties`.
//!
//! The actions carry the names of the functions in `store`. Any order of them is
//! explored that the locks allow; after any of them the power may fail, and leave
//! any subset of the unflushed writes, or the program may end. Recoveries are
//! made of steps as well, so the power fails in them too.

mod enabled;
mod properties;

pub use properties::{FILLED, HOLDS, ROTTEN, UNWRITTEN};

use std::fmt::Debug;

use stateright::{Model, Property};

use crate::disk::{
    Batch, Commit, Content, Device, Held, JournalMark, Left, Location, LogMark, Lsn, RingPlace,
    Rings, Superblock, Tree, Version,
};
use crate::memory::Memory;
use crate::mutant::Mutant;
use crate::places::{Violation, WIPED};
use crate::recovery::{Recovery, is_moment};
use crate::shared::Shared;

/// How much is explored.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Operations.
    pub operations: u8,
    /// Commits, with or without a checkpoint.
    pub commits: u8,
    /// Power cuts and ends of the program.
    pub crashes: u8,
    /// Files, two at most.
    pub files: u8,
    /// How soon blocks of the rings are used again.
    pub rings: Rings,
    /// Whether blocks are reserved, made unwritten, and written in place.
    pub reserved: bool,
}

/// The protocol, whole or with something done wrong.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// How much is explored.
    pub bounds: Bounds,
    /// What is done wrong.
    pub broken: Option<Mutant>,
}

/// The threads that take steps towards durability.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Thread {
    /// Of a batch of the log.
    Leader,
    /// Of a commit.
    Committer,
    /// Of a checkpoint.
    Checkpointer,
}

/// One step of a program, a thread or the power.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// `write_data` for a file: its new data is on its way to its location.
    WriteData(u8),
    /// `apply` of that data.
    ApplyWritten,
    /// `log_data` and `apply`: log-resident data, over what the file had.
    LogData(u8),
    /// `apply` of an operation that removes the file.
    Remove(u8),
    /// `fallocate` of a file that has nothing: a block that reads as zeros.
    Reserve(u8),
    /// `fallocate` with ZERO_RANGE: the block stays, and reads as zeros.
    Unwrite(u8),
    /// `write_in_place`, to the block that the file has reserved.
    WriteInPlace(u8),
    /// `flush_in_place`.
    FlushInPlace,
    /// `apply` of that data.
    ApplyInPlace,
    /// `lead`: what is pending is taken.
    Lead,
    /// `Log::write`.
    LogWrite,
    /// `append`: there is no flush.
    Append,
    /// `confirm`.
    Confirm,
    /// `lead`: the one flush.
    LogFlush,
    /// `lead`: the waiting callers are answered.
    Answer,
    /// `freeze`, with `seal` if a checkpoint is wanted.
    Freeze {
        /// A checkpoint is wanted.
        seal: bool,
    },
    /// `checkpoint_at_once`, because the journal has no room.
    CheckpointAtOnce,
    /// `write_commit`, up to its flush.
    WriteCommit,
    /// `Journal::write`: the one flush.
    CommitFlush,
    /// `thaw`.
    Thaw,
    /// `try_write_sealed`: the nodes.
    WriteNodes,
    /// `try_write_sealed`: the flush.
    NodesFlush,
    /// `publish`.
    Publish,
    /// `publish`: the flush.
    PublishFlush,
    /// `release`.
    Release,
    /// `open`: journal and log are read and judged; `write`, up to the flush in `settle`.
    Open,
    /// `recover::write`, the next part up to a flush.
    RecoverWrite,
    /// `finish_log`, up to the flush in its checkpoint.
    FinishLog,
    /// A thread panics between two parts of its step.
    ThreadDies(Thread),
    /// The program ends; what it wrote can be read, and can still be lost.
    Kill,
    /// A flush fails, and the program ends: what it wrote can be read, and will be lost.
    FlushFails,
    /// Power fails, and leaves this of the locations with unflushed writes.
    PowerCut(Vec<Left>),
    /// While nothing is open one place of both rings is lost. Where rings stand twice, once.
    PlaceRots(RingPlace),
    /// The same of one batch or commit, in one of its places.
    Rots(Location),
    /// A byte of what a superblock's mark names.
    ByteRots(Location),
    /// While nothing is open all places of a ring are lost: that of the journal, or of the log.
    RingIsWiped {
        /// Of the journal.
        journal: bool,
    },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Phase {
    Open(Shared<Memory>),
    Recovering(Shared<Recovery>),
    Down,
}

/// The device, the program, and what it has promised.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MachineState {
    device: Device,
    phase: Phase,
    /// What the files were after each operation.
    history: Shared<Vec<Tree>>,
    /// The last operation that was acknowledged as durable.
    answered: Lsn,
    operations: u8,
    /// What is written next. What a recovery lost is written again, as programs do.
    version: Version,
    commits: u8,
    crashes: u8,
    /// Something that was in a ring has rotted.
    rotten: bool,
    /// A ring was wiped, and the next opening must say so.
    wiped: bool,
    violation: Option<Violation>,
    /// For the questions whether something happens at all.
    seen: RecoveryFacts,
}

/// What the last recovery met.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct RecoveryFacts {
    replayed_log: bool,
    replayed_journal: bool,
    lost: bool,
    /// Something in one place of the rings had rotted.
    rotten: bool,
    /// It was refused, since a ring was wiped.
    refused: bool,
}

impl MachineState {
    /// What went wrong.
    pub fn violation(&self) -> Option<&'static str> {
        self.violation
    }

    fn memory(&self) -> Option<&Memory> {
        match &self.phase {
            Phase::Open(memory) => Some(memory),
            _ => None,
        }
    }

    /// While data is on its way to a reserved block.
    fn filling(&self) -> Option<&Memory> {
        self.memory().filter(|memory| memory.in_place.is_some())
    }

    fn fail(&mut self, violation: Violation) {
        self.violation = Some(violation);
        self.phase = Phase::Down;
        self.crashes = 0;
    }

    /// What rots, or is wiped, while nothing is open.
    fn rot(&mut self, action: &Action, rings: Rings) {
        let is_hit = |at: &Location| match (*at, action) {
            (Location::Log(at, _) | Location::Journal(at, _), Action::PlaceRots(place)) => {
                at == *place
            }
            (at, Action::Rots(rotten)) => at == *rotten,
            (at, Action::RingIsWiped { journal }) => {
                matches!(at, Location::Journal(..)) == *journal
            }
            _ => false,
        };
        for at in Location::of_rings(rings).filter(is_hit) {
            self.device.rot(at);
        }
        match action {
            Action::RingIsWiped { .. } => self.wiped = true,
            _ => self.rotten = true,
        }
    }

    /// A recovery shows its files: one moment of history, not before the last answer.
    fn judge(&mut self, memory: Memory, journal: bool) {
        let found = memory.lsn;
        if found < self.answered {
            return self.fail("P1: an operation is gone that was answered");
        }
        let moment = self.history.get(found as usize);
        if !moment.is_some_and(|moment| is_moment(&memory.tree, moment)) {
            return self.fail("P3: the files are those of no moment");
        }
        if !memory.reads_right(&self.device) {
            return self.fail("P5: a file holds what was never written to it");
        }
        self.seen = RecoveryFacts {
            replayed_log: memory.recovering,
            replayed_journal: journal,
            lost: found as usize + 1 < self.history.len(),
            rotten: self.rotten,
            refused: false,
        };
        self.history.change(|history| history.truncate(found as usize + 1));
        let known = memory.tree.iter().flatten().map(|extent| extent.version);
        self.version = known.max().unwrap_or(0) + 1;
        self.phase = Phase::Open(Shared::new(memory));
    }
}

/// Carries out an operation of a program, if it is one; answers whether it has data, which is `version`.
fn operate(
    memory: &mut Memory,
    device: &mut Device,
    action: &Action,
    version: Version,
) -> Option<bool> {
    match *action {
        Action::WriteData(file) => memory.write_data(device, file, version),
        Action::LogData(file) => memory.log_data(file, version),
        Action::Remove(file) => memory.apply(file, None, Content::Durable),
        Action::WriteInPlace(file) => memory.write_in_place(device, file, version),
        Action::Reserve(file) => memory.reserve(file),
        Action::Unwrite(file) => memory.unwrite(file),
        _ => return None,
    }
    Some(!matches!(action, Action::Reserve(_) | Action::Unwrite(_)))
}

/// Carries out a step of a thread.
fn step(memory: &mut Memory, device: &mut Device, action: &Action) {
    match *action {
        Action::ApplyWritten => memory.apply_written(),
        Action::FlushInPlace => memory.flush_in_place(device),
        Action::ApplyInPlace => memory.apply_in_place(),
        Action::Lead => memory.lead(),
        Action::LogWrite => memory.log_write(device),
        Action::Append => memory.append(),
        Action::Confirm => memory.confirm(device),
        Action::LogFlush => memory.log_flush(device),
        Action::Answer => memory.answer(),
        Action::Freeze { seal } => memory.freeze(seal),
        Action::CheckpointAtOnce => memory.checkpoint_at_once(device),
        Action::WriteCommit => memory.write_commit(device),
        Action::CommitFlush => memory.commit_flush(device),
        Action::Thaw => memory.commit_thaw(),
        Action::WriteNodes => memory.write_nodes(device),
        Action::NodesFlush => memory.nodes_flush(device),
        Action::Publish => memory.publish(device),
        Action::PublishFlush => memory.publish_flush(device),
        Action::Release => memory.release(),
        Action::ThreadDies(whose) => memory.thread_dies(whose),
        _ => unreachable!("{action:?} is no step of an open volume"),
    }
}

impl Model for Protocol {
    type State = MachineState;
    type Action = Action;

    fn init_states(&self) -> Vec<MachineState> {
        let tree = Tree::default();
        let rings = self.bounds.rings;
        // mkfs writes markers as a recovery does.
        let commit = Shared::new(Commit::marker(JournalMark::default(), 0));
        let batch = Shared::new(Batch::marker(LogMark::default(), 0));
        let superblock = Superblock {
            epoch: 1,
            location: (0, 1),
            lsn: 0,
            journal: JournalMark { commit: 1, sum: commit.sum() },
            log: LogMark { batch: 1, next: 1 % rings.log, sum: batch.sum() },
        };
        let mut device = Device::new(rings);
        let (commit, batch) = (Held::Commit(commit), Held::Batch(batch));
        for place in rings.places() {
            device.write(Location::Journal(*place, 1 % rings.journal), commit.clone());
            device.write(Location::Log(*place, 0), batch.clone());
        }
        device.write(Location::Pool(0), Held::Node(1, tree));
        device.write(Location::Superblock(1), Held::Superblock(Shared::new(superblock)));
        device.flush();
        vec![MachineState {
            device,
            phase: Phase::Open(Shared::new(Memory::open(
                superblock,
                tree,
                self.bounds.rings,
                self.broken,
            ))),
            history: Shared::new(vec![tree]),
            answered: 0,
            operations: 0,
            version: 1,
            commits: 0,
            crashes: 0,
            rotten: false,
            wiped: false,
            violation: None,
            seen: RecoveryFacts::default(),
        }]
    }

    fn actions(&self, state: &MachineState, actions: &mut Vec<Action>) {
        self.enabled(state, actions);
    }

    fn next_state(&self, last: &MachineState, action: Action) -> Option<MachineState> {
        let mut state = last.clone();
        let device = &mut state.device;
        match action {
            Action::PowerCut(left) => {
                device.cut(&left);
                state.phase = Phase::Down;
                state.crashes += 1;
                return Some(state);
            }
            Action::Kill | Action::FlushFails => {
                if action == Action::FlushFails {
                    device.fail_flush();
                }
                state.phase = Phase::Down;
                state.crashes += 1;
                return Some(state);
            }
            Action::ByteRots(at) => {
                device.rot_byte(at);
                state.rotten = true;
                return Some(state);
            }
            Action::PlaceRots(_) | Action::Rots(_) | Action::RingIsWiped { .. } => {
                state.rot(&action, self.bounds.rings);
                return Some(state);
            }
            Action::Open => {
                match Recovery::read(device, self.bounds.rings, self.broken) {
                    Err(WIPED) if state.wiped => state.seen.refused = true,
                    Ok(_) if state.wiped => {
                        state.fail("P1: nothing says that a ring was wiped");
                    }
                    Ok(recovery) => state.phase = Phase::Recovering(Shared::new(recovery)),
                    Err(violation) => state.fail(violation),
                }
                return Some(state);
            }
            _ => {}
        }
        match &mut state.phase {
            Phase::Recovering(recovery) if action == Action::RecoverWrite => {
                recovery.change(|recovery| recovery.write(&mut state.device));
            }
            Phase::Recovering(recovery) => {
                let found_commits = recovery.is_needed();
                let memory = recovery.finish_log(&mut state.device);
                state.judge(memory, found_commits);
            }
            Phase::Open(memory) => {
                let (applied, version) = (memory.lsn, state.version);
                let has_data = memory.change(|memory| {
                    let has_data = operate(memory, device, &action, version);
                    if has_data.is_none() {
                        step(memory, device, &action);
                    }
                    has_data
                });
                let commits = matches!(action, Action::Freeze { .. } | Action::CheckpointAtOnce);
                state.operations += u8::from(has_data.is_some());
                state.version += Version::from(has_data == Some(true));
                state.commits += u8::from(commits);
                if memory.lsn > applied {
                    state.history.change(|history| history.push(memory.tree));
                }
                if !memory.recovering {
                    state.answered = memory.durable;
                }
            }
            Phase::Down => return None,
        }
        if state.crashes == self.bounds.crashes {
            state.device.settle();
        }
        let reads_right = state.memory().is_none_or(|memory| memory.reads_right(&state.device));
        if state.violation.is_none() && !reads_right {
            state.fail("P6: a file that is open does not match its checksum");
        }
        Some(state)
    }

    fn format_action(&self, action: &Action) -> String
    where
        Action: Debug,
    {
        format!("{action:?}")
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::of(self)
    }
}
