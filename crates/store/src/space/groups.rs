//! The block groups of a volume: what is free in all of them, and which may differ from the tree. `away.rs` has those whose
//! bitmaps are not in memory.
//!
//! Knows nothing of promises, and of where something is put.

mod away;
mod judge;

use holdfast_base::{BlockNo, BlockRange};
use holdfast_format::Geometry;
use holdfast_format::limits::GROUP_BLOCKS;

use super::group::discard::{Discardable, pieces};
use super::group::{Group, Run};
use super::having::{Having, Round};
use super::slots::{NodeSlots, Room};
use super::unbacked::PIECES_PER_GROUP;
pub(crate) use away::Pieces;
use away::{Away, BitmapState};

/// The bitmap of this group is wanted in memory first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wants(pub(crate) u64);

/// All groups.
#[derive(Debug)]
pub(crate) struct Groups {
    geometry: Geometry,
    /// Those that are in memory.
    list: Vec<Option<Box<Group>>>,
    away: Away,
    /// Sums over all groups.
    free: Room,
    pub(super) used_blocks: u64,
    pub(super) node_blocks: u64,
    /// Groups with a free block.
    with_blocks: Having,
    /// Groups with a free slot, whose bitmaps are known.
    with_slots: Having,
    /// Groups with a place that is free without its other one, whose bitmaps are known.
    with_singles: Having,
    /// What is free in groups whose bitmaps are known.
    ready: Room,
    /// Groups with a free slot, whose bitmaps have to be loaded first.
    away_with_slots: Having,
    /// The same of places that are free without their other ones.
    away_with_singles: Having,
    /// Of each group whether what is free in it is unbacked, if it is not in memory.
    is_unbacked: Vec<bool>,
    /// Groups that may differ from the tree.
    dirty: Vec<u64>,
    /// Groups with discardable pieces, and how many pieces wait.
    discardable: Vec<u64>,
    discardable_pieces: u64,
}

impl Groups {
    /// Groups with nothing in use.
    pub(super) fn new(geometry: Geometry) -> Groups {
        let count = geometry.group_count();
        let mut groups = Groups {
            geometry,
            list: (0..count).map(|_| None).collect(),
            away: Away::of(count),
            free: Room { blocks: geometry.data_blocks(), ..Room::NONE },
            used_blocks: 0,
            node_blocks: 0,
            with_blocks: Having::none_of(count),
            with_slots: Having::none_of(count),
            with_singles: Having::none_of(count),
            ready: Room::NONE,
            away_with_slots: Having::none_of(count),
            away_with_singles: Having::none_of(count),
            is_unbacked: vec![false; count as usize],
            dirty: Vec::new(),
            discardable: Vec::new(),
            discardable_pieces: 0,
        };
        groups.free.pairs = Groups::slots_of(&geometry);
        groups.free.places = Groups::places_of(&geometry);
        groups.find_having();
        groups
    }

    /// Finds which groups have something free.
    fn find_having(&mut self) {
        let count = self.count();
        (self.with_blocks, self.with_slots) = (Having::none_of(count), Having::none_of(count));
        self.with_singles = Having::none_of(count);
        self.away_with_slots = Having::none_of(count);
        self.away_with_singles = Having::none_of(count);
        self.ready = Room::NONE;
        for index in 0..count {
            self.note_having(index);
            self.ready = self.ready.and(self.ready_in(index));
        }
    }

    /// What is free in a group is other than it was.
    fn note_having(&mut self, index: u64) {
        let (free, is_away) = (self.free_in(index), self.is_away(index));
        self.with_blocks.set(index, free.blocks > 0);
        let has_singles = self.geometry.copy_mask != 0 && free.singles() > 0;
        self.with_slots.set(index, free.pairs > 0 && !is_away);
        self.with_singles.set(index, has_singles && !is_away);
        self.away_with_slots.set(index, free.pairs > 0 && is_away);
        self.away_with_singles.set(index, has_singles && is_away);
    }

    /// What is free in a group, if its bitmap is known.
    fn ready_in(&self, index: u64) -> Room {
        if self.is_away(index) { Room::NONE } else { self.free_in(index) }
    }

