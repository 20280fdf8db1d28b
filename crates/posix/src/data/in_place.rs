//! What a file has reserved can be written, however full the volume is: the data goes straight to the reserved blocks.
//!
//! This happens only where there is no room for other blocks. A write that finds room takes new blocks, and the
//! reserved ones become free: then no flush is needed before its extents are published, and none of the code below
//! runs. Where there is no room, [`Room`] keeps what such a write needs besides its blocks, space for items and
//! checksums (P8), and a writeback writes the pages in place ([`write_round`]), flushes, and publishes. A block that is
//! written a second time holds data, and needs other blocks.
//!
//! Invariant: a delayed page without a promised block has a reserved one. When the page became dirty, that block was
//! reserved and nothing was in flight to it. A truncate or a hole that takes the block away drops the page with it, or
//! has written it back before.

use std::collections::VecDeque;
use std::ops::Range;

use holdfast_base::BlockNo;
use holdfast_format::item::InodeItem;
use holdfast_store::page;
use holdfast_store::{Delayed, MetadataReservation, Need, Reservation, Sent, StoreError};

use super::place::{CHUNK_BLOCKS, Item, write_all};
use super::punch;
use crate::FsError;
use crate::core::Core;
use crate::delayed::ordered::OrderedExtent;
use crate::file::lookup::pieces;
use crate::file::map::Piece;
use crate::file_data::MapGuard;
use crate::file_data::pages::{DirtyPage, Pages};
use crate::inode::Inode;

/// Blocks of a file that are reserved and were never written, at one moment.
#[derive(Debug, Default)]
pub(super) struct Reserved(Vec<Range<u64>>);

impl Reserved {
    /// Those whose pages are about to become dirty, and go there: they are neither dirty nor in flight.
    pub(super) fn of(&self, pages: &Pages) -> Vec<u64> {
        let blocks = self.0.iter().cloned().flatten();
        blocks.filter(|&block| !pages.is_dirty(block) && !pages.is_in_flight(block)).collect()
    }
}

/// What a write needs that is about to be accepted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wants {
    /// New blocks.
    pub(super) blocks: u64,
    /// How many of these the file has none for yet.
    pub(super) growth: u64,
    /// Blocks that the file has reserved.
    pub(super) in_place: u64,
    /// Runs of pages that there are not yet.
    pub(super) runs: u64,
}

/// Space for a write that is about to be accepted.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Blocks.
    pub(super) held: Option<Reservation>,
    /// What is kept for nodes.
    pub(super) metadata_reservation: Option<MetadataReservation>,
    /// Of these, the pages that go to reserved blocks.
    in_place: u64,
    /// There were not enough free blocks at once.
    is_short: bool,
}

impl Room {
    /// Which of `blocks` are reserved. Looked up only if free blocks are short. The caller holds the writer's lock.
    pub(super) fn reserved(
        &self,
        core: &Core,
        inode: &Inode,
        disk: &InodeItem,
        blocks: Range<u64>,
    ) -> Result<Reserved, FsError> {
        if !self.is_short || disk.blocks == 0 {
            return Ok(Reserved::default());
        }
        let pieces = punch::visible(core, inode.no, pieces(core, inode.no, blocks.clone())?);
        // What a snapshot has reserved as well is written by none (S2).
        let reserved = pieces
            .iter()
            .filter(|piece| !piece.extent.is_written() && core.store.owns(piece.extent.birth));
        let within = |piece: &Piece| piece.first.max(blocks.start)..piece.end().min(blocks.end);
        Ok(Reserved(reserved.map(within).collect()))
    }

    fn blocks(&self) -> u64 {
        self.held.as_ref().map_or(0, Reservation::blocks)
    }

    fn growth(&self) -> u64 {
        self.held.as_ref().map_or(0, Reservation::growth)
    }

