//! Changes inside one node: insert, replace, remove, pack. Each marks the bytes it touched.
//!
//! Knows nothing of other nodes.

use std::ops::Range;

use holdfast_format::key::{Key, RawKey};
use holdfast_format::node::{
    ADDRESS_AT, COUNT_AT, EPOCH_AT, GARBAGE_AT, HEAP_START_AT, NodePointer, NodeView, SLOT_SIZE,
    SLOTS_AT,
};

use crate::cache::dirty::{Marked, Tracker};
use crate::cache::key_prefixes::KeyPrefixes;

/// A node that is being changed.
pub(crate) struct NodeEdit<'a> {
    bytes: &'a mut [u8],
    prefixes: &'a mut KeyPrefixes,
    tracker: &'a mut Tracker,
    /// What the marks of this edit did.
    pub(crate) marked: Marked,
}

/// The record does not fit; the node is as it was.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl<'a> NodeEdit<'a> {
    /// Changes `bytes`, a valid node with these `prefixes`, and marks changes in `tracker`.
    pub(crate) fn new(
        bytes: &'a mut [u8],
        prefixes: &'a mut KeyPrefixes,
        tracker: &'a mut Tracker,
    ) -> NodeEdit<'a> {
        NodeEdit { bytes, prefixes, tracker, marked: Marked::default() }
    }

    /// The node as it is now.
    pub(crate) fn view(&self) -> NodeView<'_> {
        NodeView::trusted(self.bytes)
    }

    /// The place of `key`: `Ok` where it is, `Err` where it belongs.
    pub(crate) fn search(&self, key: &RawKey) -> Result<usize, usize> {
        self.prefixes.search(&self.view(), key)
    }

    fn mark(&mut self, start: usize, end: usize) {
        self.marked += self.tracker.mark(start, end);
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn set_prefix(&mut self, count: usize, heap_start: usize, garbage: usize) {
        self.put(COUNT_AT, &(count as u16).to_le_bytes());
        self.put(HEAP_START_AT, &(heap_start as u32).to_le_bytes());
        self.put(GARBAGE_AT, &(garbage as u32).to_le_bytes());
        self.mark(COUNT_AT, GARBAGE_AT + 4);
    }

    fn set_slot(&mut self, index: usize, offset: usize, len: usize) {
        let at = SLOTS_AT + index * SLOT_SIZE;
        self.put(at, &(offset as u16).to_le_bytes());
        self.put(at + 2, &(len as u16).to_le_bytes());
    }

    /// Gives the node a new location.
    pub(crate) fn set_location(&mut self, location: NodePointer) {
        self.put(ADDRESS_AT, &location.block.0.to_le_bytes());
        self.put(EPOCH_AT, &location.epoch.0.to_le_bytes());
        self.mark(ADDRESS_AT, EPOCH_AT + 8);
    }

    /// Puts a record between `index - 1` and `index`.
    pub(crate) fn insert(&mut self, index: usize, key: &Key, value: &[u8]) -> Result<(), Full> {
        let len = Key::SIZE + value.len();
        self.make_room(len + SLOT_SIZE)?;
        let (count, garbage) = (self.view().count(), self.view().garbage());
        let offset = self.view().heap_start() - len;
        self.put(offset, &key.encode());
        self.put(offset + Key::SIZE, value);
        self.mark(offset, offset + len);
        let (slot, end) = (SLOTS_AT + index * SLOT_SIZE, SLOTS_AT + count * SLOT_SIZE);
        self.bytes.copy_within(slot..end, slot + SLOT_SIZE);
        self.set_slot(index, offset, len);
        self.mark(slot, end + SLOT_SIZE);
        self.set_prefix(count + 1, offset, garbage);
        self.prefixes.insert(index, &key.raw(), &NodeView::trusted(self.bytes));
        Ok(())
    }

    /// Gives record `index` another value.
    pub(crate) fn replace(&mut self, index: usize, value: &[u8]) -> Result<(), Full> {
        let (offset, len) = self.view().record(index);
        let new_len = Key::SIZE + value.len();
        let (start, end) = (offset + Key::SIZE, offset + new_len);
        if new_len == len || new_len < len && self.tracker.takes(start, end) {
            // In place: what the old and the new value share at their start is not dirty. But a node
            // that has changed at many places already is better off with its records moved together.
            self.overwrite(offset + Key::SIZE, value);
            if new_len < len {
                self.shorten(index, offset, new_len, len - new_len);
            }
            return Ok(());
        }
        let view = self.view();
        if view.free() + len < new_len {
            return Err(Full);
        }
        let key = view.key(index);
        if view.gap() < new_len {
            // Packing must not keep the old record, or it would not make enough room.
            self.remove(index);
            self.pack();
            return self.insert(index, &key, value);
        }
        self.give_back(offset, len);
        let (count, garbage) = (self.view().count(), self.view().garbage());
        let offset = self.view().heap_start() - new_len;
        self.put(offset, &key.encode());
        self.put(offset + Key::SIZE, value);
        self.mark(offset, offset + new_len);
        self.set_slot(index, offset, new_len);
        let slot = SLOTS_AT + index * SLOT_SIZE;
        self.mark(slot, slot + SLOT_SIZE);
        self.set_prefix(count, offset, garbage);
        Ok(())
    }

    /// Takes `less` bytes from the end of a record.
    fn shorten(&mut self, index: usize, offset: usize, len: usize, less: usize) {
        self.set_slot(index, offset, len);
        let slot = SLOTS_AT + index * SLOT_SIZE;
        self.mark(slot, slot + SLOT_SIZE);
        let view = self.view();
        let (count, heap_start, garbage) = (view.count(), view.heap_start(), view.garbage());
        self.set_prefix(count, heap_start, garbage + less);
    }

    /// Overwrites bytes and marks only those that differ, from the first to the last.
    fn overwrite(&mut self, at: usize, bytes: &[u8]) {
        let Some((first, last)) = difference(&self.bytes[at..at + bytes.len()], bytes) else {
            return;
        };
        self.put(at + first, &bytes[first..last]);
        self.mark(at + first, at + last);
    }

    /// Counts the bytes of a record that no slot names any more.
    fn give_back(&mut self, offset: usize, len: usize) {
        let view = self.view();
        let (count, heap_start, garbage) = (view.count(), view.heap_start(), view.garbage());
        if offset == heap_start {
            self.set_prefix(count, heap_start + len, garbage);
        } else {
            self.set_prefix(count, heap_start, garbage + len);
        }
    }

    /// Takes record `index` out.
    pub(crate) fn remove(&mut self, index: usize) {
        let (offset, len) = self.view().record(index);
        let count = self.view().count();
        let (slot, end) = (SLOTS_AT + index * SLOT_SIZE, SLOTS_AT + count * SLOT_SIZE);
        self.bytes.copy_within(slot + SLOT_SIZE..end, slot);
        self.prefixes.remove(index);
        self.mark(slot, end - SLOT_SIZE);
        self.give_back(offset, len);
        let view = self.view();
        let (heap_start, garbage) = (view.heap_start(), view.garbage());
        if count == 1 {
            self.set_prefix(0, self.bytes.len(), 0);
        } else {
            self.set_prefix(count - 1, heap_start, garbage);
        }
    }

    /// Sees to it that so many bytes are free in one piece.
    fn make_room(&mut self, bytes: usize) -> Result<(), Full> {
        if self.view().gap() < bytes {
            if self.view().free() < bytes {
                return Err(Full);
            }
            self.pack();
        }
        Ok(())
    }

    /// Moves all records together, in the order of their slots.
    fn pack(&mut self) {
        let view = self.view();
        let count = view.count();
        let records = Records::of(&view, 0..count);
        let heap_start = self.lay(&records, 0, self.bytes.len());
        self.set_prefix(count, heap_start, 0);
    }

    /// Writes `records` into the slots from `first` on, and downwards from `end`. Returns where the last one begins.
    fn lay(&mut self, records: &Records, first: usize, end: usize) -> usize {
        let (mut offset, mut rest) = (end, &records.bytes[..]);
        for (index, &len) in (first..).zip(&records.lengths) {
            let (record, behind) = rest.split_at(len);
            offset -= len;
            self.put(offset, record);
            self.set_slot(index, offset, len);
            rest = behind;
        }
        let slot = SLOTS_AT + first * SLOT_SIZE;
        self.mark(offset, end);
        self.mark(slot, slot + records.lengths.len() * SLOT_SIZE);
        offset
    }

    /// Puts `records`, which are greater than all that is here, behind the last one.
    pub(crate) fn append(&mut self, records: &Records) -> Result<(), Full> {
        if records.lengths.is_empty() {
            return Ok(());
        }
        let needed = records.bytes.len() + records.lengths.len() * SLOT_SIZE;
        self.make_room(needed)?;
        let view = self.view();
        let (count, heap_start, garbage) = (view.count(), view.heap_start(), view.garbage());
        let heap_start = self.lay(records, count, heap_start);
        self.set_prefix(count + records.lengths.len(), heap_start, garbage);
        self.prefixes.make(&NodeView::trusted(self.bytes));
        Ok(())
    }

    /// Takes the records from `index` on out and returns them.
    pub(crate) fn split_off(&mut self, index: usize) -> Records {
        let view = self.view();
        let moved = Records::of(&view, index..view.count());
        if !moved.lengths.is_empty() {
            // Packing moves every record that stays: the others need only leave the count.
            self.set_prefix(index, view.heap_start(), 0);
            self.pack();
            self.prefixes.make(&NodeView::trusted(self.bytes));
        }
        moved
    }
}

