//! A write: bytes become dirty pages, and space is promised to them (P8), see [`super::in_place`] on a full volume.
//!
//! Everything that can wait or fail comes first: old bytes of partly written blocks, space. Then, under the state's
//! lock and without I/O, the pages and the attributes change together. If a writeback ran in between, what it took away
//! is prepared again.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use holdfast_base::Timestamp;
use holdfast_base::mutants::{self, Mutant};
use holdfast_base::units::{BLOCK_BYTES, BLOCK_SIZE, blocks_for};
use holdfast_format::item::InodeItem;
use holdfast_store::page::{Page, copy_blocks};

use super::counted::{Counted, counted};
use super::grow::{clean_tail, needs_first_page, pages_before_growth};
use super::in_place::{Reserved, Room, Wants};
use super::view::{clipped, load_raw_block};
use super::writeback::write_back_front;
use crate::core::Core;
use crate::file_data::{Content, WriterGuard};
use crate::inode::{Inode, InodeState};
use crate::{FsError, Result};

/// The part of a write that falls into one block.
#[derive(Clone, Copy, Debug)]
struct Part<'a> {
    block: u64,
    /// First byte within the block.
    at: usize,
    bytes: &'a [u8],
}

impl Part<'_> {
    /// Whether nothing of the block's old bytes remains.
    fn is_whole(&self, size: u64) -> bool {
        let end = self.block * BLOCK_BYTES + (self.at + self.bytes.len()) as u64;
        self.at == 0 && (self.bytes.len() == BLOCK_SIZE || end >= size)
    }
}

/// Looks at the tree while writebacks change it; the look after these holds the file's extents still.
const LOOKS_MAX: u32 = 4;

/// What the file held before, where a write needs it. Writebacks do not change it, however often they change the
/// extents. Only a loss does, and the size, which this writer alone makes larger.
#[derive(Default)]
struct Held {
    size: u64,
    losses: u64,
    /// Pages that have to be dirty before the size moves.
    before: Option<Vec<(u64, Page)>>,
    /// Blocks that are written in part.
    bases: BTreeMap<u64, Option<Base>>,
}

/// Accepts `bytes` from byte `offset` on; at most about a MiB at once. Sets mtime and ctime to `now`.
pub(crate) fn accept(
    core: &Core,
    inode: &Arc<Inode>,
    _writer: &WriterGuard<'_>,
    offset: u64,
    bytes: &[u8],
    now: Timestamp,
) -> Result<()> {
    let end = offset + bytes.len() as u64;
    let blocks = offset / BLOCK_BYTES..blocks_for(end);
    make_room(core, inode, blocks.end - blocks.start)?;
    // Pages that need no old bytes, made outside of all locks.
    let mut whole = whole_blocks(offset, bytes);
    let write = Accepting { core, inode, offset, bytes, end, blocks };
    let mut room = Room::default();
    let mut held = Held::default();
    let mut looks = 0;
    let grows = loop {
        let seen = write.prepare(&mut held)?;
        looks += 1;
        let tree = if looks <= LOOKS_MAX { Some(write.look(&room, &seen.disk)?) } else { None };

        let mut state = inode.state.write();
        state.expect_alive()?;
        // The state's lock, which every change takes, holds the file still. Nodes may be read from the device
        // meanwhile.
        let is_still = tree.is_none();
        let (counted, reserved) = match tree {
            Some(tree) => tree,
            None => write.look(&room, &state.disk)?,
        };
        let mut content = inode.data.lock_content();
        // What the tree holds of these blocks is looked up again if a writeback has changed it since.
        let is_tree =
            is_still || seen.version.is_some_and(|version| inode.data.version.is(version));
        if !write.still_holds(&mut held, &state, &content) || !is_tree {
            continue;
        }
        let in_place = reserved.of(&content.pages);
        let has_blocks = state.disk.blocks > 0;
        let wants = write.wants(&held, &content, in_place.len() as u64, (&counted, has_blocks));
        if !room.is_enough(wants) {
            drop((state, content));
            write.take_room(&mut room, wants)?;
            continue;
        }

        // From here on nothing fails.
        let size = held.size;
        write.put_pages(&mut content, held, &mut whole, &counted, has_blocks);
        for block in in_place {
            content.pages.write_in_place(block);
        }
        if let Some(mut promised) = room.held.take() {
            // Gives back what a second round did not need any more.
            let surplus = promised.blocks() - wants.blocks;
            drop(promised.split(surplus));
            content.add_reserved(promised);
        }
        if let Some(nodes) = room.metadata_reservation.take() {
            content.add_kept_nodes(nodes);
        }
        inode.lost.forget(offset..end);
        state.attr.size = size.max(end);
        state.attr.mtime = now;
        state.attr.ctime = now;
        state.attr.blocks = state.disk.blocks.saturating_add(content.pages.fresh());
        core.data.account_write(inode, &mut content);
        break end > size;
    };
    if core.data.totals.is_half_full() {
        core.data.pressure.wake();
    } else if grows && inode.data.is_much() {
        core.data.pressure.wake_for(inode);
    }
    Ok(())
}

