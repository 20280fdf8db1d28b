//! The data of the files in one leaf, read in the order of its blocks.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use holdfast_base::clock::Stopwatch;
use holdfast_base::units::{BLOCK_BYTES, BLOCK_SIZE};
use holdfast_base::{BlockNo, BlockRange};
use holdfast_format::checksum::block_sum;
use holdfast_format::item::Extent;
use holdfast_format::key::RawKey;
use holdfast_format::{ItemKind, Key, NodeView};

use super::walk::{Step, Walk, is_gone, is_of_place};
use super::{Damaged, Scrubbed};
use crate::{Result, StoreError};

/// A block of a file that is to be read.
#[derive(Clone, Copy, Debug)]
struct Block {
    at: BlockNo,
    sum: u64,
    /// The item of the leaf.
    index: usize,
    /// Which block of the file.
    in_file: u64,
}

/// What became of a block that was not as its sum says.
enum Again {
    Fine,
    /// Only the log has it.
    InLog,
    /// It is of something else by now.
    Moved,
    /// It fails its checksum, or is not read.
    Damaged(Option<StoreError>),
}

impl Walk<'_> {
    /// Reads the data of a leaf from this key on.
    pub(super) fn leaf(&mut self, leaf: &NodeView<'_>, from: &RawKey) -> Result<Step> {
        let first = leaf.search(from).unwrap_or_else(|index| index);
        let (mut blocks, mut wrong_items) = (Vec::new(), Vec::new());
        for index in first..leaf.count() {
            let key = leaf.key(index);
            if key.kind != ItemKind::Extent {
                continue;
            }
            let wrong = match Extent::decode(leaf.value(index)) {
                Err(why) => why.to_string(),
                Ok(extent) if !self.inner.geometry().holds_data(extent.blocks) => {
                    "its blocks lie outside the data zone".into()
                }
                Ok(extent) => {
                    self.wanted(&extent, &key, index, &mut blocks);
                    continue;
                }
            };
            wrong_items.push((key, wrong));
        }
        blocks.sort_unstable_by_key(|block| block.at);
        let mut damaged: Vec<(Block, String)> = Vec::new();
        let step = self.read_all(leaf, &blocks, &mut damaged)?;
        if let Step::Moved(_) = step {
            // Blocks have no order of keys: all of it is looked at again, and told then.
            return Ok(Step::Moved(if first < leaf.count() { leaf.raw_key(first) } else { *from }));
        }
        let is_whole = wrong_items.is_empty() && damaged.is_empty();
        for (key, why) in wrong_items {
            self.is_damaged(Damaged::Item { key }, why);
        }
        self.tell(leaf, damaged);
        Ok(match step {
            Step::Done(done) => Step::Done(is_whole && done),
            over => over,
        })
    }

    /// Adds the blocks of an extent that were not verified.
    fn wanted(&self, extent: &Extent, key: &Key, index: usize, blocks: &mut Vec<Block>) {
        // What is younger than the scrub was written a moment ago, and is often gone when it would be read.
        if !self.scrub.trusts(extent.birth) && !self.scrub.stands_still {
            return;
        }
        let places = (extent.blocks.start.0..).map(BlockNo);
        let in_file = key.offset.checked_div(BLOCK_BYTES).unwrap_or_default()..;
        for ((at, sum), in_file) in places.zip(&extent.sums).zip(in_file) {
            if !self.scrub.has(extent.birth, at) {
                blocks.push(Block { at, sum: *sum, index, in_file });
            }
        }
    }

    fn read_all(
        &mut self,
        leaf: &NodeView<'_>,
        blocks: &[Block],
        damaged: &mut Vec<(Block, String)>,
    ) -> Result<Step> {
        let most = self.inner.regions.buffer_size().checked_div(BLOCK_SIZE).unwrap_or(1);
        let follows = |one: &Block, next: &Block| one.at.0.checked_add(1) == Some(next.at.0);
        for run in blocks.chunk_by(follows).flat_map(|run| run.chunks(most)) {
            let time = Stopwatch::start();
            let moved = self.read_run(leaf, run, damaged)?;
            let bytes = (run.len() as u64).saturating_mul(BLOCK_BYTES);
            if !self.has_read(bytes, time) {
                return Ok(Step::Over(Scrubbed::Stopped));
            }
            if let Some(key) = moved {
                return Ok(Step::Moved(key));
            }
        }
        Ok(Step::Done(true))
    }

    /// Reads consecutive blocks. Returns the key of an item that is another one by now.
    fn read_run(
        &mut self,
        leaf: &NodeView<'_>,
        run: &[Block],
        damaged: &mut Vec<(Block, String)>,
    ) -> Result<Option<RawKey>> {
        let Some(first) = run.first() else { return Ok(None) };
        let range = BlockRange::new(first.at, run.len() as u64);
        let resident = self.inner.log_resident.collect(range);
        let in_log = |block: &Block| resident.iter().any(|(at, _)| *at == block.at);
        let mut buffer = self.inner.regions.take();
        let bytes = run.len().saturating_mul(BLOCK_SIZE);
        let bytes = buffer.get_mut(..bytes).expect("a run fits the buffer");
        let at = first.at.byte_offset().expect("the blocks lie inside the volume");
        let is_read = match self.inner.device.read(at, bytes).map_err(StoreError::from) {
            Ok(()) => true,
            // Each of them is tried alone.
            Err(error) if is_of_place(&error) => false,
            Err(error) => return Err(error),
        };
        for (block, bytes) in run.iter().zip(bytes.chunks_exact(BLOCK_SIZE)) {
            // One that only the log holds goes to its place with the next commit.
            if in_log(block) {
                continue;
            }
            if !is_read || block_sum(bytes) != block.sum {
                match self.read_again(leaf, block)? {
                    Again::Fine => {}
                    Again::Moved => return Ok(Some(leaf.raw_key(block.index))),
                    Again::InLog => continue,
                    Again::Damaged(error) => {
                        let said = error.as_ref().map(StoreError::in_words);
                        damaged.push((*block, said.unwrap_or("it fails its checksum".into())));
                        match error {
                            Some(error) => self.has_failed(error, None)?,
                            None => self.has_answered(),
                        }
                        continue;
                    }
                }
            }
            self.has_answered();
            self.scrub.marks.set(BlockRange::new(block.at, 1), true);
        }
        Ok(None)
    }

    /// Judges a block again that was not as its sum says: it may have become free since the leaf was read.
    fn read_again(&self, leaf: &NodeView<'_>, block: &Block) -> Result<Again> {
        let (key, value) = (leaf.key(block.index), leaf.value(block.index));
        let is_item = || match self.inner.get(self.tree, &key) {
            _ if is_gone(self.inner, self.tree) => Ok(false),
            Ok(now) => Ok(now.as_deref() == Some(value)),
            // The leaf is damaged by now, or a node above it: no other item has the block.
            Err(error) if is_of_place(&error) => Ok(true),
            Err(error) => Err(error),
        };
        if !is_item()? {
            return Ok(Again::Moved);
        }
        let range = BlockRange::new(block.at, 1);
        if !self.inner.log_resident.collect(range).is_empty() {
            return Ok(Again::InLog);
        }
        let mut bytes = [0; BLOCK_SIZE];
        let at = block.at.byte_offset().expect("the blocks lie inside the volume");
        let error = match self.inner.device.read(at, &mut bytes).map_err(StoreError::from) {
            Ok(()) if block_sum(&bytes) == block.sum => return Ok(Again::Fine),
            Ok(()) => None,
            Err(error) if is_of_place(&error) => Some(error),
            Err(error) => return Err(error),
        };
        Ok(if is_item()? { Again::Damaged(error) } else { Again::Moved })
    }

    /// Tells of blocks that are damaged: those that follow each other, in the file and on the device, together.
    fn tell(&mut self, leaf: &NodeView<'_>, mut damaged: Vec<(Block, String)>) {
        damaged.sort_by_key(|(block, _)| (block.index, block.in_file));
        let follows = |(one, _): &(Block, String), (next, _): &(Block, String)| {
            one.index == next.index && one.in_file.checked_add(1) == Some(next.in_file)
        };
        for run in damaged.chunk_by(follows) {
            let Some((block, why)) = run.first() else { continue };
            let what = Damaged::Data {
                inode: leaf.key(block.index).inode,
                first: block.in_file,
                count: run.len() as u64,
                block: block.at,
            };
            self.is_damaged(what, why.clone());
        }
    }
}
