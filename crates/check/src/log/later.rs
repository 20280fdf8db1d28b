//! What was made behind a hole: behind batches or commits that are lost although they were durable.
//!
//! No mount goes on behind a hole, as it shows one moment of history (P3). A repair and a salvage take besides what is known to the last
//! byte without what is lost: files that were made behind it. Whole batches that follow one another, by number, sum and operation, are a
//! *chain*: neither an operation nor a change of the lineage lies between two of them, as that takes a number of its own. Of an inode whose
//! number was handed out behind what the chain follows, it says all that there ever was. It comes back as it was at the chain's end, with
//! its names; all else stays as it was before the hole.
//!
//! A chain counts only if it says that the batch before it was durable: neither what a crash tore nor what a recovery gave up says so. What was
//! lost may have used blocks of a file again, so its data is read: of a file that has some left the rest does not read, a file that has none stays
//! away. Memory is bounded as that of the replay (P10).

use std::collections::{BTreeMap, BTreeSet};

use holdfast_base::{BlockNo, InodeNo, TreeId};
use holdfast_format::item::lineage::MAIN;
use holdfast_format::item::{Dentry, Extent, InodeItem};
use holdfast_format::journal::DataExtent;
use holdfast_format::log::{Content, DATA_BLOCKS_MAX, Decoder, LogHeader, Record};
use holdfast_format::{ItemKind, Key, Malformed};

use super::apply::{KEPT_MAX, value_of};
use super::blocks::Blocks;
use super::chains::{self, Linked};
use super::judged::{COST, OfBranch};
use super::{BranchChanges, Replay, Ring};
use crate::changes::Change;
use crate::data_sums;
use crate::lineage::Lineage;
use crate::patched::Patched;
use crate::runs::Runs;
use crate::volume::{Look, Volume};

/// How a reader takes a hole in journal or log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gaps {
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
    /// Files that were made there, by branch and number.
    pub(crate) files: BTreeMap<(u64, InodeNo), MadeLater>,
    /// Keys of the names that lead to them, and the batch that put each.
    pub(crate) names: BTreeMap<OfBranch, u64>,
    /// One of these for each file that has any.
    pub(crate) places: BTreeMap<(u64, InodeNo), Key>,
    /// Blocks that these batches take, or on which data in them builds, whether they count or not: as long as the hole may be crossed
    /// nothing may be written there (P9).
    pub(crate) needed: Runs,
}

/// A file that was made behind a hole of the rings, and is there all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MadeLater {
    /// The last batch that counts of what changed it.
    pub last_batch: u64,
    /// Blocks of its data.
    pub blocks: u64,
    /// Of those, blocks that do not match their sums: something else used them since.
    pub used_again: u64,
    /// Of those, blocks that do not read.
    pub unread: u64,
}

/// The value of a key, the batch that put it, and where that lies.
#[derive(Debug)]
struct Item {
    value: Vec<u8>,
    batch: u64,
    block: BlockNo,
}

/// What a chain says.
#[derive(Debug, Default)]
struct Chain {
    /// The first number that was not handed out before what it says.
    first: u64,
    inode_next: u64,
    /// Of inodes from `first` on, and names that lead to them.
    items: BTreeMap<OfBranch, Item>,
    /// The last batch that says something of such an inode.
    changed: BTreeMap<(u64, InodeNo), u64>,
    /// Names that it put or removed.
    names: BTreeSet<OfBranch>,
    /// Of those, names that it removed.
    removed: BTreeSet<OfBranch>,
    /// Older inodes of which it says something.
    older: BTreeSet<(u64, InodeNo)>,
    taken: Blocks,
    data: Patched,
}

/// What chains have that come later: that is not an earlier one's any more.
#[derive(Default)]
struct Behind {
    taken: Blocks,
    names: BTreeSet<OfBranch>,
    /// Blocks of files that are there.
    owned: Blocks,
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
    /// Inodes that a chain says are removed.
    gone: BTreeSet<(u64, InodeNo)>,
}

/// Takes what can be taken of the batches from the end of `replay` on.
pub(super) fn take(before: &Volume<'_>, ring: &Ring<'_>, replay: &mut Replay) {
    replay.later.has_hole = true;
    // Without the marks no block is known to be free for it.
    let Some(marks) = before.marks() else { return };
    let found = chains::read(ring, replay);
    replay.later.needed = found.needed;
    let (proven, gone) = (found.proven, BTreeSet::new());
    let mut reading = Reading { before, ring, proven, unproven: 0, kept: 0, gone };
    let chains = found.chains.iter().map(|of| reading.chain(of, &replay.data));
    let chains: Vec<Chain> = chains.collect();
    let mut lineage = Lineage::read(before);
    for (key, change) in &replay.lineage {
        lineage.set(*key, &change.value);
    }
    let used = marks.changed(&replay.taken, &Runs::default());
    let mut behind = Behind::default();
    // Between chains blocks may have been freed and used again: the last owner has them, and the last name its place.
    for chain in chains.into_iter().rev() {
        chain.join((before, &lineage), &used, &mut behind, &reading.gone, replay);
    }
    let owned = behind.owned.runs();
    let now = &mut replay.superblock.used_blocks;
    *now = now.saturating_add(owned.total());
    replay.taken = replay.taken.changed(&owned, &Runs::default());
}

