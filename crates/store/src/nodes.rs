//! Nodes on their way to their locations, and to those of their copies: sorted, neighbours in one write, large amounts side by
//! side.

use holdfast_base::mutants::{self, Mutant};
use holdfast_base::stop::Stop;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, parallel};
use holdfast_device::Device;
use holdfast_format::{Geometry, node};

use crate::Result;
use crate::side_by_side::side_by_side;
use crate::step::Step;

/// Largest write of neighbouring nodes, in bytes.
const WRITE_BYTES: usize = 1 << 20;
/// Less than this is written by the caller alone: threads would cost more than they save, and small
/// volumes under test see their writes in one order.
const ALONE_BYTES: usize = 4 << 20;

/// A node and its location.
pub(crate) type NodeWrite<'a> = (BlockNo, &'a [u8]);

/// Writes nodes, which come in the order of their blocks, and their copies, seals each, and leaves the flush to the caller. Only a volume
/// that `has_threads` of its own has several at it. Returns the number of locations written. A thread that panics here stops the volume
/// by `stop`, before the caller hears of it.
pub(crate) fn write(
    device: &dyn Device,
    stop: &Stop,
    geometry: &Geometry,
    nodes: &[NodeWrite<'_>],
    has_threads: bool,
) -> Result<u64> {
    let with_copies = with_copies(geometry, nodes);
    let nodes = with_copies.as_deref().unwrap_or(nodes);
    let bytes: usize = nodes.iter().map(|(_, bytes)| bytes.len()).sum();
    let most = parallel::node_threads(parallel::processors());
    let threads = if bytes < ALONE_BYTES || !has_threads { 1 } else { most };
    let runs = runs(nodes);
    side_by_side(&runs, threads, |run| {
        let step = Step::begin(stop, "writing nodes");
        let done = write_run(device, run);
        // An error is the caller's to tell.
        step.end();
        done
    })?;
    Ok(runs.len() as u64)
}

/// The same nodes and their copies, in the order of blocks; `None` if they have none.
fn with_copies<'a>(geometry: &Geometry, nodes: &[NodeWrite<'a>]) -> Option<Vec<NodeWrite<'a>>> {
    if geometry.copy_mask == 0 || mutants::is(Mutant::CopyNotWritten) {
        return None;
    }
    let copies = nodes.iter().filter_map(|(block, bytes)| {
        Some((geometry.copy_of(*block, node::stored(bytes, geometry))?, *bytes))
    });
    let mut all: Vec<_> = nodes.iter().copied().chain(copies).collect();
    all.sort_unstable_by_key(|(block, _)| *block);
    Some(all)
}

/// Nodes that follow each other on the device, up to [`WRITE_BYTES`] together.
fn runs<'n, 'a>(nodes: &'n [NodeWrite<'a>]) -> Vec<&'n [NodeWrite<'a>]> {
    let per_run = nodes.first().map_or(1, |(_, bytes)| (WRITE_BYTES / bytes.len()).max(1));
    let follows = |before: &NodeWrite<'_>, after: &NodeWrite<'_>| {
        before.0.0 + before.1.len() as u64 / BLOCK_BYTES == after.0.0
    };
    nodes.chunk_by(follows).flat_map(|neighbours| neighbours.chunks(per_run)).collect()
}

fn write_run(device: &dyn Device, run: &[NodeWrite<'_>]) -> Result<()> {
    let mut buffer = Vec::with_capacity(run.iter().map(|(_, bytes)| bytes.len()).sum());
    for (_, bytes) in run {
        let at = buffer.len();
        buffer.extend_from_slice(bytes);
        node::seal(&mut buffer[at..]);
    }
    let at = run[0].0.byte_offset().expect("nodes lie inside the volume");
    Ok(device.write(at, &buffer)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_device::MemoryDevice;
    use holdfast_format::Stored;

    #[test]
    fn neighbours_go_together_and_every_node_arrives() {
        let device = MemoryDevice::new(64 << 20);
        // Two of three places are taken; together they are enough for several writers.
        let content: Vec<(BlockNo, Vec<u8>)> = (0..600u64)
            .filter(|at| at % 3 != 2)
            .map(|at| (BlockNo(4 * at), vec![at as u8; 16384]))
            .collect();
        let nodes: Vec<NodeWrite<'_>> = content.iter().map(|(at, node)| (*at, &node[..])).collect();
        let geometry = Geometry::for_device(64 << 20, 16384).unwrap();
        write(&device, &Stop::default(), &geometry, &nodes, true).unwrap();
        assert_eq!(device.stats().writes, 200);
        let geometry = geometry.with_copies().unwrap();
        write(&device, &Stop::default(), &geometry, &nodes, true).unwrap();
        // Neighbours are written together, be they nodes or copies.
        let mut places: Vec<u64> = nodes
            .iter()
            .flat_map(|(at, _)| [at.0, geometry.copy_of(*at, Stored::Twice).unwrap().0])
            .collect();
        places.sort_unstable();
        let apart = places.windows(2).filter(|pair| pair[0] + 4 != pair[1]).count() as u64;
        assert_eq!(device.stats().writes - 200, apart + 1);
        let copies =
            content.iter().map(|(at, node)| (geometry.copy_of(*at, Stored::Twice).unwrap(), node));
        for (at, node) in content.iter().map(|(at, node)| (*at, node)).chain(copies) {
            let mut sealed = node.clone();
            node::seal(&mut sealed);
            let mut found = vec![0; node.len()];
            device.read(at.0 * BLOCK_BYTES, &mut found).unwrap();
            assert!(found == sealed, "the node at block {at}");
        }
    }
}
