//! A writeback of several files at once: the pages of small ones share a write.
//!
//! A file whose extents another thread is changing, or that has many pages, is written back alone, after the others. If
//! the shared write fails, each file is written back alone too, so that the error reaches the files that it belongs to.

use std::collections::VecDeque;
use std::sync::Arc;

use holdfast_base::units::BLOCK_SIZE;
use holdfast_store::{Reservation, StoreError};

use super::complete::complete;
use super::place::{CHUNK_BLOCKS, Item, write_all};
use super::writeback::{
    Rescue, Taken, ensure, finish, give_back, take, write_back, write_back_inline,
    write_back_locked,
};
use crate::core::Core;
use crate::file_data::MapGuard;
use crate::inode::Inode;
use crate::{FsError, Result};

/// Pages of the files that are written back together, at most: those of one write. An fsync of any of them waits for
/// that write, and for no more data of other files.
pub(crate) const GROUP_PAGES: usize = CHUNK_BLOCKS as usize;

/// Writes back several files at once: the pages of small ones share a write. Their numbers ascend.
///
/// An error of one does not keep the others from being written back; the first error is returned.
pub(crate) fn write_back_group(core: &Core, inodes: &[Arc<Inode>]) -> Result<()> {
    let bytes = inodes.iter().map(|inode| inode.data.pages()).sum::<usize>() * BLOCK_SIZE;
    let turn = core.data.in_flight.turn(bytes.min(GROUP_PAGES * BLOCK_SIZE));
    let mut alone = Vec::new();
    let mut group = Vec::new();
    let mut pages = 0;
    let mut first = Ok(());
    let mut note = |done: Result<()>| {
        if first.is_ok() {
            first = done;
        }
    };
    for (index, inode) in inodes.iter().enumerate() {
        // A thread that holds several maps waits for none of them.
        let map = inode.data.try_lock_map();
        let small =
            pages + inode.data.pages() <= GROUP_PAGES && core.data.punches.of(inode.no).is_none();
        let Some(map) = map.filter(|_| small) else {
            alone.push(index);
            continue;
        };
        let Some(mut taken) = take(inode, 0..u64::MAX) else {
            continue;
        };
        let rescue = Rescue { core, inode };
        // Judged by what was taken: a write may be accepted for reserved blocks at any moment. Those wait for a flush.
        if taken.has_in_place() {
            give_back(core, inode, taken.reservation);
            alone.push(index);
            continue;
        }
        if taken.fits_inline(core) {
            let done = write_back_inline(core, inode, &map, &taken.pages[0], taken.target);
            note(finish(core, inode, done, taken.reservation));
            continue;
        }
        match ensure(core, &mut taken) {
            Ok(()) => {
                pages += taken.pages.len();
                group.push((inode, (rescue, map), taken));
            }
            Err(error) => {
                let is_full = matches!(error, FsError::Store(StoreError::NoSpace));
                let done = finish(core, inode, Err(error), taken.reservation);
                // Alone it may wait for a commit, which may free space (P8).
                if is_full { alone.push(index) } else { note(done) }
            }
        }
    }
    let written = write_back_together(core, group);
    drop(turn);
    note(written);
    for index in alone {
        note(write_back(core, &inodes[index]));
    }
    first
}

/// A file of a group. If a thread panics, its pages are given back before its map.
type Member<'a> = (&'a Arc<Inode>, (Rescue<'a>, MapGuard<'a>), Taken);

fn write_back_together(core: &Core, group: Vec<Member<'_>>) -> Result<()> {
    let mut items = Vec::new();
    let mut reservation: Option<Reservation> = None;
    let mut members = Vec::new();
    for (owner, (inode, map, taken)) in group.into_iter().enumerate() {
        let Taken { pages, reservation: promised, target, .. } = taken;
        let count = pages.len() as u64;
        items.extend(pages.into_iter().map(|dirty| Item::of(owner, dirty)));
        if let Some(promised) = promised {
            match &mut reservation {
                Some(all) => all.merge(promised),
                None => reservation = Some(promised),
            }
        }
        members.push((inode, map, target, count, VecDeque::new()));
    }
    let Some(mut reservation) = reservation else {
        assert!(members.is_empty(), "files are in flight, and nothing is promised to them");
        return Ok(());
    };
    let mut first = Ok(());
    match write_all(core, &items, &mut reservation, None, None) {
        Ok((extents, _)) => {
            for (owner, extent) in extents {
                members[owner].4.push_back(extent);
            }
            for (inode, map, target, _, extents) in members {
                let done = complete(core, inode, &map.1, extents, target, true);
                let mut done = finish(core, inode, done, None);
                if matches!(done, Err(FsError::Store(StoreError::NoSpace))) {
                    done = write_back_locked(core, inode, &map.1, 0..u64::MAX, true);
                }
                first = first.and(done);
            }
        }
        Err(_) => {
            // Each alone, so that the error reaches the files that it belongs to.
            for (inode, map, _, pages, _) in members {
                {
                    let mut content = inode.data.lock_content();
                    content.pages.give_back();
                    content.add_reserved(reservation.split(pages));
                    core.data.account(inode, &mut content);
                }
                first = first.and(write_back_locked(core, inode, &map.1, 0..u64::MAX, true));
            }
        }
    }
    first
}
