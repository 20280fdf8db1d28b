//! Whether a batch of the log can be: judged as a whole, before anything of the log is applied.
//!
//! A batch takes blocks that are free, once each, and gives back blocks that are
//! in use. What it gives back, its own records show: the extents of keys that it
//! changes held it before, or it took it itself. So no batch, forged or not, frees the
//! block of a node, or one of a file that it does not change; nor one that a snapshot
//! has, whatever birth it claims (P10): see [`super::validate_blocks`].
//!
//! Judges against the volume as it stood before the log and what earlier batches
//! say; changes nothing, but takes the blocks that batches name out of the free
//! space (R7). A check judges by the same rules, with code of its own.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use std::collections::{BTreeMap, BTreeSet, HashSet};

use holdfast_base::mutants::{self, Mutant};
use holdfast_base::{BlockNo, BlockRange, Epoch, InodeNo};
use holdfast_format::item::Extent;
use holdfast_format::item::lineage::MAIN;
use holdfast_format::log::record::leads_to;
use holdfast_format::log::{Content, DATA_BLOCKS_MAX, Dropped, Patch, Record};
use holdfast_format::{ItemKind, Key, Superblock};

use super::replay::LoggedBatch;
use super::validate_blocks::{Part, Parts, Span};
use super::validate_lineage::{Items, Lineage, Wrong};
use crate::{Inner, Result, StoreError};

/// What is known of the batches judged so far.
pub(super) struct Validator<'a> {
    inner: &'a Inner,
    superblock: &'a Superblock,
    inode_next: u64,
    /// Blocks that batches gave back: starts and ends.
    freed: BTreeMap<u64, u64>,
    /// Blocks that batches took.
    taken: BTreeMap<u64, u64>,
    /// Blocks of the extents of keys that batches changed, by branch.
    extents: BTreeMap<(u64, Key), Option<Span>>,
    /// What of these the tree had before the log.
    parts: BTreeMap<(u64, Key), Vec<Part>>,
    /// What batches say of branches and snapshots.
    lineage: Lineage,
    /// What keys held before the log does not read: whose it is what batches give back is not known from then on.
    is_blind: bool,
}

/// What a batch says.
#[derive(Default)]
struct BatchContent {
    /// The branch that the records are of.
    branch: u64,
    /// All that records are of.
    branches: BTreeSet<u64>,
    lineage: Items,
    keys: HashSet<(u64, Key)>,
    /// Inodes of names whose own record has not come.
    waiting: HashSet<(u64, InodeNo)>,
    extents: Vec<((u64, Key), Option<Span>)>,
    taken: Vec<Span>,
    freed: Vec<Given>,
    named_blocks: u64,
}

/// What a batch gives back; what a branch drops, as the record of that branch says.
struct Given {
    blocks: Span,
    dropped: Option<(u64, Dropped)>,
}

/// What the keys that a batch changes hold before it.
#[derive(Default)]
struct HeldBefore {
    /// All blocks, and those that it takes itself: few disjoint spans, upwards.
    blocks: Vec<Span>,
    /// The same of one branch, for each that drops any.
    of_branch: BTreeMap<u64, Vec<Span>>,
    /// What of them the trees of branches had before the log.
    parts: BTreeMap<u64, Parts>,
    /// Those of them that are younger than the parent of their branch.
    own: Vec<Span>,
}

fn span(blocks: BlockRange) -> std::result::Result<Span, String> {
    let end = blocks.end().ok_or_else(|| format!("the blocks {blocks:?} have no end"))?;
    Ok((blocks.start.0, end.0))
}

fn touches(set: &BTreeMap<u64, u64>, (start, end): Span) -> bool {
    set.range(..end).next_back().is_some_and(|(_, &last)| last > start)
}

/// The spans as few disjoint ones, upwards.
fn merged(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable();
    let mut merged: Vec<Span> = Vec::new();
    for (start, end) in spans {
        match merged.last_mut() {
            Some((_, last)) if start <= *last => *last = end.max(*last),
            _ => merged.push((start, end)),
        }
    }
    merged
}