    fn delayed(&self) -> Delayed {
        self.metadata_reservation.as_ref().map_or(Delayed::default(), MetadataReservation::delayed)
    }

    /// Whether it is enough.
    pub(super) fn is_enough(&self, wants: Wants) -> bool {
        let Delayed { runs, pages } = self.delayed();
        self.blocks() >= wants.blocks
            && self.growth() >= wants.growth
            && self.in_place >= wants.in_place
            && pages >= wants.blocks + wants.in_place
            && runs >= wants.runs
    }

    fn add(&mut self, mut more: Reservation) {
        let metadata_reservation = more.metadata_reservation();
        match &mut self.metadata_reservation {
            Some(held) => held.merge(metadata_reservation),
            held => *held = Some(metadata_reservation),
        }
        match &mut self.held {
            Some(held) => held.merge(more),
            held => *held = Some(more),
        }
    }

    /// Takes what is missing, or finds that the volume does not have it at once: then the caller looks up what the file
    /// has reserved. No state is locked.
    pub(super) fn take(&mut self, core: &Core, wants: Wants) -> Result<(), FsError> {
        let blocks = wants.blocks.saturating_sub(self.blocks());
        let mut runs = wants.runs.saturating_sub(self.delayed().runs);
        // What the file had when the blocks were taken may be gone since: then they are its growth.
        let growth = wants.growth.saturating_sub(self.growth());
        if blocks > 0 || growth > 0 {
            let need = Need::Delay { blocks, growth, delayed: Delayed { runs, pages: blocks } };
            let more = match self.is_short {
                true => Some(core.with_room(|| Ok(core.store.reserve(need)?))?),
                false => core.within_limit(|| core.store.reserve_now(need))?,
            };
            match more {
                Some(more) => self.add(more),
                None => {
                    self.is_short = true;
                    return Ok(());
                }
            }
            runs = 0;
        }
        let pages = wants.in_place.saturating_sub(self.in_place);
        if pages > 0 || runs > 0 {
            let need = Need::Fill { delayed: Delayed { runs, pages } };
            let more = core.with_room(|| Ok(core.store.reserve(need)?))?;
            self.add(more);
            self.in_place += pages;
        }
        Ok(())
    }
}

/// Writes the pages of one round, those without a promised block in place, and returns when every write has:
/// the extents in the order of the file, and how many writes. `reservation` has a block for each of the others.
pub(super) fn write_round(
    core: &Core,
    inode: &Inode,
    map: &MapGuard<'_>,
    round: Vec<DirtyPage>,
    reservation: &mut Option<Reservation>,
    goal: impl FnOnce(u64) -> Result<Option<BlockNo>, FsError>,
) -> Result<(VecDeque<OrderedExtent>, u64), FsError> {
    let (in_place, mut others): (Vec<_>, Vec<_>) = round.into_iter().partition(|of| of.in_place);
    let mut extents = Vec::new();
    let mut writes = 0;
    if !in_place.is_empty() {
        let filled = fill(core, inode, map, in_place)?;
        writes += filled.extents.len() as u64;
        extents = filled.extents;
        if !filled.refused.is_empty() {
            let blocks = filled.refused.len() as u64;
            let more = core.store.reserve(Need::Change { changes: 0, blocks });
            let more = match (more, filled.error) {
                (Err(StoreError::NoSpace), Some(error)) => return Err(error.into()),
                (more, _) => more?,
            };
            match reservation {
                Some(reservation) => reservation.merge(more),
                None => *reservation = Some(more),
            }
            others.extend(filled.refused);
            others.sort_unstable_by_key(|dirty| dirty.block);
        }
    }
    if let Some(first) = others.first() {
        let reservation = reservation.as_mut().expect("a block was promised to each of the others");
        let goal = goal(first.block)?;
        let items: Vec<Item> = others.into_iter().map(|dirty| Item::of(0, dirty)).collect();
        let (placed, more) = write_all(core, &items, reservation, goal, Some(inode.no))?;
        writes += more;
        extents.extend(placed.into_iter().map(|(_, extent)| extent));
        extents.sort_by_key(|extent| extent.first);
    }
    Ok((extents.into(), writes))
}

