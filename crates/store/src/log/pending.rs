//! What operations changed and the log does not hold yet.
//!
//! Always true: a [`Generation`] holds every change of the operations behind
//! `after`, up to `last`, each key once with its final value. The generations
//! follow one another without a gap, from what is durable to the present. A
//! commit begins a new one at the moment of its freeze, so that no batch of the
//! log reaches over it, and drops those before when it is durable. Until then an
//! fsync logs them too: it never waits for the commit.
//!
//! The table is keyed by number, so what leaves an inode cache above loses nothing.

mod sent;

use std::collections::VecDeque;
use std::hash::BuildHasher;

use hashbrown::{HashTable, hash_table};
use holdfast_base::mutants::{self, Mutant};
use holdfast_base::recover::RecoveryWork;
use holdfast_base::units::BLOCK_SIZE;
use holdfast_base::{BlockRange, InodeNo, Lsn};
use holdfast_format::log::{BATCH_BYTES_MAX, LogHeader, LogMark};
use holdfast_format::{Key, Kind};
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::values::{Value, Values};
use crate::log_resident::LogResident;
use crate::transaction::{Change, Changes, Taken, TakenContent};

/// No record is longer than this without its value, data and patches.
const RECORD_BYTES: usize = 32;
/// No inode is longer than this.
const INODE_BYTES: usize = 192;
/// No patch is longer than this without its bytes.
const PATCH_BYTES: usize = 16;

/// Generations whose memory is kept for the next ones: while one is filled, a batch and a commit may each bring one
/// back.
pub(super) const SPARES: usize = 2;
/// Entries for which memory is kept, however few were in use.
const SPARE_ENTRIES: usize = 64;

/// A generation that may have more bytes than this is followed by a new one: one batch holds it, and
/// the operation that is added last. The same holds for its memory.
const BEGIN_BYTES: usize = BATCH_BYTES_MAX / 4 * 3;

/// A key and what it became.
#[derive(Debug)]
struct Entry {
    key: Key,
    /// The value; when it has none any more, room for another.
    value: Value,
    is_deleted: bool,
}