/// A write whose bytes are to become dirty pages.
struct Accepting<'a> {
    core: &'a Core,
    inode: &'a Arc<Inode>,
    offset: u64,
    bytes: &'a [u8],
    /// The first byte of the file behind it.
    end: u64,
    /// Blocks of the file that it touches.
    blocks: Range<u64>,
}

/// The file when a write was prepared.
struct FileVersion {
    version: Option<u64>,
    disk: InodeItem,
}

impl<'a> Accepting<'a> {
    fn parts(&self) -> impl Iterator<Item = Part<'a>> + use<'a> {
        parts(self.offset, self.bytes)
    }

    /// Looks up what the write needs of the file's old bytes and is not in `held`.
    fn prepare(&self, held: &mut Held) -> Result<FileVersion> {
        let (core, inode) = (self.core, self.inode);
        let version = inode.data.version.now();
        let (size, disk, losses) = {
            let state = inode.state.read();
            (state.attr.size, state.disk, inode.data.losses())
        };
        if (held.size, held.losses) != (size, losses) {
            *held = Held { size, losses, ..Held::default() };
        }
        if self.end > size && held.before.is_none() {
            clean_tail(core, inode)?;
            let before = pages_before_growth(core, inode, size, self.end, self.blocks.start)?;
            held.before = Some(before);
        }
        load_bases(core, inode, self.parts(), size, &mut held.bases)?;
        Ok(FileVersion { version, disk })
    }

    /// What the tree counts of the blocks, and which of them the file has reserved.
    fn look(&self, room: &Room, disk: &InodeItem) -> Result<(Counted, Reserved)> {
        let reserved = room.reserved(self.core, self.inode, disk, self.blocks.clone())?;
        Ok((counted(self.core, self.inode, disk, self.blocks.clone()), reserved))
    }

