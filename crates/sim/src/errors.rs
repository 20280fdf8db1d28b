//! Makes the first device call of a kind fail, then the second, until a run has none left to fail.
//!
//! Each run stops at the first operation that answers with the failure. Then the
//! engine is asked to sync and to unmount, whatever it answers; it must not
//! panic, and it must not say that a flush succeeded after one has failed (P7).
//! What the device may hold afterwards is judged like after a power cut: all
//! that was promised before the failure is there (P9), and the volume is whole.

use std::sync::Arc;

use holdfast_device::sim::{Call, Event, Faults, Recording};
use holdfast_device::{Device, MemoryDevice, SimDevice};
use holdfast_script::{Errno, Op, Outcome, Script, Target};

use crate::history::History;
use crate::power::{apply, line, prepare};
use crate::visit::{visit, without_panic};
use crate::{Engine, Failure, Policy};

/// Runs `script` once for each call of this kind that it makes, and makes that call fail; with
/// `from_then_on` all later calls of the kind as well. Gives the number of runs that met a failure.
pub fn fail_each(
    script: &Script,
    call: Call,
    from_then_on: bool,
    policy: &Policy,
) -> Result<u64, Failure> {
    count_each(script, call, from_then_on, policy).map(|outcomes| outcomes.sites())
}

/// What became of the calls that failed, one in each run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Runs in which an operation answered with an error.
    pub reported: u64,
    /// Runs in which everything worked: it was tried again, or its result was of no use to anybody.
    pub survived: u64,
}

impl Outcomes {
    /// Calls that failed.
    pub fn sites(&self) -> u64 {
        self.reported + self.survived
    }
}

/// As [`fail_each`], with what became of each run.
pub fn count_each(
    script: &Script,
    call: Call,
    from_then_on: bool,
    policy: &Policy,
) -> Result<Outcomes, Failure> {
    let mut nth = 1;
    let mut outcomes = Outcomes::default();
    loop {
        let faults = match from_then_on {
            true => Faults::fail_from(call, nth),
            false => Faults::fail_once(call, nth),
        };
        let met = without_panic(|| run(script, faults, policy)).map_err(|what| Failure {
            script: line(script),
            place: None,
            lost: format!("[{} {nth} fails, for ever: {from_then_on}]", call.name()),
            seed: policy.images.seed,
            what,
        })?;
        match met {
            Met::Nothing => return Ok(outcomes),
            Met::Reported => outcomes.reported += 1,
            Met::Survived => outcomes.survived += 1,
        }
        nth += 1;
    }
}

/// What a run has met.
enum Met {
    /// No call failed: there are no more.
    Nothing,
    Reported,
    Survived,
}

/// One run. What became of the failure.
fn run(script: &Script, faults: Faults, policy: &Policy) -> Result<Met, String> {
    let mut history = History::new();
    let base = prepare(&Script::default(), policy, &mut history)?;
    let device = Arc::new(SimDevice::new(&base));
    let under = Arc::clone(&device) as Arc<dyn Device>;
    let mut engine =
        Engine::open(under, policy.setup.clone()).map_err(|error| format!("mount: {error}"))?;
    device.set_faults(faults);
    let failed = script.ops().try_for_each(|op| step(op, &mut engine, &mut history));
    let (returned, started) = match &failed {
        Ok(()) => (history.len(), history.len()),
        Err(Step::Failed) => (history.len() - 1, history.len()),
        Err(Step::Wrong(what)) => return Err(what.clone()),
    };
    // What a checkpoint's failure stops may all be durable already: then a sync has nothing to do.
    let durable = engine.is_durable();
    let synced = engine.apply(&Op::Sync);
    let unmounted = engine.unmount();
    let recording = device.recording();
    let flush_failed =
        recording.events.iter().any(|event| matches!(event, Event::FlushFailed { .. }));
    if flush_failed && matches!(synced, Outcome::Ok(_)) && failed.is_err() && !durable {
        return Err("sync succeeded although a flush had failed before (P7)".into());
    }
    let heard = failed.is_err() || !matches!(synced, Outcome::Ok(_)) || unmounted.is_err();
    drop((engine, unmounted));
    judge(&recording, &history, returned, started, policy)?;
    Ok(match device.faults_fired() > 0 {
        false => Met::Nothing,
        true if heard => Met::Reported,
        true => Met::Survived,
    })
}

/// Why a run stopped.
enum Step {
    /// The device's failure has come up.
    Failed,
    /// Something else is wrong.
    Wrong(String),
}

fn step(op: &Op, engine: &mut Engine, history: &mut History) -> Result<(), Step> {
    // A remount unmounts first; what its failure leaves mounted nobody has promised.
    match apply(op, engine, history) {
        Ok(()) => Ok(()),
        Err((Outcome::Err(Errno::EIO | Errno::EROFS | Errno::ENOTCONN), _)) => {
            history.push_failed(op);
            Err(Step::Failed)
        }
        Err((_, what)) => Err(Step::Wrong(what)),
    }
}

/// Every image that may be left at the end.
fn judge(
    recording: &Recording,
    history: &History,
    returned: usize,
    started: usize,
    policy: &Policy,
) -> Result<(), String> {
    let cut = recording.cut_at(recording.events.len());
    for image in cut.images(&policy.images) {
        let place =
            |what: String| format!("image {} ({}): {what}", image.number(), image.describe());
        let device: MemoryDevice = image.device();
        let tree = visit(device, &policy.setup, true).map_err(place)?;
        history.judge(&tree, returned, started).map_err(place)?;
    }
    Ok(())
}
