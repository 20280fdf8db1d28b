//! One transaction becomes visible: prepare, change, publish and free, all under one hold of the lock.
//!
//! After the first change nothing can fail: nodes are in memory (prepared),
//! blocks are judged, and locations for new nodes were reserved.

use std::sync::atomic::Ordering;

use holdfast_base::mutants::{self, Mutant};
use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, BlockRange, Epoch, Lsn, applied};
use holdfast_format::limits::value_max;
use holdfast_format::{Malformed, Stored};
use parking_lot::{MutexGuard, RwLockWriteGuard};

use crate::discard::Wanting;
use crate::dropped_extents::{Counts, DroppedExtents};
use crate::error::LineageError;
use crate::room::{Tries, keep_roots, slots_at_most};
use crate::space::alloc::Space;
use crate::space::promise::Wanted;
use crate::space::slots::NodeSlots;
use crate::space::{Allocated, Filling, Reservation};
use crate::step::{self, Step};
use crate::transaction::{Change, Taken, TakenContent};
use crate::tree::{Forest, Missing, MissingSet, NodeAllocator, TreeNo};
use crate::{Inner, Need, Result, StoreError, Transaction};

/// A host that has no more room than this is not asked before the blocks that a file has reserved are written.
const HOST_ROOM_MIN: u64 = 64 << 20;

/// Allocates the nodes that one change makes, out of the promise of its reservation.
pub(crate) struct Slots<'a> {
    pub(crate) space: &'a mut Space,
    pub(crate) promised: &'a mut NodeSlots,
}

impl NodeAllocator for Slots<'_> {
    fn take(&mut self, stored: Stored) -> BlockNo {
        let taken = self.promised.take_one(stored);
        self.space.promises.forget(taken, 0);
        self.space.take_node(stored)
    }

    fn give_back(&mut self, block: BlockNo, stored: Stored) {
        if self.space.is_node(block, stored) {
            self.space.free_node(block, stored);
        } else {
            self.space.damage = Some(format!("the node at block {block} is not marked as one"));
        }
    }

    fn damaged(&mut self, why: &str) {
        self.space.damage = Some(why.into());
    }
}

/// Why work on both trees did not come to its end; until here it has changed nothing that counts.
#[derive(Debug)]
pub(crate) enum Halt {
    /// Nodes must be read first; then the work is tried again.
    Missing(MissingSet),
    Failed(StoreError),
}

impl From<Missing> for Halt {
    fn from(missing: Missing) -> Halt {
        Halt::Missing(missing.into())
    }
}

impl From<MissingSet> for Halt {
    fn from(missing: MissingSet) -> Halt {
        Halt::Missing(missing)
    }
}

impl From<StoreError> for Halt {
    fn from(error: StoreError) -> Halt {
        Halt::Failed(error)
    }
}

impl Inner {
    /// Does `work` while writers and readers wait. Nodes that it misses are read without the locks (R4),
    /// and it begins anew.
    pub(crate) fn stop_changers<R>(
        &self,
        mut work: impl FnMut(&mut Forest, &mut Space) -> std::result::Result<R, Halt>,
    ) -> Result<R> {
        let mut loading = self.loading();
        loop {
            let done = {
                let mut forest = self.forest.write();
                let mut space = self.space.lock();
                let step = self.step("a freeze");
                let done = work(&mut forest, &mut space);
                step.end();
                done
            };
            match done {
                Ok(done) => return Ok(done),
                Err(Halt::Missing(missing)) => loading.load(missing)?,
                Err(Halt::Failed(error)) => return Err(error),
            }
        }
    }