    /// Whether `held` is what the file holds now. What is not any more is taken out of it.
    fn still_holds(&self, held: &mut Held, state: &InodeState, content: &Content) -> bool {
        // Block 0 was dirty when it was looked up, and a writeback has taken it since.
        let has_blocks = state.disk.blocks > 0;
        let first_page_gone = held.before.as_ref().is_none_or(Vec::is_empty)
            && needs_first_page(self.core, held.size, has_blocks, self.end, self.blocks.start)
            && !content.pages.is_dirty(0);
        if first_page_gone {
            held.before = None;
        }
        let unready = |part: Part<'_>| {
            part.bytes.len() < BLOCK_SIZE
                && !held.bases.contains_key(&part.block)
                && !content.pages.is_dirty(part.block)
        };
        state.attr.size == held.size
            && self.inode.data.losses() == held.losses
            && !first_page_gone
            && !self.parts().any(unready)
    }

    /// What it takes to make blocks dirty that are not yet, `in_place` of them reserved ones, if the tree has this of them.
    fn wants(
        &self,
        held: &Held,
        content: &Content,
        in_place: u64,
        (counted, has_blocks): (&Counted, bool),
    ) -> Wants {
        let clean = |block: &u64| !content.pages.is_dirty(*block);
        let before = held.before.iter().flatten().filter(|(block, _)| clean(block)).count() as u64;
        let own = self.blocks.clone().filter(clean).count() as u64;
        let has_none = |block: &u64| clean(block) && !counted.has(*block);
        let growth = self.blocks.clone().filter(has_none).count() as u64;
        let growth = growth + if has_blocks { 0 } else { before };
        // Behind a dirty page it only makes a run longer.
        let is_new = self.blocks.start.checked_sub(1).is_none_or(|before| clean(&before));
        let runs = before + u64::from(own > 0 && is_new);
        Wants { blocks: own + before - in_place, growth, in_place, runs }
    }

    /// Takes the space that is missing in `room`.
    fn take_room(&self, room: &mut Room, wants: Wants) -> Result<()> {
        let more = room.take(self.core, wants);
        if mutants::is(Mutant::NoSpaceHalf) && more.is_err() {
            let mut state = self.inode.state.write();
            state.attr.size = state.attr.size.max(self.end);
        }
        more
    }

    /// The pages of the write become dirty. `whole` are those that need no old bytes.
    fn put_pages(
        &self,
        content: &mut Content,
        mut held: Held,
        whole: &mut impl Iterator<Item = Page>,
        counted: &Counted,
        has_blocks: bool,
    ) {
        for (block, page) in held.before.take().unwrap_or_default() {
            // The last block, or the content that was inline until now.
            content.pages.put_base(block, page, !has_blocks);
            content.pages.dissolve_runs(block..block + 1);
        }
        for part in self.parts() {
            if part.bytes.len() == BLOCK_SIZE {
                let page = whole.next().expect("there is one for each whole part");
                content.pages.put(part.block, page, !counted.has(part.block));
                continue;
            }
            if !content.pages.is_dirty(part.block) {
                let fresh = !counted.has(part.block);
                match held.bases.remove(&part.block).flatten() {
                    Some(Base { page, is_clipped: false }) => {
                        content.pages.put_unchanged(part.block, page, fresh);
                    }
                    Some(Base { page, .. }) => content.pages.put_base(part.block, page, fresh),
                    None => content.pages.put_zeros(part.block, fresh),
                }
            }
            content.pages.change(part.block, part.at, part.bytes);
        }
        content.pages.dissolve_runs(self.blocks.clone());
    }
}

fn parts(offset: u64, bytes: &[u8]) -> impl Iterator<Item = Part<'_>> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let position = offset + done as u64;
        let at = (position % BLOCK_BYTES) as usize;
        let len = (BLOCK_SIZE - at).min(bytes.len() - done);
        let part = Part { block: position / BLOCK_BYTES, at, bytes: &bytes[done..done + len] };
        done += len;
        (len > 0).then_some(part)
    })
}

/// Pages for the consecutive blocks that are written as a whole.
fn whole_blocks(offset: u64, bytes: &[u8]) -> impl Iterator<Item = Page> {
    let before = (offset.next_multiple_of(BLOCK_BYTES) - offset) as usize;
    let rest = bytes.get(before..).unwrap_or_default();
    let whole = &rest[..rest.len() - rest.len() % BLOCK_SIZE];
    let pages: Vec<Page> = copy_blocks(blocks_for(offset), whole).collect();
    pages.into_iter()
}

/// What a partly written block holds now.
#[derive(Clone, Debug)]
struct Base {
    page: Page,
    /// The tree holds more of it, beyond the end of the file.
    is_clipped: bool,
}

/// Adds what partly written blocks hold now, if it is not known; `None` for zeros. Dirty blocks are skipped.
fn load_bases<'a>(
    core: &Core,
    inode: &Arc<Inode>,
    parts: impl Iterator<Item = Part<'a>>,
    size: u64,
    bases: &mut BTreeMap<u64, Option<Base>>,
) -> Result<()> {
    for part in parts.filter(|part| part.bytes.len() < BLOCK_SIZE) {
        if bases.contains_key(&part.block) || inode.data.lock_content().pages.is_dirty(part.block) {
            continue;
        }
        let base = match part.is_whole(size) {
            true => None,
            false => load_raw_block(core, inode, part.block)?.map(|(raw, size)| {
                let page = clipped(raw.clone(), part.block, size);
                Base { is_clipped: !raw.is_same(&page), page }
            }),
        };
        bases.insert(part.block, base);
    }
    Ok(())
}

/// A write of fewer pages to a file that has fewer may exceed the limit: 1 MiB.
const FEW_PAGES: u64 = 256;

