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
//! by that what branches gave up behind ([`crate::dropped_extents`]).
//!
//! What the cursor has passed may be in use for something else: the tree is entered along the cursor only.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use holdfast_base::mutants::{self, Mutant};
use holdfast_base::{BlockRange, Lsn, TreeId};
use holdfast_format::item::{WalkItem, WalkPlace};
use holdfast_format::{Malformed, NodePointer};
use parking_lot::{MutexGuard, RwLockWriteGuard};

use super::deleter_cursor::{Walk, WalkStep};
use super::deleter_descent::find;
use super::deleters::Walks;
use super::going::SOME;
use super::list::Deletions;
use super::plan::Plan;
use crate::apply::{Halt, Slots};
use crate::room::slots_at_most;
use crate::space::alloc::Space;
use crate::space::slots::NodeSlots;
use crate::transaction::Changes;
use crate::tree::open::{Ancestry, Walked};
use crate::tree::{Forest, MissingSet, TreeNo};
use crate::{Inner, Result, StoreError};

/// Which deletion goes on.
pub(super) enum Next {
    Walk(Box<Walk>),
    /// Some were looked at that wait; another one may be able to.
    Others,
    Nothing,
}

/// What became of a step.
enum Stepped {
    Made,
    /// None was made; another deletion may be able to go on.
    Looked,
    Nothing,
}

impl Inner {
    /// Goes on with deletions, for at most so many steps, each of about one node. Returns whether more may be to be done: if all steps
    /// were made, the next call finds out. One that
    /// fails on a damaged snapshot is set aside, and others go on: [`Store::failed_deletions`](Inner::failed_deletions) has it. One for which the device
    /// does not read is there as well until it has come further: that is an error once no other can go on, and each call
    /// tries it again.
    pub fn work_off_deletions(&self, steps: usize) -> Result<bool> {
        let mut left = steps;
        let mut refused = None;
        self.lineage.lock().try_again();
        self.find_going()?;
        self.find_deletions(&mut refused)?;
        while left > 0 {
            match self.with_room(|| self.step_on(&mut refused))? {
                Stepped::Made => left = left.saturating_sub(1),
                Stepped::Looked => {}
                Stepped::Nothing => return refused.map_or(Ok(false), Err),
            }
        }
        Ok(true)
    }

    /// Finds all deletions, once.
    pub(super) fn find_deletions(&self, refused: &mut Option<StoreError>) -> Result<()> {
        if self.lineage.lock().are_known() {
            return Ok(());
        }
        let (mut walks, Deletions { places, wrong }) = self.lock_with_deletions()?;
        if walks.are_known() {
            return Ok(());
        }
        walks.are(&places);
        for (snapshot, source) in wrong {
            let what = format!("the deletion of snapshot {snapshot}");
            self.snapshot_fails(&mut walks, snapshot, StoreError::Item { what, source }, refused)?;
        }
        self.counters.deletions_left.set(walks.left());
        Ok(())
    }

    /// Makes the next step, if there is one.
    fn step_on(&self, refused: &mut Option<StoreError>) -> Result<Stepped> {
        let mut walks = self.lineage.lock();
        let walk = match self.next_walk(&mut walks, refused)? {
            Next::Walk(walk) => walk,
            Next::Others => {
                MutexGuard::unlock_fair(walks);
                return Ok(Stepped::Looked);
            }
            Next::Nothing => {
                let Some(branch) = walks.next_going() else { return Ok(Stepped::Nothing) };
                drop(walks);
                return self.step_on_going(branch, refused);
            }
        };
        self.check_running()?;
        let mut stepped = Stepped::Made;
        match self.step_of(&walk) {
            Ok(goes_on) => {
                walks.has_freed();
                if goes_on {
                    walks.came_further(walk.snapshot);
                } else {
                    let beside = walk.child.into_iter().chain([walk.above.snapshot]);
                    walks.ended(walk.snapshot, beside);
                    walks.snapshots.ended(walk.branch, walk.snapshot);
                    self.counters.deletions_left.set(walks.left());
                }
            }
            // It waits now, so the next look finds another one.
            Err(error) => {
                self.snapshot_fails(&mut walks, walk.snapshot, error, refused)?;
                stepped = Stepped::Looked;
            }
        }
        drop(walks);
        self.idle.stir();
        // What steps have changed must be written. The deleting thread waits for that here, before other writers have to.
        // A commit that fails and stops nothing is tried again by the next one, and is no answer for a deletion.
        match self.throttle() {
            Err(error) if self.stop.is_stopped() => return Err(error),
            Err(error) => tracing::debug!("deletions were not held back: {error}"),
            Ok(()) => {}
        }
        Ok(stepped)
    }

