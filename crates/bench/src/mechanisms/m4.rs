//! M4: a log batch finds the inode of a name by an index (`batch=indexed`).
//!
//! Empty files in several directories, nothing synced until all are there, and then one fsync, which has to log them
//! all. What background commits have taken before is no part of its batch, so a run reports how many records the
//! batches held. Or, in the library, commits are held back: then the fsync logs all files, in batches as long as the
//! format allows.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdfast::{Batching, VolumeOptions};
use holdfast_base::clock::Stopwatch;
use holdfast_device::{Device, DeviceError, forward};
use holdfast_locks::{Condvar, Mutex};

use super::compare::{
    Better, Both, Comparison, Line, NODE, Pair, Ready, Volumes, Wanted, in_rounds,
};
use super::{Bench, Measured, Scale};
use crate::counts::Counts;
use crate::result::{Cell, Unit};
use crate::work::names;

/// Of ext4, linear time for the dentries of a fast commit: fs_mark -L 100 -s 0 -S 5; directories, files in each,
/// and creates per second. The authors give both numbers as powers of two.
const PENDING: [(u64, u64, Both); 8] = [
    (2, 2, (16_900.0, 17_500.0)),
    (4, 4, (32_100.0, 31_800.0)),
    (8, 8, (54_000.0, 55_000.0)),
    (16, 16, (78_900.0, 76_900.0)),
    (32, 32, (95_800.0, 95_400.0)),
    (64, 64, (87_900.0, 103_400.0)),
    (64, 1_024, (730.0, 126_130.0)),
    (64, 16_384, (2_330.0, 143_190.0)),
];

/// Bytes of the log, of the journal and of the cache that let so much wait that no creating thread is slowed down: for
/// each file, and for all of them.
const LOG_BYTES: (u64, u64) = (512, 64 << 20);
const JOURNAL_BYTES: (u64, u64) = (2048, 64 << 20);
const CACHE_BYTES: (u64, u64) = (4096, 256 << 20);
/// No recovery follows.
const RECOVER: Duration = Duration::from_secs(24 * 3600);

fn for_files((each, more): (u64, u64), files: u64) -> u64 {
    more + files * each
}

/// One run.
struct Run {
    files: f64,
    /// Nanoseconds of the fsync.
    fsync_ns: f64,
    /// Nanoseconds of creates and fsync together.
    total_ns: f64,
    /// Everything that was counted.
    counts: Counts,
}

impl Run {
    /// Files per second, the fsync included.
    fn rate(&self) -> f64 {
        1e9 * self.files / self.total_ns.max(1.0)
    }

    /// Nanoseconds of formatting for each record.
    fn format_ns(&self) -> f64 {
        self.counts.ratio("log_format_ns", "log_records").unwrap_or(0.0)
    }
}

pub(super) fn run(bench: &mut Bench<'_>) -> io::Result<Measured> {
    let mut measured = compare(bench, false)?;
    if bench.is_library() {
        let held = compare(bench, true)?;
        measured.sections.extend(held.sections);
        measured.gains.extend(held.gains);
    }
    Ok(measured)
}

