//! Whether the data that an older version of a node names is still there, and is no one else's.

use std::collections::BTreeMap;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo, BlockRange};
use holdfast_check::reading::VolumeReading;
use holdfast_check::runs::Runs;
use holdfast_device::Device;
use holdfast_format::checksum::block_sum;
use holdfast_format::item::Extent;
use holdfast_format::limits::EXTENT_BLOCKS_MAX;
use holdfast_format::{ItemKind, Key};

use crate::relocate::Identity;

/// What data is whose.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    reached: Runs,
    marked: Runs,
    /// Upwards by start.
    owners: Vec<(u64, u64, Identity)>,
    /// What was taken from older versions: runs by their start.
    taken: BTreeMap<u64, (u64, Identity)>,
}

impl Claims {
    pub(super) fn new(reached: Runs, marked: Runs, owners: Vec<(u64, u64, Identity)>) -> Claims {
        Claims { reached, marked, owners, taken: BTreeMap::new() }
    }

    /// Whether the bitmaps call all blocks of an extent in use, and no tree reaches one of them.
    pub(crate) fn is_missed(&self, extent: &Extent) -> bool {
        let (start, end) = extent.blocks.ends();
        self.marked.covers(start, end) && !self.reached.touches(start, end)
    }

    /// The parts of an extent whose data is still there, each an item of its own, taken from now on. Blocks that anything else has are not
    /// among them, nor such whose data is not what the checksum says.
    pub(crate) fn take(
        &mut self,
        reading: &VolumeReading<'_>,
        device: &dyn Device,
        key: &Key,
        extent: &Extent,
    ) -> Vec<(Key, Extent)> {
        let identity = Identity::of(key, extent);
        let mut parts: Vec<(Key, Extent)> = Vec::new();
        if !reading.superblock().geometry.holds_data(extent.blocks) {
            return parts;
        }
        if !extent.is_written() {
            if self.may_have(extent.blocks, identity) {
                let (start, end) = extent.blocks.ends();
                (start..end).for_each(|block| self.mark(block, identity));
                parts.push((*key, extent.clone()));
            }
            return parts;
        }
        let mut block = [0; BLOCK_SIZE];
        for (index, sum) in (0..).zip(&extent.sums) {
            let blocks = BlockRange::new(BlockNo(extent.blocks.start.0 + index), 1);
            let at = blocks.start.0.saturating_mul(BLOCK_BYTES);
            // Data of the log is not in its place yet.
            let is_there = self.may_have(blocks, identity)
                && !reading.is_in_log(blocks)
                && device.read(at, &mut block).is_ok()
                && block_sum(&block) == *sum;
            if !is_there {
                continue;
            }
            self.mark(blocks.start.0, identity);
            match parts.last_mut() {
                Some((_, part)) if part.blocks.ends().1 == blocks.start.0 => {
                    part.blocks.count += 1;
                    part.sums.push(*sum);
                }
                _ => {
                    let offset = key.offset.saturating_add(index * BLOCK_BYTES);
                    let key = Key::new(key.inode, ItemKind::Extent, offset);
                    parts.push((key, Extent { blocks, sums: vec![*sum], birth: extent.birth }));
                }
            }
        }
        parts
    }

    /// Whether no other has these blocks.
    fn may_have(&self, blocks: BlockRange, identity: Identity) -> bool {
        let (start, end) = blocks.ends();
        let claimed = self.taken.range(..end).rev().take_while(|(_, (to, _))| *to > start);
        if claimed.into_iter().any(|(_, (_, by))| *by != identity) {
            return false;
        }
        if !self.reached.touches(start, end) {
            return true;
        }
        // Another tree has the same: all owners of it are the same one, and have all of it.
        let first = self.owners.partition_point(|one| one.0 + EXTENT_BLOCKS_MAX <= start);
        let owners = self.owners[first..].iter().take_while(|one| one.0 < end);
        let mut at = start;
        for (from, to, of) in owners.filter(|one| one.1 > start) {
            if *of != identity || *from > at {
                return false;
            }
            at = at.max(*to);
        }
        at >= end
    }

    /// Takes a block. So runs never reach over others.
    fn mark(&mut self, block: u64, identity: Identity) {
        match self.taken.range_mut(..=block).next_back() {
            Some((_, (to, by))) if *by == identity && *to >= block => *to = (block + 1).max(*to),
            _ => {
                self.taken.insert(block, (block + 1, identity));
            }
        }
    }
}
