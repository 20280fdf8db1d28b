//! Extents whose data is written go into the tree, a transaction at a time.
//!
//! A round is published in the order of the file. If it is too fragmented for one transaction, or space for nodes too
//! short, several publish it: the size in the tree grows with them and never covers what is not published (P5). Pages
//! land in the step that makes their extents visible.

use std::collections::VecDeque;
use std::sync::Arc;

use holdfast_base::mutants::{self, Mutant};
use holdfast_base::units::BLOCK_BYTES;
use holdfast_store::{Need, Reservation, Transaction};

use super::publish::publish;
use crate::Result;
use crate::core::Core;
use crate::delayed::ordered::{OrderedExtent, Target};
use crate::file::inline;
use crate::file::lookup::{merge, pieces};
use crate::file::map::Piece;
use crate::file_data::MapGuard;
use crate::inode::Inode;

/// Extents of one transaction.
const BATCH_EXTENTS: usize = 64;
/// Pieces of the old map that one transaction may replace.
const BATCH_OLD_PIECES: usize = 256;

/// Publishes a round, all of whose data writes have returned: as one transaction, or in the order of the file as
/// several, if the map is too fragmented or space for nodes too short.
///
/// After an error the blocks of what is not in the tree are promised to its pages as before (P8).
pub(crate) fn insert_extents(
    core: &Core,
    inode: &Arc<Inode>,
    map: &MapGuard<'_>,
    mut round: VecDeque<OrderedExtent>,
    target: Target,
    last: bool,
) -> Result<()> {
    let done = insert_round(core, inode, map, &mut round, target, last);
    if done.is_err() {
        let mut content = inode.data.lock_content();
        for ordered in round {
            if let Some(placed) = ordered.written.into_placed() {
                content.reclaim(placed);
            }
        }
    }
    done
}

/// Removes from `round` what it puts into the tree.
fn insert_round(
    core: &Core,
    inode: &Arc<Inode>,
    map: &MapGuard<'_>,
    round: &mut VecDeque<OrderedExtent>,
    target: Target,
    last: bool,
) -> Result<()> {
    let mut extents_max = BATCH_EXTENTS;
    while !round.is_empty() {
        let mut old: Vec<Piece> = Vec::new();
        let mut count = 0;
        for ordered in round.iter().take(extents_max) {
            // Includes the neighbours, so that pieces can be joined.
            let around = ordered.first.saturating_sub(1)..ordered.end() + 1;
            let pieces = pieces(core, inode.no, around)?;
            if count > 0 && old.len() + pieces.len() > BATCH_OLD_PIECES {
                break;
            }
            merge(inode.no, &mut old, pieces)?;
            count += 1;
        }
        // Each old piece may be deleted and put again, each extent is put and may cut a piece in two, and the inode and
        // the inline item follow.
        let changes = (2 * count + 2 * old.len() + 2) as u32;
        let Some(mut reservation) = core.reserve_for(count, Need::Writeback { changes })? else {
            extents_max = count / 4 + 1;
            continue;
        };
        // The promised space may still be too small for all of it at once: fewer extents need fewer nodes.
        if count > 1 && !core.store.has_room_for(changes, &reservation) {
            extents_max = count / 4 + 1;
            continue;
        }
        let done = Round {
            blocks_added: 0,
            end: round[count - 1].end(),
            last: last && round.len() == count,
            is_inline: false,
        };
        let part = round.drain(..count);
        if let Err(error) =
            publish_part(core, inode, map, part, old, &mut reservation, target, done)
        {
            // The reservation has the blocks of a refused transaction. Space for nodes is reserved again with the next
            // try.
            let blocks = reservation.blocks();
            inode.data.lock_content().add_reserved(reservation.split(blocks));
            return Err(error);
        }
    }
    Ok(())
}

#[allow(clippy::too_many_arguments)]
fn publish_part(
    core: &Core,
    inode: &Arc<Inode>,
    map: &MapGuard<'_>,
    part: impl Iterator<Item = OrderedExtent>,
    old: Vec<Piece>,
    reservation: &mut Reservation,
    target: Target,
    round: Round,
) -> Result<()> {
    let mut transaction = Transaction::new();
    let mut edit = core.edit(old);
    let blocks_max = core.store.extent_blocks_max();
    for ordered in part {
        let (first, is_in_place) = (ordered.first, ordered.written.is_in_place());
        let piece = Piece { first, extent: transaction.publish(ordered.written) };
        match is_in_place {
            true => edit.fill(piece, blocks_max),
            false => edit.insert(piece, blocks_max),
        }
    }
    let round = Round { blocks_added: edit.blocks_added(), ..round };
    edit.plan(inode.no, &mut transaction);
    if inline::may_exist(core, &inode.state.read().disk) {
        // The write that made the file larger has put the content into these pages.
        transaction.delete(inline::key(inode.no));
    }
    publish_round(core, inode, map, transaction, reservation, target, round)
}

/// What a round changes besides the map.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    pub(super) blocks_added: i64,
    /// Every page taken from blocks before this one is published by this round or an earlier one.
    pub(super) end: u64,
    /// This is the last round of its writeback.
    pub(super) last: bool,
    /// The round puts the whole content as an item, without blocks.
    pub(super) is_inline: bool,
}

/// Publishes a round, and with the last one the attributes.
pub(super) fn publish_round(
    core: &Core,
    inode: &Arc<Inode>,
    map: &MapGuard<'_>,
    transaction: Transaction,
    reservation: &mut Reservation,
    target: Target,
    round: Round,
) -> Result<()> {
    publish(
        core,
        inode,
        map,
        transaction,
        reservation,
        |state, item| {
            item.blocks = item.blocks.saturating_add_signed(round.blocks_added);
            if round.last && target.whole {
                item.size = target.size;
            } else {
                let covered = round.end.saturating_mul(BLOCK_BYTES).min(target.size);
                let ahead = mutants::is(Mutant::SizeAhead) && target.whole;
                item.size = item.size.max(if ahead { target.size } else { covered });
            }
            // Also where pages are left, which may wait for long: new data does not come with an old time.
            if round.last {
                // If callers see a time that is in the tree, but not the one that came with the pages, a later call
                // (utimens) has set it, and it wins.
                if state.attr.mtime == target.mtime || state.attr.mtime != state.disk.mtime {
                    item.mtime = target.mtime;
                }
                item.ctime = item.ctime.max(target.ctime);
            }
        },
        |_, content| match round.is_inline {
            true => content.pages.land_inline(),
            false => drop(content.pages.land(round.end)),
        },
    )?;
    Ok(())
}
