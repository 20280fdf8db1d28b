//! The content of a file that lies in extents: each block is read, compared with its checksum, and handed on; what is missing, or
//! does not match, is a hole.
//!
//! Extents come in the order of their places in the file and are not kept. Those of leaves to which nothing leads may overlap
//! others: then the newer one counts.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo, BlockRange, InodeNo};
use holdfast_check::reading::VolumeReading;
use holdfast_format::ItemKind;
use holdfast_format::checksum::block_sum;
use holdfast_format::item::{Extent, InodeItem, PunchItem};
use holdfast_format::limits::FILE_SIZE_MAX;

use crate::items::{Event, Items, Origin};
use crate::point::Point;
use crate::report::{Holes, Provenance};

/// Blocks of data read at once.
const BATCH: usize = 256;
/// Punches that are kept: a volume has one for each large hole that is being made at the same time.
const PUNCHES_MAX: usize = 1 << 16;

/// Takes bytes of a file, and where in it they belong.
pub(crate) type Write<'w> = dyn FnMut(u64, &[u8]) -> io::Result<()> + 'w;

/// What became of the content of a file.
#[derive(Debug, Default)]
pub(crate) struct Content {
    /// What is missing.
    pub(crate) holes: Holes,
    /// What was written although it does not match its checksums.
    pub(crate) unproved: Holes,
    /// The end of the last byte that was found.
    pub(crate) end: u64,
    pub(crate) provenance: Provenance,
}

/// Ranges of files that read as zeros, whatever their extents say.
#[derive(Debug, Default)]
pub(crate) struct Punches {
    ranges: BTreeMap<u64, (u64, u64)>,
    /// All of them are known.
    is_proven: bool,
}

impl Punches {
    pub(crate) fn read(items: &mut Items<'_, '_>) -> Punches {
        let zero = InodeNo(0);
        let low = Point::first(zero, ItemKind::Punch);
        let end = Some(Point { kind: low.kind + 1, ..low });
        let mut punches = Punches { is_proven: items.is_proven(low, end), ..Punches::default() };
        let _ = items.visit(low, end, &mut |event| {
            if let Event::Item { key, value, .. } = event
                && let Ok(punch) = PunchItem::decode(value)
            {
                let bytes = |block: u64| block.saturating_mul(BLOCK_BYTES);
                punches.ranges.insert(key.offset, (bytes(punch.first), bytes(punch.end)));
            }
            match punches.ranges.len() > PUNCHES_MAX {
                true => {
                    punches.is_proven = false;
                    ControlFlow::Break(())
                }
                false => ControlFlow::Continue(()),
            }
        });
        punches
    }
}

/// A file whose content is copied.
pub(crate) struct Copying<'a, 'd> {
    pub(crate) reading: &'a VolumeReading<'d>,
    pub(crate) punches: &'a Punches,
    pub(crate) number: InodeNo,
    /// `None`: it is lost.
    pub(crate) inode: Option<InodeItem>,
    /// Whether the inode is not proven.
    pub(crate) is_doubted: bool,
    /// Blocks that do not match are written all the same.
    pub(crate) unproved: bool,
}

/// A part of an extent: bytes of the file from `start` up to `end`.
#[derive(Clone, Debug)]
struct Piece {
    start: u64,
    end: u64,
    /// Byte of the file at which the extent begins.
    at: u64,
    extent: Extent,
    origin: Origin,
}

