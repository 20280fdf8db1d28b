//! A rename logs its names and nothing else (M2).

use holdfast_base::counters::Counters;
use holdfast_base::switch::RenameLog;
use holdfast_base::{InodeNo, Lsn};
use holdfast_store::Branch;

use crate::Result;

/// Remembers no names.
#[derive(Debug)]
pub(crate) struct DirectoryLog;

impl DirectoryLog {
    pub(crate) fn new(_: RenameLog) -> DirectoryLog {
        DirectoryLog
    }

    pub(crate) fn changed(&self, _: &Branch, _: InodeNo, _: u64, _: Lsn) {}

    pub(crate) fn prepare(&self, _: &Branch, _: &[InodeNo]) -> Again {
        Again
    }
}

/// Logs no directory once more.
pub(crate) struct Again;

impl Again {
    pub(crate) fn log(
        &mut self,
        _: &DirectoryLog,
        _: &Branch,
        _: &Counters,
        _: &[InodeNo],
    ) -> Result<()> {
        Ok(())
    }
}
