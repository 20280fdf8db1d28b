//! How much is done: the sizes of each workload at each scale.

use std::time::Duration;

/// How much is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Seconds: shows that it works, and orders of magnitude.
    Quick,
    /// Minutes: sizes as published, short runs.
    Usual,
    /// An hour: sizes as published, long runs, more rounds.
    Full,
    /// Half an hour: as usual, and runs as long as the published ones where their length was published.
    Published,
}

impl Scale {
    /// The value for this scale.
    pub(crate) fn pick<T>(self, quick: T, usual: T, full: T) -> T {
        match self {
            Scale::Quick => quick,
            Scale::Usual | Scale::Published => usual,
            Scale::Full => full,
        }
    }

    /// Runs of each kind.
    pub(crate) fn rounds(self) -> u64 {
        self.pick(1, 3, 5)
    }

    /// Runs of each kind, in words.
    pub(crate) fn rounds_text(self) -> String {
        rounds_text(self.rounds())
    }

    /// How long a run by time takes.
    pub(crate) fn time(self) -> Duration {
        Duration::from_millis(self.pick(150, 1_500, 10_000))
    }

    /// `quick`, `usual`, `full` or `published`.
    pub fn word(self) -> &'static str {
        match self {
            Scale::Published => "published",
            _ => self.pick("quick", "usual", "full"),
        }
    }
}

/// So many runs of each kind, in words.
pub(crate) fn rounds_text(rounds: u64) -> String {
    match rounds {
        1 => "one round".into(),
        rounds => format!("{rounds} rounds"),
    }
}