/// Waits while too much is in memory to write `blocks` more: the writer writes something back. Files with few dirty
/// pages may exceed the limit by a quarter, so that they need not wait for other files' data.
fn make_room(core: &Core, inode: &Arc<Inode>, blocks: u64) -> Result<()> {
    let has_few = blocks.max(inode.data.pages() as u64) < FEW_PAGES;
    if !core.data.totals.is_full() || has_few && !core.data.totals.is_overfull() {
        return Ok(());
    }
    let mut failed: Option<FsError> = None;
    let others = core.data.waiting();
    for inode in std::iter::once(inode).chain(&others) {
        loop {
            let before = inode.data.pages();
            let written = write_back_front(core, inode);
            if !core.data.totals.is_full() {
                return Ok(());
            }
            failed = written.err().or(failed);
            if inode.data.is_clean() || inode.data.pages() >= before {
                break;
            }
        }
    }
    // Others may have filled it again; only a writeback that fails stops a writer.
    failed.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use holdfast_device::{Device, DeviceError, MemoryDevice, forward};
    use holdfast_sync::atomic::{AtomicU64, Ordering};

    use super::super::tests::{open, volume, volume_of, write};
    use super::*;
    use crate::*;

    /// While a block is read, the extents of the file change, as they do while rounds of a writeback are published.
    #[derive(Debug)]
    struct Restless {
        under: Arc<MemoryDevice>,
        inode: OnceLock<Arc<Inode>>,
        reads: AtomicU64,
    }

    impl Device for Restless {
        forward!(under: write, flush, discard, room, take_room, len, sector_size, reach, stats);

        fn read(&self, at: u64, into: &mut [u8]) -> std::result::Result<(), DeviceError> {
            if let Some(inode) = self.inode.get()
                && self.reads.fetch_add(1, Ordering::Relaxed) < 100
            {
                let _state = inode.state.write();
                drop(inode.data.version.begin_change());
            }
            self.under.read(at, into)
        }
    }

    #[test]
    fn a_write_reads_a_block_that_it_changes_in_part_once_while_a_writeback_goes_on() {
        let under = volume();
        let device = Arc::new(Restless { under, inode: OnceLock::new(), reads: AtomicU64::new(0) });
        let options = MountOptions { commit_secs: 0, recent_bytes: 0, ..MountOptions::default() };
        let fs = FileSystem::mount(device.clone(), options).unwrap();
        let file = open(&fs);
        write(&fs, &file, 0, &[7; 20_000]);
        fs.commit().unwrap();
        device.inode.set(file.inode.clone()).unwrap();
        write(&fs, &file, 5000, &[8; 10]);
        assert_eq!(device.reads.load(Ordering::Relaxed), 1);
        write(&fs, &file, 9000, &[8; 4000]);
        assert_eq!(device.reads.load(Ordering::Relaxed), 3, "both blocks at its ends");
        let mut all = vec![7; 20_000];
        all[5000..5010].fill(8);
        all[9000..13_000].fill(8);
        let mut bytes = vec![0; 20_000];
        assert_eq!(fs.read(&file, 0, &mut bytes).unwrap(), 20_000);
        assert!(bytes == all);
    }

    #[test]
    fn a_writer_at_the_limit_waits_for_a_part_of_what_waits_and_not_for_all() {
        let device = volume_of(64 << 20);
        // There is no background that writes before.
        let options = MountOptions {
            commit_secs: 0,
            dirty_bytes: 32 << 20,
            threads: false,
            ..MountOptions::default()
        };
        let fs = FileSystem::mount(device, options).unwrap();
        let file = open(&fs);
        let one = |at: u64| write(&fs, &file, at << 20, &[at as u8; 1 << 20]);
        (0..24).for_each(one);
        assert_eq!(fs.dirty_bytes(), 24 << 20);
        let mtime = file.inode.state.read().attr.mtime;
        one(24);
        assert_eq!(fs.dirty_bytes(), 17 << 20);
        assert!(file.inode.state.read().disk.mtime == mtime, "what was written is not older");
        (25..40).for_each(one);
        assert!(fs.dirty_bytes() <= 24 << 20);
        let mut bytes = vec![0; 40 << 20];
        assert_eq!(fs.read(&file, 0, &mut bytes).unwrap(), 40 << 20);
        assert!(bytes.chunks(1 << 20).zip(0..).all(|(mib, at)| mib.iter().all(|byte| *byte == at)));
        fs.unmount().unwrap();
    }
}
