//! The log ring: where the next batch goes, and the writing of it.
//!
//! Always true: each header names the last batch whose flush had returned, or a number that was left out behind it, so only
//! those behind the latest that one names can be incomplete. No physical sector of a batch
//! that a recovery reads is ever written again; nor is the batch before the mark, until one behind it is durable. Room for the
//! marker of a recovery is always left (R12).
//!
//! Knows nothing of what a batch says.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use holdfast_base::mutants::{self, Mutant};
use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BatchNo, BlockRange, Lsn};
use holdfast_device::Device;
use holdfast_format::Superblock;
use holdfast_format::log::frame::MAGIC;
use holdfast_format::log::{LogHeader, LogMark, UNIT};

use super::position::LogPosition;
use crate::Result;

/// What a header says of its batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) after: Lsn,
    pub(super) last: Lsn,
    pub(super) inode_next: u64,
    pub(super) inode_count: u64,
    pub(super) records: u32,
    /// Bytes of file data inside it. No header says that.
    pub(super) data_bytes: u64,
}

/// The shape of the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    /// First byte on the device.
    pub(super) start: u64,
    /// Bytes.
    pub(super) len: u64,
    /// Bytes from the first place of a batch to the second; 0 if there is one.
    distance: u64,
    /// Batches begin and end at multiples of this.
    sector: u64,
    pub(super) volume: [u8; 8],
}

impl Ring {
    /// The log ring of the volume that `superblock` stands for.
    pub(crate) fn new(superblock: &Superblock, device: &dyn Device) -> Ring {
        let BlockRange { start, count } = superblock.geometry.log();
        Ring {
            // What saturates lies behind the end of every device, which says so.
            start: start.0.saturating_mul(BLOCK_BYTES),
            len: count.saturating_mul(BLOCK_BYTES),
            distance: superblock.geometry.ring_distance.saturating_mul(BLOCK_BYTES),
            // Blocks lie at multiples of their size and no more: what is larger cannot be kept to.
            sector: u64::from(device.physical_sector_size()).clamp(UNIT, BLOCK_BYTES),
            volume: superblock.ring_tag,
        }
    }

    /// The place at or behind byte `at` where a batch may begin.
    fn align(&self, at: u64) -> u64 {
        self.behind(at.next_multiple_of(self.sector), 0)
    }

    /// The mark moved to where a batch may begin, and by how many bytes.
    pub(super) fn aligned(&self, mark: LogMark) -> (LogMark, u64) {
        let gap = mark.next.next_multiple_of(self.sector).saturating_sub(mark.next);
        (LogMark { next: self.align(mark.next), ..mark }, gap)
    }

    /// The place `len` bytes behind byte `at`, at the start again behind the end.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "no ring is empty or longer than a volume (Geometry::check), and both lie in it"
    )]
    pub(super) fn behind(&self, at: u64, len: u64) -> u64 {
        debug_assert!(at <= self.len && len <= self.len, "byte {at} and {len} more");
        (at + len) % self.len
    }

    /// The place `len` bytes before byte `at`.
    pub(super) fn before(&self, at: u64, len: u64) -> u64 {
        // A batch is no longer than the ring.
        self.behind(at, self.len.saturating_sub(len))
    }

    /// Bytes from byte `at` to the end: none behind it.
    pub(super) fn until_end(&self, at: u64) -> u64 {
        self.len.saturating_sub(at)
    }

    /// The places at which a batch stands: one or two.
    pub(super) fn places(&self) -> impl Iterator<Item = RingCopy> + use<> {
        let second = (self.distance != 0).then_some(RingCopy::Second);
        [Some(RingCopy::First), second].into_iter().flatten()
    }

    /// As [`Ring::places`], for the writer of a batch.
    fn places_to_write(&self) -> impl Iterator<Item = RingCopy> + use<> {
        let most = if mutants::is(Mutant::RingCopyNotWritten) { 1 } else { 2 };
        self.places().take(most)
    }

    /// Where byte `at` lies on the device. What saturates lies behind the end of every one.
    pub(super) fn on_device(&self, place: RingCopy, at: u64) -> u64 {
        let distance = match place {
            RingCopy::First => 0,
            RingCopy::Second => self.distance,
        };
        self.start.saturating_add(distance).saturating_add(at)
    }

    /// The parts of the device that `len` bytes from byte `at` of the ring on lie in: one, or two if
    /// they go on at the start.
    pub(super) fn parts(
        &self,
        place: RingCopy,
        at: u64,
        len: usize,
    ) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> + use<> {
        let first = usize::try_from(self.until_end(at)).unwrap_or(usize::MAX).min(len);
        [(self.on_device(place, at), 0..first), (self.on_device(place, 0), first..len)]
            .into_iter()
            .filter(|(_, part)| !part.is_empty())
    }
}

