//! What programs ask of a mount, and how long they wait: operations by kind with the distribution of their times, bytes
//! read and written, and what fsyncs cost.
//!
//! Times are those of the server, from the call to the answer: what the kernel answers from its own memory is not seen,
//! and what a request waits before a thread reads it is not counted. Closing a file, which no program waits for, and the
//! attributes by which a mount is asked about itself are no operations.
//!
//! Memory is bounded: each kind has [`BUCKETS`] numbers, each an eighth of a power of two wide. To record an operation
//! takes two looks at the clock and one atomic addition; no thread waits for another one.

use std::cell::Cell;
use std::marker::PhantomData;

use histogram::{AtomicHistogram, Histogram};
use holdfast_base::Receipt;
use holdfast_base::clock::Stopwatch;
use holdfast_base::counters::Counter;

/// Times are kept in units of so many nanoseconds; shorter ones count as this.
const UNIT_NS: u64 = 64;
/// Buckets for each power of two, as a power of two.
const GROUPING_POWER: u8 = 3;
/// The longest time, in units, as a power of two: 69 seconds. Longer ones count as this.
const MAX_POWER: u8 = 30;
/// What another process sends makes no sense beyond these.
const MOST_UNIT_NS: u64 = 1 << 30;
const MOST_GROUPING_POWER: u8 = 8;
/// How many buckets that makes for each kind.
pub const BUCKETS: usize = ((MAX_POWER - GROUPING_POWER + 1) as usize) << GROUPING_POWER;

kinds! {
    /// A kind of operation, as programs know them.
    Operation {
        /// A name is looked up.
        Lookup = "lookup",
        /// Attributes are read.
        Stat = "stat",
        /// Names of a directory are read.
        List = "list",
        /// A file is opened that exists.
        Open = "open",
        /// A file, directory, symbolic link, special file or one more name is made.
        Create = "create",
        /// A name is removed.
        Remove = "remove",
        /// A name moves.
        Rename = "rename",
        /// Bytes are read.
        Read = "read",
        /// Bytes are written.
        Write = "write",
        /// A file, a directory or everything is made durable.
        Fsync = "fsync",
        /// Attributes are changed, the size and extended attributes included.
        Attributes = "attributes",
        /// Space is asked for, allocated, punched; bytes are copied or looked for; permissions are asked for; the target of a
        /// symbolic link or an extended attribute is read. The kernel asks for one by itself with each write.
        Other = "other",
    }
}

/// What the numbers of buckets mean. Another process that gets them needs it, since it may be of another version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketScale {
    /// Times are in units of so many nanoseconds.
    pub unit_ns: u64,
    /// Buckets for each power of two, as a power of two.
    pub grouping_power: u8,
}

impl Default for BucketScale {
    fn default() -> BucketScale {
        BucketScale { unit_ns: UNIT_NS, grouping_power: GROUPING_POWER }
    }
}

/// How long operations of one kind took.
#[derive(Clone, Debug, PartialEq)]
pub struct Latency {
    histogram: Histogram,
    unit_ns: u64,
}

impl Default for Latency {
    fn default() -> Latency {
        Latency::empty(BucketScale::default()).expect("the scale is valid")
    }
}

impl Latency {
    /// `None` if the scale makes no sense.
    fn empty(scale: BucketScale) -> Option<Latency> {
        let is_sane = (1..=MOST_UNIT_NS).contains(&scale.unit_ns)
            && scale.grouping_power <= MOST_GROUPING_POWER;
        let histogram = is_sane.then(|| Histogram::new(scale.grouping_power, MAX_POWER).ok())?;
        Some(Latency { histogram: histogram?, unit_ns: scale.unit_ns })
    }

    /// From buckets of this `scale` that another process has sent, as [`Latency::buckets`] makes them. What makes no
    /// sense is left out.
    pub fn from_buckets(scale: BucketScale, buckets: &[(u32, u64)]) -> Latency {
        let Some(mut latency) = Latency::empty(scale) else { return Latency::default() };
        let all = latency.histogram.as_mut_slice();
        for (index, count) in buckets {
            if let Some(bucket) = all.get_mut(*index as usize) {
                *bucket = bucket.saturating_add(*count);
            }
        }
        latency
    }

