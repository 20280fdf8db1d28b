//! Cuts power at every call that a script makes the engine send to its device.
//!
//! The script runs once, on the engine over a recording device and on the model
//! beside it. Then the recording is walked: after every write and flush, and
//! after the return of everything that promises durability, each image that the
//! policy chooses is opened (`visit`) and judged ([`History`]).
//! Images that hold the same bytes are opened once and judged every time.
//!
//! A failure names script, event and image; `Policy::only` goes back there.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;

use holdfast_device::sim::{CrashImage, Cut, Event, Faults, Recording};
use holdfast_device::{Device, MemoryDevice, SimDevice, sim};
use holdfast_script::{Answer, Data, Errno, Op, Outcome, Place, Script, Target, Tree};

use crate::history::History;
use crate::visit::{visit, visit_recovery, without_panic};
use crate::{Engine, Setup};

/// One opened image in so many is used on.
const USED_ON: u64 = 3;

/// How a script is tortured.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Which images of each cut, and the seed.
    pub images: sim::Policy,
    /// Bytes of the volume.
    pub volume: u64,
    /// Bytes of a sector: where writes tear.
    pub sector: u32,
    /// How the volume is made and mounted.
    pub setup: Setup,
    /// In every n-th image power fails again while it is mounted; 0 for never.
    pub recovery: u64,
    /// So many times one inside the other. At least 1.
    pub deep: u32,
    /// Lies of the device while the script runs, to see that they are found out.
    pub faults: Faults,
    /// Only this image: the number of the event and of the image, as a failure names them.
    pub only: Option<(usize, usize)>,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            images: sim::Policy { each: 6, samples: 6, torn: 6, ..sim::Policy::default() },
            volume: 16 << 20,
            sector: 512,
            setup: Setup::new(4096, 16),
            recovery: 50,
            deep: 1,
            faults: Faults::none(),
            only: None,
        }
    }
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Calls of the device.
    pub events: u64,
    /// Moments at which power was cut.
    pub cuts: u64,
    /// Images judged.
    pub images: u64,
    /// Images opened: those with different bytes.
    pub opened: u64,
    /// Images opened in which recovery was cut as well, and the images of those.
    pub recoveries: (u64, u64),
}

/// A promise that was broken, and how to see it again.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The script, with what prepared the volume before it.
    pub script: String,
    /// Where power was cut: number of the event and of the image; `None` if the run itself failed.
    pub place: Option<(usize, usize)>,
    /// The event and what was lost.
    pub lost: String,
    /// Seed of the images.
    pub seed: u64,
    /// What is wrong.
    pub what: String,
}

impl std::error::Error for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "power cut: seed {}", self.seed)?;
        if let Some((event, image)) = self.place {
            write!(f, ", only ({event}, {image})")?;
        }
        write!(f, ", script \"{}\": {} {}", self.script, self.lost, self.what)
    }
}

/// Runs `script` on a new volume, cuts power at every event, and judges every image.
pub fn power_cut(script: &Script, policy: &Policy) -> Result<Stats, Failure> {
    power_cut_after(&Script::default(), script, policy)
}

/// As [`power_cut`], on a volume that `before` has prepared and left by a clean unmount; power is
/// not cut in `before`.
pub fn power_cut_after(
    before: &Script,
    script: &Script,
    policy: &Policy,
) -> Result<Stats, Failure> {
    let failed = |what: String| Failure {
        script: match before.steps.is_empty() {
            true => line(script),
            false => format!("{}; (prepared) {}", line(before), line(script)),
        },
        place: None,
        lost: String::new(),
        seed: policy.images.seed,
        what,
    };
    let mut history = History::new();
    let base = without_panic(|| prepare(before, policy, &mut history)).map_err(failed)?;
    let recording =
        without_panic(|| record(&base, script, policy, &mut history)).map_err(failed)?;
    let mut judge = Judge {
        history: &history,
        policy,
        opened: HashMap::new(),
        stats: Stats { events: recording.events.len() as u64, ..Stats::default() },
        acked: history.len() - script.steps.len() - 1,
        started: history.len() - script.steps.len() - 1,
    };
    judge.walk(&recording).map_err(|wrong| Failure {
        place: Some(wrong.place),
        lost: wrong.lost,
        ..failed(wrong.what)
    })?;
    Ok(judge.stats)
}

