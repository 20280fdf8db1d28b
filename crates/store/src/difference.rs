//! What two trees of a volume do not have alike: a walk through both beside each other, in the order of keys.
//!
//! ```text
//!  the same block and birth:   the node is in both trees, and so is all below it: passed without a look
//!  inner nodes that differ:    down, to the first children that differ
//!  leaves that differ:         their items beside each other
//! ```
//!
//! A node has the same range in every tree that reaches it, so the walk meets equal nodes at equal keys. It reads the nodes in
//! which the trees differ, and nothing else: its cost is that of what changed. It keeps the items of two leaves in memory.
//!
//! Each step is under one hold of the lock; a snapshot is the same in all of them. The tree of a branch may change between two
//! steps, and what is found is then of several moments.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::ControlFlow;

use holdfast_format::Key;
use holdfast_format::key::RawKey;

use crate::cache::Node;
use crate::pin::Pin;
use crate::tree::subtree::Subtree;
use crate::tree::{Forest, Missing, TreeNo};
use crate::{Inner, Result, Store};

/// An item that two trees do not have alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Differing {
    /// Its key.
    pub key: Key,
    /// Its value in the first tree, if it is there.
    pub old: Option<Vec<u8>>,
    /// Its value in the second tree, if it is there.
    pub new: Option<Vec<u8>>,
}

/// A walk through two trees beside each other. See the head of this file.
#[derive(Debug)]
pub struct Difference {
    old: Pin,
    new: Pin,
    /// Where the walk goes on; `None`: it is at its end.
    at: Option<RawKey>,
    found: VecDeque<Differing>,
}

impl Difference {
    /// A walk from the first key on. Both are pinned in the store that [`Difference::next`] is given.
    pub fn new(old: Pin, new: Pin) -> Difference {
        Difference { old, new, at: Some(Key::MIN.raw()), found: VecDeque::new() }
    }

    /// The tree that was first.
    pub fn old(&self) -> &Pin {
        &self.old
    }

    /// The next item that differs. After an error the walk is where it was.
    pub fn next(&mut self, store: &Store) -> Result<Option<Differing>> {
        loop {
            if let Some(found) = self.found.pop_front() {
                return Ok(Some(found));
            }
            let Some(at) = self.at else { return Ok(None) };
            let (found, next) = store.inner.next_differing(self.old.tree(), self.new.tree(), at)?;
            self.found = found;
            self.at = next;
        }
    }
}

/// Items of one step, and where the walk goes on.
type Step = (VecDeque<Differing>, Option<RawKey>);

impl Inner {
    /// Calls `visit` with what differs, after each step with what it has found, and ends when that says so. Nodes that are not in memory
    /// are read only if it `reads`: else the first of them ends it. Says whether it came to its own end.
    pub(crate) fn compare(
        &self,
        (old, new): (TreeNo, TreeNo),
        reads: bool,
        mut visit: impl FnMut(VecDeque<Differing>) -> ControlFlow<()>,
    ) -> Result<bool> {
        let mut at = Some(Key::MIN.raw());
        while let Some(from) = at {
            let step = match reads {
                true => Some(self.next_differing(old, new, from)?),
                false => Pair::roots(&self.forest.read(), old, new).step(from).ok(),
            };
            let Some((found, next)) = step else { return Ok(false) };
            at = next;
            if visit(found).is_break() {
                return Ok(at.is_none());
            }
        }
        Ok(true)
    }

    fn next_differing(&self, old: TreeNo, new: TreeNo, at: RawKey) -> Result<Step> {
        let (step, nodes) = self.look(|forest| {
            let mut pair = Pair::roots(forest, old, new);
            pair.step(at).map(|step| (step, pair.nodes))
        })?;
        self.counters.nodes_compared.add(nodes);
        Ok(step)
    }
}

/// The smaller of two ends. On a damaged disk the ranges of one node may differ: then nothing is passed that only one has.
fn nearer(one: Option<RawKey>, other: Option<RawKey>) -> Option<RawKey> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// A node of each tree, both with the key at which the walk is.
struct Pair<'a> {
    forest: &'a Forest,
    old: Subtree,
    new: Subtree,
    /// Nodes that were looked into.
    nodes: u64,
}

