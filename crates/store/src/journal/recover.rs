//! Recovery: what the journal says becomes a checkpoint, before any caller sees the volume.
//!
//! First all of it is read, then all of it is written: a volume that is refused, for its journal or for its
//! log, is left as it was found.
//!
//! Nothing is decided here that was not decided before the crash: every node
//! goes to the location that its commit names, which no superblock reaches. So
//! power may fail at any write of it, any number of times: the old superblock
//! and the journal are whole until the new superblock is durable (P9).

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;

use holdfast_base::counters::Counters;
use holdfast_base::mutants::{self, Mutant};
use holdfast_base::stop::Stop;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo};
use holdfast_device::{Device, flush_unless};
use holdfast_format::Superblock;

use super::replay::{Replayed, Stopped, beside, replay_some};
use super::{MARKER_BLOCKS, marker};
use crate::before_mark::BeforeMark;
use crate::nodes::NodeWrite;
use crate::superblock::Present;
use crate::{Result, StoreError, nodes, superblock};

/// What the journal makes of the volume, in memory. Writes nothing: whether the volume may be opened is
/// not known before the log is read as well. Nodes that build on damaged ones are lost, which costs nothing where later commits are
/// without them. A reader gets the commits before the first one that makes no sense; a frame that the device refuses to read now it may give another time.
pub(crate) fn read(
    device: &dyn Device,
    before: &Superblock,
    counters: &Counters,
    is_reader: bool,
) -> Result<Replayed> {
    let mut replayed = match replay_some(device, before, u64::MAX) {
        Err(stopped) if is_reader && !matches!(stopped.error, StoreError::Device(_)) => {
            as_far_as_it_goes(device, before, stopped)?
        }
        done => done.map_err(|stopped| stopped.error)?,
    };
    if mutants::is(Mutant::GivenUpEpochKept) {
        replayed.dropped_extents = None;
    }
    if let Some(epoch) = replayed.dropped_extents {
        // Its frames are whole and would count as soon as the same data stands at the same place. The recovery
        // of the log may bring it there, and gives blocks away that only this commit reaches, before
        // the superblock of its own checkpoint is durable: so one comes first, of the commit's epoch. Behind
        // it no journal begins with that commit.
        replayed.superblock.epoch = beside(before, epoch.max(replayed.superblock.epoch));
    }
    if !is_reader && (replayed.commits > 0 || replayed.dropped_extents.is_some()) {
        mark(before, &mut replayed);
    }
    if replayed.commits > 0 {
        counters.recovered_commits.set(replayed.commits);
        counters.recovered_nodes.set(replayed.nodes.len() as u64);
        counters.recovered_bytes.set(replayed.bytes);
    }
    Ok(replayed)
}

/// The journal goes on behind a marker: what was read is not known to be durable, so no mark may rest on it (R12).
fn mark(before: &Superblock, replayed: &mut Replayed) {
    let ring = before.geometry.journal();
    let needed = (replayed.bytes / BLOCK_BYTES).saturating_add(MARKER_BLOCKS);
    let at = &mut replayed.superblock;
    if needed > ring.count {
        // No program of ours leaves it so. Nothing need be there then, and the number says that nothing of before follows.
        (at.journal.commit, at.journal.sum) = (at.journal.commit.next(), 0);
        return;
    }
    let place = at.journal.next;
    let (mark, bytes) = marker(ring, before.ring_tag, at.epoch, at.journal);
    at.journal = mark;
    (replayed.marker, replayed.before) = (Some((place, bytes)), BeforeMark::Whole(MARKER_BLOCKS));
}

/// The commits that can be replayed, though others follow.
fn as_far_as_it_goes(
    device: &dyn Device,
    before: &Superblock,
    stopped: Stopped,
) -> Result<Replayed> {
    let some = |commits| replay_some(device, before, commits);
    let mut replayed = match some(stopped.commits) {
        Err(_) => some(0).map_err(|stopped| stopped.error)?,
        Ok(replayed) => replayed,
    };
    // What follows is not known, so nothing may be said of its end.
    (replayed.ended, replayed.dropped_extents, replayed.damage) = (false, None, None);
    replayed.left_out = Some(stopped.error.to_string());
    Ok(replayed)
}

/// Why nothing may be written to the volume: what lies behind a hole was durable, and would be lost.
pub(crate) fn hole(replayed: &Replayed) -> Option<String> {
    if let Some(why) = &replayed.wiped {
        return Some(why.clone());
    }
    if let Some(why) = &replayed.left_out {
        return Some(format!("the journal cannot be replayed to its end: {why}"));
    }
    let (missing, proof) = replayed.damage?;
    Some(format!(
        "the journal is damaged: commit {missing} was durable and is gone (the frame at block {proof} is younger)"
    ))
}

/// Makes what was read durable: `nodes`, which came out of `replayed`, go to their locations, and the superblock
/// says that the volume stands at the end of its journal.
pub(crate) fn write(
    device: &dyn Device,
    stop: &Stop,
    before: &Superblock,
    replayed: &Replayed,
    nodes: &BTreeMap<BlockNo, Vec<u8>>,
    has_threads: bool,
) -> Result<()> {
    if replayed.ended {
        // Commits follow from now on. Should the device lose the first one, nothing may say that none did.
        let first = replayed.superblock.journal.next;
        for distance in before.geometry.ring_places() {
            let at = BlockNo(first.0.saturating_add(distance)).byte_offset();
            device.write(at.expect("the superblock was judged"), &[0; BLOCK_SIZE])?;
        }
    }
    let durable = superblock::make_durable(device, before)?;
    drop(durable);
    if replayed.commits == 0 && replayed.dropped_extents.is_none() {
        return Ok(());
    }
    // Data that came with the last commit was read, and is not known to be durable: a flush may have failed.
    let data = if mutants::is(Mutant::JournalDataNotAgain) { &[] } else { &replayed.data[..] };
    for (block, bytes) in data {
        let at = block.byte_offset().expect("the extent was judged");
        device.write(at, bytes)?;
    }
    if let Some((block, bytes)) = &replayed.marker {
        for distance in before.geometry.ring_places() {
            let at = BlockNo(block.0.saturating_add(distance)).byte_offset();
            device.write(at.expect("the superblock was judged"), bytes)?;
        }
    }
    let homed: Vec<NodeWrite<'_>> =
        nodes.iter().map(|(block, bytes)| (*block, &bytes[..])).collect();
    nodes::write(device, stop, &before.geometry, &homed, has_threads)?;
    let reached = flush_unless(device, Mutant::RecoveryFlush)?;
    let present = Present { epoch: before.epoch, blocks: before.geometry.volume_blocks };
    let _published = superblock::publish(device, &replayed.superblock, present, reached)?;
    Ok(())
}