    /// Begins a step of the caller, on which others build: the store stops if the step does not end.
    pub fn step(&self, name: &'static str) -> Step<'_> {
        Step::begin(&self.stop, name)
    }

    /// Fails when nothing may be written any more.
    pub(crate) fn check_running(&self) -> Result<()> {
        if self.read_only {
            return Err(StoreError::ReadOnly);
        }
        match self.stop.reason() {
            Some(reason) => Err(StoreError::Stopped(reason.to_owned())),
            None => Ok(()),
        }
    }

    pub(crate) fn reserve(&self, tree: TreeNo, need: Need) -> Result<Reservation> {
        self.check_running()?;
        self.expect_rings()?;
        if !matches!(need, Need::Writeback { .. }) {
            // A writeback carries out what was accepted, and slowed down, before; an fsync may wait for it.
            self.throttle()?;
        }
        // Freed data becomes usable with a commit, locations of nodes with a checkpoint; a second one
        // frees what the first replaced.
        for attempt in 0..3 {
            if let Some(reservation) = self.promise(tree, need, true)? {
                return Ok(reservation);
            }
            if !self.space.lock().has_pending_or_roots() {
                break;
            }
            match attempt {
                0 => self.commit_upto(Lsn(self.lsn.load(Ordering::Acquire)))?,
                _ => self.checkpoint()?,
            }
        }
        self.promise(tree, need, false)?.ok_or_else(|| {
            self.counters.no_space.increment();
            StoreError::NoSpace
        })
    }

    /// As [`Inner::reserve`], out of what is free now, or what a host gives that has much.
    pub(crate) fn reserve_now(&self, tree: TreeNo, need: Need) -> Result<Option<Reservation>> {
        self.check_running()?;
        self.expect_rings()?;
        if !matches!(need, Need::Writeback { .. }) {
            self.throttle()?;
        }
        if let Some(reservation) = self.promise(tree, need, false)? {
            return Ok(Some(reservation));
        }
        let wanted = HOST_ROOM_MIN.saturating_add(need.blocks() * BLOCK_BYTES);
        let host_has_room = self.device.room().is_some_and(|room| room > wanted);
        if host_has_room { self.promise(tree, need, true) } else { Ok(None) }
    }

    /// Promises what `need` needs, if it is free and the branch may refer to so much; with `ask_host` also if the host of a
    /// sparse image gives it.
    fn promise(&self, tree: TreeNo, need: Need, ask_host: bool) -> Result<Option<Reservation>> {
        let (geometry, floor) = (self.geometry(), need.floor());
        let mut wanting = None;
        loop {
            let forest = self.forest.read();
            let of = *forest.trees.get(tree);
            // What is promised becomes what the tree refers to under both locks: nothing is missed in between.
            let still = (of.limit != 0).then_some(forest);
            let levels = u64::from(of.root.level) + 1;
            let wanted = |space: &Space| Wanted {
                slots: NodeSlots::of_tree(&geometry, tree.id(), need.nodes(levels, space.nodes())),
                blocks: need.blocks(),
                growth: need.growth().unwrap_or(0),
                delayed: need.delayed(),
            };
            let promised = Reservation::take(&self.space, tree.number(), |space| {
                let promised = space.promises.growth_of(tree.number());
                if need.growth().is_some_and(|growth| of.exceeds_limit(promised, growth)) {
                    return Err(StoreError::Limit);
                }
                space.promises.wanted_by(levels);
                let wanted = wanted(space);
                Ok(space.promise(wanted, floor).then_some(wanted))
            })?;
            drop(still);
            if promised.is_none()
                && self.look_closer(|space, most| space.unsure_for(wanted(space), floor, most))
            {
                continue;
            }
            let lacking = |space: &Space| space.lacking_bytes(wanted(space), floor);
            if promised.is_some() || !ask_host {
                return Ok(promised);
            }
            // Hold off discards until this reservation has its space.
            wanting.get_or_insert_with(|| Wanting::begin(self));
            if !self.take_from_host(lacking, floor) {
                return Ok(promised);
            }
        }
    }

    /// Fails if the transaction would free blocks that are not in use: its extents came from a damaged disk.
    fn check_freed(&self, transaction: &Transaction, space: &Space) -> Result<()> {
        if transaction.dropped.is_empty() {
            return Ok(());
        }
        let damage = |range: BlockRange, why: &str| StoreError::Item {
            what: format!("the extent {range:?}"),
            source: Malformed::new("extent", why),
        };
        let mut freed: Vec<_> = transaction.dropped.iter().map(|of| of.blocks).collect();
        freed.sort_unstable();
        for range in &freed {
            if !space.is_used(*range) {
                return Err(damage(*range, "its blocks are not in use"));
            }
        }
        match freed.windows(2).find(|pair| pair[0].end() > Some(pair[1].start)) {
            Some(pair) => Err(damage(pair[1], "its blocks belong to another extent as well")),
            // Else the record of a group would count more blocks of nodes than blocks.
            None if !space.can_be_data(&freed) => Err(damage(
                freed[0],
                "its blocks, or those beside it, are counted as blocks of nodes",
            )),
            None => Ok(()),
        }
    }

    /// Stops the volume when two owners of one block were met: an image that fsck must see first.
    pub(crate) fn check_damage(&self, space: &Space) -> Result<()> {
        if let Some(damage) = &space.damage {
            step::stop(&self.stop, format!("{damage}; run fsck"));
        }
        self.check_running()
    }

    pub(crate) fn apply(
        &self,
        tree: TreeNo,
        transaction: Transaction,
        reservation: &mut Reservation,
    ) -> Result<Lsn> {
        self.apply_with(tree, transaction, reservation, Some(Tries::default()))
    }

    /// As [`Inner::apply`], but makes no room: the caller holds what others would wait for.
    pub(crate) fn apply_now(
        &self,
        tree: TreeNo,
        transaction: Transaction,
        reservation: &mut Reservation,
    ) -> Result<Lsn> {
        self.apply_with(tree, transaction, reservation, None)
    }

    fn apply_with<'a>(
        &'a self,
        tree: TreeNo,
        transaction: Transaction,
        reservation: &mut Reservation,
        mut tries: Option<Tries<'a>>,
    ) -> Result<Lsn> {
        self.check_running()?;
        let longest = value_max(self.geometry().node_size);
        for Change { key, value } in transaction.changes.iter() {
            let len = value.map_or(0, <[u8]>::len);
            assert!(len <= longest, "{key:?}: {len} bytes");
        }
        let mut loading = self.loading_some();
        let mut loaded = false;
        loop {
            let mut forest = self.forest.write();
            if let Err(missing) = forest.prepare_all(tree, &transaction.changes) {
                drop(forest);
                loaded = true;
                loading.load(missing)?;
                continue;
            }
            let of = forest.trees.get(tree);
            if of.is_gone {
                let gone = LineageError::Gone(format!("number {}", of.number));
                transaction.placed.into_iter().for_each(|placed| reservation.reclaim(placed));
                return Err(gone.into());
            }
            let space = self.space.lock();
            if let Err(missing) = bitmaps_for(&forest, &space, tree, &transaction) {
                drop(space);
                drop(forest);
                loading.load(missing)?;
                continue;
            }
            self.check_freed(&transaction, &space)?;
            let of = forest.trees.get(tree);
            if transaction.unwritten.iter().any(|(_, birth)| !of.owns_for_good(*birth)) {
                drop(space);
                drop(forest);
                transaction.placed.into_iter().for_each(|placed| reservation.reclaim(placed));
                return Err(StoreError::Shared);
            }
            self.check_damage(&space)?;
            if self.has_slots(&forest, &space, tree, &transaction.changes, reservation.slots) {
                let counters = &self.counters;
                if loaded { &counters.node_misses } else { &counters.node_hits }.increment();
                return self.carry_out(tree, forest, space, transaction, reservation);
            }
            drop(space);
            drop(forest);
            let makes_room = tries.as_mut().map_or(Ok(false), |tries| self.make_room(tries));
            if !makes_room? {
                // Otherwise a retry with less might find that others have them.
                transaction.placed.into_iter().for_each(|placed| reservation.reclaim(placed));
                return Err(StoreError::NoSpace);
            }
        }
    }

