//! Nodes that are made whole: empty, or with all of their items.

use super::{COUNT_AT, Expected, HEAP_START_AT, MAGIC, NodeHeader, SLOT_SIZE, SLOTS_AT};
use crate::Key;

/// An empty node of `size` bytes, not sealed.
pub fn empty(size: usize, expected: &Expected) -> Vec<u8> {
    let header = NodeHeader {
        magic: MAGIC,
        level: expected.level,
        tree: expected.tree as u8,
        count: 0,
        sum: 0,
        address: expected.pointer.block.0,
        epoch: expected.pointer.epoch.0,
        volume: expected.volume.tag,
        heap_start: size as u32,
        garbage: 0,
        reserved: [0; 16],
    };
    let mut bytes = Vec::with_capacity(size);
    header.write(&mut bytes);
    bytes.resize(size, 0);
    bytes
}

/// A node with these items, which are in the order of their keys and fit, not sealed.
pub fn filled<V: AsRef<[u8]>>(size: usize, expected: &Expected, items: &[(Key, V)]) -> Vec<u8> {
    let mut bytes = empty(size, expected);
    let mut heap = size;
    for (index, (key, value)) in items.iter().enumerate() {
        let len = Key::SIZE + value.as_ref().len();
        heap -= len;
        bytes[heap..heap + Key::SIZE].copy_from_slice(&key.encode());
        bytes[heap + Key::SIZE..heap + len].copy_from_slice(value.as_ref());
        let slot = SLOTS_AT + index * SLOT_SIZE;
        bytes[slot..slot + 2].copy_from_slice(&(heap as u16).to_le_bytes());
        bytes[slot + 2..slot + 4].copy_from_slice(&(len as u16).to_le_bytes());
    }
    bytes[COUNT_AT..COUNT_AT + 2].copy_from_slice(&(items.len() as u16).to_le_bytes());
    bytes[HEAP_START_AT..HEAP_START_AT + 4].copy_from_slice(&(heap as u32).to_le_bytes());
    bytes
}