    /// Does something to a group that changes what is known of it, and the sums with it.
    pub(super) fn turn<R>(&mut self, index: u64, turn: impl FnOnce(&mut Groups) -> R) -> R {
        let (before, ready) = (self.free_in(index), self.ready_in(index));
        let result = turn(self);
        self.free = self.free.and(self.free_in(index)).less(before);
        self.ready = self.ready.and(self.ready_in(index)).less(ready);
        self.note_having(index);
        result
    }

    /// The next group with a free block on a way round all of them.
    pub(super) fn next_with_blocks(&self, round: &mut Round) -> Option<u64> {
        self.with_blocks.next_in(round)
    }

    /// The longest run of free blocks that may be in a group.
    pub(super) fn run_max(&self, index: u64) -> u64 {
        self.get(index).map_or_else(|| self.away.run_max(index), Group::run_max)
    }

    /// A group with a free slot whose bitmap is known, the first from `from` on if there is one.
    pub(super) fn with_slots(&self, from: u64) -> Option<u64> {
        self.with_slots.next(from).or_else(|| self.with_slots.next(0))
    }

    /// The first group with a place that is free without its other one, of those whose bitmaps are known.
    pub(super) fn with_singles(&self) -> Option<u64> {
        self.with_singles.next(0)
    }

    /// Places for nodes of a volume of this shape in which nothing is in use.
    fn places_of(geometry: &Geometry) -> u64 {
        (0..geometry.group_count()).map(|index| geometry.places_of_group(index)).sum()
    }

    /// The first group that has to be loaded before there is room for so many nodes in those whose bitmaps are known, or that lies before
    /// all of these. So many pairs as are `kept` are not broken while there are single places.
    pub(super) fn wanted_for_slots(&self, slots: NodeSlots, kept: u64) -> Option<u64> {
        let of_singles = self.wanted_for_singles(slots, kept);
        of_singles.or_else(|| {
            let first = self.away_with_slots.next(0)?;
            let is_before = self.with_slots.next(0).is_none_or(|ready| first < ready);
            (is_before || !self.ready.holds(slots, 0)).then_some(first)
        })
    }

    fn wanted_for_singles(&self, slots: NodeSlots, kept: u64) -> Option<u64> {
        let first = self.away_with_singles.next(0).filter(|_| slots.once > 0)?;
        let is_before = self.with_singles().is_none_or(|ready| first < ready);
        let broken = slots.once.saturating_sub(self.ready.singles()).div_ceil(2);
        let breaks_kept = broken > 0 && self.free.pairs < kept + slots.twice + broken;
        (is_before || breaks_kept).then_some(first)
    }

    /// Slots of a volume of this shape in which nothing is in use.
    pub(super) fn slots_of(geometry: &Geometry) -> u64 {
        (0..geometry.group_count()).map(|index| geometry.slots_of_group(index)).sum()
    }

    /// The volume has become larger. What is new is free, or unbacked.
    pub(super) fn extend(&mut self, geometry: Geometry, is_unbacked: bool) {
        let last = self.count() - 1;
        if is_unbacked && !self.is_unbacked[last as usize] && !self.is_lost(last) {
            // Its new part is unbacked, and what it had is not.
            self.get_mut(last);
        }
        let before = self.free_in(last);
        self.geometry = geometry;
        self.list.resize_with(geometry.group_count() as usize, || None);
        self.away.extend(geometry.group_count());
        self.is_unbacked.resize(self.list.len(), is_unbacked);
        if let Some(group) = &mut self.list[last as usize] {
            group.extend(geometry.group_blocks(last), is_unbacked);
        }
        let added = (last..self.count()).map(|index| self.free_in(index));
        let added = added.fold(Room::NONE, Room::and);
        self.free = self.free.and(added).less(before);
        self.find_having();
    }

    /// How many.
    pub(super) fn count(&self) -> u64 {
        self.list.len() as u64
    }

    /// What is free in all of them.
    pub(super) fn free(&self) -> Room {
        self.free
    }

    /// A group, if it is in memory.
    pub(super) fn get(&self, index: u64) -> Option<&Group> {
        self.list[index as usize].as_deref()
    }

