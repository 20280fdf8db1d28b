//! Reading the ring: one whole commit, or why there is none; and the search for frames that prove damage.
//!
//! A frame counts only at its location: number, index and epoch are those that
//! must come next, and its `prior` is the sum of the frame before. All frames
//! of a journal together fit the ring once, so a ring is never read twice.

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo, BlockRange, CommitNo, Epoch};
use holdfast_device::{Device, DeviceError};
use holdfast_format::journal::frame::{FrameHeader, KIND_END};
use holdfast_format::journal::{COMMIT_BYTES_MAX, JournalMark, SEARCH_BLOCKS_MAX, next_block};
use holdfast_format::node::OfVolume;
use holdfast_format::{Geometry, Superblock};

use super::{Damage, End, Fault, Reason};
use crate::issue::Issue;
use crate::ring_part::BadRingPart;

/// Blocks read at once when the ring is searched.
const SEARCH_BATCH: u64 = 256;

/// The ring of a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring<'a> {
    pub(super) device: &'a dyn Device,
    pub(super) geometry: &'a Geometry,
    /// What its frames carry.
    pub(super) tag: [u8; 8],
    /// What nodes of the volume carry.
    pub(super) volume: OfVolume,
    pub(super) blocks: BlockRange,
    start: Expected,
}

/// What must come next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub(super) mark: JournalMark,
    /// Epoch of the last commit, or of the superblock.
    epoch: Epoch,
    /// Whether no commit came yet.
    is_first: bool,
    /// Blocks of the ring that no frame has taken.
    left: u64,
}

/// A commit whose frames are all there.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) commit: CommitNo,
    pub(crate) epoch: Epoch,
    /// Its frames, and where they begin.
    pub(crate) frames: Vec<(BlockNo, FrameHeader)>,
    /// The places that do not hold one of its frames, though another does, and what is wrong.
    pub(crate) bad: Vec<BadFrame>,
    pub(crate) payload: Vec<u8>,
    /// What comes behind it.
    pub(crate) after: Expected,
}

/// A frame's header and payload.
type Frame = (FrameHeader, Vec<u8>);

/// A place that does not hold a frame which another place has.
#[derive(Clone, Debug)]
pub(crate) struct BadFrame {
    pub(crate) part: BadRingPart,
    pub(crate) why: String,
}

/// What was found where a commit should be.
#[derive(Debug)]
pub(crate) enum NextCommit {
    Whole(Whole),
    End(End),
    /// An end that no crash explains.
    Fault(End, Fault),
}

impl Whole {
    /// First block of the commit.
    pub(super) fn at(&self) -> BlockNo {
        self.frames[0].0
    }

    pub(super) fn mark(&self) -> JournalMark {
        self.after.mark
    }

    /// Blocks of its frames.
    pub(super) fn blocks(&self) -> u64 {
        self.frames.iter().map(|(_, header)| header.blocks()).sum()
    }

    /// The end of a journal before this commit.
    pub(super) fn ends_before(&self, at: BlockNo, reason: Reason, why: impl Into<String>) -> End {
        End { commit: self.commit, at, reason, why: why.into() }
    }
}

