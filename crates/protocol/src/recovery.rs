//! Opening after a crash: the journal, then the log, as `store` recovers them.
//!
//! What is read is judged as the code judges it: by location, number and chain, and
//! the data of what may not be durable by its sum. Whatever a recovery meets that
//! no crash should leave is a violation, and says which.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::disk::{
    Base, Batch, Block, Commit, Content, Device, Extent, FILES, Held, JournalMark, Location,
    LogMark, RingPlace, Rings, Superblock, Tree, Version, sum,
};
use crate::memory::{Generation, LogPosition, Memory};
use crate::mutant::Mutant;

/// Data that no extent names: what a change of the wrong bytes makes.
const GARBAGE: Version = Version::MAX;

/// Why a recovery failed that should not.
pub(crate) type Violation = &'static str;

/// How far a recovery of the journal has come.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Step {
    /// The superblock was written again, and is to be flushed.
    Settling,
    /// Data and nodes are written, and to be flushed.
    Writing,
    /// The superblock behind the journal is written, and to be flushed.
    Publishing,
    /// The log is next.
    Log,
}

/// A recovery.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Recovery {
    pub(crate) step: Step,
    before: Superblock,
    after: Superblock,
    nodes: BTreeMap<Block, (u8, Tree)>,
    data: Vec<Extent>,
    is_needed: bool,
    is_stable: bool,
    memory: Memory,
    /// Came with the last flush of the log.
    log_data: Vec<Extent>,
}

/// The valid superblock with the larger epoch.
fn newest(device: &Device) -> Result<Superblock, Violation> {
    let slots =
        [0, 1].into_iter().filter_map(|slot| match device.read(Location::Superblock(slot)) {
            Held::Superblock(superblock) => Some(*superblock),
            _ => None,
        });
    slots.max_by_key(|superblock| superblock.epoch).ok_or("no superblock is valid")
}

/// The places that a recovery looks into.
fn places_to_read(rings: Rings, broken: Option<Mutant>) -> &'static [RingPlace] {
    match broken {
        Some(Mutant::SecondPlaceNotRead) => &[RingPlace::First],
        _ => rings.places(),
    }
}

fn commit_at(device: &Device, place: RingPlace, slot: u8) -> Option<&Arc<Commit>> {
    match device.read(Location::Journal(place, slot)) {
        Held::Commit(commit) => Some(commit),
        _ => None,
    }
}

fn batch_at(device: &Device, place: RingPlace, next: u8) -> Option<&Arc<Batch>> {
    match device.read(Location::Log(place, next)) {
        Held::Batch(batch) => Some(batch),
        _ => None,
    }
}

/// The commit behind `mark`, as `read_commit` judges it, from the first place that has it.
fn read_commit(
    device: &Device,
    (rings, broken): (Rings, Option<Mutant>),
    mark: JournalMark,
    epoch: u8,
    same_epoch: bool,
) -> Option<Arc<Commit>> {
    let slot = (mark.commit + 1) % rings.journal;
    let mut places = places_to_read(rings, broken).iter();
    places.find_map(|&place| {
        let commit = commit_at(device, place, slot)?;
        let follows = commit.number == mark.commit + 1 && commit.prior == mark.sum;
        let right_epoch = commit.epoch == epoch + 1 || same_epoch && commit.epoch == epoch;
        (follows && right_epoch).then(|| commit.clone())
    })
}

/// Whether all of it is there.
fn is_there(device: &Device, extents: &[Extent]) -> bool {
    extents.iter().all(|extent| device.data(extent.block) == Some(extent.version))
}

/// `epoch`, or the one after it: the other slot than that of `before` (R1).
fn beside(before: &Superblock, epoch: u8) -> u8 {
    if epoch % 2 == before.epoch % 2 { epoch + 1 } else { epoch }
}

impl Recovery {
    /// Whether the journal changes anything.
    pub(crate) fn is_needed(&self) -> bool {
        self.is_needed
    }

    /// `newest`, `read`, `read_log`: everything is judged in memory; then the first half of `settle`.
    pub(crate) fn read(
        device: &mut Device,
        rings: Rings,
        broken: Option<Mutant>,
    ) -> Result<Recovery, Violation> {
        let is = |mutant| broken == Some(mutant);
        let before = newest(device)?;
        let mut nodes = BTreeMap::new();
        let (mut after, mut data) = (before, Vec::new());
        let (mut commits, mut given_up) = (0, None);
        let how = (rings, broken);
        let mut found = read_commit(device, how, before.journal, before.epoch, false);
        while let Some(commit) = found {
            let mark = JournalMark { commit: commit.number, sum: sum(&*commit) };
            found = read_commit(device, how, mark, commit.epoch, true);
            if found.is_none() && !is(Mutant::CommitDataNotVerified) {
                if !is_there(device, &commit.extents) {
                    given_up = Some(commit.epoch);
                    break;
                }
                data = commit.extents.clone();
            }
            apply(device, &commit, &mut nodes)?;
            commits += 1;
            if commits > rings.journal {
                return Err("the journal overlaps itself");
            }
            after = Superblock {
                epoch: beside(&before, commit.epoch),
                location: commit.location,
                lsn: commit.lsn,
                journal: mark,
                log: commit.log,
            };
        }
        if is_holed(device, rings, after.journal) {
            return Err("a commit is gone although a later one proves that it was durable");
        }
        if let Some(epoch) = given_up
            && !is(Mutant::GivenUpEpochKept)
        {
            after.epoch = beside(&before, epoch.max(after.epoch));
        }
        let (memory, log_data) = read_log(device, after, &nodes, rings, broken)?;
        if !is(Mutant::NotMadeDurable) {
            device.flush();
            device.write(Location::Superblock(before.epoch), Held::Superblock(before));
        }
        let is_needed = commits > 0 || given_up.is_some() && !is(Mutant::GivenUpEpochKept);
        if is(Mutant::FoundDataNotWritten) {
            data.clear();
        }
        Ok(Recovery {
            step: Step::Settling,
            before,
            after,
            nodes,
            data,
            is_needed,
            is_stable: !is(Mutant::NotMadeDurable),
            memory,
            log_data,
        })
    }