/// Directories and files in each.
fn sizes(bench: &Bench<'_>, held: bool) -> &'static [(u64, u64)] {
    const ALL: &[(u64, u64)] =
        &[(2, 2), (4, 4), (8, 8), (16, 16), (32, 32), (64, 64), (64, 1_024), (64, 16_384)];
    match (bench.scale, held, bench.is_library()) {
        (Scale::Quick, true, _) => &[(4, 64)],
        (_, true, _) => &ALL[5..],
        (Scale::Quick, _, true) => &[(2, 2), (8, 8), (16, 64)],
        (_, _, true) => ALL,
        (scale, ..) => {
            scale.pick(&[(2, 2), (8, 8)], &[(8, 8), (32, 32), (64, 64), (64, 1_024)], &ALL[2..])
        }
    }
}

fn compare(bench: &mut Bench<'_>, held: bool) -> io::Result<Measured> {
    let scale = bench.scale;
    let words = if held { " held back" } else { "" };
    let (mut lines, mut gains) = (Vec::new(), Vec::new());
    for &(dirs, files) in sizes(bench, held) {
        let count = dirs * files;
        // Small runs are repeated, or chance would decide.
        let more = scale.pick(0, 10_000 / count, 50_000 / count);
        let most = if bench.is_library() { 40 } else { scale.pick(1, 5, 9) };
        let rounds = if held { scale.rounds() } else { scale.rounds().max(more.min(most)) };
        let found = in_rounds(&[Batching::Scan, Batching::Indexed], rounds, |switch| {
            let run = match held {
                true => create_held(bench, switch, dirs, files)?,
                false => create_pending(bench, switch, dirs, files)?,
            };
            bench.say(format_args!(
                "M4, {dirs} x {files} files{words}, {switch}: {:.0}/s",
                run.rate()
            ));
            Ok(run)
        })?;
        let (rate, fsync) = (Pair::of(&found, Run::rate), Pair::of(&found, |run| run.fsync_ns));
        let format = Pair::of(&found, Run::format_ns);
        let of = |name: &str| found[1].iter().map(|run| run.counts.get(name) as f64).sum::<f64>();
        let batches = of("log_batches");
        let pending = format!("{} files{words}", Unit::Count.show(count as f64));
        let published = PENDING.map(|(_, _, both)| Better::More.published(both));
        let published = published.into_iter().fold(0.0, f64::max);
        let gain = |what, ours| bench.gain("M4", what, ours, published, 100.0);
        // Those of the largest stay.
        gains = vec![
            gain(format!("creates/s with {pending}, after over before"), rate.faster()),
            gain(format!("an fsync of {pending}, before over after"), fsync.shorter()),
            gain(format!("to format a record of {pending}, before over after"), format.shorter()),
        ];
        let mut more = vec![
            Cell::one(batches / rounds as f64),
            Cell::maybe((batches > 0.0).then(|| of("log_records") / batches)),
        ];
        more.extend([fsync, format].into_iter().flat_map(|pair| pair.cells(Better::Less)));
        let published = PENDING.iter().find(|of| (of.0, of.1) == (dirs, files));
        lines.push(Line {
            label: format!("{dirs} x {}", Unit::Count.show(files as f64)),
            x: count as f64,
            pair: rate,
            published: published.map(|of| of.2),
            why: String::new(),
            more,
        });
    }
    let (key, title, about, note) = texts(held, bench.place());
    let comparison = Comparison {
        key,
        title,
        about: format!("{about} Runs of each: {} and more.", scale.rounds()),
        label: "directories x files",
        axes: Some(("pending files", "creates")),
        words: ("scan", "indexed"),
        unit: Unit::PerSecond,
        better: Better::More,
        lines,
    };
    let section = comparison.section(&[
        ("batches", "batches", Unit::Count),
        ("records", "records of a batch", Unit::Count),
        ("fsync-before", "the fsync, before", Unit::Nanoseconds),
        ("fsync-after", "after", Unit::Nanoseconds),
        ("fsync-gain", "gain", Unit::Ratio),
        ("format-before", "to format a record, before", Unit::Nanoseconds),
        ("format-after", "after", Unit::Nanoseconds),
        ("format-gain", "gain", Unit::Ratio),
    ]);
    Ok(Measured { sections: vec![section.note(note)], gains })
}

/// Key, title, what was done and what is to be noted.
fn texts(held: bool, place: &str) -> (String, String, &'static str, &'static str) {
    match held {
        false => (
            format!("m4-{place}"),
            format!("M4, {place}: a batch finds inodes by an index"),
            "Empty files in several directories, nothing synced, then one fsync that has to log what is still pending; \
             more rounds of few files. The rate contains the fsync.",
            "Commits in the background take records out of what is pending: `records of a batch` says how many the \
             fsync had left. The published change had all of them in one batch.",
        ),
        true => (
            "m4-held".into(),
            "M4, library: a batch finds inodes by an index; commits held back".into(),
            "As above, but the device lets no commit end before the fsync has, and log, journal and cache are so large that \
             nothing else slows the creates down: all files are pending.",
            "A batch of the log holds at most 4 MiB, by the format: what is pending becomes several, and each is searched \
             by itself.",
        ),
    }
}

/// Creates `files` files in each of `dirs` directories, and fsyncs the last.
fn create_pending(
    bench: &mut Bench<'_>,
    switch: Batching,
    dirs: u64,
    files: u64,
) -> io::Result<Run> {
    let volume = bench.volume(Wanted {
        bytes: (2 << 30) + dirs * files * 2048,
        node_size: NODE,
        library: VolumeOptions::new().batching(switch).commit_secs(0),
        mount: format!("commit=0,batch={switch}"),
    })?;
    let run = create_and_sync(&volume, dirs, files, || None)?;
    volume.end()?;
    Ok(run)
}

/// The same in the library, and no commit ends before the fsync has.
fn create_held(bench: &mut Bench<'_>, switch: Batching, dirs: u64, files: u64) -> io::Result<Run> {
    let Volumes::Library(devices) = &mut bench.ground else {
        return Err(io::Error::other("only the library's commits are held back"));
    };
    let count = dirs * files;
    let (log, journal) = (for_files(LOG_BYTES, count), for_files(JOURNAL_BYTES, count));
    let held = Arc::new(HeldDevice {
        below: devices((2 << 30) + count * 2048 + log + journal)?,
        is_held: Mutex::new(false),
        released: Condvar::new(),
    });
    let device: Arc<dyn Device> = held.clone();
    crate::new_volume().node_size(NODE).log_size(log).journal_size(journal).format(&device)?;
    let volume = VolumeOptions::new()
        .batching(switch)
        .commit_secs(0)
        .cache_bytes(for_files(CACHE_BYTES, count) as usize)
        .recover(RECOVER)
        .open_device(device)?;
    let volume = Ready::Library(volume);
    let run = create_and_sync(&volume, dirs, files, || Some(held.hold()))?;
    volume.end()?;
    Ok(run)
}

/// What is measured. Commits are held back as long as what `hold` gives lives.
fn create_and_sync<'a>(
    volume: &Ready<'_>,
    dirs: u64,
    files: u64,
    hold: impl FnOnce() -> Option<Held<'a>>,
) -> io::Result<Run> {
    let root = volume.root();
    let folders = (0..dirs).map(|number| root.folder(&format!("d{number}")));
    let folders = folders.collect::<io::Result<Vec<_>>>()?;
    let names = names("file-", files);
    volume.quiesce()?;
    let before = volume.counts()?;
    let holding = hold();
    let time = Stopwatch::start();
    for folder in &folders {
        for name in &names {
            drop(folder.create(name)?);
        }
    }
    let created = time.nanos();
    // Of one that was made earlier a commit may have everything: the last one has all files before it.
    if let (Some(folder), Some(name)) = (folders.last(), names.last()) {
        folder.open(name)?.sync_all()?;
    }
    let total = time.nanos();
    let counts = volume.counts()?.since(&before);
    drop(holding);
    let (fsync_ns, total_ns) = ((total - created) as f64, total as f64);
    Ok(Run { files: (dirs * files) as f64, fsync_ns, total_ns, counts })
}

