//! Inodes in memory by number.
//!
//! An inode stays while its `Arc` is held, it is open, or its data waits to be written; one without a name also while
//! it is remembered. The kernel remembers a million names without using them; of those inodes only the number of
//! references is kept. Others may go once there are more than the cache may hold: a clock hand passes a few inodes at
//! each insertion and drops those not used since it last passed. So the work is bounded, and inodes that are not needed
//! go sooner or later.
//!
//! A loader never inserts an item that it read before the inode was loaded, changed and dropped by others: each shard
//! counts what left it, and a loader whose shard lost something in between reads again.

use holdfast_sync::atomic::{AtomicBool, Ordering};
use std::collections::{HashMap, VecDeque, hash_map};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_format::Key;
use holdfast_store::Branch;
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockWriteGuard};

use super::{Inode, UNCOUNTED};
use crate::error::damaged_item;
use crate::{FsError, Result};

/// Inodes that the hand passes at each insertion into a full shard: more than one, so that a shard shrinks.
const HAND_STEPS: usize = 4;
/// Caches smaller than this have one shard, so that a cache of 1 is a cache of 1.
const SHARDED_CACHE_MIN: usize = 1024;
const SHARDS: usize = 16;
/// Numbers of removed inodes that a clock may hold beyond as many as there are known ones.
const CLOCK_SLACK: usize = 1024;

/// All inodes in memory.
pub(crate) struct InodeTable {
    shards: Vec<Mutex<Shard>>,
    /// Held while an inode is read and put into its shard. No call waits for it with a state locked, unless it is inside
    /// the gate.
    loads: RwLock<()>,
}

#[derive(Default)]
struct Shard {
    known: HashMap<u64, Entry, BuildHasherDefault<NumberHasher>>,
    /// Numbers in the order in which the hand reaches them. May hold numbers that are not known any more.
    clock: VecDeque<u64>,
    known_max: usize,
    /// Inodes with lower numbers may be known above from another process, not known how often.
    known_below: InodeNo,
    /// Inodes that left so far.
    left: u64,
    /// References from above to inodes that have a name and are not in memory.
    remembered: HashMap<u64, u64, BuildHasherDefault<NumberHasher>>,
}

struct Entry {
    inode: Arc<Inode>,
    /// Used since the hand came by.
    used: AtomicBool,
}

/// Spreads inode numbers, which are dense, by one multiplication.
#[derive(Default)]
struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }
    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

impl InodeTable {
    /// A table that keeps about `idle_max` inodes that are not in use. Those below `known_below` may be known above from another
    /// process.
    pub(crate) fn new(idle_max: usize, known_below: InodeNo) -> InodeTable {
        let count = if idle_max < SHARDED_CACHE_MIN { 1 } else { SHARDS };
        let known_max = idle_max / count;
        let shard = || Mutex::new(Shard { known_max, known_below, ..Shard::default() });
        InodeTable { shards: (0..count).map(|_| shard()).collect(), loads: RwLock::default() }
    }

    fn shard(&self, no: InodeNo) -> &Mutex<Shard> {
        &self.shards[(no.0 % self.shards.len() as u64) as usize]
    }

    /// The inode if it is in memory.
    pub(crate) fn peek(&self, no: InodeNo) -> Option<Arc<Inode>> {
        self.shard(no).lock().find(no)
    }

    /// The inode, read from the store if need be.
    pub(crate) fn get(&self, store: &Branch, no: InodeNo) -> Result<Arc<Inode>> {
        self.get_or_read(no, || {
            let Some(bytes) = store.get(&Key::inode(no))? else {
                return Err(FsError::NotFound);
            };
            // Its last change before it was read is unknown; nothing has changed it since.
            let inode = Inode::decode(no, &bytes, store.latest(), store.carried());
            Ok(inode.map_err(|source| damaged_item(store, format!("inode {no}"), source))?)
        })
    }

