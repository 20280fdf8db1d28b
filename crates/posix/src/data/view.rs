//! What a range of a file holds at one moment, and how to read it.
//!
//! A [`View`] is taken without holding a lock across I/O: pages are looked at before the tree, and all of it is looked
//! at again if the file's extents changed meanwhile. The blocks it names are then read without any lock. They may be
//! freed and reused before the read is done. The checksum notices that, so a mismatch is damage only if the map is
//! still the same (P6).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use holdfast_base::BlockRange;
use holdfast_base::mutants::{self, Mutant};
use holdfast_base::units::{BLOCK_BYTES, BLOCK_SIZE, blocks_for};
use holdfast_format::checksum::block_sum;
use holdfast_format::item::InodeItem;
use holdfast_store::page::Page;

use super::punch;
use crate::core::Core;
use crate::file::map::Piece;
use crate::file::{inline, lookup};
use crate::inode::Inode;
use crate::{FsError, Result};

/// Looks at a file that changes all the time before a lock holds it still.
const LOOKS_MAX: u32 = 8;
/// Reads of blocks that another file has taken meanwhile.
pub(crate) const READS_MAX: u32 = 64;

/// What a range of a file holds. Blocks in none of `pages`, `inline` and `pieces` read as zeros.
#[derive(Debug)]
pub(crate) struct View {
    /// Size of the file.
    pub(crate) size: u64,
    /// Pages of the range that are not in the tree: newer than anything else here.
    pub(crate) pages: BTreeMap<u64, Page>,
    /// The whole content, if it is kept inline.
    pub(crate) inline: Option<Vec<u8>>,
    /// The extents that reach into the range.
    pub(crate) pieces: Vec<Piece>,
    /// Version of the file when it was looked at.
    version: u64,
}

/// Runs `look` with the size, the item and the version of a file, once more if it changes meanwhile.
pub(crate) fn look_steadily<T>(
    inode: &Inode,
    mut look: impl FnMut(u64, &InodeItem, u64) -> Result<T>,
) -> Result<T> {
    for _ in 0..LOOKS_MAX {
        let Some(version) = inode.data.version.now() else {
            // A change is in progress; its thread holds the state.
            drop(inode.state.read());
            continue;
        };
        let (size, disk) = {
            let state = inode.state.read();
            state.expect_fresh()?;
            (state.attr.size, state.disk)
        };
        let seen = look(size, &disk, version);
        if inode.data.version.is(version) {
            return seen;
        }
    }
    // The state's lock, which every change takes, holds the file still. Nodes may be read from the device meanwhile:
    // the price of an answer for a file that changes without a pause.
    let state = inode.state.read();
    state.expect_fresh()?;
    let version = inode.data.version.now().expect("a change is over before it unlocks the state");
    look(state.attr.size, &state.disk, version)
}

/// Looks at `range`, as far as the file has it.
pub(crate) fn view(core: &Core, inode: &Arc<Inode>, range: Range<u64>) -> Result<View> {
    look_steadily(inode, |size, disk, version| look(core, inode, &range, size, disk, version))
}

fn look(
    core: &Core,
    inode: &Arc<Inode>,
    range: &Range<u64>,
    size: u64,
    disk: &InodeItem,
    version: u64,
) -> Result<View> {
    let range = range.start..range.end.min(blocks_for(size));
    let mut view = View { size, pages: BTreeMap::new(), inline: None, pieces: Vec::new(), version };
    if range.is_empty() {
        return Ok(view);
    }
    if !inode.data.is_clean() {
        view.pages = inode.data.lock_content().pages.collect(range.clone());
        if view.pages.len() as u64 == range.end - range.start {
            return Ok(view);
        }
    }
    if inline::may_exist(core, disk) {
        view.inline = inline::load(core, inode.no, disk.size)?;
    }
    if view.inline.is_none() && disk.blocks > 0 {
        view.pieces = punch::visible(core, inode.no, lookup::pieces(core, inode.no, range)?);
    }
    Ok(view)
}

impl View {
    /// Whether the file's extents are still those of the view.
    pub(crate) fn is_current(&self, inode: &Inode) -> bool {
        inode.data.version.is(self.version)
    }

