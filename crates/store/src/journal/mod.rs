//! The journal ring: where the next commit goes, and the writing of it.
//!
//! Always true: commits are written one at a time, each after the flush of the
//! one before returned, so of all commits in the ring only the last can be
//! incomplete. Blocks between `tail` and `head` are those that a recovery reads. While there are none, the frame before
//! the mark stays, and a block is always left for the marker of a recovery (R12).
//!
//! Knows nothing of what a commit says.

mod around_mark;
mod frames;
pub(crate) mod parts;
pub(crate) mod replay;
pub(crate) mod recover;

use holdfast_base::mutants::{self, Mutant};
use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, BlockRange, CommitNo, Epoch};
use holdfast_device::{Device, Flushed, flush_unless};
use holdfast_format::Geometry;
use holdfast_format::journal::frame::{FRAME_BYTES_MAX, KIND_COMMIT, KIND_END, MAGIC};
use holdfast_format::journal::{COMMIT_BYTES_MAX, FrameHeader, JournalMark, next_block};

use crate::Result;
use crate::cache::FrozenNodes;

/// The buffer of the payload grows in steps of this.
const ROOM_BYTES: usize = 1 << 20;
/// Blocks of a marker.
const MARKER_BLOCKS: u64 = 1;
/// A frame takes at most this part of the ring: what stays of it leaves room for commits.
const FRAME_PART: u64 = 8;
/// A buffer larger than this is not kept for the next commit.
const KEPT_BYTES: usize = 32 << 20;

/// The journal of an open store. Its lock is held while a commit is made, I/O included.
#[derive(Debug)]
pub(crate) struct Journal {
    ring: BlockRange,
    /// How far from the first place of a frame each one is, in blocks.
    places: [Option<u64>; 2],
    volume: [u8; 8],
    /// Behind the last commit.
    mark: JournalMark,
    /// Blocks that were ever written, counted from the opening.
    head: u64,
    /// Blocks that are dead.
    tail: u64,
    /// Blocks of the frame before the mark; 0 where there is none.
    before: u64,
    /// Whether a frame at the mark says that no commit follows.
    ended: bool,
    /// The last commit that a frame behind it calls durable, or that needs none.
    confirmed: CommitNo,
    /// The ranges of the commit being made.
    pub(crate) frozen: FrozenNodes,
    /// Its payload.
    pub(crate) payload: Vec<u8>,
    frame: Vec<u8>,
}

impl Journal {
    /// An empty journal that goes on at `mark`.
    pub(crate) fn new(geometry: &Geometry, volume: [u8; 8], mark: JournalMark) -> Journal {
        let mut places = geometry.ring_places();
        Journal {
            ring: geometry.journal(),
            places: [places.next(), places.next()],
            volume,
            mark,
            head: 0,
            tail: 0,
            before: 0,
            ended: false,
            confirmed: mark.commit,
            frozen: FrozenNodes::default(),
            payload: Vec::new(),
            frame: Vec::new(),
        }
    }

    /// Where the next commit goes.
    pub(crate) fn mark(&self) -> JournalMark {
        self.mark
    }

    /// The frame before the mark has so many blocks.
    pub(crate) fn keep_before(&mut self, blocks: u64) {
        self.before = blocks;
    }

    /// Whether the frame is there whose sum the mark has.
    pub(crate) fn has_before(&self) -> bool {
        self.before != 0
    }

    /// Blocks written so far: what [`Journal::release`] takes.
    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    /// Bytes that a recovery would read.
    pub(crate) fn used_bytes(&self) -> u64 {
        (self.head - self.tail) * BLOCK_BYTES
    }

    /// Goes on at the start of this ring, which is the same one in another length: nothing lies before that mark. Returns what it was.
    pub(crate) fn begin_in(&mut self, ring: BlockRange) -> (BlockRange, JournalMark, u64) {
        let was = (self.ring, self.mark, self.before);
        let mark = JournalMark { next: ring.start, sum: 0, ..self.mark };
        self.is_again((ring, mark, 0));
        was
    }

    /// It is what it was before [`Journal::begin_in`].
    pub(crate) fn is_again(&mut self, was: (BlockRange, JournalMark, u64)) {
        (self.ring, self.mark, self.before) = was;
    }

