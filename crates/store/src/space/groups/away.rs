//! Block groups whose bitmaps are not in memory: what is known of them, how they come, and when they go again.
//!
//! ```text
//!  Empty: no record, nothing in use <-> in memory <-> Stored: the tree has the bitmap
//!                                          Stored -> Lost: the bitmap does not read, or is not what the record says
//! ```
//!
//! - The records say how much is free in each group, and that of its slots there are so many at least: so the room of a
//!   volume is known without a bitmap. Places whose other one is taken are known of those that were in memory.
//! - A bitmap comes when something is taken from its group, or freed there. Until it comes, nodes that are freed in the group
//!   wait in a list.
//! - One that the tree has as it is, and that no block is on its way to or from, goes again when many others are used.
//! - A lost group counts as full, as whatever is free there may be in use. What is freed in it stays in use: fsck counts it anew.

use std::collections::{BTreeMap, VecDeque};

use holdfast_base::{BlockRange, TreeId};
use holdfast_format::item::GroupItem;
use holdfast_format::item::group::decode_bitmap;
use holdfast_format::limits::{BITMAPS_PER_GROUP, GROUP_BLOCKS};

use super::{Groups, Wants};
use crate::space::group::Group;
use crate::space::group::discard::Discardable;
use crate::space::having::{Having, Round};
use crate::space::record::Record;
use crate::space::slots::{NodeSlots, Room};

/// With less free than this in the group that data goes to, 8 MiB, the next one is loaded.
const LITTLE_BLOCKS: u64 = 2048;
/// With fewer free slots than this in the groups that are in memory, the next one is loaded: a large commit needs less.
const LITTLE_SLOTS: u64 = 512;

/// The pieces of the bitmap of a group, as the tree has them.
pub(crate) type Pieces<'a> = [Option<&'a [u8]>; BITMAPS_PER_GROUP as usize];

/// What is known of the bitmap of a group that is not in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum BitmapState {
    /// It is all zero, and the group has no record.
    #[default]
    Empty,
    /// The tree has it.
    Stored,
    /// It is damaged.
    Lost,
}

/// A group as far as its bitmap is in memory.
pub(super) enum Present<'a> {
    Here(&'a Group),
    /// Everything is free, or unbacked.
    Empty,
    Unknown,
}

/// What is known of a group that is not in memory, in 16 bytes: a volume may have millions.
#[derive(Clone, Copy, Debug, Default)]
struct Summary {
    /// What its record says.
    used: u16,
    nodes: u16,
    said_slots: u16,
    /// What may be given away.
    free: u16,
    /// Places for nodes that are wholly free, and those of slots.
    places: u16,
    slots: u16,
    /// No run of free blocks is longer than a group without so many.
    run_lacks: u16,
    state: BitmapState,
    /// There may be more places and slots than that.
    is_bound: bool,
}

/// What a group that is not in memory has beside that.
#[derive(Debug, Default)]
struct Beside {
    /// Nodes that were freed there.
    freed: Vec<BlockRange>,
    discardable: Discardable,
    /// Pieces in which all that is free is unbacked.
    unbacked: u32,
}

/// All groups, as far as they are not in memory.
#[derive(Debug)]
pub(super) struct Away {
    summaries: Vec<Summary>,
    beside: BTreeMap<u64, Beside>,
    /// Groups that may have more free slots than is known.
    unsure: Having,
    /// Groups in memory, those that came first in front.
    clock: VecDeque<u64>,
    in_memory: usize,
    most: usize,
    /// Groups that a call needs in memory, and how many calls.
    pinned: BTreeMap<u64, u32>,
    /// Whether any is lost.
    any_lost: bool,
}

impl Away {
    pub(super) fn of(count: u64) -> Away {
        Away {
            summaries: vec![Summary::default(); count as usize],
            beside: BTreeMap::new(),
            unsure: Having::none_of(count),
            clock: VecDeque::new(),
            in_memory: 0,
            most: usize::MAX,
            pinned: BTreeMap::new(),
            any_lost: false,
        }
    }

    /// There are so many groups from now on; the new ones are empty.
    pub(super) fn extend(&mut self, count: u64) {
        if let Some(last) = self.summaries.last_mut() {
            last.run_lacks = 0;
        }
        self.summaries.resize(count as usize, Summary::default());
        self.unsure = Having::none_of(count);
        for (index, summary) in (0..).zip(&self.summaries) {
            self.unsure.set(index, summary.is_bound);
        }
    }