    /// A group whose bitmap is known. What is free in it is changed by [`Groups::change`] only.
    pub(super) fn get_mut(&mut self, index: u64) -> &mut Group {
        if self.list[index as usize].is_none() {
            assert_eq!(self.away.state(index), BitmapState::Empty, "group {index} was not loaded");
            let group = self.new_group(index);
            self.put(index, group);
        }
        self.list[index as usize].as_mut().expect("it was put there")
    }

    /// Changes a group whose bitmap is known, and the sums with it.
    pub(super) fn change<R>(&mut self, index: u64, change: impl FnOnce(&mut Group) -> R) -> R {
        let before = self.free_in(index);
        let group = self.get_mut(index);
        group.is_recent = true;
        let discardable_before = group.discardable.waiting().count_ones();
        let result = change(group);
        let after = group.room();
        let discardable = group.discardable.waiting().count_ones();
        let is_unlisted =
            discardable > 0 && !std::mem::replace(&mut group.discardable.listed, true);
        let change = |sum: Room| sum.and(after).less(before);
        (self.free, self.ready) = (change(self.free), change(self.ready));
        self.discardable_pieces =
            self.discardable_pieces + u64::from(discardable) - u64::from(discardable_before);
        if is_unlisted {
            self.discardable.push(index);
        }
        let has = |room: Room| (room.blocks > 0, room.pairs > 0, room.singles() > 0);
        if has(before) != has(after) {
            self.note_having(index);
        }
        result
    }

    /// Pieces in which blocks became free that the device may have back.
    pub(super) fn discardable_pieces(&self) -> u64 {
        self.discardable_pieces
    }

    /// The discardable pieces of a group wait no more.
    pub(super) fn forget_waiting(&mut self, discardable: &Discardable) {
        self.discardable_pieces -= u64::from(discardable.waiting().count_ones());
    }

    /// Groups with discardable pieces, in order.
    pub(super) fn discardable(&mut self) -> Vec<u64> {
        self.discardable.sort_unstable();
        self.discardable.clone()
    }

    /// Takes groups off the list that have no discardable piece any more.
    pub(super) fn forget_discardable(&mut self) {
        let (list, away) = (&mut self.list, &mut self.away);
        self.discardable.retain(|index| {
            let Some(group) = &mut list[*index as usize] else {
                return away.stays_discardable(*index);
            };
            group.discardable.listed = !group.discardable.is_nothing();
            group.discardable.listed
        });
    }

    /// Forgets a group that was only looked at: of one that is not in memory everything is free, or unbacked.
    pub(super) fn forget_empty(&mut self, index: u64) {
        let blocks = self.geometry.group_blocks(index).count;
        if let Some(is_unbacked) = self.get(index).and_then(|group| group.is_as_new(blocks)) {
            self.list[index as usize] = None;
            self.is_unbacked[index as usize] = is_unbacked;
            self.away.left(index);
        }
    }

    /// Whether a group has no record and nothing in use.
    pub(super) fn is_empty(&self, index: u64) -> bool {
        self.get(index).is_none() && self.away.state(index) == BitmapState::Empty
    }

    /// Whether anything is in use in a group, or was when it left memory.
    pub(super) fn is_used_at_all(&self, index: u64) -> bool {
        match self.get(index) {
            Some(group) => group.used_blocks > 0,
            None => self.away.state(index) != BitmapState::Empty,
        }
    }

    /// What is free in a group. Of one that is not loaded there may be more slots, or they are lost.
    pub(super) fn free_in(&self, index: u64) -> Room {
        match self.get(index) {
            Some(group) => group.room(),
            None if self.away.state(index) != BitmapState::Empty => self.away.free_in(index),
            None if self.is_unbacked[index as usize] => Room::NONE,
            None => Room {
                blocks: self.geometry.group_blocks(index).count,
                places: self.geometry.places_of_group(index),
                pairs: self.geometry.slots_of_group(index),
            },
        }
    }

