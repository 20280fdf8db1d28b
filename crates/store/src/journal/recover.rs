//! Recovery: what the journal says becomes a checkpoint, before anybody sees the volume.
//!
//! Nothing is decided here that was not decided before the crash: every node
//! goes to the home that its commit names, which no superblock reaches. So
//! power may fail at any write of it, any number of times: the old superblock
//! and the journal are whole until the new superblock is durable (P9).

use holdfast_base::BLOCK_SIZE;
use holdfast_base::clock::Stopwatch;
use holdfast_base::counters::Counters;
use holdfast_device::Device;
use holdfast_format::Superblock;

use super::replay::{Replayed, beside, replay};
use crate::nodes::Homed;
use crate::{Result, StoreError, nodes, superblock};

/// Brings the volume to the end of its journal, to go on there. Returns its superblock, and whether the
/// volume was left in order.
///
/// # Errors
/// Refuses a journal with a hole: what lies behind it was durable, and would be lost.
pub(crate) fn recover(
    device: &dyn Device,
    before: &Superblock,
    counters: &Counters,
) -> Result<(Superblock, bool)> {
    let time = Stopwatch::start();
    let mut replayed = replay(device, before)?;
    if let Some(why) = hole(&replayed) {
        return Err(StoreError::Refused(format!("{why}; mount it read-only to copy what is left")));
    }
    if replayed.ended {
        // Commits follow from now on. Should the device lose the first one, nothing may say that none did.
        let at = replayed.superblock.journal.next.byte_offset();
        device.write(at.expect("the superblock was judged"), &[0; BLOCK_SIZE])?;
    }
    let settled = superblock::settle(device, before)?;
    drop(settled);
    if let Some(epoch) = replayed.given_up {
        // Its frames are whole and would count as soon as somebody writes the same data to the same
        // place. Behind a superblock of its own epoch no journal begins with it.
        let epoch = beside(before, epoch.max(replayed.superblock.epoch));
        replayed.superblock.epoch = epoch;
    } else if replayed.commits == 0 {
        return Ok((replayed.superblock, replayed.ended));
    }
    // Data that came with the last commit was read, and is not known to be durable: a flush may have failed.
    for (block, bytes) in &replayed.data {
        let at = block.byte_offset().expect("the extent was judged");
        device.write(at, bytes)?;
    }
    let homed: Vec<Homed<'_>> =
        replayed.nodes.iter().map(|(block, bytes)| (*block, &bytes[..])).collect();
    nodes::write(device, &homed)?;
    let reached = device.flush()?;
    let _published = superblock::publish(device, &replayed.superblock, reached)?;
    count(&replayed, counters);
    counters.recovery_ns.set(time.nanos());
    Ok((replayed.superblock, replayed.ended))
}

/// For an opening that writes nothing: the journal stays as it is, and its nodes are kept in memory.
pub(crate) fn look(
    device: &dyn Device,
    before: &Superblock,
    counters: &Counters,
) -> Result<Replayed> {
    let time = Stopwatch::start();
    let replayed = replay(device, before)?;
    if let Some(why) = hole(&replayed) {
        tracing::error!("{why}; what was done before it can be read");
    }
    if replayed.commits > 0 {
        count(&replayed, counters);
        counters.recovery_ns.set(time.nanos());
    }
    Ok(replayed)
}

fn count(replayed: &Replayed, counters: &Counters) {
    counters.recovered_commits.set(replayed.commits);
    counters.recovered_nodes.set(replayed.nodes.len() as u64);
    counters.recovered_bytes.set(replayed.bytes);
}

fn hole(replayed: &Replayed) -> Option<String> {
    let (missing, proof) = replayed.damage?;
    Some(format!(
        "the journal is damaged: commit {missing} was durable and is gone (the frame at block {proof} is younger)"
    ))
}
