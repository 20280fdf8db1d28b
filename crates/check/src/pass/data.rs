//! Pass 7: the data of every file against its checksums. Some of it may lie in the log.

use std::ops::ControlFlow;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo, InodeNo, TreeId};
use holdfast_format::Kind;
use holdfast_format::checksum::block_sum;
use holdfast_format::item::Extent;

use super::Context;
use crate::issue::Issue;
use crate::volume::Bounds;

/// Blocks read at once.
const BATCH: usize = 256;
/// Blocks between two reports of progress.
const STRIDE: u64 = 4096;

pub(super) fn run(context: &mut Context<'_>) {
    if !context.options.data {
        return;
    }
    let volume = context.volume;
    let total = context.facts.data_blocks - context.facts.unwritten_blocks;
    // Grows to what the longest extent needs, at most a batch.
    let mut buffer = Vec::new();
    let mut done = 0;
    let _ = volume.items(TreeId::Files, Bounds::ALL, &mut |_, key, value| {
        if key.kind != Kind::Extent {
            return ControlFlow::Continue(());
        }
        let Ok(extent) = Extent::decode(value) else {
            return ControlFlow::Continue(());
        };
        if !volume.superblock.geometry.holds_data(extent.blocks) {
            return ControlFlow::Continue(());
        }
        let mut start = extent.blocks.start;
        let mut offset = key.offset;
        for sums in extent.sums.chunks(BATCH) {
            if buffer.len() < sums.len() * BLOCK_SIZE {
                buffer.resize(sums.len() * BLOCK_SIZE, 0);
            }
            verify(context, &mut buffer, DataLocation { inode: key.inode, offset, start }, sums);
            let count = sums.len() as u64;
            start = BlockNo(start.0 + count);
            offset = offset.saturating_add(count * BLOCK_BYTES);
            done += count;
            if done % STRIDE < count {
                context.progress(done, total);
            }
        }
        ControlFlow::Continue(())
    });
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
                context
                    .findings
                    .add(Issue::DataUnreadable, what)
                    .inode(place.inode)
                    .block(place.start);
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
                .findings
                .add(Issue::DataDamaged, what)
                .inode(place.inode)
                .block(BlockNo(place.start.0 + index));
        }
        index += run.len() as u64;
    }
}
