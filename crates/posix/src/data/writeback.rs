//! A writeback: the dirty pages of one file go to the device and into the tree.
//!
//! Pages are taken in the order of the file and written in rounds of bounded size. One transaction publishes each
//! round. The size in the tree grows with the rounds and never covers what is not published (P5). Pages that the device
//! refuses are dropped after a second try, and every open handle reports the error (P7). Pages that could not be
//! written back for another reason, such as a host without room, become dirty again.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use holdfast_base::BlockNo;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_store::{Need, Reservation, StoreError, Transaction};

use super::complete::complete;
use super::in_place;
use super::insert::{Round, publish_round};
use super::place::log_all;
use super::punch;
use crate::core::Core;
use crate::delayed::UnderWay;
use crate::delayed::ordered::OrderedExtent;
use crate::delayed::ordered::Target;
use crate::file::inline;
use crate::file::lookup::piece_before;
use crate::file_data::MapGuard;
use crate::file_data::pages::DirtyPage;
use crate::inode::Inode;
use crate::{FsError, Result};

/// Pages of one round: 8 MiB. Bounds the memory that a writeback holds until it is published, and the checksums that
/// another caller's log batch may have to carry: 16 KiB.
pub(super) const ROUND_BLOCKS: usize = 2048;
/// Bytes of log-resident data above which an fsync writes its data to its location at once. Commits are wanted at a
/// quarter of it at the latest; only a commit that does not finish lets so much gather.
const LOG_RESIDENT_BYTES_MAX: usize = 64 << 20;
/// How often a writeback that was refused for lack of space is retried, each time after a commit.
const LAST_TRIES: u32 = 3;

/// What a writeback has written to the device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DataCost {
    pub(crate) bytes: u64,
    pub(crate) writes: u64,
}

/// Writes all dirty data of an inode and publishes it. Called without any state locked.
pub(crate) fn write_back(core: &Core, inode: &Arc<Inode>) -> Result<()> {
    if inode.data.is_clean() {
        return Ok(());
    }
    let map = inode.data.lock_map();
    write_back_locked(core, inode, &map, 0..u64::MAX, true)
}

/// As [`write_back`], but only the front of the file, of about a round. Another caller that wants to write the file back, and a writer
/// that is short of memory, wait no longer than for that.
pub(crate) fn write_back_front(core: &Core, inode: &Arc<Inode>) -> Result<()> {
    if inode.data.is_clean() {
        return Ok(());
    }
    let map = inode.data.lock_map();
    let front = inode.data.lock_content().pages.front(ROUND_BLOCKS);
    let is_all = front.end == u64::MAX;
    write_back_locked(core, inode, &map, front, is_all)
}

/// As [`write_back`], for a caller that syncs it next: little data travels inside the log. Other data that is sent meanwhile
/// gives way until the caller drops what is returned.
pub(crate) fn write_back_for_log(core: &Core, inode: &Arc<Inode>) -> Result<(DataCost, UnderWay)> {
    let coming = core.data.in_flight.coming();
    // Behind the lock: a writeback that holds the file must not give way to an fsync that waits for it.
    let map = (!inode.data.is_clean()).then(|| inode.data.lock_map());
    let under_way = core.data.in_flight.fsync(inode.no);
    drop(coming);
    let Some(map) = map else {
        return Ok((DataCost::default(), under_way));
    };
    let is_full = core.store.log_resident_bytes() > LOG_RESIDENT_BYTES_MAX;
    let log_bytes = if is_full { 0 } else { core.log_data_bytes };
    let cost = write_back_range(core, inode, &map, 0..u64::MAX, true, log_bytes)?;
    Ok((cost, under_way))
}

/// Writes back the pages of `range`. `inline_ok`: a small content may become an inline item.
pub(crate) fn write_back_locked(
    core: &Core,
    inode: &Arc<Inode>,
    map: &MapGuard<'_>,
    range: Range<u64>,
    inline_ok: bool,
) -> Result<()> {
    write_back_range(core, inode, map, range, inline_ok, 0).map(|_| ())
}

/// As [`write_back_locked`]. If no more than `log_bytes` have changed, they travel inside the log.
fn write_back_range(
    core: &Core,
    inode: &Arc<Inode>,
    map: &MapGuard<'_>,
    range: Range<u64>,
    inline_ok: bool,
    log_bytes: usize,
) -> Result<DataCost> {
    let mut tries = 0;
    loop {
        let done = write_back_once(core, inode, map, range.clone(), inline_ok, log_bytes);
        match done {
            // Accepted data never fails for lack of space (P8): other operations hold it for a moment.
            Err(FsError::Store(StoreError::NoSpace)) if tries < LAST_TRIES => {
                tries += 1;
                core.wait_for_last_room()?;
            }
            done => return done,
        }
    }
}