/// One of the two places at which a batch may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RingCopy {
    First,
    Second,
}

/// The log of an open store. Its lock is held while a batch is made, I/O included.
#[derive(Debug)]
pub(crate) struct Log {
    ring: Ring,
    /// Behind the batches in `buffer`.
    place: LogPosition,
    /// The last batch that is durable.
    before: BatchNo,
    /// The last batch that something on the device calls durable.
    confirmed: BatchNo,
    /// No batch goes on at the ring's start: the ring is about to have another length.
    keeps_before_the_end: bool,
    /// Batches that no flush has followed yet.
    appended: Option<Appended>,
    buffer: Vec<u8>,
    /// Where the batches begin in `buffer`; what lies before is never written.
    start: usize,
    batch_start: usize,
}

/// Batches that were written and wait for a later flush.
#[derive(Clone, Copy, Debug)]
pub(super) struct Appended {
    /// The last operation in them.
    pub(super) last: Lsn,
    /// Blocks of data that they name.
    pub(super) blocks: u64,
}

/// Room for the batches of a flush, mostly; more is made as it is needed.
const BUFFER_BYTES: usize = 32 << 10;

impl Log {
    pub(crate) fn new(ring: Ring, place: LogPosition) -> Log {
        let before = place.mark.batch;
        let (buffer, start, batch_start) = (Vec::new(), 0, 0);
        // What an opening found, it has made a part of a checkpoint: nothing need be said of it.
        let (confirmed, appended) = (before, None);
        let keeps_before_the_end = false;
        let mut log = Log {
            ring,
            place,
            before,
            confirmed,
            keeps_before_the_end,
            appended,
            buffer,
            start,
            batch_start,
        };
        log.restart();
        log
    }

    /// Empties the buffer. The next content begins aligned for direct I/O; otherwise a device has to copy it, as it
    /// does when the buffer had to move while it grew.
    fn restart(&mut self) {
        self.buffer.clear();
        self.buffer.reserve(BUFFER_BYTES);
        let address = self.buffer.as_ptr().addr();
        #[expect(clippy::arithmetic_side_effects, reason = "a sector has UNIT bytes at least")]
        let start = address.wrapping_neg() % self.ring.sector as usize;
        self.start = start;
        self.buffer.resize(self.start, 0);
    }

    /// Bytes that may be written without touching what a recovery reads, from `tail` on.
    pub(super) fn room(&self, tail: &LogPosition) -> u64 {
        if mutants::is(Mutant::LogRoom) {
            return self.ring.len;
        }
        let kept = if self.before > tail.mark.batch { 0 } else { tail.before };
        // None where that cannot be: nothing is written over then.
        let used = self.place.head.checked_sub(tail.head);
        let used = used.and_then(|used| used.checked_add(kept)?.checked_add(self.ring.sector));
        let room = used.and_then(|used| self.ring.len.checked_sub(used)).unwrap_or(0);
        match self.keeps_before_the_end {
            // Behind a batch up to the very end the next one is at the start.
            true => room.min(self.ring.until_end(self.place.mark.next).saturating_sub(1)),
            false => room,
        }
    }

