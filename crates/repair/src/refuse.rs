//! What is not repaired, or not without being asked twice.

use holdfast_check::reading::{Gaps, VolumeReading};
use holdfast_check::{Issue, Report};
use holdfast_device::Device;

use crate::error::RepairError;
use crate::{RepairOptions, cut};

/// Findings that stand for something that was durable, or may be read another time.
const LOSSES: [Issue; 11] = [
    Issue::NodeUnreadable,
    Issue::JournalDamaged,
    Issue::CommitMalformed,
    Issue::CommitBase,
    Issue::CommitNode,
    Issue::JournalUnreadable,
    Issue::JournalWiped,
    Issue::LogWiped,
    Issue::LogDamaged,
    Issue::BatchMalformed,
    Issue::BatchGap,
];

/// Why a finding is not answered by writing, if it is not: a sentence.
pub fn why_not(issue: Issue) -> Option<&'static str> {
    Some(match issue {
        Issue::NoSuperblock => "without a superblock nothing says where anything is",
        Issue::VolumeCutShort => {
            "the device is shorter than the volume: what lies behind its end is not there; give it back its length"
        }
        Issue::FeaturesUnknown => {
            "the volume has features that this program does not know: use a newer program"
        }
        Issue::CounterHigh => {
            "a counter is near its end, which no real volume reaches: copy its files to a new one"
        }
        _ => return None,
    })
}

/// Fails if a repair would give up a branch or snapshot, its root directory or all that it has, unless that is accepted. `given_up` are
/// clauses that name each.
pub(crate) fn unaccepted(given_up: &[String], options: &RepairOptions) -> Result<(), RepairError> {
    if given_up.is_empty() || options.accept_loss {
        return Ok(());
    }
    RepairError::refused(format!(
        "{}: nothing is written: copy out with `holdfast salvage` what it finds, then say --accept-loss",
        given_up.join("; ")
    ))
}

/// Fails if something in the report cannot be repaired.
pub(crate) fn unrepairable(
    device: &dyn Device,
    report: &Report,
    options: &RepairOptions,
) -> Result<(), RepairError> {
    let Some(_) = &report.facts.superblock else {
        return RepairError::refused(why_not(Issue::NoSuperblock).unwrap_or_default());
    };
    for finding in &report.findings {
        let issue = finding.issue();
        // The far copy stands for a superblock that is lost.
        let is_far = issue == Issue::NoSuperblock;
        if let Some(why) = why_not(issue).filter(|_| !is_far) {
            return RepairError::refused(format!("{finding}: nothing is written: {why}"));
        }
        let needs_more = LOSSES.contains(&issue)
            || matches!(
                issue,
                Issue::BatchBlocks | Issue::LogUnreadable | Issue::SuperblocksDisagree
            );
        if needs_more && !options.accept_loss {
            let trees = match issue.number() / 100 {
                8 | 9 => {
                    let reading = VolumeReading::open_over(device, false, Gaps::Cross)?;
                    cut::clauses(&reading).join("; ")
                }
                _ => String::new(),
            };
            let trees = if trees.is_empty() { trees } else { format!("; {trees}") };
            return RepairError::refused(format!(
                "{finding}{trees}: nothing is written: what was durable is lost by a repair, or may be read another time; copy the \
                 device, copy out with `holdfast salvage` what it finds, then say --accept-loss"
            ));
        }
    }
    Ok(())
}
