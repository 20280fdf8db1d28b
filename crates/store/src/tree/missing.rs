//! What a call has missed: nodes, and bitmaps of block groups.

use super::Missing;
use crate::space::Wants;

/// What a call has missed at one try, each once, and no more nodes than are worth reading before the next one.
#[derive(Debug, Default)]
pub(crate) struct MissingSet {
    nodes: Vec<Missing>,
    /// Groups whose bitmaps are wanted.
    groups: Vec<u64>,
}

impl From<Missing> for MissingSet {
    fn from(one: Missing) -> MissingSet {
        MissingSet { nodes: vec![one], groups: Vec::new() }
    }
}

impl From<Wants> for MissingSet {
    fn from(one: Wants) -> MissingSet {
        vec![one].into()
    }
}

impl From<Vec<Wants>> for MissingSet {
    fn from(groups: Vec<Wants>) -> MissingSet {
        let groups = groups.into_iter().map(|Wants(index)| index).collect();
        MissingSet { nodes: Vec::new(), groups }
    }
}

impl MissingSet {
    const MOST: usize = 1024;

    /// One more node. False if no more is taken.
    pub(crate) fn add(&mut self, one: Missing) -> bool {
        // Changes come in the order of their keys, mostly, and miss one leaf in a row.
        let block = one.expected.pointer.block;
        if self.nodes.last().is_none_or(|last| last.expected.pointer.block != block) {
            self.nodes.push(one);
        }
        self.nodes.len() < MissingSet::MOST
    }

    /// One more bitmap.
    pub(crate) fn add_group(&mut self, index: u64) {
        if !self.groups.contains(&index) {
            self.groups.push(index);
        }
    }

    /// Whether it is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.groups.is_empty()
    }

    /// Fails if there is one.
    pub(crate) fn none(self) -> std::result::Result<(), MissingSet> {
        if self.is_empty() { Ok(()) } else { Err(self) }
    }

    /// Nodes in the order of their places, each once, and groups.
    pub(crate) fn into_sorted(mut self) -> (Vec<Missing>, Vec<u64>) {
        self.nodes.sort_by_key(|one| one.expected.pointer.block);
        self.nodes.dedup_by_key(|one| one.expected.pointer);
        (self.nodes, self.groups)
    }
}
