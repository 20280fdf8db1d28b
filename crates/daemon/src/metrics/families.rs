//! What is published, and under which names: as Prometheus names things, with seconds and bytes as units.
//!
//! A name says what is counted and keeps its meaning; a name that begins with `holdfast_internal_` is one of the engine's
//! own statistics and may change with any version. Labels come from mounts, which may be a stranger's: they are printable,
//! and no two series are the same, or a scrape would fail as a whole.

use std::collections::BTreeSet;
use std::fmt;

use holdfast_base::counters::{CounterKind, Counters, Reading, Unit};
use holdfast_fuse::Operation;
use holdfast_service::outcome::shown;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::TextForm;
use super::collect::Sample;
use crate::activity::Activity;
use crate::report::Report;

/// Times are told for each power of two from this one to that, in nanoseconds: 2 microseconds to 8 seconds.
const SHORTEST: u32 = 11;
const LONGEST: u32 = 33;

/// No bucket has counted more.
const COUNT_MAX: u64 = 1 << 50;

/// Everything that is published of some mounts.
#[derive(Debug)]
pub(super) struct Families {
    samples: Vec<Sample>,
}

/// Labels: each a name and a value.
type Labels = Vec<(&'static str, String)>;

impl Families {
    pub(super) fn new(samples: Vec<Sample>) -> Families {
        Families { samples }
    }

    /// The whole text.
    pub(super) fn text(self, form: TextForm) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut out = String::new();
        let encoded = match form {
            TextForm::OpenMetrics => text::encode(&mut out, &registry),
            TextForm::Prometheus => prometheus_text::encode(&mut out, &registry),
        };
        encoded.expect("a string takes everything");
        out
    }

    /// Mounts that answered.
    fn mounts(&self) -> impl Iterator<Item = (Labels, &Report)> {
        self.samples.iter().filter_map(|it| Some((of_mount(it), it.report.as_ref()?)))
    }

    fn activities(&self) -> impl Iterator<Item = (Labels, &Activity)> {
        self.mounts().filter_map(|(labels, report)| Some((labels, report.activity.as_ref()?)))
    }

    /// Volumes of which a mount answered, each once.
    fn volumes(&self) -> impl Iterator<Item = (Labels, &Report)> {
        let mut seen = BTreeSet::new();
        self.samples.iter().filter_map(move |sample| {
            let labels = of_volume(sample);
            let report = sample.report.as_ref()?;
            seen.insert(labels.clone()).then_some((labels, report))
        })
    }
}

impl Collector for Families {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Out(encoder);
        self.states(&mut out)?;
        self.operations(&mut out)?;
        self.volumes_state(&mut out)?;
        self.device(&mut out)?;
        self.internal(&mut out)
    }
}

impl Families {
    /// Whether a mount answers, and whether it still writes.
    fn states(&self, out: &mut Out<'_>) -> fmt::Result {
        // Without the branch, which only the daemon knows: the series stays the same when there is none.
        let up = self.samples.iter().map(|it| (of_directory(it), u64::from(it.report.is_some())));
        out.gauge("up", "Whether the daemon of the mount answers: 1 or 0.", up)?;
        let stopped = self.mounts().filter_map(|(labels, report)| {
            let mounted = report.mounted.as_ref()?;
            Some((labels, u64::from(mounted.stopped.is_some())))
        });
        out.gauge("stopped", "Whether an error has ended all writing: 1 or 0.", stopped)?;
        // The mounts of a volume share a daemon, and so its log.
        let errors = self.volumes();
        let errors =
            errors.filter_map(|(labels, it)| Some((labels, it.activity.as_ref()?.errors.count)));
        out.counter("errors", "Lines of errors in the log of the daemon.", errors)
    }

    /// What programs did with each mount.
    fn operations(&self, out: &mut Out<'_>) -> fmt::Result {
        let of_activity = |of: fn(&Activity) -> u64| {
            self.activities().map(move |(labels, activity)| (labels, of(activity)))
        };
        out.counter("read_bytes", "Bytes that programs read.", of_activity(|it| it.read_bytes))?;
        let written = of_activity(|it| it.written_bytes);
        out.counter("written_bytes", "Bytes that programs wrote.", written)?;
        let help = "Calls of fsync and synchronous writes that had something to write.";
        let paid = of_activity(|it| it.fsyncs.count.saturating_sub(it.fsyncs.free));
        out.counter("fsyncs", help, paid)?;
        let help = "Calls of fsync that had nothing to write, or failed.";
        out.counter("free_fsyncs", help, of_activity(|it| it.fsyncs.free))?;
        let (writes, flushes) = ("Writes to the device for fsyncs.", "Flushes for fsyncs.");
        out.counter("fsync_writes", writes, of_activity(|it| it.fsyncs.writes))?;
        out.counter("fsync_flushes", flushes, of_activity(|it| it.fsyncs.flushes))?;
        let help = "Bytes written to the device for fsyncs.";
        out.counter("fsync_bytes", help, of_activity(|it| it.fsyncs.bytes))?;
        let help = "How long operations took. The sum takes each for as long as the longest of its bucket: \
            at most an eighth too much.";
        let times = self.activities().flat_map(|(labels, activity)| {
            let kinds = Operation::ALL.iter().map(|kind| kind.name());
            let times = kinds.map(|kind| (kind, Times::of(activity, kind)));
            times.map(move |(kind, times)| {
                let kind = [("operation", kind.to_owned())];
                (labels.iter().cloned().chain(kind).collect(), times)
            })
        });
        out.histogram("operation_duration_seconds", help, times)
    }