    /// `write`: the next part of it, up to a flush.
    pub(crate) fn write(&mut self, device: &mut Device) {
        match self.step {
            Step::Settling => {
                if self.is_stable {
                    device.flush();
                }
                if !self.is_needed {
                    self.step = Step::Log;
                    return;
                }
                for extent in &self.data {
                    device.write(Location::Pool(extent.block), Held::Data(extent.version));
                }
                for (block, (epoch, tree)) in &self.nodes {
                    device.write(Location::Pool(*block), Held::Node(*epoch, *tree));
                }
                self.step = Step::Writing;
            }
            Step::Writing => {
                device.flush();
                let after = self.after;
                device.write(Location::Superblock(after.epoch), Held::Superblock(after));
                self.step = Step::Publishing;
            }
            Step::Publishing => {
                device.flush();
                self.step = Step::Log;
            }
            Step::Log => {}
        }
    }

    /// `finish_log`: a checkpoint at once is begun, if the log held anything.
    pub(crate) fn finish_log(&self, device: &mut Device) -> Memory {
        let mut memory = self.memory.clone();
        if memory.place.head > 0 {
            for extent in &self.log_data {
                device.write(Location::Pool(extent.block), Held::Data(extent.version));
            }
            memory.recovering = true;
            memory.checkpoint_at_once(device);
        }
        memory
    }
}

/// `log::replay::read` and `replay_log`: what the log says, in memory, and the data that came with its last flush.
fn read_log(
    device: &Device,
    after: Superblock,
    nodes: &BTreeMap<Block, (u8, Tree)>,
    rings: Rings,
    broken: Option<Mutant>,
) -> Result<(Memory, Vec<Extent>), Violation> {
    let is = |mutant| broken == Some(mutant);
    let (block, born) = after.location;
    let tree = match (nodes.get(&block), device.read(Location::Pool(block))) {
        (Some((epoch, tree)), _) if *epoch == born => *tree,
        (None, Held::Node(epoch, tree)) if *epoch == born => *tree,
        _ => return Err("the node that a superblock reaches is not there"),
    };
    let mut logged = Logged::read(device, (rings, broken), &after)?;
    let mut found = logged.verify(device, rings, is(Mutant::LogDataNotVerified));
    let mut memory = Memory::open(after, tree, rings, broken);
    for take in logged.batches.iter().flat_map(|batch| &batch.takes) {
        let is_free = is(Mutant::NotPinned) || memory.claim(take.extent.block);
        if !is_free {
            return Err("a batch of the log takes a block that is in use");
        }
    }
    for batch in &logged.batches {
        replay(&mut memory, device, batch);
    }
    let mut mark = logged.mark;
    if let Some(given_up) = logged.given_up {
        // Behind it, and behind no sum that is on the device.
        mark.sum = sum(&mark.sum);
        if is(Mutant::GivenUpBatchKept) {
            mark = given_up;
        }
    }
    memory.place = LogPosition { mark, head: logged.walked };
    (memory.before, memory.confirmed) = (mark.batch, mark.batch);
    if is(Mutant::FoundDataNotWritten) {
        found.clear();
    }
    Ok((memory, found))
}

/// Applies a commit to the nodes that stand in front of the device.
fn apply(
    device: &Device,
    commit: &Commit,
    nodes: &mut BTreeMap<Block, (u8, Tree)>,
) -> Result<(), Violation> {
    let (block, born) = commit.location;
    let mut tree = match commit.base {
        None => return Ok(()),
        Some(Base::Changed) => {
            nodes.get(&block).ok_or("no commit made the node that a commit changes")?.1
        }
        Some(Base::Copied(base, epoch)) => {
            match (nodes.get(&base), device.read(Location::Pool(base))) {
                (Some((at, tree)), _) if *at == epoch => *tree,
                (None, Held::Node(at, tree)) if *at == epoch => *tree,
                _ => return Err("the node that a commit copies is not there"),
            }
        }
    };
    for (file, value) in &commit.changes {
        tree[*file as usize] = *value;
    }
    nodes.insert(block, (born, tree));
    Ok(())
}

