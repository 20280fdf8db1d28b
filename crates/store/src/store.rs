//! The calls of an open store.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdfast_base::counters::Counters;
use holdfast_base::{BlockNo, InodeNo, Lsn};
use holdfast_device::Device;
use holdfast_format::{Carried, Superblock};

use crate::error::StoreError;
use crate::guard::Keeper;
use crate::{
    Allocated, CreateOptions, Idle, Inner, OpenOptions, Reservation, Result, SpaceUse, Store,
    Transaction, Trimmed, create, discard, open, step, throttle,
};

impl Store {
    /// Writes an empty store: zeroes the rings by writing, then both trees, a flush, and the superblocks.
    pub fn create(device: &Arc<dyn Device>, options: &CreateOptions) -> Result<()> {
        create::create(device, options, Transaction::new())
    }

    /// As [`Store::create`], with a first transaction of a few changes that is there as soon as the store
    /// is: power that fails meanwhile leaves no store, or one that holds the transaction.
    pub fn create_with(
        device: &Arc<dyn Device>,
        options: &CreateOptions,
        first: Transaction,
    ) -> Result<()> {
        create::create(device, options, first)
    }

    /// Opens the newest valid superblock, and what the journal says beyond it.
    pub fn open(
        device: Arc<dyn Device>,
        options: &OpenOptions,
        counters: Arc<Counters>,
    ) -> Result<Store> {
        let inner = Arc::new(open::open(device, options, counters)?);
        let recovered = Lsn(inner.lsn.load(Ordering::Acquire));
        let mut store = Store { inner, threads: Vec::new(), recovered };
        if !options.read_only && options.threads {
            // Those that were started end with the store, should another one be refused.
            throttle::start(&store.inner, &mut store.threads)?;
            discard::start(&store.inner, &mut store.threads);
        }
        Ok(store)
    }

    /// The superblock that the store was opened from or last wrote.
    pub fn superblock(&self) -> Superblock {
        self.inner.superblock.lock().clone()
    }

    /// What the volume may have that this program does not know.
    pub fn carried(&self) -> Carried {
        self.inner.superblock.lock().carried()
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.inner.device
    }

    /// Notified of each change.
    pub fn idle(&self) -> &Arc<Idle> {
        &self.inner.idle
    }

