//! A build without what was done before: a rename logs its names and nothing else (M2), and an fsync completes its own
//! ordered extents (M5).

use std::sync::Arc;

use holdfast_base::switch::RenameLog;
use holdfast_base::{InodeNo, Lsn};

use crate::Result;
use crate::core::Core;

/// Remembers no names.
#[derive(Debug)]
pub(crate) struct DirectoryLog;

impl DirectoryLog {
    pub(crate) fn new(_: RenameLog) -> DirectoryLog {
        DirectoryLog
    }

    pub(crate) fn changed(&self, _: &Core, _: InodeNo, _: u64, _: Lsn) {}

    pub(crate) fn prepare(&self, _: &Core, _: &[InodeNo]) -> Again {
        Again
    }
}

/// Logs no directory once more.
pub(crate) struct Again;

impl Again {
    pub(crate) fn log(&mut self, _: &Core, _: &[InodeNo]) -> Result<()> {
        Ok(())
    }
}

/// There is no worker.
#[derive(Debug)]
pub(crate) enum Completer {}

impl Completer {
    pub(crate) fn start(_: &Arc<Core>) -> Result<Option<Completer>> {
        Ok(None)
    }

    pub(crate) fn end(_: Option<Completer>) {}
}
