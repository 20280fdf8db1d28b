//! `holdfast stats`: what the daemon of a mount has counted since it was mounted, once or again and again.
//!
//! Two levels: `summary` is what a user asks, in a user's words, on one screen; `table` is every statistic of the engine,
//! for `--all`. `watch` repeats the question. JSON holds both, with numbers as they are: bytes and nanoseconds.

mod fsyncs;
mod summary;
mod table;
mod watch;

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use holdfast_daemon::dispatch::not_mounted;
use holdfast_daemon::metrics;
use holdfast_daemon::mounts::{self, Mount};
use holdfast_daemon::report::{self, DEVICE, REQUESTS, Report, Statistic};
use serde::Serialize;
use serde_json::{Map, Value};

use self::summary::{Interval, StatusSummary};
use crate::outcome::{Context, Failure, Outcome, printed};

/// Show the statistics of a mounted volume.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Everything counts from the moment the volume was mounted. p50 and p99: half of the operations, and
99 of 100, took no longer. Times are those of the filesystem process; what the kernel answers from
its own memory is neither counted nor timed.
  operation   lookup: find a name; stat: read attributes; list: read a directory; attributes: chmod,
              chown, truncate, times, extended attributes; other: everything else
  programs    bytes that the kernel read and wrote for programs, what it read ahead included
  device      bytes that the volume's file or device was asked to read and write
  each fsync  what one that had something to write costs on the average, synchronous writes included
  cache       how many look-ups needed no read of the device; raise -o cache= if it is low
  errors      lines of errors in the process's log

--json prints one object. Its names stay while `schema` is 1; sizes are in bytes, times in
nanoseconds (`_ns`). Below `all` are the internal statistics, whose names may change with any
version.

With --watch, on a terminal, the screen is refreshed in place; elsewhere every sample is appended.
Counts are totals, all else is of the time since the sample before. With --json each sample is one
line with `timestamp` in seconds since 1970, `seconds` since the sample before, and `interval`: what
happened in that time (null in the first). It ends at Ctrl-C, when its reader goes away, and when
the volume is unmounted.")]
pub(crate) struct Args {
    /// Show every internal statistic with its meaning, instead of the summary.
    #[arg(long)]
    all: bool,
    /// Print JSON, for programs: --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// How to print: text, json, or prometheus (as `holdfast metrics` has it).
    #[arg(long, value_name = "FORMAT", hide_possible_values = true, default_value = "text")]
    format: Format,
    /// Repeat every SECONDS, with rates, until Ctrl-C.
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

/// How statistics are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Json,
    Prometheus,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let format = if args.json { Format::Json } else { args.format };
    let mount = mounts::find(&args.dir).context("/proc/self/mountinfo")?;
    let mount = mount.ok_or_else(|| not_mounted(&args.dir))?;
    if let Some(every) = args.watch {
        if format == Format::Prometheus {
            let why = "--watch does not print this; serve it: holdfast metrics --listen";
            return Err(Failure::new(2, why));
        }
        return watch::run(&mount, every, args.all, format == Format::Json);
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    let ask = || report::ask(&mount).map_err(|error| no_answer(&mount, &error));
    match format {
        Format::Json => {
            printed(writeln!(out, "{}", holdfast_service::json::text(&object(&ask()?))))?
        }
        Format::Prometheus => {
            let sample = metrics::of(&mount).map_err(|error| no_answer(&mount, &error))?;
            let text = metrics::text(vec![sample], metrics::TextForm::Prometheus);
            printed(out.write_all(text.as_bytes()))?;
        }
        Format::Text => {
            let report = ask()?;
            let lines = match args.all {
                true => table::explained(&report),
                false => summary_lines(&report),
            };
            for line in lines {
                printed(writeln!(out, "{line}"))?;
            }
        }
    }
    printed(out.flush())?;
    Ok(0)
}

/// The sentence for a daemon that is dead or stuck, or does not answer this user.
fn no_answer(mount: &Mount, error: &io::Error) -> Failure {
    mounts::no_answer(mount, error, "root and the user who has mounted may ask")
}

/// The screen without `--all`.
pub(crate) fn summary_lines(report: &Report) -> Vec<String> {
    [vec![head(report)], summary::lines(report, None, None)].concat()
}

/// What is mounted, and what serves it.
fn head(report: &Report) -> String {
    format!("{} served by process {}", report.volume.display(), report.pid)
}

/// What `--json` prints of a report.
pub(crate) fn object(report: &Report) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("schema".into(), summary::SCHEMA.into());
    object.extend(fields(&Interval::between(report, None)));
    object.extend(fields(&StatusSummary::of(report)));
    object.insert("pid".into(), report.pid.into());
    object.insert("volume".into(), report.volume.to_string_lossy().into());
    object.insert("all".into(), values(report, |counter| Some(counter.value)).into());
    object
}

