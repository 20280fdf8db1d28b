//! What an fsync costs on the average, out of the totals of the log.
//!
//! Pure: of two reports the difference counts, of one what happened since the
//! mount. Fsyncs that found nothing to do are left out, as they cost nothing.

use holdfast_base::show;
use holdfast_daemon::report::Report;

/// The title of the block.
pub(super) const TITLE: &str = "each fsync, on the average";

/// A value that no counter holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Average {
    pub(super) name: &'static str,
    /// With its unit; a dash when there was no fsync.
    pub(super) value: String,
    pub(super) meaning: &'static str,
}

/// What happened between `before` and `now`, or since the mount. Nothing if there never was an fsync.
pub(super) fn averages(now: &Report, before: Option<&Report>) -> Vec<Average> {
    if now.value("fsyncs").unwrap_or(0) == 0 {
        return Vec::new();
    }
    let added = |name: &str| {
        let then = before.and_then(|before| before.value(name)).unwrap_or(0);
        now.value(name).unwrap_or(0).saturating_sub(then)
    };
    let all = added("fsyncs");
    let fsyncs = all.saturating_sub(added("clean_fsyncs"));
    // Batches that were written together have one flush and one time.
    let writes = added("log_flushes");
    let flushes = writes + added("log_data_flushes");
    let plain = |part, whole| ratio(part, whole, |ratio| format!("{ratio:.2}"));
    let bytes = |part, whole| ratio(part, whole, |ratio| show::bytes(ratio as u64));
    let share = |part, whole| ratio(part, whole, |ratio| format!("{:.0} %", 100.0 * ratio));
    let time = |name, whole| ratio(added(name), whole, |ratio| show::nanos(ratio as u64));
    [
        (
            "clean",
            share(added("clean_fsyncs"), all),
            "Those that had nothing to do; the rest is of the others.",
        ),
        ("bytes", bytes(added("log_bytes_written"), fsyncs), "Bytes written into the log."),
        ("records", plain(added("log_records"), fsyncs), "Records in them."),
        ("flushes", plain(flushes, fsyncs), "Flushes: below 1 where fsyncs share them."),
        (
            "followers",
            share(added("log_followers"), fsyncs),
            "Those that another one's batch made durable.",
        ),
        ("data", time("fsync_data_ns", fsyncs), "Time for data of its file."),
        ("waiting", time("fsync_wait_ns", fsyncs), "Time waiting for batches of others."),
        (
            "formatting",
            time("log_format_ns", writes),
            "Time to make the records, for who writes a batch.",
        ),
        ("writing", time("log_write_ns", writes), "Time to write them, for the same."),
        ("flushing", time("log_flush_ns", writes), "Time of their flush, for the same."),
    ]
    .map(|(name, value, meaning)| Average { name, value, meaning })
    .into()
}

fn ratio(part: u64, whole: u64, shown: impl Fn(f64) -> String) -> String {
    match whole {
        0 => "-".into(),
        whole => shown(part as f64 / whole as f64),
    }
}

#[cfg(test)]
mod tests {
    use holdfast_daemon::report::Statistic;

    use super::*;

    fn report(values: &[(&str, u64)]) -> Report {
        let counter = |(name, value): &(&str, u64)| Statistic {
            name: (*name).into(),
            value: *value,
            group: "log".into(),
            gauge: false,
            alarm: false,
            meaning: String::new(),
        };
        let counters = values.iter().map(counter).collect();
        Report { counters, ..super::super::tests::report(0, 0, 0) }
    }

    fn value(averages: &[Average], name: &str) -> String {
        averages.iter().find(|average| average.name == name).unwrap().value.clone()
    }

    #[test]
    fn the_difference_of_two_reports_counts() {
        let then = report(&[("fsyncs", 100), ("log_bytes_written", 1 << 20), ("log_flushes", 50)]);
        let now = report(&[
            ("fsyncs", 110),
            ("clean_fsyncs", 2),
            ("log_bytes_written", (1 << 20) + 4096),
            ("log_records", 20),
            ("log_flushes", 53),
            ("log_data_flushes", 1),
            ("log_followers", 6),
            ("fsync_wait_ns", 8_000_000),
            ("log_flush_ns", 1_800_000),
        ]);
        let between = averages(&now, Some(&then));
        let of = |name| value(&between, name);
        assert_eq!(
            (of("clean"), of("bytes"), of("flushes")),
            ("20 %".into(), "512 B".into(), "0.50".into())
        );
        assert_eq!((of("followers"), of("records")), ("75 %".into(), "2.50".into()));
        assert_eq!((of("waiting"), of("flushing")), ("1.0 ms".into(), "600.0 us".into()));
        let since = averages(&now, None);
        assert_eq!(value(&since, "clean"), "2 %");
        let none = averages(&now, Some(&now));
        assert!(none.iter().all(|average| average.value == "-"), "{none:?}");
        assert_eq!(averages(&report(&[("fsyncs", 0)]), None), []);
    }
}