impl<'a> Pair<'a> {
    fn roots(forest: &'a Forest, old: TreeNo, new: TreeNo) -> Pair<'a> {
        Pair { forest, old: Subtree::root(forest, old), new: Subtree::root(forest, new), nodes: 0 }
    }

    fn node(&mut self, subtree: &Subtree) -> std::result::Result<Node<'a>, Missing> {
        self.nodes = self.nodes.saturating_add(1);
        subtree.node(self.forest)
    }

    /// Goes down to the first leaves from `at` on that differ, and compares them; or passes what is the same, and says where
    /// to go on.
    fn step(&mut self, mut at: RawKey) -> std::result::Result<Step, Missing> {
        loop {
            let (old, new) = (self.old, self.new);
            if old.is_same_node(&new) {
                return Ok((VecDeque::new(), nearer(old.end, new.end)));
            }
            match old.level.cmp(&new.level) {
                Ordering::Greater => self.old = self.down(&old, &at)?,
                Ordering::Less => self.new = self.down(&new, &at)?,
                Ordering::Equal if old.level == 0 => return self.compare(at),
                Ordering::Equal => match self.pass_equal_children(at)? {
                    Ok(next) => at = next,
                    Err(end) => return Ok((VecDeque::new(), end)),
                },
            }
        }
    }

    fn down(&mut self, subtree: &Subtree, at: &RawKey) -> std::result::Result<Subtree, Missing> {
        let node = self.node(subtree)?;
        Ok(subtree.child(&node, node.child_index(at)))
    }

    /// Passes the children that both nodes have, and goes down to those that differ, with the place where they begin or the
    /// walk is. An error is the place behind the last one: there the nodes have nothing more beside each other.
    fn pass_equal_children(
        &mut self,
        mut at: RawKey,
    ) -> std::result::Result<std::result::Result<RawKey, Option<RawKey>>, Missing> {
        let (old, new) = (self.old, self.new);
        let (old_node, new_node) = (self.node(&old)?, self.node(&new)?);
        let (mut i, mut j) = (old_node.child_index(&at), new_node.child_index(&at));
        loop {
            let (one, other) = (old.child(&old_node, i), new.child(&new_node, j));
            if !one.is_same_node(&other) {
                (self.old, self.new) = (one, other);
                return Ok(Ok(at));
            }
            let end = nearer(one.end, other.end);
            (i, j) = (i.saturating_add(1), j.saturating_add(1));
            match end {
                Some(end) if one.end == other.end => at = end,
                _ => return Ok(Err(end)),
            }
            if i >= old_node.count() || j >= new_node.count() {
                return Ok(Err(end));
            }
        }
    }

    /// What two leaves do not have alike, from `at` to the end of the one that ends first.
    fn compare(&mut self, at: RawKey) -> std::result::Result<Step, Missing> {
        let (old, new) = (self.old, self.new);
        let (old_leaf, new_leaf) = (self.node(&old)?, self.node(&new)?);
        let end = nearer(old.end, new.end);
        let mut found = VecDeque::new();
        let first = |leaf: &Node<'_>| leaf.search(&at).unwrap_or_else(|index| index);
        let (mut i, mut j) = (first(&old_leaf), first(&new_leaf));
        let key = |leaf: &Node<'_>, index: usize| {
            let key = (index < leaf.count()).then(|| leaf.raw_key(index))?;
            end.is_none_or(|end| key < end).then_some(key)
        };
        loop {
            let order = match (key(&old_leaf, i), key(&new_leaf, j)) {
                (None, None) => return Ok((found, end)),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(one), Some(other)) => one.cmp(&other),
            };
            let one = order.is_le().then(|| (old_leaf.key(i), old_leaf.value(i)));
            let other = order.is_ge().then(|| (new_leaf.key(j), new_leaf.value(j)));
            i = i.saturating_add(usize::from(one.is_some()));
            j = j.saturating_add(usize::from(other.is_some()));
            let (old, new) = (one.map(|(_, value)| value), other.map(|(_, value)| value));
            if old != new
                && let Some((key, _)) = one.or(other)
            {
                let (old, new) = (old.map(<[u8]>::to_vec), new.map(<[u8]>::to_vec));
                found.push_back(Differing { key, old, new });
            }
        }
    }
}