fn covers(merged: &[Span], (start, end): Span) -> bool {
    let at = merged.partition_point(|(first, _)| *first <= start);
    at.checked_sub(1).is_some_and(|at| merged[at].1 >= end)
}

impl<'a> Validator<'a> {
    /// Nothing is judged yet of the log behind `superblock`, at which `inner` stands.
    pub(super) fn new(inner: &'a Inner, superblock: &'a Superblock) -> Validator<'a> {
        Validator {
            inner,
            superblock,
            inode_next: superblock.inode_next.0,
            freed: BTreeMap::new(),
            taken: BTreeMap::new(),
            extents: BTreeMap::new(),
            parts: BTreeMap::new(),
            lineage: Lineage::default(),
            is_blind: false,
        }
    }

    /// Whether it does not know of all that batches give back whose it was. Only for readers, which free nothing then.
    pub(super) fn is_blind(&self) -> bool {
        self.is_blind
    }

    /// Judges the next batch. After an error the space must not be used.
    pub(super) fn batch(&mut self, batch: &LoggedBatch) -> Result<()> {
        let refuse = |why: String| Err(batch.refuse(why));
        if batch.header.inode_next < self.inode_next {
            return refuse("the next inode number goes back".into());
        }
        let mut said = BatchContent { branch: MAIN, ..BatchContent::default() };
        for record in batch.records(self.superblock) {
            let judged = match record.map_err(|source| batch.damage(source))? {
                Record::Put(key, value) if key.kind.is_lineage() => {
                    said.lineage(key, Some(value.to_vec()))
                }
                Record::Delete(key) if key.kind.is_lineage() => said.lineage(key, None),
                Record::Branch { id, .. } => {
                    said.branch = id;
                    said.branches.insert(id);
                    Ok(())
                }
                // What it frees, and whether that may be, depends on the lineage: the space is asked when it is replayed.
                Record::Drop(of) => said.give(of.blocks, Some((said.branch, of))),
                Record::Put(key, value) => said.change(key, Some(value)),
                Record::Inode(no, _) => said.change(Key::inode(no), None),
                Record::Delete(key) => said.change(key, None),
                Record::Take(blocks, content) => self.take(&mut said, blocks, &content),
                Record::Free(blocks) => said.give(blocks, None),
            };
            if let Err(why) = judged {
                return refuse(why);
            }
        }
        match self.lineage.batch(self.inner, &said.lineage, &said.branches) {
            Ok(()) => {}
            Err(Wrong::Batch(why)) => return refuse(why),
            Err(Wrong::Before(error)) => return Err(error),
        }
        for &(start, end) in &said.taken {
            self.taken.insert(start, end);
        }
        if !self.is_blind {
            match self.held(&said) {
                Ok(held) => {
                    if let Some(why) = self.give_back(&said, &held) {
                        return refuse(why);
                    }
                    self.carry(&said, &held);
                }
                Err(StoreError::Node { .. } | StoreError::Device(_)) if self.inner.read_only => {
                    self.is_blind = true;
                }
                Err(error) => return Err(error),
            }
        }
        self.extents.extend(said.extents);
        self.inode_next = batch.header.inode_next;
        Ok(())
    }

    /// The extent under a key, as it was before the log.
    fn extent_before(&self, branch: u64, key: &Key) -> Result<Option<Extent>> {
        let tree = match self.lineage.made(branch) {
            Some(item) => self.inner.open_root(branch, item)?,
            None => self.inner.open_tree(branch)?,
        };
        Ok(extent(self.inner.get(tree.no, key)?.as_deref()))
    }

    fn take(
        &self,
        said: &mut BatchContent,
        blocks: BlockRange,
        content: &Content<'_>,
    ) -> std::result::Result<(), String> {
        let taken = span(blocks)?;
        // Also those that an earlier batch took, and gave back or not, are not free.
        if !mutants::is(Mutant::NotPinned)
            && !self.inner.with_bitmaps(blocks, |space| space.claim(blocks))
        {
            return Err(format!("the blocks {blocks:?} are taken, but are not free"));
        }
        match content {
            Content::Unwritten => {}
            Content::Summed(_) => {
                said.named_blocks = said.named_blocks.saturating_add(blocks.count);
                if said.named_blocks > DATA_BLOCKS_MAX {
                    return Err("it names more data by its sum than may be".into());
                }
            }
            Content::Inside(patches) => {
                for (block, patch) in (blocks.start.0..).zip(patches) {
                    self.patch(block..taken.1, patch)?;
                }
            }
        }
        said.taken.push(taken);
        Ok(())
    }

    /// The data of the first of the blocks `left`, the last ones of its record.
    fn patch(
        &self,
        left: std::ops::Range<u64>,
        patch: &Patch<'_>,
    ) -> std::result::Result<(), String> {
        let Some(base) = patch.base else { return Ok(()) };
        let range = BlockRange::new(base, 1);
        let span = span(range)?;
        let is_there = self.inner.is_busy(range) && !left.contains(&base.0);
        if is_there && !touches(&self.freed, span) {
            Ok(())
        } else {
            Err(format!("block {base} is the base of data, but not in use"))
        }
    }

    /// What the keys that a batch changes hold before it, and what it takes itself.
    fn held(&mut self, said: &BatchContent) -> Result<HeldBefore> {
        // Nothing is given back, now or later, but what the log took: then no tree is asked.
        let is_taken = |span: &Span| self.are_taken_or(&[], *span);
        if said.freed.is_empty()
            && said.extents.iter().filter_map(|(_, span)| span.as_ref()).all(is_taken)
        {
            return Ok(HeldBefore::default());
        }
        let mut blocks = said.taken.clone();
        let drops = said.freed.iter().filter_map(|given| given.dropped.as_ref());
        let mut of_branch: BTreeMap<u64, Vec<Span>> =
            drops.map(|(branch, _)| (*branch, said.taken.clone())).collect();
        let mut parts: BTreeMap<u64, Vec<Part>> = BTreeMap::new();
        for (of, _) in &said.extents {
            let (branch, key) = of;
            let mut hold = |span: Option<Span>| {
                blocks.extend(span);
                if let Some(blocks) = of_branch.get_mut(branch) {
                    blocks.extend(span);
                }
            };
            match self.extents.get(of) {
                Some(known) => {
                    hold(*known);
                    let of = self.parts.get(of).into_iter().flatten();
                    parts.entry(*branch).or_default().extend(of);
                }
                None => {
                    let Some(before) = self.extent_before(*branch, key)? else { continue };
                    hold(span(before.blocks).ok());
                    parts.entry(*branch).or_default().extend(Part::of(key, &before));
                }
            }
        }
        let parts: BTreeMap<u64, Parts> =
            parts.into_iter().map(|(branch, of)| (branch, Parts::of(of))).collect();
        let mut own = Vec::new();
        if said.freed.iter().any(|given| given.dropped.is_none()) {
            for (branch, of) in &parts {
                own.extend(of.younger(self.parent(*branch)?));
            }
        }
        let of_branch = of_branch.into_iter().map(|(branch, of)| (branch, merged(of))).collect();
        Ok(HeldBefore { blocks: merged(blocks), of_branch, parts, own: merged(own) })
    }

    /// The epoch of what a branch has grown out of, as the replay finds it; 0: nothing.
    fn parent(&mut self, branch: u64) -> Result<Epoch> {
        match self.lineage.parent_epoch(self.inner, branch) {
            Ok(epoch) => Ok(epoch),
            // Nothing is written, and so nothing that is freed is used again.
            Err(_) if self.inner.read_only => Ok(Epoch(0)),
            Err(error) => Err(error),
        }
    }

    /// Why a batch cannot give back what it does.
    fn give_back(&mut self, said: &BatchContent, held: &HeldBefore) -> Option<String> {
        for Given { blocks: (start, end), dropped } in &said.freed {
            let (start, end) = (*start, *end);
            // No span ends before it begins.
            let blocks = BlockRange::new(BlockNo(start), end.saturating_sub(start));
            if touches(&self.freed, (start, end)) {
                return Some(format!("the blocks {blocks:?} are given back twice"));
            }
            if !self.inner.is_busy(blocks) {
                return Some(format!("the blocks {blocks:?} are given back, but not in use"));
            }
            // What a branch drops it must have held itself.
            let held_before = match dropped {
                None => Some(&held.blocks),
                Some((branch, _)) => held.of_branch.get(branch),
            };
            if !held_before.is_some_and(|held| covers(held, (start, end))) {
                return Some(format!(
                    "the blocks {blocks:?} are given back, but belong to nothing that it changes"
                ));
            }
            let is_its_own = match dropped {
                None => self.are_taken_or(&held.own, (start, end)),
                Some((branch, of)) => {
                    let parts = held.parts.get(branch);
                    let as_said =
                        parts.into_iter().flat_map(|of_it| of_it.as_said(of, (start, end)));
                    self.are_taken_or(&merged(as_said.collect()), (start, end))
                }
            };
            if !is_its_own {
                return Some(match dropped {
                    None => {
                        format!("the blocks {blocks:?} are given back, but a snapshot has them")
                    }
                    Some(_) => {
                        format!("the blocks {blocks:?} are not as old, or not where, it says")
                    }
                });
            }
            self.freed.insert(start, end);
        }
        None
    }

    /// Whether each block of a range was taken by the log, or lies in one of these spans.
    fn are_taken_or(&self, spans: &[Span], (start, end): Span) -> bool {
        let mut at = start;
        while at < end {
            let taken = self.taken.range(..=at).next_back().map(|(_, &last)| last);
            let before = spans.partition_point(|(first, _)| *first <= at).checked_sub(1);
            let of_spans = before.and_then(|before| spans.get(before)).map(|(_, last)| *last);
            match [taken, of_spans].into_iter().flatten().max() {
                Some(last) if last > at => at = last,
                _ => return false,
            }
        }
        true
    }

    /// What the extents that a batch puts keep of what the trees had.
    fn carry(&mut self, said: &BatchContent, held: &HeldBefore) {
        let mut puts: BTreeMap<u64, Vec<(&Key, Span)>> = BTreeMap::new();
        for ((branch, key), span) in &said.extents {
            self.parts.remove(&(*branch, *key));
            puts.entry(*branch).or_default().extend(span.map(|span| (key, span)));
        }
        for (branch, puts) in puts {
            let Some(parts) = held.parts.get(&branch) else { continue };
            let kept = parts.kept(puts.into_iter());
            let kept = kept.into_iter().filter(|(_, parts)| !parts.is_empty());
            self.parts.extend(kept.map(|(key, parts)| ((branch, key), parts)));
        }
    }
}