    /// Space, and what a crash would cost.
    fn volumes_state(&self, out: &mut Out<'_>) -> fmt::Result {
        let space = |of: fn(&Activity) -> u64| {
            let volumes = self.volumes();
            volumes.filter_map(move |(labels, it)| Some((labels, of(it.activity.as_ref()?))))
        };
        out.gauge("size_bytes", "The size of the volume.", space(|it| it.space.size_bytes))?;
        out.gauge("used_bytes", "Bytes in use.", space(|it| it.space.used_bytes))?;
        let help = "Bytes that programs may still write.";
        out.gauge("available_bytes", help, space(|it| it.space.available_bytes))?;
        let counted = |of: fn(&crate::report::MountedTree) -> u64| {
            let volumes = self.volumes();
            volumes.filter_map(move |(labels, it)| Some((labels, of(it.mounted.as_ref()?))))
        };
        out.gauge("branches", "Branches of the volume.", counted(|it| it.branches))?;
        let help = "Snapshots of the volume that have a name.";
        out.gauge("snapshots", help, counted(|it| it.snapshots))?;
        let files = self.activities().map(|(labels, it)| (labels, it.space.files));
        out.gauge("files", "Files, directories and all else that has an inode.", files)?;
        let estimate = "How long a mount would take after a crash now.";
        self.seconds(out, "recovery_estimate_seconds", estimate, &["recovery_estimate_ns"])?;
        let limits = ["recovery_kept_ns", "recovery_budget_ns"];
        let limit = "How long a mount after a crash may take.";
        self.seconds(out, "recovery_limit_seconds", limit, &limits)
    }

    /// The largest of these statistics of each volume.
    fn seconds(&self, out: &mut Out<'_>, name: &str, help: &str, of: &[&str]) -> fmt::Result {
        let values = self.volumes().filter_map(|(labels, report)| {
            let largest = of.iter().filter_map(|name| report.value(name)).max()?;
            Some((labels, largest))
        });
        out.gauge(name, help, values.map(|(labels, ns)| (labels, seconds(ns))))
    }

    /// What the device was asked.
    fn device(&self, out: &mut Out<'_>) -> fmt::Result {
        let of = [
            ("reads", "Read calls to the device."),
            ("read_bytes", "Bytes read from the device."),
            ("writes", "Write calls to the device."),
            ("written_bytes", "Bytes written to the device."),
            ("flushes", "Flushes of the device."),
            ("discards", "Discards of the device."),
        ];
        for (name, help) in of {
            let values = self.volumes();
            let values = values.filter_map(|(labels, it)| Some((labels, it.device_value(name)?)));
            out.counter(&format!("device_{name}"), help, values)?;
        }
        Ok(())
    }

    /// Every statistic of the engine that this program knows; what a daemon says that it means is not believed.
    fn internal(&self, out: &mut Out<'_>) -> fmt::Result {
        for Reading { name, kind, meaning, .. } in Counters::default().list() {
            let values = self.volumes().filter_map(|(labels, it)| Some((labels, it.value(name)?)));
            let full = match Unit::of(name) {
                Unit::Nanoseconds => format!("internal_{}_seconds", name.trim_end_matches("_ns")),
                Unit::Bytes | Unit::Number => format!("internal_{name}"),
            };
            let scaled = values.map(|(labels, value)| match Unit::of(name) {
                Unit::Nanoseconds => (labels, Number::Seconds(seconds(value))),
                Unit::Bytes | Unit::Number => (labels, Number::Whole(value)),
            });
            let meaning = match Unit::of(name) {
                Unit::Nanoseconds => of_seconds(meaning),
                Unit::Bytes | Unit::Number => meaning.to_owned(),
            };
            match kind {
                CounterKind::Gauge => out.numbers(&full, &meaning, MetricType::Gauge, scaled)?,
                CounterKind::Total | CounterKind::Alarm => {
                    out.numbers(&full, &meaning, MetricType::Counter, scaled)?;
                }
            }
        }
        Ok(())
    }
}

