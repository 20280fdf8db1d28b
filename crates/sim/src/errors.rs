//! Makes the first device call of a kind fail, then the second, until a run has none left to fail.
//!
//! Each run stops at the first operation that answers with the failure. Then the
//! engine is asked to sync and to unmount, whatever it answers; it must not
//! panic, and it must not say that a flush succeeded after one has failed (P7).
//! What the device may hold afterwards is judged like after a power cut: all
//! that was promised before the failure is there (P9), and the volume is whole.
//!
//! A call that panics stands for a bug anywhere in the thread that made it, at that step. A thread that dies in a
//! write or a flush has begun something that others would build on: the volume must have stopped.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use holdfast_device::sim::{self, Call, Event, Faults, Recording};
use holdfast_device::{Device, MemoryDevice, SimDevice};
use holdfast_script::{Errno, Op, Outcome, Script, Target};

use crate::history::History;
use crate::power::{Memo, apply, both, prepare};
use crate::visit::{visit, without_panic};
use crate::{Engine, Failure, Policy};

/// How a call goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// It fails, and later ones do not.
    FailsOnce,
    /// It fails, and all later ones of its kind.
    FailsForEver,
    /// It panics, and later ones do not.
    Panics,
}

impl FaultKind {
    /// All of them.
    pub const ALL: [FaultKind; 3] =
        [FaultKind::FailsOnce, FaultKind::FailsForEver, FaultKind::Panics];

    /// The words in tables.
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::FailsOnce => "fails once",
            FaultKind::FailsForEver => "fails from then on",
            FaultKind::Panics => "panics once",
        }
    }

    /// The faults of a device whose `nth` call goes wrong.
    pub fn at(self, call: Call, nth: u64) -> Faults {
        match self {
            FaultKind::FailsOnce => Faults::fail_once(call, nth),
            FaultKind::FailsForEver => Faults::fail_from(call, nth),
            FaultKind::Panics => Faults::panic_once(call, nth),
        }
    }
}

/// Runs `script` once for each call of this kind that it makes, and makes that call fail; with
/// `from_then_on` all later calls of the kind as well. Gives the number of runs that met a failure.
pub fn fail_each(
    script: &Script,
    call: Call,
    from_then_on: bool,
    policy: &Policy,
) -> Result<u64, Failure> {
    let how = if from_then_on { FaultKind::FailsForEver } else { FaultKind::FailsOnce };
    count_each(&Script::default(), script, call, how, policy).map(|outcomes| outcomes.sites())
}

/// What became of the calls that failed, one in each run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Runs in which an operation answered with an error.
    pub reported: u64,
    /// Runs in which everything worked: the call was tried again, or its result was not used.
    pub survived: u64,
    /// Of all runs, those in which the volume had stopped at the end.
    pub stopped: u64,
}

impl Outcomes {
    /// Calls that failed.
    pub fn sites(&self) -> u64 {
        self.reported + self.survived
    }
}

/// As [`fail_each`], on a volume that `before` has prepared, in which nothing fails, and with what became of each run.
pub fn count_each(
    before: &Script,
    script: &Script,
    call: Call,
    how: FaultKind,
    policy: &Policy,
) -> Result<Outcomes, Failure> {
    let failure = |lost, what| Failure {
        script: both(before, script),
        place: None,
        lost,
        seed: policy.images.seed,
        what,
    };
    let start = without_panic(|| Start::new(before, policy));
    let start = start.map_err(|what| failure(String::new(), what))?;
    let mut nth = 1;
    let mut outcomes = Outcomes::default();
    loop {
        let met = without_panic(|| run(&start, script, call, how, nth))
            .map_err(|what| failure(format!("[{} {nth} {}]", call.name(), how.name()), what))?;
        let Some(met) = met else { return Ok(outcomes) };
        match met.is_reported {
            true => outcomes.reported += 1,
            false => outcomes.survived += 1,
        }
        outcomes.stopped += u64::from(met.has_stopped);
        nth += 1;
    }
}

/// What all runs begin with, and what was found in the images that they left.
struct Start<'a> {
    policy: &'a Policy,
    history: History,
    base: MemoryDevice,
    memo: Memo,
}

