//! The changes between two moments: each key once, with its final value.
//!
//! The tables are keyed by number, so what leaves an inode cache above loses nothing.

use std::hash::BuildHasher;

use hashbrown::{HashTable, hash_table};
use holdfast_base::mutants::{self, Mutant};
use holdfast_base::units::BLOCK_SIZE;
use holdfast_base::{BlockRange, InodeNo, Lsn};
use holdfast_format::item::lineage::MAIN;
use holdfast_format::journal::DataExtent;
use holdfast_format::log::{BATCH_BYTES_MAX, Dropped, LogHeader};
use holdfast_format::{ItemKind, Key};
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::arrivals::Operation;
use super::bounds::{
    BRANCH_BYTES, DROPPED_BYTES, INODE_BYTES, RECORD_BYTES, bound_of_change, bound_of_taken,
};
use super::values::{Value, Values};
use crate::transaction::{Change, Taken, TakenContent};

/// Entries for which memory is kept, however few were in use.
const SPARE_ENTRIES: usize = 64;

/// A generation that may have more bytes than this is followed by a new one: one batch holds it, and
/// the operation that is added last. The same holds for its memory.
const BEGIN_BYTES: usize = BATCH_BYTES_MAX / 4 * 3;

/// A key and what it became.
#[derive(Debug)]
struct Entry {
    /// The branch of the key; 0: the lineage.
    branch: u64,
    key: Key,
    /// The value; when it has none any more, room for another.
    value: Value,
    is_deleted: bool,
}

impl Entry {
    /// More bytes than its record can have.
    fn bound(&self) -> usize {
        bound_of_change(&self.key, (!self.is_deleted).then_some(self.value.len()))
    }
}

/// What is known of one inode in a generation.
#[derive(Clone, Copy, Debug, Default)]
struct OfInode {
    /// Its own entry.
    entry: Option<u32>,
    /// Entries of its keys, and of names that lead to it.
    records: u32,
}

/// The changes between two moments.
#[derive(Debug)]
pub(crate) struct Generation {
    pub(super) after: Lsn,
    pub(super) last: Lsn,
    /// Blocks have moved within a file: no batch can say that, see [`crate::Transaction::moves_blocks`].
    pub(super) moves: bool,
    /// Inodes in `main` at `last`.
    pub(super) inode_count: u64,
    /// Inodes in each other branch that changed.
    counts: FxHashMap<u64, u64>,
    /// Of the entry that was added last.
    last_branch: u64,
    entries: Vec<Entry>,
    values: Values,
    inodes: FxHashMap<(u64, InodeNo), OfInode>,
    /// Entries of all keys but those of inodes themselves, by the key: numbers only, or the table would be larger
    /// than what it leads to.
    others: HashTable<u32>,
    pub(super) taken: Vec<Taken>,
    pub(super) freed: Vec<BlockRange>,
    /// Each with its branch.
    pub(super) dropped: Vec<(u64, Dropped)>,
    unflushed_blocks: u64,
    bound: usize,
}

impl Generation {
    pub(super) fn new(after: Lsn) -> Box<Generation> {
        Box::new(Generation {
            after,
            last: after,
            moves: false,
            inode_count: 0,
            counts: FxHashMap::default(),
            last_branch: MAIN,
            entries: Vec::new(),
            values: Values::default(),
            inodes: FxHashMap::default(),
            others: HashTable::new(),
            taken: Vec::new(),
            freed: Vec::new(),
            dropped: Vec::new(),
            unflushed_blocks: 0,
            bound: 0,
        })
    }

