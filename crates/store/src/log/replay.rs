//! What the log says: its batches, read and judged, in order.
//!
//! Everything comes from the disk and is judged (P10): headers by place, sum and
//! chain, records by the format. Memory is bounded by what was really read.
//! Batches are small, and one lies behind the other: the ring is read ahead, so
//! that a recovery does not wait for the device at each of them.
//!
//! Writes nothing and changes nothing: see [`super::recover`].

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use std::cell::RefCell;

use holdfast_base::mutants::{self, Mutant};
use holdfast_base::{BLOCK_SIZE, BlockNo, Epoch};
use holdfast_device::{Device, DeviceError};
use holdfast_format::checksum::block_sums;
use holdfast_format::journal::SEARCH_BLOCKS_MAX;
use holdfast_format::journal::commit::data_sum;
use holdfast_format::log::{
    BATCH_BYTES_MAX, Content, DATA_BLOCKS_MAX, Decoder, LogHeader, LogMark, REPLAY_BYTES_MAX,
    Record, UNIT,
};
use holdfast_format::{Malformed, Superblock};

use super::ring::{Ring, RingCopy};
use crate::StoreError;
use crate::before_mark::BeforeMark;
use crate::journal::replay::Replayed;

/// Bytes that are read at once where batches are wanted one after the other.
const AHEAD: u64 = 256 << 10;
/// Bytes that a search for later batches reads at a time.
const STEP: u64 = 1 << 20;
/// The search ends when so many bytes had none: more than a missing batch can take.
const QUIET_BYTES: u64 = 2 * BATCH_BYTES_MAX as u64;
/// Nor does it look further, however long a ring is claimed to be.
const SEARCH_BYTES_MAX: u64 = SEARCH_BLOCKS_MAX * BLOCK_SIZE as u64;
/// Most bytes of batches that it judges: each sector may claim to begin a large one.
const JUDGED_BYTES_MAX: u64 = 64 << 20;

/// Blocks as they were read, each range with its first block.
type Blocks = Vec<(BlockNo, Vec<u8>)>;

/// A batch behind the newest commit.
#[derive(Debug)]
pub(crate) struct LoggedBatch {
    pub(crate) header: LogHeader,
    bytes: Vec<u8>,
}

impl LoggedBatch {
    /// Its records.
    pub(crate) fn records<'a>(&'a self, superblock: &'a Superblock) -> Decoder<'a> {
        Decoder::new(&self.bytes, self.header.records, &superblock.geometry, superblock.carried())
    }

    /// Says which batch is damaged.
    pub(crate) fn damage(&self, source: Malformed) -> StoreError {
        StoreError::Item { what: format!("batch {} of the log", self.header.number), source }
    }

    /// Says why it cannot be.
    pub(crate) fn refuse(&self, why: impl Into<String>) -> StoreError {
        self.damage(Malformed::new("log batch", why))
    }
}

/// What a log holds beyond the newest commit.
#[derive(Debug)]
pub(crate) struct Logged {
    pub(crate) batches: Vec<LoggedBatch>,
    /// Where the log goes on.
    pub(crate) mark: LogMark,
    /// Bytes between the mark of the superblock and this one.
    pub(crate) walked: u64,
    /// Data that came with the last flush, as it was read.
    pub(crate) data: Blocks,
    /// The volume was left in order: nothing lies behind the mark that was never finished.
    pub(crate) is_clean: bool,
    /// Bytes of the batches.
    pub(crate) bytes: u64,
    /// The last epoch that an extent in it can be born in.
    pub(crate) last_birth: Epoch,
    /// Why the log ends where no crash ends it.
    pub(crate) damage: Option<String>,
    /// What lies before the mark, where nothing lies behind it.
    pub(crate) before: BeforeMark,
}

/// A batch that cannot be, or cannot be replayed.
#[derive(Debug)]
pub(crate) struct Broken {
    /// Its place in [`Logged::batches`].
    pub(crate) batch: usize,
    /// What is wrong with it.
    pub(crate) error: StoreError,
}