    /// The buckets that are not empty: number and count of each.
    pub fn buckets(&self) -> Vec<(u32, u64)> {
        let all = (0..).zip(self.histogram.as_slice().iter().copied());
        all.filter(|(_, count)| *count > 0).collect()
    }

    /// What the numbers of its buckets mean.
    pub fn scale(&self) -> BucketScale {
        BucketScale {
            unit_ns: self.unit_ns,
            grouping_power: self.histogram.config().grouping_power(),
        }
    }

    /// The same operations in fewer buckets, each wider; `None` if there are no fewer.
    pub fn coarser(&self, grouping_power: u8) -> Option<Latency> {
        let histogram = self.histogram.downsample(grouping_power).ok()?;
        Some(Latency { histogram, unit_ns: self.unit_ns })
    }

    /// Operations that came since `before`.
    pub fn since(&self, before: &Latency) -> Latency {
        // A message that had no room for all buckets has coarser ones.
        let power = self.scale().grouping_power.min(before.scale().grouping_power);
        let [mut since, before] =
            [self, before].map(|it| it.coarser(power).unwrap_or_else(|| it.clone()));
        let then = before.histogram.as_slice();
        for (now, then) in since.histogram.as_mut_slice().iter_mut().zip(then) {
            *now = now.saturating_sub(*then);
        }
        since
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.histogram.as_slice().iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The longest time in nanoseconds of each bucket that is not empty, ascending, and how many are in it.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> {
        let filled = self.histogram.iter().filter(|bucket| bucket.count() > 0);
        filled.map(|bucket| ((bucket.end() + 1) * self.unit_ns - 1, bucket.count()))
    }

    /// Nanoseconds that this part of them, from 0 to 1, did not exceed: the last of a bucket. `None` if there is none.
    pub fn quantile_ns(&self, part: f64) -> Option<u64> {
        let bucket = self.histogram.quantile_bucket(part).ok()??;
        Some((bucket.end() + 1) * self.unit_ns - 1)
    }
}

/// What fsyncs cost, all of them together.
#[derive(Debug, Default)]
pub struct FsyncCosts {
    /// How many there were, synchronous writes and syncs of everything included.
    pub count: Counter,
    /// Those that found nothing to do, or failed.
    pub free: Counter,
    /// Write calls to the device.
    pub writes: Counter,
    /// Flushes.
    pub flushes: Counter,
    /// Bytes written.
    pub bytes: Counter,
}

impl FsyncCosts {
    /// Adds one. What several fsyncs shared counts for the one that wrote it.
    pub(crate) fn add(&self, receipt: Option<&Receipt>) {
        self.count.increment();
        let Some(receipt) = receipt.filter(|receipt| !receipt.is_clean()) else {
            return self.free.increment();
        };
        let shared = |number| if receipt.led { number } else { 0 };
        self.writes.add(receipt.data_writes + shared(receipt.log_writes));
        self.flushes.add(shared(receipt.flushes));
        self.bytes.add(receipt.data_bytes + shared(receipt.log_bytes));
    }
}

/// The operations of one mount.
#[derive(Debug)]
pub struct Operations {
    times: [AtomicHistogram; Operation::ALL.len()],
    /// Bytes that reads returned.
    pub read_bytes: Counter,
    /// Bytes that writes took.
    pub written_bytes: Counter,
    /// What fsyncs cost.
    pub fsyncs: FsyncCosts,
}

impl Default for Operations {
    fn default() -> Operations {
        let times =
            || AtomicHistogram::new(GROUPING_POWER, MAX_POWER).expect("the powers are valid");
        Operations {
            times: std::array::from_fn(|_| times()),
            read_bytes: Counter::default(),
            written_bytes: Counter::default(),
            fsyncs: FsyncCosts::default(),
        }
    }
}

impl Operations {
    /// Measures an operation that begins now and ends when the answer is dropped.
    pub(crate) fn time(&self, operation: Operation) -> Timed<'_> {
        Timed { operations: self, operation, time: Stopwatch::start() }
    }

