//! What a daemon says of itself: one JSON object, asked for through the mount.
//!
//! The question is the attribute `system.holdfast.report` of the mounted directory ([`mod@crate::ask`]). So it needs
//! no socket and no name of its own that others could take first. The kernel leads it to the daemon that serves what is
//! mounted there, from any namespace that sees the mount, and tells the daemon which user asks. But any user may mount,
//! and may answer anything: what comes from outside is bounded, and made printable before it is used.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use holdfast::FileSystem;
use holdfast::device::Device;
use holdfast_base::counters::{CounterKind, Reading};
use holdfast_fuse::Requests;
use serde::{Deserialize, Serialize};

pub use crate::activity::{Activity, Fsyncs, LoggedErrors, Space};
use holdfast_service::outcome::printable;

use crate::mount_options::DaemonOptions;
pub use crate::stop_reason::Stopped;
use crate::{ask, mounts};

/// How long to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same for what is shown and gone.
const LOOK: Duration = Duration::from_secs(1);

/// What a daemon says of itself.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Report {
    /// The daemon.
    pub pid: u32,
    /// The file or block device.
    pub volume: PathBuf,
    /// The volume was opened read-only: nothing can be written, whatever the kernel would let through.
    #[serde(default)]
    pub read_only: bool,
    /// The options that it was mounted with.
    #[serde(default)]
    pub options: String,
    /// What is mounted of the volume.
    #[serde(default)]
    pub mounted: Option<MountedTree>,
    /// What programs did with the mount. Nothing from a daemon whose program was older when it was started.
    #[serde(default)]
    pub activity: Option<Activity>,
    /// Every statistic, group after group; the last two groups are what the kernel and the device were asked.
    pub counters: Vec<Statistic>,
}

/// What is mounted of a volume, and what else it has.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct MountedTree {
    /// The branch, or that of the snapshot.
    pub branch: String,
    /// The snapshot; `None`: the branch itself.
    pub snapshot: Option<String>,
    /// How many branches, and snapshots with a name, there are.
    pub branches: u64,
    /// See `branches`.
    pub snapshots: u64,
    /// Files, directories and all else that has an inode, in all branches; `None` from a daemon whose program was older when it was
    /// started.
    #[serde(default)]
    pub files: Option<u64>,
    /// Why deletions have failed: the first of them.
    #[serde(default)]
    pub failed_deletions: Vec<String>,
    /// Why nothing is written any more (P7).
    #[serde(default)]
    pub stopped: Option<Stopped>,
    /// Why its last state is not whole.
    #[serde(default)]
    pub missing: Option<String>,
}

/// Failed deletions that a report has, and letters of each.
const FAILED: usize = 4;
const FAILED_LETTERS: usize = 160;
/// Letters of what is missing.
const MISSING_LETTERS: usize = 400;

impl MountedTree {
    /// What is open as `fs`; `None` if it cannot be read.
    pub fn of(fs: &FileSystem) -> Option<MountedTree> {
        let text = |name: Vec<u8>| String::from_utf8_lossy(&name).into_owned();
        let snapshots = fs.all_snapshots().ok()?;
        let branches = fs.branches().ok()?;
        let failed = fs.failed_deletions().into_iter().take(FAILED);
        Some(MountedTree {
            stopped: fs.stopped().map(Stopped::new),
            missing: fs.missing().map(|why| why.chars().take(MISSING_LETTERS).collect()),
            failed_deletions: failed
                .map(|of| of.why.chars().take(FAILED_LETTERS).collect())
                .collect(),
            branch: text(fs.branch_name().ok()?),
            snapshot: fs.snapshot_name().ok()?.map(text),
            branches: branches.len() as u64,
            files: Some(branches.iter().fold(0, |all, of| of.inodes.saturating_add(all))),
            snapshots: snapshots.iter().filter(|it| !it.name.is_empty()).count() as u64,
        })
    }

    /// `work@monday`.
    pub fn name(&self) -> String {
        let snapshot = self.snapshot.as_ref().map(|name| format!("@{name}"));
        printable(&format!("{}{}", self.branch, snapshot.unwrap_or_default())).into_owned()
    }

