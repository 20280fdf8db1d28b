//! Free space that goes back to the device: which, and that none of it is given away meanwhile.
//!
//! Blocks that may be given away may be discarded: each state that a recovery may come back to finds them free, or
//! written anew (R2). From the begin of a discard to its end they are no free space: a write that went to them would
//! be lost with it. Where the space belongs to a host then, they stay unbacked: it has to be asked for them
//! again before they are promised (P8).
//!
//! What is promised, and the reserve of removals and commits, is never discarded.

use holdfast_base::mutants::{self, Mutant};
use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockRange, TreeId};

use super::alloc::Space;
use super::discard::{
    DiscardRule, Discarding, Due, GO_BLOCKS, LEAST_BLOCKS, Scope, by_piece_back, join_front,
};
use super::group::discard::pieces;
use super::group::{Group, Run};
use super::promise::{Floor, LINEAGE_CHANGES, Wanted, few_nodes};
use super::slots::{NodeSlots, NodesNeeded, Room};
use super::unbacked::{PIECE_BLOCKS, Unbacked};

impl Space {
    /// How many discards have come to their end, if one is under way.
    pub(crate) fn discard_under_way(&self) -> Option<u64> {
        self.discards.is_under_way.then_some(self.discards.ended)
    }

    /// How many discards have come to their end.
    pub(crate) fn discards_ended(&self) -> u64 {
        self.discards.ended
    }

    /// A caller finds too little space, or goes on.
    pub(crate) fn wants_space(&mut self, wants: bool) {
        let wanting = self.discards.wanting;
        self.discards.wanting = if wants { wanting + 1 } else { wanting - 1 };
    }

    /// Whether a caller finds too little space.
    pub(crate) fn is_wanted(&self) -> bool {
        self.discards.wanting > 0
    }

    /// Number of block groups.
    pub(crate) fn group_count(&self) -> u64 {
        self.groups.count()
    }

    /// Groups in which blocks became free that the device may have back, or all of which the host has given anything, in order.
    pub(crate) fn due_groups(&mut self, scope: Scope) -> Vec<u64> {
        match &self.unbacked {
            Some(unbacked) if scope == Scope::All => unbacked.list_given(self.groups.count()),
            _ => {
                self.groups.forget_discardable();
                self.groups.discardable()
            }
        }
    }

    /// Bytes of the pieces in which blocks became free.
    pub(crate) fn discardable_bytes(&self) -> u64 {
        self.groups.discardable_pieces() * PIECE_BLOCKS * BLOCK_BYTES
    }

    /// What is to be discarded of a group now.
    pub(crate) fn due_pieces(&mut self, index: u64, scope: Scope, rule: &DiscardRule) -> Due {
        // What a trim of longer runs leaves is still the background's.
        let (discardable, fresh) = match scope == Scope::All && rule.least > LEAST_BLOCKS {
            true => (0, 0),
            false if self.groups.is_lost(index) => (0, 0),
            false => {
                self.groups.change(index, |group| group.discardable.look(scope == Scope::Quiet))
            }
        };
        match scope {
            Scope::All => Due { pieces: u32::MAX, discardable, fresh: u32::MAX },
            _ => Due { pieces: discardable, discardable, fresh },
        }
    }