    /// Room for payload in a frame at the mark, `at` blocks further on.
    fn frame_room(&self, at: u64) -> usize {
        let place = (self.mark.next.0 - self.ring.start.0 + at) % self.ring.count;
        let most = (self.ring.count - place).min(self.ring.count / FRAME_PART);
        usize::try_from(most.saturating_mul(BLOCK_BYTES)).unwrap_or(usize::MAX).min(FRAME_BYTES_MAX)
            - FrameHeader::SIZE
    }

    /// Frames and blocks of a commit with `payload` bytes.
    fn plan(&self, payload: usize) -> (u32, u64) {
        let (mut frames, mut blocks, mut left) = (0, 0, payload);
        while left > 0 {
            let part = left.min(self.frame_room(blocks));
            blocks += ((FrameHeader::SIZE + part) as u64).div_ceil(BLOCK_BYTES);
            frames += 1;
            left -= part;
        }
        (frames, blocks)
    }

    /// Makes memory for a payload of about so many bytes, touched once: the frozen time neither
    /// allocates nor meets new pages.
    pub(crate) fn make_room_for(&mut self, payload: usize) {
        let payload = payload.min(COMMIT_BYTES_MAX);
        if self.payload.capacity() < payload {
            // Written, unlike `vec![0; _]`, whose pages the system makes when they are met.
            self.payload = Vec::new();
            self.payload.resize(payload.next_multiple_of(ROOM_BYTES), 0);
        }
        self.payload.clear();
    }

    /// Gives back the memory that is kept for the next commit.
    pub(crate) fn give_back_memory(&mut self) {
        self.payload = Vec::new();
        self.frame = Vec::new();
        self.frozen = FrozenNodes::default();
    }

    /// Whether a commit of `payload` bytes has room.
    pub(crate) fn fits(&self, payload: usize) -> bool {
        let used = self.head - self.tail;
        let kept = if used == 0 { self.before } else { used } + MARKER_BLOCKS;
        let kept = if mutants::is(Mutant::JournalRoom) { 0 } else { kept };
        payload <= COMMIT_BYTES_MAX && kept + self.plan(payload).1 <= self.ring.count
    }

    /// Writes the payload as the next commit and flushes once. Returns the bytes written.
    /// After an error the journal must not be used again.
    pub(crate) fn write(&mut self, device: &dyn Device, epoch: Epoch) -> Result<(u64, Flushed)> {
        assert!(self.fits(self.payload.len()), "room was made sure of before anything was frozen");
        let (frames, blocks) = self.plan(self.payload.len());
        let before = self.mark.commit;
        let mut mark = JournalMark { commit: before.next(), ..self.mark };
        let (mut done, mut at) = (0, 0);
        for index in 0..frames {
            let part = (self.payload.len() - done).min(self.frame_room(at));
            let header = FrameHeader {
                magic: MAGIC,
                kind: KIND_COMMIT,
                sum: 0,
                address: mark.next.0,
                volume: self.volume,
                epoch: epoch.0,
                commit: mark.commit.0,
                durable: before.0,
                prior: mark.sum,
                index,
                frames,
                len: 0,
                pad: 0,
                reserved: [0; 16],
            };
            self.frame.clear();
            mark.sum = header.encode(&self.payload[done..done + part], &mut self.frame);
            self.write_frame(device, mark.next)?;
            let frame_blocks = self.frame.len() as u64 / BLOCK_BYTES;
            self.before = frame_blocks;
            mark.next = next_block(self.ring, mark.next, frame_blocks);
            done += part;
            at += frame_blocks;
        }
        let flushed = flush_unless(device, Mutant::CommitFlush)?;
        self.mark = mark;
        self.head += blocks;
        self.ended = false;
        if self.payload.capacity() > KEPT_BYTES {
            self.payload = Vec::new();
        }
        Ok((blocks * BLOCK_BYTES * self.places.iter().flatten().count() as u64, flushed))
    }

    /// A number that no commit has: a checkpoint holds what no commit says. Should its superblock rot, a replay from
    /// the superblock before it misses a commit, instead of taking an older state for the whole (P6).
    pub(crate) fn leave_a_number_out(&mut self) {
        self.mark.commit = self.mark.commit.next();
        // What says so at the mark has the number of before.
        self.ended = false;
    }

    /// Everything before `head` is dead: a superblock that needs none of it is durable.
    pub(crate) fn release(&mut self, head: u64) {
        assert!(self.tail <= head && head <= self.head);
        self.tail = head;
    }

