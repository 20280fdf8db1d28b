//! What fsyncs of this mount cost: the last one of each file, and a line in the log for slow ones.
//!
//! Time is measured here, from the moment a request is served: a receipt tells only what the engine did. Memory is
//! bounded: files without an fsync for long are forgotten. Inode numbers are never used twice, so nothing here can be
//! taken for another file's.
//!
//! Files are known by their inodes; the line and the answer name them by the path that the inode knows, which may be another
//! than the one by which the file was opened.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use holdfast_base::clock::Stopwatch;
use holdfast_base::{InodeNo, Receipt, show};
use holdfast_posix::{FsError, Names};
use parking_lot::Mutex;

/// How many files are known at least, if so many were fsynced. Twice as many are held.
const KNOWN: usize = 4096;
/// Between two lines about slow fsyncs.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

/// What asked for history to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncKind {
    /// fsync or fdatasync, or a synchronous write through the page cache.
    Fsync,
    /// A synchronous write without page cache.
    Write,
    /// A change on a mount with `sync` or `dirsync`.
    Change,
    /// A sync of the whole volume.
    Sync,
}

impl SyncKind {
    /// Its name in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            SyncKind::Fsync => "fsync",
            SyncKind::Write => "synchronous write",
            SyncKind::Change => "synchronous change",
            SyncKind::Sync => "sync of the whole volume",
        }
    }
}

/// One of them, as it ended.
#[derive(Clone, Debug)]
struct Fsync {
    what: SyncKind,
    ended: Stopwatch,
    took: Duration,
    /// What it cost, or the error's number.
    outcome: Result<Receipt, i32>,
}

/// The fsyncs of one mount.
#[derive(Debug)]
pub(crate) struct Fsyncs {
    last: Mutex<Last>,
    lines: Mutex<Lines>,
    /// From where on they are slow.
    slow: Option<Duration>,
}

impl Fsyncs {
    /// `slow`: which ones get a line in the log; `None`: none of them.
    pub(crate) fn new(slow: Option<Duration>) -> Fsyncs {
        Fsyncs { last: Mutex::default(), lines: Mutex::default(), slow }
    }

    /// One has ended that began at `time`. Says whether it was slow. `names` is asked only for a line.
    pub(crate) fn note(
        &self,
        inode: InodeNo,
        (what, names): (SyncKind, &Names),
        time: Stopwatch,
        outcome: &Result<Receipt, FsError>,
    ) -> bool {
        let took = time.elapsed();
        let fsync = Fsync {
            what,
            ended: Stopwatch::start(),
            took,
            outcome: outcome.as_ref().map_or_else(|error| Err(error.errno()), |r| Ok(*r)),
        };
        self.last.lock().note(inode, fsync);
        let is_slow = self.slow.is_some_and(|slow| took > slow);
        let line = is_slow.then(|| self.lines.lock().admit()).flatten();
        if let Some(before) = line {
            let what = match what {
                SyncKind::Sync => what.name().to_owned(),
                _ => format!("{} of {}", what.name(), names.whereabouts(inode).of(inode)),
            };
            let how = match outcome {
                Ok(receipt) => receipt.to_string(),
                Err(error) => format!("it failed: {error}"),
            };
            let (took, rest) = (show::time(took), left_out(before));
            tracing::warn!("slow: {what} took {took}: {how}{rest}");
        }
        is_slow
    }

    /// The last one of `inode`: a line for each number, then what it means; `None` if none is known. `path`: where it is, for
    /// those who may know.
    pub(crate) fn describe(&self, inode: InodeNo, path: Option<&str>) -> Option<String> {
        let fsync = self.last.lock().get(inode)?;
        let mut text = String::new();
        let mut line = |name: &str, value: &dyn std::fmt::Display| {
            let _ = writeln!(text, "{name} {value}");
        };
        line("what", &fsync.what.name());
        line("inode", &inode);
        if let Some(path) = path {
            line("volume_path", &path);
        }
        line("ago_ns", &fsync.ended.nanos());
        line("took_ns", &fsync.took.as_nanos());
        match &fsync.outcome {
            Ok(receipt) => {
                line("clean", &receipt.is_clean());
                for (name, value) in receipt.fields() {
                    line(name, &value);
                }
                for statement in receipt.statements() {
                    line("says", &statement);
                }
            }
            Err(number) => {
                line("error", number);
                let words = std::io::Error::from_raw_os_error(*number).to_string();
                let words = words.split(" (os error").next().unwrap_or_default();
                line("says", &format!("it failed: {words}"));
            }
        }
        Some(text)
    }

