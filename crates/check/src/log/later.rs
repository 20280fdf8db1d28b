//! What was made behind a hole: behind batches or commits that are lost although they were durable.
//!
//! No mount goes on behind a hole, as it shows one moment of history (P3). A repair and a salvage take besides what is known to the last
//! byte without what is lost: files that were made behind it. Whole batches that follow one another are a *chain*. Of an inode whose number
//! was handed out behind the first of them, the chain says all that there ever was of it. It comes back as it was at the chain's
//! end, with its names; all else stays as it was before the hole.
//!
//! A chain counts only if it says that the batch before it was durable: neither what a crash tore nor what a recovery gave up says so.
//! Memory is bounded as that of the replay (P10).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use holdfast_base::{BatchNo, BlockNo, InodeNo, TreeId};
use holdfast_format::item::lineage::MAIN;
use holdfast_format::item::{Dentry, Extent, InodeItem, TreeKind};
use holdfast_format::journal::DataExtent;
use holdfast_format::log::{
    Content, DATA_BLOCKS_MAX, Decoder, LogHeader, REPLAY_BYTES_MAX, Record,
};
use holdfast_format::{ItemKind, Key};

use super::apply::KEPT_MAX;
use super::blocks::Blocks;
use super::judged::{COST, OfBranch, ends};
use super::{BranchChanges, Replay, Ring};
use crate::changes::Change;
use crate::lineage::Lineage;
use crate::patched::Patched;
use crate::runs::Runs;
use crate::volume::Volume;

/// How a reader takes a hole in journal or log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holes {
    /// History ends there: what a mount shows.
    End,
    /// What was made behind it, and is wholly known without it, counts as well.
    Cross,
}

/// What counts of the batches behind a hole.
#[derive(Clone, Debug, Default)]
pub(crate) struct Later {
    /// Whether there is a hole.
    pub(crate) has_hole: bool,
    /// Files that were made there: branch and number.
    pub(crate) files: BTreeSet<(u64, InodeNo)>,
    /// Keys of the names that lead to them.
    pub(crate) names: BTreeSet<OfBranch>,
    /// One of these for each file that has any.
    pub(crate) places: BTreeMap<(u64, InodeNo), Key>,
    /// Blocks that these batches take, or on which data in them builds: as long as the hole may be crossed nothing may be written there
    /// (P9).
    pub(crate) needed: Vec<(u64, u64)>,
}

/// A whole batch: its header and records.
type Batch = (LogHeader, Vec<u8>);

/// Batches that follow one another, and the last one that they call durable.
struct Linked {
    durable: u64,
    batches: Vec<Batch>,
}

/// What a chain says.
#[derive(Debug, Default)]
struct Chain {
    /// The first number that was not handed out before its second batch.
    first: u64,
    inode_next: u64,
    /// Of inodes from `first` on, and names that lead to them: the values, and where the batches lie.
    items: BTreeMap<OfBranch, (Vec<u8>, BlockNo)>,
    taken: Blocks,
    data: Patched,
}

/// All chains on their way.
struct Reading<'r, 'a> {
    before: &'r Volume<'a>,
    ring: &'r Ring<'a>,
    /// The last batch that any batch calls durable.
    proven: u64,
    /// Blocks of data that must be read to see whether they arrived (P10).
    unproven: u64,
    kept: u64,
    needed: Vec<(u64, u64)>,
    /// Inodes that a chain says are removed.
    gone: BTreeSet<(u64, InodeNo)>,
}

/// Takes what can be taken of the batches from the end of `replay` on.
pub(super) fn take(before: &Volume<'_>, ring: &Ring<'_>, replay: &mut Replay) {
    let (batches, proven) = chains(ring, replay.end.batch.0);
    let (gone, needed) = (BTreeSet::new(), Vec::new());
    let mut reading = Reading { before, ring, proven, unproven: 0, kept: 0, needed, gone };
    let chains = batches.iter().map(|of| reading.chain(&of.batches, &replay.data));
    let chains: Vec<Chain> = chains.collect();
    (replay.later.has_hole, replay.later.needed) = (true, reading.needed);
    let mut lineage = Lineage::read(before);
    for (key, change) in &replay.lineage {
        match &change.value {
            Some(value) => drop(lineage.0.insert(*key, value.clone())),
            None => drop(lineage.0.remove(key)),
        }
    }
    let used = before.marks().unwrap_or_default().changed(&replay.taken, &Runs::default());
    let mut owned = Blocks::default();
    // Between chains blocks may have been freed and used again: the last owner has them, and the last name its place.
    for chain in chains.into_iter().rev() {
        chain.join(&lineage, (&used, &mut owned), &reading.gone, replay);
    }
    let owned = owned.runs();
    let now = &mut replay.superblock.used_blocks;
    *now = now.saturating_add(owned.total());
    replay.taken = replay.taken.changed(&owned, &Runs::default());
}

