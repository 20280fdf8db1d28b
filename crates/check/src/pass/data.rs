//! Pass 7: the data of every file of `main` against its checksums. Some of it may lie in the log.

use std::ops::ControlFlow;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo, InodeNo, TreeId};
use holdfast_format::checksum::block_sum;
use holdfast_format::item::Extent;
use holdfast_format::{ItemKind, Key};

use super::Context;
use crate::bounds::Bounds;
use crate::issue::Issue;

/// Blocks read at once.
const BATCH: usize = 256;
/// Blocks between two reports of progress.
const STRIDE: u64 = 4096;

pub(super) fn run(context: &mut Context<'_>) {
    if !context.options.data {
        return;
    }
    let volume = context.volume;
    let mut reader = Reader::default();
    let _ = volume.items(TreeId::Files, Bounds::ALL, &mut |_, key, value| {
        reader.take(context, &key, value);
        ControlFlow::Continue(())
    });
}

/// Reads the data of extents.
#[derive(Default)]
pub(super) struct Reader {
    /// Grows to what the longest extent needs, at most a batch.
    buffer: Vec<u8>,
    done: u64,
}

impl Reader {
    /// Verifies the data of an item, if it is a sound extent.
    pub(super) fn take(&mut self, context: &mut Context<'_>, key: &Key, value: &[u8]) {
        if key.kind != ItemKind::Extent {
            return;
        }
        let Ok(extent) = Extent::decode(value) else { return };
        if !context.volume.superblock.geometry.holds_data(extent.blocks) {
            return;
        }
        let total = context.facts.data_blocks.saturating_sub(context.facts.unwritten_blocks);
        let mut start = extent.blocks.start;
        let mut offset = key.offset;
        for sums in extent.sums.chunks(BATCH) {
            let bytes = sums.len() * BLOCK_SIZE;
            if self.buffer.len() < bytes {
                self.buffer.resize(bytes, 0);
            }
            let place = DataLocation { inode: key.inode, offset, start };
            verify(context, &mut self.buffer, place, sums);
            let count = sums.len() as u64;
            start = BlockNo(start.0 + count);
            offset = offset.saturating_add(count * BLOCK_BYTES);
            self.done += count;
            if self.done % STRIDE < count {
                context.progress(self.done, total);
            }
        }
    }
}

/// Where data is: in the file, and on the device.
#[derive(Clone, Copy)]
struct DataLocation {
    inode: InodeNo,
    offset: u64,
    start: BlockNo,
}

fn verify(context: &mut Context<'_>, buffer: &mut [u8], place: DataLocation, sums: &[u64]) {
    let bytes = &mut buffer[..sums.len() * BLOCK_SIZE];
    if context.volume.read_data(place.start, bytes).is_ok() {
        compare(context, place, bytes, sums);
        return;
    }
    // Some of it does not read: each block for itself.
    for (index, sum) in (0u64..).zip(sums) {
        let place = DataLocation {
            offset: place.offset.saturating_add(index * BLOCK_BYTES),
            start: BlockNo(place.start.0 + index),
            ..place
        };
        let block = &mut buffer[..BLOCK_SIZE];
        match context.volume.read_data(place.start, block) {
            Ok(()) => compare(context, place, block, &[*sum]),
            Err(error) => {
                let what = format!("inode {} at byte {}: {error}", place.inode, place.offset);
                context.add(Issue::DataUnreadable, what).inode(place.inode).block(place.start);
            }
        }
    }
}

/// Reports each run of blocks that do not match their sums.
fn compare(context: &mut Context<'_>, place: DataLocation, bytes: &[u8], sums: &[u64]) {
    context.facts.verified_bytes += bytes.len() as u64;
    let (blocks, _) = bytes.as_chunks::<BLOCK_SIZE>();
    let wrong: Vec<_> =
        blocks.iter().zip(sums).map(|(block, sum)| block_sum(block) != *sum).collect();
    let mut index = 0;
    for run in wrong.chunk_by(|a, b| a == b) {
        if run[0] {
            let offset = place.offset.saturating_add(index * BLOCK_BYTES);
            let what = format!("inode {}: {} blocks from byte {offset} on", place.inode, run.len());
            context
                .add(Issue::DataDamaged, what)
                .inode(place.inode)
                .block(BlockNo(place.start.0 + index));
        }
        index += run.len() as u64;
    }
}