impl Entry {
    /// More bytes than its record can have.
    fn bound(&self) -> usize {
        match self.key.kind {
            _ if self.is_deleted => RECORD_BYTES,
            Kind::Inode => RECORD_BYTES + INODE_BYTES,
            _ => RECORD_BYTES + self.value.len(),
        }
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
    /// Inodes in the files tree at `last`.
    pub(super) inode_count: u64,
    entries: Vec<Entry>,
    values: Values,
    inodes: FxHashMap<InodeNo, OfInode>,
    /// Entries of all keys but those of inodes themselves, by the key: numbers only, or the table would be larger
    /// than what it leads to.
    others: HashTable<u32>,
    pub(super) taken: Vec<Taken>,
    pub(super) freed: Vec<BlockRange>,
    unflushed_blocks: u64,
    bound: usize,
}

impl Generation {
    fn new(after: Lsn) -> Box<Generation> {
        Box::new(Generation {
            after,
            last: after,
            inode_count: 0,
            entries: Vec::new(),
            values: Values::default(),
            inodes: FxHashMap::default(),
            others: HashTable::new(),
            taken: Vec::new(),
            freed: Vec::new(),
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
        {
            return None;
        }
        // All of them by name, so that none is forgotten that is added.
        let Generation {
            after: _,
            last: _,
            inode_count,
            entries,
            values,
            inodes,
            others,
            taken,
            freed,
            unflushed_blocks,
            bound,
        } = &mut *self;
        entries.clear();
        values.clear();
        inodes.clear();
        others.clear();
        taken.clear();
        freed.clear();
        (*inode_count, *unflushed_blocks, *bound) = (0, 0, 0);
        Some(self)
    }

    /// Whether the next operation begins another: a batch may not hold both.
    fn is_full(&self) -> bool {
        self.bytes() > BEGIN_BYTES
    }

    /// What it takes in memory or in a batch, about.
    fn bytes(&self) -> usize {
        self.bound.max(self.values.bytes())
    }

    /// Blocks of data that wait for a flush.
    pub(super) fn unflushed_blocks(&self) -> u64 {
        self.unflushed_blocks
    }

    fn is_empty(&self) -> bool {
        self.after == self.last
    }

    /// The entry of an inode itself, in constant time (M4).
    pub(super) fn inode(&self, no: InodeNo) -> Option<usize> {
        Some(self.inodes.get(&no)?.entry? as usize)
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

    fn note(&mut self, change: Change<'_>) {
        let Change { key, value } = change;
        let next = self.entries.len() as u32;
        let is_inode = key == Key::inode(key.inode);
        let known = if is_inode {
            let of = self.inodes.entry(key.inode).or_default();
            let known = of.entry.replace(of.entry.unwrap_or(next));
            of.records += u32::from(known.is_none());
            known
        } else {
            let entries = &self.entries;
            let same = |at: &u32| entries[*at as usize].key == key;
            let hash = |at: &u32| FxBuildHasher.hash_one(entries[*at as usize].key);
            match self.others.entry(FxBuildHasher.hash_one(key), same, hash) {
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
                    self.inodes.entry(key.inode).or_default().records += 1;
                    if let Some(child) = change.leads_to() {
                        self.inodes.entry(child).or_default().records += 1;
                    }
                }
                let is_deleted = value.is_none();
                let value = value.map_or(Value::EMPTY, |value| self.values.add(value));
                let entry = Entry { key, value, is_deleted };
                self.bound += entry.bound();
                self.entries.push(entry);
            }
        }
    }

    fn take(&mut self, taken: Taken) {
        self.bound += RECORD_BYTES;
        match &taken.content {
            TakenContent::Unwritten | TakenContent::Durable => {}
            TakenContent::Written(_) => self.unflushed_blocks += taken.blocks.count,
            TakenContent::Inside(blocks, _) => {
                let bytes = blocks.iter().map(|block| block.changed.len() + PATCH_BYTES);
                self.bound += bytes.sum::<usize>();
            }
        }
        self.taken.push(taken);
    }
}

/// Generations, the oldest first. Each has its own allocation: they move from here to the leader and back.
pub(super) type Generations = VecDeque<Box<Generation>>;

/// The mutants by which the log forgets something.
fn is_forgotten(change: &Change<'_>) -> bool {
    match change.key.kind {
        Kind::Dentry => mutants::is(Mutant::RenameHalf) && change.value.is_none(),
        Kind::Xattr | Kind::XattrPiece => mutants::is(Mutant::XattrsForgotten),
        Kind::Orphan => mutants::is(Mutant::OrphanForgotten) && change.value.is_some(),
        _ => false,
    }
}

/// What waits for the log, and where the log stands. Its lock comes after that of the space.
#[derive(Debug)]
pub(crate) struct Pending {
    /// One after the other; operations go to the last one. No other is empty.
    generations: Generations,
    /// The commit that is being made.
    frozen: Option<FrozenGenerations>,
    /// Some that went, for their memory. Each comes to use in turn, and is judged by that.
    spares: Generations,
    place: LogPosition,
    /// No recovery reads what lies before.
    tail: LogPosition,
}

/// What a commit takes that is being made.
#[derive(Debug)]
struct FrozenGenerations {
    /// The generations that it contains, from the first on.
    generations: usize,
    /// What lies in the log before is dead when it is durable.
    log: LogPosition,
}

/// Where the next batch goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogPosition {
    pub(crate) mark: LogMark,
    /// Bytes that were ever written, counted from the opening.
    pub(crate) head: u64,
    /// Of those, bytes of file data.
    pub(crate) data: u64,
}

impl LogPosition {
    /// Where an opened log goes on.
    pub(crate) fn at(mark: LogMark) -> LogPosition {
        LogPosition { mark, head: 0, data: 0 }
    }

    /// What a recovery has to do with the log between an earlier position and this one, with so many bytes of
    /// log-resident data.
    fn since(&self, earlier: &LogPosition, log_resident_bytes: usize) -> RecoveryWork {
        RecoveryWork {
            log_bytes: self.head - earlier.head,
            log_data_bytes: self.data - earlier.data,
            log_blocks: (log_resident_bytes / BLOCK_SIZE) as u64,
            ..RecoveryWork::default()
        }
    }
}

impl Pending {
    /// Nothing is pending; everything up to `lsn` is durable.
    pub(crate) fn new(lsn: Lsn, mark: LogMark) -> Pending {
        let generations = Generations::from([Generation::new(lsn)]);
        let place = LogPosition::at(mark);
        Pending { generations, frozen: None, spares: VecDeque::new(), place, tail: place }
    }

    fn open(&mut self) -> &mut Generation {
        self.generations.back_mut().expect("there is always one to add to")
    }

    /// What comes next is of another generation than what was added last.
    fn end(&mut self) {
        if !self.open().is_empty() {
            self.begin();
        }
    }

    fn begin(&mut self) {
        let after = self.open().last;
        let spare = self.spares.pop_front();
        let mut next = spare.unwrap_or_else(|| Generation::new(after));
        (next.after, next.last) = (after, after);
        self.generations.push_back(next);
    }

