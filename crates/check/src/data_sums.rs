//! Whether the data that a commit, a batch or an extent names by its sum is on the device.

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo};
use holdfast_device::Device;
use holdfast_format::checksum::{block_sum, block_sums};
use holdfast_format::item::Extent;
use holdfast_format::journal::DataExtent;
use holdfast_format::journal::commit::data_sum;

use crate::patched::Patched;

/// Blocks of data read at once.
const BATCH: u64 = 256;

/// The first extent whose data is not on the device. Blocks that do not read count as there.
pub(crate) fn missing(device: &dyn Device, extents: &[DataExtent]) -> Option<DataExtent> {
    let longest = extents.iter().map(|extent| extent.count.min(BATCH)).max()?;
    let mut buffer = vec![0; longest as usize * BLOCK_SIZE];
    'extents: for extent in extents {
        // Grows with what is read.
        let mut sums = Vec::new();
        let mut done = 0;
        while done < extent.count {
            let count = (extent.count - done).min(BATCH);
            let part = &mut buffer[..count as usize * BLOCK_SIZE];
            if device.read((extent.block + done) * BLOCK_BYTES, part).is_err() {
                // This is damage, not a power cut: the pass that reads the file reports it.
                continue 'extents;
            }
            sums.extend(block_sums(part));
            done += count;
        }
        if data_sum(&sums) != extent.sum {
            return Some(*extent);
        }
    }
    None
}

/// How many blocks of an extent hold other data than it names, neither in `log` nor in their place, and how many do not read.
pub(crate) fn other_blocks(device: &dyn Device, log: &Patched, extent: &Extent) -> (u64, u64) {
    let offset = |block: u64| BlockNo(block).byte_offset().unwrap_or(u64::MAX);
    let (mut start, mut others, mut unread) = (extent.blocks.start.0, 0, 0);
    let (mut buffer, mut in_log) = (Vec::new(), [0; BLOCK_SIZE]);
    for sums in extent.sums.chunks(BATCH as usize) {
        buffer.resize(sums.len() * BLOCK_SIZE, 0);
        let is_read = device.read(offset(start), &mut buffer).is_ok();
        for (at, (block, sum)) in (start..).zip(buffer.chunks_mut(BLOCK_SIZE).zip(sums)) {
            let of_log = log.read(device, BlockNo(at), &mut in_log);
            if of_log.is_some_and(|of| of.is_ok()) && block_sum(&in_log) == *sum {
                continue;
            }
            let is_read = is_read || device.read(offset(at), block).is_ok();
            unread += u64::from(!is_read);
            others += u64::from(is_read && block_sum(block) != *sum);
        }
        start = start.saturating_add(sums.len() as u64);
    }
    (others, unread)
}