impl Copying<'_, '_> {
    /// Copies all extents. Fails if `write` does.
    pub(crate) fn copy(
        &self,
        items: &mut Items<'_, '_>,
        write: &mut Write<'_>,
    ) -> io::Result<Content> {
        let punched = self.punches.ranges.get(&self.number.0).copied();
        let mut covering = Covering {
            copying: self,
            punched,
            write,
            content: Content::default(),
            last: None,
            gap: None,
            unknown: Holes::default(),
            uncovered: Holes::default(),
            emitted: 0,
            blocks: 0,
            is_cut: false,
            buffer: Vec::new(),
        };
        let low = Point::first(self.number, ItemKind::Extent);
        let end = Point { kind: low.kind + 1, ..low };
        let mut result = Ok(());
        let _ = items.visit(low, Some(end), &mut |event| {
            result = covering.take(event);
            match result {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        });
        result?;
        covering.end()
    }

    /// The end of the file.
    fn size(&self) -> u64 {
        self.inode.map_or(FILE_SIZE_MAX, |inode| inode.size)
    }
}

/// Extents on their way, the last one held back until it is known where the next begins.
struct Covering<'c, 'w> {
    copying: &'c Copying<'c, 'c>,
    punched: Option<(u64, u64)>,
    write: &'c mut Write<'w>,
    content: Content,
    last: Option<Piece>,
    /// Bytes of the file of which nothing is known, from where extents have not covered them.
    gap: Option<(u64, u64)>,
    unknown: Holes,
    /// Bytes that no extent has.
    uncovered: Holes,
    /// The end of the last extent that was emitted.
    emitted: u64,
    /// Blocks of all extents met.
    blocks: u64,
    /// Extents do not fit together.
    is_cut: bool,
    buffer: Vec<u8>,
}

impl Covering<'_, '_> {
    fn take(&mut self, event: Event<'_>) -> io::Result<()> {
        let number = self.copying.number.0;
        let offset = |point: Point| {
            let place = (point.inode, point.kind);
            (place == (number, ItemKind::Extent.number())).then_some(point.offset)
        };
        let (key, value, origin, until) = match event {
            Event::Gap(low, end) => {
                self.close_gap(u64::MAX);
                let covered = self.last.as_ref().map_or(0, |last| last.end);
                let low = offset(low).unwrap_or(0).max(covered);
                let end = end.and_then(offset).unwrap_or(u64::MAX);
                self.gap = (low < end).then_some((low, end));
                return Ok(());
            }
            Event::Item { key, value, origin, until } => (key, value, origin, until),
        };
        self.content.provenance.add(origin);
        let at = key.offset;
        let geometry = &self.copying.reading.superblock().geometry;
        let sound = Extent::decode(value).ok().filter(|extent| geometry.holds_data(extent.blocks));
        let length = sound.as_ref().and_then(|extent| extent.blocks.bytes());
        let end =
            length.and_then(|length| at.checked_add(length)).filter(|_| at % BLOCK_BYTES == 0);
        let (Some(extent), Some(mut end)) = (sound, end) else {
            // It is an extent, and where it ends is not known.
            self.is_cut = true;
            self.unknown.push(at, at.saturating_add(BLOCK_BYTES).min(self.copying.size()));
            return Ok(());
        };
        self.blocks = self.blocks.saturating_add(extent.blocks.count);
        if let Some(next) = until.and_then(offset).filter(|next| *next < end) {
            self.is_cut = true;
            end = next - next % BLOCK_BYTES;
        }
        self.put(Piece { start: at, end, at, extent, origin })
    }

    /// Takes a piece, which begins behind the last one. Where they overlap, the newer one counts.
    fn put(&mut self, mut piece: Piece) -> io::Result<()> {
        if let Some(last) = &mut self.last
            && piece.start < last.end
        {
            self.is_cut = true;
            match last.origin >= piece.origin {
                true => piece.start = last.end,
                false => last.end = piece.start,
            }
        }
        if piece.start >= piece.end {
            return Ok(());
        }
        self.close_gap(piece.start);
        if let Some((low, end)) = self.gap {
            let low = low.max(piece.end);
            self.gap = (low < end).then_some((low, end));
        }
        match self.last.replace(piece) {
            Some(last) => self.emit(&last),
            None => Ok(()),
        }
    }

