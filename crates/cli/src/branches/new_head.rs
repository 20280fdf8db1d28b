//! What a command needs that gives a branch another head: a rollback, and the promotion of a fork.

use holdfast_service::branches::by_time::Purpose;

use super::{Name, arguments};

/// What becomes of the head that the branch had.
#[derive(Debug, clap::Args)]
pub(crate) struct Keep {
    /// Delete what the branch was.
    #[arg(long, conflicts_with = "keep")]
    discard: bool,
    /// Keep what the branch was as a snapshot of this name.
    #[arg(long, value_name = "NAME", value_parser = arguments::name())]
    keep: Option<Name>,
}

impl Keep {
    /// The name of the snapshot, if it is kept: without one on the command line by the time.
    pub(crate) fn name(&self, purpose: Purpose) -> Option<Name> {
        match (self.discard, &self.keep) {
            (true, _) => None,
            (false, Some(keep)) => Some(keep.clone()),
            (false, None) => Some(purpose.new_name()),
        }
    }
}