impl BatchContent {
    /// Blocks that it gives back.
    fn give(
        &mut self,
        blocks: BlockRange,
        dropped: Option<(u64, Dropped)>,
    ) -> std::result::Result<(), String> {
        self.freed.push(Given { blocks: span(blocks)?, dropped });
        Ok(())
    }

    /// The one record of an item of the lineage.
    fn lineage(&mut self, key: Key, value: Option<Vec<u8>>) -> std::result::Result<(), String> {
        match self.lineage.insert(key, value) {
            None => Ok(()),
            Some(_) => Err(format!("it has two records of {key:?}")),
        }
    }

    /// The one record of a key. `value` may be left out for an inode.
    fn change(&mut self, key: Key, value: Option<&[u8]>) -> std::result::Result<(), String> {
        let branch = self.branch;
        if key == Key::inode(key.inode) && self.waiting.contains(&(branch, key.inode)) {
            return Err(format!("the inode {} comes after its name", key.inode));
        }
        if !self.keys.insert((branch, key)) {
            return Err(format!("it has two records of {key:?}"));
        }
        if key.kind == ItemKind::Extent {
            let blocks = extent(value).and_then(|extent| span(extent.blocks).ok());
            self.extents.push(((branch, key), blocks));
        }
        if let Some(child) = value.and_then(|value| leads_to(&key, value))
            && !self.keys.contains(&(branch, Key::inode(child)))
        {
            self.waiting.insert((branch, child));
        }
        Ok(())
    }
}

/// An extent. One that cannot be read holds nothing: a walk of the tree will say so.
fn extent(value: Option<&[u8]>) -> Option<Extent> {
    Extent::decode(value?).ok()
}
