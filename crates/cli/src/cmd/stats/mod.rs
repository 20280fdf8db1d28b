//! `holdfast stats`: what the daemon of a mount has counted since it was mounted, once or again and again.
//!
//! The daemon gives numbers; `table` makes them readable and `watch` repeats
//! the question. JSON keeps numbers as they are: bytes and nanoseconds.

mod fsyncs;
mod table;
mod watch;

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::daemon::control::{self, Counter, DEVICE, Report};
use crate::mounts::{self, Mount};
use crate::outcome::{Context, Failure, Outcome, printed};

/// Show the statistics of a mounted volume.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What an fsync costs on the average is shown behind the totals of the log; what is expected to be 0
and is not is told first.

With --watch, on a terminal, the table is refreshed in place; elsewhere every sample is appended,
with --json as one object a line: `timestamp` in seconds since 1970, `seconds` since the sample
before (null in the first), all values, and in `deltas` what was added since, without gauges.
It ends at Ctrl-C, when its reader goes away, and when the volume is unmounted.")]
pub(crate) struct Args {
    /// One JSON object; numbers are bytes (names with `bytes`), nanoseconds (`_ns`) or just numbers.
    #[arg(long)]
    json: bool,
    /// Again every so many seconds, with what happened in each second between.
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        value_parser = interval
    )]
    watch: Option<Duration>,
    /// The mounted directory, or the volume.
    dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mount = mounts::find(&args.dir).context("/proc/self/mountinfo")?.ok_or_else(|| {
        Failure::plain(format!("{} is not a mounted Holdfast volume", args.dir.display()))
    })?;
    if let Some(every) = args.watch {
        return watch::run(&mount, every, args.json);
    }
    let report = control::ask(&mount).map_err(|error| no_answer(&mount, &error))?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    if args.json {
        printed(writeln!(out, "{}", Value::from(object(&report))))?;
    } else {
        for line in table::explained(&report) {
            printed(writeln!(out, "{line}"))?;
        }
    }
    printed(out.flush())?;
    Ok(0)
}

/// The sentence for a daemon that is dead or stuck, or does not answer this user.
fn no_answer(mount: &Mount, error: &io::Error) -> Failure {
    let dir = mount.dir.display();
    let words = crate::outcome::plain_words(error);
    Failure::plain(match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("{dir}: {words}; only root and the user who has mounted may ask")
        }
        io::ErrorKind::TimedOut => {
            format!("the daemon of {dir} does not answer; it may be waiting for its device")
        }
        _ if mounts::is_dead(error) => {
            format!("the daemon of {dir} has ended; run: holdfast umount {dir}")
        }
        _ => format!("the daemon of {dir} gives no answer that is understood: {words}"),
    })
}

/// What `--json` prints of a report.
fn object(report: &Report) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("pid".into(), report.pid.into());
    object.insert("volume".into(), report.volume.to_string_lossy().into());
    object.extend(values(report, |counter| Some(counter.value)));
    object
}

/// The engine's and the device's statistics as two objects, without those for which `value` returns nothing.
fn values(report: &Report, value: impl Fn(&Counter) -> Option<u64>) -> Map<String, Value> {
    let of = |device: bool| -> Map<String, Value> {
        let group = report.counters.iter().filter(|counter| (counter.group == DEVICE) == device);
        group.filter_map(|counter| Some((counter.name.clone(), value(counter)?.into()))).collect()
    };
    let parts = [("counters", of(false)), (DEVICE, of(true))];
    parts.into_iter().map(|(name, part)| (name.to_string(), part.into())).collect()
}

/// Seconds between two samples, at least a tenth.
fn interval(text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let days = Duration::from_secs(1_000_000);
    time.filter(|time| *time >= Duration::from_millis(100) && *time <= days)
        .ok_or_else(|| format!("{text:?} is not a number of seconds from 0.1 to 1000000"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report with a total and a gauge, and one call to the device.
    pub(super) fn report(commits: u64, used: u64, flushes: u64) -> Report {
        let counter = |name: &str, value, group: &str, gauge| Counter {
            name: name.into(),
            value,
            group: group.into(),
            gauge,
            alarm: name.starts_with("journal_full"),
            meaning: "A test.".into(),
        };
        Report {
            pid: 7,
            volume: "/img".into(),
            read_only: false,
            options: String::new(),
            counters: vec![
                counter("commits", commits, "commits", false),
                counter("frozen_ns", commits * 1_700_000, "commits", false),
                counter("journal_bytes_used", used, "checkpoints", true),
                counter("flushes", flushes, DEVICE, false),
            ],
        }
    }

    #[test]
    fn json_has_raw_numbers_and_the_device_apart() {
        let object = object(&report(3, 4096, 9));
        assert_eq!(object["pid"], 7);
        assert_eq!(object["counters"]["frozen_ns"], 5_100_000);
        assert_eq!(object["counters"]["journal_bytes_used"], 4096);
        assert_eq!(object["device"]["flushes"], 9);
        assert!(object["counters"].get("flushes").is_none());
    }

    #[test]
    fn intervals_are_seconds_with_a_fraction() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "soon", "NaN", "inf", "1e300", ""] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
