//! What a command needs that gives a branch another head: a rollback, and the promotion of a fork.

use super::by_time::Purpose;
use super::{Name, arguments};
use crate::outcome::Failure;

/// The exit code where the branch has its new head, and the kernel still remembers some of what was.
const NOT_FORGOTTEN: u8 = 3;

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

/// The branch has its new head, and a program may not see it. `what` says what has happened.
pub(crate) fn not_forgotten(what: &str) -> Failure {
    let sentence = format!(
        "{what}, but the kernel has not yet forgotten everything that was, and programs \
         may still see some of it; it goes on to be told, and waits for a program that is reading or writing there"
    );
    Failure::new(NOT_FORGOTTEN, sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_still_shows_is_no_success_and_no_failure() {
        let failure = not_forgotten("main is rolled back to main@s");
        assert_eq!(failure.code, NOT_FORGOTTEN);
        assert!(failure.sentence.starts_with("main is rolled back to main@s, but "));
    }
}
