//! Where the scripts of a campaign come from, and on which volumes they run.

use std::fmt;
use std::sync::Arc;

use holdfast_base::prng::Prng;
use holdfast_base::switch::{Batching, FsyncWait, RenameLog};
use holdfast_device::sim;
use holdfast_script::{Family, Profile, Script, full, generate};

use super::Campaign;
use crate::exhaustive::{Exhaustive, before, before_branches};
use crate::{Checkpoints, Failure, Ground, Policy, Setup};

/// The smallest volume there is: its rings are small too.
const VOLUME: u64 = 8 << 20;

/// One kind of scripts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// All sequences of so many operations ([`crate::exhaustive`]).
    Exhaustive(usize),
    /// Random sequences of so many operations; so many of them, or for ever.
    Sampled(usize, Option<u64>),
    /// Scripts of the difficult cases, all families in turn; so many, or for ever.
    Families(Vec<Family>, Option<u64>),
    /// Anything at all; so many, or for ever.
    Random(Option<u64>),
    /// As `Random`, while another thread makes commits or checkpoints. What is found does not always come
    /// back with the seed.
    Beside(Option<u64>),
    /// Of the families, on a volume that has no room but what its files have reserved; so many, or for ever.
    Full(Option<u64>),
    /// All sequences of so many operations on branches and in them.
    BranchSequences(usize),
    /// Of snapshots, forks, rollbacks and removals, with work in several branches; so many, or for ever.
    Branches(Option<u64>),
    /// As `Branches`, on a volume that has no room but what its files have reserved; so many, or for ever.
    FullBranches(Option<u64>),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Exhaustive(length) => write!(f, "all of length {length}"),
            Source::Sampled(length, _) => write!(f, "some of length {length}"),
            Source::Families(..) => f.write_str("families"),
            Source::Random(_) => f.write_str("random"),
            Source::Beside(_) => f.write_str("random, beside"),
            Source::Full(_) => f.write_str("full volumes"),
            Source::BranchSequences(length) => write!(f, "all of branches of length {length}"),
            Source::Branches(_) => f.write_str("branches"),
            Source::FullBranches(_) => f.write_str("branches, full volumes"),
        }
    }
}

/// A script that a thread has to torture.
pub(super) struct Job {
    pub(super) source: usize,
    pub(super) ground: Arc<Ground>,
    /// Source and seed, in words.
    pub(super) name: String,
    work: Work,
}

enum Work {
    Ready(Script),
    Sampled(Arc<Exhaustive>, u64),
    Family(Family, u64),
    Random(u64, bool),
    Full(Family, u64),
    Branches(u64),
}

impl Job {
    /// The script; made by the thread that runs it.
    pub(super) fn script(&self) -> Script {
        match &self.work {
            Work::Ready(script) => script.clone(),
            Work::Sampled(space, seed) => space.sample(*seed),
            Work::Family(family, seed) => family.generate(*seed, 2 + (seed % 4) as usize),
            Work::Random(seed, beside) => random(*seed, *beside),
            Work::Full(family, seed) => family.generate_full(*seed, 2 + (seed % 4) as usize),
            Work::Branches(seed) => of_branches(*seed),
        }
    }
}

fn random(seed: u64, beside: bool) -> Script {
    if beside && seed % 4 == 3 {
        // Operations of many steps, between which the other thread makes history durable.
        return Family::Holes.generate(seed, 2);
    }
    let usual = Profile { syncs: 40, evicts: 0, ..Profile::default() };
    let profile = match seed % 4 {
        // Few names and small data: what has found lost names for many years.
        0 | 1 => Profile { ops: 9, names: 2, depth: 2, write_max: 3000, syncs: 90, ..usual },
        2 => Profile { ops: 25, write_max: 9000, ..usual },
        _ => Profile { ops: 40, names: 4, ..usual },
    };
    generate(seed, &profile)
}

fn of_branches(seed: u64) -> Script {
    let usual = Profile { evicts: 0, ..Profile::branches() };
    let profile = match seed % 4 {
        0 | 1 => return Family::Branches.generate(seed, 2 + (seed % 5) as usize),
        // Hardly anything but branches.
        2 => Profile { ops: 30, names: 2, depth: 2, write_max: 9000, branches: 200, ..usual },
        _ => usual,
    };
    generate(seed, &profile)
}

/// The jobs in their order.
pub(super) struct Queue {
    seed: u64,
    sources: Vec<Running>,
    /// Finite ones are gone through up to here; from then on in turn.
    turn: usize,
}

