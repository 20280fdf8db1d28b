//! Delayed allocation: dirty pages become as few writes and extents as possible.
//!
//! Pages arrive in the order in which they are to lie on the device: of one file, or of many small ones. They are
//! allocated in chunks, as large as the volume's free runs allow. Each chunk is one write, however many files or ranges
//! share it. Neighbours in a file become one extent. The size of a chunk bounds how long another caller's fsync waits,
//! see [`crate::delayed::Shared::in_flight`].

use std::collections::VecDeque;
use std::ops::Range;

use holdfast_base::units::BLOCK_SIZE;
use holdfast_base::{BlockNo, InodeNo, wait};
use holdfast_store::page::{self, Page, RUN_PAGES};
use holdfast_store::{Allocated, LoggedBlock, Reservation, StoreError, Unwritten, Written};
use parking_lot::Mutex;

use crate::core::Core;
use crate::delayed::ordered::OrderedExtent;
use crate::file::lookup::pieces;
use crate::file_data::pages::DirtyPage;
use crate::inode::Inode;

/// Blocks of one write: 256 KiB, as many as lie in a row at most.
pub(crate) const CHUNK_BLOCKS: u64 = RUN_PAGES as u64;

/// One page on its way.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// Index of its file, as the caller counts them.
    pub(crate) owner: usize,
    /// Its block, counted from the start of the file.
    pub(crate) block: u64,
    /// Its bytes.
    pub(crate) page: Page,
}

impl Item {
    /// A dirty page of the file that the caller counts as `owner`.
    pub(super) fn of(owner: usize, dirty: DirtyPage) -> Item {
        Item { owner, block: dirty.block, page: dirty.page }
    }
}

/// A chunk with its location, and after the write its proofs.
struct Job {
    items: Range<usize>,
    placed: Allocated,
}

/// Writes all of `items`, which belong to `of` or to several files, and returns when every write has: the extents in
/// the order of the items, and how many writes.
///
/// A device that refuses is tried once more, with other blocks. The error after that is final, and the reservation has
/// all blocks again that were taken out of it (P8).
pub(crate) fn write_all(
    core: &Core,
    items: &[Item],
    reservation: &mut Reservation,
    goal: Option<BlockNo>,
    of: Option<InodeNo>,
) -> Result<(Vec<(usize, OrderedExtent)>, u64), StoreError> {
    let mut jobs: Vec<Job> = Vec::new();
    let mut placed = Ok(());
    for job in places(core, items, reservation, goal) {
        match job {
            Ok(job) => jobs.push(job),
            Err(error) => {
                placed = Err(error);
                break;
            }
        }
    }
    if let Err(error) = placed {
        jobs.into_iter().for_each(|job| reservation.reclaim(job.placed));
        return Err(error);
    }
    let writes = jobs.len() as u64;
    let written = if jobs.len() == 1 {
        jobs.into_iter().map(|job| write(core, &items[job.items], job.placed, of)).collect()
    } else {
        write_side_by_side(core, items, jobs, of)
    };
    let mut all = Vec::new();
    let mut failed = None;
    for proofs in written {
        match proofs {
            Ok(proofs) => all.extend(proofs),
            Err(refused) => {
                reservation.merge(*refused.promised);
                failed = failed.or(Some(refused.error));
            }
        }
    }
    if failed.is_none() {
        failed = core.store.flush_for_others(all.iter_mut(), items.len() as u64, of).err();
    }
    if let Some(error) = failed {
        all.into_iter()
            .filter_map(Written::into_placed)
            .for_each(|placed| reservation.reclaim(placed));
        return Err(error);
    }
    let mut extents = Vec::new();
    let mut rest = items;
    for proof in all {
        let count = proof.blocks().count as usize;
        let pages = rest[..count].iter().map(|item| &item.page);
        core.data.recent.keep(proof.blocks(), proof.sums(), pages);
        cut_at_extents(core, &rest[..count], proof, |owner, extent| {
            extents.push((owner, extent));
        });
        rest = &rest[count..];
    }
    debug_assert!(rest.is_empty());
    Ok((extents, writes))
}