    /// The same of a branch that goes.
    fn step_on_going(&self, branch: u64, refused: &mut Option<StoreError>) -> Result<Stepped> {
        self.check_running()?;
        let done = self.step_of_going(branch);
        let mut walks = self.lineage.lock();
        let stepped = match done {
            Ok(()) => Stepped::Made,
            // Another call has ended it meanwhile.
            Err(_) if !walks.is_going(branch) => Stepped::Looked,
            Err(error) => {
                let what = match walks.goes_to(branch) {
                    0 => format!("the deletion of branch {branch}"),
                    to => format!("what makes the snapshots of {branch} those of {to}"),
                };
                self.set_aside(&mut walks, branch, &what, error, refused)?;
                Stepped::Looked
            }
        };
        self.counters.deletions_left.set(walks.left());
        Ok(stepped)
    }

    /// Makes what deletions have freed usable: the steps so far are durable when this returns. Without any nothing is written.
    pub fn commit_deletions(&self) -> Result<()> {
        // A step beside this one may be in the commit or not, and asks for another.
        if !self.lineage.lock().take_freed() {
            return Ok(());
        }
        let done = self.commit_steps();
        if done.is_err() {
            self.lineage.lock().has_freed();
        }
        done
    }

    /// Deletions have begun.
    pub(super) fn walks_begin(&self, walks: &mut Walks, snapshots: &[u64]) {
        walks.begin(snapshots);
        self.counters.deletions_left.set(walks.left());
    }

    /// A deletion has failed. If that says something of its snapshot, others go on without it; else it is the answer. What is
    /// damaged stays so: the next superblock says it. What a device does not read now it may read later: that is said to the
    /// caller alone, once none can go on.
    fn set_aside(
        &self,
        walks: &mut Walks,
        number: u64,
        what: &str,
        error: StoreError,
        refused: &mut Option<StoreError>,
    ) -> Result<()> {
        let is_damage = match error {
            StoreError::Node { .. } | StoreError::Item { .. } | StoreError::Lineage(_) => true,
            StoreError::Device(_) => false,
            _ => return Err(error),
        };
        if self.stop.is_stopped() {
            return Err(error);
        }
        let why = format!("{what} does not go on: {error}");
        if is_damage {
            tracing::error!("{why}; it is tried again when the volume is opened next");
            self.found_damage(&why);
            walks.set_aside(number, why);
            self.counters.deletions_failed.increment();
        } else {
            walks.is_refused(number, why);
            refused.get_or_insert(error);
        }
        Ok(())
    }

    fn snapshot_fails(
        &self,
        walks: &mut Walks,
        snapshot: u64,
        error: StoreError,
        refused: &mut Option<StoreError>,
    ) -> Result<()> {
        self.set_aside(
            walks,
            snapshot,
            &format!("the deletion of snapshot {snapshot}"),
            error,
            refused,
        )
    }

    /// Deletions that have failed, and why: number of the snapshot, and words. One that has met damage is tried again when the
    /// volume is opened next, one that the device has refused with the next call of [`Store::work_off_deletions`](Inner::work_off_deletions).
    pub fn failed_deletions(&self) -> Vec<(u64, String)> {
        let walks = self.lineage.lock();
        walks.failed().map(|(snapshot, why)| (snapshot, why.to_owned())).collect()
    }

