//! What a checkpoint has taken from memory, and has yet to write.

use holdfast_format::Superblock;

use crate::cache::SealedNode;
use crate::journal::Journal;
use crate::step::Step;

/// What a checkpoint makes permanent.
#[derive(Debug)]
pub(crate) struct Sealed<'a> {
    pub(crate) nodes: Vec<SealedNode>,
    pub(crate) superblock: Superblock,
    /// Where the journal stood: what lies before is dead when the superblock is durable.
    pub(crate) journal_head: u64,
    /// Until the release.
    pub(crate) step: Step<'a>,
}

impl Sealed<'_> {
    /// What was sealed contains every commit of the journal so far, and nothing more.
    pub(crate) fn stands_behind(&mut self, journal: &Journal) {
        self.superblock.journal = journal.mark();
        self.journal_head = journal.head();
    }
}