/// Allocates locations for the dirty pages of one file without writing them: their bytes go into the log. After an
/// error the reservation has all its blocks again.
pub(crate) fn log_all(
    core: &Core,
    inode: &Inode,
    pages: &[DirtyPage],
    reservation: &mut Reservation,
    goal: Option<BlockNo>,
) -> Result<VecDeque<OrderedExtent>, StoreError> {
    // Each page alone, because they wait for a commit.
    let items =
        pages.iter().map(|dirty| Item { owner: 0, block: dirty.block, page: dirty.page.alone() });
    let items: Vec<Item> = items.collect();
    let mut extents = VecDeque::new();
    let mut failed = None;
    for job in places(core, &items, reservation, goal) {
        let written =
            job.map_err(|error| (error, None)).and_then(|Job { items: range, placed }| {
                let mut blocks = Vec::with_capacity(range.len());
                for (dirty, item) in pages[range.clone()].iter().zip(&items[range.clone()]) {
                    match logged(core, inode, dirty, item.page.clone()) {
                        Ok(block) => blocks.push(block),
                        Err(error) => return Err((error, Some(placed))),
                    }
                }
                let written = core.store.log_data(placed, blocks).map_err(|error| (error, None))?;
                Ok((written, &items[range]))
            });
        match written {
            Ok((written, items)) => {
                let pages = items.iter().map(|item| &item.page);
                core.data.recent.keep(written.blocks(), written.sums(), pages);
                cut_at_extents(core, items, written, |_, extent| extents.push_back(extent));
            }
            Err(why) => {
                failed = Some(why);
                break;
            }
        }
    }
    let Some((error, placed)) = failed else {
        return Ok(extents);
    };
    let logged = extents.into_iter().filter_map(|extent| extent.written.into_placed());
    logged.chain(placed).for_each(|placed| reservation.reclaim(placed));
    Err(error)
}

/// What the log has to hold of a page: its changed bytes over the block that the tree has there, or all of it that is
/// not zero.
fn logged(
    core: &Core,
    inode: &Inode,
    dirty: &DirtyPage,
    page: Page,
) -> Result<LoggedBlock, StoreError> {
    if dirty.over_tree {
        let pieces = pieces(core, inode.no, dirty.block..dirty.block + 1)?;
        let part = pieces.first().and_then(|piece| piece.part(dirty.block..dirty.block + 1));
        if let Some(part) = part.filter(|part| part.extent.is_written()) {
            let base = Some(part.extent.blocks.start);
            return Ok(LoggedBlock { page, base, changed: dirty.changed.clone() });
        }
    }
    let first = page.iter().position(|byte| *byte != 0).unwrap_or(0);
    let end = page.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    Ok(LoggedBlock { page, base: None, changed: first.min(end)..end })
}

/// Locations for all of `items`, one after the other, up to the first error.
fn places<'a>(
    core: &'a Core,
    items: &'a [Item],
    reservation: &'a mut Reservation,
    mut goal: Option<BlockNo>,
) -> impl Iterator<Item = Result<Job, StoreError>> + 'a {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = items.get(at..).filter(|rest| !rest.is_empty())?;
        let placed = core.allocate(reservation, chunk_len(rest), goal);
        Some(placed.map(|placed| {
            let items = at..at + placed.blocks().count as usize;
            goal = placed.blocks().end();
            at = items.end;
            Job { items, placed }
        }))
    })
}

/// Blocks of the next write: all that is left, or up to where runs end, if the file continues behind that without a
/// gap. Then this write and those behind it find their pages in a row.
fn chunk_len(items: &[Item]) -> u64 {
    if items.len() as u64 <= CHUNK_BLOCKS {
        return items.len() as u64;
    }
    let to_border = CHUNK_BLOCKS - items[0].block % CHUNK_BLOCKS;
    let behind = &items[to_border as usize];
    let is_dense = behind.owner == items[0].owner && behind.block == items[0].block + to_border;
    if is_dense { to_border } else { CHUNK_BLOCKS }
}

/// Why items could not be written, and their blocks, which are promised to them as before.
struct Refused {
    error: StoreError,
    promised: Box<Reservation>,
}

type Proofs = Result<Vec<Written>, Refused>;

fn write_side_by_side(
    core: &Core,
    items: &[Item],
    jobs: Vec<Job>,
    of: Option<InodeNo>,
) -> Vec<Proofs> {
    let count = jobs.len();
    let done: Mutex<Vec<Option<Proofs>>> = Mutex::new((0..count).map(|_| None).collect());
    let queue = Mutex::new(jobs.into_iter().enumerate());
    let work = || {
        loop {
            let next = queue.lock().next();
            let Some((index, job)) = next else {
                return;
            };
            let proofs = write(core, &items[job.items], job.placed, of);
            done.lock()[index] = Some(proofs);
        }
    };
    if count > 1 {
        wait::will_share();
    }
    holdfast_sync::on_threads(count.min(core.data.in_flight.most()), work);
    let done = done.into_inner();
    done.into_iter().map(|proofs| proofs.expect("every job was done")).collect()
}

