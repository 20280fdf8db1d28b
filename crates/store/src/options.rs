//! What mkfs decides, and how a store is opened.

use std::time::Duration;

use holdfast_base::Timestamp;
use holdfast_base::switch::{Accounting, Batching, Dirty};
use holdfast_format::Geometry;
use uuid::Uuid;

use crate::guard::Guarding;

/// What became free goes back once it was untouched for so long: seconds in which a file may be written again.
pub const DISCARD_DELAY: Duration = Duration::from_secs(5);

/// Bitmaps of so many block groups stay in memory, beside those that are being changed: 8 MiB.
pub const BITMAPS: usize = 1024;

/// What mkfs decides for the life of a volume.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// Zones and node size.
    pub geometry: Geometry,
    /// Id of the volume.
    pub uuid: Uuid,
    /// Label, at most 64 bytes.
    pub label: String,
    /// Seed of the name hash.
    pub hash_seed: u64,
    /// What the nodes of the volume carry, drawn by chance.
    pub node_tag: [u8; 8],
    /// The present.
    pub created: Timestamp,
}

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Nothing is written, not even by a checkpoint.
    pub read_only: bool,
    /// Memory for tree nodes, in bytes. Dirty nodes may take half of it before writers wait.
    pub cache_bytes: usize,
    /// Bitmaps of so many block groups stay in memory, beside those that are being changed: 8 KiB each.
    pub bitmaps: usize,
    /// How nodes remember what changed (M3).
    pub dirty: Dirty,
    /// Which records of block groups a commit writes (M1).
    pub accounting: Accounting,
    /// Checkpoints keep the estimated time of a recovery below this.
    pub recover: Duration,
    /// How a batch of the fsync log finds the inode of a name (M4).
    pub batching: Batching,
    /// Threads of the store make background commits and checkpoints. Without them, the next caller that changes
    /// something makes them first: the same calls then send the same to the device.
    pub threads: bool,
    /// How the guard against another program is kept, on devices that one may reach.
    pub guard: Guarding,
    /// Whether free space goes back to the device by itself.
    pub discard: Discard,
    /// It does so once that was untouched for so long. Zero: at once, and in ranges of any length.
    pub discard_delay: Duration,
}

/// Whether free space goes back to the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discard {
    /// From an image that its host has not given whole.
    #[default]
    Auto,
    /// From any that takes discards.
    On,
    /// Only when it is [asked for](crate::Store::trim).
    Off,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions {
            read_only: false,
            cache_bytes: 256 << 20,
            bitmaps: BITMAPS,
            dirty: Dirty::default(),
            accounting: Accounting::default(),
            recover: holdfast_base::recover::BUDGET_DEFAULT,
            batching: Batching::default(),
            threads: true,
            guard: Guarding::default(),
            discard: Discard::Auto,
            discard_delay: DISCARD_DELAY,
        }
    }
}