    /// Operations of this thread that end before the answer is dropped take until then.
    pub(crate) fn longer(&self) -> Longer<'_> {
        LONGER.set(Some(None));
        Longer { operations: self, _of_this_thread: PhantomData }
    }

    /// Adds one that took so many nanoseconds.
    pub fn record(&self, operation: Operation, nanos: u64) {
        let most = (1 << MAX_POWER) - 1;
        let added = self.times[operation as usize].increment((nanos / UNIT_NS).min(most));
        debug_assert!(added.is_ok(), "{nanos} is bounded");
    }

    /// How long those of one kind took so far.
    pub fn latency(&self, operation: Operation) -> Latency {
        Latency { histogram: self.times[operation as usize].load(), unit_ns: UNIT_NS }
    }
}

/// An operation under way.
#[derive(Debug)]
pub(crate) struct Timed<'a> {
    operations: &'a Operations,
    operation: Operation,
    time: Stopwatch,
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        match LONGER.get() {
            Some(None) => LONGER.set(Some(Some((self.operation, self.time)))),
            _ => self.operations.record(self.operation, self.time.nanos()),
        }
    }
}

thread_local! {
    /// While there is a [`Longer`]: the operation that ended, and when it began.
    static LONGER: Cell<Option<Option<(Operation, Stopwatch)>>> = const { Cell::new(None) };
}

/// What makes an operation longer: it is not over when the server's call is.
#[derive(Debug)]
pub(crate) struct Longer<'a> {
    operations: &'a Operations,
    _of_this_thread: PhantomData<*const ()>,
}

