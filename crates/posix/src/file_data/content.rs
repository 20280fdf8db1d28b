//! The pages of a file, and the space that is promised to them.

use holdfast_store::{Allocated, Delayed, MetadataReservation, Reservation};

use super::pages::Pages;

/// The pages of a file and the space that is promised to them.
#[derive(Debug, Default)]
pub(crate) struct Content {
    /// The pages.
    pub(crate) pages: Pages,
    /// Holds a block for every dirty page, also after a writeback that failed for lack of space.
    pub(crate) reserved: Option<Reservation>,
    /// Keeps space for the nodes that all pages may need, also while they are in flight.
    metadata_reservation: Option<MetadataReservation>,
    /// The inode is in the list of [`crate::delayed::Shared`].
    pub(crate) listed: bool,
}

impl Content {
    /// Adds to the promised space.
    pub(crate) fn add_reserved(&mut self, reservation: Reservation) {
        match &mut self.reserved {
            Some(reserved) => reserved.merge(reservation),
            None => self.reserved = Some(reservation),
        }
    }

    /// Adds to what is kept for nodes.
    pub(crate) fn add_kept_nodes(&mut self, more: MetadataReservation) {
        match &mut self.metadata_reservation {
            Some(metadata_reservation) => metadata_reservation.merge(more),
            None => self.metadata_reservation = Some(more),
        }
    }

    /// Gives back what is kept for nodes beyond what the pages may need.
    pub(crate) fn shrink_kept_nodes(&mut self) {
        if self.pages.is_empty() {
            self.metadata_reservation = None;
        } else if let Some(metadata_reservation) = &mut self.metadata_reservation {
            metadata_reservation.shrink_to(self.pages.delayed());
        }
    }

    /// Takes back blocks that were allocated for pages which are dirty again: they are promised to those pages as
    /// before.
    pub(crate) fn reclaim(&mut self, placed: Allocated) {
        let reserved = self.reserved.get_or_insert_with(|| Reservation::empty_for(&placed));
        reserved.reclaim(placed);
    }

    /// Whether every page has a block that is promised to it, or goes to one that the file has reserved, and space is
    /// kept for its nodes.
    pub(crate) fn is_promised(&self) -> bool {
        let blocks = self.reserved.as_ref().map_or(0, Reservation::blocks);
        let kept = self
            .metadata_reservation
            .as_ref()
            .map_or(Delayed::default(), MetadataReservation::delayed);
        let pages = self.pages.delayed();
        blocks >= pages.pages - self.pages.in_place()
            // A truncate writes the front of a run back before it drops the rest.
            && kept.runs + 1 >= pages.runs
            && kept.pages >= pages.pages
    }
}