    /// The inode, or what `read` gives if no other thread loads it at the same time.
    pub(crate) fn get_or_read(
        &self,
        no: InodeNo,
        mut read: impl FnMut() -> Result<Inode>,
    ) -> Result<Arc<Inode>> {
        if let Some(inode) = self.peek(no) {
            return Ok(inode);
        }
        let _loads = self.loads.read();
        let shard = self.shard(no);
        loop {
            let left = {
                let shard = shard.lock();
                if let Some(inode) = shard.find(no) {
                    return Ok(inode);
                }
                shard.left
            };
            let inode = Arc::new(read()?);
            let mut shard = shard.lock();
            if let Some(inode) = shard.find(no) {
                return Ok(inode);
            }
            if shard.left == left {
                shard.insert(inode.clone());
                return Ok(inode);
            }
        }
    }

    /// Adds an inode that was just created.
    pub(crate) fn insert(&self, inode: Arc<Inode>) {
        self.shard(inode.no).lock().insert(inode);
    }

    /// Forgets an inode that was removed from the tree.
    pub(crate) fn remove(&self, no: InodeNo) {
        let mut shard = self.shard(no).lock();
        if shard.known.remove(&no.0).is_some() {
            shard.left += 1;
        }
    }

    /// Takes `count` references back from an inode that is not in memory, and returns whether none is left. If it is in memory,
    /// it is the error, and its references are as they were.
    pub(crate) fn forget_absent(
        &self,
        no: InodeNo,
        count: u64,
    ) -> std::result::Result<bool, Arc<Inode>> {
        let mut shard = self.shard(no).lock();
        if let Some(inode) = shard.find(no) {
            return Err(inode);
        }
        match shard.remembered.get_mut(&no.0) {
            Some(references) if *references > count => {
                *references -= count;
                Ok(false)
            }
            _ => {
                shard.remembered.remove(&no.0);
                Ok(true)
            }
        }
    }

    /// Whether there are references from above to an inode, or may be.
    pub(crate) fn is_remembered(&self, no: InodeNo) -> bool {
        let shard = self.shard(no).lock();
        match shard.known.get(&no.0) {
            Some(entry) => entry.inode.state.try_read().is_none_or(|state| state.lookups > 0),
            None => no < shard.known_below || shard.remembered.contains_key(&no.0),
        }
    }

    /// Inodes with references from above, but those that are just in use.
    pub(crate) fn all_remembered(&self) -> Vec<InodeNo> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            all.extend(shard.remembered.keys().map(|no| InodeNo(*no)));
            let known = shard.known.values().map(|entry| &entry.inode);
            let has_any =
                |inode: &Inode| inode.state.try_read().is_some_and(|state| state.lookups > 0);
            all.extend(known.filter(|inode| has_any(inode)).map(|inode| inode.no));
        }
        all
    }

    /// All inodes in memory, in ascending order.
    pub(crate) fn all(&self) -> Vec<Arc<Inode>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(shard.lock().known.values().map(|entry| entry.inode.clone()));
        }
        all.sort_unstable_by_key(|inode| inode.no);
        all
    }

    /// Waits for inodes that are just being read, and lets none be read until the guard is dropped: whatever comes, what is in
    /// memory stays the same but for what the gate keeps out. The caller has nothing locked.
    pub(crate) fn stop_loads(&self) -> RwLockWriteGuard<'_, ()> {
        self.loads.write()
    }

    /// Nothing is loaded or dropped until the guard is dropped. The caller may have states locked.
    pub(crate) fn lock_all(&self) -> LockedTable<'_> {
        LockedTable(self.shards.iter().map(|shard| shard.lock()).collect())
    }

    /// Numbers in all clocks.
    #[cfg(test)]
    pub(crate) fn clock_len(&self) -> usize {
        self.shards.iter().map(|s| s.lock().clock.len()).sum()
    }

    /// Inodes in memory.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|s| s.lock().known.len()).sum()
    }
}