    /// Hides everything that is free.
    pub(super) fn hide(&mut self) {
        self.list.iter_mut().flatten().for_each(|group| group.hide());
        self.away.hide();
        self.free = Room::NONE;
        self.is_unbacked.fill(true);
        self.find_having();
    }

    /// The pieces of a group with blocks that are free but for the host; of one that is not loaded those that may have some.
    pub(super) fn unbacked_pieces(&self, index: u64) -> u32 {
        let blocks = self.geometry.group_blocks(index);
        match self.get(index) {
            Some(group) => (0..PIECES_PER_GROUP)
                .filter(|piece| group.has_unbacked_piece(*piece))
                .fold(0, |pieces, piece| pieces | 1 << piece),
            None if !self.is_unbacked[index as usize] => self.away.unbacked_pieces(index),
            None if self.away.has_nothing_free(index, blocks.count) => 0,
            None => u32::MAX,
        }
    }

    /// Whether blocks of `range` are free but for the host, or may be.
    pub(super) fn has_unbacked(&self, range: BlockRange) -> bool {
        by_group(range).any(|(index, part)| {
            let run = Run { at: part.start.0 % GROUP_BLOCKS, len: part.count };
            self.unbacked_pieces(index) & pieces(run) != 0
        })
    }

    /// Marks blocks as used, or not any more: their groups may differ from the tree. Of one that is not in memory nodes may be freed:
    /// that is done to it when it comes. One that is lost stays as it is.
    pub(super) fn set_used(&mut self, range: BlockRange, used: bool, node: bool) {
        for (index, part) in by_group(range) {
            let listed = match self.list[index as usize].is_some() {
                false if self.away.state(index) == BitmapState::Lost => continue,
                false if self.is_away(index) => {
                    assert!(node && !used, "only a node leaves a group that was not loaded");
                    self.away.free_node(index, part)
                }
                _ => self.change(index, |group| {
                    group.set_used(part, used, node);
                    std::mem::replace(&mut group.listed, true)
                }),
            };
            if !listed {
                self.dirty.push(index);
            }
            let nodes = if node { part.count } else { 0 };
            if used {
                self.used_blocks += part.count;
                self.node_blocks += nodes;
            } else {
                self.used_blocks -= part.count;
                self.node_blocks -= nodes;
            }
        }
    }

    /// The group that [`Groups::take_dirty`] would take.
    pub(crate) fn next_dirty(&self) -> Option<u64> {
        self.dirty.last().copied()
    }

    /// The groups that [`Groups::take_dirty`] would take, one after the other.
    pub(crate) fn all_dirty(&self) -> impl Iterator<Item = u64> {
        self.dirty.iter().rev().copied()
    }

    /// Takes a group off the list of those that may differ from the tree. Carrying it into the tree takes and frees nodes, which may put
    /// it on the list again.
    pub(crate) fn take_dirty(&mut self) -> Option<u64> {
        let index = self.dirty.pop()?;
        if let Some(group) = &mut self.list[index as usize] {
            group.listed = false;
        }
        Some(index)
    }

    /// Number of groups that may differ from the tree.
    pub(crate) fn dirty_count(&self) -> usize {
        self.dirty.len()
    }

    /// Groups that are in memory.
    #[cfg(debug_assertions)]
    pub(crate) fn in_memory(&self) -> Vec<u64> {
        let here = (0..).zip(&self.list).filter(|(_, group)| group.is_some());
        here.map(|(index, _)| index).collect()
    }
}

/// The blocks of a group, and what would be those of the last one behind the end of the volume.
pub(crate) fn group_range(index: u64) -> BlockRange {
    BlockRange::new(BlockNo(index.saturating_mul(GROUP_BLOCKS)), GROUP_BLOCKS)
}

/// Cuts a range at the borders of groups.
pub(crate) fn by_group(range: BlockRange) -> impl Iterator<Item = (u64, BlockRange)> {
    let (mut at, end) = (range.start.0, range.start.0 + range.count);
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let index = at / GROUP_BLOCKS;
        let len = ((index + 1) * GROUP_BLOCKS).min(end) - at;
        let part = BlockRange::new(BlockNo(at), len);
        at += len;
        Some((index, part))
    })
}
