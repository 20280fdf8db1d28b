//! Reading the ring of the log: one whole batch, or why there is none; and the search for batches that
//! prove damage.
//!
//! A batch counts only at its location: its number is the next, its address where it
//! was read, and its `prior` the sum of the batch before. A batch may go on at
//! the ring's start. All batches together fit the ring once, so it is never read twice.

use holdfast_base::units::{BLOCK_BYTES, BlockNo};
use holdfast_base::{BLOCK_SIZE, BatchNo};
use holdfast_device::{Device, DeviceError};
use holdfast_format::journal::SEARCH_BLOCKS_MAX;
use holdfast_format::log::{BATCH_BYTES_MAX, LogHeader, LogMark, UNIT};
use holdfast_format::{Malformed, Superblock};

use super::{End, Proof};
use crate::journal::Reason;
use crate::ring_part::BadRingPart;

/// Bytes read at once when the ring is searched.
const SEARCH_BYTES: u64 = 1 << 20;

/// The ring of a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring<'a> {
    device: &'a dyn Device,
    pub(super) volume: [u8; 8],
    first: BlockNo,
    /// Bytes.
    len: u64,
    /// How far from its first place each place of a batch is, in bytes.
    places: [Option<u64>; 2],
    mark: LogMark,
}

/// What must come next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub(super) mark: LogMark,
    /// Bytes of the ring that no batch has taken.
    left: u64,
}

/// A batch that is all there.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) header: LogHeader,
    pub(crate) records: Vec<u8>,
    /// The places that do not hold it, though another does.
    pub(crate) bad: Vec<BadBatch>,
    /// Whether it lies over the first batch of the log, which no writer does.
    pub(crate) overlaps: bool,
    /// What comes behind it.
    pub(crate) after: Expected,
}

/// A place that does not hold a batch which another place has.
#[derive(Clone, Debug)]
pub(crate) struct BadBatch {
    /// The batch; its end is a part of its own where that is at the ring's start.
    pub(crate) parts: Vec<BadRingPart>,
    pub(crate) why: String,
}

impl Whole {
    pub(super) fn number(&self) -> BatchNo {
        BatchNo(self.header.number)
    }

    /// The end of a log before this batch.
    pub(super) fn ends_before(&self, reason: Reason, why: impl Into<String>) -> End {
        End { batch: self.number(), at: self.header.address, reason, why: why.into() }
    }
}