    /// Empties it, so that its memory can be used again; `None` if it has much more than it needed, or one burst
    /// would keep it for ever. What lay in it is given back here, without a lock that operations take.
    pub(super) fn emptied(mut self: Box<Self>) -> Option<Box<Generation>> {
        let suits = |capacity: usize, used: usize, least| capacity <= (4 * used).max(least);
        if !suits(self.entries.capacity(), self.entries.len(), SPARE_ENTRIES)
            || !suits(self.values.capacity(), self.values.bytes(), SPARE_ENTRIES * INODE_BYTES)
            || !suits(self.taken.capacity(), self.taken.len(), SPARE_ENTRIES)
            || !suits(self.freed.capacity(), self.freed.len(), SPARE_ENTRIES)
            || !suits(self.dropped.capacity(), self.dropped.len(), SPARE_ENTRIES)
        {
            return None;
        }
        // All of them by name, so that none is forgotten that is added.
        let Generation {
            after: _,
            last: _,
            moves,
            inode_count,
            counts,
            last_branch,
            entries,
            values,
            inodes,
            others,
            taken,
            freed,
            dropped,
            unflushed_blocks,
            bound,
        } = &mut *self;
        entries.clear();
        values.clear();
        inodes.clear();
        others.clear();
        taken.clear();
        freed.clear();
        dropped.clear();
        counts.clear();
        *last_branch = MAIN;
        *moves = false;
        (*inode_count, *unflushed_blocks, *bound) = (0, 0, 0);
        Some(self)
    }

    /// Whether the next operation begins another: a batch may not hold both.
    pub(super) fn is_full(&self) -> bool {
        self.bytes() > BEGIN_BYTES
    }

    /// What it takes in memory or in a batch, about.
    pub(super) fn bytes(&self) -> usize {
        self.bound.max(self.values.bytes())
    }

    /// Blocks of data that wait for a flush.
    pub(super) fn unflushed_blocks(&self) -> u64 {
        self.unflushed_blocks
    }

    pub(super) fn is_empty(&self) -> bool {
        self.after == self.last
    }

    /// The entry of an inode itself, in constant time (M4).
    pub(super) fn inode(&self, branch: u64, no: InodeNo) -> Option<usize> {
        Some(self.inodes.get(&(branch, no))?.entry? as usize)
    }

    /// The branch of a key that changed; 0: the lineage.
    pub(super) fn branch(&self, at: usize) -> u64 {
        self.entries[at].branch
    }

    /// Inodes in a branch at the end.
    pub(super) fn inodes_in(&self, branch: u64) -> u64 {
        self.counts.get(&branch).copied().unwrap_or(self.inode_count)
    }