    /// How many branches and snapshots there are.
    pub fn counts(&self) -> String {
        let [branches, snapshots] =
            [(self.branches, "branch"), (self.snapshots, "snapshot")].map(|(n, one)| {
                match (n, one) {
                    (1, _) => format!("1 {one}"),
                    (_, "branch") => format!("{n} branches"),
                    _ => format!("{n} {one}s"),
                }
            });
        format!("{branches}, {snapshots}")
    }
}

/// The group of the statistics that the device keeps.
pub const DEVICE: &str = "device";
/// The group of the messages that the kernel sent for the mount, by kind.
pub const REQUESTS: &str = "requests";

/// A statistic, on its way from the daemon.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Statistic {
    /// As programs know it.
    pub name: String,
    /// A total since the volume was opened, or what is so now.
    pub value: u64,
    /// Which statistics it stands with; [`DEVICE`] and [`REQUESTS`] for those that are not the engine's.
    pub group: String,
    /// A difference or a rate of it means nothing.
    #[serde(default, skip_serializing_if = "is_false")]
    pub gauge: bool,
    /// It is expected to be 0.
    #[serde(default, skip_serializing_if = "is_false")]
    pub alarm: bool,
    /// A sentence for people.
    pub meaning: String,
}

/// Attributes are short: what is usual is left out.
fn is_false(value: &bool) -> bool {
    !value
}

impl Report {
    /// Reads what a peer says, of which all text can be shown then.
    ///
    /// # Errors
    /// It is no report.
    pub fn read(value: &[u8]) -> io::Result<Report> {
        let mut report: Report = serde_json::from_slice(value)?;
        report.volume = printable(&report.volume.to_string_lossy()).into_owned().into();
        if let Some(activity) = &mut report.activity {
            activity.make_printable();
        }
        if let Some(mounted) = &mut report.mounted {
            let names = [Some(&mut mounted.branch), mounted.snapshot.as_mut()];
            names.into_iter().flatten().for_each(|name| *name = printable(name).into_owned());
            if let Some(stopped) = &mut mounted.stopped {
                stopped.reason = printable(&stopped.reason).into_owned();
            }
            if let Some(missing) = &mut mounted.missing {
                *missing = printable(missing).into_owned();
            }
        }
        for counter in &mut report.counters {
            for text in [&mut counter.name, &mut counter.group, &mut counter.meaning] {
                *text = printable(text).into_owned();
            }
        }
        Ok(report)
    }

    /// What is sent. Where an attribute has no room for all buckets of all times it has fewer, wider ones.
    fn encode(mut self) -> Option<Vec<u8>> {
        loop {
            let value = serde_json::to_vec(&self).ok()?;
            if value.len() <= ask::VALUE_MAX
                || !self.activity.as_mut().is_some_and(Activity::coarsen)
            {
                return Some(value);
            }
        }
    }

    /// The value of the engine's statistic called `name`.
    pub fn value(&self, name: &str) -> Option<u64> {
        let mut own = self.counters.iter().filter(|counter| counter.is_of_engine());
        own.find(|counter| counter.name == name).map(|counter| counter.value)
    }

    /// The value of the device's statistic called `name`.
    pub fn device_value(&self, name: &str) -> Option<u64> {
        let mut own = self.counters.iter().filter(|counter| counter.group == DEVICE);
        own.find(|counter| counter.name == name).map(|counter| counter.value)
    }
}

impl Statistic {
    /// The engine keeps it.
    pub fn is_of_engine(&self) -> bool {
        ![DEVICE, REQUESTS].contains(&self.group.as_str())
    }
}

impl From<Reading> for Statistic {
    fn from(reading: Reading) -> Statistic {
        Statistic {
            name: reading.name.into(),
            value: reading.value,
            group: reading.group.into(),
            gauge: reading.kind == CounterKind::Gauge,
            alarm: reading.kind == CounterKind::Alarm,
            meaning: reading.meaning.into(),
        }
    }
}

/// Where the answers come from. It keeps nothing alive.
#[derive(Debug)]
pub(crate) struct Answers {
    volume: PathBuf,
    read_only: bool,
    options: String,
    engine: Weak<FileSystem>,
    device: Weak<dyn Device>,
    requests: Arc<Requests>,
}

impl Answers {
    pub(crate) fn new(
        volume: &Path,
        options: &DaemonOptions,
        engine: Weak<FileSystem>,
        device: Weak<dyn Device>,
        requests: Arc<Requests>,
    ) -> Answers {
        Answers {
            volume: volume.into(),
            read_only: options.read_only,
            options: options.text.clone(),
            engine,
            device,
            requests,
        }
    }

