//! Which actions may come next: as the locks allow, and within the bounds.

use super::{Action, MachineState, Phase, Protocol};
use crate::disk::{Held, Location, ZEROS};
use crate::memory::{Checkpointer, Committer, InPlace, Leader, Memory};
use crate::recovery::{Step, before_marks};

impl Protocol {
    /// All actions that may come next.
    pub(super) fn enabled(&self, state: &MachineState, actions: &mut Vec<Action>) {
        if state.violation.is_some() {
            return;
        }
        match &state.phase {
            Phase::Open(memory) if memory.stopped => stopped(memory, actions),
            Phase::Open(memory) if memory.recovering => checkpoint(memory, actions),
            Phase::Open(memory) => {
                self.operations(memory, state, actions);
                self.steps(memory, state, actions);
                if state.crashes < self.bounds.crashes {
                    actions.extend(memory.at_work().map(Action::ThreadDies));
                }
            }
            Phase::Recovering(recovery) if recovery.step == Step::Log => {
                actions.push(Action::FinishLog);
            }
            Phase::Recovering(_) => actions.push(Action::RecoverWrite),
            Phase::Down if state.seen.refused => return,
            Phase::Down => {
                actions.push(Action::Open);
                return self.rot(state, actions);
            }
        }
        if state.crashes < self.bounds.crashes {
            actions.extend(state.device.cuts().into_iter().map(Action::PowerCut));
            if !state.device.is_flushed() {
                actions.extend([Action::Kill, Action::FlushFails]);
            }
        }
    }

    /// What may become of a disk, once: a ring is wiped, or a place of one rots where the rings stand twice, or else a byte before a mark.
    fn rot(&self, state: &MachineState, actions: &mut Vec<Action>) {
        let rings = self.bounds.rings;
        if !state.wiped && !state.rotten {
            actions.extend([true, false].map(|journal| Action::RingIsWiped { journal }));
        }
        if state.wiped {
            return;
        }
        if !rings.twice && !state.rotten && state.device.is_flushed() {
            actions.extend(before_marks(&state.device, rings).into_iter().map(Action::ByteRots));
        }
        // What was written and not flushed is lost in a power cut as well, or torn.
        if !rings.twice || state.rotten || !state.device.is_flushed() {
            return;
        }
        actions.extend(rings.places().iter().copied().map(Action::PlaceRots));
        let held = |at: &Location| *state.device.read(*at) != Held::Torn;
        actions.extend(Location::of_rings(rings).filter(held).map(Action::Rots));
    }

    /// What programs may do.
    fn operations(&self, memory: &Memory, state: &MachineState, actions: &mut Vec<Action>) {
        let left = self.bounds.operations - state.operations;
        if memory.written.is_some() {
            actions.push(Action::ApplyWritten);
        }
        match memory.in_place {
            Some(InPlace::Sent(..)) => actions.push(Action::FlushInPlace),
            // Its room was promised.
            Some(InPlace::Written(..)) => actions.push(Action::ApplyInPlace),
            None => {}
        }
        if left == 0 || !memory.has_room() {
            return;
        }
        // Files that were never touched are alike: the first of them stands for all.
        let files = if state.operations == 0 { 1 } else { self.bounds.files };
        for file in 0..files {
            if memory.is_filling(file) {
                continue;
            }
            if memory.written.is_none() {
                actions.push(Action::WriteData(file));
            }
            actions.push(Action::LogData(file));
            if memory.tree[file as usize].is_some() {
                actions.push(Action::Remove(file));
            }
            // The file's map is locked while data of it is on its way.
            let is_locked = memory.written.is_some_and(|(of, _)| of == file);
            if self.bounds.reserved && !is_locked {
                reserved(memory, file, actions);
            }
        }
    }

    /// The next steps of the threads.
    fn steps(&self, memory: &Memory, state: &MachineState, actions: &mut Vec<Action>) {
        match memory.leader {
            Leader::Idle if memory.may_lead() => actions.push(Action::Lead),
            Leader::Idle => {}
            Leader::Taken(_) => actions.push(Action::LogWrite),
            Leader::Written { ref place, .. } => {
                actions.push(Action::LogFlush);
                if place.head > memory.place.head {
                    actions.push(Action::Append);
                }
            }
            Leader::Flushed { .. } => actions.push(Action::Answer),
        }
        if memory.may_confirm() {
            actions.push(Action::Confirm);
        }
        match memory.committer {
            Committer::Idle if state.commits < self.bounds.commits => {
                for seal in [false, true] {
                    if memory.may_freeze(seal) {
                        actions.push(Action::Freeze { seal });
                    }
                }
                if memory.checkpointer == Checkpointer::Idle && memory.lsn != memory.committed {
                    actions.push(Action::CheckpointAtOnce);
                }
            }
            Committer::Frozen { .. } => actions.push(Action::WriteCommit),
            Committer::Written { .. } => actions.push(Action::CommitFlush),
            Committer::Flushed { .. } => actions.push(Action::Thaw),
            Committer::Idle | Committer::AtOnce { .. } => {}
        }
        checkpoint(memory, actions);
    }
}

/// What may become of the block of a file.
fn reserved(memory: &Memory, file: u8, actions: &mut Vec<Action>) {
    match memory.tree[file as usize] {
        None => actions.push(Action::Reserve(file)),
        Some(extent) if extent.version != ZEROS => actions.push(Action::Unwrite(file)),
        Some(_) => {}
    }
    if memory.may_fill(file) {
        actions.push(Action::WriteInPlace(file));
    }
}

fn checkpoint(memory: &Memory, actions: &mut Vec<Action>) {
    match memory.checkpointer {
        Checkpointer::Idle => {}
        Checkpointer::Sealed(_) => actions.push(Action::WriteNodes),
        Checkpointer::NodesWritten(_) => actions.push(Action::NodesFlush),
        Checkpointer::NodesFlushed(_) => actions.push(Action::Publish),
        Checkpointer::Published(_) => actions.push(Action::PublishFlush),
        Checkpointer::PublishedFlushed(_) => actions.push(Action::Release),
    }
}

/// Nothing reaches the device any more. What it has flushed is answered, and memory says so.
fn stopped(memory: &Memory, actions: &mut Vec<Action>) {
    if matches!(memory.leader, Leader::Flushed { .. }) {
        actions.push(Action::Answer);
    }
    if matches!(memory.committer, Committer::Flushed { .. }) {
        actions.push(Action::Thaw);
    }
    if matches!(memory.checkpointer, Checkpointer::PublishedFlushed(_)) {
        actions.push(Action::Release);
    }
}