/// The table, for one thread alone.
pub(crate) struct LockedTable<'a>(Vec<MutexGuard<'a, Shard>>);

impl LockedTable<'_> {
    fn shard(&mut self, no: InodeNo) -> &mut Shard {
        let count = self.0.len() as u64;
        &mut self.0[(no.0 % count) as usize]
    }

    /// How many are in memory.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|shard| shard.known.len()).sum()
    }

    /// Inodes that are not in memory and have references from above.
    pub(crate) fn remembered(&self) -> impl Iterator<Item = InodeNo> {
        self.0.iter().flat_map(|shard| shard.remembered.keys().map(|no| InodeNo(*no)))
    }

    /// Whether there are references from above to an inode, or may be.
    pub(crate) fn is_remembered(&mut self, no: InodeNo) -> bool {
        let shard = self.shard(no);
        let is_known = shard.known.contains_key(&no.0) || shard.remembered.contains_key(&no.0);
        is_known || no < shard.known_below
    }

    /// Drops an inode from memory that has so many references from above.
    pub(crate) fn remove(&mut self, no: InodeNo, references: u64) {
        let shard = self.shard(no);
        shard.known.remove(&no.0);
        if (1..UNCOUNTED).contains(&references) {
            shard.remembered.insert(no.0, references);
        }
    }

    /// What was read of inodes that are not in memory is void.
    pub(crate) fn all_left(&mut self) {
        self.0.iter_mut().for_each(|shard| shard.left += 1);
    }
}

impl Shard {
    fn find(&self, no: InodeNo) -> Option<Arc<Inode>> {
        let entry = self.known.get(&no.0)?;
        entry.used.store(true, Ordering::Relaxed);
        Some(entry.inode.clone())
    }

    fn insert(&mut self, inode: Arc<Inode>) {
        let no = inode.no.0;
        if let Some(references) = self.remembered.remove(&no) {
            inode.state.write().lookups = references;
        } else if inode.no < self.known_below {
            inode.state.write().lookups = UNCOUNTED;
        }
        let used = AtomicBool::new(false);
        let before = self.known.insert(no, Entry { inode, used });
        assert!(before.is_none(), "inode {no} is in memory twice");
        self.clock.push_back(no);
        if self.known.len() > self.known_max {
            self.turn();
        } else if self.clock.len() > 2 * self.known.len() + CLOCK_SLACK {
            // The hand rests while there is room, and nothing else drops the numbers of removed inodes.
            self.clock.retain(|no| self.known.contains_key(no));
        }
    }

    /// Moves the hand on.
    fn turn(&mut self) {
        for _ in 0..HAND_STEPS {
            let Some(no) = self.clock.pop_front() else {
                return;
            };
            let hash_map::Entry::Occupied(known) = self.known.entry(no) else {
                continue;
            };
            let entry = known.get();
            if entry.used.swap(false, Ordering::Relaxed) || entry.is_needed() {
                self.clock.push_back(no);
                continue;
            }
            let references = entry.inode.state.read().lookups;
            // What is not counted is found so again.
            if (1..UNCOUNTED).contains(&references) {
                self.remembered.insert(no, references);
            }
            known.remove();
            self.left += 1;
            if self.known.len() <= self.known_max {
                return;
            }
        }
    }
}

impl Entry {
    fn is_needed(&self) -> bool {
        // While the shard is locked no thread can get a second Arc, so one Arc means no lock is held either.
        Arc::strong_count(&self.inode) > 1
            || !self.inode.data.is_clean()
            || self.inode.errors.unseen().is_some()
            || {
                // Where the kernel opens files, a reference may be an open file, whose fsyncs must go on to fail (P7).
                let is_lossy = self.inode.lost.first().is_some();
                self.inode.state.try_read().is_none_or(|state| {
                    state.handles > 0
                        || state.is_remembered_orphan()
                        || state.atime_waits
                        || is_lossy && state.lookups > 0
                })
            }
    }
}

holdfast_base::opaque!(InodeTable);