    /// Until it is said otherwise, no batch goes on at the ring's start, or all may.
    pub(super) fn keeps_before_the_end(&mut self, yes: bool) {
        self.keeps_before_the_end = yes;
    }

    /// The ring has so many bytes from now on: all that a recovery reads lies at the same place in it.
    pub(super) fn has_length(&mut self, bytes: u64) {
        self.ring.len = bytes;
    }

    /// The next batch goes there.
    pub(super) fn goes_on_at(&mut self, place: LogPosition) {
        self.place = place;
    }

    /// What stands for all batches so far is about to be durable, and no batch is written before.
    pub(super) fn is_durable(&mut self) {
        (self.before, self.confirmed) = (self.place.mark.batch, self.place.mark.batch);
        self.appended = None;
    }

    /// Where the next batch goes.
    pub(super) fn place(&self) -> LogPosition {
        self.place
    }

    /// Begins a batch: its records are appended to what this returns.
    pub(super) fn begin(&mut self) -> &mut Vec<u8> {
        self.batch_start = self.buffer.len();
        LogHeader::reserve(&mut self.buffer);
        &mut self.buffer
    }

    /// Ends the batch: the next one follows it.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "nothing of the disk: bytes since the opening, and of a buffer behind a place in it"
    )]
    pub(super) fn end(&mut self, span: Span) {
        let mark = self.place.mark;
        let number = mark.batch.next();
        let header = LogHeader {
            magic: MAGIC,
            bytes: 0,
            sum: 0,
            address: mark.next,
            volume: self.ring.volume,
            number: number.0,
            durable: self.before.0,
            prior: mark.sum,
            after: span.after.0,
            last: span.last.0,
            inode_next: span.inode_next,
            inode_count: span.inode_count,
            len: 0,
            records: span.records,
            flags: 0,
            reserved: [0; 12],
        };
        self.confirmed = self.before;
        let sector =
            if mutants::is(Mutant::SharedSector) { 512 } else { self.ring.sector as usize };
        let sum = header.finish(&mut self.buffer, self.batch_start, sector);
        let bytes = (self.buffer.len() - self.batch_start) as u64;
        self.place = LogPosition {
            mark: LogMark { batch: number, next: self.ring.behind(mark.next, bytes), sum },
            head: self.place.head + bytes,
            data: self.place.data + span.data_bytes,
            before: bytes,
        };
    }

    /// Writes the batches. Returns the bytes and the write calls. After an error the log must not be used again.
    pub(super) fn write(&mut self, device: &dyn Device) -> Result<(u64, u64)> {
        let batches = &self.buffer[self.start..];
        let len = batches.len();
        let at = self.ring.before(self.place.mark.next, len as u64);
        let (mut bytes, mut writes) = (0u64, 0u64);
        // Both before the flush: a crash leaves any part of them, and what is whole in one place counts.
        for place in self.ring.places_to_write() {
            for (on_device, part) in self.ring.parts(place, at, len) {
                bytes = bytes.saturating_add(part.len() as u64);
                writes = writes.saturating_add(1);
                device.write(on_device, &batches[part])?;
            }
        }
        Ok((bytes, writes))
    }

    /// What was written is durable. Returns where the next batch goes.
    pub(super) fn flushed(&mut self) -> LogPosition {
        self.restart();
        self.before = self.place.mark.batch;
        self.appended = None;
        self.place
    }

    /// What was written, up to operation `last`, waits for a flush. It names so many blocks of data. Returns where the
    /// next batch goes.
    pub(super) fn appended(&mut self, last: Lsn, blocks: u64) -> LogPosition {
        self.restart();
        let before = self.appended.map_or(0, |appended| appended.blocks);
        self.appended = Some(Appended { last, blocks: before.saturating_add(blocks) });
        if mutants::is(Mutant::AppendedIsDurable) {
            self.before = self.place.mark.batch;
        }
        self.place
    }

    /// A flush has returned that began behind the batches that waited for one.
    pub(super) fn appended_are_durable(&mut self) {
        if self.appended.take().is_some() {
            self.before = self.place.mark.batch;
        }
    }

    /// Batches that wait for a flush.
    pub(super) fn waiting(&self) -> Option<Appended> {
        self.appended
    }

    /// Writes a batch without content: it only says that the last one was durable, up to operation `last`. It follows
    /// no batch, so replay does not take it for history; the next one is written over it. Returns the bytes written;
    /// `None` if this was said already, or there is no room.
    pub(super) fn confirm(
        &mut self,
        device: &dyn Device,
        tail: &LogPosition,
        last: Lsn,
    ) -> Result<Option<u64>> {
        let is_said = self.confirmed == self.before || self.appended.is_some();
        if is_said || self.room(tail) < self.ring.sector {
            return Ok(None);
        }
        let (bytes, _) = self.write_empty(device, last, self.before)?;
        self.confirmed = self.before;
        Ok(Some(bytes))
    }

    /// A batch of its own for the mark, which follows nothing and says nothing: behind it the log goes on. Only behind what was
    /// found in an opening; the flush is the caller's. Returns where the next batch goes; where there is no room, nothing need be there.
    pub(super) fn write_marker(&mut self, device: &dyn Device, last: Lsn) -> Result<LogPosition> {
        let mark = self.place.mark;
        let number = mark.batch.next();
        let sector = self.ring.sector;
        let has_room = self.place.head.checked_add(sector).is_some_and(|end| end <= self.ring.len);
        let mark = if has_room {
            let (_, sum) = self.write_empty(device, last, BatchNo(0))?;
            LogMark { batch: number, next: self.ring.behind(mark.next, sector), sum }
        } else {
            LogMark { batch: number, sum: 0, ..mark }
        };
        let written = if has_room { sector } else { 0 };
        let head = self.place.head.saturating_add(written);
        self.place = LogPosition { mark, head, before: written, ..self.place };
        (self.before, self.confirmed) = (number, number);
        Ok(self.place)
    }

    /// Writes a batch without content behind the mark, which follows nothing, and calls `durable` durable. Returns the bytes written, and
    /// its sum.
    fn write_empty(
        &mut self,
        device: &dyn Device,
        last: Lsn,
        durable: BatchNo,
    ) -> Result<(u64, u64)> {
        let mark = self.place.mark;
        self.begin();
        let header = LogHeader {
            magic: MAGIC,
            bytes: 0,
            sum: 0,
            address: mark.next,
            volume: self.ring.volume,
            number: mark.batch.next().0,
            durable: durable.0,
            prior: !mark.sum,
            after: last.0,
            last: last.next().0,
            inode_next: 0,
            inode_count: 0,
            len: 0,
            records: 0,
            flags: 0,
            reserved: [0; 12],
        };
        let sum = header.finish(&mut self.buffer, self.batch_start, self.ring.sector as usize);
        let batch = &self.buffer[self.start..];
        let mut bytes = 0u64;
        for place in self.ring.places_to_write() {
            // A header never goes on at the ring's start, and this is no more than a sector.
            device.write(self.ring.on_device(place, mark.next), batch)?;
            bytes = bytes.saturating_add(batch.len() as u64);
        }
        self.restart();
        Ok((bytes, sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_lie_where_direct_io_takes_them() {
        for sector in [512, 4096] {
            let ring = Ring { start: 0, len: 1 << 20, distance: 0, sector, volume: [0; 8] };
            let mut log = Log::new(ring, LogPosition::at(LogMark::START));
            for bytes in [10, 5000, 100_000, 10] {
                for _ in 0..2 {
                    let out = log.begin();
                    out.resize(out.len() + bytes / 2, 0);
                }
                let at = log.buffer[log.start..].as_ptr().addr();
                let is_aligned = at.is_multiple_of(sector as usize);
                assert!(is_aligned || bytes > BUFFER_BYTES, "{bytes} bytes, sectors of {sector}");
                log.flushed();
            }
        }
    }
}
