//! Delayed allocation: dirty pages become as few extents as possible.
//!
//! Pages arrive in the order of the file. A run of neighbours is allocated in
//! one piece where the volume has one, behind the extent that comes before it
//! in the file, and written with one call for each extent.

use holdfast_base::BlockNo;
use holdfast_base::units::BLOCK_SIZE;
use holdfast_store::{Need, Reservation, StoreError, Written};

use super::ordered::OrderedExtent;
use super::pages::Page;
use crate::core::Core;

/// Direct I/O wants memory aligned to the device's sector.
const ALIGNMENT: usize = 4096;

/// Memory in which pages are gathered for one write, aligned so that the device need not copy.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    memory: Vec<u8>,
}

impl Gather {
    fn fill(&mut self, pages: &[(u64, Page)]) -> &[u8] {
        let len = pages.len() * BLOCK_SIZE;
        if self.memory.len() < len + ALIGNMENT {
            self.memory = vec![0; len + ALIGNMENT];
        }
        let start = self.memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        let buffer = &mut self.memory[start..start + len];
        for (to, (_, page)) in buffer.chunks_exact_mut(BLOCK_SIZE).zip(pages) {
            to.copy_from_slice(&page[..]);
        }
        buffer
    }
}

/// How many of `pages` follow one another in the file from the first on.
pub(crate) fn run_len(pages: &[(u64, Page)]) -> usize {
    let Some(&(first, _)) = pages.first() else {
        return 0;
    };
    let neighbours = |(i, (block, _)): (usize, &(u64, Page))| *block == first + i as u64;
    pages.iter().enumerate().take_while(|&p| neighbours(p)).count()
}

/// Writes the front of a run of neighbours as one extent.
///
/// A device that refuses is asked once more, with other blocks. The error after that is final.
pub(crate) fn write_front(
    core: &Core,
    run: &[(u64, Page)],
    reservation: &mut Reservation,
    goal: Option<BlockNo>,
    gather: &mut Gather,
) -> Result<OrderedExtent, StoreError> {
    let (first, _) = run[0];
    let want = (run.len() as u64).min(core.store.extent_blocks_max());
    let placed = core.store.allocate(reservation, want, goal)?;
    let blocks = placed.blocks();
    let bytes = gather.fill(&run[..blocks.count as usize]);
    let written = match core.store.write(placed, bytes) {
        Err(StoreError::Device(error)) if core.store.stop_reason().is_none() => {
            tracing::warn!("data for {blocks:?}: {error}; trying other blocks");
            write_elsewhere(core, run, blocks.count, blocks.end(), gather)?
        }
        done => done?,
    };
    Ok(OrderedExtent { first, written })
}

fn write_elsewhere(
    core: &Core,
    run: &[(u64, Page)],
    count: u64,
    goal: Option<BlockNo>,
    gather: &mut Gather,
) -> Result<Written, StoreError> {
    let mut reservation = core.store.reserve(Need::Grow { changes: 0, blocks: count })?;
    let placed = core.store.allocate(&mut reservation, count, goal)?;
    let bytes = gather.fill(&run[..placed.blocks().count as usize]);
    core.store.write(placed, bytes)
}
