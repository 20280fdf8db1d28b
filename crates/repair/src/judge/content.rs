//! What is lost of files: reads of it must fail, as zeros in its place would be another content.
//!
//! Where a node with extents is left out, what the file had there is not known, only how many blocks it had in all. Blocks take
//! the place of what may be lost, whose checksum nothing matches. Where that would be more than the file can have lost by far, or more
//! than is free, the file loses its names instead.

use holdfast_base::units::{BLOCK_BYTES, blocks_for};
use holdfast_base::{BlockNo, BlockRange, Epoch, InodeNo};
use holdfast_check::Issue;
use holdfast_format::checksum::crc64;
use holdfast_format::item::extent::extent_blocks_max;
use holdfast_format::item::{Extent, FileType};
use holdfast_format::limits::EXTENT_BLOCKS_MAX;
use holdfast_format::{ItemKind, Key};

use super::inodes::Broken;
use super::{Judge, StandIn};
use crate::walk::{Edits, TreeWork, items};

/// Blocks that may always stand for what is lost of one file: 4 MiB.
const ALWAYS: u64 = 1024;
/// Of a file that lost more, so many times what it lost.
const TIMES: u64 = 4;
/// In a repair in all: 1 GiB. Each takes a free block and a checksum in memory.
const IN_ALL: u64 = 1 << 18;

/// Blocks of a file, from the first up to the second.
pub(super) type Part = (u64, u64);

impl Judge<'_, '_> {
    /// Sees to it that no part of these files reads as something else.
    pub(super) fn content(&mut self, broken: &[Broken]) {
        for file in broken {
            self.file(file);
        }
    }

    /// What extents had that are removed does not read either, as far as no other extent has it now. They come in the order of their keys.
    pub(super) fn removed(&mut self, removed: Vec<(InodeNo, u64, u64)>) {
        for of_file in removed.chunk_by(|one, next| one.0 == next.0) {
            let inode = of_file[0].0;
            let Some(at) = self.find(inode) else { continue };
            let (size, file_type) = (self.entries[at].size, self.entries[at].file_type);
            if file_type != FileType::Regular || self.entries[at].is_unnamed {
                continue;
            }
            let (known, found) = self.known(inode);
            let ends = blocks_for(size);
            let parts = of_file
                .iter()
                .map(|(_, start, count)| (*start, start.saturating_add(*count).min(ends)));
            let parts = without(parts, &known);
            if !parts.is_empty() && !self.stand_for(inode, &parts, found) {
                self.entries[at].is_unnamed = true;
            }
        }
    }

    /// Puts blocks that do not read in place of these parts. False if there would be too many, or so many are not free.
    fn stand_for(&mut self, inode: InodeNo, parts: &[Part], found: u64) -> bool {
        let blocks: u64 = parts.iter().map(|(start, end)| end - start).sum();
        if blocks > IN_ALL.saturating_sub(self.shared.stand_ins) {
            return false;
        }
        self.shared.stand_ins += blocks;
        let edits = parts.iter().map(|part| self.unreadable(inode, *part));
        let Some(edits) = edits.collect::<Option<Vec<_>>>() else { return false };
        edits.into_iter().for_each(|edits| self.merge(edits));
        self.fix(inode).blocks = Some(found.saturating_add(blocks));
        true
    }

    /// Blocks of a file that it has, upwards, and how many.
    pub(super) fn known(&self, inode: InodeNo) -> (Vec<Part>, u64) {
        let mut known: Vec<Part> = Vec::new();
        let (first, last) = Key::span(inode, ItemKind::Extent);
        items(self.reading, self.state, (first, Some(last)), &mut |_, key, value| {
            if let Ok(extent) = Extent::decode(value) {
                let start = key.offset / BLOCK_BYTES;
                known.push((start, start.saturating_add(extent.blocks.count)));
            }
        });
        let found = known.iter().map(|(start, end)| end - start).sum();
        (known, found)
    }

    fn file(&mut self, file: &Broken) {
        let issue = self.state.lost.first().map_or(Issue::NodeDamaged, |lost| lost.issue);
        let (parts, found) = self.unknown(file);
        let blocks: u64 = parts.iter().map(|(start, end)| end - start).sum();
        let lost = file.said.saturating_sub(found);
        let inode = file.inode;
        if blocks == 0 || (lost == 0 && !file.inline) {
            self.fix(inode).blocks = Some(found);
            return;
        }
        let is_much = blocks > ALWAYS.max(lost.saturating_mul(TIMES));
        if is_much || !self.stand_for(inode, &parts, found) {
            self.fix(inode).blocks = Some(found);
            if let Some(at) = self.find(inode) {
                self.entries[at].is_unnamed = true;
            }
            let what = format!(
                "{lost} blocks of inode {inode} are lost, and it is not known where: it loses its names"
            );
            return self.loss(issue, Some(inode), what);
        }
        let shown: Vec<String> = parts.iter().map(|part| bytes(part, file.size)).collect();
        let what = format!("lost, and reads of it fail from now on: {}", shown.join(", "));
        self.loss(issue, Some(inode), what);
    }