struct Running {
    /// For each kind of volume those with metadata once and twice, or the one that the campaign wants.
    grounds: Vec<Vec<Arc<Ground>>>,
    next: u64,
    kind: Kind,
}

enum Kind {
    All(Box<Exhaustive>, Option<Script>),
    Sampled(Arc<Exhaustive>, u64),
    Families(Vec<Family>, u64),
    Random(u64, bool),
    /// Of all families, or of branches alone.
    Full(u64, bool),
    Branches(u64),
    Ended,
}

impl Queue {
    /// Prepares the volumes.
    pub(super) fn new(campaign: &Campaign) -> Result<Queue, Failure> {
        let sources = campaign.sources.iter().map(|source| Running::new(source, campaign));
        Ok(Queue { seed: campaign.seed, sources: sources.collect::<Result<_, _>>()?, turn: 0 })
    }

    /// The next script, if there is one.
    pub(super) fn next(&mut self) -> Option<Job> {
        let finite = |running: &Running| matches!(running.kind, Kind::All(..));
        let count = self.sources.len();
        let first = self.sources.iter().position(finite);
        let order: Vec<usize> = match first {
            Some(first) => vec![first],
            None => (0..count).map(|step| (self.turn + step) % count).collect(),
        };
        for source in order {
            if let Some((ground, name, work)) = self.sources[source].next(self.seed) {
                self.turn = source + 1;
                return Some(Job { source, ground, name, work });
            }
        }
        // An exhaustive source has just ended.
        first.and_then(|_| self.next())
    }
}

impl Running {
    fn new(source: &Source, campaign: &Campaign) -> Result<Running, Failure> {
        let policies = policies(source, campaign);
        let start = match source {
            Source::Exhaustive(_) | Source::Sampled(..) => before(),
            Source::Full(_) | Source::FullBranches(_) => full(),
            Source::BranchSequences(_) => before_branches(),
            _ => Script::default(),
        };
        let copies = campaign.copies.map_or(vec![1, 2], |copies| vec![copies]);
        let grounds = policies.iter().map(|policy| {
            let with = |&copies: &u8| {
                let mut policy = policy.clone();
                policy.setup.mkfs.metadata_copies = copies;
                Ground::new(&start, &policy).map(Arc::new)
            };
            copies.iter().map(with).collect()
        });
        let for_ever = |count: Option<u64>| count.unwrap_or(u64::MAX);
        let kind = match source {
            Source::Exhaustive(length) => Kind::All(Box::new(Exhaustive::new(*length)), None),
            Source::Sampled(length, count) => {
                Kind::Sampled(Arc::new(Exhaustive::new(*length)), for_ever(*count))
            }
            Source::Families(families, count) => Kind::Families(families.clone(), for_ever(*count)),
            Source::Random(count) => Kind::Random(for_ever(*count), false),
            Source::Beside(count) => Kind::Random(for_ever(*count), true),
            Source::Full(count) => Kind::Full(for_ever(*count), false),
            Source::FullBranches(count) => Kind::Full(for_ever(*count), true),
            Source::BranchSequences(length) => {
                Kind::All(Box::new(Exhaustive::of_branches(*length)), None)
            }
            Source::Branches(count) => Kind::Branches(for_ever(*count)),
        };
        Ok(Running { grounds: grounds.collect::<Result<_, _>>()?, next: 0, kind })
    }

    fn next(&mut self, seed: u64) -> Option<(Arc<Ground>, String, Work)> {
        let index = self.next;
        self.next += 1;
        let grounds = self.grounds.len() as u64;
        let seed = seed.wrapping_mul(1_000_003).wrapping_add(index);
        // Beside what the seed decides: a script stays what it was before there were copies.
        // Second places double what is written, and the cuts with it: one script in three has them.
        let choices = &self.grounds[(index % grounds) as usize];
        let (once, twice) = (&choices[0], &choices[choices.len() - 1]);
        let ground = Arc::clone(if Prng::seeded(seed).one_in(3) { twice } else { once });
        let found = match &mut self.kind {
            Kind::All(space, current) => {
                // Each on every volume.
                if index.is_multiple_of(grounds) {
                    *current = space.next();
                }
                let script = current.clone();
                script.map(|script| (format!("sequence {}", index / grounds), Work::Ready(script)))
            }
            Kind::Sampled(space, count) if index < *count => {
                Some((format!("sample {seed}"), Work::Sampled(Arc::clone(space), seed)))
            }
            Kind::Families(families, count) if index < *count && !families.is_empty() => {
                // All families soon, and in the end each on every volume.
                let family = families[(index + index / grounds) as usize % families.len()];
                Some((format!("family {family}, seed {seed}"), Work::Family(family, seed)))
            }
            Kind::Random(count, beside) if index < *count => {
                Some((format!("random, seed {seed}"), Work::Random(seed, *beside)))
            }
            Kind::Full(count, of_branches) if index < *count => {
                // Mostly of what is reserved.
                let family = match (index / grounds) % 3 {
                    _ if *of_branches => Family::Branches,
                    0 => Family::ALL[(index / grounds / 3) as usize % Family::ALL.len()],
                    _ => Family::Reserved,
                };
                Some((format!("full volume, {family}, seed {seed}"), Work::Full(family, seed)))
            }
            Kind::Branches(count) if index < *count => {
                Some((format!("branches, seed {seed}"), Work::Branches(seed)))
            }
            _ => None,
        };
        if found.is_none() {
            self.kind = Kind::Ended;
        }
        let (name, work) = found?;
        let copies = ground.policy().setup.mkfs.metadata_copies;
        Some((ground, format!("{name}, metadata={copies}"), work))
    }
}