/// From where to where two values of one length differ, from the first byte to the last. Eight at a time: an inode is
/// overwritten by each change in its directory.
fn difference(old: &[u8], new: &[u8]) -> Option<(usize, usize)> {
    let len = old.len();
    let (front, back) = (old.as_chunks::<8>().0, old.as_rchunks::<8>().1);
    let (new_front, new_back) = (new.as_chunks::<8>().0, new.as_rchunks::<8>().1);
    let before = front.iter().zip(new_front).take_while(|(old, new)| old == new).count();
    let behind = back.iter().rev().zip(new_back.iter().rev());
    let behind = behind.take_while(|(old, new)| old == new).count();
    let differ = |at: &usize| old[*at] != new[*at];
    let first = (8 * before..len).find(differ)?;
    let last = (first..len - 8 * behind).rev().find(differ)?;
    Some((first, last + 1))
}

/// Copies of records, one behind the other in the order of their keys.
#[derive(Debug)]
pub(crate) struct Records {
    bytes: Vec<u8>,
    lengths: Vec<usize>,
}

impl Records {
    /// Copies some records of a node.
    pub(crate) fn of(node: &NodeView<'_>, range: Range<usize>) -> Records {
        let mut bytes = Vec::with_capacity(node.used());
        let copied = range.map(|index| {
            let (offset, len) = node.record(index);
            bytes.extend_from_slice(&node.bytes()[offset..offset + len]);
            len
        });
        let lengths = copied.collect();
        Records { bytes, lengths }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_base::switch::Dirty;
    use holdfast_base::{BlockNo, Epoch, InodeNo, TreeId};
    use holdfast_format::node::{Expected, NodeHeader, OfVolume, empty};
    use holdfast_format::{Carried, ItemKind};
    use proptest::prelude::*;

    use super::*;
    use crate::cache::dirty::ByteRange;

    const SIZE: usize = 4096;

    /// A node, and what is kept beside it.
    struct Leaf {
        bytes: Vec<u8>,
        prefixes: KeyPrefixes,
        tracker: Tracker,
    }

    impl Leaf {
        fn new() -> Leaf {
            let pointer = NodePointer { block: BlockNo(8), epoch: Epoch(3) };
            let expected = Expected {
                pointer,
                tree: TreeId::Files,
                level: 0,
                volume: OfVolume::tagged([7; 8]),
            };
            let bytes = empty(SIZE, &expected);
            Leaf {
                bytes,
                prefixes: KeyPrefixes::default(),
                tracker: Tracker::new(Dirty::Ranges, SIZE),
            }
        }

        fn edit(&mut self) -> NodeEdit<'_> {
            NodeEdit::new(&mut self.bytes, &mut self.prefixes, &mut self.tracker)
        }

        /// The inodes of its keys, after everything about it was judged.
        fn check(&self) -> Vec<u64> {
            let view = NodeView::trusted(&self.bytes);
            let mut reader = holdfast_format::codec::Reader::new("node", &self.bytes);
            let header = NodeHeader::read(&mut reader).expect("a node has a head");
            view.check_body(&header, Carried::NOTHING).expect("it is valid");
            assert!(self.prefixes.fit(&view), "its prefixes are those of its keys");
            (0..view.count()).map(|index| view.key(index).inode.0).collect()
        }

        fn ranges(&self) -> Vec<ByteRange> {
            let mut ranges = Vec::new();
            self.tracker.ranges(&mut ranges);
            ranges
        }
    }

