//! The log after a crash: read, judged and replayed, as `store` does it. And the marker behind which it goes on.

use std::collections::BTreeMap;

use crate::disk::{
    Batch, Block, Content, Device, Extent, Held, Location, LogMark, RingPlace, Rings, Superblock,
    Tree, Version,
};
use crate::memory::{Generation, LogPosition, Memory};
use crate::mutant::Mutant;
use crate::places::{Violation, WIPED, has_rotten, is_there, places_to_read};
use crate::shared::{Shared, sum};

/// Data that no extent names: what a change of the wrong bytes makes.
const GARBAGE: Version = Version::MAX;

fn batch_at(device: &Device, place: RingPlace, next: u8) -> Option<&Shared<Batch>> {
    match device.read(Location::Log(place, next)) {
        Held::Batch(batch) => Some(batch),
        _ => None,
    }
}

/// `log::replay::read` and `replay_log`: what the log says, in memory, and the data that came with its last flush.
pub(crate) fn read_log(
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

/// A batch without content at the end of the log, with whose sum the log goes on: nothing of before follows it.
pub(crate) fn mark_log(memory: &mut Memory, device: &mut Device) {
    if memory.is(Mutant::GivenUpBatchKept) {
        return;
    }
    let mark = memory.place.mark;
    if memory.is(Mutant::MarkNotRenewed) {
        memory.place.mark.sum = sum(&mark.sum);
        return;
    }
    let durable = if memory.is(Mutant::MarkerCallsDurable) { mark.batch } else { 0 };
    let batch = Shared::new(Batch::marker(mark, durable));
    let next = (mark.next + 1) % memory.rings.log;
    let behind = LogMark { batch: batch.number, next, sum: batch.sum() };
    let held = Held::Batch(batch);
    memory.write_places(device, |place| Location::Log(place, mark.next), held);
    memory.place = LogPosition { mark: behind, head: memory.place.head + 1 };
    (memory.before, memory.confirmed) = (behind.batch, behind.batch);
}

/// Something lies where a log that no batch follows must have it: by the mark of the last commit, or that of the one
/// before, which was durable for certain.
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
            before.is_some_and(|batch| batch.sum() == mark.sum)
                || has_rotten(device, Location::Log(*place, at), mark.sum, broken)
                || behind.is_some_and(|batch| {
                    batch.number == mark.batch + 1 && [mark.sum, !mark.sum].contains(&batch.prior)
                })
        })
    };
    let is_used = marks.iter().all(|mark| mark.sum != 0);
    if is_used && !marks.iter().any(is_there) { Err(WIPED) } else { Ok(()) }
}

/// The batch behind `mark`, and which of `places` is the first that has it.
fn next_batch<'a>(
    device: &'a Device,
    places: &[RingPlace],
    mark: LogMark,
    broken: Option<Mutant>,
) -> Option<(usize, &'a Shared<Batch>)> {
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
    batches: Vec<Shared<Batch>>,
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
                sum: batch.sum(),
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