/// What a statistic means whose value is told in seconds here.
fn of_seconds(meaning: &str) -> String {
    meaning.replace("Nanoseconds", "Seconds").replace("nanoseconds", "seconds")
}

/// Nanoseconds as seconds.
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// The labels of a mount.
fn of_mount(sample: &Sample) -> Labels {
    let mounted = sample.report.as_ref().and_then(|report| report.mounted.as_ref());
    let mut labels = of_directory(sample);
    labels.push(("branch", mounted.map(|mounted| mounted.name()).unwrap_or_default()));
    labels
}

fn of_directory(sample: &Sample) -> Labels {
    let mut labels = of_volume(sample);
    labels.push(("directory", shown(&sample.mount.dir)));
    labels
}

/// The labels of a volume. The user is the one that the kernel knows: no user speaks for another one's volume.
fn of_volume(sample: &Sample) -> Labels {
    let volume = shown(&sample.mount.source);
    vec![("volume", volume), ("user", sample.mount.owner.to_string())]
}

/// A value as it is written.
enum Number {
    Whole(u64),
    Seconds(f64),
}

/// Times of the operations of one kind.
struct Times {
    count: u64,
    sum: f64,
    /// The end of each bucket in seconds, and how many are in it.
    buckets: Vec<(f64, u64)>,
}

impl Times {
    fn of(activity: &Activity, kind: &str) -> Times {
        let ends = (SHORTEST..=LONGEST).map(|power| 1_u64 << power);
        let mut buckets: Vec<(u64, u64)> = ends.chain([u64::MAX]).map(|end| (end, 0)).collect();
        let (mut count, mut sum) = (0_u64, 0.0);
        for (last_ns, times) in activity.latency(kind).counts() {
            // A daemon may lie, and all of them are added up.
            let times = times.min(COUNT_MAX);
            let at = buckets.partition_point(|(end, _)| *end < last_ns);
            if let Some((_, in_bucket)) = buckets.get_mut(at) {
                *in_bucket += times;
            }
            count += times;
            sum += seconds(last_ns) * times as f64;
        }
        let of_end = |end| if end == u64::MAX { f64::INFINITY } else { seconds(end) };
        let buckets = buckets.into_iter().map(|(end, times)| (of_end(end), times)).collect();
        Times { count, sum, buckets }
    }
}

/// Where families go, one after the other. A family without a value is not named.
struct Out<'a>(DescriptorEncoder<'a>);

impl Out<'_> {
    fn gauge<N: Into<Number>>(
        &mut self,
        name: &str,
        help: &str,
        values: impl Iterator<Item = (Labels, N)>,
    ) -> fmt::Result {
        let values = values.map(|(labels, value)| (labels, value.into()));
        self.numbers(name, help, MetricType::Gauge, values)
    }

    fn counter(
        &mut self,
        name: &str,
        help: &str,
        values: impl Iterator<Item = (Labels, u64)>,
    ) -> fmt::Result {
        let values = values.map(|(labels, value)| (labels, Number::Whole(value)));
        self.numbers(name, help, MetricType::Counter, values)
    }

    fn numbers(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        values: impl Iterator<Item = (Labels, Number)>,
    ) -> fmt::Result {
        let mut values = values.peekable();
        if values.peek().is_none() {
            return Ok(());
        }
        let name = format!("holdfast_{name}");
        let mut family = self.0.encode_descriptor(&name, help, None, kind)?;
        for (labels, value) in values {
            let mut series = family.encode_family(&labels)?;
            match (kind, value) {
                (MetricType::Counter, Number::Whole(value)) => {
                    series.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
                }
                (MetricType::Counter, Number::Seconds(value)) => {
                    series.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
                }
                (_, Number::Whole(value)) => series.encode_gauge(&value)?,
                (_, Number::Seconds(value)) => series.encode_gauge(&value)?,
            }
        }
        Ok(())
    }

    fn histogram(
        &mut self,
        name: &str,
        help: &str,
        values: impl Iterator<Item = (Labels, Times)>,
    ) -> fmt::Result {
        let mut values = values.peekable();
        if values.peek().is_none() {
            return Ok(());
        }
        let name = format!("holdfast_{name}");
        let mut family = self.0.encode_descriptor(&name, help, None, MetricType::Histogram)?;
        for (labels, times) in values {
            let mut series = family.encode_family(&labels)?;
            series.encode_histogram::<NoLabelSet>(times.sum, times.count, &times.buckets, None)?;
        }
        Ok(())
    }
}

impl From<u64> for Number {
    fn from(value: u64) -> Number {
        Number::Whole(value)
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Number {
        Number::Seconds(value)
    }
}
