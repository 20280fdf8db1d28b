//! Nodes that were read lately, as bytes, and nodes that will be read next.
//!
//! The passes look at one node many times: each path from a root goes through it, and so does each tree that has it.
//! A device takes as long for one node as for many that lie together, so what a walk needs next is read ahead, neighbours
//! in one call and several calls at once.
//!
//! Nothing is believed because it was read before: the caller gets the bytes and judges them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use holdfast_base::parallel::{node_threads, processors};
use holdfast_base::{BLOCK_SIZE, BlockNo};
use holdfast_device::{Device, DeviceError};
use holdfast_sync::on_threads;

/// Bytes of the younger nodes, and at most as many of the older ones.
const YOUNG_BYTES: usize = 32 << 20;
/// Nodes that are read ahead at once; a small part of what is kept, however large they are.
pub(crate) const AHEAD: usize = 64;
/// Bytes of one call.
const CALL_BYTES: usize = 1 << 20;
/// Calls that are worth a thread.
const CALLS_PER_THREAD: usize = 4;

type Nodes = HashMap<BlockNo, Vec<u8>>;

/// Keeps the nodes that were asked for last, in about [`YOUNG_BYTES`] to twice as many bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeCache(RefCell<Kept>);

/// What is asked for becomes young. When there are enough young ones, the old ones leave and the young ones are old.
#[derive(Clone, Debug, Default)]
struct Kept {
    young: Nodes,
    old: Nodes,
    young_bytes: usize,
    /// How often one was judged.
    judged: u64,
}

impl Kept {
    fn find(&mut self, block: BlockNo) -> Option<&Vec<u8>> {
        if let Some(node) = self.old.remove(&block) {
            self.put(block, node);
        }
        self.young.get(&block)
    }

    fn put(&mut self, block: BlockNo, node: Vec<u8>) {
        if self.young_bytes + node.len() > YOUNG_BYTES {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += node.len();
        let before = self.young.insert(block, node);
        self.young_bytes -= before.map_or(0, |before| before.len());
    }
}

impl NodeCache {
    /// The `size` bytes from `block` on.
    pub(crate) fn read(
        &self,
        device: &dyn Device,
        block: BlockNo,
        size: usize,
        into: &mut Vec<u8>,
    ) -> Result<(), DeviceError> {
        let mut kept = self.0.borrow_mut();
        if let Some(node) = kept.find(block) {
            into.clone_from(node);
            return Ok(());
        }
        into.resize(size, 0);
        device.read(byte_of(block), into)?;
        kept.put(block, into.clone());
        Ok(())
    }

    /// Counts a node that is judged.
    pub(crate) fn count(&self) {
        self.0.borrow_mut().judged += 1;
    }

    pub(crate) fn judged(&self) -> u64 {
        self.0.borrow().judged
    }

    /// Keeps other bytes for a node than those of its place: its copy.
    pub(crate) fn keep(&self, block: BlockNo, node: &[u8]) {
        let mut kept = self.0.borrow_mut();
        kept.old.remove(&block);
        kept.put(block, node.to_vec());
    }