impl<'a> Ring<'a> {
    /// The ring of the volume that `superblock`, as the journal leaves it, stands for.
    pub(crate) fn new(device: &'a dyn Device, superblock: &Superblock) -> Ring<'a> {
        let ring = superblock.geometry.log();
        let bytes = |blocks: u64| blocks.saturating_mul(BLOCK_BYTES);
        let mut places = superblock.geometry.ring_places().map(bytes);
        Ring {
            device,
            volume: superblock.ring_tag,
            first: ring.start,
            len: ring.bytes().unwrap_or(0),
            places: [places.next(), places.next()],
            mark: superblock.log,
        }
    }

    /// Where the log goes on.
    pub(crate) fn start(&self) -> Expected {
        Expected { mark: self.mark, left: self.len }
    }

    /// Bytes of the ring.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// The block of the device in which byte `at` of the ring lies.
    pub(crate) fn block(&self, at: u64) -> BlockNo {
        BlockNo(self.first.0 + at / BLOCK_BYTES)
    }

    /// The end of a log where the device does not read.
    pub(super) fn unread(&self, place: &Expected) -> End {
        let (batch, at) = (place.mark.batch.next(), place.mark.next);
        End { batch, at, reason: Reason::Broken, why: "it does not read".into() }
    }

    /// How far from the first place of the ring each one is, in bytes.
    pub(super) fn places(&self) -> impl Iterator<Item = u64> + use<> {
        self.places.into_iter().flatten()
    }

    /// Whether one batch was made behind another, and lies there.
    pub(super) fn follows(&self, last: &LogHeader, next: &LogHeader) -> bool {
        let behind = last.address.saturating_add(last.bytes.into()).checked_rem(self.len);
        let is_next = last.number.checked_add(1) == Some(next.number);
        is_next && (next.prior, next.after) == (last.sum, last.last) && behind == Some(next.address)
    }

    /// Reads a part of the ring in one place, down to single sectors: what does not read is zeros, which are no batch. Returns where that
    /// begins, and why.
    fn read_part(&self, place: u64, at: u64, part: &mut [u8]) -> Option<(u64, DeviceError)> {
        if self.read(place, at, part).is_ok() {
            return None;
        }
        let mut first = None;
        let blocks = (at..).step_by(BLOCK_SIZE).zip(part.chunks_mut(BLOCK_SIZE));
        for (at, block) in blocks {
            if self.read(place, at, block).is_ok() {
                continue;
            }
            for (at, unit) in (at..).step_by(UNIT as usize).zip(block.chunks_mut(UNIT as usize)) {
                if let Err(error) = self.read(place, at, unit) {
                    unit.fill(0);
                    first.get_or_insert((at, error));
                }
            }
        }
        first
    }

    /// Reads bytes of the ring, which go on at its start, in the place that is so far from the first.
    pub(super) fn read(&self, place: u64, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let first = self.first.0 * BLOCK_BYTES + place;
        let to_end = usize::try_from(self.len - at).unwrap_or(usize::MAX);
        let (here, rest) = into.split_at_mut(to_end.min(into.len()));
        self.device.read(first + at, here)?;
        if rest.is_empty() { Ok(()) } else { self.device.read(first, rest) }
    }

    /// Judges the header at the front of `bytes`, which were read at `at`, before its sum is made.
    pub(super) fn header(&self, bytes: &[u8], at: u64) -> Result<LogHeader, Malformed> {
        let header = LogHeader::decode(bytes)?;
        let fail = |why| Err(Malformed::new(LogHeader::TITLE, why));
        if (header.address, header.volume) != (at, self.volume) {
            return fail("the batch belongs elsewhere");
        }
        if u64::from(header.bytes) > self.len {
            return fail("the batch is longer than the ring");
        }
        Ok(header)
    }

    /// Reads and judges the whole batch of which `bytes` are the first; returns its records.
    pub(super) fn records(
        &self,
        place: u64,
        header: &LogHeader,
        mut bytes: Vec<u8>,
    ) -> Result<Result<Vec<u8>, Malformed>, DeviceError> {
        let (at, there) = (header.address, bytes.len());
        // At most BATCH_BYTES_MAX.
        bytes.resize(LogHeader::SIZE + header.len as usize, 0);
        if bytes.len() > there {
            self.read(place, (at + there as u64) % self.len, &mut bytes[there..])?;
        }
        Ok(header.open(&bytes, at, &self.volume).map(<[u8]>::to_vec))
    }

    /// Reads the batch that must come at `expected`, or says why there is none: in the first place that has it. Fails if no
    /// place reads.
    pub(crate) fn batch(&self, expected: &Expected) -> Result<Result<Whole, End>, DeviceError> {
        let (mut whole, mut ends, mut failed) = (None::<(u64, Whole)>, Vec::new(), None);
        let mut bad = Vec::new();
        for place in self.places() {
            match self.batch_in(place, expected) {
                Ok(Ok(found)) => {
                    whole.get_or_insert((place, found));
                }
                Ok(Err(end)) => {
                    bad.push((place, end.why.clone()));
                    ends.push(end);
                }
                Err(error) => {
                    bad.push((place, error.to_string()));
                    failed.get_or_insert(error);
                }
            }
        }
        if let Some((sound, whole)) = whole {
            let bad = bad.into_iter().map(|(place, why)| BadBatch {
                parts: self.parts(place, sound, &whole.header),
                why,
            });
            return Ok(Ok(Whole { bad: bad.collect(), ..whole }));
        }
        // One that is cut short says more than one that is not there.
        let first = ends.iter().position(|end| end.reason == Reason::Incomplete).unwrap_or(0);
        match failed {
            Some(error) if ends.is_empty() => Err(error),
            _ => Ok(Err(ends.swap_remove(first))),
        }
    }

    /// A batch in two places, as parts that do not go on at the ring's start.
    fn parts(&self, bad: u64, sound: u64, header: &LogHeader) -> Vec<BadRingPart> {
        let (at, bytes) = (header.address, u64::from(header.bytes));
        let here = bytes.min(self.len - at);
        let first = self.first.0 * BLOCK_BYTES;
        let parts = [(at, here), (0, bytes - here)].into_iter().filter(|(_, bytes)| *bytes > 0);
        let part =
            |(at, bytes)| BadRingPart { bad: first + bad + at, sound: first + sound + at, bytes };
        parts.map(part).collect()
    }

    /// The batch that must come at `expected`, as one place has it.
    fn batch_in(&self, place: u64, expected: &Expected) -> Result<Result<Whole, End>, DeviceError> {
        let (batch, at) = (expected.mark.batch.next(), expected.mark.next);
        let end = |reason, why: String| Ok(Err(End { batch, at, reason, why }));
        // A header never goes over the ring's end; most batches are hardly longer.
        let window = (self.len - at).min(BLOCK_BYTES);
        let mut bytes = vec![0; window as usize];
        if self.read(place, at, &mut bytes).is_err() {
            // What does not read may be what lies behind it.
            bytes.truncate(UNIT as usize);
            self.read(place, at, &mut bytes)?;
        }
        let header = match self.header(&bytes, at) {
            Ok(header) => header,
            Err(malformed) => return end(Reason::Nothing, malformed.why),
        };
        if header.number != batch.0 {
            return end(Reason::Nothing, format!("the batch is number {}", header.number));
        }
        if header.prior != expected.mark.sum {
            return end(Reason::Nothing, "the batch follows another one".into());
        }
        let records = match self.records(place, &header, bytes)? {
            Ok(records) => records,
            Err(malformed) => return end(Reason::Incomplete, malformed.why),
        };
        let len = u64::from(header.bytes);
        let mark = LogMark { batch, next: (at + len) % self.len, sum: header.sum };
        let left = expected.left.checked_sub(len);
        let after = Expected { mark, left: left.unwrap_or(0) };
        Ok(Ok(Whole { header, records, bad: Vec::new(), overlaps: left.is_none(), after }))
    }

    /// Searches the ring, from where the log ends, for a batch that calls one durable that is younger
    /// than `floor`. Ends early at one that calls a batch durable which is not there. Also says where
    /// the search found the ring unreadable, and went on behind it.
    pub(super) fn search(
        &self,
        end: &End,
        floor: u64,
    ) -> (Option<Proof>, Option<(BlockNo, String)>) {
        // A superblock that claims more does not make a check endless, nor do headers that claim the
        // same bytes (P10). Of batches that were written, each byte is in one.
        let mut left = self.len.min(SEARCH_BLOCKS_MAX * BLOCK_BYTES);
        let mut to_sum = 2 * left + BATCH_BYTES_MAX as u64;
        let mut at = end.at;
        let mut buffer = vec![0; left.min(SEARCH_BYTES) as usize];
        let (mut best, mut unread) = (None, None);
        while left > 0 {
            let count = left.min(self.len - at).min(SEARCH_BYTES);
            let part = &mut buffer[..count as usize];
            let mut is_searched = false;
            let mut failed = None;
            for place in self.places() {
                let bad = self.read_part(place, at, part);
                let looked = self.look(place, at, part, floor, (&mut best, &mut to_sum));
                match bad.or(looked) {
                    None => is_searched = true,
                    Some(bad) => drop(failed.get_or_insert(bad)),
                }
            }
            // What one place has, the other has as well.
            if let Some((at, error)) = failed.filter(|_| !is_searched) {
                unread.get_or_insert_with(|| (self.block(at), error.to_string()));
            }
            if best.as_ref().is_some_and(|best| best.durable >= end.batch) {
                break;
            }
            left -= count;
            at = (at + count) % self.len;
        }
        (best, unread)
    }

    /// Visits each whole batch of the ring from number `from` on, wherever it lies, in no order: what does not follow from what is known any more.
    pub(crate) fn beyond(&self, from: BatchNo, visit: &mut dyn FnMut(&LogHeader, &[u8])) {
        // The same bounds as those of a search (P10).
        let len = self.len.min(SEARCH_BLOCKS_MAX * BLOCK_BYTES);
        let mut to_sum = 2 * len + BATCH_BYTES_MAX as u64;
        let mut buffer = vec![0; len.min(SEARCH_BYTES) as usize];
        let steps = (0..len).step_by(SEARCH_BYTES as usize);
        for (at, place) in steps.flat_map(|at| self.places().map(move |place| (at, place))) {
            let part = &mut buffer[..(len - at).min(SEARCH_BYTES) as usize];
            // What does not read is no batch; what lies beside it may be one.
            let _ = self.read_part(place, at, part);
            for (index, unit) in (0..).zip(part.chunks(UNIT as usize)) {
                let Ok(header) = self.header(unit, at + index * UNIT) else { continue };
                let bytes = LogHeader::SIZE as u64 + u64::from(header.len);
                if header.number < from.0 || bytes > to_sum {
                    continue;
                }
                to_sum -= bytes;
                if let Ok(Ok(records)) = self.records(place, &header, unit.to_vec()) {
                    visit(&header, &records);
                }
            }
        }
    }

    /// Looks for a better proof in `part` of the ring, read at `at` in this place. Returns the first batch that does not read, and why.
    fn look(
        &self,
        place: u64,
        at: u64,
        part: &[u8],
        floor: u64,
        (best, to_sum): (&mut Option<Proof>, &mut u64),
    ) -> Option<(u64, DeviceError)> {
        let mut unread = None;
        for (index, unit) in (0..).zip(part.chunks(UNIT as usize)) {
            let at = at + index * UNIT;
            let Ok(header) = self.header(unit, at) else { continue };
            let known = best.as_ref().map_or(floor, |best| best.durable.0);
            let len = LogHeader::SIZE as u64 + u64::from(header.len);
            if header.durable <= known || len > *to_sum {
                continue;
            }
            *to_sum -= len;
            match self.records(place, &header, unit.to_vec()) {
                Ok(Ok(_)) => {
                    let (batch, durable) = (BatchNo(header.number), BatchNo(header.durable));
                    *best = Some(Proof { batch, at, durable });
                }
                Ok(Err(_)) => {}
                Err(error) => drop(unread.get_or_insert((at, error))),
            }
        }
        unread
    }
}

const _: () = assert!(LogHeader::SIZE as u64 <= UNIT && BLOCK_SIZE.is_multiple_of(UNIT as usize));
