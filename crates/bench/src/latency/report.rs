//! What was measured of a kind of phases: percentiles, shares, and where the time went.
//!
//! Times go into a histogram of three digits, which is exact enough for ratios;
//! samples are kept beside it, so that the slowest can be looked at apart.

use hdrhistogram::Histogram;
use holdfast::Receipt;
use serde::Serialize;

use super::{BOUNDS, Stage};
use crate::Counts;
use crate::counts::ratio;

/// Longest time that is told from longer ones.
const LONGEST_NS: u64 = 100_000_000_000;

/// Where the time of fsyncs went: means, in nanoseconds, as their receipts say.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Split {
    /// The write and the fsync together.
    pub total_ns: f64,
    /// The write, before the fsync.
    pub append_ns: f64,
    /// Until the file's data was written and its records made.
    pub data_ns: f64,
    /// Waiting for batches of others.
    pub wait_ns: f64,
    /// Formatting the batch.
    pub format_ns: f64,
    /// Writing it.
    pub write_ns: f64,
    /// Flushing it, and data before it.
    pub flush_ns: f64,
    /// Bytes of the batch.
    pub log_bytes: f64,
    /// Flushes.
    pub flushes: f64,
    /// Records that the batch carried along.
    pub other_records: f64,
}

impl Split {
    fn mean<'a>(samples: impl Iterator<Item = &'a Sample>) -> Split {
        let mut sum = Split::default();
        let mut count = 0.0f64;
        for Sample { nanos, append_ns, receipt } in samples {
            count += 1.0;
            sum.total_ns += *nanos as f64;
            sum.append_ns += *append_ns as f64;
            sum.data_ns += receipt.data_ns as f64;
            sum.wait_ns += receipt.wait_ns as f64;
            // Who did not lead has the batch's times in his receipt, and waited for them.
            if receipt.led {
                sum.format_ns += receipt.format_ns as f64;
                sum.write_ns += receipt.write_ns as f64;
                sum.flush_ns += receipt.flush_ns as f64;
            }
            sum.log_bytes += receipt.log_bytes as f64;
            sum.flushes += receipt.flushes as f64;
            sum.other_records += receipt.other_records as f64;
        }
        let count = count.max(1.0);
        Split {
            total_ns: sum.total_ns / count,
            append_ns: sum.append_ns / count,
            data_ns: sum.data_ns / count,
            wait_ns: sum.wait_ns / count,
            format_ns: sum.format_ns / count,
            write_ns: sum.write_ns / count,
            flush_ns: sum.flush_ns / count,
            log_bytes: sum.log_bytes / count,
            flushes: sum.flushes / count,
            other_records: sum.other_records / count,
        }
    }
}

/// All phases of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was measured, and beside what.
    pub stage: &'static str,
    /// Appends that were fsynced and measured.
    pub fsyncs: u64,
    /// Half of them took no longer, in nanoseconds; and so on.
    pub p50_ns: u64,
    /// 90 of 100.
    pub p90_ns: u64,
    /// 99 of 100.
    pub p99_ns: u64,
    /// 999 of 1000.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// The p99 over that of the appends alone.
    pub p99_to_alone: Option<f64>,
    /// Which share of the appends took up to each of [`BOUNDS`] times the median of those alone, and
    /// more than the one before; last, the rest.
    pub shares: Vec<f64>,
    /// Where the time of all of them went.
    pub all: Split,
    /// Where that of the slowest 1 in 100 went.
    pub slowest: Split,
    /// What the others did meanwhile.
    pub done: u64,
    /// What [`Row::done`] counts.
    pub unit: &'static str,
    /// What the volume counted.
    pub counts: Counts,
}

/// One append with its fsync.
pub(super) struct Sample {
    pub(super) nanos: u64,
    pub(super) append_ns: u64,
    pub(super) receipt: Receipt,
}

pub(super) struct Phase {
    times: Histogram<u64>,
    samples: Vec<Sample>,
    pub(super) done: u64,
    pub(super) counts: Counts,
}

impl Phase {
    pub(super) fn new() -> Phase {
        let times = Histogram::new_with_max(LONGEST_NS, 3).expect("the bounds are in order");
        Phase { times, samples: Vec::new(), done: 0, counts: Counts::default() }
    }

    pub(super) fn add(&mut self, other: Phase) {
        self.times.add(&other.times).expect("both have the same bounds");
        self.samples.extend(other.samples);
        self.done += other.done;
        self.counts = self.counts.plus(&other.counts);
    }

    /// The 99 percent, in nanoseconds.
    pub(super) fn p99(&self) -> u64 {
        self.times.value_at_quantile(0.99)
    }

    pub(super) fn record(&mut self, sample: Sample) {
        self.times.saturating_record(sample.nanos);
        self.samples.push(sample);
    }

    pub(super) fn row(&self, stage: Stage, alone: &Phase) -> Row {
        let at = |quantile| self.times.value_at_quantile(quantile);
        let p99 = at(0.99);
        let median = alone.times.value_at_quantile(0.5) as f64;
        let up_to = |bound: f64| self.times.count_between(0, (bound * median) as u64);
        let ends = BOUNDS.iter().map(|&bound| up_to(bound)).chain([self.times.len()]);
        let mut last = 0;
        let shares = ends.map(|end| {
            let count = end - last;
            last = end;
            ratio(count as f64, self.times.len() as f64).unwrap_or(0.0)
        });
        Row {
            stage: stage.name(),
            fsyncs: self.times.len(),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: p99,
            p999_ns: at(0.999),
            max_ns: self.times.max(),
            p99_to_alone: ratio(p99 as f64, alone.times.value_at_quantile(0.99) as f64),
            shares: shares.collect(),
            all: Split::mean(self.samples.iter()),
            slowest: Split::mean(self.samples.iter().filter(|sample| sample.nanos >= p99)),
            done: self.done,
            unit: stage.unit(),
            counts: self.counts,
        }
    }
}
