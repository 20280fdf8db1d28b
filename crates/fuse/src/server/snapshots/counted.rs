//! What the directory says of itself: how many snapshots it has, and when that changed last.
//!
//! All snapshots are looked at once; then each change of one counts. So neither a look at the directory nor a new snapshot costs
//! what the whole volume has, and what others do with other branches costs nothing.

use holdfast_base::Timestamp;
use holdfast_posix::{NameChange, SnapshotInfo};
use parking_lot::Mutex;

use crate::interface::Answer;

const NANOS: u32 = 1_000_000_000;

/// What the directory says of its snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) number: u64,
    /// When one was taken, deleted or renamed last, as far as this mount has seen it; before, when the last one was taken.
    pub(super) changed: Option<Timestamp>,
}

/// The same, while it changes.
#[derive(Debug, Default)]
pub(super) struct Counts(Mutex<SnapshotCount>);

#[derive(Debug, Default)]
struct SnapshotCount {
    counted: Option<Counted>,
    /// What it said last of when that changed.
    said: Option<Timestamp>,
    /// Changes that were heard of.
    heard: u64,
}

impl Counts {
    /// What it is now. `list` gives all, once.
    pub(super) fn get(&self, list: impl Fn() -> Answer<Vec<SnapshotInfo>>) -> Answer<Counted> {
        loop {
            let heard = {
                let state = self.0.lock();
                if let Some(counted) = state.counted {
                    return Ok(counted);
                }
                state.heard
            };
            let all = list()?;
            let changed = all.iter().map(|of| of.created).max();
            let mut state = self.0.lock();
            // Otherwise it is not known whether the list has that already.
            if state.heard == heard {
                let changed = changed.max(state.said);
                state.counted = Some(Counted { number: all.len() as u64, changed });
            }
        }
    }

    /// Names have come, gone, or become others.
    pub(super) fn named(&self, what: &NameChange) {
        let mut state = self.0.lock();
        state.heard += 1;
        let Some(mut counted) = state.counted else { return };
        // The time moves, whatever the clock says: the kernel knows by it whether its listing is old.
        let now = Timestamp::now();
        counted.changed = Some(counted.changed.map_or(now, |before| now.max(next(before))));
        state.said = counted.changed;
        let NameChange::Snapshot(what) = what else {
            state.counted = None;
            return;
        };
        counted.number += u64::from(!what.is.is_empty());
        counted.number = counted.number.saturating_sub(u64::from(!what.was.is_empty()));
        state.counted = Some(counted);
    }
}

fn next(time: Timestamp) -> Timestamp {
    match time.nanos + 1 {
        NANOS.. => Timestamp { secs: time.secs.saturating_add(1), nanos: 0 },
        nanos => Timestamp { nanos, ..time },
    }
}

#[cfg(test)]
mod tests {
    use holdfast_posix::SnapshotNamed;

    use super::*;

    fn named(was: &str, is: &str) -> NameChange {
        NameChange::Snapshot(SnapshotNamed {
            branch: 1,
            snapshot: 2,
            was: was.into(),
            is: is.into(),
        })
    }

    #[test]
    fn a_change_counts_without_a_look_at_all() {
        let counts = Counts::default();
        let none = || panic!("all are looked at once");
        assert_eq!(counts.get(|| Ok(Vec::new())), Ok(Counted { number: 0, changed: None }));
        let mut before = None;
        for (was, is, number) in [("", "a", 1), ("", "b", 2), ("a", "c", 2), ("b", "", 1)] {
            counts.named(&named(was, is));
            let now = counts.get(none).unwrap();
            assert_eq!(now.number, number);
            assert!(now.changed > before, "its time moves");
            before = now.changed;
        }
        assert_eq!(next(Timestamp { secs: 3, nanos: NANOS - 1 }), Timestamp { secs: 4, nanos: 0 });
    }

    #[test]
    fn snapshots_that_join_are_found_by_a_look_at_all_and_the_time_moves() {
        let counts = Counts::default();
        let none = || Ok(Vec::new());
        counts.get(none).unwrap();
        counts.named(&named("", "a"));
        let before = counts.get(none).unwrap().changed;
        counts.named(&NameChange::Joined { from: 7, to: 1 });
        let now = counts.get(none).unwrap();
        assert_eq!(now.number, 0, "it is as the look has it");
        assert!(now.changed > before);
    }

    #[test]
    fn a_change_beside_the_look_at_all_has_it_done_again() {
        let counts = Counts::default();
        let looks = std::cell::Cell::new(0);
        let found = counts.get(|| {
            if looks.replace(looks.get() + 1) == 0 {
                counts.named(&named("", "a"));
            }
            Ok(Vec::new())
        });
        assert_eq!((found.map(|it| it.number), looks.get()), (Ok(0), 2));
    }
}