    /// Nothing is known of what of the gap lies before `end`.
    fn close_gap(&mut self, end: u64) {
        if let Some((low, gap_end)) = self.gap {
            let size = self.copying.size();
            self.unknown.push(low.min(size), gap_end.min(end).min(size));
        }
    }

    /// Reads a piece, and hands on what is right of it.
    fn emit(&mut self, piece: &Piece) -> io::Result<()> {
        let end = piece.end.min(self.copying.size());
        if piece.start >= end {
            return Ok(());
        }
        self.uncovered.push(self.emitted, piece.start);
        self.emitted = end;
        self.content.end = self.content.end.max(end);
        if !piece.extent.is_written() {
            return Ok(());
        }
        let mut at = piece.start;
        while at < end {
            if let Some((_, behind)) =
                self.punched.filter(|(first, behind)| *first <= at && at < *behind)
            {
                at = behind;
                continue;
            }
            let stop = end.min(at.saturating_add((BATCH * BLOCK_SIZE) as u64));
            let before = self.punched.map_or(u64::MAX, |(first, _)| first);
            let stop = if before > at { stop.min(before) } else { stop };
            self.emit_batch(piece, at, stop)?;
            at = stop;
        }
        Ok(())
    }

    /// Bytes of a piece that begin at a block and are not more than a batch.
    fn emit_batch(&mut self, piece: &Piece, start: u64, end: u64) -> io::Result<()> {
        let first = (start - piece.at) / BLOCK_BYTES;
        let count = (end - start).div_ceil(BLOCK_BYTES);
        let block = BlockNo(piece.extent.blocks.start.0 + first);
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(count as usize * BLOCK_SIZE, 0);
        if self.copying.reading.data(block, &mut buffer).is_err() {
            // What the device does not read is zeros already; a block of the log may have nothing to lie on.
            buffer.fill(0);
        }
        let sums = &piece.extent.sums[first as usize..];
        let reading = self.copying.reading;
        let is_right = |(bytes, (block, sum)): (&mut [u8], (BlockNo, &u64))| {
            let in_log = || reading.is_in_log(BlockRange::new(block, 1));
            block_sum(bytes) == *sum || in_log() && reading.data_of_sum(block, *sum, bytes)
        };
        let blocks = (block.0..).map(BlockNo).zip(sums);
        let right = buffer.chunks_exact_mut(BLOCK_SIZE).zip(blocks).map(is_right);
        let right: Vec<bool> = right.collect();
        let mut index = 0;
        for run in right.chunk_by(|one, two| one == two) {
            let from = start + index as u64 * BLOCK_BYTES;
            index += run.len();
            let to = end.min(start + index as u64 * BLOCK_BYTES);
            match run[0] {
                true => {}
                false if self.copying.unproved => self.content.unproved.push(from, to),
                false => {
                    self.content.holes.push(from, to);
                    continue;
                }
            }
            (self.write)(from, &buffer[(from - start) as usize..(to - start) as usize])?;
        }
        self.buffer = buffer;
        Ok(())
    }

    fn end(mut self) -> io::Result<Content> {
        self.close_gap(u64::MAX);
        if let Some(last) = self.last.take() {
            self.emit(&last)?;
        }
        let end = self.copying.inode.map_or(self.content.end, |inode| inode.size);
        self.uncovered.push(self.emitted, end);
        // All blocks that the file has were met: then there is nothing elsewhere. If not, what extents do not have may be in one that is
        // lost; but of a file of which all is proven only where nothing is known.
        let is_complete = self.copying.inode.is_some_and(|inode| inode.blocks == self.blocks);
        if !is_complete || self.is_cut {
            let is_doubted = self.copying.is_doubted || self.content.provenance.version().is_some();
            let missing = if is_doubted { &self.uncovered } else { &self.unknown };
            self.content.holes.merge(missing, end);
        }
        if !self.copying.punches.is_proven {
            self.content.provenance.doubt();
        }
        Ok(self.content)
    }
}
