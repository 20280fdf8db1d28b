//! What a checkpoint has taken from memory, and has yet to write.

use holdfast_format::Superblock;

use crate::cache::SealedNode;
use crate::journal::Journal;
use crate::step::Step;

/// What a commit has sealed for a change of the lineage, left to the thread of checkpoints: the change is durable, and its
/// caller need not wait for the nodes. It is written before anything else is sealed.
#[derive(Debug)]
pub(crate) struct LeftOver {
    nodes: Vec<SealedNode>,
    superblock: Superblock,
    journal_head: u64,
}

impl LeftOver {
    /// Ends the step of the caller; another begins when it is taken up.
    pub(crate) fn of(sealed: Sealed<'_>) -> LeftOver {
        let Sealed { nodes, superblock, journal_head, step } = sealed;
        step.end();
        LeftOver { nodes, superblock, journal_head }
    }

    /// It is taken up, with a step of its own.
    pub(crate) fn taken_up(self, step: Step<'_>) -> Sealed<'_> {
        let LeftOver { nodes, superblock, journal_head } = self;
        Sealed { nodes, superblock, journal_head, step }
    }
}

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
