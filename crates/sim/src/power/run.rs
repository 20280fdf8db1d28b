//! Runs a script on a recording device, and on the model beside it.
//!
//! Every operation stands between two marks in the recording. What the engine
//! answers must be what the model answers. The clock is pinned, so the same
//! script writes the same bytes, in this run and in all others.

use std::sync::Arc;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_device::sim::{Faults, Recording};
use holdfast_device::{Device, MemoryDevice, SimDevice};
use holdfast_script::{Answer, Data, Errno, FileRef, Op, Outcome, Script, Target};

use super::Policy;
use crate::Engine;
use crate::history::History;
use crate::moments::{making_time, run_time};

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
    let _pinned = making_time();
    let physical = policy.physical_sector.max(policy.sector);
    let device = MemoryDevice::with_sector_sizes(policy.volume, policy.sector, physical);
    let device = Arc::new(device);
    let under = Arc::clone(&device) as Arc<dyn Device>;
    let mut engine = Engine::create(under, policy.setup.clone())
        .map_err(|error| format!("mkfs and mount: {error}"))?;
    for op in before.ops() {
        apply(op, &mut engine, history).map_err(|(_, why)| why)?;
    }
    leave(engine, history)?;
    Ok(device.snapshot())
}

/// Runs the script and then, unless the policy wants none, unmounts, with a mark before and after each. Also how many
/// bytes were written in place.
pub(super) fn record(
    base: &MemoryDevice,
    script: &Script,
    policy: &Policy,
    history: &mut History,
) -> Result<(Recording, u64), String> {
    let _pinned = run_time();
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
    let counters = engine.filesystem().ok().map(|fs| fs.counters().clone());
    let in_place = || counters.as_ref().map_or(0, |of| of.reserved_bytes_written.get());
    if policy.unmount {
        device.mark(begun(history.len()));
        leave(engine, history)?;
        device.mark(returned(history.len()));
        return Ok((device.recording(), in_place()));
    }
    let recording = device.recording();
    // What the end of the engine still writes does not matter.
    device.set_faults(Faults::none());
    drop(engine);
    Ok((recording, in_place()))
}

/// With more room than this beyond what it writes no write has reason to be accepted in steps.
const ROOMY_BYTES: u64 = 2 << 20;

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
        Op::Append { path, .. } => Some(FileRef::Path(path.clone())),
        _ => None,
    };
    let size = |engine: &mut Engine| match engine.apply(&Op::Stat { place: place.clone()? }) {
        Outcome::Ok(Answer::Stat(stat)) => Some(stat.size),
        _ => None,
    };
    let before = size(engine);
    let in_steps =
        |engine: &Engine| engine.filesystem().map_or(0, |fs| fs.counters().writes_in_steps.get());
    let steps = in_steps(engine);
    let room = engine.filesystem().map_or(0, |fs| fs.statfs().blocks_available * BLOCK_BYTES);
    let flushes = engine.device().stats().flushes;
    let answer = engine.apply(op);
    // Or another thread made durable what an fsync should, and no more than that.
    let quiet = engine.device().stats().flushes == flushes || !engine.is_durable();
    let mut add = |op: &Op, answer: Outcome| {
        history.push(op, &answer).map_err(|why| (answer, why))?;
        if quiet {
            history.found_nothing_undurable();
        }
        Ok(())
    };
    if matches!(answer, Outcome::Ok(_)) && in_steps(engine) > steps && place.is_some() {
        // Room came between the steps: all is written, and a crash may leave the first of them. The engine alone knows of it, and is
        // believed only where room was short.
        let asked = match op {
            Op::Write { data, .. } | Op::Append { data, .. } => data.len(),
            _ => 0,
        };
        if room > ROOMY_BYTES + 2 * asked {
            return Err((answer, format!("accepted in steps, with {room} bytes of room")));
        }
        add(op, answer)?;
        history.was_accepted_in_steps();
        return Ok(());
    }
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
    add(&written, Outcome::Ok(Answer::Done))?;
    history.was_accepted_in_steps();
    Ok(())
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
