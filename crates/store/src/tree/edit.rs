//! Changes inside one node: insert, replace, remove, pack. Each marks the bytes it touched.
//!
//! Knows nothing of other nodes.

use holdfast_format::key::Key;
use holdfast_format::node::{
    ADDRESS_AT, COUNT_AT, EPOCH_AT, GARBAGE_AT, HEAP_START_AT, NodePointer, NodeView, SLOT_SIZE,
    SLOTS_AT,
};

use crate::cache::dirty::{Marked, Tracker};

/// A node that is being changed.
pub(crate) struct NodeEdit<'a> {
    bytes: &'a mut [u8],
    tracker: &'a mut Tracker,
    /// What the marks of this edit did.
    pub(crate) marked: Marked,
}

/// The record does not fit; the node is as it was.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl<'a> NodeEdit<'a> {
    /// Changes `bytes`, a valid node, and marks changes in `tracker`.
    pub(crate) fn new(bytes: &'a mut [u8], tracker: &'a mut Tracker) -> NodeEdit<'a> {
        NodeEdit { bytes, tracker, marked: Marked::default() }
    }

    /// The node as it is now.
    pub(crate) fn view(&self) -> NodeView<'_> {
        NodeView::trusted(self.bytes)
    }

    fn mark(&mut self, start: usize, end: usize) {
        self.marked += self.tracker.mark(start, end);
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn set_head(&mut self, count: usize, heap_start: usize, garbage: usize) {
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

    /// Gives the node a new home.
    pub(crate) fn set_home(&mut self, home: NodePointer) {
        self.put(ADDRESS_AT, &home.block.0.to_le_bytes());
        self.put(EPOCH_AT, &home.epoch.0.to_le_bytes());
        self.mark(ADDRESS_AT, EPOCH_AT + 8);
    }

    /// Puts a record between `index - 1` and `index`.
    pub(crate) fn insert(&mut self, index: usize, key: &Key, value: &[u8]) -> Result<(), Full> {
        let len = Key::SIZE + value.len();
        if self.view().gap() < len + SLOT_SIZE {
            if self.view().free() < len + SLOT_SIZE {
                return Err(Full);
            }
            self.pack();
        }
        let (count, garbage) = (self.view().count(), self.view().garbage());
        let offset = self.view().heap_start() - len;
        self.put(offset, &key.encode());
        self.put(offset + Key::SIZE, value);
        self.mark(offset, offset + len);
        let (slot, end) = (SLOTS_AT + index * SLOT_SIZE, SLOTS_AT + count * SLOT_SIZE);
        self.bytes.copy_within(slot..end, slot + SLOT_SIZE);
        self.set_slot(index, offset, len);
        self.mark(slot, end + SLOT_SIZE);
        self.set_head(count + 1, offset, garbage);
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
        self.set_head(count, offset, garbage);
        Ok(())
    }

    /// Takes `less` bytes from the end of a record.
    fn shorten(&mut self, index: usize, offset: usize, len: usize, less: usize) {
        self.set_slot(index, offset, len);
        let slot = SLOTS_AT + index * SLOT_SIZE;
        self.mark(slot, slot + SLOT_SIZE);
        let view = self.view();
        let (count, heap_start, garbage) = (view.count(), view.heap_start(), view.garbage());
        self.set_head(count, heap_start, garbage + less);
    }

    /// Overwrites bytes and marks only those that differ, from the first to the last.
    fn overwrite(&mut self, at: usize, bytes: &[u8]) {
        let old = &self.bytes[at..at + bytes.len()];
        let Some(first) = old.iter().zip(bytes).position(|(old, new)| old != new) else {
            return;
        };
        let same = old.iter().rev().zip(bytes.iter().rev()).take_while(|(old, new)| old == new);
        let last = bytes.len() - same.count();
        self.put(at + first, &bytes[first..last]);
        self.mark(at + first, at + last);
    }

    /// Counts the bytes of a record that no slot names any more.
    fn give_back(&mut self, offset: usize, len: usize) {
        let view = self.view();
        let (count, heap_start, garbage) = (view.count(), view.heap_start(), view.garbage());
        if offset == heap_start {
            self.set_head(count, heap_start + len, garbage);
        } else {
            self.set_head(count, heap_start, garbage + len);
        }
    }

    /// Takes record `index` out.
    pub(crate) fn remove(&mut self, index: usize) {
        let (offset, len) = self.view().record(index);
        let count = self.view().count();
        let (slot, end) = (SLOTS_AT + index * SLOT_SIZE, SLOTS_AT + count * SLOT_SIZE);
        self.bytes.copy_within(slot + SLOT_SIZE..end, slot);
        self.mark(slot, end - SLOT_SIZE);
        self.give_back(offset, len);
        let view = self.view();
        let (heap_start, garbage) = (view.heap_start(), view.garbage());
        if count == 1 {
            self.set_head(0, self.bytes.len(), 0);
        } else {
            self.set_head(count - 1, heap_start, garbage);
        }
    }

    /// Moves all records together, in the order of their slots.
    fn pack(&mut self) {
        let view = self.view();
        let records: Vec<Vec<u8>> = (0..view.count())
            .map(|index| {
                let (offset, len) = view.record(index);
                self.bytes[offset..offset + len].to_vec()
            })
            .collect();
        let mut offset = self.bytes.len();
        for (index, record) in records.iter().enumerate() {
            offset -= record.len();
            self.put(offset, record);
            self.set_slot(index, offset, record.len());
        }
        self.mark(offset, self.bytes.len());
        self.mark(SLOTS_AT, SLOTS_AT + records.len() * SLOT_SIZE);
        self.set_head(records.len(), offset, 0);
    }

    /// Takes the records from `index` on out and returns them.
    pub(crate) fn split_off(&mut self, index: usize) -> Vec<(Key, Vec<u8>)> {
        let view = self.view();
        if index >= view.count() {
            return Vec::new();
        }
        let moved: Vec<(Key, Vec<u8>)> =
            (index..view.count()).map(|at| (view.key(at), view.value(at).to_vec())).collect();
        // Packing moves every record that stays: the others need only leave the count.
        self.set_head(index, view.heap_start(), 0);
        self.pack();
        moved
    }
}
