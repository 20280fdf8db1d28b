//! The prefixes of a node's keys: 32 bits of each, where they differ, one behind the other.
//!
//! The records of a node lie in no order, so each step of a search among them
//! waits for memory twice: for the slot and for the record. Prefixes lie together,
//! sixteen to a cache line, and mostly leave one record to look at. This is the
//! common truncation and the "poor man's normalized key" of Graefe and Larson,
//! "B-tree indexes and CPU caches" (2001), kept in memory only.
//!
//! A prefix is a piece of the front of a key ([`RawKey::front`]): the bits behind those that all fronts of the node
//! share (the common), which end where two of them first differ, or did when the prefixes were made.
//!
//! Always true: there are as many prefixes as records, and each is that of its key.

use std::cmp::Ordering;
use std::ops::Range;

use holdfast_format::NodeView;
use holdfast_format::key::RawKey;

/// Bits of a prefix.
const BITS: u32 = u32::BITS;

/// The prefixes of the keys of one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyPrefixes {
    /// What all fronts have in common before the bits of the prefixes.
    common: u128,
    /// Bits of a front behind those of the prefix.
    shift: u32,
    prefixes: Vec<u32>,
}

impl KeyPrefixes {
    /// The prefixes of a valid node.
    pub(crate) fn of(node: &NodeView<'_>) -> KeyPrefixes {
        let mut prefixes = KeyPrefixes::default();
        prefixes.make(node);
        prefixes
    }

    /// Makes them anew: from the first bit on in which the keys of `node` differ.
    pub(crate) fn make(&mut self, node: &NodeView<'_>) {
        self.prefixes.clear();
        let Some(last) = node.count().checked_sub(1) else {
            return;
        };
        let (first, last) = (node.raw_key(0).front(), node.raw_key(last).front());
        let differing = u128::BITS - (first ^ last).leading_zeros();
        self.shift = differing.saturating_sub(BITS);
        self.common = self.common_of(first);
        let shift = self.shift;
        let prefixes = (0..node.count()).map(|index| (node.raw_key(index).front() >> shift) as u32);
        self.prefixes.extend(prefixes);
    }

    fn common_of(&self, front: u128) -> u128 {
        front.checked_shr(self.shift + BITS).unwrap_or(0)
    }

    fn prefix_of(&self, front: u128) -> u32 {
        (front >> self.shift) as u32
    }

    /// The place of `key` in `node`, as [`NodeView::search`] finds it.
    #[inline]
    pub(crate) fn search(&self, node: &NodeView<'_>, key: &RawKey) -> Result<usize, usize> {
        node.search_within(self.narrow(key), key)
    }

    /// Whether record `index` has a greater key, by its prefix alone, or lies behind the last record.
    #[inline]
    pub(crate) fn is_behind(&self, index: usize, key: &RawKey) -> bool {
        let front = key.front();
        match self.prefixes.get(index) {
            Some(prefix) => self.common_of(front) == self.common && *prefix > self.prefix_of(front),
            None => true,
        }
    }

    /// The records that may have this key: all before have smaller ones, and all behind greater ones.
    #[inline]
    fn narrow(&self, key: &RawKey) -> Range<usize> {
        let front = key.front();
        match self.common_of(front).cmp(&self.common) {
            Ordering::Less => return 0..0,
            Ordering::Greater => return self.prefixes.len()..self.prefixes.len(),
            Ordering::Equal => {}
        }
        let prefix = self.prefix_of(front);
        let low = self.prefixes.partition_point(|other| *other < prefix);
        let same = match &self.prefixes[low..] {
            [first, second, ..] if *first == prefix && *second == prefix => {
                self.prefixes[low..].partition_point(|other| *other == prefix)
            }
            [first, ..] if *first == prefix => 1,
            _ => 0,
        };
        low..low + same
    }

    /// The record of `key` has become record `index` of `node`.
    pub(crate) fn insert(&mut self, index: usize, key: &RawKey, node: &NodeView<'_>) {
        let front = key.front();
        if self.prefixes.is_empty() || self.common_of(front) != self.common {
            // Each time the common gets shorter, so this is rare. It gets longer only with a split or join.
            self.make(node);
        } else {
            self.prefixes.insert(index, self.prefix_of(front));
        }
        assert_eq!(self.prefixes.len(), node.count(), "a prefix for each record");
    }

    /// Record `index` has gone.
    pub(crate) fn remove(&mut self, index: usize) {
        self.prefixes.remove(index);
    }

    /// Whether these are the prefixes of `node`.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn fit(&self, node: &NodeView<'_>) -> bool {
        let is_prefix = |(index, prefix): (usize, &u32)| {
            let front = node.raw_key(index).front();
            self.common_of(front) == self.common && self.prefix_of(front) == *prefix
        };
        self.prefixes.len() == node.count() && self.prefixes.iter().enumerate().all(is_prefix)
    }
}
