//! How often a daemon is started again: as often as it dies, but not for ever if it dies at once each time.

use std::time::Duration;

/// A daemon that has answered requests for so long is one that works.
const WORKS: Duration = Duration::from_secs(1);
/// Deaths in a row, of daemons that did not work, before the mounts are given up.
const MOST: u32 = 10;
/// Before the second daemon in a row; twice as long before each one more.
const PAUSE: Duration = Duration::from_millis(10);
/// The longest.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Deaths in a row.
#[derive(Debug, Default)]
pub(super) struct Restarts {
    in_a_row: u32,
}

impl Restarts {
    /// A daemon has died that had answered requests for so long, or never has. How long to wait before the next; `None`: there
    /// shall be none.
    pub(super) fn died(&mut self, worked: Option<Duration>) -> Option<Duration> {
        if worked.is_some_and(|time| time >= WORKS) {
            self.in_a_row = 0;
        }
        self.in_a_row += 1;
        let again = self.in_a_row.checked_sub(2);
        let pause = again.map_or(Duration::ZERO, |n| PAUSE.saturating_mul(1 << n.min(16)));
        (self.in_a_row <= MOST).then_some(pause.min(PAUSE_MAX))
    }

    /// How many daemons have died in a row.
    pub(super) fn in_a_row(&self) -> u32 {
        self.in_a_row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_dies_at_once_is_not_started_for_ever() {
        let mut restarts = Restarts::default();
        let soon = Some(Duration::from_millis(3));
        let pauses: Vec<_> = (0..12).map_while(|_| restarts.died(soon)).collect();
        let millis: Vec<_> = pauses.iter().map(Duration::as_millis).collect();
        assert_eq!(millis, [0, 10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        assert_eq!(restarts.died(None), None);
    }

    #[test]
    fn one_that_works_is_started_however_often_it_dies() {
        let mut restarts = Restarts::default();
        for _ in 0..1000 {
            assert_eq!(restarts.died(Some(WORKS)), Some(Duration::ZERO));
            assert!(restarts.died(None).is_some());
        }
    }
}