    /// Begins to discard free blocks of what is due of a group that lie before the block `below` of it, as many as
    /// promises and reserves do not need. One discard is made at a time.
    pub(crate) fn begin_discard(
        &mut self,
        index: u64,
        due: Due,
        below: u64,
        rule: &DiscardRule,
    ) -> Option<Discarding> {
        assert!(!self.discards.is_under_way, "one discard at a time");
        if self.groups.is_lost(index) {
            return None;
        }
        let to_host = rule.to_host || self.unbacked.is_some();
        if to_host && self.unbacked.is_none() {
            // All of it was given; what is given back has to be asked for from now on.
            self.unbacked = Some(Unbacked::none(self.geometry()));
        }
        let asked = self.unbacked.as_ref().map_or(0, |unbacked| unbacked.asked_in(index));
        let idle = match due.pieces & !asked {
            0 => Vec::new(),
            due => self.groups.get_mut(index).idle_runs(due, rule.unit, rule.least),
        };
        let (mut runs, mut kept, mut sum, mut is_full) = (Vec::new(), 0, 0, false);
        // From the end, so that what is kept lies at the begin, where nodes look first.
        let before = idle.iter().rev().filter_map(|run| run.before(below));
        for part in before.flat_map(by_piece_back) {
            if sum >= GO_BLOCKS {
                is_full = true;
                break;
            }
            let taken = match to_host {
                true => self.hide_part(index, part, pieces(part) & due.fresh != 0, rule),
                false if kept == 0 => self.take_aside(index, part, rule).into_iter().collect(),
                false => Vec::new(),
            };
            let blocks: u64 = taken.iter().map(|run| run.len).sum();
            sum += blocks;
            taken.into_iter().for_each(|run| join_front(&mut runs, run));
            if blocks < part.len {
                kept |= pieces(part);
            }
        }
        runs.reverse();
        let goes_on = !runs.is_empty() && (is_full || !to_host && kept != 0);
        self.groups.change(index, |group| {
            if !goes_on {
                group.discardable.again(due.discardable & asked);
            }
            // What lies behind the begin of this is not looked at again when it goes on below that.
            if to_host || !goes_on {
                group.discardable.keep(kept & due.discardable);
            }
        });
        if runs.is_empty() {
            self.groups.forget_empty(index);
            return None;
        }
        let pieces = runs.iter().fold(0, |all, run| all | pieces(*run));
        if to_host && let Some(unbacked) = &mut self.unbacked {
            unbacked.begin_discard(index, pieces, self.discards.blocks);
        }
        self.discards.is_under_way = true;
        let group = self.groups.get_mut(index);
        let mut blocks: Vec<BlockRange> = runs.iter().map(|run| group.blocks(*run)).collect();
        if mutants::is(Mutant::DiscardedEarly) {
            blocks.extend(self.freed_too_early());
        }
        Some(Discarding { index, runs, to_host, goes_on, blocks })
    }

    /// Keeps the end of a part from being given away, as much of it as no promise and no reserve needs, whole units.
    fn take_aside(&mut self, index: u64, part: Run, rule: &DiscardRule) -> Option<Run> {
        let Room { blocks, places, pairs } = self.free_beside(rule.spare);
        // A run of n blocks touches at most n / place + 2 places, each of another slot or of the same.
        let of_slots = pairs.min(places).saturating_sub(2) * self.geometry().node_blocks();
        let beside = blocks.min(of_slots);
        let len = match part.len <= beside {
            true => part.len,
            false => beside / rule.unit * rule.unit,
        };
        if len < rule.least.min(part.len) || len == 0 {
            return None;
        }
        let end = Run { at: part.at + part.len - len, len };
        self.groups.change(index, |group| group.set_aside(end, true));
        self.discards.blocks += len;
        Some(end)
    }

    /// Hides of a part all that no promise and no reserve needs. Returns what is unbacked of it now, the last first. Of a part that is
    /// not `fresh` the same was unbacked before, but for what a reserve kept.
    ///
    /// A reserve needs whole slots. What lies between them, in runs too short for a discard of their own, was else many times what
    /// it needs: behind a tree of small files free blocks and unbacked ones lie side by side.
    fn hide_part(&mut self, index: u64, part: Run, is_fresh: bool, rule: &DiscardRule) -> Vec<Run> {
        let mut beside = self.free_beside(rule.spare);
        let least = rule.least.min(part.len);
        // Where what is free of one kind is no more than is kept, the other one goes all the same: of pairs that are kept no place is single.
        let least_places = least.div_ceil(self.geometry().node_blocks());
        for slots in [&mut beside.pairs, &mut beside.places] {
            *slots = if *slots < least_places { 0 } else { *slots };
        }
        let group = self.groups.get_mut(index);
        let mut runs = group.part_beside(part, rule.unit, beside);
        if !is_fresh {
            runs.retain(|run| group.free_in(*run) > 0);
        }
        if rule.least > LEAST_BLOCKS {
            // A call for long ranges gets no short ones.
            runs.retain(|run| run.len >= least);
        }
        self.discards.blocks += self
            .groups
            .change(index, |group| runs.iter().map(|run| group.hide_run(*run)).sum::<u64>());
        runs
    }

