//! Data that gets another place: blocks that two owners have, and data that lies in the log, which a volume with an
//! empty log cannot have there.
//!
//! Nothing is written to a place that was in use before the repair, nor to one that a replay would look at. So data of the log
//! goes to other blocks than those that its batches took, and an extent that trees share moves in all of them
//! alike.

use std::collections::BTreeMap;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo, BlockRange};
use holdfast_check::Issue;
use holdfast_check::reading::VolumeReading;
use holdfast_device::Device;
use holdfast_format::checksum::block_sums;
use holdfast_format::item::Extent;
use holdfast_format::{ItemKind, Key, NodeView};

use crate::blocks::Space;
use crate::error::RepairError;
use crate::overlay::Overlay;
use crate::plan::Repair;
use crate::walk::{Edits, TreeWork, items};

/// Most blocks that are moved: 1 GiB, which is kept in memory.
pub(crate) const MOVED_MAX: u64 = 1 << 18;

/// What trees share: the same blocks of the same file, born together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    inode: u64,
    birth: u64,
    /// The block of the file that block 0 of the device would be.
    base: u64,
}

impl Identity {
    pub(crate) fn of(key: &Key, extent: &Extent) -> Identity {
        let at = key.offset / BLOCK_BYTES;
        let base = at.wrapping_sub(extent.blocks.start.0);
        Identity { inode: key.inode.0, birth: extent.birth.0, base }
    }
}

/// Blocks with an owner.
#[derive(Clone, Copy, Debug)]
struct Use {
    start: u64,
    end: u64,
    /// `None`: a node.
    of: Option<Identity>,
    /// Its data lies in the log.
    in_log: bool,
}

/// Blocks of one owner that get another place.
#[derive(Clone, Copy, Debug)]
struct Moved {
    start: u64,
    end: u64,
    to: u64,
}

/// All uses of the data zone, in no order.
#[derive(Debug, Default)]
pub(crate) struct Uses(Vec<Use>);

impl Uses {
    /// Blocks of a node.
    pub(crate) fn node(&mut self, start: u64, count: u64) {
        self.0.push(Use { start, end: start.saturating_add(count), of: None, in_log: false });
    }

    /// An extent of a leaf or of the log, if it lies in the data zone.
    pub(crate) fn extent(&mut self, reading: &VolumeReading<'_>, key: &Key, value: &[u8]) {
        let Ok(extent) = Extent::decode(value) else { return };
        if !reading.superblock().geometry.holds_data(extent.blocks) {
            return;
        }
        let (start, end) = extent.blocks.ends();
        let of = Some(Identity::of(key, &extent));
        let in_log = extent.is_written() && reading.is_in_log(extent.blocks);
        self.0.push(Use { start, end, of, in_log });
    }

    /// The extents of a leaf.
    pub(crate) fn leaf(&mut self, reading: &VolumeReading<'_>, leaf: &NodeView<'_>) {
        for (key, value) in leaf.items_of(ItemKind::Extent) {
            self.extent(reading, &key, value);
        }
    }

    /// All blocks, as starts and ends.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|one| (one.start, one.end))
    }

    /// What data is whose, upwards by start: runs and what they belong to.
    pub(crate) fn owners(&self) -> Vec<(u64, u64, Identity)> {
        let of_data = self.0.iter().filter_map(|one| Some((one.start, one.end, one.of?)));
        let mut owners: Vec<_> = of_data.collect();
        owners.sort_unstable();
        owners.dedup();
        owners
    }

    /// What must move: for each owner runs of blocks, upwards.
    fn conflicts(mut self) -> BTreeMap<Identity, Vec<Moved>> {
        // Each owner's runs, joined: parts of an extent that several trees have are one.
        self.0.sort_unstable_by_key(|one| (one.of, one.start));
        let mut runs: Vec<Use> = Vec::new();
        for one in self.0 {
            match runs.last_mut() {
                Some(last) if last.of == one.of && one.start < last.end && one.of.is_some() => {
                    last.end = last.end.max(one.end);
                    last.in_log |= one.in_log;
                }
                _ => runs.push(one),
            }
        }
        // A node stays, then what comes first.
        runs.sort_unstable_by_key(|one| (one.start, one.of.is_some()));
        let mut moved: BTreeMap<Identity, Vec<Moved>> = BTreeMap::new();
        let mut last: Option<Use> = None;
        for at in 0..runs.len() {
            let one = runs[at];
            // A node that begins inside an extent stays as well.
            let node = runs[at + 1..].iter().take_while(|next| next.start < one.end);
            let meets_node = one.of.is_some() && { node }.any(|next| next.of.is_none());
            let is_shared = last.is_some_and(|last| one.start < last.end);
            match one.of {
                Some(of) if is_shared || meets_node || one.in_log => {
                    let place = Moved { start: one.start, end: one.end, to: 0 };
                    moved.entry(of).or_default().push(place);
                }
                _ if last.is_none_or(|last| last.end < one.end) => last = Some(one),
                _ => {}
            }
        }
        moved
    }
}