impl Reading<'_, '_> {
    /// What a chain says, up to the first batch that cannot be, or whose data did not arrive.
    fn chain(&mut self, linked: &Linked, before: &Patched) -> Chain {
        let mut chain = Chain::default();
        for (at, (header, records)) in linked.batches.iter().enumerate() {
            let now = self.before.superblock;
            let decoder = Decoder::new(records, header.records, &now.geometry, now.carried());
            let Ok(records) = decoder.collect::<Result<Vec<_>, _>>() else { break };
            if header.inode_next < chain.inode_next || !self.arrived(header, &records) {
                break;
            }
            if at == 0 {
                // A forged one would make what is there new.
                let first = linked.first.unwrap_or(header.inode_next);
                chain.first = first.max(now.inode_next.0);
            }
            chain.inode_next = header.inode_next;
            if !self.say(&mut chain, header, records, before) {
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
        self.unproven <= DATA_BLOCKS_MAX && data_sums::missing(self.before.device, &named).is_none()
    }

    /// Adds what the records of a batch say. Whether that can be.
    fn say(
        &mut self,
        chain: &mut Chain,
        header: &LogHeader,
        records: Vec<Record<'_>>,
        before: &Patched,
    ) -> bool {
        let (mut branch, mut taken) = (MAIN, Blocks::default());
        for record in records {
            match record {
                Record::Branch { id, .. } => branch = id,
                Record::Put(key, value) => self.put(chain, (branch, key), value.into(), header),
                Record::Inode(inode, item) => {
                    // The last word counts: a file may be made without a name.
                    match item.nlink {
                        0 => self.gone.insert((branch, inode)),
                        _ => self.gone.remove(&(branch, inode)),
                    };
                    self.put(chain, (branch, Key::inode(inode)), item.encode(), header);
                }
                Record::Delete(key) => {
                    if key == Key::inode(key.inode) {
                        self.gone.insert((branch, key.inode));
                    }
                    self.told(chain, (branch, key), header);
                    if key.kind == ItemKind::Dentry {
                        chain.removed.insert((branch, key));
                    }
                    self.remove(chain, &(branch, key));
                }
                Record::Take(blocks, content) => {
                    let (start, end) = blocks.ends();
                    if taken.touches(start, end) {
                        return false;
                    }
                    taken.insert(start, end);
                    // What was freed meanwhile may be taken again.
                    chain.taken.unite(start, end);
                    chain.data.forget(start, end);
                    self.kept += COST;
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
    fn put(&mut self, chain: &mut Chain, of: OfBranch, value: Vec<u8>, header: &LogHeader) {
        self.told(chain, of, header);
        self.remove(chain, &of);
        let inode = inode_of(&of.1, &value);
        if of.1.kind.tree() == TreeId::Files && inode.0 >= chain.first {
            self.kept += COST + value.len() as u64;
            let (batch, block) = (header.number, self.ring.block(header.address));
            chain.items.insert(of, Item { value, batch, block });
        }
    }

    fn remove(&mut self, chain: &mut Chain, of: &OfBranch) {
        if let Some(item) = chain.items.remove(of) {
            self.kept = self.kept.saturating_sub(COST + item.value.len() as u64);
        }
    }

    /// The chain says something of a key.
    fn told(&mut self, chain: &mut Chain, (branch, key): OfBranch, header: &LogHeader) {
        if key.kind == ItemKind::Dentry && chain.names.insert((branch, key)) {
            self.kept += COST;
        }
        let of =
            (branch, if key.kind == ItemKind::Punch { InodeNo(key.offset) } else { key.inode });
        let is_new = match of.1.0 >= chain.first {
            true => chain.changed.insert(of, header.number).is_none(),
            false => chain.older.insert(of),
        };
        if is_new {
            self.kept += COST;
        }
    }
}

/// The inode that a value is of: a name is of what it leads to.
fn inode_of(key: &Key, value: &[u8]) -> InodeNo {
    match key.kind {
        ItemKind::Dentry => Dentry::decode(value).map_or(InodeNo(0), |dentry| dentry.inode),
        ItemKind::Punch => InodeNo(key.offset),
        _ => key.inode,
    }
}

impl Chain {
    /// Puts the files that it made into `replay`. `used` are blocks of what stood before the hole, which `before` and `lineage` lead to.
    fn join(
        self,
        (before, lineage): (&Volume<'_>, &Lineage),
        used: &Runs,
        behind: &mut Behind,
        gone: &BTreeSet<(u64, InodeNo)>,
        replay: &mut Replay,
    ) {
        let (mut files, mut own) = (BTreeMap::new(), Blocks::default());
        for ((branch, key), Item { value, .. }) in &self.items {
            let of = (*branch, key.inode);
            let is_there = *key == Key::inode(key.inode)
                && InodeItem::decode(value).is_ok_and(|item| item.nlink > 0)
                && !gone.contains(&of)
                && !replay.later.files.contains_key(&of)
                && (*branch == MAIN || lineage.has_branch(*branch));
            if is_there && let Some(blocks) = self.blocks(of, used, [&behind.taken, &own]) {
                // Whatever comes of it: each block is read for one file.
                blocks.iter().for_each(|(start, end)| own.insert(*start, *end));
                files.extend(self.file(of, before).map(|file| (of, file)));
            }
        }
        for (of, item) in &self.items {
            let (branch, key) = *of;
            let inode = inode_of(&key, &item.value);
            if !files.contains_key(&(branch, inode)) {
                continue;
            }
            let mut value = item.value.clone();
            match key.kind {
                ItemKind::Dentry => {
                    if behind.names.contains(of)
                        || self.is_older_name((before, lineage), *of, replay)
                    {
                        continue;
                    }
                    replay.later.names.insert(*of, item.batch);
                    replay.later.places.insert((branch, inode), key);
                }
                ItemKind::Extent => Extent::be_born_by(&mut value, replay.superblock.epoch.next()),
                _ => {}
            }
            let items = match branch {
                MAIN => &mut replay.items,
                other => &mut changes_of(replay, lineage, other).items,
            };
            items.insert(key, Change { value: Some(value), block: item.block });
        }
        for (of, file) in &files {
            let count = match of.0 {
                MAIN => &mut replay.superblock.inode_count,
                other => &mut changes_of(replay, lineage, other).inode_count,
            };
            *count = count.saturating_add(1);
            replay.later.files.insert(*of, *file);
        }
        if !files.is_empty() {
            let next = &mut replay.superblock.inode_next;
            *next = InodeNo(next.0.max(self.inode_next));
        }
        replay.data.absorb(self.data.only(|block| own.end_at(block.0).is_some()));
        behind.owned.absorb(&own);
        self.taken.runs().iter().for_each(|(start, end)| behind.taken.unite(start, end));
        behind.names.extend(self.names);
    }

    /// Whether another file has this name before the hole, and nothing says that it lost it: then it keeps it.
    fn is_older_name(
        &self,
        (before, lineage): (&Volume<'_>, &Lineage),
        (branch, key): OfBranch,
        replay: &Replay,
    ) -> bool {
        let Look::Found(value) = value_of(before, replay, lineage, branch, &key) else {
            return false;
        };
        let older = (branch, inode_of(&key, &value));
        !self.removed.contains(&(branch, key)) && !self.older.contains(&older)
    }

    fn extents(
        &self,
        (branch, inode): (u64, InodeNo),
    ) -> impl Iterator<Item = Result<Extent, Malformed>> {
        let key = |offset| (branch, Key::new(inode, ItemKind::Extent, offset));
        self.items.range(key(0)..=key(u64::MAX)).map(|(_, item)| Extent::decode(&item.value))
    }

    /// What is left of a file; `None` if all of its data was written over.
    fn file(&self, of: (u64, InodeNo), before: &Volume<'_>) -> Option<MadeLater> {
        let last_batch = self.changed.get(&of).copied().unwrap_or(0);
        let mut file = MadeLater { last_batch, ..MadeLater::default() };
        for extent in self.extents(of).filter_map(Result::ok) {
            file.blocks += extent.sums.len() as u64;
            let (others, unread) = data_sums::other_blocks(before.device, &self.data, &extent);
            file.used_again += others;
            file.unread += unread;
        }
        (file.blocks == 0 || file.used_again < file.blocks).then_some(file)
    }

    /// The blocks of a file, if the chain took all of them and nothing else has any.
    fn blocks(
        &self,
        of: (u64, InodeNo),
        used: &Runs,
        others: [&Blocks; 2],
    ) -> Option<Vec<(u64, u64)>> {
        let mut own = Blocks::default();
        for extent in self.extents(of) {
            let (start, end) = extent.ok()?.blocks.ends();
            let is_taken = self.taken.end_at(start).is_some_and(|taken| end <= taken);
            let is_others = others.iter().any(|of| of.touches(start, end));
            if !is_taken || used.touches(start, end) || is_others || own.touches(start, end) {
                return None;
            }
            own.insert(start, end);
        }
        Some(own.runs().iter().collect())
    }
}

/// What the log changes of a branch other than `main`.
fn changes_of<'r>(replay: &'r mut Replay, lineage: &Lineage, id: u64) -> &'r mut BranchChanges {
    let inode_count = || lineage.root(id).map_or(0, |root| root.inode_count);
    let new = || BranchChanges { items: BTreeMap::new(), inode_count: inode_count() };
    replay.branches.entry(id).or_insert_with(new)
}
