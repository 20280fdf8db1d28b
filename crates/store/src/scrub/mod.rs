//! A scrub: everything in use is read from the device and judged, while the volume is used.
//!
//! ```text
//!  rings -> checkpoint -> superblocks -> space tree -> each branch and snapshot, down from its root:
//!     node that is changed in memory    -> not on the device yet: entered, not judged
//!     node or block that was verified   -> passed, with all below it
//!     other node                        -> read, judged, entered; marked when all below it is verified
//!     leaf                              -> its data, in the order of blocks, against the sums
//! ```
//!
//! Data that is younger than the scrub is not read: it was written a moment ago. A node or block that trees share is read once:
//! [`Scrub`] marks what was verified, one bit for each block. A mark holds for what was born before the scrub began. Its blocks have been in use ever since, or they would hold something younger, which is judged
//! whatever the mark says. For the same reason a scrub that was interrupted goes on with its marks at any later time.
//!
//! Of a node that is stored twice both places are read. One that does not hold it is written again from the other, while no checkpoint
//! can give it away ([`crate::mend`]).
//!
//! Damage leaves the nodes above it unmarked, so each tree that has it comes there again, and says where it is in that tree.
//!
//! No call waits for a scrub: it holds the lock of the trees for one look at a time, and none while the device reads. What it reads
//! may so be freed and written again meanwhile. It is damage only if the tree leads there still, and the device holds it already, at a
//! look before the last read and at one behind it. Otherwise the walk goes on from the root of the tree as it is now.
//!
//! What a recovery would need of the rings is read before the checkpoint that makes it unneeded ([`rings`]). A device that reads nothing
//! at all any more ends the scrub, and is not told as damage of all that it does not read ([`answers`]).
//!
//! Never what a path is: the [`Listener`] knows.

mod answers;
mod data;
mod rings;
mod superblocks;
mod walk;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::{BlockNo, Epoch, InodeNo};
use holdfast_format::checksum::crc64;
use holdfast_format::{Key, NodePointer};
use holdfast_sync::atomic::{AtomicBool, Ordering};

use crate::marks::Marks;
use crate::pin::Pin;
use crate::ring_parts::RingName;
use crate::tree::TreeNo;
use crate::{Result, Store, StoreError};

use walk::Walk;

/// What a scrub has verified: 32 KiB for each GiB that is in use. One store has one at a time.
#[derive(Debug)]
pub struct Scrub {
    /// What was born earlier is durable, and has its blocks for itself until it is free.
    since: Epoch,
    marks: Marks,
    /// The store changes nothing: what is younger is judged as well.
    stands_still: bool,
    _one: One,
}

/// The place of the scrub that is under way.
#[derive(Debug)]
struct One(Arc<AtomicBool>);

impl Drop for One {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// What of a tree is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damaged {
    /// A node: items are not to be reached.
    Node {
        /// Its first block.
        block: BlockNo,
        /// Not above their keys.
        from: Key,
        /// Above their keys; `None`: all from there on.
        end: Option<Key>,
    },
    /// An item.
    Item {
        /// Its key.
        key: Key,
    },
    /// Consecutive blocks of a file, on consecutive blocks of the device.
    Data {
        /// The file.
        inode: InodeNo,
        /// The first of them in the file.
        first: u64,
        /// How many.
        count: u64,
        /// The first of them on the device.
        block: BlockNo,
    },
}

/// Parts of a ring, one behind the other, that one of its places does not hold, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRing {
    /// Which ring.
    pub ring: RingName,
    /// Where the bad place lies, as bytes of the device. Where no place holds it: what would say how long it is.
    pub bytes: Range<u64>,
    /// No place holds it, and it was needed: it cannot be recovered.
    pub is_lost: bool,
    /// It was in memory as well, and a checkpoint has made it unneeded: nothing is lost.
    pub is_mended: bool,
    /// What is wrong: a sentence.
    pub why: String,
}

/// The listener of a scrub. Called without a lock.
pub trait Listener {
    /// So many bytes were read, which took so long. Returns whether to go on; it may wait before it does.
    fn has_read(&mut self, scrub: &Scrub, bytes: u64, took: Duration) -> bool;
    /// Something is not what it was when it was written. `why` is a sentence.
    fn is_damaged(&mut self, what: Damaged, why: String);
    /// A place of a node, which begins at `block`, did not hold it, and the other one did; by now it does, if it `is_mended`. Nothing is lost
    /// of the tree. `why` is a sentence.
    fn has_bad_place(&mut self, block: BlockNo, is_mended: bool, why: String);
    /// A place of a ring does not hold what a recovery would need, or would have needed before the scrub began.
    fn has_bad_ring(&mut self, bad: BadRing);
}

/// How the walk through a tree has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scrubbed {
    /// Everything of it was seen.
    Whole,
    /// Its deletion waits for that.
    Deleted,
    /// The listener did not want to go on.
    Stopped,
}

/// What the bytes of a scrub begin with.
const MAGIC: &[u8; 8] = b"hfScrub1";