/// The script on one line.
pub(crate) fn line(script: &Script) -> String {
    let ops: Vec<String> = script.ops().map(ToString::to_string).collect();
    ops.join("; ")
}

/// The volume on which the script begins, unmounted.
pub(crate) fn prepare(
    before: &Script,
    policy: &Policy,
    history: &mut History,
) -> Result<MemoryDevice, String> {
    let device = Arc::new(MemoryDevice::with_sector_size(policy.volume, policy.sector));
    let under = Arc::clone(&device) as Arc<dyn Device>;
    let mut engine = Engine::create(under, policy.setup.clone())
        .map_err(|error| format!("mkfs and mount: {error}"))?;
    for op in before.ops() {
        apply(op, &mut engine, history).map_err(|(_, why)| why)?;
    }
    leave(engine, history)?;
    Ok(device.snapshot())
}

/// Runs the script and then unmounts, with a mark before and after each operation.
fn record(
    base: &MemoryDevice,
    script: &Script,
    policy: &Policy,
    history: &mut History,
) -> Result<Recording, String> {
    let device = Arc::new(SimDevice::with_faults(base, policy.faults.clone()));
    let under = Arc::clone(&device) as Arc<dyn Device>;
    let mut engine =
        Engine::open(under, policy.setup.clone()).map_err(|error| format!("mount: {error}"))?;
    for op in script.ops() {
        if *op == Op::Crash {
            return Err("power is cut by us; take `crash` out of the script".into());
        }
        device.mark(begun(history.len()));
        apply(op, &mut engine, history).map_err(|(_, why)| why)?;
        device.mark(returned(history.len()));
    }
    device.mark(begun(history.len()));
    leave(engine, history)?;
    device.mark(returned(history.len()));
    Ok(device.recording())
}

/// Runs one operation on the engine and adds it to the history; an answer that the model does not
/// give comes back with the reason. A write that ran out of space in its middle goes in as the part
/// that was written.
pub(crate) fn apply(
    op: &Op,
    engine: &mut Engine,
    history: &mut History,
) -> Result<(), (Outcome, String)> {
    let place = match op {
        Op::Write { place, .. } => Some(place.clone()),
        Op::Append { path, .. } => Some(Place::Path(path.clone())),
        _ => None,
    };
    let size = |engine: &mut Engine| match engine.apply(&Op::Stat { place: place.clone()? }) {
        Outcome::Ok(Answer::Stat(stat)) => Some(stat.size),
        _ => None,
    };
    let before = size(engine);
    let flushes = engine.device().stats().flushes;
    let answer = engine.apply(op);
    // Or somebody else made durable what an fsync was to, and no more than that.
    let quiet = engine.device().stats().flushes == flushes || !engine.is_durable();
    let mut add = |op: &Op, answer: Outcome| {
        history.push(op, &answer).map_err(|why| (answer, why))?;
        if quiet {
            history.found_nothing_undurable();
        }
        Ok(())
    };
    let (Outcome::Err(Errno::ENOSPC), Some(place), Some(before)) = (&answer, &place, before) else {
        return add(op, answer);
    };
    let (offset, data) = match op {
        Op::Write { offset, data, .. } => (*offset, data.bytes()),
        Op::Append { data, .. } => (before, data.bytes()),
        _ => return add(op, answer),
    };
    let read = Op::Read { place: place.clone(), offset, len: data.len() as u64 };
    let Outcome::Ok(Answer::Bytes(there)) = engine.apply(&read) else {
        return add(op, answer);
    };
    let part = data.iter().zip(&there).take_while(|(wanted, found)| wanted == found).count();
    if part == 0 {
        return add(op, answer);
    }
    let data = Data::Literal(data[..part].to_vec());
    let written = Op::Write { place: place.clone(), offset, data };
    add(&written, Outcome::Ok(Answer::Done))
}

