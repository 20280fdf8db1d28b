//! A settle: the dirty pages of one file go to the device and into the tree.
//!
//! Pages are taken in the order of the file, written in rounds of bounded
//! size, and each round is published by one batch. The size in the tree grows
//! with the rounds and never covers what is not published (P5). Pages that the
//! device refuses are dropped after a second try, and the error waits for
//! every open handle (P7); pages that could not be settled for another reason
//! are dirty again.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use holdfast_base::Timestamp;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_store::{Batch, Need, Reservation, StoreError};

use super::dirty::MapGuard;
use super::ordered::{OrderedExtent, publish};
use super::pages::Page;
use super::place::{Gather, run_len, write_front};
use crate::core::Core;
use crate::file::inline;
use crate::file::lookup::{piece_before, pieces};
use crate::file::map::{MapEdit, Piece};
use crate::inode::Inode;
use crate::{FsError, Result};

/// Extents of one round.
const ROUND_EXTENTS: usize = 64;
/// Pieces of the old map that one round may replace: bounds the batch.
const ROUND_OLD_PIECES: usize = 256;

/// What a settle makes durable besides the pages: the attributes when they were taken.
#[derive(Clone, Copy, Debug)]
struct Target {
    size: u64,
    mtime: Timestamp,
    ctime: Timestamp,
    /// All dirty pages were taken, so the attributes belong to them.
    whole: bool,
}

/// Writes all dirty data of an inode and publishes it. Called without any state locked.
pub(crate) fn settle(core: &Core, inode: &Arc<Inode>) -> Result<()> {
    if inode.data.is_clean() {
        return Ok(());
    }
    let map = inode.data.lock_map();
    settle_locked(core, inode, &map, 0..u64::MAX, true)
}

/// Settles the pages of `range`. `inline_ok`: a small content may become an inline item.
pub(crate) fn settle_locked(
    core: &Core,
    inode: &Arc<Inode>,
    map: &MapGuard<'_>,
    range: Range<u64>,
    inline_ok: bool,
) -> Result<()> {
    let (pages, mut reservation, target, disk) = {
        let state = inode.state.read();
        let mut content = inode.data.lock_content();
        let pages = content.pages.take(range);
        if pages.is_empty() {
            return Ok(());
        }
        let reservation = match content.pages.is_settled() {
            true => content.reserved.take(),
            false => {
                let reserved = content.reserved.as_mut();
                reserved.map(|reserved| reserved.split(pages.len() as u64))
            }
        };
        let target = Target {
            size: state.attr.size,
            mtime: state.attr.mtime,
            ctime: state.attr.ctime,
            whole: content.pages.is_settled(),
        };
        (pages, reservation, target, state.disk)
    };
    let small = inline_ok
        && target.whole
        && target.size <= inline::size_max(core)
        && disk.blocks == 0
        && pages.len() == 1
        && pages[0].0 == 0;
    let done = if small {
        settle_inline(core, inode, map, &pages[0].1, target)
    } else {
        ensure(core, &mut reservation, pages.len() as u64)
            .and_then(|reservation| settle_blocks(core, inode, map, &pages, reservation, target))
    };
    match done {
        Ok(()) => Ok(()),
        Err(error) => match give_up(core, inode, error, reservation) {
            // It is being removed: nobody can want its data any more.
            FsError::NotFound => Ok(()),
            error => Err(error),
        },
    }
}

/// After a settle that failed before has used it up, the reservation may be too small.
fn ensure<'a>(
    core: &Core,
    reservation: &'a mut Option<Reservation>,
    blocks: u64,
) -> Result<&'a mut Reservation> {
    let have = reservation.as_ref().map_or(0, Reservation::blocks);
    if have < blocks || reservation.is_none() {
        let more = core.store.reserve(Need::Grow { changes: 0, blocks: blocks - have })?;
        match reservation.as_mut() {
            Some(reservation) => reservation.merge(more),
            None => *reservation = Some(more),
        }
    }
    Ok(reservation.as_mut().expect("made just now"))
}

fn settle_inline(
    core: &Core,
    inode: &Arc<Inode>,
    map: &MapGuard<'_>,
    page: &Page,
    target: Target,
) -> Result<()> {
    let mut reservation = core.reserve_last(Need::Settle { changes: 2 })?;
    let mut batch = Batch::new();
    batch.put(inline::key(inode.no), page[..target.size as usize].to_vec());
    let round = Round { blocks_added: 0, end: 1, last: true };
    publish_round(core, inode, map, batch, &mut reservation, target, round)
}

fn settle_blocks(
    core: &Core,
    inode: &Arc<Inode>,
    map: &MapGuard<'_>,
    pages: &[(u64, Page)],
    reservation: &mut Reservation,
    target: Target,
) -> Result<()> {
    let mut gather = Gather::default();
    let mut at = 0;
    while at < pages.len() {
        let mut round: VecDeque<OrderedExtent> = VecDeque::new();
        while at < pages.len() && round.len() < ROUND_EXTENTS {
            let run = &pages[at..at + run_len(&pages[at..])];
            let first = run[0].0;
            let goal = match round.back() {
                Some(last) => last.written.blocks().end(),
                None => piece_before(core, inode.no, first)?.and_then(|p| p.extent.blocks.end()),
            };
            let extent = write_front(core, run, reservation, goal, &mut gather)?;
            at += (extent.end() - first) as usize;
            round.push_back(extent);
        }
        publish_extents(core, inode, map, round, target, at == pages.len())?;
    }
    Ok(())
}