    /// Number of keys that changed.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What a key became.
    pub(crate) fn change(&self, at: usize) -> Change<'_> {
        let entry = &self.entries[at];
        let value = (!entry.is_deleted).then(|| self.values.get(entry.value));
        Change { key: entry.key, value }
    }

    fn note(&mut self, branch: u64, change: Change<'_>) {
        let Change { key, value } = change;
        let next = self.entries.len() as u32;
        let is_inode = key == Key::inode(key.inode);
        let known = if is_inode {
            let of = self.inodes.entry((branch, key.inode)).or_default();
            let known = of.entry.replace(of.entry.unwrap_or(next));
            of.records += u32::from(known.is_none());
            known
        } else {
            let entries = &self.entries;
            let of = |at: &u32| (entries[*at as usize].branch, entries[*at as usize].key);
            let same = |at: &u32| of(at) == (branch, key);
            let hash = |at: &u32| FxBuildHasher.hash_one(of(at));
            match self.others.entry(FxBuildHasher.hash_one((branch, key)), same, hash) {
                hash_table::Entry::Occupied(known) => Some(*known.get()),
                hash_table::Entry::Vacant(place) => {
                    place.insert(next);
                    None
                }
            }
        };
        match known {
            Some(at) => {
                let weaker = mutants::is(Mutant::FirstValue)
                    || mutants::is(Mutant::WeakerInode) && is_inode && value.is_some();
                let entry = &mut self.entries[at as usize];
                self.bound -= entry.bound();
                if !weaker {
                    entry.is_deleted = value.is_none();
                    if let Some(value) = value {
                        entry.value = self.values.replace(entry.value, value);
                    }
                }
                self.bound += entry.bound();
            }
            None => {
                if !is_inode {
                    self.inodes.entry((branch, key.inode)).or_default().records += 1;
                    if let Some(child) = change.leads_to() {
                        self.inodes.entry((branch, child)).or_default().records += 1;
                    }
                }
                let is_deleted = value.is_none();
                let value = value.map_or(Value::EMPTY, |value| self.values.add(value));
                let entry = Entry { branch, key, value, is_deleted };
                self.bound += entry.bound();
                if std::mem::replace(&mut self.last_branch, branch) != branch {
                    self.bound += BRANCH_BYTES;
                }
                self.entries.push(entry);
            }
        }
    }

    fn take(&mut self, taken: Taken) {
        self.bound += bound_of_taken(&taken);
        self.unflushed_blocks += taken.unflushed_blocks();
        self.taken.push(taken);
    }

    /// An operation became visible: everything that it changed.
    pub(super) fn add(&mut self, operation: Operation<'_, '_>) {
        let Operation { lsn, counts, moves, changes, taken, freed, dropped } = operation;
        assert_eq!(lsn, self.last.next(), "operations follow one another");
        self.last = lsn;
        self.moves |= moves;
        self.inode_count = counts.main;
        let branch = counts.branch;
        if branch != MAIN && branch != 0 {
            self.counts.insert(branch, counts.inodes);
        }
        let noted = changes.filter(|change| !is_forgotten(change));
        noted.for_each(|change| self.note(branch, change));
        taken.for_each(|taken| self.take(taken));
        for range in freed {
            self.bound += RECORD_BYTES;
            self.freed.push(range);
        }
        for of in dropped {
            self.bound += DROPPED_BYTES;
            self.dropped.push((branch, of));
        }
    }

    /// More bytes than the batch can have that holds it.
    pub(super) fn batch_bound(&self) -> usize {
        self.bound + LogHeader::SIZE + BLOCK_SIZE
    }

    /// Records that tell of an inode and its names, and all records.
    pub(super) fn records(&self, of: InodeNo) -> (u64, u64) {
        let branches = self.counts.keys().copied().chain([MAIN]);
        let own = branches.filter_map(|branch| self.inodes.get(&(branch, of)));
        let own: u32 = own.map(|of| of.records).sum();
        let all = self.entries.len() + self.taken.len() + self.freed.len() + self.dropped.len();
        (u64::from(own), all as u64)
    }

    /// The data of the first `count` pieces is durable. Calls `durable` for those that had waited for it.
    pub(super) fn flushed(&mut self, count: usize, mut durable: impl FnMut(DataExtent)) {
        for taken in self.taken.iter_mut().take(count) {
            if let TakenContent::Written(sum) = taken.content {
                durable(taken.extent(sum));
                taken.content = TakenContent::Durable;
                self.unflushed_blocks -= taken.blocks.count;
            }
        }
    }
}

#[cfg(test)]
impl Generation {
    /// All that it says, of these inodes, and none of how its memory is laid out.
    pub(super) fn shown(&self, of: &[u64]) -> String {
        let changes: Vec<_> = (0..self.len()).map(|at| self.change(at)).collect();
        let of: Vec<_> = of.iter().map(|no| self.inodes.get(&(MAIN, InodeNo(*no)))).collect();
        format!(
            "{:?} {of:?} {} {changes:?} {:?} {:?} {} {} {} {}",
            (self.after, self.last),
            self.inode_count,
            self.taken,
            self.freed,
            self.unflushed_blocks,
            self.bound,
            self.values.bytes(),
            self.others.len(),
        )
    }

    /// Whether it has memory for more than one generation is to hold.
    pub(super) fn is_large(&self) -> bool {
        self.values.capacity() > BEGIN_BYTES
    }
}

/// The mutants by which the log forgets something.
fn is_forgotten(change: &Change<'_>) -> bool {
    match change.key.kind {
        ItemKind::Dentry => mutants::is(Mutant::RenameHalf) && change.value.is_none(),
        ItemKind::Xattr | ItemKind::XattrPiece => mutants::is(Mutant::XattrsForgotten),
        ItemKind::Orphan => mutants::is(Mutant::OrphanForgotten) && change.value.is_some(),
        _ => false,
    }
}
