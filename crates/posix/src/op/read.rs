//! Bytes out of a file.

use std::sync::Arc;

use holdfast_base::units::{BLOCK_BYTES, BLOCK_SIZE, blocks_for};

use crate::core::Core;
use crate::data::view::{FetchError, READS_MAX, View, damaged, fetch, view};
use crate::file::map::Piece;
use crate::inode::Inode;
use crate::*;

/// Blocks that are read at once: 1 MiB.
const RUN_BLOCKS_MAX: u64 = 256;

impl FileSystem {
    /// Reads at `offset` into `into`; fewer bytes only at the end of the file. Data that fails its checksum is EIO (P6).
    pub fn read(&self, file: &OpenFile, offset: u64, into: &mut [u8]) -> Result<usize> {
        if !file.flags.contains(OpenFlags::READ) {
            return Err(FsError::BadHandle);
        }
        let read = read_at(&self.core, &file.inode, offset, into)?;
        if read > 0 && !file.flags.contains(OpenFlags::NOATIME) {
            atime::touch(&self.core, &file.inode);
        }
        Ok(read)
    }
}

/// Reads at `offset` into `into`, up to the end of the file.
pub(crate) fn read_at(
    core: &Core,
    inode: &Arc<Inode>,
    offset: u64,
    into: &mut [u8],
) -> Result<usize> {
    let Some(end) = offset.checked_add(into.len() as u64) else {
        return Err(FsError::Invalid("the range ends beyond 64 bits"));
    };
    if into.is_empty() {
        return Ok(0);
    }
    for _ in 0..READS_MAX {
        let view = view(core, inode, offset / BLOCK_BYTES..blocks_for(end))?;
        let len = view.size.min(end).saturating_sub(offset) as usize;
        let into = &mut into[..len];
        match fill(core, &view, offset, into) {
            Ok(()) => return Ok(len),
            Err(Unread { error: FetchError::Other(error), .. }) => return Err(error),
            Err(Unread { error: FetchError::Sum(index), first, block })
                if view.is_current(inode) =>
            {
                return Err(damaged(core, inode, first + index, block + index));
            }
            // The blocks were freed and used again while they were read.
            Err(_) => {}
        }
    }
    Err(FsError::Io(format!("inode {} changed too often while it was read", inode.no)))
}

/// A run that could not be read.
struct Unread {
    error: FetchError,
    /// Its first block in the file.
    first: u64,
    /// Its first block on the volume.
    block: u64,
}

impl Unread {
    fn new(run: Piece, error: FetchError) -> Unread {
        Unread { error, first: run.first, block: run.extent.blocks.start.0 }
    }
}

fn fill(core: &Core, view: &View, offset: u64, into: &mut [u8]) -> std::result::Result<(), Unread> {
    let range = offset / BLOCK_BYTES..blocks_for(offset + into.len() as u64);
    let runs = joined(view.to_fetch(range));
    // What neither a page nor a run fills is zero; when one run fills all, nothing is cleared twice.
    if runs.len() != 1
        || !is_inside(&runs[0], offset, into.len())
        || !covers(&runs[0], offset, into)
    {
        into.fill(0);
    }
    if let Some(bytes) = &view.inline {
        copy(bytes, 0, offset, into);
    }
    for run in runs {
        if is_inside(&run, offset, into.len()) {
            let start = (run.first * BLOCK_BYTES - offset) as usize;
            let part = &mut into[start..start + run.count() as usize * BLOCK_SIZE];
            fetch(core, run.extent.blocks, &run.extent.sums, part)
                .map_err(|error| Unread::new(run, error))?;
        } else {
            let mut whole = vec![0; run.count() as usize * BLOCK_SIZE];
            let first = run.first;
            fetch(core, run.extent.blocks, &run.extent.sums, &mut whole)
                .map_err(|error| Unread::new(run, error))?;
            copy(&whole, first * BLOCK_BYTES, offset, into);
        }
    }
    for (&block, page) in &view.pages {
        copy(&page[..], block * BLOCK_BYTES, offset, into);
    }
    Ok(())
}

/// Whether all bytes of the run are wanted, so that it can be read to its place.
fn is_inside(run: &Piece, offset: u64, len: usize) -> bool {
    run.first * BLOCK_BYTES >= offset && run.end() * BLOCK_BYTES <= offset + len as u64
}

/// Whether the run is all that is wanted.
fn covers(run: &Piece, offset: u64, into: &[u8]) -> bool {
    run.first * BLOCK_BYTES <= offset && run.end() * BLOCK_BYTES >= offset + into.len() as u64
}

/// Puts `bytes`, which begin at byte `at` of the file, where they belong in `into`, which begins at `offset`.
fn copy(bytes: &[u8], at: u64, offset: u64, into: &mut [u8]) {
    let from = at.max(offset);
    let to = (at + bytes.len() as u64).min(offset + into.len() as u64);
    if from < to {
        let len = (to - from) as usize;
        let (source, target) = ((from - at) as usize, (from - offset) as usize);
        into[target..target + len].copy_from_slice(&bytes[source..source + len]);
    }
}

/// Joins parts that follow one another in the file and on the device: one read each.
fn joined(parts: Vec<Piece>) -> Vec<Piece> {
    let mut runs: Vec<Piece> = Vec::new();
    for mut part in parts {
        match runs.last_mut() {
            Some(last)
                if last.end() == part.first
                    && last.extent.blocks.end() == Some(part.extent.blocks.start)
                    && last.count() + part.count() <= RUN_BLOCKS_MAX =>
            {
                last.extent.blocks.count += part.count();
                last.extent.sums.append(&mut part.extent.sums);
            }
            _ => runs.push(part),
        }
    }
    runs
}