impl Scrub {
    /// It as bytes, from which another one goes on: see [`Store::begin_scrub`].
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = [&MAGIC[..], &self.since.0.to_le_bytes()].concat();
        self.marks.write(&mut bytes);
        bytes.extend(crc64(&bytes).to_le_bytes());
        bytes
    }

    /// Bytes that were verified.
    pub fn verified_bytes(&self) -> u64 {
        self.marks.count().saturating_mul(holdfast_base::units::BLOCK_BYTES)
    }

    /// Whether a mark says something of what was born then.
    fn trusts(&self, birth: Epoch) -> bool {
        birth < self.since
    }

    fn has(&self, birth: Epoch, block: BlockNo) -> bool {
        self.trusts(birth) && self.marks.has(block)
    }

    fn has_node(&self, pointer: NodePointer) -> bool {
        self.has(pointer.epoch, pointer.block)
    }
}

/// The epoch and marks of a scrub of a volume with so many blocks.
fn read(bytes: &[u8], blocks: u64) -> Option<(Epoch, Marks)> {
    let (bytes, sum) = bytes.split_last_chunk::<8>()?;
    if crc64(bytes) != u64::from_le_bytes(*sum) {
        return None;
    }
    let rest = bytes.strip_prefix(MAGIC)?;
    let (since, marks) = rest.split_first_chunk::<8>()?;
    Some((Epoch(u64::from_le_bytes(*since)), Marks::read(marks, blocks)?))
}

impl Store {
    /// Begins a scrub, or goes on with one of this volume that is left as bytes. Those that make no sense, or are of a later
    /// moment than the volume stands at, are not gone on with. What a recovery would need of the rings is judged, and by a checkpoint
    /// made unneeded. `None`: the listener did not want to go on. What was found in the rings until then, or until an error, was told.
    ///
    /// # Errors
    /// [`StoreError::Refused`]: one is under way. [`StoreError::NoAnswer`]: the device reads nothing.
    pub fn begin_scrub(
        &self,
        from: Option<&[u8]>,
        listener: &mut dyn Listener,
    ) -> Result<Option<Scrub>> {
        let inner = &self.inner;
        if inner.scrubbing.swap(true, Ordering::AcqRel) {
            return Err(StoreError::Refused("a scrub of the volume is under way already".into()));
        }
        let one = One(inner.scrubbing.clone());
        let stands_still = inner.read_only || inner.stop.is_stopped();
        let now = || inner.superblock.lock().epoch.next();
        let before = from.and_then(|bytes| read(bytes, inner.geometry().volume_blocks));
        let before = before.filter(|(since, _)| *since <= now());
        // One that was stopped in the rings has verified nothing: it would only pass what has come since.
        let before = before.filter(|(_, marks)| marks.count() > 0);
        let is_new = before.is_none();
        let (since, marks) = before.unwrap_or_else(|| (now(), Marks::default()));
        let mut scrub = Scrub { since, marks, stands_still, _one: one };
        let (found, read) = inner.scrub_rings(&scrub, listener);
        let goes_on = matches!(read, Ok(true));
        let is_stopped_sound = !goes_on && found.is_empty();
        if stands_still || read.is_err() || is_stopped_sound {
            found.tell(inner, false, listener);
            return Ok(read?.then_some(scrub));
        }
        // What is durable in the journal or the log alone would be passed unseen. What is bad is made unneeded even if the listener does
        // not want to go on: a crash before the next checkpoint would lose it.
        let done = inner.checkpoint_behind(&found);
        found.tell(inner, done.is_ok(), listener);
        done?;
        if !goes_on {
            return Ok(None);
        }
        if is_new {
            scrub.since = now();
        }
        Ok(Some(scrub))
    }

    /// Scrubs the tree of a branch or snapshot.
    ///
    /// # Errors
    /// [`StoreError::NoAnswer`], or the device has failed in another way that says nothing of a place. Damage is told to the listener. What
    /// was verified before is marked.
    pub fn scrub_tree(
        &self,
        scrub: &mut Scrub,
        pin: &Pin,
        listener: &mut dyn Listener,
    ) -> Result<Scrubbed> {
        Walk::new(&self.inner, pin.tree(), Some(pin.number()), scrub, listener).run()
    }

    /// Scrubs the tree that counts the space and names the branches.
    ///
    /// # Errors
    /// As [`Store::scrub_tree`].
    pub fn scrub_space_tree(
        &self,
        scrub: &mut Scrub,
        listener: &mut dyn Listener,
    ) -> Result<Scrubbed> {
        Walk::new(&self.inner, TreeNo::SPACE, None, scrub, listener).run()
    }

    /// Asks whether the device answers at all, behind a call of this store that has failed with `error`, which comes back if it does.
    ///
    /// # Errors
    /// [`StoreError::NoAnswer`]: it does not.
    pub fn answers_behind(&self, error: StoreError) -> Result<StoreError> {
        answers::probe(&self.inner, error)
    }

    /// Visits the items of a branch or snapshot that can be read, upwards, by the device: nodes that are damaged are passed, and
    /// what is in memory stays as it is. `visit` says whether to go on.
    pub fn visit_readable(
        &self,
        pin: &Pin,
        visit: &mut dyn FnMut(&Key, &[u8]) -> bool,
    ) -> Result<()> {
        walk::visit(&self.inner, pin.tree(), visit)
    }
}