    /// The statistics of this store.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.inner.counters
    }

    /// Longest value that [`Transaction::put`] may be given, in bytes.
    pub fn value_max(&self) -> usize {
        holdfast_format::limits::value_max(self.inner.geometry().node_size)
    }

    /// Most blocks of one extent item.
    pub fn extent_blocks_max(&self) -> u64 {
        holdfast_format::item::extent::extent_blocks_max(self.inner.geometry().node_size)
    }

    /// Takes between 1 and `want` consecutive blocks out of the reservation's blocks, near `goal` if possible.
    pub fn allocate(
        &self,
        from: &mut Reservation,
        want: u64,
        goal: Option<BlockNo>,
    ) -> Result<Allocated> {
        let mut loading = self.inner.loading();
        loop {
            match from.place(want, goal) {
                Ok(placed) => return placed.ok_or(StoreError::NoSpace),
                Err(wanted) => loading.load(wanted)?,
            }
        }
    }

    /// Bytes of data that only the log holds.
    pub fn log_resident_bytes(&self) -> usize {
        self.inner.log_resident.bytes()
    }

    /// Makes everything so far durable in the journal: then the log is empty, and blocks that were freed
    /// may be reused (R2). Callers that only want durability use [`Store::sync`](Inner::sync).
    pub fn commit(&self) -> Result<()> {
        self.inner.commit_upto(self.latest())
    }

    /// The last transaction that the newest durable commit contains.
    pub fn committed(&self) -> Lsn {
        Lsn(self.inner.committed.load(Ordering::Acquire))
    }

    /// The last transaction that is durable.
    pub fn durable(&self) -> Lsn {
        Lsn(self.inner.durable.load(Ordering::Acquire))
    }

    /// The last transaction applied.
    pub fn latest(&self) -> Lsn {
        Lsn(self.inner.lsn.load(Ordering::Acquire))
    }

    /// The last transaction that was there when the store was opened: of those that a crash may have taken, all up to this one are
    /// there, and none behind it (P3).
    pub fn recovered(&self) -> Lsn {
        self.recovered
    }

    /// Gives out none of the next `count` inode numbers: a crash may have taken inodes that had them.
    pub fn skip_inodes(&self, count: u64) {
        self.inner.inode_next.fetch_add(count, Ordering::Relaxed);
    }

    /// An inode number that was never given before.
    pub fn next_inode(&self) -> InodeNo {
        InodeNo(self.inner.inode_next.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether this is a new image without a write: its first change takes both rings from the host.
    pub fn is_without_rings(&self) -> bool {
        self.inner.rings_to_take() > 0
    }

    /// How full the volume is. Of an image that the host has not given all of its space, no more is available than the
    /// host has.
    pub fn space_use(&self) -> SpaceUse {
        self.space_use_by((self.inner.device.room(), self.inner.device.given()))
    }

    /// The same, for callers that ask again and again: what the host has may be as it was 10 ms ago, unless the volume has changed it.
    pub fn space_use_lately(&self) -> SpaceUse {
        self.space_use_by(self.inner.host_lately())
    }

    fn space_use_by(&self, (room, given): (Option<u64>, u64)) -> SpaceUse {
        let room = room.map(|room| room.saturating_sub(self.inner.rings_to_take()));
        self.inner.space.lock().space_use(room, given)
    }

    /// Bytes of tree nodes in memory, and of those the dirty ones.
    pub fn cache_use(&self) -> (usize, usize) {
        let forest = self.inner.forest.read();
        (forest.cache.bytes(), forest.cache.dirty_bytes())
    }

    /// Whether the store stopped writing, see [`Store::stop_reason`].
    pub fn is_stopped(&self) -> bool {
        self.inner.stop.is_stopped()
    }

    /// Whether space that was promised is gone, as block groups count as full whose bitmaps are damaged: no commit brings it back.
    pub fn has_lost_space(&self) -> bool {
        self.inner.space.lock().has_lost_promised()
    }

    /// Why the store stopped writing, if a write or flush failed (P7).
    pub fn stop_reason(&self) -> Option<String> {
        self.inner.stop.reason().map(str::to_owned)
    }

    /// What is missing of the last state: of a damaged volume that was opened to be read.
    pub fn missing(&self) -> Option<&str> {
        self.inner.missing.as_deref()
    }

    /// When that was.
    pub fn stopped_since(&self) -> Option<holdfast_base::Timestamp> {
        self.inner.stop.since()
    }

    /// Whether the volume has a guard against other programs that is not read now, because the device was idle for a
    /// while. For tests.
    pub fn is_at_rest(&self) -> bool {
        self.inner.guard.as_ref().is_some_and(Keeper::is_resting)
    }

    /// Stops the store: nothing is written any more (P7). For a caller that found its memory corrupt.
    pub fn stop(&self, reason: impl Into<String>) {
        step::stop(&self.inner.stop, reason.into());
    }

    /// Judges every node in memory: for tests. Returns how many trees of branches and snapshots are in memory as a whole, whose blocks were counted.
    #[cfg(debug_assertions)]
    pub fn invariants(&self) -> usize {
        let forest = self.inner.forest.read();
        forest.invariants(crate::tree::TreeNo::SPACE);
        forest.trees.numbers().filter(|tree| forest.invariants(*tree)).count()
    }

    /// Discards all free space in ranges of `least` bytes or more, whatever the options say of the background. `progress`
    /// hears what is done so far, behind each 128 MiB of the volume, and says whether to go on. Operations go on beside it.
    ///
    /// # Errors
    /// The device takes no discards, or has failed; what was discarded until then is. The volume goes on.
    pub fn trim(&self, least: u64, progress: impl FnMut(&Trimmed) -> bool) -> Result<Trimmed> {
        self.trim_part(0..u64::MAX, least, progress)
    }

    /// Makes everything durable at its location and ends the store's threads. Dropping a store without this is a crash.
    pub fn close(self) -> Result<()> {
        if self.inner.read_only { Ok(()) } else { self.inner.close() }
    }
}

impl Deref for Store {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.inner.throttle.end();
        self.inner.discarder.end();
        for thread in self.threads.drain(..) {
            // One that panicked has reported it; nothing is left to tell.
            let _ = thread.join();
        }
    }
}