    /// The answer; `None` when the volume is closed.
    pub(crate) fn report(&self) -> Option<Vec<u8>> {
        self.make()?.encode()
    }

    fn make(&self) -> Option<Report> {
        let device = self.device.upgrade()?.stats();
        let of_device = [
            ("reads", device.reads, "Read calls."),
            ("read_bytes", device.read_bytes, "Bytes read."),
            ("writes", device.writes, "Write calls."),
            ("written_bytes", device.written_bytes, "Bytes written."),
            ("flushes", device.flushes, "Flushes."),
            ("discards", device.discards, "Discards."),
        ]
        .map(|(name, value, meaning)| (DEVICE, name, value, meaning));
        let requests = self.requests.list().into_iter();
        let of_kernel =
            requests.map(|(kind, count)| (REQUESTS, kind.name(), count, kind.meaning()));
        let totals = of_kernel.chain(of_device).map(|(group, name, value, meaning)| Reading {
            name,
            value,
            kind: CounterKind::Total,
            group,
            meaning,
        });
        let engine = self.engine.upgrade()?;
        let of_engine = engine.counters().list();
        Some(Report {
            pid: std::process::id(),
            // JSON has no bytes that are no UTF-8.
            volume: self.volume.to_string_lossy().into_owned().into(),
            read_only: self.read_only,
            options: self.options.clone(),
            mounted: MountedTree::of(&engine),
            activity: Some(Activity::now(
                self.requests.operations(),
                &engine.statfs(),
                engine.dirty_bytes() as u64,
            )),
            counters: of_engine.into_iter().chain(totals).map(Statistic::from).collect(),
        })
    }
}

/// Asks the daemon of a mount.
///
/// # Errors
/// The mount has no daemon any more ([`mounts::is_dead`]), the caller is neither root nor the user of the mount
/// (`PermissionDenied`), no answer within five seconds (`TimedOut`), or none that makes sense.
pub fn ask(mount: &mounts::Mount) -> io::Result<Report> {
    ask_within(mount, PATIENCE)
}

/// Bytes of files that a mount has still to write, as its daemon says; `None`: it does not tell this user, or is of an older program.
pub fn dirty_bytes(dir: &Path) -> Option<u64> {
    let value = ask::attribute(dir, ask::REPORT, LOOK).ok()?;
    Some(Report::read(&value).ok()?.activity?.dirty_bytes)
}

/// As [`ask()`], within another time.
///
/// # Errors
/// Those of [`ask()`].
pub(crate) fn ask_within(mount: &mounts::Mount, patience: Duration) -> io::Result<Report> {
    let value = ask::attribute(&mount.dir, ask::REPORT, patience)?;
    Report::read(&value)
}

#[cfg(test)]
mod tests {
    use holdfast_base::counters::Counters;
    use holdfast_fuse::Operation;
    use holdfast_fuse::statistics::BUCKETS;

    use super::*;

