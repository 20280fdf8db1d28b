//! The heads of a node's keys: 32 bits of each, where they differ, one behind the other.
//!
//! The records of a node lie in no order, so each step of a search among them
//! waits for memory twice: for the slot and for the record. Heads lie together,
//! sixteen to a cache line, and mostly leave one record to look at. This is the
//! prefix truncation and the "poor man's normalized key" of Graefe and Larson,
//! "B-tree indexes and CPU caches" (2001), kept in memory only.
//!
//! A head is a piece of the front of a key ([`RawKey::front`]): the bits behind those that all fronts of the node
//! share (the prefix), which end where two of them first differ, or did when the heads were made.
//!
//! Always true: there are as many heads as records, and each is that of its key.

use std::cmp::Ordering;
use std::ops::Range;

use holdfast_format::NodeView;
use holdfast_format::key::RawKey;

/// Bits of a head.
const BITS: u32 = u32::BITS;

/// The heads of the keys of one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heads {
    /// What all fronts have in common before the bits of the heads.
    prefix: u128,
    /// Bits of a front behind those of the head.
    shift: u32,
    heads: Vec<u32>,
}

impl Heads {
    /// The heads of a valid node.
    pub(crate) fn of(node: &NodeView<'_>) -> Heads {
        let mut heads = Heads::default();
        heads.make(node);
        heads
    }

    /// Makes them anew: from the first bit on in which the keys of `node` differ.
    pub(crate) fn make(&mut self, node: &NodeView<'_>) {
        self.heads.clear();
        let Some(last) = node.count().checked_sub(1) else {
            return;
        };
        let (first, last) = (node.raw_key(0).front(), node.raw_key(last).front());
        let differing = u128::BITS - (first ^ last).leading_zeros();
        self.shift = differing.saturating_sub(BITS);
        self.prefix = self.prefix_of(first);
        let shift = self.shift;
        let heads = (0..node.count()).map(|index| (node.raw_key(index).front() >> shift) as u32);
        self.heads.extend(heads);
    }

    fn prefix_of(&self, front: u128) -> u128 {
        front.checked_shr(self.shift + BITS).unwrap_or(0)
    }

    fn head_of(&self, front: u128) -> u32 {
        (front >> self.shift) as u32
    }

    /// The place of `key` in `node`, as [`NodeView::search`] finds it.
    #[inline]
    pub(crate) fn search(&self, node: &NodeView<'_>, key: &RawKey) -> Result<usize, usize> {
        node.search_within(self.narrow(key), key)
    }

    /// Whether record `index` is known to have a greater key, by its head alone, or is none: then it is behind the last.
    #[inline]
    pub(crate) fn is_behind(&self, index: usize, key: &RawKey) -> bool {
        let front = key.front();
        match self.heads.get(index) {
            Some(head) => self.prefix_of(front) == self.prefix && *head > self.head_of(front),
            None => true,
        }
    }

    /// The records that may have this key: all before have smaller ones, and all behind greater ones.
    #[inline]
    fn narrow(&self, key: &RawKey) -> Range<usize> {
        let front = key.front();
        match self.prefix_of(front).cmp(&self.prefix) {
            Ordering::Less => return 0..0,
            Ordering::Greater => return self.heads.len()..self.heads.len(),
            Ordering::Equal => {}
        }
        let head = self.head_of(front);
        let low = self.heads.partition_point(|other| *other < head);
        let same = match &self.heads[low..] {
            [first, second, ..] if *first == head && *second == head => {
                self.heads[low..].partition_point(|other| *other == head)
            }
            [first, ..] if *first == head => 1,
            _ => 0,
        };
        low..low + same
    }

    /// The record of `key` has become record `index` of `node`.
    pub(crate) fn insert(&mut self, index: usize, key: &RawKey, node: &NodeView<'_>) {
        let front = key.front();
        if self.heads.is_empty() || self.prefix_of(front) != self.prefix {
            // Each time the prefix gets shorter, so this is rare. It gets longer only with a split or join.
            self.make(node);
        } else {
            self.heads.insert(index, self.head_of(front));
        }
        assert_eq!(self.heads.len(), node.count(), "a head for each record");
    }

    /// Record `index` has gone.
    pub(crate) fn remove(&mut self, index: usize) {
        self.heads.remove(index);
    }

    /// Whether these are the heads of `node`.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn fit(&self, node: &NodeView<'_>) -> bool {
        let is_head = |(index, head): (usize, &u32)| {
            let front = node.raw_key(index).front();
            self.prefix_of(front) == self.prefix && self.head_of(front) == *head
        };
        self.heads.len() == node.count() && self.heads.iter().enumerate().all(is_head)
    }
}
