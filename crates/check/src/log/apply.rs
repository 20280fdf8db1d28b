//! What a batch does: all of it, or nothing if it cannot be.
//!
//! A batch is judged as a whole first, against the state before it; then its
//! changes join those of the batches before. Blocks are taken before blocks are
//! given back ([`super::give_back`]), in whatever order the records come.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;

use holdfast_base::{BlockNo, BlockRange};
use holdfast_format::item::Extent;
use holdfast_format::item::lineage::{LINEAGE, MAIN};
use holdfast_format::journal::DataExtent;
use holdfast_format::log::{Content, DATA_BLOCKS_MAX, Decoder, Patch, REPLAY_BYTES_MAX, Record};
use holdfast_format::{ItemKind, Key};

use super::blocks::Blocks;
use super::judged::{COST, Given, Judged, Refusal, malformed, misused};
use super::origins::Origins;
use super::{Replay, Whole, lineage};
use crate::changes::{Change, NO_CHANGES};
use crate::issue::Issue;
use crate::lineage::Lineage;
use crate::patched::Patched;
use crate::runs::Runs;
use crate::volume::{Look, Volume};

/// Most bytes that are kept of what batches say. No log in a ring that mkfs makes comes near.
pub(super) const KEPT_MAX: u64 = 4 * REPLAY_BYTES_MAX;

/// The volume while its log is replayed.
#[derive(Debug, Default)]
pub(super) struct LogEffects {
    /// Blocks in use before the log; `None` if that cannot be read.
    pub(super) before: Option<Runs>,
    /// Blocks that the log took, also those that it gave back.
    pub(super) taken: Blocks,
    /// Blocks that the log gave back.
    freed: Blocks,
    /// Those, and what of blocks that branches gave up stays as it is.
    pub(super) given: Blocks,
    data: Patched,
    /// What extents of the log had before it.
    pub(super) origins: Origins,
    /// Branches and snapshots by now.
    pub(super) lineage: Lineage,
    /// Not all of that could be read.
    is_lineage_lost: bool,
    /// What keys held before the log does not read: whose it is what batches give back is not known from then on, and nothing becomes
    /// free.
    is_blind: bool,
    kept: u64,
}

impl LogEffects {
    /// Before the log, when the blocks `before` were in use, as far as that is known.
    pub(super) fn new(before: Option<Runs>, lineage: Lineage, is_lineage_lost: bool) -> LogEffects {
        LogEffects { is_lineage_lost, before, lineage, ..LogEffects::default() }
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
        lineage::judge(&self.lineage, self.is_lineage_lost, &judged.lineage).or_else(malformed)?;
        let beside = put_beside(&judged.lineage);
        for (key, value) in &mut judged.lineage {
            if let Some(value) = value {
                self.lineage.keep_parent(key, value, &beside);
            }
            self.lineage.set(*key, value);
        }
        let lineage = &self.lineage;
        let mut named = judged.counts.keys().filter(|id| **id != MAIN);
        if let Some(id) = named.find(|id| !self.is_lineage_lost && !lineage.has_branch(**id)) {
            return malformed(format!("there is no branch {id}"));
        }
        let is_lost = Cell::new(self.is_blind);
        let value = |branch, key: &Key| match value_of(before, replay, lineage, branch, key) {
            Look::Found(value) => Some(value),
            Look::Missing => None,
            Look::Lost => {
                is_lost.set(true);
                None
            }
        };
        let done = if self.is_blind { Ok(()) } else { self.give_back(&mut judged, given, &value) };
        self.is_blind = is_lost.get();
        match self.is_blind {
            true => (judged.freed, judged.given) = Default::default(),
            false => done?,
        }
        Ok(judged)
    }

    fn take(
        &self,
        judged: &mut Judged,
        blocks: BlockRange,
        content: &Content<'_>,
    ) -> Result<(), Refusal> {
        let ((start, end), count) = (blocks.ends(), blocks.count);
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
        for (start, end) in judged.freed.runs().iter() {
            self.data.forget(start, end);
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

/// The value of a key before a batch: of a branch that the batch makes, that of the snapshot from which it grows.
pub(super) fn value_of(
    before: &Volume<'_>,
    replay: &Replay,
    lineage: &Lineage,
    branch: u64,
    key: &Key,
) -> Look {
    if let Some(change) = replay.items_of(branch).get(key) {
        return change.value.clone().map_or(Look::Missing, Look::Found);
    }
    if branch == MAIN {
        return before.look(key);
    }
    let Some(root) = lineage.root(branch) else { return Look::Lost };
    before.with_files((root.pointer(), root.level), &NO_CHANGES).look(key)
}
