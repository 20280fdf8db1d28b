//! Floor 2: a transactional, copy-on-write map from keys to values, and the space under it.
//!
//! A change is a [`Transaction`]: everything that one operation puts, deletes,
//! frees and publishes. [`Branch::apply`] makes it visible as one step and
//! gives it a place in history, its [`Lsn`]; [`Store::sync`](Inner::sync) makes history
//! durable up to a place. After a crash the store holds all transactions up to one
//! place in history and none after it (P3).
//!
//! Space is taken in this order, and each step needs the value that the step
//! before returned: [`Reservation`], [`Allocated`], [`Written`], [`Transaction::publish`].
//! An `Allocated` or `Written` that is dropped gives its blocks back.
//!
//! Knows nothing of inodes, names, users, POSIX or FUSE.

mod open;
mod store;
mod options;
mod shape;
mod need;
mod create;
mod commit;
mod groups;
mod dropped_extents;
mod lineage;
mod branch;
mod difference;
mod scrub;
mod pin;
mod checkpoint;
mod resize;
mod shrink;
mod marks;
mod nodes;
mod side_by_side;
mod signpost;
mod step;
mod superblock;
mod journal;
mod log;
mod log_resident;
mod throttle;
mod freezes;
mod guard;
mod host;
mod discard;
mod identity;
mod apply;
mod before_mark;
mod bitmaps;
mod room;
mod idle;
mod data;
mod in_place;
mod read;
mod sealed;
mod load;
mod mend;
mod ring_lengths;
mod ring_parts;
mod verified;
mod tree;
mod cache;
pub mod transaction;
pub mod space;
pub mod error;

pub use branch::Branch;
pub use difference::{Difference, Differing};
pub use discard::Trimmed;
pub use error::{LineageError, StoreError};
pub use guard::{Guarding, Hold};
pub use host::first_change_bytes;
pub use identity::{Identity, restore_superblock};
pub use idle::Idle;
pub use in_place::{Reserved, Sent};
use lineage::Walks;
pub use lineage::{LookedAt, NameChange, SnapshotNamed, TreeInfo};
pub use need::Need;
pub use options::{BITMAPS, CreateOptions, DISCARD_DELAY, Discard, OpenOptions};
pub use pin::Pin;
pub use resize::NewSize;
pub use ring_parts::RingName;
pub use scrub::{BadRing, Damaged, Listener, Scrub, Scrubbed};
pub use shrink::{Shrinking, shrink};
pub use space::{
    Allocated, Delayed, LoggedBlock, MetadataReservation, Reservation, SpaceUse, Unwritten, Written,
};
pub use step::Step;
pub use transaction::Transaction;

use holdfast_sync::atomic::{AtomicBool, AtomicU64};
use holdfast_sync::thread::JoinHandle;
use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_base::counters::Counters;
use holdfast_base::stop::Stop;
use holdfast_base::switch::Accounting;
use holdfast_base::{BlockNo, Lsn};
pub use holdfast_device::Device;
use holdfast_device::buffer::BufferPool;
pub use holdfast_device::page;
use holdfast_format::superblock::FoundDamage;
use holdfast_format::{Geometry, Superblock};
use parking_lot::{Condvar, Mutex, RwLock};

use discard::Discarder;
use freezes::Freezes;
use guard::Keeper;
use journal::Journal;
pub use journal::replay::{Replayed, replay};
use log::{Logging, PendingLog};
use log_resident::LogResident;
use mend::Mends;
use pin::Pins;
use sealed::LeftOver;
use shape::Shape;
use space::SharedSpace;
use throttle::Throttle;
use tree::Forest;

/// The result of a store's call.
pub type Result<T> = std::result::Result<T, StoreError>;

/// What the threads of an open store share, and the calls that need no more of it.
///
/// Locks, in the order in which they are taken: `lineage`, `one_checkpoint`, `journal`, the log's, `forest`, `space`,
/// `pending`, the throttle's. Only the first four are held across device I/O; no reader takes them, and no fsync the
/// first two (R4). The discarder's comes before all of these; it is held across discards, and
/// taken by discards and a volume that grows.
#[derive(Debug)]
pub struct Inner {
    device: Arc<dyn Device>,
    counters: Arc<Counters>,
    stop: Arc<Stop>,
    read_only: bool,
    shape: Shape,
    accounting: Accounting,
    forest: RwLock<Forest>,
    space: SharedSpace,
    /// With the lock of the space: the host has answered a request for more, or a discard has ended.
    host_answered: Condvar,
    rings: host::Rings,
    host_said: host::HostSaid,
    discarder: Discarder,
    /// Held while branches and snapshots change.
    lineage: Mutex<Walks>,
    /// Snapshots that are being looked at.
    pins: Mutex<Pins>,
    /// Whether a scrub is under way.
    scrubbing: Arc<AtomicBool>,
    /// Changes of branches and snapshots that are seen, see [`Store::lineage_changes`].
    lineage_changes: AtomicU64,
    name_listener: lineage::NameListener,
    /// The newest durable superblock.
    superblock: Mutex<Superblock>,
    /// Of a volume that is read only: the superblock from which it was opened. That may rot on the device.
    opened_from: Option<Superblock>,
    /// What is missing of the last state, if it was opened to be read although something is.
    missing: Option<String>,
    /// What was found damaged, for the next superblock.
    fault: Mutex<Option<FoundDamage>>,
    one_checkpoint: Mutex<()>,
    /// With that lock: places of nodes that are to be written again.
    mends: Mends,
    /// With that lock: what was sealed and is not being written yet.
    left_over: Mutex<Option<LeftOver>>,
    journal: Mutex<Journal>,
    /// Nodes of the journal that stand in front of the device, when nothing may be written.
    overlay: BTreeMap<BlockNo, Vec<u8>>,
    /// Where several nodes are read at once.
    regions: BufferPool,
    /// Data that only the log holds.
    log_resident: LogResident,
    /// What the log does not hold yet.
    pending: PendingLog,
    logging: Logging,
    lsn: AtomicU64,
    durable: AtomicU64,
    /// What the newest durable commit contains.
    committed: AtomicU64,
    /// The last batch that made blocks reserved which held data.
    unwrote: AtomicU64,
    inode_next: AtomicU64,
    throttle: Throttle,
    idle: Arc<Idle>,
    freezes: Mutex<Freezes>,
    /// Where another program may reach the device.
    guard: Option<Keeper>,
}

/// An open store. What is not said here is said of [`Inner`].
#[derive(Debug)]
pub struct Store {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
    /// The last transaction that was there when it was opened.
    recovered: Lsn,
}

impl Inner {
    /// The shape of the volume, as it is now: the size may grow.
    pub fn geometry(&self) -> Geometry {
        self.shape.now()
    }
}