    fn key(number: u64) -> Key {
        Key::new(InodeNo(number), ItemKind::Inode, 0)
    }

    proptest! {
        #[test]
        fn values_differ_from_the_first_byte_to_the_last(
            old in prop::collection::vec(any::<u8>(), 0..40),
            changed in prop::collection::vec((0usize..40, any::<u8>()), 0..4),
        ) {
            let mut new = old.clone();
            for (at, byte) in changed {
                if let Some(here) = new.get_mut(at) {
                    *here = byte;
                }
            }
            let differ = |at: &usize| old[*at] != new[*at];
            let first = (0..old.len()).find(differ);
            let last = (0..old.len()).rev().find(differ);
            prop_assert_eq!(difference(&old, &new), first.zip(last.map(|last| last + 1)));
        }
    }

    #[test]
    fn records_that_move_together_lie_as_if_they_had_come_one_by_one() {
        let mut leaf = Leaf::new();
        let mut full = leaf.edit();
        for number in 0..30 {
            full.insert(number as usize, &key(number), &[number as u8; 40]).unwrap();
        }
        let moved = full.split_off(12);
        assert_eq!(leaf.check(), (0..12).collect::<Vec<_>>());
        assert_eq!(NodeView::trusted(&leaf.bytes).garbage(), 0);

        let mut single = Leaf::new();
        let mut edit = single.edit();
        for (index, number) in (12..30).enumerate() {
            edit.insert(index, &key(number), &[number as u8; 40]).unwrap();
        }
        let mut together = Leaf::new();
        together.edit().append(&moved).unwrap();
        assert!(single.bytes == together.bytes, "the same bytes");
        assert_eq!(single.ranges(), together.ranges());
        assert_eq!(single.check(), together.check());
    }