    #[test]
    fn what_a_stranger_says_does_nothing_to_a_terminal() {
        let evil = "\\u001b[2J\\u009b31mall is well\\n\\r";
        let said = format!(
            r#"{{"pid":1,"volume":"{evil}","read_only":false,
                "mounted":{{"branch":"{evil}","snapshot":"{evil}","branches":1,"snapshots":2}},
                "activity":{{"operations":[["{evil}",[[4294967295,2],[3,18446744073709551615]]]],
                    "read_bytes":1,"written_bytes":1,"transport":"{evil}",
                    "fsyncs":{{"count":1,"free":9,"writes":1,"flushes":1,"bytes":1}},
                    "space":{{"size_bytes":1,"used_bytes":2,"available_bytes":3,"files":4}},
                    "errors":{{"count":1,"last":"{evil}","last_secs":-9223372036854775808}}}},"counters":[
                {{"name":"{evil}","value":1,"group":"{evil}","gauge":true,"meaning":"{evil}"}}]}}"#
        );
        let report = Report::read(said.as_bytes()).unwrap();
        let counter = &report.counters[0];
        let volume = report.volume.to_str().unwrap();
        let activity = report.activity.as_ref().unwrap();
        let last = activity.errors.last.as_deref().unwrap();
        let mounted = report.mounted.as_ref().unwrap();
        assert!(!mounted.name().contains(char::is_control), "{mounted:?}");
        let of_activity = [activity.operations[0].0.as_str(), &activity.transport, last];
        let of_counter = [volume, &counter.name, &counter.group, &counter.meaning];
        for text in of_counter.into_iter().chain(of_activity) {
            assert!(text.contains("all is well") && !text.contains(char::is_control), "{text:?}");
        }
        assert_eq!(activity.latency("read").count(), 0);
        assert!(Report::read(b"no object").is_err());
    }

    /// The longest message: every bucket of every kind holds a large number.
    fn longest(volume: PathBuf) -> Report {
        let buckets: Vec<(u32, u64)> =
            (0..BUCKETS as u32).map(|bucket| (bucket, 1_000_000_000_000)).collect();
        let of = |kind: &Operation| (kind.name().to_owned(), buckets.clone());
        let mut counters: Vec<Statistic> =
            Counters::default().list().into_iter().map(Statistic::from).collect();
        counters.iter_mut().for_each(|counter| counter.value = u64::MAX);
        let operations = Operation::ALL.iter().map(of).collect();
        Report {
            pid: u32::MAX,
            volume,
            read_only: false,
            options: "x".repeat(4096),
            mounted: Some(MountedTree {
                stopped: None,
                branch: "\u{1}".repeat(255),
                snapshot: Some("\u{1}".repeat(255)),
                branches: u64::MAX,
                snapshots: u64::MAX,
                files: Some(u64::MAX),
                failed_deletions: vec!["\u{1}".repeat(FAILED_LETTERS); FAILED],
                missing: Some("\u{1}".repeat(MISSING_LETTERS)),
            }),
            activity: Some(Activity { operations, ..Activity::default() }),
            counters,
        }
    }

    #[test]
    fn the_longest_message_fits_an_attribute() {
        let path = "\u{1}".repeat(4096);
        let value = longest(path.clone().into()).encode().unwrap();
        assert!(value.len() <= ask::VALUE_MAX, "{}", value.len());
        let report = Report::read(&value).unwrap();
        assert_eq!(report.volume.to_str(), Some(&*printable(&path)));
        let activity = report.activity.unwrap();
        for kind in Operation::ALL {
            let latency = activity.latency(kind.name());
            assert_eq!(latency.count(), BUCKETS as u64 * 1_000_000_000_000);
            assert!(latency.quantile_ns(0.5) < latency.quantile_ns(0.99));
        }
        // Nothing is left out without need.
        let mut short = longest("/img".into());
        short.activity.as_mut().unwrap().operations.truncate(3);
        let kept = Report::read(&short.encode().unwrap()).unwrap().activity.unwrap();
        assert_eq!(kept.operations[0].1.len(), BUCKETS);
    }

    #[test]
    fn a_daemon_of_an_older_program_says_nothing_and_nothing_is_invented() {
        let said = br#"{"pid":7,"volume":"/img","options":"","counters":[
            {"name":"commits","value":3,"group":"commits","meaning":"Commits."}]}"#;
        let report = Report::read(said).unwrap();
        assert!(report.activity.is_none());
        assert_eq!(report.value("commits"), Some(3));
    }

    #[test]
    fn one_field_that_is_missing_makes_no_report_unreadable() {
        let said = longest("/img".into());
        let said = serde_json::to_value(&said).unwrap();
        let activity = said["activity"].as_object().unwrap();
        let inner = ["fsyncs", "space", "errors"];
        let inner = inner.map(|of| (of, activity[of].as_object().unwrap().keys()));
        let paths = inner.into_iter().flat_map(|(of, keys)| keys.map(move |key| vec![of, key]));
        let outer = activity.keys().map(|key| vec![key.as_str()]);
        let paths: Vec<Vec<&str>> = outer.chain(paths).collect();
        assert!(paths.len() > 20, "{paths:?}");
        for path in paths {
            let mut said = said.clone();
            let mut at = &mut said["activity"];
            let (last, above) = path.split_last().unwrap();
            for name in above {
                at = &mut at[*name];
            }
            at.as_object_mut().unwrap().remove(*last).unwrap();
            let report = Report::read(said.to_string().as_bytes());
            assert!(report.is_ok_and(|report| report.activity.is_some()), "{path:?}");
        }
    }
}
