//! The second opinion: reads a volume without the engine, and says what is wrong with it.
//!
//! [`check`] runs the passes of [`pass::PASSES`] over a device and returns a
//! [`Report`]; [`dump()`] prints any structure; [`identify`] recognises foreign
//! content before mkfs overwrites it. Nothing here writes.
//!
//! A hostile image gives findings, never a panic, a hang or more memory than
//! its metadata takes (P10): a node is visited once, descent ends at the
//! level in the superblock, and lists grow only with what was really read.
//!
//! The commits of the journal and the batches of the log belong to the volume:
//! everything but [`Subject::Superblocks`] sees what [`journal::replay`] and
//! [`log::replay`] make of it. [`view`] lists what that is.
//!
//! Shares no code with the engine but the words of `format` and `device`, and what starts threads.

pub mod changes;
pub mod dump;
pub mod error;
pub mod foreign;
pub mod sweep;
pub mod issue;
pub mod journal;
pub mod log;
pub mod pass;
pub mod reading;
pub mod report;
pub mod runs;
mod ring_part;
mod data_sums;
mod ascending;
mod bounds;
mod difference;
mod inodes;
mod items;
mod lineage;
mod node_place;
mod nodes;
mod patched;
mod path;
mod recovered;
mod referenced;
mod met_nodes;
mod superblocks;
mod text;
mod view;
mod volume;
mod walk;

pub use dump::{Subject, dump};
pub use error::CheckError;
pub use foreign::{OURS, identify, identify_other};
pub use issue::{Issue, Severity};
pub use referenced::{Referenced, referenced};
pub use report::{BadPlace, Counted, Facts, Finding, Report, Summary};
pub use ring_part::BadRingPart;
pub use view::{View, view};
pub use walk::extent_blocks;

use holdfast_device::Device;
use holdfast_format::Superblock;

/// What a check looks at.
#[derive(Default)]
pub struct Options<'a> {
    /// Read all data of files and verify its checksums.
    pub data: bool,
    /// Called now and then with how far the check is.
    pub progress: Option<&'a dyn Fn(Progress)>,
}

/// How far a check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Name of the running pass.
    pub pass: &'static str,
    /// Nodes or blocks done in this pass.
    pub done: u64,
    /// How many there will be, as far as the superblock or earlier passes tell; 0 if unknown.
    pub total: u64,
    /// Nodes that all passes have judged, each as often as one was: what the check has cost until now.
    pub judged: u64,
}

/// Checks the volume on `device`. Damage is a finding, not an error: an error means that there is
/// no volume, or that the device does not read.
pub fn check(device: &dyn Device, options: &Options<'_>) -> Result<Report, CheckError> {
    pass::run(device, options)
}

/// What to do with the volume on `device` if it has an older format, in a sentence.
pub fn older(device: &dyn Device) -> Option<String> {
    superblocks::Slots::read(device).ok()?.older()
}

/// Whether both superblocks of the volume on `device` are lost, and the far copy leads to it.
pub fn has_far_copy_alone(device: &dyn Device) -> bool {
    superblocks::Slots::read(device).is_ok_and(|slots| slots.only_far().is_some())
}

/// What the volume on `device` is, by its newest valid superblock, the journal behind it and the log
/// behind that, if there is a Holdfast volume that this program reads. What does not read of journal
/// and log counts as empty.
pub fn probe(device: &dyn Device) -> Option<Summary> {
    let slots = superblocks::Slots::read(device).ok()?;
    let superblock = slots.newest()?;
    Some(Summary::new(superblock, &slots, &recovered::Recovered::read(device, superblock)))
}

/// The newest valid superblock in the two slots on `device`, if there is a Holdfast volume that this program reads. Its id and its
/// label are those of the volume, also while that is mounted. Reads at most a few blocks and nothing that they point to, whatever they say.
pub fn newest_superblock(device: &dyn Device) -> Option<Superblock> {
    superblocks::Slots::read(device).ok()?.newest().cloned()
}
