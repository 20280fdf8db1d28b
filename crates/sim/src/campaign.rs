//! Power cuts over scripts from several sources, by several threads, up to its limits.
//!
//! One seed decides everything: the same campaign with the same limits in
//! workloads judges the same states. Limits in time or states only end it
//! earlier. Every failure is made small and saved as a [`Case`].
//!
//! Finite sources are gone through first, then all others in turn.

mod sources;

pub use sources::Source;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_base::clock::Deadline;
use holdfast_script::{Script, shrink};

use crate::{Case, Failure, Stats};
use sources::{Job, Queue};

/// What shall be done.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// Decides everything random.
    pub seed: u64,
    /// Threads that work. At least 1.
    pub workers: usize,
    /// Bytes of a sector: 512 or 4096.
    pub sector: u32,
    /// Bytes of a physical sector, 512 or 4096: what a torn write takes along. At least those of a sector.
    pub physical_sector: u32,
    /// How often nodes and what is in the rings are stored, 1 or 2 times; drawn for each script if `None`.
    pub copies: Option<u8>,
    /// Where scripts come from.
    pub sources: Vec<Source>,
    /// Ends after this time.
    pub time: Option<Duration>,
    /// Ends when so many states have been judged.
    pub states: Option<u64>,
    /// Ends when so many failures have been found.
    pub failures: usize,
    /// Where failures are saved.
    pub cases: Option<PathBuf>,
}

/// What was done so far with the scripts of one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The source in words.
    pub source: String,
    /// Scripts.
    pub workloads: u64,
    /// Of all scripts.
    pub stats: Stats,
    /// Scripts in which a promise was broken.
    pub violations: u64,
}

/// A promise that was broken.
#[derive(Clone, Debug)]
pub struct Violation {
    /// As it was found.
    pub first: Failure,
    /// Made small.
    pub case: Case,
    /// What still fails in the small one.
    pub small: Failure,
    /// The folder in which it is saved, or why it could not be.
    pub saved: Option<Result<PathBuf, String>>,
}

impl Campaign {
    /// Does it. `watch` is called now and then, and at the end, with what was done so far.
    /// The error is a volume that cannot even be prepared.
    pub fn run(
        &self,
        watch: &mut dyn FnMut(&[Progress]),
    ) -> Result<(Vec<Progress>, Vec<Violation>), Failure> {
        let queue = Mutex::new(Queue::new(self)?);
        let rows = self
            .sources
            .iter()
            .map(|source| Progress { source: source.to_string(), ..Progress::default() });
        let shared = Shared {
            campaign: self,
            queue,
            rows: Mutex::new(rows.collect()),
            violations: Mutex::new(Vec::new()),
            states: AtomicU64::new(0),
            deadline: self.time.map(Deadline::after),
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> =
                (0..self.workers.max(1)).map(|_| scope.spawn(|| shared.work())).collect();
            while workers.iter().any(|worker| !worker.is_finished()) {
                std::thread::park_timeout(Duration::from_millis(100));
                watch(&shared.rows());
            }
        });
        let rows = shared.rows();
        watch(&rows);
        let violations = shared.violations.into_inner().expect(NO_PANIC);
        Ok((rows, violations))
    }
}

/// Panics of the engine are findings, caught where it runs.
const NO_PANIC: &str = "no worker panics while it holds this";

struct Shared<'a> {
    campaign: &'a Campaign,
    queue: Mutex<Queue>,
    rows: Mutex<Vec<Progress>>,
    violations: Mutex<Vec<Violation>>,
    states: AtomicU64,
    deadline: Option<Deadline>,
}

impl Shared<'_> {
    fn rows(&self) -> Vec<Progress> {
        self.rows.lock().expect(NO_PANIC).clone()
    }

    fn is_over(&self) -> bool {
        let enough =
            |limit: Option<u64>| limit.is_some_and(|n| self.states.load(Ordering::Relaxed) >= n);
        self.deadline.is_some_and(Deadline::is_over)
            || enough(self.campaign.states)
            || self.violations.lock().expect(NO_PANIC).len() >= self.campaign.failures.max(1)
    }

    fn work(&self) {
        while !self.is_over() {
            let Some(job) = self.queue.lock().expect(NO_PANIC).next() else {
                return;
            };
            let script = job.script();
            let done = job.ground.power_cut(&script);
            let stats = done.as_ref().copied().unwrap_or_default();
            self.states.fetch_add(stats.images, Ordering::Relaxed);
            let row = &mut self.rows.lock().expect(NO_PANIC)[job.source];
            row.workloads += 1;
            row.stats += stats;
            row.violations += u64::from(done.is_err());
            if let Err(failure) = done {
                self.violations
                    .lock()
                    .expect(NO_PANIC)
                    .push(self.violation(&job, &script, failure));
            }
        }
    }

    /// Makes a failure small, and saves it.
    fn violation(&self, job: &Job, script: &Script, first: Failure) -> Violation {
        let ground = &job.ground;
        let same = |script: &Script| {
            ground.power_cut(script).is_err_and(|failure| failure.promise() == first.promise())
        };
        let small_script = shrink(script, same);
        let small = ground.plainest_failure(&small_script).unwrap_or_else(|| first.clone());
        let case = Case::of(&small, &small_script, ground, &job.name);
        let saved = self.campaign.cases.as_ref().map(|folder| {
            let folder = folder.join(case.name());
            case.write(&folder)
                .map_err(|error| format!("{}: {error}", folder.display()))
                .map(|()| folder)
        });
        Violation { first, case, small, saved }
    }
}