    /// Blocks of a file of which it is not known what they had, and how many are known.
    fn unknown(&self, file: &Broken) -> (Vec<Part>, u64) {
        let ends = blocks_for(file.size);
        let (known, found) = self.known(file.inode);
        let (first, last) = Key::span(file.inode, ItemKind::Extent);
        let mut unknown: Vec<Part> = Vec::new();
        if file.inline {
            unknown.push((0, ends));
        }
        for lost in self.state.lost_in(&first, Some(&last)) {
            let (low, high) = (lost.place.low, lost.place.high);
            let start = if low > first { low.offset / BLOCK_BYTES } else { 0 };
            // An extent that began in the node may have reached beyond its range.
            let end = match high.filter(|high| *high < last) {
                Some(high) => (high.offset / BLOCK_BYTES).saturating_add(EXTENT_BLOCKS_MAX),
                None => ends,
            };
            unknown.push((start, end.min(ends)));
        }
        (without(unknown.into_iter(), &known), found)
    }

    /// Extents for a part of a file, all of whose blocks fail their checksums. `None`: so much is not free.
    fn unreadable(&mut self, inode: InodeNo, part: Part) -> Option<Edits> {
        let most = extent_blocks_max(self.reading.superblock().geometry.node_size);
        let mut edits = Edits::new();
        let mut at = part.0;
        while at < part.1 {
            let count = most.min(part.1 - at);
            let StandIn { blocks, birth, .. } = self.stand_in(inode, at, count)?;
            let sum = |block: u64| !crc64(&[inode.0.to_le_bytes(), block.to_le_bytes()].concat());
            let sums = (at..at + count).map(sum).collect();
            let extent = Extent { birth, ..Extent::new(blocks, sums) };
            let offset = at.checked_mul(BLOCK_BYTES)?;
            edits.insert(Key::new(inode, ItemKind::Extent, offset), Some(extent.encode()));
            at += count;
        }
        Some(edits)
    }

    /// Free blocks, or those that the tree which this one grew out of has for the same.
    fn stand_in(&mut self, inode: InodeNo, at: u64, count: u64) -> Option<StandIn> {
        let (tree, parent) = (self.state.root.id, self.state.root.parent);
        let known = self.shared.unreadable.entry((inode.0, at, count)).or_default();
        let stand_in = match known.iter().find(|of| of.tree == parent) {
            Some(of) => StandIn { tree, ..*of },
            None => {
                let blocks = BlockRange::new(BlockNo(self.space.take(count, 1)?), count);
                let birth = Epoch(before(self.before, self.state) + 1);
                StandIn { tree, blocks, birth }
            }
        };
        known.push(stand_in);
        Some(stand_in)
    }
}

/// What of these parts, which begin one behind the other, is in none of `known`.
fn without(unknown: impl Iterator<Item = Part>, known: &[Part]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (start, end) in unknown {
        let mut at = start.max(parts.last().map_or(0, |last| last.1));
        // Each begins behind the end of the one before it.
        let first = known.partition_point(|(_, to)| *to <= start);
        let among = known[first..].iter().copied();
        for (from, to) in among.take_while(|(from, _)| *from < end) {
            if from > at {
                parts.push((at, from.min(end)));
            }
            at = at.max(to);
        }
        if at < end {
            parts.push((at, end));
        }
    }
    parts.retain(|(start, end)| start < end);
    parts
}

/// The epoch of the snapshot that a tree grew out of: what is born behind it is the tree's own.
fn before(states: &[TreeWork], of: &TreeWork) -> u64 {
    let parent = states.iter().find(|parent| parent.root.id == of.root.parent);
    parent.and_then(|parent| parent.root.snapshot).unwrap_or(0)
}

fn bytes(part: &Part, size: u64) -> String {
    let end = part.1.saturating_mul(BLOCK_BYTES).min(size);
    format!("bytes {} to {end}", part.0.saturating_mul(BLOCK_BYTES))
}