fn write_back_once(
    core: &Core,
    inode: &Arc<Inode>,
    map: &MapGuard<'_>,
    range: Range<u64>,
    inline_ok: bool,
    log_bytes: usize,
) -> Result<DataCost> {
    if let Err(error) = punch::finish(core, inode, map) {
        // Treated as an error of the data itself: data that can never be written must not keep memory that others wait
        // for.
        finish(core, inode, Err(error), None)?;
        return Ok(DataCost::default());
    }
    let Some(mut taken) = take(inode, range) else {
        return Ok(DataCost::default());
    };
    let _rescue = Rescue { core, inode };
    let mut cost = DataCost::default();
    let done = if inline_ok && taken.fits_inline(core) {
        write_back_inline(core, inode, map, &taken.pages[0], taken.target)
    } else if taken.log_bytes() <= log_bytes && !taken.has_in_place() {
        write_back_into_log(core, inode, map, &mut taken)
    } else {
        write_back_blocks(core, inode, map, &mut taken, &mut cost)
    };
    finish(core, inode, done, taken.reservation)?;
    Ok(cost)
}

/// Pages of a file are in flight. If their thread panics, they become dirty again, so that no thread waits for them,
/// and the volume stops: the operation that sent them is half done.
pub(super) struct Rescue<'a> {
    pub(super) core: &'a Core,
    pub(super) inode: &'a Arc<Inode>,
}

impl Drop for Rescue<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let Rescue { core, inode } = self;
        core.store.stop(format!("a thread panicked while it wrote data of inode {}", inode.no));
        let mut content = inode.data.lock_content();
        content.pages.give_back();
        core.data.account(inode, &mut content);
    }
}

/// What a writeback has taken out of a file.
pub(super) struct Taken {
    pub(super) pages: Vec<DirtyPage>,
    pub(super) reservation: Option<Reservation>,
    pub(super) target: Target,
    /// The inode in the tree has blocks.
    has_blocks: bool,
}

impl Taken {
    pub(super) fn fits_inline(&self, core: &Core) -> bool {
        self.target.whole
            && self.target.size <= inline::size_max(core)
            && !self.has_blocks
            && self.pages.len() == 1
            && self.pages[0].block == 0
    }

    /// Whether some pages go to blocks that the file has reserved.
    pub(super) fn has_in_place(&self) -> bool {
        promised(&self.pages) < self.pages.len() as u64
    }

    /// Bytes that the log would have to hold.
    fn log_bytes(&self) -> usize {
        self.pages.iter().map(|dirty| dirty.changed.len()).sum()
    }
}

/// How many of `pages` have a promised block.
fn promised(pages: &[DirtyPage]) -> u64 {
    pages.iter().filter(|dirty| !dirty.in_place).count() as u64
}

/// Takes the dirty pages of `range` into flight. The caller has the map locked.
pub(super) fn take(inode: &Arc<Inode>, range: Range<u64>) -> Option<Taken> {
    let state = inode.state.read();
    let mut content = inode.data.lock_content();
    let pages = content.pages.take(range);
    if pages.is_empty() {
        return None;
    }
    let whole = content.pages.is_clean();
    let reservation = if whole {
        content.reserved.take()
    } else {
        content.reserved.as_mut().map(|reserved| reserved.split(promised(&pages)))
    };
    let target =
        Target { size: state.attr.size, mtime: state.attr.mtime, ctime: state.attr.ctime, whole };
    Some(Taken { pages, reservation, target, has_blocks: state.disk.blocks > 0 })
}

/// Gives back what was taken, as if it had not been.
pub(super) fn give_back(core: &Core, inode: &Arc<Inode>, reservation: Option<Reservation>) {
    let mut content = inode.data.lock_content();
    content.pages.give_back();
    if let Some(reservation) = reservation {
        content.add_reserved(reservation);
    }
    core.data.account(inode, &mut content);
}

/// Ends a writeback: handles its error, and returns the space that is left.
pub(super) fn finish(
    core: &Core,
    inode: &Arc<Inode>,
    done: Result<()>,
    reservation: Option<Reservation>,
) -> Result<()> {
    match done {
        Ok(()) => Ok(()),
        Err(error) => match give_up(core, inode, error, reservation) {
            // The inode is being removed: its data is unreachable.
            FsError::NotFound => Ok(()),
            error => Err(error),
        },
    }
}

/// Ensures that the reservation of a writeback has a block for each page.
pub(super) fn ensure(core: &Core, taken: &mut Taken) -> Result<()> {
    let wanted = promised(&taken.pages);
    let have = taken.reservation.as_ref().map_or(0, Reservation::blocks);
    if have < wanted {
        let more = core.store.reserve(Need::Change { changes: 0, blocks: wanted - have })?;
        match &mut taken.reservation {
            Some(reservation) => reservation.merge(more),
            None => taken.reservation = Some(more),
        }
    }
    Ok(())
}

/// Publishes a small content as an item of the tree.
pub(super) fn write_back_inline(
    core: &Core,
    inode: &Arc<Inode>,
    map: &MapGuard<'_>,
    dirty: &DirtyPage,
    target: Target,
) -> Result<()> {
    let mut reservation = core.reserve_last(Need::Writeback { changes: 2 })?;
    let mut transaction = Transaction::new();
    transaction.put(inline::key(inode.no), &dirty.page[..target.size as usize]);
    let round = Round { blocks_added: 0, end: 1, last: true, is_inline: true };
    publish_round(core, inode, map, transaction, &mut reservation, target, round)
}

