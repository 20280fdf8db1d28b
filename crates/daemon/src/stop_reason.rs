//! Why a volume writes nothing any more (P7), as its daemon tells it.

use holdfast_base::Timestamp;
use holdfast_service::moment::{ISO, utc};
use holdfast_service::outcome::without_number;
use serde::{Deserialize, Serialize};

/// Letters of the reason that are told.
const LETTERS: usize = 400;

/// When and why a volume has stopped.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Stopped {
    /// Seconds since 1970.
    pub since: i64,
    /// The error, in words.
    pub reason: String,
}

impl Stopped {
    /// As the library says it.
    pub(crate) fn new((since, reason): (Timestamp, String)) -> Stopped {
        let reason = without_number(&reason).chars().take(LETTERS).collect();
        Stopped { since: since.secs, reason }
    }

    /// Since when, why, and what to do.
    pub fn words(&self) -> String {
        let since = utc(self.since, ISO);
        format!(
            "{since}, after an error: {}; nothing is written since. What it has can be read; unmount it, and mount it again when the cause is gone",
            self.reason
        )
    }
}
