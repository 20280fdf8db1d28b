//! Repairs a volume, without the engine.
//!
//! [`plan`] reads the volume as the check does, decides what to put right, and writes all of that to memory, in front of the
//! device. A check of the result is the proof: if it finds anything left, nothing is written. [`Planned`] says what would be
//! done and what is lost by it, and [`Planned::write`] does it: first nodes and data to places that nothing reaches, then a
//! flush, then one superblock, so that a power cut leaves the volume as it was or as it is repaired.
//!
//! What is put right, and how, finding by finding: docs/FSCK.md. The rules of what trees share: `rewrite.rs`.

mod account;
mod blocks;
mod copies;
mod cut;
mod error;
mod judge;
mod lineage;
mod relocate;
mod names;
mod older;
mod overlay;
mod owners;
mod pack;
mod plan;
mod refuse;
mod ring_places;
mod rewrite;
mod round;
mod superblocks;
mod descriptions;
mod undo;
mod walk;
mod watched;
mod write;

pub use copies::Unmended;
pub use descriptions::answer;
pub use error::RepairError;
pub use plan::Repair;
pub use refuse::why_not;
pub use undo::{Undo, UndoError, Undone};
pub use write::Planned;

use std::ops::ControlFlow;

use holdfast_check::reading::Gaps;
use holdfast_check::{Issue, Report, Severity};
use holdfast_device::Device;

use round::Effort;

/// What a repair may do.
#[derive(Clone, Copy, Debug, Default)]
pub struct RepairOptions {
    /// Read all data of files, before and behind, and verify its checksums.
    pub data: bool,
    /// Go on where what was durable, or cannot be read just now, is lost by that: cut damaged rings at the last good
    /// batch, leave out nodes that the device cannot read, give up a branch or snapshot, its root directory or all that it has.
    pub accept_loss: bool,
}

/// Rounds after which a repair that leaves something wrong is given up.
const ROUNDS: u8 = 4;

/// Decides how to repair the volume on `device`, of which `before` was found. Writes nothing.
///
/// Fails where a repair is beyond this program or needs [`RepairOptions::accept_loss`], where nothing is free for what must be written anew, and if the
/// device does not read.
pub fn plan(
    device: &dyn Device,
    before: &Report,
    options: &RepairOptions,
) -> Result<Planned, RepairError> {
    refuse::unrepairable(device, before, options)?;
    if ring_places::is_all(before, options) {
        return ring_places::plan(device, before, options);
    }
    let done = tries(before).try_fold(None, |_, how| {
        match round::run(device, before, options, (&[], how), ROUNDS) {
            Err(error @ (RepairError::NoSpace(_) | RepairError::Refused(_))) => {
                ControlFlow::Continue(Some(Err(error)))
            }
            done => ControlFlow::Break(done),
        }
    });
    let done = match done {
        ControlFlow::Continue(failed) => {
            failed.unwrap_or(RepairError::refused("nothing was tried"))
        }
        ControlFlow::Break(done) => done,
    }?;
    refuse::unaccepted(&done.given_up, options)?;
    let planned = Planned::new(done);
    planned.expect_room(device)?;
    Ok(planned)
}

/// What is tried, one after the other. What older versions name is not written to, and without them there may be room; and without what was made
/// behind a hole nothing may be left.
fn tries(before: &Report) -> impl Iterator<Item = Effort> {
    let has_hole = before.findings.iter().any(|it| round::is_cut(it.issue()));
    let holes = [Gaps::Cross, Gaps::End].into_iter().skip(usize::from(!has_hole));
    holes.flat_map(|holes| [true, false].map(|is_searched| Effort { is_searched, holes }))
}

/// Whether a place of a frame or a batch is bad of which the other one counts: [`plan`] writes it again.
pub fn has_bad_ring_places(report: &Report) -> bool {
    !report.bad_ring_parts.is_empty()
}

/// Whether nothing is left that a repair puts right: damaged data stays as it is, and reads of it go on to fail.
/// [`has_bad_ring_places`] is asked besides: a volume goes on without these.
pub fn is_repaired(report: &Report) -> bool {
    let stays = [Issue::DataDamaged, Issue::DataUnreadable, Issue::Fault].map(Issue::number);
    // Of an issue of which more was found than is kept, some is kept.
    report.findings.iter().all(|it| it.severity == Severity::Note || stays.contains(&it.id))
}
