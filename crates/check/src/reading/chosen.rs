//! A volume that is read by a superblock of the caller's choice, also one that stands nowhere: what is left of a volume
//! whose own superblocks are gone.

use holdfast_device::Device;
use holdfast_format::Superblock;

use super::VolumeReading;
use crate::error::CheckError;
use crate::journal::{self, Reason};
use crate::log::{self, Gaps};
use crate::recovered::Recovered;
use crate::superblocks::Slots;

/// What counts of the rings of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rings {
    /// Journal and log behind the superblock, as far as they read, also over holes.
    Replayed,
    /// Nothing: the trees alone, as the superblock leads to them.
    Ignored,
}

impl<'d> VolumeReading<'d> {
    /// Reads the volume on `device` by `mark`. What of it cannot be is found when it is read: nothing of `mark` is believed
    /// but what nodes are measured by, their size, tag and features.
    ///
    /// # Errors
    /// The device does not read either slot of the superblock.
    pub fn with_superblock(
        device: &'d dyn Device,
        mark: Superblock,
        rings: Rings,
    ) -> Result<VolumeReading<'d>, CheckError> {
        let slots = Slots::read(device)?;
        let recovered = match rings {
            Rings::Replayed => Recovered::read_over(device, &mark, Gaps::Cross),
            Rings::Ignored => Recovered::without_rings(&mark),
        };
        Ok(VolumeReading::of(device, slots, mark, recovered))
    }

    /// What is missing of journal and log although it was durable, or cannot be: a sentence for each. Without any, the state
    /// is the last one.
    pub fn missing_of_rings(&self) -> Vec<String> {
        self.recovered.missing()
    }
}

impl Recovered {
    /// The volume as its superblock alone has it.
    fn without_rings(superblock: &Superblock) -> Recovered {
        let journal = journal::Replay::none(superblock);
        let log = log::Replay::none(&journal.superblock, Reason::Nothing, "it is not looked at");
        Recovered { journal, log, journal_error: None, log_error: None }
    }
}