impl<'a> Start<'a> {
    fn new(before: &Script, policy: &'a Policy) -> Result<Start<'a>, String> {
        let mut history = History::new();
        let base = prepare(before, policy, &mut history)?;
        Ok(Start { policy, history, base, memo: Memo::default() })
    }
}

/// What a run has met, if a call went wrong at all.
struct Met {
    is_reported: bool,
    has_stopped: bool,
}

/// One run. What became of the failure; `None` if there are no more such calls.
fn run(
    start: &Start<'_>,
    script: &Script,
    call: Call,
    how: FaultKind,
    nth: u64,
) -> Result<Option<Met>, String> {
    let mut history = start.history.clone();
    let device = Arc::new(SimDevice::new(&start.base));
    let under = Arc::clone(&device) as Arc<dyn Device>;
    let mut engine = Engine::open(under, start.policy.setup.clone())
        .map_err(|error| format!("mount: {error}"))?;
    device.set_faults(how.at(call, nth));
    let failed = script.ops().try_for_each(|op| step(op, &mut engine, &mut history));
    let (returned, started) = match &failed {
        Ok(()) => (history.len(), history.len()),
        Err(Step::Failed) => (history.len() - 1, history.len()),
        Err(Step::Wrong(what)) => return Err(what.clone()),
    };
    // What a checkpoint's failure stops may all be durable already: then a sync has nothing to do.
    let durable = engine.is_durable();
    // Only what the script did not reach is still left to panic.
    let synced = wanted_panic(|| engine.apply(&Op::Sync)).unwrap_or(Outcome::Err(Errno::EIO));
    let has_stopped = engine.filesystem().is_ok_and(|engine| engine.stop_reason().is_some());
    let is_mounted = engine.filesystem().is_ok();
    let has_panicked = how == FaultKind::Panics && device.faults_fired() > 0;
    if has_panicked && is_mounted && !has_stopped && matches!(call, Call::Write | Call::Flush) {
        return Err("a thread has died in a step, and the volume goes on (P7)".into());
    }
    let unmounted = wanted_panic(|| engine.unmount());
    let recording = device.recording();
    let flush_failed =
        recording.events.iter().any(|event| matches!(event, Event::FlushFailed { .. }));
    if flush_failed && matches!(synced, Outcome::Ok(_)) && failed.is_err() && !durable {
        return Err("sync succeeded although a flush had failed before (P7)".into());
    }
    let is_reported = failed.is_err()
        || !matches!(synced, Outcome::Ok(_))
        || unmounted.as_ref().is_none_or(Result::is_err);
    drop((engine, unmounted));
    judge(&recording, &history, returned, started, start)?;
    Ok((device.faults_fired() > 0).then_some(Met { is_reported, has_stopped }))
}

/// What `act` answers; `None` if it has met the panic that the device was asked for, in its own thread or in one that
/// it has started: a panic goes from thread to thread with its own words. Any other one goes on.
fn wanted_panic<T>(act: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(done) => Some(done),
        Err(panic) if sim::is_injected(&*panic) => None,
        Err(panic) => resume_unwind(panic),
    }
}

/// Why a run stopped.
enum Step {
    /// The device's failure has come up.
    Failed,
    /// Something else is wrong.
    Wrong(String),
}

fn step(op: &Op, engine: &mut Engine, history: &mut History) -> Result<(), Step> {
    // A remount unmounts first; no promise says what stays mounted after a failure.
    let Some(done) = wanted_panic(|| apply(op, engine, history)) else {
        history.push_failed(op);
        return Err(Step::Failed);
    };
    match done {
        Ok(()) => Ok(()),
        Err((Outcome::Err(Errno::EIO | Errno::EROFS | Errno::ENOTCONN), _)) => {
            history.push_failed(op);
            Err(Step::Failed)
        }
        Err((_, what)) => Err(Step::Wrong(what)),
    }
}

/// Every image that may be left at the end. Runs leave many in common, none of which is opened twice.
fn judge(
    recording: &Recording,
    history: &History,
    returned: usize,
    started: usize,
    start: &Start<'_>,
) -> Result<(), String> {
    let Policy { images, setup, .. } = start.policy;
    let cut = recording.cut_at(recording.events.len());
    for image in cut.images(images) {
        let place =
            |what: String| format!("image {} ({}): {what}", image.number(), image.describe());
        let fingerprint = image.fingerprint();
        let found = start.memo.get(fingerprint).unwrap_or_else(|| {
            let found = visit(image.device(), setup, Some(images.seed)).map(Arc::new);
            start.memo.insert(fingerprint, found)
        });
        history.judge(&*found.map_err(place)?, returned, started).map_err(place)?;
    }
    Ok(())
}
