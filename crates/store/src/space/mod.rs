//! Which blocks are free, and the tokens for space on its way into a file.
//!
//! `Reservation`, `Allocated` and `Written` cannot be copied or made elsewhere:
//! holding one is the proof that the step before has happened (R3).

pub(crate) mod alloc;
#[cfg(test)]
mod away_tests;
mod bitmaps;
pub(crate) mod delayed;
pub(crate) mod discard;
mod extend;
mod filling;
pub(crate) mod freed;
mod give_back;
pub(crate) mod group;
mod groups;
mod having;
pub(crate) mod unbacked;
#[cfg(test)]
mod unbacked_tests;
pub(crate) mod promise;
pub(crate) mod record;
mod reservation;
pub(crate) mod slots;
mod sparse;
mod written;

pub use delayed::Delayed;
pub(crate) use extend::reserve_of;
pub(crate) use filling::Filling;
pub(crate) use groups::{Pieces, Wants, by_group, group_range};
pub(crate) use reservation::SharedSpace;
pub use reservation::{Allocated, MetadataReservation, Reservation};
pub(crate) use written::{Destination, WrittenContent};
pub use written::{LoggedBlock, Unwritten, Written};

/// How full a volume is, in blocks of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceUse {
    /// Blocks of the data zone.
    pub total: u64,
    /// Blocks that hold nothing (freed ones that are not reusable yet included).
    pub free: u64,
    /// Blocks that a user can still fill with data.
    pub available: u64,
    /// Inodes.
    pub inodes: u64,
}