    /// Reads those of `blocks` that are not kept. What does not read is left to the caller.
    pub(crate) fn read_ahead(&self, device: &dyn Device, mut blocks: Vec<BlockNo>, size: usize) {
        let mut kept = self.0.borrow_mut();
        blocks.retain(|block| kept.find(*block).is_none());
        blocks.sort_unstable();
        blocks.dedup();
        // One alone is read when it is asked for.
        if blocks.len() < 2 {
            return;
        }
        for (block, node) in read_all(device, &calls(&blocks, size), size) {
            kept.put(block, node);
        }
    }
}

/// The nodes at `blocks`, which ascend, as they stand on the device, neighbours in one call; `None` for what does not read.
pub(crate) fn read_plain(
    device: &dyn Device,
    blocks: &[BlockNo],
    size: usize,
) -> Vec<Option<Vec<u8>>> {
    let mut read: HashMap<_, _> =
        read_all(device, &calls(blocks, size), size).into_iter().collect();
    let alone = |block: BlockNo| {
        // A neighbour may be what does not read.
        let mut node = vec![0; size];
        device.read(byte_of(block), &mut node).ok().map(|()| node)
    };
    blocks.iter().map(|block| read.remove(block).or_else(|| alone(*block))).collect()
}

/// Neighbours belong to one call. Nodes of a damaged volume may overlap: they are none.
fn calls(blocks: &[BlockNo], size: usize) -> Vec<&[BlockNo]> {
    let step = (size / BLOCK_SIZE) as u64;
    let together = blocks.chunk_by(|one, two| two.0 - one.0 == step);
    together.flat_map(|run| run.chunks((CALL_BYTES / size).max(1))).collect()
}

fn read_all(device: &dyn Device, calls: &[&[BlockNo]], size: usize) -> Vec<(BlockNo, Vec<u8>)> {
    let next = AtomicUsize::new(0);
    let all = Mutex::new(Vec::new());
    let threads = node_threads(processors()).min(calls.len() / CALLS_PER_THREAD).max(1);
    on_threads(threads, || {
        let (mut nodes, mut buffer) = (Vec::new(), Vec::new());
        while let Some(call) = calls.get(next.fetch_add(1, Ordering::Relaxed)) {
            buffer.resize(call.len() * size, 0);
            if device.read(byte_of(call[0]), &mut buffer).is_ok() {
                let parts = buffer.chunks_exact(size).map(<[u8]>::to_vec);
                nodes.extend(call.iter().copied().zip(parts));
            }
        }
        // A thread that panics takes the check along, so no thread meets a poisoned lock.
        all.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).append(&mut nodes);
    });
    all.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// No device has a byte there if the number is too large.
fn byte_of(block: BlockNo) -> u64 {
    block.byte_offset().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_device::MemoryDevice;

    const NODE: usize = 65536;
    const STEP: u64 = (NODE / BLOCK_SIZE) as u64;

    fn device(nodes: u64) -> MemoryDevice {
        let device = MemoryDevice::new(nodes * NODE as u64);
        for node in 0..nodes {
            device.write(node * NODE as u64, &[node as u8; NODE]).expect("it is inside");
        }
        device
    }

    /// Asks for nodes, which must be those of the device. Returns how many calls that took.
    fn ask(cache: &NodeCache, device: &MemoryDevice, nodes: impl Iterator<Item = u64>) -> u64 {
        let before = device.stats().reads;
        let mut buffer = Vec::new();
        for node in nodes {
            cache.read(device, BlockNo(node * STEP), NODE, &mut buffer).expect("it is inside");
            assert_eq!(buffer, [node as u8; NODE], "node {node}");
        }
        device.stats().reads - before
    }

    #[test]
    fn nodes_are_read_once_and_those_asked_for_last_stay() {
        let fit = (YOUNG_BYTES / NODE) as u64;
        let device = device(4 * fit);
        let cache = NodeCache::default();
        assert_eq!(ask(&cache, &device, 0..fit), fit);
        assert_eq!(ask(&cache, &device, 0..fit), 0, "all are kept");
        for more in fit..4 * fit {
            // The first one is asked for again and again, as a root is.
            assert_eq!(ask(&cache, &device, [0, more].into_iter()), 1);
        }
        let kept = cache.0.borrow();
        let bytes: usize = kept.young.values().chain(kept.old.values()).map(Vec::len).sum();
        assert!(bytes <= 2 * YOUNG_BYTES, "{bytes} bytes are kept");
    }

    #[test]
    fn what_is_read_ahead_is_read_in_few_calls_and_as_it_is() {
        let device = device(100);
        let cache = NodeCache::default();
        let at = |node: u64| BlockNo(node * STEP);
        // Neighbours, single ones, one twice, and two that overlap others.
        let blocks: Vec<_> = (0..40).rev().chain((41..100).step_by(2)).chain([3]).map(at).collect();
        let overlapping = [BlockNo(41 * STEP + 1), BlockNo(STEP + 1)];
        let before = device.stats().reads;
        cache.read_ahead(&device, blocks.iter().copied().chain(overlapping).collect(), NODE);
        let calls = device.stats().reads - before;
        assert!(calls < 40, "{calls} calls");
        assert_eq!(ask(&cache, &device, (0..40).chain((41..100).step_by(2))), 0);
    }

    #[test]
    fn what_cannot_be_read_ahead_is_left_to_who_asks() {
        let device = device(4);
        let cache = NodeCache::default();
        // The run reaches beyond the end of the device.
        cache.read_ahead(&device, (2..6).map(|node| BlockNo(node * STEP)).collect(), NODE);
        ask(&cache, &device, 2..4);
        for outside in [4 * STEP, u64::MAX] {
            let mut buffer = Vec::new();
            assert!(cache.read(&device, BlockNo(outside), NODE, &mut buffer).is_err());
            assert!(
                cache.read(&device, BlockNo(outside), NODE, &mut buffer).is_err(),
                "never kept"
            );
        }
    }
}
