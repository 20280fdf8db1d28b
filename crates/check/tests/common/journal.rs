//! Writes journals by hand, frame by frame, behind a volume that [`super::Maker`] made.
//!
//! [`Journal::step`] is an honest change: the leaves of both trees change or
//! move, and bitmaps and head follow. A test adds what is dishonest.

use std::collections::BTreeMap;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, Epoch, InodeNo, TreeId};
use holdfast_check::journal::{Replay, replay};
use holdfast_device::Device;
use holdfast_format::checksum::block_sum;
use holdfast_format::journal::commit::data_sum;
use holdfast_format::journal::frame::{FrameHeader, KIND_COMMIT, KIND_END, MAGIC};
use holdfast_format::journal::node::encode_node;
use holdfast_format::journal::{Base, CommitHead, DataExtent, JournalMark, next_block};
use holdfast_format::node::{self, ADDRESS_AT, EPOCH_AT};
use holdfast_format::{ItemKind, Key, NodePointer, NodeView, Superblock};

use super::{Made, NODE, put};

/// A node record to be written.
#[derive(Clone)]
pub(crate) struct Change {
    pub(crate) block: BlockNo,
    pub(crate) base: Base,
    pub(crate) before: Vec<u8>,
    pub(crate) after: Vec<u8>,
}

/// What goes into one commit.
#[derive(Clone, Default)]
pub(crate) struct Parts {
    pub(crate) changes: Vec<Change>,
    pub(crate) cancels: Vec<BlockNo>,
    pub(crate) extents: Vec<DataExtent>,
}

/// A journal in the making.
pub(crate) struct Journal<'a> {
    pub(crate) made: &'a Made,
    /// The superblock that stands for the volume by now.
    pub(crate) now: Superblock,
    /// The nodes that a replay should make.
    pub(crate) nodes: BTreeMap<BlockNo, Vec<u8>>,
    /// Where the next frame goes.
    pub(crate) mark: JournalMark,
    /// Where each frame lies.
    pub(crate) frames: Vec<BlockNo>,
    free: u64,
}

/// Differing ranges, those less than 8 bytes apart joined.
fn ranges(before: &[u8], after: &[u8]) -> Vec<(usize, usize)> {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for at in (0..after.len()).filter(|&at| before[at] != after[at]) {
        match ranges.last_mut() {
            Some(last) if at < last.1 + 8 => last.1 = at + 1,
            _ => ranges.push((at, at + 1)),
        }
    }
    ranges
}

/// A sealed copy of a node for another place.
fn copied(node: &[u8], to: NodePointer) -> Vec<u8> {
    let mut node = node.to_vec();
    node[ADDRESS_AT..][..8].copy_from_slice(&to.block.0.to_le_bytes());
    node[EPOCH_AT..][..8].copy_from_slice(&to.epoch.0.to_le_bytes());
    node::seal(&mut node);
    node
}

/// Changes the value of an item in a leaf of the test.
fn poke_item(node: &mut [u8], key: Key, change: impl FnOnce(&mut [u8])) {
    let view = NodeView::trusted(node);
    let index = view.search(&key.raw()).expect("the item is there");
    let (offset, len) = view.record(index);
    change(&mut node[offset + Key::SIZE..offset + len]);
}

/// The extent of data that is on the device.
pub(crate) fn extent_of(device: &dyn Device, block: BlockNo, count: u64) -> DataExtent {
    let mut sums = Vec::new();
    for index in 0..count {
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        device.read((block.0 + index) * BLOCK_BYTES, &mut bytes).expect("memory reads");
        sums.push(block_sum(&bytes));
    }
    DataExtent { block: block.0, count, sum: data_sum(&sums) }
}