    /// The walk that has begun; else the first that can: not more than one tree has grown out of its snapshot, and no caller
    /// looks at it.
    pub(super) fn next_walk(
        &self,
        walks: &mut Walks,
        refused: &mut Option<StoreError>,
    ) -> Result<Next> {
        for snapshot in self.pins.lock().let_go() {
            walks.may_go_on(snapshot);
        }
        for _ in 0..SOME {
            let Some(snapshot) = walks.next() else { return Ok(Next::Nothing) };
            if self.pins.lock().keeps_waiting(snapshot) {
                walks.waits(snapshot);
                continue;
            }
            match self.walk_of(snapshot) {
                Ok(Some(walk)) => {
                    walks.goes_on(snapshot);
                    return Ok(Next::Walk(Box::new(walk)));
                }
                Ok(None) => walks.waits(snapshot),
                Err(error) => self.snapshot_fails(walks, snapshot, error, refused)?,
            }
        }
        Ok(Next::Others)
    }

    /// The deletion of a snapshot, if it can go on.
    fn walk_of(&self, snapshot: u64) -> Result<Option<Walk>> {
        self.counters.deletions_looked_at.increment();
        let here = match self.get(TreeNo::SPACE, &WalkItem::key(snapshot))? {
            Some(_) => self.ancestry_of(snapshot)?,
            None => return Ok(None),
        };
        let Some(Walked { cursor, .. }) = here.walk else { return Ok(None) };
        let children = self.look_at(|plan| plan.children(snapshot, 2))?.0;
        if children.len() > 1 {
            return Ok(None);
        }
        let child = children.first().copied();
        let damage = |why: String| StoreError::Item {
            what: format!("the deletion of snapshot {snapshot}"),
            source: Malformed::new(WalkItem::TITLE, why),
        };
        let item = self.tree_item(snapshot)?;
        let (branch, above) = (item.branch, self.ancestry_of(item.parent)?);
        // Nothing that begins a deletion leaves either; so the item of the deletion may be what is wrong.
        if !item.name.is_empty() || !self.look_at(|plan| plan.holds(snapshot))?.0.is_empty() {
            return Err(damage("it has a name or holds".into()));
        }
        // One that has failed on its way: what both have passed would not be known.
        for beside in child.into_iter().chain([above.snapshot]) {
            if !self.has_begun(beside)? {
                continue;
            }
            if cursor == WalkPlace::start() {
                return Ok(None);
            }
            return Err(damage(format!("it stands beside that of {beside}, and both have begun")));
        }
        let of = self.open_tree(snapshot)?;
        let beside = child.map(|child| self.open_tree(child)).transpose()?;
        let (no, beside_no) = (of.no, beside.as_ref().map(|beside| beside.no));
        Ok(Some(Walk {
            snapshot,
            branch,
            of: no,
            child,
            beside: beside_no,
            _open: (of, beside),
            above,
            here,
            cursor,
        }))
    }

    /// Whether the deletion of a snapshot has passed something.
    fn has_begun(&self, snapshot: u64) -> Result<bool> {
        let item = self.get(TreeNo::SPACE, &WalkItem::key(snapshot))?;
        // One that cannot be read may have.
        Ok(item.is_some_and(|item| WalkItem::decode(&item) != Ok(WalkPlace::start())))
    }

    /// Returns whether more is to be done of this deletion.
    fn step_of(&self, walk: &Walk) -> Result<bool> {
        let mut loading = self.loading();
        loop {
            let done = {
                let mut forest = self.forest.write();
                let mut space = self.space.lock();
                let step = self.step("a step of a deletion");
                let done = self.try_step(walk, &mut forest, &mut space);
                step.end();
                drop(space);
                if done.is_ok() {
                    // What was read of both trees would stay, with no other call for memory.
                    forest.cache.evict();
                    self.throttle.cache_is(&forest.cache);
                }
                // The next step would take the lock again before a waiter has woken up.
                RwLockWriteGuard::unlock_fair(forest);
                done
            };
            match done {
                Ok(goes_on) => return Ok(goes_on),
                Err(Halt::Failed(error)) => return Err(error),
                Err(Halt::Missing(missing)) => loading.load(missing)?,
            }
        }
    }

