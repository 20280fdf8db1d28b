//! Room for nodes: whether there is enough for a change before it begins, and what makes some (P8).

use crate::space::alloc::Space;
use crate::transaction::Changes;
use crate::tree::{Forest, TreeNo};
use crate::{Inner, Result};

/// Checkpoints that a change waits for at most: a second one frees what the first has replaced.
const CHECKPOINTS: u32 = 2;

/// How often a change has found too little room.
#[derive(Debug, Default)]
pub(crate) struct Tries(u32);

impl Inner {
    /// Whether changes find locations for all their nodes without those that were promised to others.
    /// The estimates of [`Inner::reserve`] know no keys and may be too small; here is the last
    /// moment at which nothing has changed. Half of the reserve watermark of commits stays whole: it
    /// is enough for two copies of the space tree.
    pub(crate) fn has_slots(
        &self,
        forest: &Forest,
        space: &Space,
        tree: TreeNo,
        changes: &Changes,
        own: u64,
    ) -> bool {
        let left = space.room().slots + own;
        let kept = kept(forest, space) + next_root(forest, tree);
        let most = slots_at_most(forest, tree, changes.len());
        left >= kept + most || left >= kept + forest.slots_needed(tree, changes)
    }

    /// As [`Inner::has_slots`], for a transaction of so many changes whose keys are not known yet: false if room is not
    /// certain.
    pub(crate) fn has_slots_for(&self, tree: TreeNo, changes: u32, own: u64) -> bool {
        let forest = self.forest.read();
        let space = self.space.lock();
        let kept = kept(&forest, &space) + next_root(&forest, tree);
        space.room().slots + own >= kept + slots_at_most(&forest, tree, changes as usize)
    }

    /// A change has found too little room, and has changed nothing: makes some, and says whether to try again. No lock of
    /// forest and space is held.
    pub(crate) fn make_room(&self, tries: &mut Tries) -> Result<bool> {
        // There may be more than the records of groups say.
        if self.look_closer(|space, most| space.unsure(most)) {
            return Ok(true);
        }
        // All that is free may be what the host of a sparse image has not given yet, and no change can ask it.
        if self.take_from_host(|_| 0) {
            return Ok(true);
        }
        if tries.0 >= CHECKPOINTS {
            self.counters.no_space.increment();
            return Ok(false);
        }
        tries.0 += 1;
        // If nothing waits for a checkpoint, another caller may have made it meanwhile.
        if self.space.lock().has_pending_or_roots() {
            self.checkpoint()?;
        }
        Ok(true)
    }
}

/// Slots that so many changes take at most.
pub(crate) fn slots_at_most(forest: &Forest, tree: TreeNo, changes: usize) -> u64 {
    let levels = u64::from(forest.root(tree).level) + 1;
    changes as u64 * (3 * levels + 2)
}

/// What a change leaves.
fn kept(forest: &Forest, space: &Space) -> u64 {
    // A recovery copies every node that changed since the last commit once more, beside what its own commit carries.
    let again = forest.cache.uncommitted_nodes() as u64;
    space.promises.kept_now(space.promises.floors.checkpoint.div_ceil(2)) + again
}

/// Slots that a commit may take in the space tree for one root: its leaf and the way there. The item is there and keeps its
/// length, so no node is split.
fn of_root(forest: &Forest) -> u64 {
    u64::from(forest.root(TreeNo::SPACE).level) + 1
}

/// What a change of a tree adds to that.
fn next_root(forest: &Forest, tree: TreeNo) -> u64 {
    if forest.trees.will_move(tree) { of_root(forest) } else { 0 }
}

/// Branches have changed, or a commit has carried their roots: what the next one needs for them is kept from everybody else. In one
/// epoch a node is copied once, so it is never more than all nodes.
pub(crate) fn keep_roots(forest: &Forest, space: &mut Space) {
    let roots = forest.trees.moved_count() * of_root(forest);
    space.promises.roots = roots.min(space.nodes());
}
