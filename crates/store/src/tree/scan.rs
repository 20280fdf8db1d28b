//! Scans of a tree, a leaf at a time, in both directions.

use std::ops::ControlFlow;

use holdfast_format::Key;

use super::{Forest, Missing, TreeNo};

/// The upper end of a scan downwards.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    Included(Key),
    Excluded(Key),
}

impl Bound {
    fn key(&self) -> &Key {
        match self {
            Bound::Included(key) | Bound::Excluded(key) => key,
        }
    }
}

impl Forest {
    /// Visits the items of one leaf from `from` to `to` upwards, and says where to go on.
    pub(crate) fn scan_leaf(
        &self,
        tree: TreeNo,
        from: &Key,
        to: &Key,
        visit: &mut dyn FnMut(Key, &[u8]) -> ControlFlow<()>,
    ) -> Result<Option<Key>, Missing> {
        let start = from.raw();
        let mut leaf = self.root_node(tree)?;
        // The next leaf begins at the next separator of the lowest ancestor that has one.
        let mut next = None;
        for level in (0..self.root(tree).level).rev() {
            let index = leaf.child_index(&start);
            if index + 1 < leaf.count() {
                next = Some((leaf, index + 1));
            }
            leaf = self.child(tree, &leaf, index, level)?;
        }
        let first = leaf.search(&start).unwrap_or_else(|index| index);
        // By another search: a scan for a single missing key looks at no record at all.
        let end = leaf.search_from(first, &to.raw()).map_or_else(|index| index, |index| index + 1);
        for index in first..end {
            if visit(leaf.key(index), leaf.value(index)).is_break() {
                return Ok(None);
            }
        }
        if end < leaf.count() {
            return Ok(None);
        }
        Ok(next.map(|(node, index)| node.key(index)).filter(|next| next <= to))
    }

    /// Visits the items of one leaf from `to` down to `from`, and says below which key to go on.
    pub(crate) fn scan_leaf_back(
        &self,
        tree: TreeNo,
        from: &Key,
        to: &Bound,
        visit: &mut dyn FnMut(Key, &[u8]) -> ControlFlow<()>,
    ) -> Result<Option<Key>, Missing> {
        let mut node = self.root_node(tree)?;
        let mut lower = Key::MIN;
        for level in (0..self.root(tree).level).rev() {
            let index = match (to, node.search(&to.key().raw())) {
                (Bound::Included(_), Ok(index)) => index,
                (Bound::Excluded(_), Ok(index)) | (_, Err(index)) => index.saturating_sub(1),
            };
            lower = node.key(index);
            node = self.child(tree, &node, index, level)?;
        }
        let end = match (to, node.search(&to.key().raw())) {
            (Bound::Included(_), Ok(index)) => index + 1,
            (Bound::Excluded(_), Ok(index)) | (_, Err(index)) => index,
        };
        for index in (0..end).rev() {
            let key = node.key(index);
            if key < *from || visit(key, node.value(index)).is_break() {
                return Ok(None);
            }
        }
        // In a damaged tree the way down may end above where it should: a walk never turns round.
        let onward = match to {
            Bound::Included(to) => lower <= *to,
            Bound::Excluded(to) => lower < *to,
        };
        Ok((lower > *from && onward).then_some(lower))
    }
}
