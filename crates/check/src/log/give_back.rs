//! What a batch gives back: that it was its to give.
//!
//! It was held by extents of keys that the batch changes, or taken by the batch itself, and no snapshot has it, whatever birth
//! the batch claims ([`super::origins`]): nothing else may be given back, and nothing twice.

use std::collections::BTreeMap;
use std::ops::Range;

use holdfast_base::BlockRange;
use holdfast_format::item::Extent;
use holdfast_format::{ItemKind, Key};

use super::apply::LogEffects;
use super::blocks::Blocks;
use super::judged::{COST, Given, Judged, OfBranch, Refusal, Value, misused, united};
use super::origins::{Before, FilePlace, Origin, origin};

impl LogEffects {
    /// Judges what a batch gives back, behind all that it changes and takes.
    pub(super) fn give_back(
        &self,
        judged: &mut Judged,
        given: Vec<Given>,
        value: &Value<'_>,
    ) -> Result<(), Refusal> {
        judged.kept += COST * given.len() as u64;
        let origins = self.origins_before(judged, !given.is_empty(), value);
        let younger = self.younger(&origins);
        let mut held = BTreeMap::new();
        for given in given {
            let (of, blocks) = match &given {
                Given::Free(blocks) => (None, *blocks),
                Given::Drop(branch, dropped) => (Some(*branch), dropped.blocks),
            };
            let held = held.entry(of).or_insert_with(|| judged.held(of, value));
            self.give_once(judged, blocks)?;
            is_held(held, blocks)?;
            self.is_its_own(judged, (&origins, &younger), &given)?;
            match given {
                Given::Free(blocks) => self.free(judged, blocks)?,
                Given::Drop(branch, dropped) => {
                    let own = self.lineage.own(branch, &dropped);
                    if own > 0 {
                        self.free(judged, BlockRange::new(dropped.blocks.start, own))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// What the keys that a batch changes hold of what the trees had, by branch. Says in `judged` what its extents keep. If it
    /// gives nothing back, and its extents have what the log took, no tree is asked.
    fn origins_before(
        &self,
        judged: &mut Judged,
        gives: bool,
        value: &Value<'_>,
    ) -> BTreeMap<u64, Before> {
        let keys = judged.items.iter().filter(|((_, key), _)| key.kind == ItemKind::Extent);
        let puts: Vec<(OfBranch, Option<Extent>)> = keys
            .map(|(of, put)| (*of, put.as_ref().and_then(|put| Extent::decode(put).ok())))
            .collect();
        for ((branch, key), _) in &puts {
            judged.origins.set(*branch, *key, Vec::new());
        }
        let is_taken = |extent: &Extent| {
            let (start, end) = extent.blocks.ends();
            is_within(start..end, |at| self.taken_until(judged, at))
        };
        if !gives && puts.iter().filter_map(|(_, put)| put.as_ref()).all(is_taken) {
            return BTreeMap::new();
        }
        let (mut all, mut new) = (BTreeMap::new(), BTreeMap::new());
        for ((branch, key), put) in puts {
            let before: &mut Vec<Origin> = all.entry(branch).or_default();
            match self.origins.get(branch, &key) {
                Some(known) => before.extend(known),
                None => {
                    let extent = value(branch, &key).and_then(|value| Extent::decode(&value).ok());
                    before.extend(extent.map(|extent| origin(&key, &extent)));
                }
            }
            let new: &mut Vec<(Key, Extent)> = new.entry(branch).or_default();
            new.extend(put.map(|extent| (key, extent)));
        }
        let all: BTreeMap<u64, Before> =
            all.into_iter().map(|(branch, before)| (branch, Before::of(before))).collect();
        for (branch, new) in new {
            let Some(before) = all.get(&branch) else { continue };
            for (key, kept) in before.kept(new) {
                judged.kept += COST * kept.len() as u64;
                judged.origins.set(branch, key, kept);
            }
        }
        all
    }

    /// What of that is younger than the parent of its branch.
    fn younger(&self, origins: &BTreeMap<u64, Before>) -> Blocks {
        let of_branch = |(branch, before): (&u64, &Before)| {
            let parent = self.lineage.parent(*branch).map(|parent| parent.epoch);
            before.younger(parent)
        };
        united(origins.iter().flat_map(of_branch).collect())
    }

    /// The end of what the log took with a block.
    fn taken_until(&self, judged: &Judged, block: u64) -> Option<u64> {
        self.taken.end_at(block).or_else(|| judged.taken.end_at(block))
    }

    /// Fails if a snapshot has what is given back: what the log did not take is as old as the tree says.
    fn is_its_own(
        &self,
        judged: &Judged,
        (origins, younger): (&BTreeMap<u64, Before>, &Blocks),
        given: &Given,
    ) -> Result<(), Refusal> {
        let of_tree = |block: u64| match given {
            Given::Free(_) => younger.end_at(block),
            Given::Drop(branch, of) => {
                let place = FilePlace::of(&of.at, of.blocks.start.0);
                origins.get(branch)?.same(block, of.birth, place)
            }
        };
        let blocks = given.blocks();
        let (start, end) = blocks.ends();
        if is_within(start..end, |at| self.taken_until(judged, at).or_else(|| of_tree(at))) {
            return Ok(());
        }
        misused(
            start,
            blocks.count,
            match given {
                Given::Free(_) => "are given back, but a snapshot has them",
                Given::Drop(..) => "are given back, but are not as old, or not where, it says",
            },
        )
    }

    /// No block is given back twice, whether it becomes free by that or not.
    fn give_once(&self, judged: &mut Judged, blocks: BlockRange) -> Result<(), Refusal> {
        let (start, end) = blocks.ends();
        if self.given.touches(start, end) || judged.given.touches(start, end) {
            return misused(start, blocks.count, "are given back twice");
        }
        judged.given.insert(start, end);
        Ok(())
    }

    fn free(&self, judged: &mut Judged, blocks: BlockRange) -> Result<(), Refusal> {
        let ((start, end), count) = (blocks.ends(), blocks.count);
        if let Some(before) = &self.before {
            // What is given back may have been taken in parts.
            let mut at = start;
            while at < end {
                let end = before.end_at(at).or_else(|| self.taken.end_at(at));
                match end.or_else(|| judged.taken.end_at(at)) {
                    Some(end) => at = end,
                    None => return misused(start, count, "are given back, but were not in use"),
                }
            }
        }
        judged.freed.insert(start, end);
        Ok(())
    }
}

/// Whether blocks lie in runs without a gap, each of which is known by its end.
fn is_within(blocks: Range<u64>, end_at: impl Fn(u64) -> Option<u64>) -> bool {
    let mut at = blocks.start;
    while at < blocks.end {
        match end_at(at) {
            Some(end) => at = end,
            None => return false,
        }
    }
    true
}

/// Whether all blocks belong to what the batch changes.
fn is_held(held: &Blocks, blocks: BlockRange) -> Result<(), Refusal> {
    let (start, end) = blocks.ends();
    if held.end_at(start).is_none_or(|last| last < end) {
        let why = "are given back, but belong to nothing that the batch changes";
        return misused(start, blocks.count, why);
    }
    Ok(())
}
