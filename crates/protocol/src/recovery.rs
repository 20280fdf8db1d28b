//! Opening after a crash: the journal, then the log, as `store` recovers them.
//!
//! What is read is judged as the code judges it: by location, number and chain, and
//! the data of what may not be durable by its sum. Whatever a recovery meets that
//! no crash should leave is a violation, and says which.

use std::collections::BTreeMap;

use crate::disk::{
    Base, Block, Commit, Device, Extent, FILES, Held, JournalMark, Location, RingPlace, Rings,
    Superblock, Tree,
};
use crate::memory::Memory;
use crate::mutant::Mutant;
use crate::places::{Violation, WIPED, has_rotten, is_there, places_to_read};
use crate::replay::{mark_log, read_log};
use crate::shared::{Shared, sum};

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
    marker: Option<Shared<Commit>>,
    nodes: BTreeMap<Block, (u8, Tree)>,
    data: Vec<Extent>,
    is_needed: bool,
    is_stable: bool,
    memory: Shared<Memory>,
    /// Came with the last flush of the log.
    log_data: Vec<Extent>,
}

/// The valid superblock with the larger epoch.
fn newest(device: &Device) -> Result<Superblock, Violation> {
    let slots =
        [0, 1].into_iter().filter_map(|slot| match device.read(Location::Superblock(slot)) {
            Held::Superblock(superblock) => Some(**superblock),
            _ => None,
        });
    slots.max_by_key(|superblock| superblock.epoch).ok_or("no superblock is valid")
}

fn commit_at(device: &Device, place: RingPlace, slot: u8) -> Option<&Shared<Commit>> {
    match device.read(Location::Journal(place, slot)) {
        Held::Commit(commit) => Some(commit),
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
) -> Option<Shared<Commit>> {
    let slot = (mark.commit + 1) % rings.journal;
    let mut places = places_to_read(rings, broken).iter();
    places.find_map(|&place| {
        let commit = commit_at(device, place, slot)?;
        let follows = commit.number == mark.commit + 1 && commit.prior == mark.sum;
        let right_epoch = commit.epoch == epoch + 1 || same_epoch && commit.epoch == epoch;
        (follows && right_epoch).then(|| commit.clone())
    })
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
            let mark = JournalMark { commit: commit.number, sum: commit.sum() };
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
            device.write(Location::Superblock(before.epoch), Held::Superblock(Shared::new(before)));
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
            memory: Shared::new(memory),
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
                device
                    .write(Location::Superblock(after.epoch), Held::Superblock(Shared::new(after)));
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
        let mut memory = (*self.memory).clone();
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

/// A marker at the end of the journal, behind which it goes on.
fn mark_journal(
    mark: &mut JournalMark,
    (rings, broken): (Rings, Option<Mutant>),
    commits: u8,
) -> Result<Shared<Commit>, Violation> {
    if commits >= rings.journal {
        return Err("the journal has no room for the marker of a recovery");
    }
    let durable = if broken == Some(Mutant::MarkerCallsDurable) { mark.commit } else { 0 };
    let marker = Shared::new(Commit::marker(*mark, durable));
    let sum = match broken {
        Some(Mutant::MarkNotRenewed) => sum(&mark.sum),
        _ => marker.sum(),
    };
    *mark = JournalMark { commit: marker.number, sum };
    Ok(marker)
}

/// Whether this commit was durable, as one behind it says.
fn is_proven(device: &Device, rings: Rings, number: u8) -> bool {
    commits(device, rings).any(|commit| commit.number >= number && commit.durable >= number)
}

/// The slots of a superblock's marks: nothing that counts lies before these.
pub(crate) fn before_marks(device: &Device, rings: Rings) -> Vec<Location> {
    let Ok(Superblock { journal, log, .. }) = newest(device) else { return Vec::new() };
    let is_of = |at: &Location| match device.read(*at) {
        Held::Commit(commit) => commit.sum() == journal.sum,
        Held::Batch(batch) => batch.sum() == log.sum,
        _ => false,
    };
    Location::of_rings(rings).filter(is_of).collect()
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
        before.is_some_and(|commit| commit.sum() == mark.sum)
            || has_rotten(device, Location::Journal(*place, slot), mark.sum, broken)
            || behind.is_some_and(|commit| {
                commit.number == mark.commit + 1 && [mark.sum, !mark.sum].contains(&commit.prior)
            })
    };
    let is_used = mark.sum != 0;
    if is_used && !rings.places().iter().any(is_there) { Err(WIPED) } else { Ok(()) }
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
fn commits(device: &Device, rings: Rings) -> impl Iterator<Item = &Shared<Commit>> {
    rings.places().iter().flat_map(move |&place| {
        (0..rings.journal).filter_map(move |slot| commit_at(device, place, slot))
    })
}

/// Whether a commit is gone that a later one proves durable.
fn is_holed(device: &Device, rings: Rings, end: JournalMark) -> bool {
    is_proven(device, rings, end.commit + 1)
}

/// Whether all files are as at one moment.
pub(crate) fn is_moment(tree: &Tree, moment: &Tree) -> bool {
    (0..FILES).all(|file| {
        tree[file].map(|extent| extent.version) == moment[file].map(|extent| extent.version)
    })
}
