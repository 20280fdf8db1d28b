//! Two replays of one journal: the engine's and the second opinion's must say the same.
//!
//! They share the format and nothing else. Where both can replay, everything is
//! compared that a mount would build on: the commits that count, the superblock
//! they lead to, every byte of every node, and whether something durable is
//! missing. Where one refuses, the other must as well.

mod log;

pub use log::agree_on_log;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, Epoch};
use holdfast_device::Device;
use holdfast_format::Superblock;
use holdfast_format::geometry::SUPERBLOCK_SLOTS;

/// What both replays say of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is no valid superblock, so there is no journal either.
    NoVolume,
    /// So many commits count, and nothing durable is missing.
    Whole(u64),
    /// So many commits count, and the next one was durable and is gone.
    Hole(u64),
    /// Its frames are whole, and what they say cannot be.
    Refused,
}

/// Replays the journal both ways. The error says where they differ.
pub fn agree(device: &dyn Device) -> Result<Verdict, String> {
    let Some(before) = newest(device)? else {
        return Ok(Verdict::NoVolume);
    };
    let theirs = holdfast_store::replay(device, &before).map_err(|error| error.to_string());
    // An opening refuses that.
    let theirs = theirs.and_then(|theirs| {
        let refused = theirs.wiped.as_ref().or(theirs.lost.as_ref()).cloned();
        refused.map_or(Ok(theirs), Err)
    });
    let ours = holdfast_check::journal::replay(device, &before);
    let (theirs, ours) = match (theirs, ours) {
        (Ok(theirs), Ok(ours)) if ours.faults.is_empty() && !ours.has_lost() => (theirs, ours),
        (Err(_), Ok(ours)) if !ours.faults.is_empty() || ours.has_lost() => {
            return Ok(Verdict::Refused);
        }
        (Err(_), Err(_)) => return Ok(Verdict::Refused),
        (Ok(theirs), Ok(ours)) => {
            return Err(format!(
                "check refuses what the engine replays ({} commits): {:?}",
                theirs.commits, ours.faults
            ));
        }
        (Ok(theirs), Err(error)) => {
            return Err(format!("check fails on {} commits: {error}", theirs.commits));
        }
        (Err(error), Ok(ours)) => {
            return Err(format!(
                "the engine refuses what check replays ({} commits, {:?}): {error}",
                ours.commits, ours.end
            ));
        }
    };
    let differ = |what: &str, theirs: &dyn std::fmt::Debug, ours: &dyn std::fmt::Debug| {
        Err(format!("the replays differ in {what}: engine {theirs:?}, check {ours:?}"))
    };
    if (theirs.commits, theirs.bytes) != (ours.commits, ours.bytes) {
        let (theirs, end) = ((theirs.commits, theirs.bytes), &ours.end);
        return differ("commits and bytes", &theirs, &((ours.commits, ours.bytes), end));
    }
    // The engine's is the superblock that a recovery writes: into the slot that is not in use (R1).
    let epoch = theirs.superblock.epoch;
    let same_slot = theirs.commits > 0 && epoch.0 % 2 == before.epoch.0 % 2;
    let superblock = Superblock { epoch, ..ours.superblock.clone() };
    let epochs = [ours.superblock.epoch, Epoch(ours.superblock.epoch.0 + 1)];
    if theirs.superblock != superblock || same_slot || !epochs.contains(&epoch) {
        return differ("the superblock", &theirs.superblock, &ours.superblock);
    }
    let (found, expected) = (theirs.nodes.keys(), ours.nodes.keys());
    if !found.eq(expected) {
        let keys = (theirs.nodes.keys(), ours.nodes.keys());
        return differ("which nodes", &keys.0, &keys.1);
    }
    let nodes = theirs.nodes.iter().zip(&ours.nodes);
    if let Some(((block, _), _)) = nodes.into_iter().find(|(theirs, ours)| theirs.1 != ours.1) {
        return Err(format!("the replays differ in the bytes of node {block}"));
    }
    let missing = theirs.damage.map(|(missing, _)| missing);
    if missing != ours.damage.as_ref().map(|damage| damage.commit) {
        return differ("what is missing", &theirs.damage, &ours.damage);
    }
    Ok(match missing {
        None => Verdict::Whole(theirs.commits),
        Some(_) => Verdict::Hole(theirs.commits),
    })
}

/// The superblock with which an opening begins.
fn newest(device: &dyn Device) -> Result<Option<Superblock>, String> {
    let mut newest: Option<Superblock> = None;
    for slot in SUPERBLOCK_SLOTS {
        let mut block = [0; BLOCK_SIZE];
        device.read(slot.0 * BLOCK_BYTES, &mut block).map_err(|error| error.to_string())?;
        if let Ok(found) = Superblock::decode(&block, slot)
            && newest.as_ref().is_none_or(|newest| newest.epoch < found.epoch)
        {
            newest = Some(found);
        }
    }
    Ok(newest)
}