fn write(core: &Core, items: &[Item], placed: Allocated, of: Option<InodeNo>) -> Proofs {
    let blocks = placed.blocks();
    page::with_row(items.iter().map(|item| &item.page), |bytes| {
        let sent = core.data.in_flight.enter(bytes.len(), of);
        let written = core.store.write(placed, bytes);
        drop(sent);
        let Unwritten { placed, error } = match written {
            Ok(written) => return Ok(vec![written]),
            Err(unwritten) => unwritten,
        };
        let error = *error;
        let mut promised = Reservation::empty_for(&placed);
        promised.reclaim(placed);
        if matches!(error, StoreError::Device(_)) && core.store.stop_reason().is_none() {
            tracing::warn!("data for {blocks:?}: {error}; trying other blocks");
            return write_elsewhere(core, items, bytes, promised, blocks.end());
        }
        Err(Refused { error, promised: Box::new(promised) })
    })
}

/// Writes them behind `goal`, or wherever there is room for them.
fn write_elsewhere(
    core: &Core,
    items: &[Item],
    bytes: &[u8],
    mut promised: Reservation,
    goal: Option<BlockNo>,
) -> Proofs {
    let mut proofs = Vec::new();
    let mut failed = None;
    for job in places(core, items, &mut promised, goal) {
        let written = job.map_err(|error| (error, None)).and_then(|job| {
            let part = job.items.start * BLOCK_SIZE..job.items.end * BLOCK_SIZE;
            let written = core.store.write(job.placed, &bytes[part]);
            written.map_err(|Unwritten { placed, error }| (*error, Some(placed)))
        });
        match written {
            Ok(written) => proofs.push(written),
            Err(why) => {
                failed = Some(why);
                break;
            }
        }
    }
    let Some((error, placed)) = failed else {
        return Ok(proofs);
    };
    let written = proofs.into_iter().filter_map(Written::into_placed);
    written.chain(placed).for_each(|placed| promised.reclaim(placed));
    Err(Refused { error, promised: Box::new(promised) })
}

/// Cuts a write where one file's neighbours end.
fn cut_at_extents(
    core: &Core,
    items: &[Item],
    mut proof: Written,
    mut put: impl FnMut(usize, OrderedExtent),
) {
    let longest = core.store.extent_blocks_max() as usize;
    let mut rest = items;
    loop {
        let count = run_len(rest).min(longest);
        let (owner, first) = (rest[0].owner, rest[0].block);
        if count == rest.len() {
            put(owner, OrderedExtent { first, written: proof });
            return;
        }
        let written = proof.split_front(count as u64);
        put(owner, OrderedExtent { first, written });
        rest = &rest[count..];
    }
}

/// How many of `items` from the first on are consecutive in one file.
fn run_len(items: &[Item]) -> usize {
    let Some(front) = items.first() else {
        return 0;
    };
    let follows = |(i, item): (usize, &Item)| {
        item.owner == front.owner && item.block == front.block + i as u64
    };
    items.iter().enumerate().take_while(|&pair| follows(pair)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths of the writes, and whether the pages of each lie in a row.
    fn chunks(items: &[Item]) -> Vec<(u64, bool)> {
        let (mut rest, mut chunks) = (items, Vec::new());
        while !rest.is_empty() {
            let (now, later) = rest.split_at(chunk_len(rest) as usize);
            chunks.push((now.len() as u64, page::in_a_row(now.iter().map(|i| &i.page)).is_some()));
            rest = later;
        }
        chunks
    }

    fn written(owner: usize, first: u64, blocks: usize) -> Vec<Item> {
        let bytes = vec![1; blocks * BLOCK_SIZE];
        let pages = page::copy_blocks(first, &bytes);
        (first..).zip(pages).map(|(block, page)| Item { owner, block, page }).collect()
    }

    #[test]
    fn writes_of_a_stream_end_where_its_runs_end() {
        let stream: Vec<Item> = written(0, 0, 256).into_iter().skip(1).collect();
        assert_eq!(chunks(&stream), [(63, true), (64, true), (64, true), (64, true)]);
        let mut later = written(0, 1, 100);
        later.extend(written(0, 101, 60));
        assert_eq!(chunks(&later), [(63, true), (64, false), (33, true)]);
        // One write, wherever it begins.
        assert_eq!(chunks(&written(0, 60, 64)), [(64, false)]);
    }

    #[test]
    fn writes_of_torn_files_and_of_many_are_no_shorter_than_they_must_be() {
        for (step, at) in [(7, 0), (64, 63), (64, 60)] {
            let torn: Vec<Item> = (0..200).flat_map(|n| written(0, n * step + at, 1)).collect();
            let lengths: Vec<u64> = chunks(&torn).iter().map(|chunk| chunk.0).collect();
            assert_eq!(lengths, [64, 64, 64, 8], "each {step} blocks, from {at}");
        }
        let many: Vec<Item> = (0..100).flat_map(|owner| written(owner, 0, 2)).collect();
        assert_eq!(chunks(&many).iter().map(|c| c.0).collect::<Vec<_>>(), [64, 64, 64, 8]);
    }
}