/// The fields of a part of the summary.
fn fields(part: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(part) {
        Ok(Value::Object(fields)) => fields,
        other => unreachable!("a struct of numbers and texts is an object: {other:?}"),
    }
}

/// The statistics of the engine, the kernel's requests and the device as three objects, without those for which `value` returns nothing.
fn values(report: &Report, value: impl Fn(&Statistic) -> Option<u64>) -> Map<String, Value> {
    let of = |is_of: &dyn Fn(&Statistic) -> bool| -> Map<String, Value> {
        let group = report.counters.iter().filter(|counter| is_of(counter));
        group.filter_map(|counter| Some((counter.name.clone(), value(counter)?.into()))).collect()
    };
    let groups = [REQUESTS, DEVICE].map(|group| (group, of(&|counter| counter.group == group)));
    let parts = [("counters", of(&Statistic::is_of_engine))].into_iter().chain(groups);
    parts.map(|(name, part)| (name.to_string(), part.into())).collect()
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
    use holdfast_daemon::report::Activity;

    use super::*;

    pub(super) fn counter(name: &str, value: u64, group: &str) -> Statistic {
        Statistic {
            name: name.into(),
            value,
            group: group.into(),
            gauge: name == "journal_bytes_used",
            alarm: name.starts_with("journal_full"),
            meaning: "A test.".into(),
        }
    }

    /// A report with a total and a gauge, and one call to the device.
    pub(super) fn report(commits: u64, used: u64, flushes: u64) -> Report {
        Report {
            pid: 7,
            volume: "/img".into(),
            read_only: false,
            options: String::new(),
            mounted: None,
            activity: Some(Activity::default()),
            counters: vec![
                counter("commits", commits, "commits"),
                counter("frozen_ns", commits * 1_700_000, "commits"),
                counter("journal_bytes_used", used, "checkpoints"),
                counter("flushes", flushes, DEVICE),
            ],
        }
    }

    #[test]
    fn json_has_raw_numbers_and_the_device_apart() {
        let object = object(&report(3, 4096, 9));
        assert_eq!(object["pid"], 7);
        assert_eq!(object["schema"], 1);
        let all = &object["all"];
        assert_eq!(all["counters"]["frozen_ns"], 5_100_000);
        assert_eq!(all["counters"]["journal_bytes_used"], 4096);
        assert_eq!(all["device"]["flushes"], 9);
        assert!(all["counters"].get("flushes").is_none());
    }

    #[test]
    fn what_a_stranger_says_does_nothing_to_a_terminal() {
        let evil = "\\u001b[2J\\u009b31mall is well\\n\\r";
        let said = format!(
            r#"{{"pid":1,"volume":"{evil}","options":"{evil}",
                "mounted":{{"branch":"{evil}","snapshot":"{evil}","branches":1,"snapshots":2}},
                "activity":{{"operations":[["{evil}",[[4294967295,2],[3,18446744073709551615]]]],
                    "read_bytes":1,"written_bytes":1,"transport":"{evil}",
                    "fsyncs":{{"count":1,"free":9,"writes":1,"flushes":1,"bytes":1}},
                    "space":{{"size_bytes":1,"used_bytes":2,"available_bytes":3,"files":4}},
                    "errors":{{"count":1,"last":"{evil}","last_secs":-9223372036854775808}}}},"counters":[
                {{"name":"{evil}","value":1,"group":"{evil}","gauge":true,"meaning":"{evil}"}}]}}"#
        );
        let lines = summary_lines(&Report::read(said.as_bytes()).unwrap());
        assert!(lines.iter().any(|line| line.contains("all is well")), "{lines:?}");
        for line in lines {
            assert!(!line.contains(char::is_control), "{line:?}");
        }
    }

    #[test]
    fn a_daemon_of_an_older_program_says_nothing_and_nothing_is_invented() {
        let said = br#"{"pid":7,"volume":"/img","options":"","counters":[
            {"name":"commits","value":3,"group":"commits","meaning":"Commits."}]}"#;
        let report = Report::read(said).unwrap();
        let lines = summary_lines(&report);
        assert!(lines.len() == 2 && lines[1].contains("older"), "{lines:?}");
        let object = super::object(&report);
        for null in ["operations", "fsync", "cache", "space", "recovery", "transport"] {
            assert!(object[null].is_null(), "{null}: {object:?}");
        }
        assert!(object["bytes"]["read_by_programs"].is_null(), "{object:?}");
        assert!(object["errors"]["count"].is_null(), "{object:?}");
        assert_eq!(object["all"]["counters"]["commits"], 3);
    }

    #[test]
    fn intervals_are_seconds_with_a_fraction() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "soon", "NaN", "inf", "1e300", ""] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