    /// Whether nothing is there that could be removed but a snapshot of few nodes.
    pub(crate) fn is_empty(&self) -> bool {
        self.inodes <= 1 && self.nodes() <= few_nodes(self.geometry())
    }

    /// Whether it is an empty image: all of it may go.
    pub(crate) fn all_may_go(&self) -> bool {
        self.unbacked.is_some() && self.is_empty()
    }

    /// What stays of the reserve where free space goes back: an empty volume has but a snapshot to remove, and a new one has no reserve.
    fn floor_of_given(&self) -> Floor {
        if self.is_empty() { Floor::Checkpoint } else { Floor::Grow }
    }

    /// What stays free beside that: room for nodes of a files tree, or for data; of an empty volume for the deletion of a snapshot.
    fn spared(&self, blocks: u64) -> Wanted {
        let geometry = self.geometry();
        let leaves = blocks / geometry.blocks_of(geometry.stored(TreeId::Files, 0));
        let (tree, nodes) = match self.is_empty() {
            true => (TreeId::Space, NodesNeeded::of_splits(LINEAGE_CHANGES, 1, self.nodes())),
            false => (TreeId::Files, NodesNeeded { leaves, above: leaves / 8, all: leaves }),
        };
        Wanted { slots: NodeSlots::of_tree(geometry, tree, nodes), ..Wanted::default() }
    }

    /// What is free beside what is promised and reserved, and `spare` blocks.
    fn free_beside(&self, spare: u64) -> Room {
        let (room, floor) = (self.room(), self.floor_of_given());
        let spared = self.spared(spare);
        let slots = room.beside(self.promises.kept_for_all(floor, spared));
        // Where leaves have copies, a place without its other one is room for no node.
        let has_singles = self.geometry().leaf_copies;
        Room {
            blocks: room.blocks.saturating_sub(self.promises.wanted_blocks(spared, floor)),
            places: if has_singles { u64::MAX } else { slots.places },
            pairs: slots.pairs,
        }
    }

    /// Bytes that promises and reserves have too little of what is free and known to be given.
    pub(crate) fn reserve_lacks(&self) -> u64 {
        let (room, floor) = (self.room(), self.floor_of_given());
        let spared = self.spared(0);
        let kept = self.promises.kept_for_all(floor, spared);
        // Where each node is stored once, none is kept twice.
        let pairs = self.promises.pairs_of(kept, floor).saturating_sub(room.pairs);
        let slots = kept.places().saturating_sub(room.places).max(pairs);
        let wanted = self.promises.wanted_blocks(spared, floor);
        let blocks = wanted.saturating_sub(room.blocks);
        blocks.max(slots.saturating_mul(self.geometry().node_blocks())).saturating_mul(BLOCK_BYTES)
    }

    /// What was due of a group, and was not all tried, waits for the next look.
    pub(crate) fn due_again(&mut self, index: u64, due: Due) {
        self.groups.change(index, |group| group.discardable.again(due.discardable));
    }

    /// The device has answered, or has refused some of it.
    pub(crate) fn end_discard(&mut self, discarding: Discarding, has_failed: bool) {
        let Discarding { index, runs, to_host, .. } = discarding;
        self.discards.is_under_way = false;
        self.discards.blocks = 0;
        self.discards.ended += 1;
        if !to_host {
            let back = |group: &mut Group| runs.iter().for_each(|run| group.set_aside(*run, false));
            self.groups.change(index, back);
        }
        self.may_have_slots(index);
        let geometry = *self.geometry();
        if to_host && let Some(unbacked) = &mut self.unbacked {
            unbacked.end_discard(|piece| self.groups.has_unbacked(piece), has_failed, &geometry);
        }
        self.groups.forget_empty(index);
        if to_host
            && self.groups.is_empty(index)
            && let Some(unbacked) = &mut self.unbacked
        {
            unbacked.has_given_of(index, false);
        }
        self.keep_for_given();
    }

    /// What [`Mutant::DiscardedEarly`] discards: blocks that a recovery may come back to.
    fn freed_too_early(&self) -> Vec<BlockRange> {
        self.freed.waiting().copied().collect()
    }
}