/// The chains of whole batches from number `from` on, in the order of their numbers, and the last batch that any calls durable.
fn chains(ring: &Ring<'_>, from: u64) -> (Vec<Linked>, u64) {
    let (mut found, mut bytes) = (BTreeMap::new(), 0u64);
    ring.beyond(BatchNo(from), &mut |header, records| {
        bytes = bytes.saturating_add(header.bytes.into());
        if bytes <= REPLAY_BYTES_MAX {
            found.insert((header.number, header.sum), (*header, records.to_vec()));
        }
    });
    let proven = found.values().map(|(header, _)| header.durable).max().unwrap_or(0);
    let (mut chains, mut ends) = (Vec::<Linked>::new(), HashMap::new());
    for ((number, sum), batch) in found {
        let header = &batch.0;
        let at = |prior| ends.get(&(number.wrapping_sub(1), prior)).copied();
        // One that only confirms the batch before it: nothing follows it.
        if let Some(at) = at(!header.prior).filter(|_| header.records == 0) {
            let confirmed: Option<&mut Linked> = chains.get_mut(at);
            confirmed
                .into_iter()
                .for_each(|chain| chain.durable = chain.durable.max(header.durable));
            continue;
        }
        let last: Option<usize> = at(header.prior);
        let follows = |chain: &&mut Linked| {
            chain.batches.last().is_some_and(|(last, _)| ring.follows(last, header))
        };
        let at = last.unwrap_or_default();
        match last.and_then(|at| chains.get_mut(at)).filter(follows) {
            Some(chain) => {
                chain.durable = chain.durable.max(header.durable);
                chain.batches.push(batch);
                ends.insert((number, sum), at);
            }
            None => {
                ends.insert((number, sum), chains.len());
                chains.push(Linked { durable: header.durable, batches: vec![batch] });
            }
        }
    }
    chains.retain(|chain| {
        let first = chain.batches.first().map_or(u64::MAX, |(first, _)| first.number);
        first <= chain.durable.saturating_add(1)
    });
    (chains, proven)
}

impl Reading<'_, '_> {
    /// What a chain says, up to the first batch that cannot be, or whose data did not arrive.
    fn chain(&mut self, batches: &[Batch], before: &Patched) -> Chain {
        let mut chain = Chain::default();
        for (at, (header, records)) in batches.iter().enumerate() {
            let now = self.before.superblock;
            let decoder = Decoder::new(records, header.records, &now.geometry, now.carried());
            let Ok(records) = decoder.collect::<Result<Vec<_>, _>>() else { break };
            if header.inode_next < chain.inode_next || !self.arrived(header, &records) {
                break;
            }
            self.need(&records);
            if at == 0 {
                chain.first = header.inode_next;
            }
            chain.inode_next = header.inode_next;
            let block = self.ring.block(header.address);
            if !self.say(&mut chain, records, block, before) {
                // A part of a batch counts no more than that of a file.
                return Chain::default();
            }
        }
        chain
    }

    /// Whether the data that a batch names by sums is there, or known to have been.
    fn arrived(&mut self, header: &LogHeader, records: &[Record<'_>]) -> bool {
        if header.number <= self.proven {
            return true;
        }
        let named = |record: &Record<'_>| match record {
            Record::Take(blocks, Content::Summed(sum)) => {
                Some(DataExtent { block: blocks.start.0, count: blocks.count, sum: *sum })
            }
            _ => None,
        };
        let named: Vec<DataExtent> = records.iter().filter_map(named).collect();
        let blocks = named.iter().fold(0u64, |sum, extent| sum.saturating_add(extent.count));
        self.unproven = self.unproven.saturating_add(blocks);
        self.unproven <= DATA_BLOCKS_MAX
            && crate::arrived::missing(self.before.device, &named).is_none()
    }

