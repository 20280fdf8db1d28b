//! The batches of the ring one by one, in each place: to judge the places, with nothing applied.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use std::ops::Range;

use holdfast_device::Device;
use holdfast_format::Superblock;
use holdfast_format::log::{LogMark, UNIT};

use super::Ring;
use super::replay::Reader;
use super::ring::RingCopy;
use crate::ring_parts::{RingName, RingPart, RingParts};
use crate::{Inner, Result};

impl Inner {
    /// Where the batches begin that a recovery would read, and their bytes, counted from the opening.
    pub(crate) fn log_in_use(&self) -> (LogMark, Range<u64>) {
        let tail = self.pending.tail();
        (tail.mark, tail.head..self.pending.place().head)
    }
}

/// The log of the volume that a superblock stands for.
pub(crate) struct Batches<'a>(Reader<'a>);

impl<'a> Batches<'a> {
    pub(crate) fn new(device: &'a dyn Device, superblock: &'a Superblock) -> Batches<'a> {
        let ring = Ring::new(superblock, device);
        Batches(Reader { device, superblock, ring, ahead: Default::default() })
    }
}

fn place(number: usize) -> RingCopy {
    if number == 0 { RingCopy::First } else { RingCopy::Second }
}

impl RingParts for Batches<'_> {
    type Mark = LogMark;
    const NAME: RingName = RingName::Log;
    const UNIT: u64 = UNIT;
    const COUNTED: u64 = 1;

    fn places(&self) -> usize {
        self.0.ring.places().count()
    }

    fn on_device(&self, mark: &LogMark, number: usize) -> u64 {
        self.0.ring.on_device(place(number), mark.next)
    }

    fn number(mark: &LogMark) -> u64 {
        mark.batch.0
    }

    fn read(&self, mark: &LogMark, number: usize) -> Result<Option<RingPart<LogMark>>> {
        let batch = self.0.batch(place(number), mark.next)?;
        let header = batch
            .map(|batch| batch.header)
            .filter(|header| header.number == mark.batch.next().0 && header.prior == mark.sum);
        Ok(header.map(|header| RingPart {
            number: header.number,
            durable: header.durable,
            bytes: header.bytes.into(),
            sum: header.sum,
            after: LogMark {
                batch: mark.batch.next(),
                next: self.0.ring.behind(mark.next, header.bytes.into()),
                sum: header.sum,
            },
        }))
    }

    fn hole(&self, mark: &LogMark, proven: u64) -> Result<Option<String>> {
        let missing = mark.batch.next();
        let proof = self.0.search(*mark, proven).filter(|proof| proof.durable >= missing.0);
        Ok(proof.map(|proof| {
            let at = proof.at;
            format!(
                "batch {missing} was durable and is gone (the batch at byte {at} of its ring is younger)"
            )
        }))
    }
}