    /// Makes a transaction visible for which everything is there, and pending for the log. Nothing fails.
    fn carry_out(
        &self,
        tree: TreeNo,
        mut forest: RwLockWriteGuard<'_, Forest>,
        mut space: MutexGuard<'_, Space>,
        mut transaction: Transaction,
        reservation: &mut Reservation,
    ) -> Result<Lsn> {
        // Half of it must never become durable. Begun after the locks, so that no caller sees half of it before the
        // stop.
        let step = self.step("a change");
        // Under the lock, in which no epoch ends: what a snapshot of an epoch reaches is not younger than that.
        transaction.changes.be_born(forest.epoch);
        self.show_logged_data(&transaction.taken);
        let slots = &mut Slots { space: &mut space, promised: &mut reservation.slots };
        forest.carry_out_all(tree, &transaction.changes, slots);
        keep_roots(&forest, &mut space);
        let dropped_extents = DroppedExtents::of(forest.trees.get(tree), &transaction.dropped);
        self.change_blocks(&mut space, &dropped_extents, &transaction.unwritten);
        // First all of them: one that is dropped takes the lock of the space.
        let published: Vec<_> = transaction.placed.into_iter().map(Allocated::published).collect();
        for (range, promised_to, growth) in published {
            space.publish(range);
            space.promises.grown(promised_to, growth);
        }
        transaction.filled.into_iter().for_each(Filling::published);
        space.unflushed.add(transaction.taken.iter().filter_map(Taken::data));
        let counts = count_inodes(&mut forest, &mut space, tree, transaction.inodes_added);
        // Under the lock: the order of numbers, and of arrivals, is the order in which changes became visible.
        let lsn = Lsn(self.lsn.fetch_add(1, Ordering::AcqRel) + 1);
        // Before a batch of the log can take it.
        applied::note(lsn);
        if !transaction.unwritten.is_empty() {
            self.unwrote.store(lsn.0, Ordering::Release);
        }
        let Transaction { changes, taken, moves, .. } = transaction;
        let moves = moves && !mutants::is(Mutant::MoveLogged);
        let arrived = self.pending.arrive((lsn, counts, moves), &changes, taken, dropped_extents);
        let intact = self.check_damage(&space);
        step.end();
        drop(space);
        forest.cache.evict();
        self.throttle.cache_is(&forest.cache);
        drop(forest);
        if self.throttle.is_to_be_folded(arrived) {
            self.throttle.pending_is(self.pending.folded().bytes());
        }
        intact?;
        self.counters.operations.increment();
        self.idle.stir();
        Ok(lsn)
    }