/// Publishes a round, all of whose data writes have returned: as one batch, or in the order of the file
/// as several, if the map is too torn or space for nodes too short.
fn publish_extents(
    core: &Core,
    inode: &Arc<Inode>,
    map: &MapGuard<'_>,
    mut round: VecDeque<OrderedExtent>,
    target: Target,
    last: bool,
) -> Result<()> {
    let mut extents_max = ROUND_EXTENTS;
    while !round.is_empty() {
        let mut old: BTreeMap<u64, Piece> = BTreeMap::new();
        let mut count = 0;
        for ordered in round.iter().take(extents_max) {
            // With the neighbours, so that pieces can be joined.
            let around = ordered.first.saturating_sub(1)..ordered.end() + 1;
            let pieces = pieces(core, inode.no, around)?;
            if count > 0 && old.len() + pieces.len() > ROUND_OLD_PIECES {
                break;
            }
            old.extend(pieces.into_iter().map(|piece| (piece.first, piece)));
            count += 1;
        }
        // Each extent is put, each old piece may leave two parts, and the inode and the inline item follow.
        let changes = (count + 2 * old.len() + 2) as u32;
        let mut reservation = match core.store.reserve(Need::Settle { changes }) {
            Err(StoreError::NoSpace) if count > 1 => {
                extents_max = count / 4 + 1;
                continue;
            }
            Err(StoreError::NoSpace) => core.reserve_last(Need::Settle { changes })?,
            reserved => reserved?,
        };
        let part: Vec<OrderedExtent> = round.drain(..count).collect();
        let done = Round {
            blocks_added: 0,
            end: part.last().map_or(0, OrderedExtent::end),
            last: last && round.is_empty(),
        };
        publish_part(core, inode, map, part, old, &mut reservation, target, done)?;
    }
    Ok(())
}

#[allow(clippy::too_many_arguments)]
fn publish_part(
    core: &Core,
    inode: &Arc<Inode>,
    map: &MapGuard<'_>,
    part: Vec<OrderedExtent>,
    old: BTreeMap<u64, Piece>,
    reservation: &mut Reservation,
    target: Target,
    round: Round,
) -> Result<()> {
    let mut batch = Batch::new();
    let mut edit = MapEdit::new(old.into_values().collect());
    let blocks_max = core.store.extent_blocks_max();
    for ordered in part {
        let first = ordered.first;
        let extent = batch.publish(ordered.written);
        edit.insert(Piece { first, extent }, blocks_max);
    }
    let round = Round { blocks_added: edit.blocks_added(), ..round };
    edit.plan(inode.no, &mut batch);
    if inline::may_exist(core, &inode.state.read().disk) {
        // Whoever made the file larger has put its content into these pages.
        batch.delete(inline::key(inode.no));
    }
    publish_round(core, inode, map, batch, reservation, target, round)
}

/// What a round changes besides the map.
#[derive(Clone, Copy, Debug)]
struct Round {
    blocks_added: i64,
    /// Every page taken from blocks before this one is published by it, or was before.
    end: u64,
    /// It is the last of its settle.
    last: bool,
}

/// Publishes a round, and with the last one the attributes.
fn publish_round(
    core: &Core,
    inode: &Arc<Inode>,
    map: &MapGuard<'_>,
    batch: Batch,
    reservation: &mut Reservation,
    target: Target,
    round: Round,
) -> Result<()> {
    publish(
        core,
        inode,
        map,
        batch,
        reservation,
        |state, item| {
            item.blocks = item.blocks.saturating_add_signed(round.blocks_added);
            if round.last && target.whole {
                item.size = target.size;
                // If callers see the time of the tree, but not the one that came with the pages, somebody
                // has set it since (utimens): his is the later word.
                if state.attr.mtime == target.mtime || state.attr.mtime != state.disk.mtime {
                    item.mtime = target.mtime;
                }
                item.ctime = item.ctime.max(target.ctime);
            } else {
                let covered = round.end.saturating_mul(BLOCK_BYTES).min(target.size);
                item.size = item.size.max(covered);
            }
        },
        |_, content| {
            content.pages.land(round.end);
        },
    )?;
    Ok(())
}

/// What becomes of the pages in flight after an error.
fn give_up(
    core: &Core,
    inode: &Arc<Inode>,
    error: FsError,
    reservation: Option<Reservation>,
) -> FsError {
    let hopeless = matches!(
        &error,
        FsError::Store(StoreError::Device(_) | StoreError::Item { .. } | StoreError::Node { .. })
    );
    let mut state = inode.state.write();
    let mut content = inode.data.lock_content();
    content.pages.give_back();
    if let Some(reservation) = reservation {
        content.add_reserved(reservation);
    }
    let error = if hopeless {
        let why = format!("data of inode {} could not be written: {error}", inode.no);
        tracing::error!("{why}");
        let _changing = inode.data.begin_change();
        content.pages.drop_dirty(0..u64::MAX);
        state.attr.size = state.disk.size;
        inode.errors.record_error(&why);
        FsError::Io(why)
    } else {
        error
    };
    state.attr.blocks = state.disk.blocks + content.pages.fresh();
    core.data.account(inode, &mut content);
    core.data.release_nodes();
    error
}

/// Drops what is dirty of an inode that nobody can reach. When it returns nothing is being written
/// any more, and nothing of it will be published. Called without any state locked.
pub(crate) fn discard(core: &Core, inode: &Inode) {
    let _map = inode.data.lock_map();
    let mut content = inode.data.lock_content();
    content.pages.drop_dirty(0..u64::MAX);
    core.data.forget(inode, &mut content);
    core.data.release_nodes();
}
