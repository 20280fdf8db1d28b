//! Room for nodes: whether there is enough for a change before it begins, and what makes some (P8).

use holdfast_base::TreeId;

use crate::discard::Wanting;
use crate::space::alloc::Space;
use crate::space::promise::Floor;
use crate::space::slots::{NodeSlots, NodesNeeded};
use crate::transaction::Changes;
use crate::tree::{Forest, TreeNo};
use crate::{Inner, Result, StoreError};

/// Checkpoints that a change waits for at most: a second one frees what the first has replaced.
const CHECKPOINTS: u32 = 2;

/// How often a change has found too little room, until it is over: no discard takes what was made for it meanwhile.
#[derive(Default)]
pub(crate) struct Tries<'a> {
    checkpoints: u32,
    wanting: Option<Wanting<'a>>,
}

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
        own: NodeSlots,
    ) -> bool {
        let has_room = |nodes| self.has_room(forest, space, (tree, nodes), own);
        has_room(most(forest, tree, changes.len() as u64))
            || has_room(forest.nodes_needed(tree, changes))
    }

    /// Whether so many nodes of a tree find room beside what is kept, of which `own` is for them.
    fn has_room(
        &self,
        forest: &Forest,
        space: &Space,
        (tree, nodes): (TreeNo, NodesNeeded),
        own: NodeSlots,
    ) -> bool {
        let needed = forest.slots_of(tree, nodes);
        let kept = self.kept(forest, space) + self.next_root(forest, tree);
        let room = space.room();
        let pairs = space.promises.pairs_left(room, needed.once > 0);
        room.holds((kept + needed).without(own), pairs)
    }

    /// As [`Inner::has_slots`], for a transaction of so many changes whose keys are not known yet: false if room is not
    /// certain.
    pub(crate) fn has_slots_for(&self, tree: TreeNo, changes: u32, own: NodeSlots) -> bool {
        let forest = self.forest.read();
        let space = self.space.lock();
        self.has_room(&forest, &space, (tree, most(&forest, tree, changes.into())), own)
    }

    /// What a change leaves.
    fn kept(&self, forest: &Forest, space: &Space) -> NodeSlots {
        // A recovery copies every node that changed since the last commit once more, beside what its own commit carries.
        let again = forest.cache.uncommitted_slots();
        space.promises.kept_now(Floor::HalfCheckpoint) + again
    }

    /// What a change of a tree adds to that.
    fn next_root(&self, forest: &Forest, tree: TreeNo) -> NodeSlots {
        let nodes = if forest.trees.will_move(tree) { of_root(forest) } else { 0 };
        NodeSlots::of(self.geometry().stored(TreeId::Space, 0), nodes)
    }

    /// Tries `change` again while it finds too little room and some can be made. `change` has released its locks by then, so no
    /// other call waits for the room that is made.
    pub(crate) fn with_room<R>(&self, mut change: impl FnMut() -> Result<R>) -> Result<R> {
        let mut tries = Tries::default();
        loop {
            match change() {
                Err(StoreError::NoSpace) if self.make_room(&mut tries)? => {}
                done => return done,
            }
        }
    }

    /// A change has found too little room, and has changed nothing: makes some, and says whether to try again. No lock of
    /// forest and space is held.
    pub(crate) fn make_room<'a>(&'a self, tries: &mut Tries<'a>) -> Result<bool> {
        tries.wanting.get_or_insert_with(|| Wanting::begin(self));
        // There may be more than the records of groups say.
        if self.look_closer(|space, most| space.unsure(most)) {
            return Ok(true);
        }
        // All that is free may be what the host of a sparse image has not given yet, and no change can ask it.
        if self.take_from_host(|_| 0, Floor::HalfCheckpoint) {
            return Ok(true);
        }
        if tries.checkpoints >= CHECKPOINTS {
            self.counters.no_space.increment();
            return Ok(false);
        }
        tries.checkpoints += 1;
        // If nothing waits for a checkpoint, another caller may have made it meanwhile.
        if self.space.lock().has_pending_or_roots() {
            self.checkpoint()?;
        }
        Ok(true)
    }
}

/// Slots that so many changes of a tree take, at most.
pub(crate) fn slots_at_most(forest: &Forest, tree: TreeNo, changes: usize) -> NodeSlots {
    forest.slots_of(tree, most(forest, tree, changes as u64))
}

/// Those of a files tree that so many changes make out of nothing.
pub(crate) fn slots_of_new_tree(forest: &Forest, changes: usize) -> NodeSlots {
    forest.slots_of(TreeNo::MAIN, most_of(1, changes as u64))
}

/// Nodes that so many changes of a tree take, at most.
fn most(forest: &Forest, tree: TreeNo, changes: u64) -> NodesNeeded {
    most_of(u64::from(forest.root(tree).level) + 1, changes)
}

fn most_of(levels: u64, changes: u64) -> NodesNeeded {
    let all = changes * (3 * levels + 2);
    NodesNeeded { leaves: changes * 4, above: changes * (3 * levels - 1), all }
}

/// Slots that a commit may take in the space tree for one root: its leaf and the way there. The item is there and keeps its
/// length, so no node is split.
fn of_root(forest: &Forest) -> u64 {
    u64::from(forest.root(TreeNo::SPACE).level) + 1
}

/// Branches have changed, or a commit has carried their roots: what the next one needs for them is kept from all others. In one
/// epoch a node is copied once, so it is never more than all nodes.
pub(crate) fn keep_roots(forest: &Forest, space: &mut Space) {
    let roots = (forest.trees.moved_count() * of_root(forest)).min(space.nodes());
    space.promises.keep_roots(roots);
}

#[cfg(test)]
mod tests {
    use crate::StoreError;
    use crate::lineage::lies_tests::made;

    /// What the host gives to a change, or a checkpoint frees for it, goes to no discard before it has been tried again.
    #[test]
    fn no_discard_begins_while_a_change_has_found_no_room() {
        let (_, store) = made();
        let is_wanted = || store.inner.space.lock().is_wanted();
        let mut tries = 0;
        let done = store.inner.with_room(|| {
            tries += 1;
            assert_eq!(is_wanted(), tries > 1, "try {tries}");
            if tries < 3 { Err(StoreError::NoSpace) } else { Ok(()) }
        });
        done.unwrap();
        assert!(tries == 3 && !is_wanted());
    }
}
