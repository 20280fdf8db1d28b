//! Blocks: one is taken, and one that nothing reaches any more is freed. Whether a branch may free what it drops is S1.

use super::*;

impl Volume {
    pub(super) fn take(&mut self, hand: &mut Hand<'_>) -> Pointer {
        let kept = if hand.is(Mutant::FreedReusedAtOnce) { 0 } else { hand.kept };
        let block = (0..BLOCKS as u8)
            .find(|block| (self.used | kept) & bit(*block) == 0)
            .expect("the model has blocks for all that its bounds allow");
        self.used |= bit(block);
        Pointer { block, birth: self.epoch }
    }

    pub(super) fn free(&mut self, at: Pointer) {
        if self.used & bit(at.block) == 0 {
            return self.fail("S4: a block is freed that is free");
        }
        self.used &= !bit(at.block);
        // A node may be there; what a crash goes back to has it still.
        self.nodes[at.block as usize] = None;
    }

    /// S1: a branch drops what it has at a place of the walk's order.
    pub(super) fn drop_at(&mut self, branch: usize, place: usize, at: Pointer, hand: &Hand<'_>) {
        if self.is_own(branch, place, at, hand) {
            self.free(at);
        }
    }

    fn is_own(&self, branch: usize, place: usize, at: Pointer, hand: &Hand<'_>) -> bool {
        let parent = self.branches[branch].expect("the branch is there").parent;
        let Some(snapshot) = parent.and_then(|at| self.snapshots[at]) else {
            return true;
        };
        let or_equal = hand.is(Mutant::BirthComparedOrEqual) && at.birth == snapshot.epoch;
        if at.birth > snapshot.epoch || or_equal || hand.is(Mutant::ParentNotAsked) {
            return true;
        }
        // The trap: the parent is being deleted meanwhile. What the walk has passed it has left to the branch.
        let Some(cursor) = snapshot.cursor else {
            return false;
        };
        let passed = if hand.is(Mutant::ChildFreesBehindCursor) {
            true
        } else if hand.is(Mutant::ChildLeavesBeforeCursor) {
            false
        } else {
            place < cursor
        };
        passed && at.birth > self.epoch_of(snapshot.parent)
    }
}
