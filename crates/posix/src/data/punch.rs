//! A hole with many extents: one step of history, carried out in several.
//!
//! The first transaction puts a [`PunchItem`] (what other filesystems call an intent). From then on the range reads as
//! zeros: for every reader, also after a crash, that is the whole operation. The transactions behind it remove or
//! unwrite the extents, some at a time, and the last one deletes the item. The call that makes the hole does this at
//! once, with the map locked. What a crash or an error leaves is done by the next mount for writing, or by the next
//! caller that changes the map ([`finish`]).
//!
//! Invariant: no extent is put into the range while the item is there.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_format::item::{FileType, PunchItem};
use holdfast_format::{ItemKind, Key};
use holdfast_store::{Need, StoreError, Transaction};

use super::publish::publish;
use crate::Result;
use crate::core::Core;
use crate::file::lookup::each_piece;
use crate::file::map::Piece;
use crate::file_data::MapGuard;
use crate::inode::Inode;
use crate::listed::{each_listed, listed};

/// Extents that one transaction changes.
pub(crate) const BATCH_EXTENTS: usize = 64;

/// The parts of a piece that do not lie in the range of `punch`.
fn outside(punch: &PunchItem, piece: &Piece) -> impl Iterator<Item = Piece> + use<> {
    [piece.part(0..punch.first), piece.part(punch.end..u64::MAX)].into_iter().flatten()
}

/// The parts of these pieces of a file that are not about to be removed.
pub(crate) fn visible(core: &Core, inode: InodeNo, pieces: Vec<Piece>) -> Vec<Piece> {
    match core.data.punches.of(inode) {
        None => pieces,
        Some(punch) => pieces.iter().flat_map(|piece| outside(&punch, piece)).collect(),
    }
}

/// As [`each_piece`], for what is not about to be removed.
pub(crate) fn each_visible(
    core: &Core,
    inode: InodeNo,
    start: u64,
    mut visit: impl FnMut(&Piece) -> ControlFlow<()>,
) -> std::result::Result<(), StoreError> {
    let punch = core.data.punches.of(inode);
    each_piece(core, inode, start, |piece| match &punch {
        None => visit(piece),
        Some(punch) => outside(punch, piece)
            .filter(|part| part.end() > start)
            .try_for_each(|part| visit(&part)),
    })
}

/// Some pieces from the front of `range`, or only written ones, and the end of the part of `range` that they describe.
pub(crate) fn window(
    core: &Core,
    inode: InodeNo,
    range: Range<u64>,
    written_only: bool,
    count_max: usize,
) -> Result<(Vec<Piece>, u64)> {
    let mut pieces = Vec::new();
    let mut end = range.end;
    if range.is_empty() {
        return Ok((pieces, end));
    }
    each_piece(core, inode, range.start, |piece| {
        if piece.first >= range.end {
            return ControlFlow::Break(());
        }
        if written_only && !piece.extent.is_written() {
            return ControlFlow::Continue(());
        }
        if pieces.len() == count_max {
            end = piece.first;
            return ControlFlow::Break(());
        }
        pieces.push(piece.clone());
        ControlFlow::Continue(())
    })?;
    Ok((pieces, end))
}

/// The reservation that clearing extents needs.
pub(crate) fn need(keeps: bool, changes: u32) -> Need {
    match keeps {
        // Pieces may be cut in two.
        true => Need::Writeback { changes },
        false => Need::Shrink { changes },
    }
}

/// Carries out what is left of a hole, if the file has one. Every caller that changes the map calls this first.
pub(crate) fn finish(core: &Core, inode: &Arc<Inode>, map: &MapGuard<'_>) -> Result<()> {
    let Some(punch) = core.data.punches.of(inode.no) else {
        return Ok(());
    };
    let keeps = punch.state == PunchItem::KEEPS_BLOCKS;
    let mut range = punch.first..punch.end;
    let mut count_max = BATCH_EXTENTS;
    loop {
        let (pieces, end) = window(core, inode.no, range.clone(), keeps, count_max)?;
        let (count, rest) = (pieces.len(), end..range.end);
        let mut edit = core.edit(pieces);
        match keeps {
            true => edit.unwrite(range.start..end),
            false => edit.cut(range.start..end),
        }
        let mut transaction = Transaction::new();
        let added = edit.blocks_added();
        edit.plan(inode.no, &mut transaction);
        let is_last = rest.is_empty();
        if is_last {
            transaction.delete(Key::punch(inode.no));
        }
        let need = need(keeps, transaction.changes() + 1);
        let Some(mut reservation) = core.reserve_for(count, need)? else {
            count_max = count / 4 + 1;
            continue;
        };
        publish(
            core,
            inode,
            map,
            transaction,
            &mut reservation,
            |_, item| item.blocks = item.blocks.saturating_add_signed(added),
            |_, _| {
                if is_last {
                    core.data.punches.end(inode.no);
                }
            },
        )?;
        if is_last {
            return Ok(());
        }
        range = rest;
    }
}

/// Reads which holes are unfinished, and finishes them unless the volume is mounted read-only.
pub(crate) fn recover(core: &Core) -> Result<()> {
    let holes = load(core)?;
    match core.options.read_only {
        true => Ok(()),
        false => holes.into_iter().try_for_each(|no| recover_one(core, no)),
    }
}

/// Reads which holes are unfinished: from now on they read as zeros.
pub(crate) fn load(core: &Core) -> Result<Vec<InodeNo>> {
    let mut holes = Vec::new();
    each_listed(core, ItemKind::Punch, |no, value| {
        let item = PunchItem::decode(value).map_err(|source| StoreError::Item {
            what: format!("the hole that is made in inode {no}; run fsck"),
            source,
        })?;
        core.data.punches.begin(no, item);
        holes.push(no);
        Ok(())
    })?;
    Ok(holes)
}

/// Finishes an unfinished hole.
pub(crate) fn recover_one(core: &Core, no: InodeNo) -> Result<()> {
    let Some(inode) = listed(core, no, Key::punch(no))? else {
        core.data.punches.end(no);
        return Ok(());
    };
    if inode.file_type != FileType::Regular {
        // The list is wrong, not the inode.
        tracing::error!("inode {no} is no file and a hole is made in it; run fsck");
        return Ok(());
    }
    let map = inode.data.lock_map();
    if let Err(error) = finish(core, &inode, &map) {
        tracing::warn!(
            "a hole in inode {no} could not be carried out: {error}; it reads as zeros all the same"
        );
    }
    Ok(())
}
