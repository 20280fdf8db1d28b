//! Power cuts: the store runs random batches on a recording device; after every call, what may be
//! left must open as one moment of history, not before the last sync that returned (P3, P9), and
//! both replays must agree on it.
//!
//! A failure prints the conditions and the seed. `HOLDFAST_SEEDS=50` runs fifty seeds of each.

mod damage;

use std::panic::{AssertUnwindSafe, catch_unwind};

use holdfast_base::switch::{Accounting, Dirty};
use holdfast_device::sim::Call;

use crate::crash_generations::{Conditions, run, survive};

#[test]
fn one_life_and_every_cut() {
    for (seed, node_size) in [(1, 4096), (2, 16384), (3, 65536)] {
        survive(seed, 1, 50, &Conditions { node_size, ..Conditions::default() });
    }
}

#[test]
fn a_journal_that_is_never_emptied_replays_all_its_commits() {
    let how = Conditions { journal_blocks: 256, checkpoints: 0, steps: 60, ..Default::default() };
    let seen = survive(50, 1, 50, &how);
    assert!(seen.commits > 6, "{seen:?}");
}

#[test]
fn many_generations_that_end_without_a_flush() {
    survive(10, 5, 50, &Conditions { openings: 6, steps: 12, ..Conditions::default() });
}

/// R10: nodes and their copies, in all that a power cut leaves.
#[test]
fn nodes_that_are_stored_twice() {
    for node_size in [4096, 16384] {
        let how =
            Conditions { node_size, copies: true, openings: 3, steps: 12, ..Default::default() };
        survive(900, 2, 50, &how);
        survive(910, 1, 50, &Conditions { generations: 4, steps: 8, openings: 1, ..how });
    }
}

/// One opening after the other, each on what a power cut left of the one before, in every position of the
/// switches.
#[test]
fn generations_after_power_cuts() {
    for (number, &dirty) in Dirty::ALL.iter().enumerate() {
        for (&accounting, background) in Accounting::ALL.iter().zip([false, true]) {
            let how = Conditions {
                node_size: [4096, 16384, 65536][number],
                dirty,
                accounting,
                background,
                generations: 8,
                steps: 8,
                ..Conditions::default()
            };
            survive(500 + 1000 * number as u64, 2, 50, &how);
        }
    }
}

#[test]
fn whole_nodes_fill_the_ring_and_wrap_around_it() {
    for node_size in [16384, 65536] {
        let how = Conditions {
            node_size,
            dirty: Dirty::Whole,
            accounting: Accounting::Always,
            checkpoints: 16,
            openings: 2,
            steps: 20,
            ..Conditions::default()
        };
        survive(100, 1, 80, &how);
    }
}

#[test]
fn bitmaps_and_groups_that_are_always_written() {
    let how = Conditions {
        node_size: 16384,
        dirty: Dirty::Bitmap,
        accounting: Accounting::Always,
        openings: 3,
        steps: 15,
        ..Conditions::default()
    };
    survive(200, 1, 50, &how);
}

#[test]
fn checkpoints_beside_commits() {
    let how = Conditions { background: true, checkpoints: 0, openings: 2, ..Conditions::default() };
    survive(300, 2, 50, &how);
}

#[test]
fn recovery_cut_at_every_call_of_every_image() {
    survive(400, 1, 1, &Conditions { steps: 8, ..Conditions::default() });
}

#[test]
fn devices_that_lie_are_found_out() {
    for (call, n, least) in [(Call::Flush, 5, 5), (Call::Write, 6, 5)] {
        let lies = Some((call, n));
        let how = Conditions { lies, steps: 20, checkpoints: 4, ..Conditions::default() };
        let found = (600..606)
            .filter(|&seed| catch_unwind(AssertUnwindSafe(|| run(seed, &how, 50))).is_err())
            .count();
        assert!(found >= least, "{call:?}: {found} of 6 were found out");
    }
}
