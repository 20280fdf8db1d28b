//! Nodes from items: sealed bytes, as full as they may be.

use holdfast_format::Key;
use holdfast_format::node::{self, Expected, SLOT_SIZE, SLOTS_AT};

/// A key with its value.
pub(crate) type Item = (Key, Vec<u8>);

/// Bytes that an item takes in a node.
fn size_of(item: &Item) -> usize {
    SLOT_SIZE + Key::SIZE + item.1.len()
}

/// How many of the first items fit into a node of `size` bytes.
pub(crate) fn fitting(items: &[Item], size: usize) -> usize {
    let mut room = size - SLOTS_AT;
    let fits = |item: &&Item| {
        let need = size_of(item);
        let fits = need <= room;
        room = room.saturating_sub(need);
        fits
    };
    items.iter().take(usize::from(u16::MAX)).take_while(fits).count()
}

/// Cuts items into parts that fit a node each. One at least, which may be empty.
pub(crate) fn parts(items: &[Item], size: usize) -> Vec<&[Item]> {
    let mut parts = Vec::new();
    let mut rest = items;
    loop {
        // A value that was read or made is not longer than the limit, and one such item fits every node.
        let count = fitting(rest, size).max(usize::from(!rest.is_empty()));
        let (part, others) = rest.split_at(count);
        parts.push(part);
        rest = others;
        if rest.is_empty() {
            return parts;
        }
    }
}

/// A sealed node with these items, which fit.
pub(crate) fn seal(size: usize, expected: &Expected, items: &[Item]) -> Vec<u8> {
    let mut bytes = node::filled(size, expected, items);
    node::seal(&mut bytes);
    bytes
}