/// Unmounts, which is to the history what a remount is.
fn leave(mut engine: Engine, history: &mut History) -> Result<(), String> {
    engine.unmount().map_err(|error| format!("unmount: {error}"))?;
    history.push(&Op::Remount, &Outcome::Ok(Answer::Done))
}

/// The mark before operation `op` (from 0).
fn begun(op: usize) -> u64 {
    op as u64 * 2
}

/// The mark when `ops` operations have returned.
fn returned(ops: usize) -> u64 {
    ops as u64 * 2 - 1
}

/// Where and what went wrong.
struct Wrong {
    place: (usize, usize),
    lost: String,
    what: String,
}

struct Judge<'a> {
    history: &'a History,
    policy: &'a Policy,
    /// What was found in images that have been opened, by fingerprint.
    opened: HashMap<u64, Result<Tree, String>>,
    stats: Stats,
    /// Operations that have returned.
    acked: usize,
    /// Operations that have begun.
    started: usize,
}

impl Judge<'_> {
    fn walk(&mut self, recording: &Recording) -> Result<(), Wrong> {
        let mut cut = recording.start();
        self.cut(&cut, None)?;
        for event in &recording.events {
            cut.advance(event);
            let worth = match event {
                Event::Mark(mark) if mark % 2 == 0 => {
                    self.started = *mark as usize / 2 + 1;
                    false
                }
                Event::Mark(mark) => {
                    self.acked = (*mark as usize).div_ceil(2);
                    self.history.is_barrier(self.acked - 1)
                }
                event => event.changes_images(),
            };
            if worth {
                self.cut(&cut, Some(event))?;
            }
        }
        Ok(())
    }

    /// Power fails here.
    fn cut(&mut self, cut: &Cut, event: Option<&Event>) -> Result<(), Wrong> {
        if self.policy.only.is_some_and(|(index, _)| index != cut.index()) {
            return Ok(());
        }
        self.stats.cuts += 1;
        for image in cut.images(&self.policy.images) {
            if self.policy.only.is_some_and(|(_, number)| number != image.number()) {
                continue;
            }
            self.image(&image).map_err(|what| {
                let (acked, started) = (self.acked, self.started);
                let event = event.map_or("start".into(), |event| format!("{event:?}"));
                let lost = image.describe();
                Wrong {
                    place: (cut.index(), image.number()),
                    lost: format!("[{event}; {lost}; {acked} of {started} operations returned]"),
                    what,
                }
            })?;
        }
        Ok(())
    }

    fn image(&mut self, image: &CrashImage<'_>) -> Result<(), String> {
        self.stats.images += 1;
        let found = match self.opened.entry(image.fingerprint()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                self.stats.opened += 1;
                let setup = &self.policy.setup;
                let again = self.policy.recovery != 0
                    && self.stats.opened.is_multiple_of(self.policy.recovery);
                new.insert(if again {
                    let few = sim::Policy {
                        exhaustive: 2,
                        each: 2,
                        samples: 2,
                        torn: 2,
                        ..self.policy.images
                    };
                    visit_recovery(&image.device(), setup, &few, self.policy.deep).map(
                        |(tree, images)| {
                            self.stats.recoveries.0 += 1;
                            self.stats.recoveries.1 += images;
                            tree
                        },
                    )
                } else {
                    visit(image.device(), setup, self.stats.opened.is_multiple_of(USED_ON))
                })
            }
        };
        let tree = found.as_ref().map_err(Clone::clone)?;
        self.history.judge(tree, self.acked, self.started).map(drop)
    }
}