    /// Keeps the data that the log will carry, before the trees show its blocks.
    fn show_logged_data(&self, taken: &[Taken]) {
        for taken in taken {
            if let TakenContent::Inside(blocks, _) = &taken.content {
                let pages = blocks.iter().map(|block| block.page.clone());
                self.log_resident.add(taken.blocks.start, pages);
            }
        }
    }

    /// Frees what the transaction frees, and forgets the data of what it makes unwritten.
    fn change_blocks(
        &self,
        space: &mut Space,
        dropped_extents: &DroppedExtents,
        unwritten: &[(BlockRange, Epoch)],
    ) {
        for range in dropped_extents.ranges() {
            space.free_data(range);
            self.log_resident.forget(range);
        }
        for (range, _) in unwritten {
            space.forget_filled(*range);
            // Written in place later, what is there must not speak against this commit.
            if !mutants::is(Mutant::UnwrittenNamed) {
                space.unflushed.forget(*range);
            }
        }
    }
}

/// Fails unless the bitmaps are in memory of what the transaction frees, and of enough slots for its nodes.
fn bitmaps_for(
    forest: &Forest,
    space: &Space,
    tree: TreeNo,
    transaction: &Transaction,
) -> std::result::Result<(), MissingSet> {
    space.expect_bitmaps(transaction.dropped.iter().map(|of| of.blocks))?;
    Ok(space.expect_slots(slots_at_most(forest, tree, transaction.changes.len()))?)
}

/// Counts inodes that a transaction adds to a tree or, below zero, takes from it.
fn count_inodes(forest: &mut Forest, space: &mut Space, tree: TreeNo, added: i64) -> Counts {
    let of = forest.trees.get_mut(tree);
    let branch = of.number;
    let count = if tree == TreeNo::MAIN { &mut space.inodes } else { &mut of.inodes };
    *count = count.saturating_add_signed(added);
    let inodes = *count;
    if added != 0 {
        forest.trees.changes(tree);
    }
    Counts { branch, inodes, main: space.inodes }
}