/// The thread that makes commits in the background.
const COMMITS: &str = "commit";

/// A device that lets no commit come to its end while it is held: what the thread of a volume's commits writes waits.
/// So what changes meanwhile stays pending for the log, however much it is. M4 was published with that situation, and
/// commits in the background never let it come.
struct HeldDevice {
    below: Arc<dyn Device>,
    is_held: Mutex<bool>,
    released: Condvar,
}

impl HeldDevice {
    /// Holds commits back until what it returns is dropped, which must be before the volume is closed.
    fn hold(&self) -> Held<'_> {
        *self.is_held.lock() = true;
        Held(self)
    }
}

/// See [`HeldDevice::hold`].
#[must_use = "commits are held back as long as it lives"]
struct Held<'a>(&'a HeldDevice);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        *self.0.is_held.lock() = false;
        self.0.released.notify_all();
    }
}

impl Device for HeldDevice {
    forward!(below: read, flush, discard, room, take_room, len, sector_size, reach, stats);

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        if std::thread::current().name() == Some(COMMITS) {
            let mut is_held = self.is_held.lock();
            while *is_held {
                self.released.wait(&mut is_held);
            }
        }
        self.below.write(at, bytes)
    }
}

impl fmt::Debug for HeldDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldDevice").field("below", &self.below).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanisms::compare::tests::in_memory;

    #[test]
    fn one_fsync_makes_all_files_durable_in_either_position() {
        for &switch in Batching::ALL {
            let run = in_memory(|bench| create_pending(bench, switch, 3, 32));
            assert!(run.fsync_ns > 0.0 && run.total_ns >= run.fsync_ns);
            assert_eq!((run.counts.get("fsyncs"), run.counts.get("clean_fsyncs")), (1, 0));
        }
    }

    #[test]
    fn with_commits_held_back_the_fsync_logs_all_files() {
        // More than two batches hold.
        let (dirs, files) = (4, 8192);
        for &switch in Batching::ALL {
            let counts = in_memory(|bench| create_held(bench, switch, dirs, files)).counts;
            // An inode and a name each, and the directories.
            assert!(counts.get("log_records") >= 2 * dirs * files + dirs);
            assert!(counts.get("log_batches") > 2);
            for none in ["commits", "log_full", "log_too_large"] {
                assert_eq!(counts.get(none), 0, "{none}");
            }
        }
    }
}
