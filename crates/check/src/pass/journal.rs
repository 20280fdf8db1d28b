//! Pass 8, the second to run: the journal, whose commits belong to the volume.
//!
//! The replay came before all passes, since they see what it leaves. A commit
//! that a crash cut off is no finding.

use holdfast_base::BlockNo;
use holdfast_base::units::BLOCK_BYTES;

use super::Context;
use crate::issue::Issue;

pub(super) fn run(context: &mut Context<'_>) {
    let recovered = context.recovered;
    let replay = &recovered.journal;
    let findings = &mut context.findings;
    if let Some(error) = &recovered.journal_error {
        findings.add(Issue::JournalUnreadable, error.to_string()).block(replay.end.at);
    }
    for fault in replay.lost.values().chain(&replay.faults) {
        findings.add(fault.issue, fault.what.clone()).block(fault.block);
    }
    for (commit, bad) in &replay.bad_places {
        let what = format!("a frame of commit {commit} is not at one of its places: {}", bad.why);
        findings.add(Issue::FramePlaceBad, what).block(BlockNo(bad.part.bad / BLOCK_BYTES));
        findings.bad_ring_parts.push(bad.part);
    }
    if let Some(damage) = &replay.damage {
        let (end, later) = (&replay.end, damage.later);
        let what = format!(
            "commit {} is not there ({}), but the frame at block {} of commit {later} says that \
             commit {} was durable",
            damage.commit, end.why, damage.at, damage.durable
        );
        findings.add(Issue::JournalDamaged, what).block(end.at);
    }
    context.facts.journal_commits = replay.commits;
    context.facts.journal_nodes = replay.nodes.len() as u64;
    context.facts.journal_bytes_used = replay.bytes;
    context.facts.recovery_estimate = recovered.log.work(replay).estimate();
}