impl<'a> Journal<'a> {
    /// The empty journal of a volume with both trees of one leaf.
    pub(crate) fn new(made: &'a Made) -> Journal<'a> {
        assert_eq!((made.superblock.files_level, made.superblock.space_level), (0, 0));
        Journal {
            made,
            now: made.superblock.clone(),
            nodes: BTreeMap::new(),
            mark: made.superblock.journal,
            frames: Vec::new(),
            free: made.superblock.geometry.first_data_block().0 + 900,
        }
    }

    /// An unused block.
    pub(crate) fn free(&mut self) -> BlockNo {
        self.free += 1;
        BlockNo(self.free)
    }

    /// A node as it stands now.
    pub(crate) fn node(&self, block: BlockNo) -> Vec<u8> {
        self.nodes.get(&block).cloned().unwrap_or_else(|| {
            let mut bytes = vec![0; NODE];
            self.made.device.read(block.0 * BLOCK_BYTES, &mut bytes).expect("memory reads");
            bytes
        })
    }

    /// The place of `pointer`'s node in epoch `epoch`, and what it is made of.
    fn place(&mut self, pointer: NodePointer, epoch: Epoch) -> (NodePointer, Base, Vec<u8>) {
        let before = self.node(pointer.block);
        if pointer.epoch == epoch {
            return (pointer, Base::Changed, before);
        }
        let to = NodePointer { block: self.free(), epoch };
        (to, Base::Copied(pointer), before)
    }

    /// An honest operation in epoch `epoch`: the owner of every inode of the sample becomes the next
    /// one. The old locations of leaves that move become free.
    pub(crate) fn step(&mut self, epoch: Epoch) -> Parts {
        let (files, files_base, files_before) = self.place(self.now.files, epoch);
        let (space, space_base, space_before) = self.place(self.now.space, epoch);
        let mut files_after = copied(&files_before, files);
        for inode in [super::PIPE, super::INLINE] {
            poke_item(&mut files_after, Key::inode(inode), |item| item[4] += 1);
        }
        node::seal(&mut files_after);
        let mut space_after = copied(&space_before, space);
        let bitmap = Key::new(InodeNo(0), ItemKind::Bitmap, 0);
        poke_item(&mut space_after, bitmap, |bits| {
            for (old, new) in [(self.now.files, files), (self.now.space, space)] {
                bits[old.block.0 as usize / 8] &= !(1 << (old.block.0 % 8));
                bits[new.block.0 as usize / 8] |= 1 << (new.block.0 % 8);
            }
        });
        node::seal(&mut space_after);
        self.now.files = files;
        self.now.space = space;
        self.now.epoch = epoch;
        self.now.lsn = self.now.lsn.next();
        let change = |block, base, before, after| Change { block, base, before, after };
        Parts {
            changes: vec![
                change(files.block, files_base, files_before, files_after),
                change(space.block, space_base, space_before, space_after),
            ],
            ..Parts::default()
        }
    }

    /// The payload of a commit for the head as it is now.
    pub(crate) fn payload(&self, parts: &Parts) -> Vec<u8> {
        let head = CommitHead {
            nodes: parts.changes.len() as u32,
            cancels: parts.cancels.len() as u32,
            extents: parts.extents.len() as u32,
            ..CommitHead::of(&self.now)
        };
        let mut out = Vec::new();
        head.write(&mut out);
        for Change { block, base, before, after } in &parts.changes {
            let ranges = ranges(before, after);
            encode_node(*block, *base, ranges.into_iter(), after, &mut out);
        }
        for cancel in &parts.cancels {
            out.extend_from_slice(&cancel.0.to_le_bytes());
        }
        for extent in &parts.extents {
            extent.write(&mut out);
        }
        out
    }

    /// The header of the next frame.
    pub(crate) fn header(&self, commit: u64, index: u32, frames: u32) -> FrameHeader {
        FrameHeader {
            magic: MAGIC,
            kind: KIND_COMMIT,
            sum: 0,
            address: self.mark.next.0,
            volume: self.made.superblock.ring_tag,
            epoch: self.now.epoch.0,
            commit,
            durable: commit - 1,
            prior: self.mark.sum,
            index,
            frames,
            len: 0,
            pad: 0,
            reserved: [0; 16],
        }
    }

    /// Writes a frame at the mark and moves the mark behind it. Returns where it is.
    pub(crate) fn frame(&mut self, header: FrameHeader, payload: &[u8]) -> BlockNo {
        let ring = self.made.superblock.geometry.journal();
        let at = self.mark.next;
        let mut bytes = Vec::new();
        let sum = header.encode(payload, &mut bytes);
        let blocks = bytes.len() as u64 / BLOCK_BYTES;
        assert!(at.0 + blocks <= ring.start.0 + ring.count, "the frame crosses the ring's end");
        for distance in self.made.superblock.geometry.ring_places() {
            put(&self.made.device, BlockNo(at.0 + distance), &bytes);
        }
        self.mark = JournalMark { sum, next: next_block(ring, at, blocks), ..self.mark };
        self.frames.push(at);
        at
    }

    /// Writes a payload as the next commit, in `pieces` frames.
    pub(crate) fn put(&mut self, payload: &[u8], pieces: usize) {
        let commit = self.mark.commit.next();
        let parts: Vec<_> = payload.chunks(payload.len().div_ceil(pieces)).collect();
        assert_eq!(parts.len(), pieces);
        for (index, part) in (0..).zip(&parts) {
            self.frame(self.header(commit.0, index, pieces as u32), part);
        }
        self.mark.commit = commit;
    }

    /// Writes a commit, and does to the nodes what a replay should do.
    pub(crate) fn commit(&mut self, parts: &Parts, pieces: usize) {
        let payload = self.payload(parts);
        self.put(&payload, pieces);
        for Change { block, after, .. } in &parts.changes {
            self.nodes.insert(*block, after.clone());
        }
        for block in &parts.cancels {
            self.nodes.remove(block);
        }
        self.now.journal = self.mark;
    }

    /// An honest commit in one frame.
    pub(crate) fn honest(&mut self, epoch: u64) {
        let parts = self.step(Epoch(epoch));
        self.commit(&parts, 1);
    }

    /// Writes the frame of a closed volume.
    pub(crate) fn close(&mut self) {
        let header = self.header(self.mark.commit.0 + 1, 0, 1);
        self.frame(FrameHeader { kind: KIND_END, ..header }, &[]);
    }

    /// Replays what is on the device.
    pub(crate) fn replay(&self) -> Replay {
        replay(&self.made.device, &self.made.superblock).expect("memory reads")
    }

    /// Fails unless a replay makes just what was written.
    pub(crate) fn expect(&self, commits: u64) -> Replay {
        let replay = self.replay();
        assert_eq!((&replay.faults[..], &replay.damage), (&[][..], &None), "{:?}", replay.end);
        assert_eq!(replay.commits, commits, "{:?}", replay.end);
        assert_eq!(replay.superblock, self.now);
        assert!(replay.nodes == self.nodes, "the nodes differ");
        replay
    }
}

/// A node of a leaf that did not exist before.
pub(crate) fn new_leaf(journal: &mut Journal<'_>, epoch: Epoch) -> Change {
    let pointer = NodePointer { block: journal.free(), epoch };
    let after = super::node_bytes(TreeId::Files, 0, pointer, &[]);
    Change { block: pointer.block, base: Base::Zeros, before: vec![0; NODE], after }
}