    pub(super) fn state(&self, index: u64) -> BitmapState {
        self.summaries[index as usize].state
    }

    pub(super) fn free_in(&self, index: u64) -> Room {
        let Summary { free, places, slots, .. } = self.summaries[index as usize];
        Room { blocks: free.into(), places: places.into(), pairs: slots.into() }
    }

    /// Blocks in use, and of these those of nodes, without what was freed meanwhile.
    pub(super) fn used_in(&self, index: u64) -> (u64, u64) {
        let Summary { used, nodes, .. } = self.summaries[index as usize];
        let freed = self.freed_in(index);
        (u64::from(used).saturating_sub(freed), u64::from(nodes).saturating_sub(freed))
    }

    fn freed_in(&self, index: u64) -> u64 {
        let freed = self.beside.get(&index).map_or(&[][..], |beside| &beside.freed);
        freed.iter().map(|range| range.count).sum()
    }

    /// Whether a node that was freed in the group of `part` has any block of it.
    pub(super) fn has_freed(&self, part: BlockRange) -> bool {
        let beside = self.beside.get(&(part.start.0 / GROUP_BLOCKS));
        let freed = beside.map_or(&[][..], |beside| &beside.freed);
        let end = part.start.0.saturating_add(part.count);
        freed.iter().any(|of| of.start.0 < end && part.start.0 < of.start.0 + of.count)
    }

    /// Whether a group of so many blocks has none that is free or unbacked.
    pub(super) fn has_nothing_free(&self, index: u64, blocks: u64) -> bool {
        let Summary { used, state, .. } = self.summaries[index as usize];
        state == BitmapState::Lost || u64::from(used) == blocks
    }

    /// The longest run that may be there.
    pub(super) fn run_max(&self, index: u64) -> u64 {
        GROUP_BLOCKS.saturating_sub(self.summaries[index as usize].run_lacks.into())
    }

    pub(super) fn unbacked_pieces(&self, index: u64) -> u32 {
        self.beside.get(&index).map_or(0, |beside| beside.unbacked)
    }

    /// Whether the device may have something back of a group, which stays on the list of those then.
    pub(super) fn stays_discardable(&mut self, index: u64) -> bool {
        let Some(beside) = self.beside.get_mut(&index) else { return false };
        beside.discardable.listed = !beside.discardable.is_nothing();
        beside.discardable.listed
    }

    /// A node there is freed. Returns whether the group may have differed from the tree before.
    pub(super) fn free_node(&mut self, index: u64, range: BlockRange) -> bool {
        let freed = &mut self.beside.entry(index).or_default().freed;
        freed.push(range);
        freed.len() > 1
    }

    /// What is free is unbacked.
    pub(super) fn hide(&mut self) {
        for summary in &mut self.summaries {
            (summary.free, summary.places, summary.slots) = (0, 0, 0);
            // What is unbacked is no slot, however many the bitmap has.
            summary.is_bound = false;
        }
        self.unsure = Having::none_of(self.summaries.len() as u64);
    }

    /// A group left memory by itself.
    pub(super) fn left(&mut self, index: u64) {
        self.in_memory -= 1;
        self.summaries[index as usize] = Summary::default();
        if self.clock.back() == Some(&index) {
            self.clock.pop_back();
        }
    }
}

impl Groups {
    /// No more groups than this stay in memory, but for those that are being changed.
    pub(crate) fn keep_at_most(&mut self, most: usize) {
        self.away.most = most;
    }

    /// Whether the bitmap of a group has to be loaded before it is of use.
    pub(crate) fn is_away(&self, index: u64) -> bool {
        self.list[index as usize].is_none() && self.away.state(index) == BitmapState::Stored
    }

    /// Whether the bitmap of a group is damaged.
    pub(crate) fn is_lost(&self, index: u64) -> bool {
        self.list[index as usize].is_none() && self.away.state(index) == BitmapState::Lost
    }

    /// Whether any is.
    pub(crate) fn any_lost(&self) -> bool {
        self.away.any_lost
    }

    /// Blocks of lost groups that are not in use.
    pub(in crate::space) fn lost_blocks(&self) -> u64 {
        let groups = if self.any_lost() { self.count() } else { 0 };
        (0..groups).filter(|index| self.is_lost(*index)).map(|index| self.unbacked_in(index)).sum()
    }

    /// Groups that have to be loaded before it is known how many slots are free there, the first ones.
    pub(in crate::space) fn unsure(&self, most: usize) -> Vec<u64> {
        let next = |from: &u64| self.away.unsure.next(from + 1);
        std::iter::successors(self.away.unsure.next(0), next).take(most).collect()
    }