impl Logged {
    /// A log that goes on at `mark`, and holds nothing beyond the newest commit.
    pub(crate) fn nothing(mark: LogMark) -> Logged {
        Logged {
            batches: Vec::new(),
            mark,
            walked: 0,
            data: Vec::new(),
            is_clean: false,
            bytes: 0,
            last_birth: Epoch(0),
            damage: None,
            before: BeforeMark::Nothing,
        }
    }

    /// Lets a mark behind which the log was read name no batch that was not found whole: a crash may have left it out, though a commit knew
    /// of it. The superblock that stands for that commit is durable before the log has its marker, and would say that the log was wiped.
    pub(crate) fn names_what_is_there(&self, mark: &mut LogMark) {
        if !self.before.is_fine() {
            mark.sum = 0;
        }
    }

    /// Nothing from a batch on counts that cannot be.
    pub(crate) fn end_before(&mut self, broken: Broken) {
        self.batches.truncate(broken.batch);
        self.damage = Some(broken.error.to_string());
    }
}

/// Reads the log behind what the journal leaves. If that was left in order, nothing lies behind the first batch that is not there.
pub(crate) fn read(device: &dyn Device, replayed: &Replayed) -> Logged {
    let Replayed { superblock, earlier_log, ended, .. } = replayed;
    let ended = *ended;
    let reader = Reader {
        device,
        superblock,
        ring: Ring::new(superblock, device),
        ahead: Default::default(),
    };
    let mut logged = Logged { is_clean: ended, ..Logged::nothing(superblock.log) };
    // The last batch that was durable, as all that were read say.
    let mut proven = 0;
    let collected = reader.collect(&mut logged, &mut proven);
    logged.damage = collected.err().map(|why| format!("the log is damaged: {why}"));
    if logged.damage.is_none() && !ended && !mutants::is(Mutant::LogHole) {
        let missing = logged.mark.batch.next();
        let proof = reader.search(logged.mark, proven);
        // The frame that says so need not be a part of the chain.
        proven = proof.map_or(proven, |proof| proof.durable);
        if let Some(Proof { at, .. }) = proof.filter(|proof| proof.durable >= missing.0) {
            logged.damage = Some(format!(
                "the log is damaged: batch {missing} was durable and is gone (the batch at byte {at} of its ring is younger)"
            ));
        }
    }
    if logged.walked == 0 && logged.damage.is_none() {
        logged.before = reader.before(superblock.log);
        if !ended {
            logged.damage = reader.wiped(superblock.log, *earlier_log);
        }
    }
    if !mutants::is(Mutant::LogUnverified) {
        reader.verify(&mut logged, proven);
    }
    logged
}

/// A batch that calls another durable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Proof {
    /// Byte of the ring at which it begins.
    pub(super) at: u64,
    pub(super) durable: u64,
}

pub(super) struct Reader<'a> {
    pub(super) device: &'a dyn Device,
    pub(super) superblock: &'a Superblock,
    pub(super) ring: Ring,
    /// Of each place.
    pub(super) ahead: [RefCell<Ahead>; 2],
}

/// A part of the ring that was read before it was wanted.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    start: u64,
    bytes: Vec<u8>,
    /// The device refused to read so far: nothing more is read that is not wanted.
    failed: bool,
}

impl Ahead {
    fn get(&self, at: u64, len: usize) -> Option<Vec<u8>> {
        let from = usize::try_from(at.checked_sub(self.start)?).ok()?;
        self.bytes.get(from..from.checked_add(len)?).map(<[u8]>::to_vec)
    }
}