/// Result for pages that go to reserved blocks.
#[derive(Default)]
struct Filled {
    extents: Vec<OrderedExtent>,
    /// Pages that need other blocks: the device refused them where they were to go.
    refused: Vec<DirtyPage>,
    error: Option<StoreError>,
}

/// Writes pages to the blocks that their file has reserved, which stay reserved as long as the map is locked, and flushes.
fn fill(
    core: &Core,
    inode: &Inode,
    _map: &MapGuard<'_>,
    pages: Vec<DirtyPage>,
) -> Result<Filled, StoreError> {
    let mut filled = Filled::default();
    let mut sent: Vec<(u64, Sent)> = Vec::new();
    let longest = core.store.extent_blocks_max().min(CHUNK_BLOCKS) as usize;
    let mut rest = &pages[..];
    while let Some(front) = rest.first() {
        let run = run_len(rest);
        let reserved = reserved_from(core, inode, front.block..front.block + run as u64)?;
        let Some(reserved) = reserved else {
            // A block that is not reserved is never overwritten.
            debug_assert!(false, "block {} of inode {} is not reserved", front.block, inode.no);
            filled.refused.push(front.clone());
            rest = &rest[1..];
            continue;
        };
        let count = (reserved.count() as usize).min(longest);
        let (now, later) = rest.split_at(count);
        rest = later;
        let part = reserved.part(front.block..front.block + count as u64);
        let Some(part) = part else { continue };
        match send(core, inode, &part, now) {
            Ok(Some(done)) => sent.push((part.first, done)),
            // A snapshot reads them as zeros.
            Ok(None) => filled.refused.extend_from_slice(now),
            Err(StoreError::Device(error)) if core.store.stop_reason().is_none() => {
                tracing::warn!("data for {:?}: {error}; trying other blocks", part.extent.blocks);
                filled.refused.extend_from_slice(now);
                filled.error = Some(StoreError::Device(error));
            }
            Err(error) => return Err(error),
        }
    }
    let (firsts, sent): (Vec<u64>, Vec<Sent>) = sent.into_iter().unzip();
    let written = core.store.flush_in_place(sent)?;
    let extents = firsts.into_iter().zip(written);
    filled.extents = extents.map(|(first, written)| OrderedExtent { first, written }).collect();
    Ok(filled)
}

/// How many of `pages` from the first on are consecutive in the file.
fn run_len(pages: &[DirtyPage]) -> usize {
    let first = pages.first().map_or(0, |page| page.block);
    (first..).zip(pages).take_while(|(block, page)| *block == page.block).count()
}

/// What the file has reserved from the first block of `range` on, in one piece.
fn reserved_from(
    core: &Core,
    inode: &Inode,
    range: Range<u64>,
) -> Result<Option<Piece>, StoreError> {
    let pieces = pieces(core, inode.no, range.clone())?;
    let first = pieces.first().filter(|piece| !piece.extent.is_written());
    Ok(first.and_then(|piece| piece.part(range.clone())).filter(|part| part.first == range.start))
}

/// One write.
fn send(
    core: &Core,
    inode: &Inode,
    part: &Piece,
    pages: &[DirtyPage],
) -> Result<Option<Sent>, StoreError> {
    let blocks = part.extent.blocks;
    let Some(unwritten) = core.store.unwritten(blocks, part.extent.birth)? else {
        return Ok(None);
    };
    core.data.recent.forget(blocks);
    page::with_row(pages.iter().map(|dirty| &dirty.page), |bytes| {
        let _sent = core.data.in_flight.enter(bytes.len(), Some(inode.no));
        core.store.write_in_place(unwritten, bytes).map(Some)
    })
}