    #[test]
    fn an_append_packs_where_holes_are_in_its_way_and_refuses_what_does_not_fit() {
        let mut leaf = Leaf::new();
        let mut edit = leaf.edit();
        let mut number = 0;
        while edit.insert(number as usize, &key(number), &[1; 40]).is_ok() {
            number += 1;
        }
        (0..20).for_each(|_| edit.remove(3));
        let mut others = Leaf::new();
        let mut other = others.edit();
        for index in 0..19 {
            other.insert(index, &key(1000 + index as u64), &[2; 40]).unwrap();
        }
        let fits = Records::of(&other.view(), 0..19);
        edit.append(&fits).unwrap();
        assert_eq!(edit.append(&fits), Err(Full));
        let keys = leaf.check();
        assert_eq!(keys[..4], [0, 1, 2, 23]);
        assert_eq!(keys[keys.len() - 19..], (1000..1019).collect::<Vec<_>>());
        assert_eq!(keys.len() as u64, number - 20 + 19);
    }

    #[test]
    fn nothing_is_split_off_behind_the_last_record() {
        let mut leaf = Leaf::new();
        let mut edit = leaf.edit();
        edit.insert(0, &key(1), &[1; 40]).unwrap();
        let before = edit.view().bytes().to_vec();
        let none = edit.split_off(1);
        edit.append(&none).unwrap();
        assert!(none.lengths.is_empty() && leaf.bytes == before);
    }

    /// A key of few bits at many places, so that keys differ early, late, or where no head shows it.
    fn keys() -> impl Strategy<Value = Key> {
        let bit = 0..64u32;
        let number = prop_oneof![Just(0), 0..4u64, bit.prop_map(|bit| 1 << bit), any::<u64>()];
        let kind =
            prop_oneof![Just(ItemKind::Inode), Just(ItemKind::Dentry), Just(ItemKind::Extent)];
        (number.clone(), kind, number)
            .prop_map(|(inode, kind, offset)| Key::new(InodeNo(inode), kind, offset))
    }

    proptest! {
        #[test]
        fn a_search_by_heads_finds_what_a_search_of_the_keys_finds(
            steps in prop::collection::vec((keys(), 0..6u8), 1..200),
            probes in prop::collection::vec(keys(), 50),
        ) {
            let mut leaf = Leaf::new();
            for (key, step) in &steps {
                let mut edit = leaf.edit();
                let at = edit.search(&key.raw());
                prop_assert_eq!(at, edit.view().search(&key.raw()));
                match (at, step) {
                    (Ok(index), 0..3) => edit.remove(index),
                    (Ok(index), _) => drop(edit.replace(index, &[3; 30])),
                    (Err(index), 0) => {
                        let behind = edit.split_off(index);
                        if index % 2 == 0 {
                            edit.append(&behind).unwrap();
                        }
                    }
                    (Err(index), _) => drop(edit.insert(index, key, &[1; 20])),
                }
                leaf.check();
            }
            let edit = leaf.edit();
            for key in steps.iter().map(|(key, _)| key).chain(&probes) {
                prop_assert_eq!(edit.search(&key.raw()), edit.view().search(&key.raw()));
            }
        }
    }
}
