//! What a batch does: all of it, or nothing if it cannot be.
//!
//! A batch is judged as a whole first, against the state before it; then its
//! changes join those of the batches before. Blocks are taken before blocks are
//! given back, in whatever order the records come. What a batch gives back was
//! held by extents of keys that it changes, or taken by itself, and no snapshot
//! has it, whatever birth the batch claims ([`super::origins`]): nothing else may it
//! give back.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use holdfast_base::{BlockNo, BlockRange, InodeNo};
use holdfast_format::item::lineage::{LINEAGE, MAIN};
use holdfast_format::item::{Dentry, Extent, TreeKind};
use holdfast_format::journal::DataExtent;
use holdfast_format::log::{
    Content, DATA_BLOCKS_MAX, Decoder, Dropped, Patch, REPLAY_BYTES_MAX, Record,
};
use holdfast_format::{ItemKind, Key};

use super::blocks::Blocks;
use super::origins::{Before, Origin, Origins, Place, origin};
use super::{Replay, Whole, lineage};
use crate::changes::{Change, NO_CHANGES};
use crate::issue::Issue;
use crate::lineage::Lineage;
use crate::patched::Patched;
use crate::runs::Runs;
use crate::volume::Volume;

/// Most bytes that are kept of what batches say. No log in a ring that mkfs makes comes near.
const KEPT_MAX: u64 = 4 * REPLAY_BYTES_MAX;
/// What an item, a patch or a range of blocks costs beside its bytes.
const COST: u64 = 96;

/// What one batch breaks: the issue and the words.
pub(super) type Refusal = (Issue, String);

pub(super) fn malformed<T>(why: impl Into<String>) -> Result<T, Refusal> {
    Err((Issue::BatchMalformed, why.into()))
}

fn misused<T>(start: u64, count: u64, why: &str) -> Result<T, Refusal> {
    Err((Issue::BatchBlocks, format!("{count} blocks from {start} on {why}")))
}

/// First block of a range that the decoder has judged, and the first behind it.
fn ends(blocks: BlockRange) -> (u64, u64) {
    (blocks.start.0, blocks.start.0.saturating_add(blocks.count))
}

/// The volume while its log is replayed.
#[derive(Debug)]
pub(super) struct State {
    /// Blocks in use before the log; `None` if that cannot be read.
    before: Option<Runs>,
    /// Blocks that the log took, also those that it gave back.
    taken: Blocks,
    /// Blocks that the log gave back.
    freed: Blocks,
    /// Those, and what of blocks that branches gave up stays as it is.
    given: Blocks,
    data: Patched,
    /// What extents of the log had before it.
    origins: Origins,
    /// Branches and snapshots by now.
    lineage: Lineage,
    kept: u64,
}

/// A key of a branch.
type OfBranch = (u64, Key);

/// What a batch changes.
#[derive(Debug, Default)]
pub(super) struct Judged {
    items: BTreeMap<OfBranch, Option<Vec<u8>>>,
    lineage: BTreeMap<Key, Option<Vec<u8>>>,
    /// Inodes of the branches that it names.
    counts: BTreeMap<u64, u64>,
    taken: Blocks,
    freed: Blocks,
    given: Blocks,
    origins: Origins,
    data: Patched,
    /// Bytes of data inside the batch.
    data_bytes: u64,
    /// Data that the batch's flush made durable.
    pub(super) named: Vec<DataExtent>,
    pub(super) named_blocks: u64,
    /// Inodes of names whose own record has not come.
    waiting: BTreeSet<(u64, InodeNo)>,
    kept: u64,
}

impl Judged {
    /// The one record of a key.
    fn change(&mut self, branch: u64, key: Key, value: Option<Vec<u8>>) -> Result<(), Refusal> {
        self.kept += COST + value.as_ref().map_or(0, |value| value.len() as u64);
        let before = match key.kind.is_lineage() {
            true => self.lineage.insert(key, value),
            false => self.items.insert((branch, key), value),
        };
        match before {
            None => Ok(()),
            Some(_) => malformed(format!("it has two records of {key:?}")),
        }
    }

    /// The blocks that the keys which the batch changes hold before it, and those that it takes. Of one branch, or of all.
    fn held(&self, branch: Option<u64>, value: &Value<'_>) -> Blocks {
        let keys = self.items.keys().filter(|(of, key)| {
            key.kind == ItemKind::Extent && branch.is_none_or(|branch| branch == *of)
        });
        let extents = keys.filter_map(|(of, key)| Extent::decode(&value(*of, key)?).ok());
        let mut runs: Vec<(u64, u64)> = extents.map(|extent| ends(extent.blocks)).collect();
        runs.extend(self.taken.runs().iter().map(|run| (run.start, run.end)));
        united(runs)
    }

