//! Ranges of keys: what a node may hold, what is asked for, what could not be read.

use holdfast_base::InodeNo;
use holdfast_format::Key;

/// The keys that a node may hold: from `low` up to, not including, `high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) low: Key,
    pub(crate) high: Option<Key>,
}

impl Bounds {
    /// Every key.
    pub(crate) const ALL: Bounds = Bounds { low: Key::MIN, high: None };

    /// All items of one inode.
    pub(crate) fn inode(inode: InodeNo) -> Bounds {
        let high = inode.0.checked_add(1).map(|next| Key::inode(InodeNo(next)));
        Bounds { low: Key::inode(inode), high }
    }

    /// Whether `key` is inside.
    pub(crate) fn holds(&self, key: &Key) -> bool {
        *key >= self.low && self.high.is_none_or(|high| *key < high)
    }

    /// Whether the two share a key.
    pub(crate) fn meets(&self, other: &Bounds) -> bool {
        self.high.is_none_or(|high| other.low < high)
            && other.high.is_none_or(|high| self.low < high)
    }
}

/// Keys that could not be read: sorted and disjoint, as a walk finds them.
#[derive(Debug, Default)]
pub(crate) struct LostKeys(Vec<Bounds>);

impl LostKeys {
    /// Adds bounds that lie behind all others.
    pub(crate) fn push(&mut self, bounds: Bounds) {
        match self.0.last_mut() {
            Some(last) if last.high == Some(bounds.low) => last.high = bounds.high,
            _ => self.0.push(bounds),
        }
    }

    /// Whether nothing was lost.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `key` was lost.
    pub(crate) fn holds(&self, key: &Key) -> bool {
        let after = self.0.partition_point(|lost| lost.low <= *key);
        after > 0 && self.0[after - 1].holds(key)
    }

    /// Whether any key of `bounds` was lost.
    pub(crate) fn meets(&self, bounds: &Bounds) -> bool {
        let after = self.0.partition_point(|lost| bounds.high.is_none_or(|high| lost.low < high));
        after > 0 && self.0[after - 1].meets(bounds)
    }
}