    fn need(&mut self, records: &[Record<'_>]) {
        for record in records {
            let Record::Take(blocks, content) = record else { continue };
            self.needed.push(ends(*blocks));
            if let Content::Inside(patches) = content {
                let bases = patches.iter().filter_map(|patch| patch.base);
                self.needed.extend(bases.map(|base| (base.0, base.0.saturating_add(1))));
            }
        }
    }

    /// Adds what the records of a batch say. Whether that can be.
    fn say(
        &mut self,
        chain: &mut Chain,
        records: Vec<Record<'_>>,
        block: BlockNo,
        before: &Patched,
    ) -> bool {
        let mut branch = MAIN;
        for record in records {
            match record {
                Record::Branch { id, .. } => branch = id,
                Record::Put(key, value) => self.put(chain, (branch, key), value.into(), block),
                Record::Inode(inode, item) => {
                    // The last word counts: a file may be made without a name.
                    match item.nlink {
                        0 => self.gone.insert((branch, inode)),
                        _ => self.gone.remove(&(branch, inode)),
                    };
                    self.put(chain, (branch, Key::inode(inode)), item.encode(), block);
                }
                Record::Delete(key) => {
                    if key == Key::inode(key.inode) {
                        self.gone.insert((branch, key.inode));
                    }
                    chain.items.remove(&(branch, key));
                }
                Record::Take(blocks, content) => {
                    let (start, end) = ends(blocks);
                    if chain.taken.touches(start, end) {
                        return false;
                    }
                    chain.taken.insert(start, end);
                    let Content::Inside(patches) = content else { continue };
                    for (block, patch) in (start..).zip(&patches) {
                        self.kept += COST + patch.bytes.len() as u64;
                        chain.data.add(BlockNo(block), patch, before);
                    }
                }
                Record::Free(_) | Record::Drop(_) => {}
            }
            if self.kept > KEPT_MAX {
                return false;
            }
        }
        true
    }

    /// A key gets a value: that of a file that the chain made, or that of a name of one. A name that leads elsewhere is none.
    fn put(&mut self, chain: &mut Chain, (branch, key): OfBranch, value: Vec<u8>, block: BlockNo) {
        let of = match key.kind {
            ItemKind::Dentry => Dentry::decode(&value).map_or(0, |dentry| dentry.inode.0),
            ItemKind::Punch => key.offset,
            _ => key.inode.0,
        };
        let is_of_files = key.kind.tree() == TreeId::Files;
        if is_of_files && of >= chain.first {
            self.kept += COST + value.len() as u64;
            chain.items.insert((branch, key), (value, block));
        } else {
            chain.items.remove(&(branch, key));
        }
    }
}

impl Chain {
    /// Puts the files that it made into `replay`. `used` are blocks of what stood before the hole, `owned` those of files of other
    /// chains.
    fn join(
        self,
        lineage: &Lineage,
        (used, owned): (&Runs, &mut Blocks),
        gone: &BTreeSet<(u64, InodeNo)>,
        replay: &mut Replay,
    ) {
        let (mut files, mut own) = (BTreeSet::new(), Blocks::default());
        for ((branch, key), (value, _)) in &self.items {
            let of = (*branch, key.inode);
            let is_there = *key == Key::inode(key.inode)
                && InodeItem::decode(value).is_ok_and(|item| item.nlink > 0)
                && !gone.contains(&of)
                && is_branch(lineage, *branch);
            if is_there && let Some(blocks) = self.blocks(of, used, [owned, &own]) {
                blocks.iter().for_each(|(start, end)| own.insert(*start, *end));
                files.insert(of);
            }
        }
        for ((branch, key), (mut value, block)) in self.items {
            let of = match key.kind {
                ItemKind::Dentry => Dentry::decode(&value).map_or(InodeNo(0), |of| of.inode),
                ItemKind::Punch => InodeNo(key.offset),
                _ => key.inode,
            };
            let is_behind = || replay.later.names.contains(&(branch, key));
            if !files.contains(&(branch, of)) || is_behind() {
                continue;
            }
            match key.kind {
                ItemKind::Dentry => {
                    replay.later.names.insert((branch, key));
                    replay.later.places.insert((branch, of), key);
                }
                ItemKind::Extent => Extent::be_born_by(&mut value, replay.superblock.epoch.next()),
                _ => {}
            }
            let items = match branch {
                MAIN => &mut replay.items,
                other => &mut changes_of(replay, lineage, other).items,
            };
            items.insert(key, Change { value: Some(value), block });
        }
        for (branch, _) in &files {
            let count = match *branch {
                MAIN => &mut replay.superblock.inode_count,
                other => &mut changes_of(replay, lineage, other).inode_count,
            };
            *count = count.saturating_add(1);
        }
        if !files.is_empty() {
            let next = &mut replay.superblock.inode_next;
            *next = InodeNo(next.0.max(self.inode_next));
        }
        replay.data.absorb(self.data.only(|block| own.end_at(block.0).is_some()));
        owned.absorb(&own);
        replay.later.files.append(&mut files);
    }

    /// The blocks of a file, if the chain took all of them and nothing else has any.
    fn blocks(
        &self,
        (branch, inode): (u64, InodeNo),
        used: &Runs,
        owned: [&Blocks; 2],
    ) -> Option<Vec<(u64, u64)>> {
        let first = (branch, Key::new(inode, ItemKind::Extent, 0));
        let last = (branch, Key::new(inode, ItemKind::Extent, u64::MAX));
        let mut own = Blocks::default();
        for (value, _) in self.items.range(first..=last).map(|(_, item)| item) {
            let (start, end) = ends(Extent::decode(value).ok()?.blocks);
            let is_taken = self.taken.end_at(start).is_some_and(|taken| end <= taken);
            let is_owned = owned.iter().any(|of| of.touches(start, end));
            if !is_taken || used.touches(start, end) || is_owned {
                return None;
            }
            if own.touches(start, end) {
                return None;
            }
            own.insert(start, end);
        }
        Some(own.runs().iter().map(|run| (run.start, run.end)).collect())
    }
}

fn is_branch(lineage: &Lineage, id: u64) -> bool {
    let is_branch = || lineage.tree(id).is_some_and(|item| item.kind == TreeKind::Branch);
    id == MAIN || is_branch() && lineage.root(id).is_some()
}

/// What the log changes of a branch other than `main`.
fn changes_of<'r>(replay: &'r mut Replay, lineage: &Lineage, id: u64) -> &'r mut BranchChanges {
    let inode_count = || lineage.root(id).map_or(0, |root| root.inode_count);
    let new = || BranchChanges { items: BTreeMap::new(), inode_count: inode_count() };
    replay.branches.entry(id).or_insert_with(new)
}