/// Moves what must move, in all trees that have it.
pub(crate) fn apply(
    reading: &VolumeReading<'_>,
    overlay: &Overlay<'_>,
    space: &mut Space,
    states: &mut [TreeWork],
    uses: Uses,
    repairs: &mut Vec<Repair>,
) -> Result<(), RepairError> {
    let mut moved = uses.conflicts();
    if moved.is_empty() {
        return Ok(());
    }
    let blocks: u64 = moved.values().flatten().map(|run| run.end - run.start).sum();
    if blocks > MOVED_MAX {
        return RepairError::refused(format!(
            "{blocks} blocks belong to several owners, more than are taken apart; copy out the files that can be read"
        ));
    }
    for run in moved.values_mut().flatten() {
        let count = run.end - run.start;
        run.to = space.take(count, 1).ok_or(RepairError::NoSpace(count))?;
    }
    for state in states {
        let mut edits = Edits::new();
        let (mut shared, mut unread) = (Vec::new(), Vec::new());
        items(reading, state, (Key::MIN, None), &mut |_, key, value| {
            if key.kind != ItemKind::Extent {
                return;
            }
            let Ok(extent) = Extent::decode(value) else { return };
            let Some(runs) = moved.get(&Identity::of(&key, &extent)) else { return };
            let start = extent.blocks.start.0;
            let Some(run) = runs.iter().find(|run| (run.start..run.end).contains(&start)) else {
                return;
            };
            let to = run.to + (start - run.start);
            if !copy(reading, overlay, &extent, to) {
                unread.push((key.inode, extent.blocks));
            }
            if !reading.is_in_log(extent.blocks) {
                shared.push((key.inode, extent.blocks));
            }
            let blocks = BlockRange::new(BlockNo(to), extent.blocks.count);
            edits.insert(key, Some(Extent { blocks, ..extent }.encode()));
        });
        let mut say = |issue, inode, what, loses| {
            let path = reading.path(&state.root, inode);
            repairs.push(Repair { issue, tree: state.name(), path, what, loses });
        };
        for (inode, blocks) in shared {
            let what =
                format!("{blocks:?}, which inode {inode} has with another owner, get a copy");
            say(Issue::BlocksShared, inode, what, false);
        }
        for (inode, blocks) in unread {
            let what = format!(
                "{blocks:?} of inode {inode} get another place and do not read whole: reads there fail from now on"
            );
            say(Issue::DataUnreadable, inode, what, true);
        }
        state.edits.append(&mut edits);
    }
    Ok(())
}

/// Writes the data of an extent to another place; false if not all of it can be read. What cannot becomes zeros, which its checksum does
/// not match.
pub(crate) fn copy(
    reading: &VolumeReading<'_>,
    overlay: &Overlay<'_>,
    extent: &Extent,
    to: u64,
) -> bool {
    let mut is_whole = true;
    let mut block = [0; BLOCK_SIZE];
    for (index, sum) in (0..).zip(&extent.sums) {
        // Another tree has it too.
        if overlay.holds(BlockNo(to + index)) {
            continue;
        }
        let from = BlockNo(extent.blocks.start.0 + index);
        // It may have been moved before.
        let is_read = match overlay.holds(from) {
            true => overlay.read(from.0.saturating_mul(BLOCK_BYTES), &mut block).is_ok(),
            false if reading.is_in_log(BlockRange::new(from, 1)) => {
                reading.data_of_sum(from, *sum, &mut block)
            }
            false => reading.data(from, &mut block).is_ok(),
        };
        if !is_read {
            is_whole = false;
            block.fill(0);
            // A block of zeros that was there would be right by chance, and is.
            if block_sums(&block).next() == Some(*sum) {
                block[0] = 1;
            }
        }
        overlay.put(BlockNo(to + index), &block);
    }
    is_whole
}