    fn put(&mut self, branch: u64, key: Key, value: Vec<u8>) -> Result<(), Refusal> {
        if key == Key::inode(key.inode) && self.waiting.contains(&(branch, key.inode)) {
            return malformed(format!("the inode {} comes after its name", key.inode));
        }
        // A damaged name is left to the pass that judges names.
        if key.kind == ItemKind::Dentry
            && let Ok(dentry) = Dentry::decode(&value)
            && !self.items.contains_key(&(branch, Key::inode(dentry.inode)))
        {
            self.waiting.insert((branch, dentry.inode));
        }
        self.change(branch, key, Some(value))
    }
}

/// The value of a key of a branch.
type Value<'a> = dyn Fn(u64, &Key) -> Option<Vec<u8>> + 'a;

/// What a batch gives back: of all branches, or dropped by one.
enum Given {
    Free(BlockRange),
    Drop(u64, Dropped),
}

impl Given {
    fn blocks(&self) -> BlockRange {
        match self {
            Given::Free(blocks) | Given::Drop(_, Dropped { blocks, .. }) => *blocks,
        }
    }
}

impl State {
    /// Before the log, when the blocks `before` were in use, as far as that is known.
    pub(super) fn new(before: Option<Runs>, lineage: Lineage) -> State {
        State {
            before,
            taken: Blocks::default(),
            freed: Blocks::default(),
            given: Blocks::default(),
            data: Patched::default(),
            origins: Origins::default(),
            lineage,
            kept: 0,
        }
    }

    /// Judges all records of a batch that follows what `replay` has by now. Changes nothing but the lineage, which nothing
    /// looks at behind a batch that does not count.
    pub(super) fn judge(
        &mut self,
        whole: &Whole,
        before: &Volume<'_>,
        replay: &Replay,
    ) -> Result<Judged, Refusal> {
        let (header, now) = (&whole.header, &replay.superblock);
        if header.inode_next < now.inode_next.0 {
            let (next, before) = (header.inode_next, now.inode_next);
            return malformed(format!("the next inode number goes back from {before} to {next}"));
        }
        let mut judged = Judged::default();
        let (mut given, mut branch) = (Vec::new(), MAIN);
        for record in Decoder::new(&whole.records, header.records, &now.geometry, now.carried()) {
            match record.map_err(|bad| (Issue::BatchMalformed, bad.to_string()))? {
                Record::Put(key, value) => {
                    let mut value = value.to_vec();
                    if key.kind == ItemKind::Extent {
                        Extent::be_born_by(&mut value, now.epoch.next());
                    }
                    judged.put(branch, key, value)?;
                }
                Record::Inode(number, item) => {
                    judged.put(branch, Key::inode(number), item.encode())?;
                }
                Record::Delete(key) => judged.change(branch, key, None)?,
                Record::Take(blocks, content) => self.take(&mut judged, blocks, &content)?,
                Record::Free(blocks) => given.push(Given::Free(blocks)),
                Record::Branch { id, inode_count } => {
                    branch = id;
                    judged.counts.insert(id, inode_count);
                }
                Record::Drop(dropped) => given.push(Given::Drop(branch, dropped)),
            }
            if self.kept + judged.kept + COST * given.len() as u64 > KEPT_MAX {
                return malformed("the log says more than can be kept");
            }
        }
        lineage::judge(&self.lineage, &judged.lineage).or_else(malformed)?;
        let beside = put_beside(&judged.lineage);
        for (key, value) in &mut judged.lineage {
            if let Some(value) = value {
                self.lineage.keep_parent(key, value, &beside);
            }
            match value {
                Some(value) => drop(self.lineage.0.insert(*key, value.clone())),
                None => drop(self.lineage.0.remove(key)),
            }
        }
        let lineage = &self.lineage;
        let mut named = judged.counts.keys().filter(|id| **id != MAIN);
        if let Some(id) = named.find(|id| !is_branch(lineage, **id)) {
            return malformed(format!("there is no branch {id}"));
        }
        let value = |branch, key: &Key| value_of(before, replay, lineage, branch, key);
        self.give_back(&mut judged, given, &value)?;
        Ok(judged)
    }