impl Drop for Longer<'_> {
    fn drop(&mut self) {
        if let Some((operation, time)) = LONGER.take().flatten() {
            self.operations.record(operation, time.nanos());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_own_times() {
        let operations = Operations::default();
        for (index, operation) in Operation::ALL.iter().enumerate() {
            (0..index).for_each(|_| drop(operations.time(*operation)));
        }
        let counts = Operation::ALL.iter().map(|it| operations.latency(*it).count());
        assert!(counts.eq(0..Operation::ALL.len() as u64));
    }

    #[test]
    fn an_operation_that_is_made_longer_takes_until_the_end() {
        let operations = Operations::default();
        let wait = || std::thread::sleep(std::time::Duration::from_millis(5));
        let longer = operations.longer();
        drop(operations.time(Operation::Create));
        wait();
        assert_eq!(operations.latency(Operation::Create).count(), 0);
        drop(longer);
        let latency = operations.latency(Operation::Create);
        assert!(latency.count() == 1 && latency.quantile_ns(0.5) >= Some(5_000_000));
        drop(operations.longer());
        drop(operations.time(Operation::Create));
        assert_eq!(operations.latency(Operation::Create).count(), 2);
    }

    #[test]
    fn quantiles_are_near_and_ordered() {
        let operations = Operations::default();
        assert_eq!(operations.latency(Operation::Read).quantile_ns(0.5), None);
        for _ in 0..98 {
            operations.record(Operation::Read, 10_000);
        }
        operations.record(Operation::Read, 5_000_000);
        operations.record(Operation::Read, u64::MAX);
        let latency = operations.latency(Operation::Read);
        let of = |part| latency.quantile_ns(part).unwrap();
        let near = |value: u64, wanted: u64| (wanted..=wanted / 8 * 9 + UNIT_NS).contains(&value);
        assert!(near(of(0.5), 10_000) && near(of(0.99), 5_000_000), "{} {}", of(0.5), of(0.99));
        assert!(near(of(1.0), ((1 << MAX_POWER) - 1) * UNIT_NS), "{}", of(1.0));
        operations.record(Operation::Stat, 0);
        assert_eq!(operations.latency(Operation::Stat).quantile_ns(0.5), Some(UNIT_NS - 1));
        assert_eq!(latency.buckets().len(), 3);
        assert_eq!(latency.histogram.as_slice().len(), BUCKETS);
    }

    #[test]
    fn no_quantile_is_shorter_than_what_it_was_made_of() {
        for nanos in (0..2_000).chain((1..30).map(|power| 3 << power)) {
            let operations = Operations::default();
            operations.record(Operation::Read, nanos);
            let shown = operations.latency(Operation::Read).quantile_ns(0.5).unwrap();
            assert!((nanos..=nanos / 8 * 9 + UNIT_NS).contains(&shown), "{nanos}: {shown}");
        }
    }

    #[test]
    fn buckets_of_another_scale_are_understood() {
        let operations = Operations::default();
        for nanos in [1_000, 1_000, 1_000_000, 50_000_000] {
            operations.record(Operation::Read, nanos);
        }
        let fine = operations.latency(Operation::Read);
        let coarse = fine.coarser(1).unwrap();
        assert_eq!(coarse.scale(), BucketScale { unit_ns: UNIT_NS, grouping_power: 1 });
        assert_eq!((coarse.count(), coarse.coarser(1)), (4, None));
        let sent = Latency::from_buckets(coarse.scale(), &coarse.buckets());
        assert_eq!(sent, coarse);
        let shown = sent.quantile_ns(1.0).unwrap();
        assert!((50_000_000..=75_000_000).contains(&shown), "{shown}");
        operations.record(Operation::Read, 1_000_000);
        let now = operations.latency(Operation::Read);
        for (now, before) in [(&now, &coarse), (&now.coarser(0).unwrap(), &fine)] {
            let since = now.since(before);
            let shown = since.quantile_ns(0.5).unwrap();
            assert!(since.count() == 1 && (1_000_000..=2_200_000).contains(&shown), "{shown}");
        }
        let in_microseconds = BucketScale { unit_ns: 1_000, ..BucketScale::default() };
        let latency = Latency::from_buckets(in_microseconds, &[(5, 1)]);
        assert_eq!(latency.quantile_ns(0.5), Some(5_999));
        for (unit_ns, grouping_power) in [(0, 3), (u64::MAX, 3), (64, 30), (64, u8::MAX)] {
            let nonsense = BucketScale { unit_ns, grouping_power };
            assert_eq!(Latency::from_buckets(nonsense, &[(5, 1)]).count(), 0);
        }
    }

    #[test]
    fn buckets_go_to_another_process_and_a_difference_counts() {
        let operations = Operations::default();
        operations.record(Operation::Write, 1_000_000);
        let before = operations.latency(Operation::Write);
        operations.record(Operation::Write, 1_000);
        operations.record(Operation::Write, 1_000);
        let now = operations.latency(Operation::Write);
        let now = Latency::from_buckets(now.scale(), &now.buckets());
        let since = now.since(&before);
        assert_eq!((now.count(), since.count()), (3, 2));
        assert!(since.quantile_ns(1.0).unwrap() < 1_200);
        assert_eq!(before.since(&now).count(), 0, "nothing goes below 0");
        let nonsense = [(u32::MAX, 3), (7, u64::MAX), (7, 1), (8, 9)];
        let nonsense = Latency::from_buckets(BucketScale::default(), &nonsense);
        assert_eq!(nonsense.count(), u64::MAX);
        assert!(nonsense.quantile_ns(0.99).is_some());
    }

    #[test]
    fn threads_lose_no_operation() {
        let operations = Operations::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|n| operations.record(Operation::Read, n)));
            }
        });
        assert_eq!(operations.latency(Operation::Read).count(), 40_000);
    }

    #[test]
    fn what_fsyncs_share_is_counted_once() {
        let costs = FsyncCosts::default();
        let led = Receipt {
            batch: Some(holdfast_base::BatchNo(1)),
            led: true,
            log_bytes: 512,
            log_writes: 1,
            flushes: 1,
            ..Receipt::default()
        };
        costs.add(Some(&led));
        costs.add(Some(&Receipt { led: false, data_writes: 1, data_bytes: 8192, ..led }));
        costs.add(Some(&Receipt::default()));
        costs.add(None);
        let read = [&costs.count, &costs.free, &costs.writes, &costs.flushes, &costs.bytes];
        assert_eq!(read.map(Counter::get), [4, 2, 2, 1, 8704]);
    }
}
