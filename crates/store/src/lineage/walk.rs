//! The deletion of a snapshot: a walk through it, and through what has grown out of it, beside each other (S4).
//!
//! ```text
//!  snapshot:   root > ... > the first node that the cursor has not passed
//!              older than the parent, or the child's too: passed as a whole
//!              a leaf: its data is freed that the child has not, then the leaf, then each node that ends with it
//! ```
//!
//! One walk goes at a time, and one step of it under one hold of the lock: what it frees, and the cursor, change together, and are
//! durable with the next commit. The log says nothing of it: a replay finds the cursor of the commit that it begins with, and judges
//! by that what branches gave up behind ([`crate::given_up`]).
//!
//! What the cursor has passed may be in use for something else: the tree is entered along the cursor only.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use holdfast_base::mutants::{self, Mutant};
use holdfast_base::{BlockRange, Lsn};
use holdfast_format::item::{WalkItem, WalkPlace};
use holdfast_format::{Malformed, NodePointer};

use super::plan::Plan;
use super::walk_down::find;
use super::way::{Found, Walk};
use crate::apply::{Halt, Slots};
use crate::load::Failed;
use crate::space::alloc::Space;
use crate::transaction::Changes;
use crate::tree::open::{Ancestry, Walked};
use crate::tree::{Forest, TreeNo};
use crate::{Inner, Result, StoreError};

impl Inner {
    /// Goes on with a deletion, for at most so many steps. Returns whether more is to be done.
    pub(crate) fn work_off_deletions(&self, steps: usize) -> Result<bool> {
        for _ in 0..steps {
            self.check_running()?;
            let _one = self.lineage.lock();
            let Some(walk) = self.next_walk()? else { return Ok(false) };
            // Nothing has reserved room for a step, and of a sparse image that was just opened nothing is there.
            while self.lacks_slots() && self.take_from_host(|_| 0) {}
            self.step_of(walk)?;
            self.idle.stir();
        }
        let _one = self.lineage.lock();
        Ok(self.next_walk()?.is_some())
    }

    /// Whether fewer nodes could be made than a commit may need.
    fn lacks_slots(&self) -> bool {
        let space = self.space.lock();
        space.room().slots < space.promises.floors.checkpoint
    }

    /// The walk that has begun; else the first that can: not more than one tree has grown out of its snapshot.
    fn next_walk(&self) -> Result<Option<Walk>> {
        let mut walks = self.walks()?;
        self.counters.deletions_left.set(walks.len() as u64);
        walks.sort_by_key(|(_, cursor)| *cursor == WalkPlace::start());
        for (snapshot, cursor) in walks {
            let children = self.look_at(|plan| plan.children(snapshot, 2))?.0;
            if children.len() > 1 {
                continue;
            }
            let child = children.first().copied();
            let of = self.open_tree(snapshot)?;
            let beside = child.map(|child| self.open_tree(child)).transpose()?;
            let above = self.ancestry_of(self.tree_item(snapshot)?.parent)?;
            let here = self.ancestry_of(snapshot)?;
            return Ok(Some(Walk { snapshot, of, child, beside, above, here, cursor }));
        }
        Ok(None)
    }

    fn step_of(&self, walk: Walk) -> Result<()> {
        let mut failed = Failed::default();
        loop {
            let done = {
                let mut forest = self.forest.write();
                let mut space = self.space.lock();
                let step = self.step("a step of a deletion");
                let done = self.try_step(&walk, &mut forest, &mut space);
                step.end();
                done
            };
            match done {
                Ok(()) => return Ok(()),
                Err(Halt::Failed(error)) => return Err(error),
                Err(Halt::Missing(missing)) => self.load(missing, &mut failed)?,
            }
        }
    }

    /// One step: everything is found first; from then on nothing fails.
    fn try_step(
        &self,
        walk: &Walk,
        forest: &mut Forest,
        space: &mut Space,
    ) -> std::result::Result<(), Halt> {
        self.check_damage(space)?;
        let found = find(walk, forest)?;
        let changes = self.changes_of(walk, forest, found.cursor)?;
        forest.prepare_all(TreeNo::SPACE, &changes)?;
        self.check_found(&found, space)?;
        let slots = &mut Slots { space, promised: &mut 0 };
        forest.carry_out_all(TreeNo::SPACE, &changes, slots);
        for range in found.data.iter().filter(|_| !mutants::is(Mutant::WalkForgetsData)) {
            space.free(*range, false);
            self.log_resident.forget(*range);
        }
        for node in &found.nodes {
            forest.cache.remove(node.block);
            space.free(self.node_range(*node), true);
        }
        self.counters.snapshot_blocks_freed.add(found.data.iter().map(|of| of.count).sum());
        match found.cursor {
            Some(cursor) => {
                let walked = Walked { above: walk.above.parent, cursor };
                forest.trees.follow(&Ancestry { walk: Some(walked), ..walk.here });
            }
            None => {
                forest.trees.outlives(walk.snapshot, walk.above);
                forest.trees.forget(walk.snapshot);
            }
        }
        Ok(())
    }

    /// Items of the lineage behind a step.
    fn changes_of(
        &self,
        walk: &Walk,
        forest: &Forest,
        cursor: Option<WalkPlace>,
    ) -> std::result::Result<Changes, Halt> {
        let mut changes = Changes::default();
        match cursor {
            Some(cursor) => {
                changes.put(WalkItem::key(walk.snapshot), &WalkItem::at(&cursor).bytes());
                Ok(changes)
            }
            None => {
                let mut plan = Plan::new(forest, Lsn(0), 0);
                plan.end_walk(walk.snapshot, walk.child)?;
                Ok(plan.done(walk.snapshot).changes)
            }
        }
    }

    /// Fails if a step would free what is not in use as that: the tree came from a damaged disk.
    fn check_found(&self, found: &Found, space: &Space) -> std::result::Result<(), Halt> {
        let node = |pointer: &NodePointer| self.node_range(*pointer);
        let is_node = |pointer: &NodePointer| space.is_node(node(pointer));
        let wrong = found.nodes.iter().find(|pointer| !is_node(pointer)).map(node);
        let is_used = |range: &&BlockRange| !space.is_used(**range);
        let wrong = wrong.or_else(|| found.data.iter().find(is_used).copied());
        let is_data = found.data.is_empty() || space.can_be_data(&found.data);
        match wrong.or_else(|| (!is_data).then(|| found.data[0])) {
            None => Ok(()),
            Some(range) => Err(Halt::Failed(StoreError::Item {
                what: format!("the blocks {range:?} of a snapshot"),
                source: Malformed::new("tree", "they are not in use as it says"),
            })),
        }
    }
}