    /// Unbacked blocks of a group that is not in memory.
    pub(in crate::space) fn unbacked_in(&self, index: u64) -> u64 {
        let blocks = self.geometry.group_blocks(index).count;
        let Summary { used, free, .. } = self.away.summaries[index as usize];
        blocks.saturating_sub(u64::from(used) + u64::from(free))
    }

    /// A group that has to be loaded before long: the next one behind that of a block, or behind those with slots, when there is little
    /// left in these.
    pub(in crate::space) fn wanted_soon(&self, next: u64) -> Option<Wants> {
        let first = next / GROUP_BLOCKS;
        let group = self.list.get(first as usize)?.as_ref();
        let is_little = group.is_some_and(|group| group.free_blocks < LITTLE_BLOCKS);
        let of_data =
            if is_little { self.next_with_blocks(&mut Round::from(first + 1)) } else { None };
        let of_data = of_data.filter(|index| self.is_away(*index));
        let of_tree = |tree| NodeSlots::of(self.geometry.stored(tree, 0), LITTLE_SLOTS / 2);
        let little = of_tree(TreeId::Space) + of_tree(TreeId::Files);
        of_data.or_else(|| self.wanted_for_slots(little, 0)).map(Wants)
    }

    /// Fills in what the record of a group says, which comes from the disk and says more than nothing.
    pub(in crate::space) fn record(&mut self, index: u64, item: &GroupItem) -> Result<(), String> {
        let blocks = self.geometry.group_blocks(index).count;
        let free = blocks.checked_sub(item.used_blocks.into());
        let has_slots = u64::from(item.free_slots) <= self.geometry.slots_of_group(index);
        let Some(free) = free.filter(|_| has_slots && self.away.state(index) == BitmapState::Empty)
        else {
            return Err(format!("group {index} of {blocks} blocks says {item:?}"));
        };
        self.used_blocks += u64::from(item.used_blocks);
        self.node_blocks += u64::from(item.node_blocks);
        self.turn(index, |groups| {
            groups.away.summaries[index as usize] = Summary {
                used: item.used_blocks as u16,
                nodes: item.node_blocks as u16,
                said_slots: item.free_slots as u16,
                free: free as u16,
                // The record knows of no place whose other one is taken.
                places: (u64::from(item.free_slots) * groups.geometry.node_copies().0) as u16,
                slots: item.free_slots as u16,
                run_lacks: 0,
                state: BitmapState::Stored,
                is_bound: true,
            };
            groups.away.unsure.set(index, true);
        });
        Ok(())
    }

    /// An empty group that is not in memory.
    pub(super) fn new_group(&self, index: u64) -> Group {
        let geometry = &self.geometry;
        let inside = geometry.group_blocks(index);
        Group::new(index, inside, geometry.node_blocks(), geometry.copy_mask)
    }

    /// A group comes into memory, as it was when it left.
    pub(super) fn put(&mut self, index: u64, mut group: Group) {
        if self.is_unbacked[index as usize] {
            group.hide();
        }
        if let Some(Beside { discardable, unbacked, .. }) = self.away.beside.remove(&index) {
            group.hide_pieces(unbacked);
            group.discardable = discardable;
        }
        self.list[index as usize] = Some(Box::new(group));
        self.away.in_memory += 1;
        self.away.clock.push_back(index);
    }

    /// Takes the bitmap of a group in, which comes from the disk. Fails, and the group is lost, if it is not what the record says.
    pub(in crate::space) fn load(&mut self, index: u64, pieces: &Pieces<'_>) -> Result<(), String> {
        let done = self.turn(index, |groups| {
            let group = groups.judged(index, pieces)?;
            groups.put(index, group);
            groups.away.summaries[index as usize].is_bound = false;
            groups.away.unsure.set(index, false);
            Ok(())
        });
        done.inspect_err(|_| self.lose(index))
    }