/// The location behind the block that precedes `block` in the file.
fn goal(core: &Core, inode: &Inode, block: u64) -> Result<Option<BlockNo>> {
    if let Some(goal) = inode.data.ended_before(block) {
        return Ok(Some(goal));
    }
    Ok(piece_before(core, inode.no, block)?.and_then(|piece| piece.extent.blocks.end()))
}

fn remember_end(inode: &Inode, extents: &VecDeque<OrderedExtent>) {
    if let Some(last) = extents.back()
        && let Some(behind) = last.written.blocks().end()
    {
        inode.data.ends_at(last.end(), behind);
    }
}

/// Publishes the pages without a write: their bytes go into the log with the transaction.
fn write_back_into_log(
    core: &Core,
    inode: &Arc<Inode>,
    map: &MapGuard<'_>,
    taken: &mut Taken,
) -> Result<()> {
    ensure(core, taken)?;
    let Some(reservation) = &mut taken.reservation else {
        return Ok(());
    };
    let goal = goal(core, inode, taken.pages[0].block)?;
    let extents = log_all(core, inode, &taken.pages, reservation, goal)?;
    remember_end(inode, &extents);
    complete(core, inode, map, extents, taken.target, true)
}

fn write_back_blocks(
    core: &Core,
    inode: &Arc<Inode>,
    map: &MapGuard<'_>,
    taken: &mut Taken,
    cost: &mut DataCost,
) -> Result<()> {
    ensure(core, taken)?;
    // Each round frees its pages as it lands, not at the end of all.
    let mut pages = std::mem::take(&mut taken.pages).into_iter().peekable();
    while pages.peek().is_some() {
        let round = pages.by_ref().take(ROUND_BLOCKS);
        let round: Vec<DirtyPage> = round.collect();
        cost.bytes += round.len() as u64 * BLOCK_BYTES;
        let goal = |block| goal(core, inode, block);
        let (round, writes) =
            in_place::write_round(core, inode, map, round, &mut taken.reservation, goal)?;
        cost.writes += writes;
        remember_end(inode, &round);
        let last = pages.peek().is_none();
        complete(core, inode, map, round, taken.target, last)?;
    }
    Ok(())
}

/// Whether space was missing, on the volume or its host: then the writeback is retried.
fn is_for_space(error: &FsError) -> bool {
    match error {
        FsError::Store(StoreError::NoSpace) => true,
        FsError::Store(StoreError::Device(error)) => error.is_no_space(),
        _ => false,
    }
}

/// Decides what becomes of the pages in flight after an error.
fn give_up(
    core: &Core,
    inode: &Arc<Inode>,
    error: FsError,
    reservation: Option<Reservation>,
) -> FsError {
    let hopeless = match &error {
        // Pages that the host has no room for are kept: a later try may find room.
        FsError::Store(StoreError::Device(_)) => !is_for_space(&error),
        FsError::Store(StoreError::Item { .. } | StoreError::Node { .. }) => true,
        _ => false,
    };
    let called = hopeless.then(|| core.called(inode.no));
    let mut is_lost = false;
    let mut state = inode.state.write();
    let mut content = inode.data.lock_content();
    content.pages.give_back();
    if let Some(reservation) = reservation {
        content.add_reserved(reservation);
    }
    // Without pages nothing that was accepted is lost: the caller alone hears of it.
    let error = if let Some(called) = called.filter(|_| !content.pages.is_empty()) {
        let why = format!("data of {called} could not be written: {error}");
        tracing::error!("{why}");
        let size = state.attr.size;
        inode.lost.add(content.pages.written_bytes().map(|lost| lost.start..lost.end.min(size)));
        inode.data.note_loss();
        core.data.losses.add(&why);
        let _changing = inode.data.version.begin_change();
        content.pages.drop_dirty(0..u64::MAX);
        // Callers see the file as the tree holds it.
        state.attr.size = state.disk.size;
        (state.attr.mtime, state.attr.ctime) = (state.disk.mtime, state.disk.ctime);
        inode.errors.record_error(&why);
        is_lost = true;
        FsError::Io(why)
    } else {
        debug_assert!(
            !is_for_space(&error) || content.is_promised(),
            "inode {}: pages without a promise (P8): {:?}",
            inode.no,
            content.reserved
        );
        error
    };
    state.attr.blocks = state.disk.blocks.saturating_add(content.pages.fresh());
    core.data.account(inode, &mut content);
    drop((state, content));
    if is_lost && let Some(watcher) = core.watcher.get() {
        watcher(inode.no);
    }
    error
}

/// Drops the dirty pages of an unreachable inode. When it returns, nothing is being written any more, and none of its
/// data will be published. Called without any state locked.
pub(crate) fn discard(core: &Core, inode: &Inode) {
    let _map = inode.data.lock_map();
    let mut content = inode.data.lock_content();
    content.pages.drop_dirty(0..u64::MAX);
    core.data.forget(inode, &mut content);
}
