//! Cuts power at every call that a script makes the engine send to its device.
//!
//! The script runs once, on the engine over a recording device and on the model
//! beside it. Then the recording is walked: after every write and flush, and
//! after the return of everything that promises durability, each image that the
//! policy chooses is opened (`visit`) and judged ([`History`]).
//! Images that hold the same bytes are opened once and judged every time.
//! Many scripts can begin on one prepared volume ([`Ground`]): then they also
//! share what was found in the images that they have in common.
//!
//! A failure names script, event and image; `Policy::only` goes back there.

mod memo;
mod run;
mod walk;

use std::fmt;

use holdfast_device::sim::{Event, Faults};
use holdfast_device::{MemoryDevice, sim};
use holdfast_script::Script;

use crate::Setup;
use crate::history::History;
use crate::visit::without_panic;
pub(crate) use memo::Memo;
use run::line;
pub(crate) use run::{apply, prepare};
use walk::{Judge, Wrong};

/// How a script is tortured.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Which images of each cut, and the seed.
    pub images: sim::Policy,
    /// Bytes of the volume.
    pub volume: u64,
    /// Bytes of a sector: where writes tear.
    pub sector: u32,
    /// Bytes of a physical sector: what a torn write takes along. At least those of a sector.
    pub physical_sector: u32,
    /// How the volume is made and mounted.
    pub setup: Setup,
    /// In every n-th image power fails again while it is mounted; 0 for never.
    pub recovery: u64,
    /// So many times one inside the other. At least 1.
    pub deep: u32,
    /// Whether the volume is unmounted behind the script, and power cut in that as well.
    pub unmount: bool,
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
            physical_sector: 512,
            setup: Setup::new(4096, 16),
            recovery: 50,
            deep: 1,
            unmount: true,
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
    /// Bytes that scripts wrote straight into blocks that were reserved.
    pub in_place: u64,
    /// Ranges that the volume discarded.
    pub discards: u64,
}

impl std::ops::AddAssign for Stats {
    fn add_assign(&mut self, other: Stats) {
        self.events += other.events;
        self.cuts += other.cuts;
        self.images += other.images;
        self.opened += other.opened;
        self.recoveries.0 += other.recoveries.0;
        self.recoveries.1 += other.recoveries.1;
        self.in_place += other.in_place;
        self.discards += other.discards;
    }
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

impl Failure {
    /// The promise that is broken, as `docs/DURABILITY.md` numbers them: what is wrong begins with it.
    pub fn promise(&self) -> &str {
        self.what.split_once(':').map_or("", |(promise, _)| promise)
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
    Ground::new(before, policy)
        .map_err(|failure| Failure { script: both(before, script), ..failure })?
        .power_cut(script)
}

/// Both on one line.
pub(crate) fn both(before: &Script, script: &Script) -> String {
    match before.steps.is_empty() {
        true => line(script),
        false => format!("{}; (prepared) {}", line(before), line(script)),
    }
}

/// A prepared volume on which scripts begin, and what was found in the images that they left.
/// Several threads may use it at once.
#[derive(Debug)]
pub struct Ground {
    before: Script,
    policy: Policy,
    history: History,
    base: MemoryDevice,
    memo: Memo,
}

impl Ground {
    /// Makes a volume, runs `before` on it and unmounts it; power is not cut in that.
    pub fn new(before: &Script, policy: &Policy) -> Result<Ground, Failure> {
        let mut history = History::new();
        let base = without_panic(|| prepare(before, policy, &mut history)).map_err(|what| {
            let (seed, lost) = (policy.images.seed, String::new());
            Failure { script: line(before), place: None, lost, seed, what }
        })?;
        let (before, policy, memo) = (before.clone(), policy.clone(), Memo::default());
        Ok(Ground { before, policy, history, base, memo })
    }

    /// How scripts are tortured here.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// What prepared the volume.
    pub fn before(&self) -> &Script {
        &self.before
    }

    /// Runs `script`, cuts power at every event, and judges every image, up to the first that is wrong.
    pub fn power_cut(&self, script: &Script) -> Result<Stats, Failure> {
        match self.torture(script, 1)? {
            (stats, None) => Ok(stats),
            (_, Some(wrong)) => Err(self.failure(script, wrong)),
        }
    }

    /// The failure in which the fewest writes are lost, among the first hundred.
    pub fn plainest_failure(&self, script: &Script) -> Option<Failure> {
        match self.torture(script, 100) {
            Ok((_, None)) => None,
            Ok((_, Some(wrong))) => Some(self.failure(script, wrong)),
            Err(failure) => Some(failure),
        }
    }

    fn torture(&self, script: &Script, limit: usize) -> Result<(Stats, Option<Wrong>), Failure> {
        let mut history = self.history.clone();
        let before = history.len();
        let recorded =
            without_panic(|| run::record(&self.base, script, &self.policy, &mut history));
        let (recording, in_place) = recorded.map_err(|what| Failure {
            script: both(&self.before, script),
            place: None,
            lost: String::new(),
            seed: self.policy.images.seed,
            what,
        })?;
        let judge = Judge::new(&history, &self.policy, &self.memo, before).collecting(limit);
        let (stats, wrong) = judge.run(&recording);
        let discards = recording.events.iter();
        let discards =
            discards.filter(|event| matches!(event, Event::Discard { .. })).count() as u64;
        let stats = Stats { in_place, discards, ..stats };
        Ok((stats, wrong.into_iter().min_by_key(|wrong| wrong.losses)))
    }

    fn failure(&self, script: &Script, wrong: Wrong) -> Failure {
        Failure {
            script: both(&self.before, script),
            place: Some(wrong.place),
            lost: wrong.lost,
            seed: self.policy.images.seed,
            what: wrong.what,
        }
    }
}