impl Reader<'_> {
    /// Walks the chain of batches, up to what cannot be behind a crash: that is the error.
    fn collect(&self, logged: &mut Logged, proven: &mut u64) -> Result<(), String> {
        let mut lsn = self.superblock.lsn.0;
        loop {
            let (number, at) = (logged.mark.batch.next(), logged.mark.next);
            let batch = self.next(logged.mark).map_err(|error| {
                format!("where batch {number} would begin, at byte {at} of its ring, it cannot be read: {error}")
            })?;
            let Some(batch) = batch else { return Ok(()) };
            let LogHeader { durable, sum, bytes, after, last, .. } = batch.header;
            *proven = durable.max(*proven);
            // What saturates is too long as well.
            let walked = logged.walked.saturating_add(bytes.into());
            if walked > REPLAY_BYTES_MAX.min(self.ring.len) {
                return Err(format!("with batch {number} it is longer than it can be"));
            }
            if last > lsn && after != lsn {
                // A commit that contained what lies between was durable before this batch was written.
                return Err(format!(
                    "batch {number}, at byte {at} of its ring, builds on operation {after}, but only {lsn} are left"
                ));
            }
            logged.walked = walked;
            let next = self.ring.behind(at, bytes.into());
            logged.mark = LogMark { batch: number, next, sum };
            // Else the newest commit contains it.
            if last > lsn {
                lsn = last;
                // A part of what was walked.
                logged.bytes = logged.bytes.saturating_add(bytes.into());
                logged.batches.push(batch);
            }
        }
    }

    /// As [`Reader::read`], out of what was read ahead if it is there.
    fn read_ahead(&self, place: RingCopy, at: u64, len: usize) -> Result<Vec<u8>, DeviceError> {
        let mut ahead = self.ahead[place as usize].borrow_mut();
        if let Some(bytes) = ahead.get(at, len) {
            return Ok(bytes);
        }
        let most = AHEAD.min(self.ring.until_end(at));
        if ahead.failed || len as u64 > most {
            return self.read(place, at, len);
        }
        match self.read(place, at, most as usize) {
            Ok(bytes) => {
                let wanted = bytes[..len].to_vec();
                *ahead = Ahead { start: at, bytes, failed: false };
                Ok(wanted)
            }
            // What cannot be read may lie further on, where it is of no interest.
            Err(_) => {
                ahead.failed = true;
                self.read(place, at, len)
            }
        }
    }

    pub(super) fn read(
        &self,
        place: RingCopy,
        at: u64,
        len: usize,
    ) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = vec![0; len];
        for (on_device, part) in self.ring.parts(place, at, len) {
            self.device.read(on_device, &mut bytes[part])?;
        }
        Ok(bytes)
    }

    /// The batch at byte `at` of the ring in this place, if there is one that is whole.
    pub(super) fn batch(
        &self,
        place: RingCopy,
        at: u64,
    ) -> Result<Option<LoggedBatch>, DeviceError> {
        let first = self.read_ahead(place, at, UNIT as usize)?;
        let Ok(header) = LogHeader::decode(&first) else {
            return Ok(None);
        };
        if u64::from(header.bytes) > self.ring.len {
            return Ok(None);
        }
        let bytes = self.read_ahead(place, at, header.bytes as usize)?;
        let records = header.open(&bytes, at, &self.ring.volume).ok();
        Ok(records.map(|records| LoggedBatch { header, bytes: records.to_vec() }))
    }

    /// The batch that follows `mark`. Its number alone does not say so: what a crash has ended may have left a
    /// batch of that number at that place, which builds on the same operation. The first place that has it counts; so
    /// the log ends where neither has. Fails if none reads.
    fn next(&self, mark: LogMark) -> Result<Option<LoggedBatch>, DeviceError> {
        let is_next = |batch: &LoggedBatch| {
            let follows = batch.header.prior == mark.sum || mutants::is(Mutant::ChainUnchecked);
            batch.header.number == mark.batch.next().0 && follows
        };
        let (mut failed, mut is_read) = (None, false);
        for place in self.ring.places() {
            match self.batch(place, mark.next) {
                Ok(Some(batch)) if is_next(&batch) => {
                    if place == RingCopy::Second {
                        let (number, at) = (batch.header.number, mark.next);
                        tracing::warn!(
                            "batch {number} of the log, at byte {at}, is whole in its second place only"
                        );
                    }
                    return Ok(Some(batch));
                }
                Ok(_) => is_read = true,
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        match failed {
            Some(error) if !is_read => Err(error),
            _ => Ok(None),
        }
    }

    /// Gives up the first batch whose data never arrived, and those behind it. Up to number `proven` they are
    /// known to be durable; those behind came with one flush, and any of them may lack its data.
    fn verify(&self, logged: &mut Logged, proven: u64) {
        let first = logged.batches.partition_point(|batch| batch.header.number <= proven);
        // All of one flush names no more than one batch may.
        let mut left = DATA_BLOCKS_MAX;
        for at in first..logged.batches.len() {
            match self.read_data(&logged.batches[at], &mut left) {
                Ok(Some(data)) => logged.data.extend(data),
                Ok(None) => {
                    logged.batches.truncate(at);
                    break;
                }
                Err(error) => {
                    logged.end_before(Broken { batch: at, error });
                    break;
                }
            }
        }
    }

    /// The data that a batch names, or `None` if some of it never arrived. A block that cannot be
    /// read is damage, not a power cut: it speaks against its file, not against the batch.
    fn read_data(&self, batch: &LoggedBatch, left: &mut u64) -> Result<Option<Blocks>, StoreError> {
        let mut data = Vec::new();
        for record in batch.records(self.superblock) {
            let Record::Take(blocks, Content::Summed(sum)) =
                record.map_err(|source| batch.damage(source))?
            else {
                continue;
            };
            let Some(rest) = left.checked_sub(blocks.count) else {
                return Err(batch.refuse("it names more data than the batches of one flush may"));
            };
            *left = rest;
            let (Some(at), Some(len)) = (blocks.start.byte_offset(), blocks.bytes()) else {
                return Err(batch.refuse(format!("no device has the blocks {blocks:?}")));
            };
            let mut bytes = vec![0; len as usize];
            if let Err(error) = self.device.read(at, &mut bytes) {
                tracing::error!("data at {blocks:?} cannot be read: {error}");
                continue;
            }
            let sums: Vec<u64> = block_sums(&bytes).collect();
            if data_sum(&sums) != sum {
                return Ok(None);
            }
            data.push((blocks.start, bytes));
        }
        Ok(Some(data))
    }

    /// The batch behind `end` that calls the latest one durable, if that is later than `proven`. One that
    /// was written when the batch behind `end` was durable shows that the log has a hole: no other is wanted.
    pub(super) fn search(&self, end: LogMark, proven: u64) -> Option<Proof> {
        let missing = end.batch.next().0;
        let mut best = Proof { at: 0, durable: proven };
        let (mut at, mut left) = (end.next, self.ring.len.min(SEARCH_BYTES_MAX));
        // Both end at a limit: what saturates is above it.
        let (mut quiet, mut judged) = (0u64, 0u64);
        while left > 0 && quiet < QUIET_BYTES && best.durable < missing {
            let step = STEP.min(left).min(self.ring.until_end(at));
            quiet = quiet.saturating_add(step);
            for place in self.ring.places() {
                let bytes = match self.read(place, at, step as usize) {
                    Ok(bytes) => bytes,
                    Err(error) => {
                        // What cannot be read proves nothing and is not needed.
                        tracing::warn!("the log was not searched at its byte {at}: {error}");
                        continue;
                    }
                };
                if self.look(place, at, &bytes, missing, (&mut best, &mut judged)) {
                    quiet = 0;
                }
            }
            // It is a part of what was left.
            left = left.saturating_sub(step);
            at = self.ring.behind(at, step);
        }
        (best.durable > proven).then_some(best)
    }

    /// Looks for a better proof in `bytes`, read at byte `from` of the ring in this place. Says whether there is a header from
    /// batch `missing` on.
    fn look(
        &self,
        place: RingCopy,
        from: u64,
        bytes: &[u8],
        missing: u64,
        (best, judged): (&mut Proof, &mut u64),
    ) -> bool {
        let mut is_there = false;
        for (at, unit) in (from..).step_by(UNIT as usize).zip(bytes.chunks(UNIT as usize)) {
            let Ok(header) = LogHeader::decode(unit) else { continue };
            let own = (header.address, header.volume) == (at, self.ring.volume);
            if !own || header.number < missing {
                continue;
            }
            is_there = true;
            if header.durable <= best.durable || *judged > JUDGED_BYTES_MAX {
                continue;
            }
            *judged = judged.saturating_add(header.bytes.into());
            match self.batch(place, at) {
                Ok(Some(_)) => *best = Proof { at, durable: header.durable },
                Ok(None) => {}
                Err(error) => tracing::warn!("no batch was read at byte {at}: {error}"),
            }
        }
        is_there
    }
}
