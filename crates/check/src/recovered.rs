//! What a recovery would make of a volume: the superblock that counts, the journal behind it, the log
//! behind that.

use holdfast_device::Device;
use holdfast_format::Superblock;

use crate::lineage::{Lineage, TreeRoot};
use crate::log::Gaps;
use crate::volume::Volume;
use crate::{CheckError, journal, log};

/// Journal and log of a volume, replayed as far as they read.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) journal: journal::Replay,
    pub(crate) log: log::Replay,
    /// Why the journal could not be read. Then it counts as empty, and there is no log.
    pub(crate) journal_error: Option<CheckError>,
    /// Why the log could not be read further. Then it ends there.
    pub(crate) log_error: Option<CheckError>,
}

impl Recovered {
    /// Replays both behind `superblock`, which must be valid and the newest of `device`: what a mount shows.
    pub(crate) fn read(device: &dyn Device, superblock: &Superblock) -> Recovered {
        Recovered::read_over(device, superblock, Gaps::End)
    }

    /// The same, also over holes.
    pub(crate) fn read_over(
        device: &dyn Device,
        superblock: &Superblock,
        holes: Gaps,
    ) -> Recovered {
        let (journal, journal_error) = journal::replay_readable(device, superblock);
        let is_cut = journal_error.is_some() || !journal.is_whole();
        let (log, log_error) = log::replay_readable(device, &journal, is_cut, holes);
        Recovered { journal, log, journal_error, log_error }
    }

    /// What is missing of both although it was durable, or cannot be: a sentence for each. Without any, the state is the last one.
    pub(crate) fn missing(&self) -> Vec<String> {
        let Recovered { journal, log, journal_error, log_error } = self;
        let mut missing = Vec::new();
        missing.extend(journal_error.iter().chain(log_error).map(ToString::to_string));
        missing.extend(journal.lost.values().map(|fault| fault.what.clone()));
        missing.extend(journal.faults.iter().chain(&log.faults).map(|fault| fault.what.clone()));
        missing.extend(journal.damage.iter().map(|it| format!("commit {} is gone", it.commit)));
        missing.extend(log.damage.iter().map(|it| format!("batch {} is gone", it.batch)));
        missing
    }

    /// The volume as both leave it.
    pub(crate) fn volume<'a>(&'a self, device: &'a dyn Device) -> Volume<'a> {
        Volume::new(device, &self.journal, &self.log.superblock, self.log.changes())
    }

    /// Every branch and snapshot that has a root, as both leave it.
    pub(crate) fn trees(&self, device: &dyn Device, lineage: &Lineage) -> Vec<TreeRoot> {
        lineage.trees(&self.volume(device), &|id| self.log.inodes_in(id))
    }

    /// The volume with the files tree of a branch or snapshot.
    pub(crate) fn volume_of<'a>(&'a self, device: &'a dyn Device, tree: &TreeRoot) -> Volume<'a> {
        self.volume(device).with_files((tree.root, tree.level), self.log.items_of(tree.id))
    }
}