    /// One step: everything is found first; from then on nothing fails. Returns whether more is to be done.
    fn try_step(
        &self,
        walk: &Walk,
        forest: &mut Forest,
        space: &mut Space,
    ) -> std::result::Result<bool, Halt> {
        self.check_damage(space)?;
        let found = find(walk, forest)?;
        let changes = self.changes_of(walk, forest, found.cursor)?;
        forest.prepare_all(TreeNo::SPACE, &changes)?;
        let nodes = { found.nodes.iter() }
            .flat_map(|(of, level)| space.places_of_node(of.block, forest.stored(walk.of, *level)));
        space.expect_bitmaps(nodes.chain(found.data.iter().copied())).map_err(MissingSet::from)?;
        let slots = slots_at_most(forest, TreeNo::SPACE, changes.len());
        space.expect_slots(slots).map_err(MissingSet::from)?;
        self.check_found(&found, space)?;
        if !self.has_slots(forest, space, TreeNo::SPACE, &changes, NodeSlots::none()) {
            return Err(StoreError::NoSpace.into());
        }
        let slots = &mut Slots { space, promised: &mut NodeSlots::none() };
        forest.carry_out_all(TreeNo::SPACE, &changes, slots);
        for range in found.data.iter().filter(|_| !mutants::is(Mutant::WalkForgetsData)) {
            space.free_data(*range);
            self.log_resident.forget(*range);
        }
        for (node, level) in &found.nodes {
            forest.cache.remove(node.block);
            space.free_node(node.block, forest.stored(walk.of, *level));
        }
        self.counters.snapshot_blocks_freed.add(found.data.iter().map(|of| of.count).sum());
        match found.cursor {
            Some(cursor) => {
                let walked = Walked { above: walk.above.parent, cursor };
                if let Some(beside) = walk.beside {
                    let ancestry = Ancestry { walk: Some(walked), ..walk.here };
                    forest.trees.follow(beside, &ancestry);
                }
            }
            None => {
                if let Some(beside) = walk.beside {
                    forest.trees.outlives(beside, walk.snapshot, walk.above);
                }
                forest.trees.forget(walk.snapshot);
            }
        }
        Ok(found.cursor.is_some())
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
    fn check_found(&self, found: &WalkStep, space: &Space) -> std::result::Result<(), Halt> {
        let geometry = self.geometry();
        let stored = |level: u8| geometry.stored(TreeId::Files, level);
        let is_node = |(of, level): &&(NodePointer, u8)| !space.is_node(of.block, stored(*level));
        let wrong = found.nodes.iter().find(is_node).map(|(of, _)| self.node_range(*of));
        let is_used = |range: &&BlockRange| !space.is_used(**range);
        let wrong = wrong.or_else(|| found.data.iter().find(is_used).copied());
        let places = { found.nodes.iter() }
            .flat_map(|(of, level)| geometry.places_of_node(of.block, stored(*level)));
        let nodes: Vec<BlockRange> = places.collect();
        let mut all = [&nodes[..], &found.data].concat();
        all.sort_unstable();
        let twice = all.windows(2).find(|pair| pair[0].end() > Some(pair[1].start));
        let wrong = wrong.or_else(|| twice.map(|pair| pair[1]));
        // They are known not to overlap.
        let wrong =
            wrong.or_else(|| nodes.first().copied().filter(|_| !space.can_be_nodes(&nodes)));
        let is_data = wrong.is_some() || found.data.is_empty() || space.can_be_data(&found.data);
        match wrong.or_else(|| (!is_data).then(|| found.data[0])) {
            None => Ok(()),
            Some(range) => Err(Halt::Failed(StoreError::Item {
                what: format!("the blocks {range:?} of a snapshot"),
                source: Malformed::new("tree", "they are not in use as it says"),
            })),
        }
    }
}