impl<'a> Ring<'a> {
    pub(crate) fn new(device: &'a dyn Device, superblock: &'a Superblock) -> Ring<'a> {
        let geometry = &superblock.geometry;
        let blocks = geometry.journal();
        let start = Expected {
            mark: superblock.journal,
            epoch: superblock.epoch,
            is_first: true,
            left: blocks.count,
        };
        let volume = superblock.nodes();
        Ring { device, geometry, tag: superblock.ring_tag, volume, blocks, start }
    }

    /// Where the superblock says that the journal goes on.
    pub(crate) fn start(&self) -> Expected {
        self.start
    }

    /// The commit that must come at `place`; where that does not read, an end, and why.
    pub(super) fn next(&self, place: &Expected) -> (NextCommit, Option<DeviceError>) {
        match self.commit(place) {
            Ok(found) => (found, None),
            Err(error) => {
                let (commit, at) = (place.mark.commit.next(), place.mark.next);
                let end =
                    End { commit, at, reason: Reason::Broken, why: "it does not read".into() };
                (NextCommit::End(end), Some(error))
            }
        }
    }

    /// Reads the commit that must come at `place`.
    pub(crate) fn commit(&self, place: &Expected) -> Result<NextCommit, DeviceError> {
        let commit = place.mark.commit.next();
        let mut mark = place.mark;
        let mut left = place.left;
        let mut frames: Vec<(BlockNo, FrameHeader)> = Vec::new();
        let (mut payload, mut bad) = (Vec::new(), Vec::new());
        loop {
            let at = mark.next;
            let end = |reason, why: String| End { commit, at, reason, why };
            let absent = if frames.is_empty() { Reason::Nothing } else { Reason::Incomplete };
            let first = frames.first().map(|(_, first)| first);
            let misfit =
                |header: &FrameHeader| self.misfit(place, &mark, first, frames.len(), header);
            let (header, bytes) = match self.frame_that(at, misfit, &mut bad)? {
                Ok(frame) => frame,
                Err(why) => return Ok(NextCommit::End(end(absent, why))),
            };
            if header.kind == KIND_END {
                return Ok(NextCommit::End(end(Reason::Closed, "the volume was closed".into())));
            }
            let too_much = if header.blocks() > left {
                Some("its frames overlap the journal's first")
            } else if payload.len() + bytes.len() > COMMIT_BYTES_MAX {
                Some("its payload is too large")
            } else {
                None
            };
            if let Some(why) = too_much {
                let what = format!("commit {commit}: {why}");
                let fault = Fault { issue: Issue::CommitMalformed, what, block: at };
                return Ok(NextCommit::Fault(end(Reason::Broken, why.into()), fault));
            }
            payload.extend_from_slice(&bytes);
            left -= header.blocks();
            mark = JournalMark {
                commit: mark.commit,
                next: next_block(self.blocks, at, header.blocks()),
                sum: header.sum,
            };
            frames.push((at, header));
            if header.index + 1 == header.frames {
                let mark = JournalMark { commit, ..mark };
                let epoch = Epoch(header.epoch);
                let after = Expected { mark, epoch, is_first: false, left };
                return Ok(NextCommit::Whole(Whole { commit, epoch, frames, bad, payload, after }));
            }
        }
    }

    /// Why a valid frame is not the one that must come next.
    fn misfit(
        &self,
        place: &Expected,
        mark: &JournalMark,
        first: Option<&FrameHeader>,
        index: usize,
        header: &FrameHeader,
    ) -> Option<String> {
        let expected = place.mark.commit.next();
        if header.commit != expected.0 {
            return Some(format!("the frame is of commit {}", header.commit));
        }
        if header.prior != mark.sum {
            return Some("the frame follows another one".into());
        }
        if header.index as usize != index {
            return Some(format!("the frame is number {} of its commit", header.index));
        }
        match first {
            Some(first) => {
                let of = |header: &FrameHeader| (header.kind, header.epoch, header.frames);
                (of(first) != of(header)).then(|| "the frame does not fit the first".into())
            }
            None => {
                let next = place.epoch.0 + 1;
                let stays =
                    header.epoch == place.epoch.0 && (!place.is_first || header.kind == KIND_END);
                let fits = stays || header.epoch == next;
                (!fits).then(|| format!("the frame is of epoch {}", header.epoch))
            }
        }
    }

    /// The frame at `at` for which `misfit` has no reason, in the first place that has it; or why there is none. One that ends
    /// the journal counts only where no place has another. Fails if no place reads.
    fn frame_that(
        &self,
        at: BlockNo,
        misfit: impl Fn(&FrameHeader) -> Option<String>,
        bad: &mut Vec<BadFrame>,
    ) -> Result<Result<Frame, String>, DeviceError> {
        let (mut found, mut reasons, mut failed) = (None::<(BlockNo, Frame)>, Vec::new(), None);
        let mut others = Vec::new();
        for distance in self.geometry.ring_places() {
            let place = BlockNo(at.0 + distance);
            let judged = match self.frame(at, distance) {
                Ok(judged) => judged,
                Err(error) => {
                    others.push((place, error.to_string()));
                    failed.get_or_insert(error);
                    continue;
                }
            };
            let fitting = judged.and_then(|(header, bytes)| match misfit(&header) {
                Some(why) => Err(why),
                None => Ok((header, bytes)),
            });
            match fitting {
                Ok(frame) => {
                    let is_end = |frame: &Frame| frame.0.kind == KIND_END;
                    let stale = match &found {
                        Some((_, first)) if is_end(first) == is_end(&frame) => continue,
                        Some((_, first)) if !is_end(first) => Some(place),
                        _ => found.replace((place, frame)).map(|(first, _)| first),
                    };
                    others.extend(
                        stale.map(|at| (at, "it says still that the volume was closed".into())),
                    );
                }
                Err(why) => {
                    others.push((place, why.clone()));
                    reasons.push(why);
                }
            }
        }
        match (found, failed) {
            (Some((sound, frame)), _) => {
                let bytes = frame.0.blocks() * BLOCK_BYTES;
                bad.extend(others.into_iter().map(|(place, why)| {
                    let (bad, sound) = (place.0 * BLOCK_BYTES, sound.0 * BLOCK_BYTES);
                    BadFrame { part: BadRingPart { bad, sound, bytes }, why }
                }));
                Ok(Ok(frame))
            }
            (None, Some(error)) if reasons.is_empty() => Err(error),
            (None, _) => Ok(Err(reasons.swap_remove(0))),
        }
    }

    /// Reads and judges the frame whose first place is `at`, so many blocks behind that: its header and payload, or why there is none.
    pub(super) fn frame(
        &self,
        at: BlockNo,
        distance: u64,
    ) -> Result<Result<Frame, String>, DeviceError> {
        let place = at.0 + distance;
        let mut bytes = vec![0; BLOCK_SIZE];
        self.device.read(place * BLOCK_BYTES, &mut bytes)?;
        let header = match FrameHeader::decode(&bytes) {
            Ok(header) => header,
            Err(malformed) => return Ok(Err(malformed.why)),
        };
        if at.0 + header.blocks() > self.blocks.start.0 + self.blocks.count {
            return Ok(Err("the frame reaches over the ring's end".into()));
        }
        // At most FRAME_BYTES_MAX, rounded up to a block.
        bytes.resize(header.blocks() as usize * BLOCK_SIZE, 0);
        let (_, rest) = bytes.split_at_mut(BLOCK_SIZE);
        if !rest.is_empty() {
            self.device.read((place + 1) * BLOCK_BYTES, rest)?;
        }
        Ok(match header.open(&bytes, at, &self.tag) {
            Ok(payload) => Ok((header, payload.to_vec())),
            Err(malformed) => Err(malformed.why),
        })
    }

    /// Searches the ring for a frame that was written after the commit at `end` was durable. Also says why not all of it reads.
    pub(super) fn damage(&self, end: &End) -> (Option<Damage>, Option<DeviceError>) {
        let ring = self.blocks;
        // A superblock that claims more does not make a check endless (P10).
        let mut left = ring.count.min(SEARCH_BLOCKS_MAX);
        let mut buffer = vec![0; left.min(SEARCH_BATCH) as usize * BLOCK_SIZE];
        let (mut at, mut unread) = (end.at, None);
        while left > 0 {
            let to_end = ring.start.0 + ring.count - at.0;
            let count = left.min(to_end).min(SEARCH_BATCH);
            let part = &mut buffer[..count as usize * BLOCK_SIZE];
            let (mut is_searched, mut failed) = (false, None);
            for distance in self.geometry.ring_places() {
                match self.proof(end, at, distance, part) {
                    (Some(damage), _) => return (Some(damage), unread),
                    (None, None) => is_searched = true,
                    (None, Some(error)) => drop(failed.get_or_insert(error)),
                }
            }
            // What one place has, the other has as well.
            unread = unread.or(failed.filter(|_| !is_searched));
            left -= count;
            at = next_block(ring, at, count);
        }
        (None, unread)
    }

    /// Reads a part of the ring, down to single blocks: what does not read is zeros, which are no frame. Returns why that is.
    fn read_part(&self, at: u64, part: &mut [u8]) -> Option<DeviceError> {
        if self.device.read(at, part).is_ok() {
            return None;
        }
        let mut first = None;
        for (at, block) in (at..).step_by(BLOCK_SIZE).zip(part.chunks_mut(BLOCK_SIZE)) {
            if let Err(error) = self.device.read(at, block) {
                block.fill(0);
                first.get_or_insert(error);
            }
        }
        first
    }

    /// The frame in `part` of the ring, which begins at `from` and is read in the place that is so many blocks behind the first,
    /// that was written after the commit at `end` was durable. Also says why not all of it reads.
    fn proof(
        &self,
        end: &End,
        from: BlockNo,
        distance: u64,
        part: &mut [u8],
    ) -> (Option<Damage>, Option<DeviceError>) {
        let missing = end.commit.0;
        let mut unread = self.read_part((from.0 + distance) * BLOCK_BYTES, part);
        for (index, block) in (0..).zip(part.as_chunks::<BLOCK_SIZE>().0) {
            let at = BlockNo(from.0 + index);
            let Ok(header) = FrameHeader::decode(block) else { continue };
            let proves = header.commit >= missing && header.durable >= missing;
            // Before the checksum is computed: foreign frames cost nothing.
            if !proves || (header.address, header.volume) != (at.0, self.tag) {
                continue;
            }
            match self.frame(at, distance) {
                Ok(Ok((header, _))) => {
                    let (later, durable) = (CommitNo(header.commit), CommitNo(header.durable));
                    return (Some(Damage { commit: end.commit, at, later, durable }), unread);
                }
                Ok(Err(_)) => {}
                Err(error) => drop(unread.get_or_insert(error)),
            }
        }
        (None, unread)
    }
}
