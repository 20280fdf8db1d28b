//! Whether the data that a commit or a batch names by its sum is on the device.

use holdfast_base::BLOCK_SIZE;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_device::Device;
use holdfast_format::checksum::block_sums;
use holdfast_format::journal::DataExtent;
use holdfast_format::journal::commit::data_sum;

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
