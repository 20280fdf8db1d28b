//! The block groups of a volume: which are in memory, what is free in all of them, and which may differ from the tree.
//!
//! Knows nothing of promises, and of where something is put.

use std::collections::BTreeMap;

use holdfast_base::{BlockNo, BlockRange};
use holdfast_format::Geometry;
use holdfast_format::limits::GROUP_BLOCKS;

use super::group::Group;
use super::having::{Having, Round};
use super::record::Record;
use super::slots::Room;

/// All groups. One that is not in memory is empty.
#[derive(Debug)]
pub(crate) struct Groups {
    geometry: Geometry,
    list: Vec<Option<Box<Group>>>,
    /// Sums over all groups.
    free: Room,
    /// Groups with a free block.
    with_blocks: Having,
    /// Groups with a free slot.
    with_slots: Having,
    /// Groups with a place that is free without its other one.
    with_singles: Having,
    /// Of each group whether what is free in it is hidden, if it is not in memory.
    is_hidden: Vec<bool>,
    /// Groups that may differ from the tree.
    dirty: Vec<u64>,
    /// Groups with stale pieces, and how many pieces wait.
    stale: Vec<u64>,
    stale_pieces: u64,
}

impl Groups {
    /// Groups with nothing in use.
    pub(super) fn new(geometry: Geometry) -> Groups {
        let count = geometry.group_count();
        let mut groups = Groups {
            geometry,
            list: (0..count).map(|_| None).collect(),
            free: Room { blocks: geometry.data_blocks(), places: 0, pairs: 0 },
            with_blocks: Having::none_of(count),
            with_slots: Having::none_of(count),
            with_singles: Having::none_of(count),
            is_hidden: vec![false; count as usize],
            dirty: Vec::new(),
            stale: Vec::new(),
            stale_pieces: 0,
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
        (0..count).for_each(|index| self.note_having(index));
    }

    /// What is free in a group is other than it was.
    fn note_having(&mut self, index: u64) {
        let free = self.free_in(index);
        self.with_blocks.set(index, free.blocks > 0);
        self.with_slots.set(index, free.pairs > 0);
        self.with_singles.set(index, self.geometry.copy_mask != 0 && free.places > 2 * free.pairs);
    }

    /// The next group with a free block on a way round all of them.
    pub(super) fn next_with_blocks(&self, round: &mut Round) -> Option<u64> {
        self.with_blocks.next_in(round)
    }

    /// A group with a free slot, the first from `from` on if there is one.
    pub(super) fn with_slots(&self, from: u64) -> Option<u64> {
        self.with_slots.next(from).or_else(|| self.with_slots.next(0))
    }

    /// The first group from `from` on, around the end, with a place that is free without its other one.
    pub(super) fn with_singles(&self, from: u64) -> Option<u64> {
        self.with_singles.next(from).or_else(|| self.with_singles.next(0))
    }

    /// Places for nodes of a volume of this shape in which nothing is in use.
    fn places_of(geometry: &Geometry) -> u64 {
        (0..geometry.group_count()).map(|index| geometry.places_of_group(index)).sum()
    }

    /// Slots of a volume of this shape in which nothing is in use.
    pub(super) fn slots_of(geometry: &Geometry) -> u64 {
        (0..geometry.group_count()).map(|index| geometry.slots_of_group(index)).sum()
    }

    /// The volume has become larger. What is new is free, or hidden.
    pub(super) fn extend(&mut self, geometry: Geometry, is_hidden: bool) {
        let last = self.count() - 1;
        if is_hidden && !self.is_hidden[last as usize] {
            // Its new part is hidden, and what it had is not.
            self.get_mut(last);
        }
        let before = self.free_in(last);
        self.geometry = geometry;
        self.list.resize_with(geometry.group_count() as usize, || None);
        self.is_hidden.resize(self.list.len(), is_hidden);
        if let Some(group) = &mut self.list[last as usize] {
            group.extend(geometry.group_blocks(last), is_hidden);
        }
        let added = (last..self.count()).map(|index| self.free_in(index));
        let none = Room { blocks: 0, places: 0, pairs: 0 };
        let added = added.fold(none, Room::and);
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

    /// A group that was touched, or is now. What is free in it is changed by [`Groups::change`] only.
    pub(super) fn get_mut(&mut self, index: u64) -> &mut Group {
        let geometry = self.geometry;
        let is_hidden = self.is_hidden[index as usize];
        self.list[index as usize].get_or_insert_with(|| {
            let inside = geometry.group_blocks(index);
            let mut group = Group::new(index, inside, geometry.node_blocks(), geometry.copy_mask);
            if is_hidden {
                group.hide();
            }
            Box::new(group)
        })
    }

    /// Changes a group, and the sums with it.
    pub(super) fn change<R>(&mut self, index: u64, change: impl FnOnce(&mut Group) -> R) -> R {
        let before = self.free_in(index);
        let group = self.get_mut(index);
        let stale_before = group.stale.waiting().count_ones();
        let result = change(group);
        let after = group.room();
        let stale = group.stale.waiting().count_ones();
        let is_unlisted = stale > 0 && !std::mem::replace(&mut group.stale.listed, true);
        self.free = self.free.and(after).less(before);
        self.stale_pieces = self.stale_pieces + u64::from(stale) - u64::from(stale_before);
        if is_unlisted {
            self.stale.push(index);
        }
        let has = |room: Room| (room.blocks > 0, room.pairs > 0, room.places > 2 * room.pairs);
        if has(before) != has(after) {
            self.note_having(index);
        }
        result
    }

    /// Pieces in which blocks became free that the device may have back.
    pub(super) fn stale_pieces(&self) -> u64 {
        self.stale_pieces
    }

    /// Groups with stale pieces, in order.
    pub(super) fn stale(&mut self) -> Vec<u64> {
        self.stale.sort_unstable();
        self.stale.clone()
    }

    /// Takes groups off the list that have no stale piece any more.
    pub(super) fn forget_stale(&mut self) {
        let list = &mut self.list;
        self.stale.retain(|index| {
            let Some(group) = &mut list[*index as usize] else { return false };
            group.stale.listed = !group.stale.is_nothing();
            group.stale.listed
        });
    }

    /// Forgets a group that was only looked at: of one that is not in memory everything is free, or hidden.
    pub(super) fn forget_empty(&mut self, index: u64) {
        let blocks = self.geometry.group_blocks(index).count;
        if let Some(is_hidden) = self.get(index).and_then(|group| group.is_as_new(blocks)) {
            self.list[index as usize] = None;
            self.is_hidden[index as usize] = is_hidden;
        }
    }

    /// What is free in a group, also in one that is not in memory because it is empty.
    pub(super) fn free_in(&self, index: u64) -> Room {
        match self.get(index) {
            Some(group) => group.room(),
            None if self.is_hidden[index as usize] => Room { blocks: 0, places: 0, pairs: 0 },
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
        self.free = Room { blocks: 0, places: 0, pairs: 0 };
        self.is_hidden.fill(true);
        self.find_having();
    }

    /// Whether blocks of `range` are free but for the host.
    pub(super) fn has_hidden(&self, range: BlockRange) -> bool {
        by_group(range).any(|(index, part)| match self.get(index) {
            Some(group) => group.has_hidden(part),
            None => self.is_hidden[index as usize],
        })
    }

    /// Whether every part of `range`, which may come from a damaged disk, lies in the data zone and in a group that
    /// `is_so` says it of.
    fn all(&self, range: BlockRange, is_so: impl Fn(Option<&Group>, BlockRange) -> bool) -> bool {
        self.geometry.holds_data(range)
            && by_group(range).all(|(index, part)| is_so(self.get(index), part))
    }

    /// Whether every block of `range`, which may come from a damaged disk, is free.
    pub(super) fn is_free(&self, range: BlockRange) -> bool {
        self.all(range, |group, part| group.is_none_or(|group| group.all_free(part)))
    }

    /// Whether every block of `range`, which may come from a damaged disk, is in use and not a
    /// block outside the data zone.
    pub(super) fn is_used(&self, range: BlockRange) -> bool {
        self.all(range, |group, part| group.is_some_and(|group| group.all_used(part, true)))
    }

    /// Whether no block of `range` may be given away: each is in use, or was taken.
    pub(super) fn is_busy(&self, range: BlockRange) -> bool {
        self.all(range, |group, part| group.is_some_and(|group| group.all_busy(part)))
    }

    /// Whether all of `ranges`, which do not overlap and are in use, can be data: each group has that much
    /// beside its nodes, as far as it knows.
    pub(super) fn can_be_data(&self, ranges: &[BlockRange]) -> bool {
        self.have(ranges, |group| group.used_blocks - group.node_blocks)
    }

    /// The same for nodes: each group counts that many of them.
    pub(super) fn can_be_nodes(&self, ranges: &[BlockRange]) -> bool {
        self.have(ranges, |group| group.node_blocks)
    }

    /// Whether each group has as many blocks of a sort as `ranges` have in it.
    fn have(&self, ranges: &[BlockRange], blocks: impl Fn(&Group) -> u64) -> bool {
        let mut of_group = BTreeMap::new();
        for (index, part) in ranges.iter().flat_map(|range| by_group(*range)) {
            *of_group.entry(index).or_insert(0) += part.count;
        }
        let has = |(index, count)| self.get(index).is_some_and(|group| blocks(group) >= count);
        of_group.into_iter().all(has)
    }

    /// Marks blocks as used, or not any more: their groups may differ from the tree.
    pub(super) fn set_used(&mut self, range: BlockRange, used: bool, node: bool) {
        for (index, part) in by_group(range) {
            let listed = self.change(index, |group| {
                group.set_used(part, used, node);
                std::mem::replace(&mut group.listed, true)
            });
            if !listed {
                self.dirty.push(index);
            }
        }
    }

    /// The group that [`Groups::take_dirty`] would take.
    pub(super) fn next_dirty(&self) -> Option<u64> {
        self.dirty.last().copied()
    }

    /// Takes a group off the list of those that may differ from the tree.
    pub(super) fn take_dirty(&mut self) -> Option<u64> {
        let index = self.dirty.pop()?;
        self.get_mut(index).listed = false;
        Some(index)
    }

    /// Number of groups that may differ from the tree.
    pub(super) fn dirty_count(&self) -> usize {
        self.dirty.len()
    }

    /// Groups that were touched since the opening.
    #[cfg(debug_assertions)]
    pub(super) fn in_memory(&self) -> Vec<u64> {
        let touched = (0..).zip(&self.list).filter(|(_, group)| group.is_some());
        touched.map(|(index, _)| index).collect()
    }

    /// Fails unless the record of every group matches its bitmap.
    pub(super) fn check_loaded(&self) -> Result<(), String> {
        for (index, group) in self.list.iter().enumerate() {
            let Some(group) = group else { continue };
            match group.record {
                Record::InTree(item) if item == group.item() => {}
                Record::Absent if group.used_blocks == 0 => {}
                record => {
                    return Err(format!(
                        "group {index} says {record:?}, its bitmap {:?}",
                        group.item()
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Cuts a range at the borders of groups.
pub(super) fn by_group(range: BlockRange) -> impl Iterator<Item = (u64, BlockRange)> {
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