    /// Says at the mark that no commit follows, so that the next opening need not look for one. Needs no flush:
    /// where it is missing, the opening looks. `epoch` is that of the superblock.
    pub(crate) fn end(&mut self, device: &dyn Device, epoch: Epoch) -> Result<()> {
        if self.ended || self.head != self.tail {
            return Ok(());
        }
        self.write_end(device, epoch, self.mark.sum, self.mark.commit)?;
        self.ended = true;
        Ok(())
    }

    /// A frame that follows nothing, and ends nothing: it only proves that the number before it was durable.
    pub(crate) fn say_left_out(&mut self, device: &dyn Device, epoch: Epoch) -> Result<()> {
        if self.head != self.tail {
            return Ok(());
        }
        self.write_end(device, epoch, !self.mark.sum, self.mark.commit)
    }

    /// A frame of its own for the mark, which follows nothing and says nothing: behind it the journal goes on. Only while nothing
    /// in the ring is needed; the flush is the caller's.
    pub(crate) fn write_marker(&mut self, device: &dyn Device, epoch: Epoch) -> Result<()> {
        assert_eq!(self.head, self.tail, "a commit would be written over");
        self.write_end(device, epoch, !self.mark.sum, CommitNo(0))?;
        (self.mark, _) = marker(self.ring, self.volume, epoch, self.mark);
        (self.before, self.confirmed, self.ended) = (MARKER_BLOCKS, self.mark.commit, false);
        Ok(())
    }

    /// As [`Journal::say_left_out`], behind a commit: should the commit rot, it is missed. Returns whether anything was
    /// written: not if it was said before, no recovery would read the commit, or there is no room.
    pub(crate) fn confirm(&mut self, device: &dyn Device, epoch: Epoch) -> Result<bool> {
        let used = self.head - self.tail;
        if self.confirmed == self.mark.commit || used == 0 || used >= self.ring.count {
            return Ok(false);
        }
        self.write_end(device, epoch, !self.mark.sum, self.mark.commit)?;
        self.confirmed = self.mark.commit;
        Ok(true)
    }

    fn write_end(
        &mut self,
        device: &dyn Device,
        epoch: Epoch,
        prior: u64,
        durable: CommitNo,
    ) -> Result<()> {
        let header = end_frame(self.volume, epoch, self.mark, prior, durable);
        self.frame.clear();
        header.encode(&[], &mut self.frame);
        self.write_frame(device, self.mark.next)
    }

    /// Writes the frame to each of its places, of which `at` is the first. Before the flush: a crash leaves any part of them, and
    /// what is whole in one place counts.
    fn write_frame(&self, device: &dyn Device, at: BlockNo) -> Result<()> {
        let most = if mutants::is(Mutant::RingCopyNotWritten) { 1 } else { 2 };
        for distance in self.places.into_iter().flatten().take(most) {
            let place = BlockNo(at.0 + distance).byte_offset();
            device.write(place.expect("the rings lie inside the volume"), &self.frame)?;
        }
        Ok(())
    }
}

/// A frame behind `mark` that is no commit.
fn end_frame(
    volume: [u8; 8],
    epoch: Epoch,
    mark: JournalMark,
    prior: u64,
    durable: CommitNo,
) -> FrameHeader {
    FrameHeader {
        magic: MAGIC,
        kind: KIND_END,
        sum: 0,
        address: mark.next.0,
        volume,
        epoch: epoch.0,
        commit: mark.commit.next().0,
        durable: durable.0,
        prior,
        index: 0,
        frames: 1,
        len: 0,
        pad: 0,
        reserved: [0; 16],
    }
}

/// A marker behind `mark`, which follows nothing and calls nothing durable: where the journal goes on behind it, and its bytes.
fn marker(
    ring: BlockRange,
    volume: [u8; 8],
    epoch: Epoch,
    mark: JournalMark,
) -> (JournalMark, Vec<u8>) {
    let mut bytes = Vec::new();
    let header = end_frame(volume, epoch, mark, !mark.sum, CommitNo(0));
    let sum = header.encode(&[], &mut bytes);
    let next = next_block(ring, mark.next, MARKER_BLOCKS);
    (JournalMark { commit: mark.commit.next(), next, sum }, bytes)
}