/// Whether a commit is gone that a later one proves durable.
fn is_holed(device: &Device, rings: Rings, end: JournalMark) -> bool {
    let missing = end.commit + 1;
    let commits = rings.places().iter().flat_map(|&place| {
        (0..rings.journal).filter_map(move |slot| commit_at(device, place, slot))
    });
    // A commit is written when all before it are durable.
    commits.into_iter().any(|commit| commit.number > missing)
}

/// The batch behind `mark`, and which of `places` is the first that has it.
fn next_batch<'a>(
    device: &'a Device,
    places: &[RingPlace],
    mark: LogMark,
    broken: Option<Mutant>,
) -> Option<(usize, &'a Arc<Batch>)> {
    let follows = |place: RingPlace, batch: &Batch| {
        let is_chained = batch.prior == mark.sum
            || broken == Some(Mutant::SecondPlaceNotChained) && place == RingPlace::Second;
        batch.number == mark.batch + 1 && is_chained
    };
    places.iter().enumerate().find_map(|(at, &place)| {
        let batch = batch_at(device, place, mark.next)?;
        follows(place, batch).then_some((at, batch))
    })
}

/// What a log holds beyond the newest commit.
struct Logged {
    batches: Vec<Arc<Batch>>,
    mark: LogMark,
    walked: u8,
    /// In front of what was given up because data never arrived.
    given_up: Option<LogMark>,
}

impl Logged {
    fn read(
        device: &Device,
        (rings, broken): (Rings, Option<Mutant>),
        superblock: &Superblock,
    ) -> Result<Logged, Violation> {
        let mut logged =
            Logged { batches: Vec::new(), mark: superblock.log, walked: 0, given_up: None };
        let mut lsn = superblock.lsn;
        let mut places = places_to_read(rings, broken);
        while let Some((at, batch)) = next_batch(device, places, logged.mark, broken) {
            if broken == Some(Mutant::OnePlaceForAll) {
                places = &places[at..=at];
            }
            if batch.last > lsn && batch.after != lsn {
                return Err("a batch of the log builds on operations that are gone");
            }
            logged.mark = LogMark {
                batch: batch.number,
                next: (logged.mark.next + 1) % rings.log,
                sum: sum(&**batch),
            };
            logged.walked += 1;
            if logged.walked > rings.log {
                return Err("the log overlaps itself");
            }
            if batch.last > lsn {
                lsn = batch.last;
                logged.batches.push(batch.clone());
            }
        }
        let missing = logged.mark.batch + 1;
        let mut others = rings.places().iter().flat_map(|&place| {
            (0..rings.log).filter_map(move |next| batch_at(device, place, next))
        });
        match others.any(|batch| batch.number >= missing && batch.durable >= missing) {
            true => Err("a batch is gone although a later one proves that it was durable"),
            false => Ok(logged),
        }
    }

    /// Gives up what lacks its data, and returns the data that was found.
    fn verify(&mut self, device: &Device, rings: Rings, believe: bool) -> Vec<Extent> {
        let mut found = Vec::new();
        let Some(last) = self.batches.last() else { return found };
        let durable = last.durable;
        let first = self.batches.partition_point(|batch| batch.number <= durable);
        for at in first..self.batches.len() {
            let takes = self.batches[at].takes.iter();
            let summed = takes.filter(|take| take.content == Content::Summed);
            let extents: Vec<Extent> = summed.map(|take| take.extent).collect();
            if !believe && !is_there(device, &extents) {
                let batch = &self.batches[at];
                let back = self.mark.batch - (batch.number - 1);
                let next = (self.mark.next + rings.log - back % rings.log) % rings.log;
                let mark = LogMark { batch: batch.number - 1, next, sum: batch.prior };
                self.given_up = Some(mark);
                self.batches.truncate(at);
                break;
            }
            found.extend(
                extents
                    .into_iter()
                    .filter(|extent| device.data(extent.block) == Some(extent.version)),
            );
        }
        found
    }
}

/// Applies a batch.
fn replay(memory: &mut Memory, device: &Device, batch: &Batch) {
    for take in &batch.takes {
        if let Content::Inside(base) = take.content {
            let is_right = base.is_none_or(|base| memory.read(device, base) == Some(base.version));
            let version = if is_right { take.extent.version } else { GARBAGE };
            memory.log_resident_fresh.push(Extent { version, ..take.extent });
        }
    }
    if !batch.puts.is_empty() {
        memory.change_node();
    }
    for (file, value) in &batch.puts {
        memory.tree[*file as usize] = *value;
    }
    for block in &batch.frees {
        memory.free_data(*block);
    }
    memory.lsn = batch.last;
    memory.durable = batch.last;
    memory.pending = vec![Generation::new(batch.last)];
}

/// Whether all files are as at one moment.
pub(crate) fn is_moment(tree: &Tree, moment: &Tree) -> bool {
    (0..FILES).all(|file| {
        tree[file].map(|extent| extent.version) == moment[file].map(|extent| extent.version)
    })
}
