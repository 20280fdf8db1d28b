//! Pass 4: the blocks that nodes and extents reach, against bitmaps and counts.
//!
//! The log writes no bitmap: what it took and gave back is counted in here.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use holdfast_base::{BlockNo, TreeId};
use holdfast_format::item::lineage::LINEAGE;
use holdfast_format::item::{GroupItem, SharedItem, group};
use holdfast_format::limits::{BITMAP_BLOCKS, BITMAP_BYTES, GROUP_BLOCKS};
use holdfast_format::{Geometry, ItemKind, Key};

use super::references::{self, Counted};
use super::{Context, Owner, Use};
use crate::bounds::Bounds;
use crate::issue::Issue;
use crate::runs::Runs;

/// What the space tree says.
#[derive(Default)]
struct Ledger {
    marked: Runs,
    groups: Vec<(u64, GroupItem)>,
    shared: Vec<Counted>,
    /// Of each group with a bitmap how many slots are free by that.
    free_slots: BTreeMap<u64, u64>,
}

/// The bitmap of the group that is being read.
struct Reading {
    group: u64,
    words: [u64; (GROUP_BLOCKS / 64) as usize],
}

impl Reading {
    /// Goes on with a piece, which may be the first of another group.
    fn take(
        &mut self,
        key: &Key,
        bits: &[u8; BITMAP_BYTES],
        said: &mut Ledger,
        geometry: &Geometry,
    ) {
        if key.inode.0 != self.group {
            self.end(said, geometry);
            *self = Reading { group: key.inode.0, ..Reading::default() };
        }
        let first = (key.offset * BITMAP_BLOCKS / 64) as usize;
        for (word, bytes) in self.words.iter_mut().skip(first).zip(bits.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
    }

    fn end(&self, said: &mut Ledger, geometry: &Geometry) {
        let slots = geometry.free_slots_of_group(self.group, &self.words);
        said.free_slots.insert(self.group, slots);
    }
}

impl Default for Reading {
    fn default() -> Reading {
        Reading { group: 0, words: [0; (GROUP_BLOCKS / 64) as usize] }
    }
}

/// What the trees reach.
#[derive(Default)]
struct Reached {
    all: Runs,
    nodes: Runs,
}

pub(super) fn run(context: &mut Context<'_>) {
    let said = read(context);
    let reached = sweep(context);
    if context.trees.len() > 1 {
        context.facts.data_blocks = reached.all.total().saturating_sub(reached.nodes.total());
    }
    // What cannot be read would be reported as leaked or uncounted.
    if !context.space_lost.is_empty() {
        return;
    }
    compare_marks(context, &said, &reached);
    if context.is_whole() {
        compare_counts(context, &said, &reached);
        references::compare(context, &said.shared);
    }
}

fn read(context: &mut Context<'_>) -> Ledger {
    let (mut said, mut reading) = (Ledger::default(), Reading::default());
    let volume = context.volume;
    let geometry = &volume.superblock.geometry;
    let counts = references::are_counted(context);
    let _ = volume.items(TreeId::Space, Bounds::ALL, &mut |block, key, value| {
        if key.kind.tree() != TreeId::Space || key.kind.asks().is_some() {
            return ControlFlow::Continue(());
        }
        let outside = match key.kind {
            ItemKind::Group | ItemKind::Bitmap | ItemKind::Shared => {
                group::group_of(&key).is_none_or(|group| group >= geometry.group_count())
            }
            // A setting, of the whole volume.
            ItemKind::Setting => key.inode.0 != 0,
            // Of branches and snapshots, which have a pass of their own.
            _ => key.inode.0 < LINEAGE,
        };
        if outside {
            let what = format!("{key:?} is of no group of the volume");
            context.findings.add(Issue::SpaceItemOutside, what).block(block);
            return ControlFlow::Continue(());
        }
        let outcome = match key.kind {
            ItemKind::Group => {
                let item = GroupItem::decode(value).and_then(|item| match item.shared_blocks {
                    1.. if !counts => Err(references::not_counted()),
                    _ => Ok(item),
                });
                item.map(|item| said.groups.push((key.offset, item)))
            }
            ItemKind::Shared if !counts => Err(references::not_counted()),
            ItemKind::Shared => SharedItem::decode(&key, value).map(|item| {
                let start = key.inode.0 * GROUP_BLOCKS + key.offset;
                let end = start + u64::from(item.blocks);
                said.shared.push(Counted { start, end, references: item.references.into() });
            }),
            ItemKind::Bitmap => group::decode_bitmap(value).map(|bits| {
                // In range: the group exists, and the geometry fits 64 bits.
                let start = key.inode.0 * GROUP_BLOCKS + key.offset * BITMAP_BLOCKS;
                said.marked.push_bits(start, bits);
                reading.take(&key, bits, &mut said, geometry);
            }),
            kind if kind.is_lineage() => Ok(()),
            _ => {
                let what = format!("setting {:?} of {} bytes", key, value.len());
                context.findings.add(Issue::SettingUnknown, what).block(block);
                Ok(())
            }
        };
        if let Err(malformed) = outcome {
            let what = format!("{key:?}: {}", malformed.why);
            context.findings.add(Issue::SpaceItemDamaged, what).block(block);
        }
        ControlFlow::Continue(())
    });
    reading.end(&mut said, geometry);
    let marked = &said.marked;
    let first = geometry.first_data_block().0;
    let before = marked.count_between(0, first);
    let behind = marked.count_between(geometry.volume_blocks, u64::MAX);
    if before + behind > 0 {
        let what = format!("{before} blocks before the data zone and {behind} behind are marked");
        context.findings.add(Issue::SpaceItemOutside, what);
    }
    let log = &context.recovered.log;
    said.marked = said.marked.changed(&log.taken, &log.freed);
    said
}

/// Sorts all uses, reports those that overlap, and joins them to runs.
fn sweep(context: &mut Context<'_>) -> Reached {
    context.uses.sort_unstable_by_key(|used| used.blocks.start);
    let counts = references::are_counted(context);
    let mut reached = Reached::default();
    let mut last: Option<Use> = None;
    for used in &context.uses {
        let (start, end) = used.blocks.ends();
        if let Some(last) = &last
            && start < last.blocks.ends().1
            && !last.is_same(used)
            && !(counts && last.may_share(used))
        {
            let count = last.blocks.ends().1.min(end) - start;
            let what = format!(
                "{count} blocks from {start} on belong to {} and to {}",
                last.owner, used.owner
            );
            let finding = context.findings.add(Issue::BlocksShared, what).block(BlockNo(start));
            if let (Owner::File(inode), _) | (_, Owner::File(inode)) = (used.owner, last.owner) {
                finding.inode(inode);
            }
        }
        reached.all.push(start, end);
        if matches!(used.owner, Owner::Node(_)) {
            reached.nodes.push(start, end);
        }
        if last.is_none_or(|last| last.blocks.ends().1 < end) {
            last = Some(*used);
        }
    }
    reached
}

fn compare_marks(context: &mut Context<'_>, said: &Ledger, reached: &Reached) {
    let is_whole = context.is_whole();
    let Context { findings, uses, .. } = context;
    let geometry = &context.volume.superblock.geometry;
    let zone = (geometry.first_data_block().0, geometry.volume_blocks);
    reached.all.compare(&said.marked, |(start, end), is_reached| {
        if is_reached {
            let owner = uses.partition_point(|used| used.blocks.start.0 <= start);
            let owner = owner.checked_sub(1).map(|at| uses[at].owner);
            let by = owner.map_or("an unknown owner".into(), |owner| owner.to_string());
            let what =
                format!("{} blocks from {start} on, used by {by}, are marked free", end - start);
            let finding = findings.add(Issue::BlocksNotMarked, what).block(BlockNo(start));
            if let Some(Owner::File(inode)) = owner {
                finding.inode(inode);
            }
        } else if is_whole {
            // Marks outside the zone have their own finding.
            let (start, end) = (start.max(zone.0), end.min(zone.1));
            if start < end {
                let what = format!("{} blocks from {start} on", end - start);
                findings.add(Issue::BlocksLeaked, what).block(BlockNo(start));
            }
        }
    });
}

fn compare_counts(context: &mut Context<'_>, said: &Ledger, reached: &Reached) {
    let log = &context.recovered.log;
    let by_log = |from, to| (log.taken.count_between(from, to), log.freed.count_between(from, to));
    let begin = |group: u64| group.saturating_mul(GROUP_BLOCKS);
    let mut next = 0;
    // The group behind the last stands for all groups that follow without a record.
    let end = (context.volume.superblock.geometry.group_count(), None);
    let groups = said.groups.iter().map(|(group, item)| (*group, Some(item)));
    for (group, item) in groups.chain([end]) {
        let unrecorded = reached.all.count_between(begin(next), begin(group));
        let (taken, freed) = by_log(begin(next), begin(group));
        if unrecorded + freed != taken {
            let what = format!(
                "groups {next} to {} have no record, but {unrecorded} blocks in use",
                group - 1
            );
            context.findings.add(Issue::GroupCount, what).block(BlockNo(begin(next)));
        }
        next = group + 1;
        let Some(item) = item else { break };
        let used = reached.all.count_between(begin(group), begin(next));
        let nodes = reached.nodes.count_between(begin(group), begin(next));
        let (taken, freed) = by_log(begin(group), begin(next));
        let shared = references::between(&said.shared, begin(group), begin(next));
        if u64::from(item.shared_blocks) != shared {
            let counted = item.shared_blocks;
            let what = format!("group {group} counts {counted} shared blocks, its items {shared}");
            context.findings.add(Issue::GroupCount, what).block(BlockNo(begin(group)));
        }
        let said_slots = &said.free_slots;
        let said = (u64::from(item.used_blocks) + taken, u64::from(item.node_blocks));
        if said != (used + freed, nodes) {
            let what = format!(
                "group {group} counts {} blocks in use and {} of nodes, there are {used} and {nodes}",
                said.0.saturating_sub(freed),
                said.1
            );
            context.findings.add(Issue::GroupCount, what).block(BlockNo(begin(group)));
        } else if let Some(free) =
            said_slots.get(&group).filter(|free| **free < item.free_slots.into())
        {
            let what = format!(
                "group {group} says that {} slots are free, there are {free}",
                item.free_slots
            );
            context.findings.add(Issue::GroupCount, what).block(BlockNo(begin(group)));
        }
    }
    let (counted, said) = (reached.all.total(), context.volume.superblock.used_blocks);
    if counted != said {
        let what = format!("the superblock counts {said} blocks in use, there are {counted}");
        context.findings.add(Issue::UsedBlocks, what);
    }
}
