//! What was freed, until it may be given away: data behind a commit, nodes behind a checkpoint (R2).

use holdfast_base::mutants::{self, Mutant};
use holdfast_base::{BlockNo, BlockRange};
use holdfast_format::Stored;

use super::Space;
use crate::space::slots::NodeSlots;

impl Space {
    /// Frees blocks of data in use. They are reusable when the next commit is durable (R2).
    pub(crate) fn free_data(&mut self, range: BlockRange) {
        if self.is_unknown {
            return;
        }
        self.set_used(range, false, false);
        if mutants::is(Mutant::DataReusedEarly) {
            self.unflushed.forget(range);
            return self.release(range);
        }
        self.freed.add(range, false);
        self.unflushed.forget(range);
        self.forget_filled(range);
    }

    /// Frees the location of a node with that of its copy. They are reusable when the next checkpoint is durable (R2).
    pub(crate) fn free_node(&mut self, block: BlockNo, stored: Stored) {
        if self.is_unknown {
            return;
        }
        for place in self.places_of_node(block, stored) {
            self.set_used(place, false, true);
            self.freed.add(place, true);
        }
    }

    /// Whether freed blocks wait for a commit or a checkpoint.
    pub(crate) fn has_pending(&self) -> bool {
        self.freed.blocks() > 0
    }

    /// Whether not even a node is free beside what is promised, and nothing waits to become free, where groups are lost.
    pub(crate) fn has_lost_promised(&self) -> bool {
        self.groups.any_lost() && !self.has_pending() && self.promises.is_short_of(self.room())
    }

    /// Whether a commit or checkpoint gives anything back.
    pub(crate) fn has_pending_or_roots(&self) -> bool {
        self.has_pending() || self.promises.roots != NodeSlots::none()
    }

    /// Gives freed blocks away whose end is durable.
    pub(crate) fn give_away(&mut self, freed: &[BlockRange]) {
        for range in freed {
            self.freed.gave(range.count);
            self.release(*range);
        }
    }
}
