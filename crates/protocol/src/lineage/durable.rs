//! How the present becomes durable: commits, the log beside them, and what a recovery makes of both.

use super::log::Batch;
use super::mutant::Mutant;
use super::volume::Hand;
use super::{Frozen, Lineage, MachineState};
use crate::shared::Shared;

impl Lineage {
    /// Whether power may still fail. If not, it is the same what is durable.
    pub(super) fn may_crash(&self, state: &MachineState) -> bool {
        state.crashes < self.bounds.crashes
    }

    /// The present becomes a commit, which is on its way from now on.
    pub(super) fn freeze(&self, state: &mut MachineState, seals: bool) {
        let mut volume = state.volume.clone();
        match self.broken {
            Some(Mutant::CursorWithoutFrees) => volume.change(|of| of.used |= state.walked),
            Some(Mutant::FreesWithoutCursor) => volume.change(|volume| {
                let both = volume.snapshots.iter_mut().zip(&state.durable.snapshots);
                for (of, before) in both.filter_map(|(of, before)| of.as_mut().zip(*before)) {
                    of.cursor = before.cursor;
                }
            }),
            _ => {}
        }
        state.judged.freeze();
        state.freed_frozen |= std::mem::take(&mut state.freed);
        state.walked = 0;
        let (pending, batches) = (state.pending.take(), state.log.len());
        state.frozen = Some(Frozen { volume, seals, pending, batches });
        if !self.bounds.log {
            state.unwritten = 0;
            self.flush(state);
        }
    }

    pub(super) fn flush(&self, state: &mut MachineState) {
        let Some(frozen) = state.frozen.take() else { return };
        state.durable = frozen.volume;
        state.log.drain(..frozen.batches);
        state.judged.thaw(self.broken);
        state.freed_frozen = 0;
    }

    pub(super) fn may_sync(&self, state: &MachineState) -> bool {
        let is_held = state.frozen.as_ref().is_some_and(|frozen| frozen.seals)
            && self.broken != Some(Mutant::BarrierMissing);
        let frozen = state.frozen.as_ref().is_some_and(|frozen| frozen.pending.is_some());
        frozen || (state.pending.is_some() && !is_held)
    }

    /// What is pending goes to the log: first what is frozen, as no batch reaches over a freeze.
    pub(super) fn sync(&self, state: &mut MachineState) {
        if let Some(frozen) = &mut state.frozen
            && let Some(batch) = frozen.pending.take()
        {
            frozen.batches += 1;
            state.log.push(batch);
            return;
        }
        state.log.extend(state.pending.take());
    }

    /// The volume as a recovery finds it.
    pub(super) fn recover(&self, state: &MachineState) -> MachineState {
        let mut volume = (*state.durable).clone();
        let mut device = state.device;
        if self.broken == Some(Mutant::CursorKeptInMemory) {
            // A walk whose cursor is in no transaction begins anew.
            let cursors = volume.snapshots.iter_mut().flatten().map(|of| &mut of.cursor);
            cursors.flatten().for_each(|cursor| *cursor = 0);
        }
        let named = state.log.iter().map(Batch::named);
        let (kept, youngest) = named.fold((0, volume.epoch), |(kept, youngest), (named, birth)| {
            (kept | named, youngest.max(birth))
        });
        if self.bounds.log && self.broken != Some(Mutant::EpochNotAboveTheLog) {
            volume.epoch = youngest + 1;
        }
        let (unwritten, broken) = (&mut 0, self.broken);
        let mut hand = Hand { device: &mut device, kept, freed: 0, unwritten, broken };
        for batch in &state.log {
            batch.replay(&mut volume, &mut hand);
        }
        let shown = state.log.last().map_or(state.durable.seen(), |last| last.seen);
        if volume.seen() != shown {
            volume.fail("P3: a recovery shows what was not there at the last durable moment");
        }
        volume.judge(&device);
        let (operations, crashes) = (state.operations, state.crashes + 1);
        MachineState { operations, crashes, ..MachineState::of(Shared::new(volume), device) }
    }
}
