//! The pages of a file, and the space that is promised to them.

use holdfast_store::{Allocated, Reservation};

use super::pages::Pages;

/// The pages of a file and the space that is promised to them.
#[derive(Debug, Default)]
pub(crate) struct Content {
    /// The pages.
    pub(crate) pages: Pages,
    /// Holds a block for every dirty page, also after a writeback that failed for lack of space.
    pub(crate) reserved: Option<Reservation>,
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

    /// Takes back blocks that were allocated for pages which are dirty again: they are promised to those pages as
    /// before.
    pub(crate) fn reclaim(&mut self, placed: Allocated) {
        let reserved = self.reserved.get_or_insert_with(|| Reservation::empty_for(&placed));
        reserved.reclaim(placed);
    }

    /// Whether every page has a block that is promised to it, or goes to one that the file has reserved.
    pub(crate) fn is_promised(&self) -> bool {
        self.reserved.as_ref().map_or(0, Reservation::blocks)
            >= self.pages.count() as u64 - self.pages.in_place()
    }
}