    /// Keeps emptied generations for their memory, and returns those for which there is no use: to be dropped
    /// without the lock.
    #[must_use = "the lock is better let go first"]
    pub(crate) fn give_back(&mut self, mut spares: Generations) -> Generations {
        let kept = spares.len().min(SPARES.saturating_sub(self.spares.len()));
        self.spares.extend(spares.drain(..kept));
        spares
    }

    /// Takes out what is kept for its memory.
    pub(crate) fn take_spares(&mut self) -> Generations {
        std::mem::take(&mut self.spares)
    }

    /// An operation became visible: everything that it changed.
    pub(crate) fn add(
        &mut self,
        lsn: Lsn,
        inode_count: u64,
        changes: &Changes,
        taken: Vec<Taken>,
        freed: Vec<BlockRange>,
    ) {
        if self.open().is_full() {
            self.begin();
        }
        let open = self.open();
        assert_eq!(lsn, open.last.next(), "operations follow one another");
        open.last = lsn;
        open.inode_count = inode_count;
        for change in changes.iter() {
            if is_forgotten(&change) {
                continue;
            }
            open.note(change);
        }
        for taken in taken {
            open.take(taken);
        }
        open.bound += freed.len() * RECORD_BYTES;
        open.freed.extend(freed);
    }

    /// Where the log stands. What a batch on its way to the device holds may lie behind it.
    pub(crate) fn place(&self) -> LogPosition {
        self.place
    }

    /// Where the log begins that a recovery would read.
    pub(super) fn tail(&self) -> &LogPosition {
        &self.tail
    }

    /// What a recovery would have to do with the log, and what of that once the commit is durable that is being made.
    pub(super) fn work(&self, resident: &LogResident) -> (RecoveryWork, RecoveryWork) {
        let dead_soon = self.frozen.as_ref().map_or(&self.tail, |frozen| &frozen.log);
        let all = self.place.since(&self.tail, resident.bytes());
        (all, self.place.since(dead_soon, resident.fresh_bytes()))
    }

    /// A batch is durable, or a recovery has found where the log goes on.
    pub(super) fn set_place(&mut self, place: LogPosition) {
        self.place = place;
    }

    /// A recovery has brought the volume to `lsn`: operations go on from there.
    pub(super) fn restart(&mut self, lsn: Lsn) {
        assert!(
            self.frozen.is_none() && self.open().is_empty(),
            "nobody changes what is recovered"
        );
        self.generations = Generations::from([Generation::new(lsn)]);
    }

    /// The present moment becomes a commit, which needs nothing of the log before `log`.
    pub(crate) fn freeze(&mut self, log: LogPosition) {
        assert!(self.frozen.is_none(), "one commit at a time");
        if !mutants::is(Mutant::BatchOverFreeze) {
            self.end();
        }
        self.frozen = Some(FrozenGenerations { generations: self.generations.len() - 1, log });
    }

    /// That commit is durable: the log before it is dead. Returns what it contains, which is no longer needed.
    pub(crate) fn thaw(&mut self) -> Generations {
        let Some(frozen) = self.frozen.take() else {
            return Generations::new();
        };
        self.tail = frozen.log;
        let dropped = match frozen.generations {
            _ if mutants::is(Mutant::LoggedAgain) => 0,
            _ if mutants::is(Mutant::DroppedWithCommit) => {
                self.begin();
                self.generations.len() - 1
            }
            generations => generations,
        };
        self.generations.drain(..dropped).collect()
    }

    /// More bytes than each of the batches can have that would hold what is pending now.
    pub(super) fn bounds(&self) -> impl Iterator<Item = usize> {
        let generations = self.generations.iter().filter(|generation| !generation.is_empty());
        generations.map(|generation| generation.bound + LogHeader::SIZE + BLOCK_SIZE)
    }

    fn frozen_generations(&self) -> usize {
        self.frozen.as_ref().map_or(0, |frozen| frozen.generations)
    }

    /// Bytes that wait and that no commit takes away which is being made, about.
    pub(crate) fn bytes(&self) -> usize {
        let waiting = self.generations.iter().skip(self.frozen_generations());
        waiting.map(|generation| generation.bytes()).sum()
    }

    /// Blocks of data that wait for the next batch's flush.
    pub(crate) fn unflushed_blocks(&self) -> u64 {
        self.generations.iter().map(|generation| generation.unflushed_blocks()).sum()
    }

    /// Takes what is pending: it is on its way into the log.
    pub(super) fn take(&mut self) -> Generations {
        self.end();
        if mutants::is(Mutant::FrozenNotLogged) {
            self.generations.drain(..self.frozen_generations());
        }
        let taken = self.generations.len() - 1;
        if let Some(frozen) = &mut self.frozen {
            frozen.generations = 0;
        }
        self.generations.drain(..taken).collect()
    }

