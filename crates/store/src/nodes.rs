//! Nodes on their way to their homes: sorted, neighbours in one write.

use holdfast_base::BlockNo;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_device::Device;
use holdfast_format::node;

use crate::Result;

/// Largest write of neighbouring nodes, in bytes.
const WRITE_BYTES: usize = 1 << 20;

/// Writes nodes, seals each, and leaves the flush to the caller. They come in the order of their blocks.
pub(crate) fn write<'a>(
    device: &dyn Device,
    nodes: impl IntoIterator<Item = (BlockNo, &'a [u8])>,
) -> Result<()> {
    let mut buffer: Vec<u8> = Vec::with_capacity(WRITE_BYTES);
    let mut start = BlockNo(0);
    for (block, bytes) in nodes {
        let next = BlockNo(start.0 + buffer.len() as u64 / BLOCK_BYTES);
        if !buffer.is_empty() && (block != next || buffer.len() >= WRITE_BYTES) {
            write_run(device, start, &buffer)?;
            buffer.clear();
        }
        if buffer.is_empty() {
            start = block;
        }
        let at = buffer.len();
        buffer.extend_from_slice(bytes);
        node::seal(&mut buffer[at..]);
    }
    if !buffer.is_empty() {
        write_run(device, start, &buffer)?;
    }
    Ok(())
}

fn write_run(device: &dyn Device, start: BlockNo, bytes: &[u8]) -> Result<()> {
    let at = start.byte_offset().expect("nodes lie inside the volume");
    Ok(device.write(at, bytes)?)
}
