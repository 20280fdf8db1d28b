//! The moments at which the clock is pinned, so that the same script writes the same bytes each time.

use holdfast_base::clock::{Pinned, pin};

/// Whole seconds since 1970 at which volumes are made; scripts run a day later, images are opened after a week.
const MADE: u64 = 1_700_000_000;
const DAY: u64 = 86_400;

/// The clock of the making of a volume.
pub(crate) fn making_time() -> Pinned {
    pin(MADE * 1_000_000_000)
}

/// The clock of a script that runs.
pub(crate) fn run_time() -> Pinned {
    pin((MADE + DAY) * 1_000_000_000)
}

/// The clock of an opening after a power cut.
pub(crate) fn visit_time() -> Pinned {
    pin((MADE + 7 * DAY) * 1_000_000_000)
}
