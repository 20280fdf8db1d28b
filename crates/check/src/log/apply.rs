//! What a batch does: all of it, or nothing if it cannot be.
//!
//! A batch is judged as a whole first, against the state before it; then its
//! changes join those of the batches before. Blocks are taken before blocks are
//! given back, in whatever order the records come. What a batch gives back was
//! held by extents of keys that it changes, or taken by itself: nothing else
//! may it give back.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use holdfast_base::{BlockNo, BlockRange, InodeNo};
use holdfast_format::item::{Dentry, Extent};
use holdfast_format::journal::DataExtent;
use holdfast_format::log::{Content, DATA_BLOCKS_MAX, Decoder, Patch, REPLAY_BYTES_MAX, Record};
use holdfast_format::{Key, Kind, Superblock};

use super::blocks::Blocks;
use super::{Replay, Whole};
use crate::changes::Change;
use crate::issue::Issue;
use crate::patched::Patched;
use crate::runs::Runs;

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
    data: Patched,
    kept: u64,
}

/// What a batch changes.
#[derive(Debug, Default)]
pub(super) struct Judged {
    items: BTreeMap<Key, Option<Vec<u8>>>,
    taken: Blocks,
    freed: Blocks,
    data: Patched,
    /// Bytes of data inside the batch.
    data_bytes: u64,
    /// Data that the batch's flush made durable.
    pub(super) named: Vec<DataExtent>,
    pub(super) named_blocks: u64,
    /// Inodes of names whose own record has not come.
    waiting: BTreeSet<InodeNo>,
    kept: u64,
}

impl Judged {
    /// The one record of a key.
    fn change(&mut self, key: Key, value: Option<Vec<u8>>) -> Result<(), Refusal> {
        self.kept += COST + value.as_ref().map_or(0, |value| value.len() as u64);
        match self.items.insert(key, value) {
            None => Ok(()),
            Some(_) => malformed(format!("it has two records of {key:?}")),
        }
    }

    /// The blocks that the keys which the batch changes hold before it, and those that it takes.
    fn held(&self, value: &dyn Fn(&Key) -> Option<Vec<u8>>) -> Blocks {
        let keys = self.items.keys().filter(|key| key.kind == Kind::Extent);
        let extents = keys.filter_map(|key| Extent::decode(&value(key)?).ok());
        let mut runs: Vec<(u64, u64)> = extents.map(|extent| ends(extent.blocks)).collect();
        runs.extend(self.taken.runs().iter().map(|run| (run.start, run.end)));
        runs.sort_unstable();
        // Extents of a damaged volume may lie over one another.
        let (mut held, mut done) = (Blocks::default(), 0);
        for (start, end) in runs {
            if end > done {
                held.insert(start.max(done), end);
                done = end;
            }
        }
        held
    }

    fn put(&mut self, key: Key, value: Vec<u8>) -> Result<(), Refusal> {
        if key == Key::inode(key.inode) && self.waiting.contains(&key.inode) {
            return malformed(format!("the inode {} comes after its name", key.inode));
        }
        // A damaged name is left to the pass that judges names.
        if key.kind == Kind::Dentry
            && let Ok(dentry) = Dentry::decode(&value)
            && !self.items.contains_key(&Key::inode(dentry.inode))
        {
            self.waiting.insert(dentry.inode);
        }
        self.change(key, Some(value))
    }
}

impl State {
    /// Before the log, when the blocks `before` were in use, as far as that is known.
    pub(super) fn new(before: Option<Runs>) -> State {
        State {
            before,
            taken: Blocks::default(),
            freed: Blocks::default(),
            data: Patched::default(),
            kept: 0,
        }
    }

    /// Judges all records of a batch that follows `now`, when keys have the values that `value` says. Changes nothing.
    pub(super) fn judge(
        &self,
        whole: &Whole,
        now: &Superblock,
        value: &dyn Fn(&Key) -> Option<Vec<u8>>,
    ) -> Result<Judged, Refusal> {
        let header = &whole.header;
        if header.inode_next < now.inode_next.0 {
            let (next, before) = (header.inode_next, now.inode_next);
            return malformed(format!("the next inode number goes back from {before} to {next}"));
        }
        let mut judged = Judged::default();
        let mut frees = Vec::new();
        for record in Decoder::new(&whole.records, header.records, &now.geometry, now.carried()) {
            match record.map_err(|bad| (Issue::BatchMalformed, bad.to_string()))? {
                Record::Put(key, value) => {
                    let mut value = value.to_vec();
                    if key.kind == Kind::Extent {
                        Extent::be_born_by(&mut value, now.epoch.next());
                    }
                    judged.put(key, value)?;
                }
                Record::Inode(number, item) => judged.put(Key::inode(number), item.encode())?,
                Record::Delete(key) => judged.change(key, None)?,
                Record::Take(blocks, content) => self.take(&mut judged, blocks, &content)?,
                Record::Free(blocks) => {
                    judged.kept += COST;
                    frees.push(blocks);
                }
                Record::Branch { .. } | Record::Drop(_) => {}
            }
            if self.kept + judged.kept > KEPT_MAX {
                return malformed("the log says more than can be kept");
            }
        }
        if !frees.is_empty() {
            let held = judged.held(value);
            for blocks in frees {
                self.free(&mut judged, &held, blocks)?;
            }
        }
        Ok(judged)
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

    fn free(&self, judged: &mut Judged, held: &Blocks, blocks: BlockRange) -> Result<(), Refusal> {
        let ((start, end), count) = (ends(blocks), blocks.count);
        if self.freed.touches(start, end) || judged.freed.touches(start, end) {
            return misused(start, count, "are given back twice");
        }
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
        if held.end_at(start).is_none_or(|last| last < end) {
            return misused(
                start,
                count,
                "are given back, but belong to nothing that the batch changes",
            );
        }
        judged.freed.insert(start, end);
        Ok(())
    }

    /// Carries out what was judged. `block` is where the batch lies.
    pub(super) fn apply(&mut self, judged: Judged, block: BlockNo, replay: &mut Replay) {
        let items = judged.items.into_iter().map(|(key, value)| (key, Change { value, block }));
        replay.items.extend(items);
        self.taken.absorb(&judged.taken);
        self.data.absorb(judged.data);
        for run in judged.freed.runs().iter() {
            self.data.forget(run.start, run.end);
        }
        self.freed.absorb(&judged.freed);
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