/// The volumes on which a source's scripts run.
fn policies(source: &Source, campaign: &Campaign) -> Vec<Policy> {
    let images = sim::Policy { seed: campaign.seed, exhaustive: 6, each: 6, samples: 6, torn: 8 };
    let policy = |checkpoints, change: fn(&mut Setup)| {
        let mut setup = Setup { checkpoints, ..Setup::new(4096, 16) };
        // What a seed means does not depend on which thread runs when.
        setup.mount.threads = setup.checkpoints.is_beside();
        change(&mut setup);
        let (sector, physical_sector) = (campaign.sector, campaign.physical_sector);
        let recovery = 100;
        let volume = VOLUME;
        Policy { images, setup, volume, sector, physical_sector, recovery, ..Policy::default() }
    };
    let nothing: fn(&mut Setup) = |_| {};
    let discards: fn(&mut Setup) = |setup| *setup = setup.clone().discarding();
    // Memory for what was just written: elsewhere it is read from the device.
    let plain = policy(Checkpoints::Never, |setup| setup.mount.recent_bytes = 1 << 20);
    // Memory for one inode, and for as few nodes and as little data as possible.
    let forgetful = policy(Checkpoints::Never, |setup| {
        setup.mount.inode_cache = 1;
        setup.mount.cache_bytes = 64 << 10;
        setup.mount.dirty_bytes = 16 << 10;
    });
    let others = [
        policy(Checkpoints::CommitsAfter(3), discards),
        policy(Checkpoints::After(2), |setup| {
            *setup = setup.clone().discarding();
            setup.mount.inode_cache = 1;
            setup.mount.recent_bytes = 16 << 10;
        }),
        policy(Checkpoints::Never, |setup| {
            setup.mkfs.node_size = 16384;
            setup.mount.log_data_bytes = Some(0);
        }),
        policy(Checkpoints::CommitsAfter(5), |setup| {
            setup.mount.log_data_bytes = Some(64 << 10);
            setup.mount.batching = Batching::Scan;
            setup.mount.rename_log = RenameLog::Directory;
        }),
    ];
    match source {
        Source::Exhaustive(0 | 1)
        | Source::BranchSequences(0 | 1)
        | Source::Families(..)
        | Source::Random(_)
        | Source::Branches(_) => [plain, forgetful].into_iter().chain(others).collect(),
        // An unmount is an unmount: those of length 1 have shown it.
        Source::Exhaustive(_) | Source::BranchSequences(_) => {
            let [commits, ..] = others;
            let volumes = [plain, forgetful, commits].into_iter();
            volumes.map(|policy| Policy { unmount: false, ..policy }).collect()
        }
        Source::Sampled(..) => vec![plain, forgetful],
        Source::Full(_) | Source::FullBranches(_) => {
            let [commits, checkpoints, ..] = others;
            vec![plain, forgetful, commits, checkpoints]
        }
        Source::Beside(_) => {
            let beside = |checkpoints| policy(checkpoints, nothing);
            // The extents of an fsync are completed behind it by a thread too.
            let completed = policy(Checkpoints::CommitsBeside, |setup| {
                setup.mount.log_data_bytes = Some(0);
                setup.mount.fsync_wait = FsyncWait::Completion;
            });
            let discarded = policy(Checkpoints::Beside, discards);
            vec![beside(Checkpoints::CommitsBeside), discarded, completed]
        }
    }
}
