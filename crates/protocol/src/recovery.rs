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

/// A ring that was used holds nothing where its mark is.
pub(crate) const WIPED: Violation = "a ring counts as wiped";

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
    /// Goes into the journal before `after`, which has its sum.
    marker: Option<Arc<Commit>>,
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
        let mut log_before = before.log;
        let how = (rings, broken);
        let mut found = read_commit(device, how, before.journal, before.epoch, false);
        while let Some(commit) = found {
            let mark = JournalMark { commit: commit.number, sum: sum(&*commit) };
            found = read_commit(device, how, mark, commit.epoch, true);
            if found.is_none() && !is(Mutant::CommitDataNotVerified) {
                if !is_there(device, &commit.extents) && !is_proven(device, rings, commit.number) {
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
            log_before = after.log;
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
        let looks = !is(Mutant::WipedNotLookedFor);
        if looks && commits == 0 && given_up.is_none() {
            expect_journal(device, how, before.journal)?;
        }
        if is(Mutant::EarlierMarkNotLookedAt) {
            log_before = after.log;
        }
        let is_needed = commits > 0 || given_up.is_some() && !is(Mutant::GivenUpEpochKept);
        let is_marked = is_needed && !is(Mutant::FoundMarkKept);
        let marker = match is_marked {
            true => Some(mark_journal(&mut after.journal, (rings, broken), commits)?),
            false => None,
        };
        let marks = looks.then_some([after.log, log_before]);
        let (memory, log_data) = read_log(device, after, &nodes, (rings, broken), marks)?;
        if !is(Mutant::NotMadeDurable) {
            device.flush();
            device.write(Location::Superblock(before.epoch), Held::Superblock(before));
        }
        if is(Mutant::FoundDataNotWritten) {
            data.clear();
        }
        Ok(Recovery {
            step: Step::Settling,
            before,
            after,
            marker,
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
                if !self.memory.is(Mutant::MarkerWrittenLate) {
                    self.write_marker(device);
                }
                self.step = Step::Writing;
            }
            Step::Writing => {
                device.flush();
                if self.memory.is(Mutant::MarkerWrittenLate) {
                    self.write_marker(device);
                }
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

    fn write_marker(&self, device: &mut Device) {
        let Some(marker) = &self.marker else { return };
        if self.memory.is(Mutant::MarkNotRenewed) {
            return;
        }
        let slot = marker.number % self.memory.rings.journal;
        let held = Held::Commit(marker.clone());
        self.memory.write_places(device, |place| Location::Journal(place, slot), held);
    }

    /// `finish_log`: a checkpoint at once is begun, if the log held anything, behind a marker.
    pub(crate) fn finish_log(&self, device: &mut Device) -> Memory {
        let mut memory = self.memory.clone();
        if memory.place.head > 0 {
            for extent in &self.log_data {
                device.write(Location::Pool(extent.block), Held::Data(extent.version));
            }
            mark_log(&mut memory, device);
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
    (rings, broken): (Rings, Option<Mutant>),
    marks: Option<[LogMark; 2]>,
) -> Result<(Memory, Vec<Extent>), Violation> {
    let is = |mutant| broken == Some(mutant);
    let (block, born) = after.location;
    let tree = match (nodes.get(&block), device.read(Location::Pool(block))) {
        (Some((epoch, tree)), _) if *epoch == born => *tree,
        (None, Held::Node(epoch, tree)) if *epoch == born => *tree,
        _ => return Err("the node that a superblock reaches is not there"),
    };
    let mut logged = Logged::read(device, (rings, broken), &after)?;
    if let Some(marks) = marks.filter(|_| logged.walked == 0) {
        expect_log(device, (rings, broken), &marks)?;
    }
    if logged.walked >= rings.log {
        return Err("the log has no room for the marker of a recovery");
    }
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
    if let Some(given_up) = logged.given_up.filter(|_| is(Mutant::GivenUpBatchKept)) {
        mark = given_up;
    }
    memory.place = LogPosition { mark, head: logged.walked };
    (memory.before, memory.confirmed) = (mark.batch, mark.batch);
    if is(Mutant::FoundDataNotWritten) {
        found.clear();
    }
    Ok((memory, found))
}

/// A marker at the end of the journal, behind which it goes on.
fn mark_journal(
    mark: &mut JournalMark,
    (rings, broken): (Rings, Option<Mutant>),
    commits: u8,
) -> Result<Arc<Commit>, Violation> {
    if commits >= rings.journal {
        return Err("the journal has no room for the marker of a recovery");
    }
    let durable = if broken == Some(Mutant::MarkerCallsDurable) { mark.commit } else { 0 };
    let marker = Commit::marker(*mark, durable);
    let sum = match broken {
        Some(Mutant::MarkNotRenewed) => sum(&mark.sum),
        _ => sum(&marker),
    };
    *mark = JournalMark { commit: marker.number, sum };
    Ok(Arc::new(marker))
}

/// A batch without content at the end of the log, with whose sum the log goes on: nothing of before follows it.
fn mark_log(memory: &mut Memory, device: &mut Device) {
    if memory.is(Mutant::GivenUpBatchKept) {
        return;
    }
    let mark = memory.place.mark;
    if memory.is(Mutant::MarkNotRenewed) {
        memory.place.mark.sum = sum(&mark.sum);
        return;
    }
    let durable = if memory.is(Mutant::MarkerCallsDurable) { mark.batch } else { 0 };
    let batch = Batch::marker(mark, durable);
    let next = (mark.next + 1) % memory.rings.log;
    let behind = LogMark { batch: batch.number, next, sum: sum(&batch) };
    let held = Held::Batch(Arc::new(batch));
    memory.write_places(device, |place| Location::Log(place, mark.next), held);
    memory.place = LogPosition { mark: behind, head: memory.place.head + 1 };
    (memory.before, memory.confirmed) = (behind.batch, behind.batch);
}

/// Whether this commit was durable, as one behind it says.
fn is_proven(device: &Device, rings: Rings, number: u8) -> bool {
    commits(device, rings).any(|commit| commit.number >= number && commit.durable >= number)
}

/// The slots of a superblock's marks: nothing that counts lies before these.
pub(crate) fn before_marks(device: &Device, rings: Rings) -> Vec<Location> {
    let Ok(Superblock { journal, log, .. }) = newest(device) else { return Vec::new() };
    let is_of = |at: &Location| match device.read(*at) {
        Held::Commit(commit) => sum(&**commit) == journal.sum,
        Held::Batch(batch) => sum(&**batch) == log.sum,
        _ => false,
    };
    Location::of_rings(rings).filter(is_of).collect()
}

/// Whether a batch or commit of this sum lies there, but for a byte.
fn has_rotten(device: &Device, at: Location, sum: u64, broken: Option<Mutant>) -> bool {
    broken != Some(Mutant::RottenCountsAsWiped) && *device.read(at) == Held::Rotten(sum)
}

/// Something lies where a journal that no commit follows must have it: the commit or marker before the mark, or one that would
/// be behind it. Commits lie in the order of their numbers.
fn expect_journal(
    device: &Device,
    (rings, broken): (Rings, Option<Mutant>),
    mark: JournalMark,
) -> Result<(), Violation> {
    let is_there = |place: &RingPlace| {
        let slot = mark.commit % rings.journal;
        let before = commit_at(device, *place, slot);
        let behind = commit_at(device, *place, (mark.commit + 1) % rings.journal);
        before.is_some_and(|commit| sum(&**commit) == mark.sum)
            || has_rotten(device, Location::Journal(*place, slot), mark.sum, broken)
            || behind.is_some_and(|commit| {
                commit.number == mark.commit + 1 && [mark.sum, !mark.sum].contains(&commit.prior)
            })
    };
    let is_used = mark.sum != 0;
    if is_used && !rings.places().iter().any(is_there) { Err(WIPED) } else { Ok(()) }
}

/// The same of a log: by the mark of the last commit, or that of the one before, which was durable for certain.
fn expect_log(
    device: &Device,
    (rings, broken): (Rings, Option<Mutant>),
    marks: &[LogMark; 2],
) -> Result<(), Violation> {
    let is_there = |mark: &LogMark| {
        rings.places().iter().any(|place| {
            let at = (mark.next + rings.log - 1) % rings.log;
            let before = batch_at(device, *place, at);
            let behind = batch_at(device, *place, mark.next);
            before.is_some_and(|batch| sum(&**batch) == mark.sum)
                || has_rotten(device, Location::Log(*place, at), mark.sum, broken)
                || behind.is_some_and(|batch| {
                    batch.number == mark.batch + 1 && [mark.sum, !mark.sum].contains(&batch.prior)
                })
        })
    };
    let is_used = marks.iter().all(|mark| mark.sum != 0);
    if is_used && !marks.iter().any(is_there) { Err(WIPED) } else { Ok(()) }
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

/// All commits and markers of the ring.
fn commits(device: &Device, rings: Rings) -> impl Iterator<Item = &Arc<Commit>> {
    rings.places().iter().flat_map(move |&place| {
        (0..rings.journal).filter_map(move |slot| commit_at(device, place, slot))
    })
}

/// Whether a commit is gone that a later one proves durable.
fn is_holed(device: &Device, rings: Rings, end: JournalMark) -> bool {
    is_proven(device, rings, end.commit + 1)
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
    /// The last batch that was durable, as anything in the ring says.
    proven: u8,
    /// In front of what was given up because data never arrived.
    given_up: Option<LogMark>,
}

impl Logged {
    fn read(
        device: &Device,
        (rings, broken): (Rings, Option<Mutant>),
        superblock: &Superblock,
    ) -> Result<Logged, Violation> {
        let mut logged = Logged {
            batches: Vec::new(),
            mark: superblock.log,
            walked: 0,
            proven: 0,
            given_up: None,
        };
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
        if others.clone().any(|batch| batch.number >= missing && batch.durable >= missing) {
            return Err("a batch is gone although a later one proves that it was durable");
        }
        let said = others.by_ref().filter(|batch| batch.number >= missing);
        let chained = logged.batches.last().map(|batch| batch.durable);
        logged.proven = said.map(|batch| batch.durable).chain(chained).max().unwrap_or(0);
        Ok(logged)
    }

    /// Gives up what lacks its data, and returns the data that was found.
    fn verify(&mut self, device: &Device, rings: Rings, believe: bool) -> Vec<Extent> {
        let mut found = Vec::new();
        let durable = self.proven;
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
