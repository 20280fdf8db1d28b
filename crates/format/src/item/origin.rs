//! Of which snapshots of other volumes a snapshot is a copy, that was received.

use holdfast_base::{InodeNo, Timestamp};

use super::lineage::LINEAGE;
use crate::limits::COUNTER_MAX;
use crate::{ItemKind, Key, Malformed};

record! {
    /// A snapshot of any volume, of which one of this volume is a copy.
    pub struct OriginItem("origin", 48 bytes) {
        /// Id of its volume.
        volume: [u8; 16],
        /// Its number there.
        number: u64,
        /// Last operation before it there.
        lsn: u64,
        /// When it was made.
        created: Timestamp,
        /// Zero.
        reserved: [u8; 4],
    }
}

impl OriginItem {
    /// Most of them that a snapshot has.
    pub const MOST: usize = 8;

    /// Reads and judges an origin.
    pub fn decode(bytes: &[u8]) -> Result<OriginItem, Malformed> {
        let item = OriginItem::exactly(bytes)?;
        let cannot_be =
            item.number.max(item.lsn) > COUNTER_MAX || item.created.nanos >= 1_000_000_000;
        if cannot_be || item.reserved != [0; 4] {
            let why = "one of its numbers, its time or its reserved bytes cannot be";
            return OriginItem::fail(why);
        }
        Ok(item)
    }

    /// The key of one of snapshot `id`: 0 is the one that was sent, others are those that it was a copy of.
    pub const fn key(id: u64, index: u64) -> Key {
        Key::new(InodeNo(LINEAGE.saturating_add(id)), ItemKind::Origin, index)
    }

    /// The first and the last key of all of snapshot `id`.
    pub const fn span(id: u64) -> (Key, Key) {
        Key::span(InodeNo(LINEAGE.saturating_add(id)), ItemKind::Origin)
    }
}
