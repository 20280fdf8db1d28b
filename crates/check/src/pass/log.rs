//! Pass 9, the third to run: the fsync log, whose batches belong to the volume.
//!
//! The replay came before all passes, since they see what it leaves. A batch
//! that a crash cut off, or whose data did not arrive, is no finding.

use holdfast_base::BlockNo;
use holdfast_base::units::BLOCK_BYTES;

use super::Context;
use crate::issue::Issue;
use crate::log::{Damage, Ring};

pub(super) fn run(context: &mut Context<'_>) {
    let recovered = context.recovered;
    let replay = &recovered.log;
    let ring = Ring::new(context.volume.device, &recovered.journal.superblock);
    let findings = &mut context.findings;
    if let Some(error) = &recovered.log_error {
        let at = ring.block(replay.end.at);
        findings.add(Issue::LogUnreadable, error.to_string()).block(at);
    }
    if let Some((block, error)) = &replay.unsearched {
        let what = format!("the log could not be searched to its end: {error}");
        findings.add(Issue::LogUnreadable, what).block(*block);
    }
    for fault in &replay.faults {
        findings.add(fault.issue, fault.what.clone()).block(fault.block);
    }
    for (batch, bad) in &replay.bad_places {
        let what = format!("batch {batch} is not at one of its places: {}", bad.why);
        let begins = bad.parts.first().map_or(0, |part| part.bad);
        findings.add(Issue::BatchPlaceBad, what).block(BlockNo(begins / BLOCK_BYTES));
        findings.bad_ring_parts.extend(&bad.parts);
    }
    if let Some(Damage { batch, proof }) = &replay.damage {
        let (end, later) = (&replay.end, proof.batch);
        let what = format!(
            "batch {batch} is not there ({}), but batch {later} at byte {} of the log says that batch {} was \
             durable",
            end.why, proof.at, proof.durable
        );
        findings.add(Issue::LogDamaged, what).block(ring.block(end.at));
    }
    context.facts.log_batches = replay.batches;
    context.facts.log_records = replay.records;
    context.facts.log_bytes_used = replay.bytes;
}
