//! Nodes that a call has missed.

use super::Missing;

/// Nodes that a call has missed at one try, each once, and no more than are worth reading before the next one.
#[derive(Debug, Default)]
pub(crate) struct MissingSet(Vec<Missing>);

impl From<Missing> for MissingSet {
    fn from(one: Missing) -> MissingSet {
        MissingSet(vec![one])
    }
}

impl MissingSet {
    const MOST: usize = 1024;

    /// One more. False if no more is taken.
    pub(crate) fn add(&mut self, one: Missing) -> bool {
        // Changes come in the order of their keys, mostly, and miss one leaf in a row.
        let block = one.expected.pointer.block;
        if self.0.last().is_none_or(|last| last.expected.pointer.block != block) {
            self.0.push(one);
        }
        self.0.len() < MissingSet::MOST
    }

    /// Fails if there is one.
    pub(crate) fn none(self) -> std::result::Result<(), MissingSet> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }

    /// In the order of their places, each once.
    pub(crate) fn into_sorted(mut self) -> Vec<Missing> {
        self.0.sort_by_key(|one| one.expected.pointer.block);
        self.0.dedup_by_key(|one| one.expected.pointer);
        self.0
    }
}