    /// Records that tell of an inode and its names, and all records.
    pub(super) fn records(&self, of: InodeNo) -> (u64, u64) {
        let (mut own, mut all) = (0, 0);
        for generation in &self.generations {
            own += u64::from(generation.inodes.get(&of).map_or(0, |of| of.records));
            all += generation.entries.len() + generation.taken.len() + generation.freed.len();
        }
        (own, all as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_base::BlockNo;
    use holdfast_format::item::{Dentry, FileType, InodeItem};

    fn put(numbers: &[u64]) -> Changes {
        let mut changes = Changes::default();
        for no in numbers {
            changes.put(Key::inode(InodeNo(*no)), &[*no as u8; InodeItem::SIZE]);
        }
        changes
    }

    #[test]
    fn a_key_is_kept_once_with_its_last_value() {
        let mut pending = Pending::new(Lsn(4), LogMark::START);
        pending.add(Lsn(5), 1, &put(&[20, 21, 20]), Vec::new(), Vec::new());
        let mut gone = Changes::default();
        gone.delete(Key::inode(InodeNo(21)));
        pending.add(Lsn(6), 1, &gone, Vec::new(), Vec::new());
        assert_eq!(pending.records(InodeNo(21)), (1, 2));
        let taken = pending.take();
        assert_eq!((taken.len(), taken[0].after, taken[0].last), (1, Lsn(4), Lsn(6)));
        assert_eq!(taken[0].inode(InodeNo(21)), Some(1));
        assert_eq!(taken[0].change(0).value, Some(&[20; InodeItem::SIZE][..]));
        assert!(taken[0].change(1).value.is_none());
        assert!(pending.take().is_empty());
    }

    #[test]
    fn no_batch_reaches_over_the_freeze_of_a_commit() {
        let mut pending = Pending::new(Lsn(0), LogMark::START);
        pending.add(Lsn(1), 1, &put(&[20]), Vec::new(), Vec::new());
        pending.freeze(pending.place());
        pending.add(Lsn(2), 1, &put(&[20]), Vec::new(), Vec::new());
        let taken = pending.take();
        let spans: Vec<_> = taken.iter().map(|g| (g.after.0, g.last.0)).collect();
        assert_eq!(
            spans,
            [(0, 1), (1, 2)],
            "the commit is not durable: its changes are logged too"
        );
        pending.add(Lsn(3), 1, &put(&[20]), Vec::new(), Vec::new());
        pending.thaw();
        pending.freeze(pending.place());
        pending.thaw();
        assert!(pending.take().is_empty(), "the commit holds it");
        pending.add(Lsn(4), 1, &put(&[20]), Vec::new(), Vec::new());
        assert_eq!(
            pending.take().iter().map(|g| (g.after.0, g.last.0)).collect::<Vec<_>>(),
            [(3, 4)]
        );
    }

    #[test]
    fn the_log_before_a_commit_is_dead_when_it_is_durable() {
        let (mut pending, resident) =
            (Pending::new(Lsn(0), LogMark::START), LogResident::default());
        let bytes = |pending: &mut Pending, head: u64, data: u64| {
            pending.set_place(LogPosition { head, data, ..LogPosition::at(LogMark::START) });
            let (all, fresh) = pending.work(&resident);
            [all.log_bytes, all.log_data_bytes, fresh.log_bytes, fresh.log_data_bytes]
        };
        assert_eq!(bytes(&mut pending, 5000, 4000), [5000, 4000, 5000, 4000]);
        // The place was read before the last batch.
        pending.freeze(LogPosition { head: 4000, data: 3000, ..pending.place() });
        assert_eq!(bytes(&mut pending, 6000, 4500), [6000, 4500, 2000, 1500]);
        assert_eq!(pending.tail().head, 0, "it may be read yet");
        pending.thaw();
        assert_eq!(bytes(&mut pending, 6000, 4500), [2000, 1500, 2000, 1500]);
        assert_eq!(pending.tail().head, 4000);
    }

    /// Names, values, data and freed blocks.
    fn all_kinds(pending: &mut Pending, lsn: u64) {
        let mut changes = put(&[lsn, lsn + 100]);
        let name = Dentry { inode: InodeNo(lsn), file_type: FileType::Regular, name: b"name" };
        changes.put_with(Key::new(InodeNo(2), Kind::Dentry, lsn << 8), |out| name.write(out));
        changes.delete(Key::orphan(InodeNo(lsn)));
        let blocks = BlockRange::new(BlockNo(lsn), 2);
        let taken = vec![Taken { blocks, content: TakenContent::Written(lsn) }];
        pending.add(Lsn(lsn), lsn, &changes, taken, vec![blocks]);
    }

    fn shown(generation: &Generation) -> String {
        let changes: Vec<_> = (0..generation.len()).map(|at| generation.change(at)).collect();
        format!(
            "{:?} {:?} {} {changes:?} {:?} {:?} {} {} {} {}",
            (generation.after, generation.last),
            [2, 5, 105, 7, 107].map(|no| generation.inodes.get(&InodeNo(no))),
            generation.inode_count,
            generation.taken,
            generation.freed,
            generation.unflushed_blocks,
            generation.bound,
            generation.values.bytes(),
            generation.others.len(),
        )
    }

    #[test]
    fn a_generation_in_used_memory_is_as_one_in_new() {
        let mut used = Pending::new(Lsn(4), LogMark::START);
        all_kinds(&mut used, 5);
        let gone: Generations = used.take().into_iter().filter_map(Generation::emptied).collect();
        assert_eq!(gone.len(), 1, "there is something to use again");
        assert!(used.give_back(gone).is_empty());
        all_kinds(&mut used, 6);
        used.take();
        assert!(used.spares.is_empty(), "it is used");
        all_kinds(&mut used, 7);

        let mut new = Pending::new(Lsn(6), LogMark::START);
        all_kinds(&mut new, 7);
        assert_eq!(used.records(InodeNo(7)), new.records(InodeNo(7)));
        assert_eq!(used.bounds().collect::<Vec<_>>(), new.bounds().collect::<Vec<_>>());
        assert_eq!(used.unflushed_blocks(), new.unflushed_blocks());
        let (used, new) = (used.take(), new.take());
        assert_eq!((used.len(), new.len()), (1, 1));
        assert_eq!(shown(&used[0]), shown(&new[0]));
    }

    /// Puts and deletes a long value, as often as it takes to fill a generation; how often that was.
    fn burst(pending: &mut Pending, mut lsn: u64) -> u64 {
        let first = lsn;
        while !pending.open().is_full() {
            let mut changes = Changes::default();
            changes.put(Key::new(InodeNo(lsn), Kind::Extent, 0), &[7; 4000]);
            changes.delete(Key::new(InodeNo(lsn), Kind::Extent, 0));
            pending.add(Lsn(lsn), 1, &changes, Vec::new(), Vec::new());
            lsn += 1;
        }
        lsn - first
    }

    #[test]
    fn what_was_deleted_takes_memory_until_its_generation_goes() {
        let mut pending = Pending::new(Lsn(0), LogMark::START);
        let count = burst(&mut pending, 1);
        assert!(count < 1000, "{count} operations until it is much");
        assert!(pending.bytes() > BEGIN_BYTES);
        pending.add(Lsn(count + 1), 1, &put(&[20]), Vec::new(), Vec::new());
        assert_eq!(pending.take().len(), 2, "what is full in memory is followed by another");
    }

    #[test]
    fn memory_of_a_burst_is_not_kept() {
        let mut pending = Pending::new(Lsn(0), LogMark::START);
        let count = burst(&mut pending, 1);
        let mut lsn = count + 1;
        let mut next = |pending: &mut Pending| {
            pending.add(Lsn(lsn), 1, &put(&[20]), Vec::new(), Vec::new());
            lsn += 1;
            let taken = pending.take();
            assert_eq!(pending.take().len(), 0, "an empty one stays for what comes");
            taken
        };
        let give = |pending: &mut Pending, gone: Generations| {
            let spares: Generations = gone.into_iter().filter_map(Generation::emptied).collect();
            pending.give_back(spares).len()
        };
        let large = |pending: &Pending| {
            let all = pending.spares.iter().chain(&pending.generations);
            all.filter(|generation| generation.values.capacity() > BEGIN_BYTES).count()
        };
        let both = next(&mut pending);
        assert_eq!((both.len(), give(&mut pending, both), large(&pending)), (2, 0, 1));
        // There is room for two; the third has no use.
        let third = next(&mut pending);
        assert_eq!(pending.spares.len(), 1);
        let more = Generations::from([Generation::new(Lsn(0))]);
        assert_eq!((give(&mut pending, third), give(&mut pending, more)), (0, 1));
        // Each is used in turn, and the large one goes once it was used for little.
        for _ in 0..4 {
            let gone = next(&mut pending);
            give(&mut pending, gone);
        }
        assert_eq!(large(&pending), 0);
        assert!(!pending.spares.is_empty());
    }
}