    fn judged(&self, index: u64, pieces: &Pieces<'_>) -> Result<Group, String> {
        let Summary { used, nodes: node_blocks, said_slots, .. } =
            self.away.summaries[index as usize];
        let mut group = self.new_group(index);
        group.believe_run_max(self.away.run_max(index));
        for (piece, bytes) in (0..).zip(pieces) {
            let Some(bytes) = bytes else { continue };
            let bits = decode_bitmap(bytes).map_err(|malformed| malformed.to_string())?;
            let outside = |()| format!("piece {piece} claims blocks outside the data zone");
            group.load_piece(piece, bits).map_err(outside)?;
        }
        group.node_blocks = node_blocks.into();
        group.record = Record::InTree(GroupItem {
            used_blocks: used.into(),
            node_blocks: node_blocks.into(),
            shared_blocks: 0,
            free_slots: said_slots.into(),
        });
        if group.used_blocks != u64::from(used) || group.free_slots < u64::from(said_slots) {
            let (used, slots) = (group.used_blocks, group.free_slots);
            return Err(format!("{:?}, but its bitmap {used} and {slots}", group.record));
        }
        let freed = self.away.beside.get(&index).map_or(&[][..], |beside| &beside.freed);
        for range in freed {
            if !group.all_used(*range, true) {
                return Err(format!("the node at block {} is not marked as used", range.start));
            }
            group.set_used(*range, false, true);
            group.listed = true;
        }
        Ok(group)
    }

    /// The bitmap of a group does not read, or is not what its record says: the group counts as full, and what was freed there
    /// stays in use.
    pub(in crate::space) fn lose(&mut self, index: u64) {
        self.turn(index, |groups| {
            let freed = groups.away.freed_in(index);
            groups.used_blocks += freed;
            groups.node_blocks += freed;
            if let Some(beside) = groups.away.beside.remove(&index) {
                groups.forget_waiting(&beside.discardable);
            }
            let summary = &mut groups.away.summaries[index as usize];
            let Summary { used, nodes, .. } = *summary;
            *summary = Summary { used, nodes, state: BitmapState::Lost, ..Summary::default() };
            groups.away.unsure.set(index, false);
            groups.away.any_lost = true;
            groups.is_unbacked[index as usize] = false;
        });
    }

    /// A call needs a group in memory, until [`Groups::unpin`].
    pub(crate) fn pin(&mut self, index: u64) {
        *self.away.pinned.entry(index).or_default() += 1;
    }

    /// Ends a [`Groups::pin`].
    pub(in crate::space) fn unpin(&mut self, index: u64) {
        if let Some(pins) = self.away.pinned.get_mut(&index) {
            *pins -= 1;
            if *pins == 0 {
                self.away.pinned.remove(&index);
            }
        }
    }

    /// Groups that were not changed lately leave memory, until few enough are there, or all were looked at twice.
    pub(crate) fn evict(&mut self) {
        let mut looks = self.away.clock.len() * 2;
        while self.away.in_memory > self.away.most && looks > 0 {
            looks -= 1;
            let Some(index) = self.away.clock.pop_front() else { return };
            let Some(group) = &mut self.list[index as usize] else { continue };
            if std::mem::take(&mut group.is_recent) || !self.evict_one(index) {
                self.away.clock.push_back(index);
            }
        }
        // A group that left by itself and came again stands there twice.
        if self.away.clock.len() > 2 * self.away.in_memory + 64 {
            let list = &self.list;
            self.away.clock =
                (0..).zip(list).filter(|(_, of)| of.is_some()).map(|(at, _)| at).collect();
        }
    }

    /// A group leaves memory; false if it cannot.
    fn evict_one(&mut self, index: u64) -> bool {
        let Some(group) = &self.list[index as usize] else { return false };
        let blocks = self.geometry.group_blocks(index).count;
        let Some(unbacked) =
            group.unbacked_at_rest(blocks).filter(|_| !self.away.pinned.contains_key(&index))
        else {
            return false;
        };
        let Some(item) = group.stored() else {
            self.forget_empty(index);
            return self.list[index as usize].is_none();
        };
        let is_unbacked = unbacked != 0 && group.free_blocks == 0;
        let unbacked = if is_unbacked { 0 } else { unbacked };
        let beside = Beside { freed: Vec::new(), discardable: group.discardable, unbacked };
        self.turn(index, |groups| {
            let Some(group) = groups.list[index as usize].take() else { return };
            groups.away.summaries[index as usize] = Summary {
                used: item.used_blocks as u16,
                nodes: item.node_blocks as u16,
                said_slots: item.free_slots as u16,
                free: group.free_blocks as u16,
                places: group.free_places as u16,
                slots: group.free_slots as u16,
                run_lacks: (GROUP_BLOCKS - group.run_max()) as u16,
                state: BitmapState::Stored,
                is_bound: false,
            };
            groups.is_unbacked[index as usize] = is_unbacked;
            if unbacked != 0 || beside.discardable.listed {
                groups.away.beside.insert(index, beside);
            }
            groups.away.in_memory -= 1;
        });
        true
    }
}
