//! One run: clients commit for a while, and what the device was asked meanwhile is counted.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use holdfast_bench::systems::{Bed, Mounted, signal};

use crate::stores::{Commits, Kind, Place};

/// How long clients commit before anything is counted: files are there then, and threads run.
const WARM_UP: Duration = Duration::from_millis(200);

/// What clients do.
pub(crate) struct Work {
    pub(crate) clients: u64,
    /// Bytes of a commit.
    pub(crate) size: usize,
    /// How many keys a client has; without it as many as it makes commits.
    pub(crate) keys: Option<u64>,
    /// How long it is counted.
    pub(crate) time: Duration,
}

/// How things stood at one moment.
#[derive(Clone, Copy)]
struct Moment {
    at: Instant,
    commits: u64,
    bytes: u64,
    flushes: u64,
}

impl Moment {
    fn now(bed: &Bed, commits: &AtomicU64) -> Result<Moment> {
        let asked = bed.asked()?;
        let commits = commits.load(Ordering::Relaxed);
        Ok(Moment {
            at: Instant::now(),
            commits,
            bytes: asked.written_bytes,
            flushes: asked.flushes,
        })
    }
}

/// What came out.
pub(crate) struct Run {
    /// Commits in a second.
    pub(crate) rate: f64,
    /// Flushes of the device for each commit.
    pub(crate) flushes: f64,
    /// Bytes that were written to it for each commit, as long as clients committed.
    pub(crate) bytes: f64,
    /// The same over the whole life of the store, until it was closed and its filesystem synced: what it had put off, too.
    pub(crate) bytes_until_closed: f64,
}

impl Work {
    /// Does it with a new store, which is gone afterwards.
    pub(crate) fn run(&self, kind: Kind, host: &Mounted<'_>, program: &Path) -> Result<Run> {
        let dir = host.dir().join("store");
        std::fs::create_dir(&dir)?;
        let place = Place { dir: &dir, program };
        let done = self.on(kind, &place, host);
        std::fs::remove_dir_all(&dir)?;
        host.quiesce()?;
        done.with_context(|| format!("{}, {} clients", kind.title(), self.clients))
    }

    fn on(&self, kind: Kind, place: &Place<'_>, host: &Mounted<'_>) -> Result<Run> {
        let store = kind.open(place)?;
        host.quiesce()?;
        let (bed, commits) = (host.bed(), AtomicU64::new(0));
        let opened = Moment::now(bed, &commits)?;
        let [from, to] = self.count(&*store, bed, &commits)?;
        store.close()?;
        host.quiesce()?;
        let closed = Moment::now(bed, &commits)?;
        let each = |value: u64, commits: u64| value as f64 / commits.max(1) as f64;
        let counted = to.commits - from.commits;
        let flushes = each(to.flushes - from.flushes, counted);
        // A lone client shares no flush. Two commits at most lie across the first and the last moment, with theirs outside.
        ensure!(
            self.clients > 1 || to.flushes - from.flushes + 2 >= counted,
            "{counted} commits with {flushes} flushes each are not durable"
        );
        Ok(Run {
            rate: counted as f64 / (to.at - from.at).as_secs_f64(),
            flushes,
            bytes: each(to.bytes - from.bytes, counted),
            bytes_until_closed: each(closed.bytes - opened.bytes, closed.commits),
        })
    }

    /// All clients at once; how things stood when counting began and ended.
    fn count(&self, store: &dyn Commits, bed: &Bed, commits: &AtomicU64) -> Result<[Moment; 2]> {
        let stop = AtomicBool::new(false);
        let client = |number| {
            let done = self.client(store, number, commits, &stop);
            stop.store(true, Ordering::Relaxed);
            done
        };
        thread::scope(|scope| {
            let client = &client;
            let start = |number| scope.spawn(move || client(number));
            let threads: Vec<_> = (0..self.clients).map(start).collect();
            thread::sleep(WARM_UP);
            let from = Moment::now(bed, commits);
            thread::sleep(self.time);
            let to = Moment::now(bed, commits);
            let failed = stop.swap(true, Ordering::Relaxed);
            for thread in threads {
                match thread.join() {
                    Ok(done) => done?,
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            ensure!(!failed, "a client has ended before its time");
            Ok([from?, to?])
        })
    }

    fn client(
        &self,
        store: &dyn Commits,
        number: u64,
        commits: &AtomicU64,
        stop: &AtomicBool,
    ) -> Result<()> {
        let mut commit = store.client(number)?;
        let mut value = vec![0; self.size];
        let mut random = fastrand::Rng::with_seed(number);
        for made in 0.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            if signal().is_some() {
                bail!("interrupted");
            }
            random.fill(&mut value);
            commit(self.keys.map_or(made, |keys| made % keys), &value)?;
            commits.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}