    fn give_back(
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
            let (start, end) = ends(extent.blocks);
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
                let place = Place::of(&of.at, of.blocks.start.0);
                origins.get(branch)?.same(block, of.birth, place)
            }
        };
        let blocks = given.blocks();
        let (start, end) = ends(blocks);
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

    fn take(
        &self,
        judged: &mut Judged,
        blocks: BlockRange,
        content: &Content<'_>,
    ) -> Result<(), Refusal> {
        let ((start, end), count) = (ends(blocks), blocks.count);
        if self.before.as_ref().is_some_and(|before| before.touches(start, end)) {
            return misused(start, count, "are taken, but were in use");
        }
        if self.taken.touches(start, end) || judged.taken.touches(start, end) {
            return misused(start, count, "are taken twice");
        }
        judged.kept += COST;
        match content {
            Content::Unwritten => {}
            Content::Summed(sum) => {
                judged.named_blocks = judged.named_blocks.saturating_add(count);
                if judged.named_blocks > DATA_BLOCKS_MAX {
                    return malformed("it names more data by its sum than may be");
                }
                judged.named.push(DataExtent { block: start, count, sum: *sum });
            }
            Content::Inside(patches) => {
                for (block, patch) in (start..).zip(patches) {
                    self.patch(judged, start..block, patch)?;
                }
            }
        }
        judged.taken.insert(start, end);
        Ok(())
    }

    /// The data of the block behind those that `before` have theirs in the same record.
    fn patch(
        &self,
        judged: &mut Judged,
        before: Range<u64>,
        patch: &Patch<'_>,
    ) -> Result<(), Refusal> {
        if let Some(BlockNo(base)) = patch.base
            && !before.contains(&base)
            && judged.taken.end_at(base).is_none()
            && !self.is_used(base)
        {
            return misused(base, 1, "are the base of data, but not in use");
        }
        judged.kept += COST + patch.bytes.len() as u64;
        judged.data_bytes += patch.bytes.len() as u64;
        judged.data.add(BlockNo(before.end), patch, &self.data);
        Ok(())
    }

    /// Whether a block is in use before the batch, as far as that is known.
    fn is_used(&self, block: u64) -> bool {
        let was = self.before.as_ref().is_none_or(|before| before.end_at(block).is_some());
        (was || self.taken.end_at(block).is_some()) && self.freed.end_at(block).is_none()
    }

    /// No block is given back twice, whether it becomes free by that or not.
    fn give_once(&self, judged: &mut Judged, blocks: BlockRange) -> Result<(), Refusal> {
        let (start, end) = ends(blocks);
        if self.given.touches(start, end) || judged.given.touches(start, end) {
            return misused(start, blocks.count, "are given back twice");
        }
        judged.given.insert(start, end);
        Ok(())
    }

    fn free(&self, judged: &mut Judged, blocks: BlockRange) -> Result<(), Refusal> {
        let ((start, end), count) = (ends(blocks), blocks.count);
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

    /// Carries out what was judged. `block` is where the batch lies.
    pub(super) fn apply(&mut self, judged: Judged, block: BlockNo, replay: &mut Replay) {
        for ((branch, key), value) in judged.items {
            let items = match branch {
                MAIN => &mut replay.items,
                other => &mut replay.branches.entry(other).or_default().items,
            };
            items.insert(key, Change { value, block });
        }
        for (id, inode_count) in judged.counts.into_iter().filter(|(id, _)| *id != MAIN) {
            replay.branches.entry(id).or_default().inode_count = inode_count;
        }
        for (key, value) in judged.lineage {
            replay.lineage.insert(key, Change { value, block });
        }
        self.taken.absorb(&judged.taken);
        self.data.absorb(judged.data);
        for run in judged.freed.runs().iter() {
            self.data.forget(run.start, run.end);
        }
        self.freed.absorb(&judged.freed);
        self.given.absorb(&judged.given);
        self.origins.absorb(judged.origins);
        self.kept += judged.kept;
        replay.data_bytes += judged.data_bytes;
    }

    /// Hands over what all batches made of blocks.
    pub(super) fn finish(self, replay: &mut Replay) {
        (replay.taken, replay.freed) = (self.taken.runs(), self.freed.runs());
        let now = &mut replay.superblock.used_blocks;
        *now = now.saturating_add(replay.taken.total()).saturating_sub(replay.freed.total());
        replay.data = self.data;
    }
}

/// The snapshots beside which a batch puts new branches.
fn put_beside(lineage: &BTreeMap<Key, Option<Vec<u8>>>) -> BTreeMap<u64, u64> {
    let put = lineage.iter().filter(|(key, value)| key.kind == ItemKind::Child && value.is_some());
    put.filter_map(|(key, _)| Some((key.offset, key.inode.0.checked_sub(LINEAGE)?))).collect()
}

fn is_branch(lineage: &Lineage, id: u64) -> bool {
    lineage.tree(id).is_some_and(|item| item.kind == TreeKind::Branch) && lineage.root(id).is_some()
}

/// The value of a key before a batch: of a branch that the batch makes, that of the snapshot from which it grows.
fn value_of(
    before: &Volume<'_>,
    replay: &Replay,
    lineage: &Lineage,
    branch: u64,
    key: &Key,
) -> Option<Vec<u8>> {
    if let Some(change) = replay.items_of(branch).get(key) {
        return change.value.clone();
    }
    if branch == MAIN {
        return before.get(key);
    }
    let root = lineage.root(branch)?;
    before.with_files((root.pointer(), root.level), &NO_CHANGES).get(key)
}

/// The union of runs. Extents of branches, and of a damaged volume, may lie over one another.
fn united(mut runs: Vec<(u64, u64)>) -> Blocks {
    runs.sort_unstable();
    let (mut all, mut done) = (Blocks::default(), 0);
    for (start, end) in runs {
        if end > done {
            all.insert(start.max(done), end);
            done = end;
        }
    }
    all
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
    let (start, end) = ends(blocks);
    if held.end_at(start).is_none_or(|last| last < end) {
        let why = "are given back, but belong to nothing that the batch changes";
        return misused(start, blocks.count, why);
    }
    Ok(())
}