    /// The blocks of `range` that are to be read from the device, as parts of extents, in ascending order.
    pub(crate) fn to_fetch(&self, range: Range<u64>) -> Vec<Piece> {
        let mut parts = Vec::new();
        for piece in self.pieces.iter().filter(|p| p.extent.is_written()) {
            let Some(part) = piece.part(range.clone()) else {
                continue;
            };
            // Where a page is newer, the device is not read.
            let mut at = part.first;
            for &block in self.pages.range(part.first..part.end()).map(|(b, _)| b) {
                parts.extend(part.part(at..block));
                at = block + 1;
            }
            parts.extend(part.part(at..part.end()));
        }
        parts
    }
}

/// Why blocks could not be read.
#[derive(Debug)]
pub(crate) enum FetchError {
    /// The block with this number within the range failed its checksum.
    Sum(u64),
    /// The device refused, or something else went wrong.
    Other(FsError),
}

/// Reads blocks into `into`, which they fill exactly, and verifies each.
pub(crate) fn fetch(
    core: &Core,
    blocks: BlockRange,
    sums: &[u64],
    into: &mut [u8],
) -> std::result::Result<(), FetchError> {
    if core.data.recent.copy(blocks, sums, into) {
        return Ok(());
    }
    core.store.read(blocks, into).map_err(|error| FetchError::Other(error.into()))?;
    if mutants::is(Mutant::SumUnchecked) {
        return Ok(());
    }
    let (read, _) = into.as_chunks::<BLOCK_SIZE>();
    match read.iter().zip(sums).position(|(block, sum)| block_sum(block) != *sum) {
        None => Ok(()),
        Some(index) => Err(FetchError::Sum(index as u64)),
    }
}

/// Reports a block whose data is damaged, as an error for the caller and a line for the log.
pub(crate) fn damaged(core: &Core, inode: &Inode, block: u64, at: u64) -> FsError {
    core.counters.checksum_failures.increment();
    let why = format!(
        "{}: the data at byte {} (block {at} of the volume) fails its checksum",
        core.called(inode.no),
        block * BLOCK_BYTES
    );
    tracing::error!("{why}");
    core.store.found_damage(&why);
    FsError::Io(why)
}

/// The bytes of one block as the file has them now, with zeros beyond its end; `None` in a hole. The caller holds the
/// writer's lock, so the bytes do not change.
pub(crate) fn load_block(core: &Core, inode: &Arc<Inode>, block: u64) -> Result<Option<Page>> {
    let raw = load_raw_block(core, inode, block)?;
    Ok(raw.map(|(page, size)| clipped(page, block, size)))
}

/// A page with zeros beyond `size`: what the tree holds there was cut off.
pub(crate) fn clipped(mut page: Page, block: u64, size: u64) -> Page {
    let inside = bytes_inside(block, size);
    if page[inside..].iter().any(|&byte| byte != 0) {
        page.bytes_mut()[inside..].fill(0);
    }
    page
}

/// How many bytes of a block lie before `size`.
pub(crate) fn bytes_inside(block: u64, size: u64) -> usize {
    let before = block.saturating_mul(BLOCK_BYTES);
    size.saturating_sub(before).min(BLOCK_BYTES) as usize
}

/// The bytes of one block as they are stored, also beyond the end of the file, and the file's size.
pub(crate) fn load_raw_block(
    core: &Core,
    inode: &Arc<Inode>,
    block: u64,
) -> Result<Option<(Page, u64)>> {
    for _ in 0..READS_MAX {
        let view = view(core, inode, block..block + 1)?;
        if let Some(page) = view.pages.get(&block) {
            return Ok(Some((page.clone(), view.size)));
        }
        if let Some(bytes) = &view.inline {
            let page = (block == 0).then(|| (Page::with(0, bytes), view.size));
            return Ok(page);
        }
        let Some(part) = view.to_fetch(block..block + 1).pop() else {
            return Ok(None);
        };
        let mut page = Page::zeroed();
        let bytes = page.bytes_mut();
        let at = part.extent.blocks;
        match fetch(core, at, &part.extent.sums, bytes) {
            Ok(()) => return Ok(Some((page, view.size))),
            Err(FetchError::Other(error)) => return Err(error),
            Err(FetchError::Sum(_)) if view.is_current(inode) => {
                return Err(damaged(core, inode, block, at.start.0));
            }
            Err(FetchError::Sum(_)) => {}
        }
    }
    Err(FsError::Io(format!("inode {} changed too often while it was read", inode.no)))
}