    /// The end: readers of the log learn how many lines it lacks.
    pub(crate) fn end(&self) {
        let left = std::mem::take(&mut self.lines.lock().left_out);
        if left > 0 {
            tracing::warn!("slow: {left} more since the line before");
        }
    }
}

fn left_out(before: u64) -> String {
    match before {
        0 => String::new(),
        before => format!(" ({before} more since the line before)"),
    }
}

/// The last fsyncs, in two generations: when the young one is full it becomes the old one.
#[derive(Debug, Default)]
struct Last {
    young: HashMap<InodeNo, Fsync>,
    old: HashMap<InodeNo, Fsync>,
}

impl Last {
    fn note(&mut self, inode: InodeNo, fsync: Fsync) {
        if self.young.len() >= KNOWN && !self.young.contains_key(&inode) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(inode, fsync);
    }

    fn get(&self, inode: InodeNo) -> Option<Fsync> {
        self.young.get(&inode).or_else(|| self.old.get(&inode)).cloned()
    }
}

/// Which lines are written: not more than one in each [`BETWEEN_LINES`].
#[derive(Debug, Default)]
struct Lines {
    last: Option<Stopwatch>,
    left_out: u64,
}

impl Lines {
    /// Whether there is a line for this one; then, for how many there was none before it.
    fn admit(&mut self) -> Option<u64> {
        self.admit_after(self.last.map(Stopwatch::elapsed))
    }

    /// `since`: time since the last line.
    fn admit_after(&mut self, since: Option<Duration>) -> Option<u64> {
        if since.is_some_and(|since| since < BETWEEN_LINES) {
            self.left_out += 1;
            return None;
        }
        self.last = Some(Stopwatch::start());
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(fsyncs: &Fsyncs, inode: u64, outcome: Result<Receipt, FsError>) -> bool {
        let how = (SyncKind::Fsync, &Names::default());
        fsyncs.note(InodeNo(inode), how, Stopwatch::start(), &outcome)
    }

    #[test]
    fn the_last_one_of_a_file_is_described() {
        let fsyncs = Fsyncs::new(None);
        assert_eq!(fsyncs.describe(InodeNo(20), None), None);
        note(&fsyncs, 20, Err(FsError::Io("gone".into())));
        let text = fsyncs.describe(InodeNo(20), None).unwrap();
        assert!(text.contains("\nerror 5\nsays it failed: Input/output error\n"), "{text}");
        let receipt = Receipt { led: true, log_bytes: 512, ..Receipt::default() };
        assert!(!note(&fsyncs, 20, Ok(receipt)), "nothing is slow");
        let text = fsyncs.describe(InodeNo(20), None).unwrap();
        assert!(text.starts_with("what fsync\ninode 20\nago_ns "), "{text}");
        assert!(text.contains("\nlog_bytes 512\n") && !text.contains("error"), "{text}");
    }

    #[test]
    fn of_many_files_the_latest_are_known() {
        let fsyncs = Fsyncs::new(None);
        for inode in 0..5 * KNOWN as u64 {
            note(&fsyncs, inode, Ok(Receipt::default()));
            // One that is fsynced again and again stays.
            note(&fsyncs, 7, Ok(Receipt::default()));
        }
        let last = fsyncs.last.lock();
        assert!(last.young.len() + last.old.len() <= 2 * KNOWN);
        let known = |inode: u64| last.get(InodeNo(inode)).is_some();
        assert!(known(7) && !known(8));
        assert!((4 * KNOWN as u64 + 1..5 * KNOWN as u64).all(known));
    }

    #[test]
    fn slow_ones_are_told_apart_and_lines_are_few() {
        let fsyncs = Fsyncs::new(Some(Duration::ZERO));
        assert!(note(&fsyncs, 20, Ok(Receipt::default())));
        assert!(note(&fsyncs, 20, Ok(Receipt::default())));
        assert_eq!(fsyncs.lines.lock().left_out, 1);
        fsyncs.end();
        assert_eq!(fsyncs.lines.lock().left_out, 0);
        assert!(!note(&Fsyncs::new(Some(Duration::from_secs(3600))), 20, Ok(Receipt::default())));

        let mut lines = Lines::default();
        assert_eq!(lines.admit_after(None), Some(0));
        assert_eq!(lines.admit_after(Some(Duration::from_secs(1))), None);
        assert_eq!(lines.admit_after(Some(Duration::from_secs(9))), None);
        assert_eq!(lines.admit_after(Some(BETWEEN_LINES)), Some(2));
        assert_eq!(lines.admit_after(Some(BETWEEN_LINES)), Some(0));
        assert_eq!(left_out(2), " (2 more since the line before)");
    }
}
