//! Power cuts over the fsync log: as `power_cut.rs`, with most batches made durable by the log alone, and
//! with data inside it (P1 to P3, P5, P9, R5, R7).
//!
//! A failure prints the conditions and the seed. `HOLDFAST_SEEDS=50` runs fifty seeds of each.

use holdfast_base::switch::{Accounting, Dirty};

use crate::crash_generations::{Conditions, survive};

#[test]
fn one_life_and_every_cut() {
    for (seed, node_size) in [(1, 4096), (2, 16384), (3, 65536)] {
        let seen = survive(seed, 1, 50, &Conditions { node_size, ..Conditions::fsyncs() });
        assert!(seen.batches > 3, "{seen:?}");
    }
}

#[test]
fn a_ring_that_is_hardly_ever_emptied_wraps() {
    let how = Conditions { commits: 0, checkpoints: 0, steps: 60, ..Conditions::fsyncs() };
    let seen = survive(50, 2, 80, &how);
    assert!(seen.batches > 10 && seen.wrapped > 0, "{seen:?}");
}

#[test]
fn sectors_of_4096() {
    let how = Conditions { sector: 4096, openings: 2, steps: 25, ..Conditions::fsyncs() };
    survive(70, 2, 50, &how);
}

/// Batches that no caller waits for, then batches that callers wait for, and confirmations.
#[test]
fn volumes_that_rest() {
    let rests = Conditions { rests: 2, ..Conditions::fsyncs() };
    survive(600, 2, 50, &Conditions { openings: 2, steps: 30, ..rests.clone() });
    survive(610, 2, 50, &Conditions { generations: 8, steps: 10, log_data: 1, ..rests.clone() });
    survive(620, 2, 50, &Conditions { openings: 6, steps: 12, ..rests.clone() });
    survive(630, 2, 50, &Conditions { commits_beside: true, background: true, ..rests.clone() });
    survive(640, 2, 50, &Conditions { physical_sector: 4096, syncs: 3, ..rests });
}

/// A torn write takes what lies in its physical sector, flushed or not.
#[test]
fn sectors_of_512_in_physical_ones_of_4096() {
    let physical = Conditions { physical_sector: 4096, ..Conditions::fsyncs() };
    survive(72, 2, 50, &Conditions { openings: 2, steps: 25, ..physical.clone() });
    survive(74, 2, 50, &Conditions { generations: 8, steps: 8, log_data: 1, ..physical });
}

#[test]
fn a_journal_that_is_full_again_and_again() {
    let how = Conditions {
        node_size: 65536,
        dirty: Dirty::Whole,
        accounting: Accounting::Always,
        checkpoints: 0,
        commits: 3,
        steps: 30,
        ..Conditions::fsyncs()
    };
    let seen = survive(80, 1, 50, &how);
    assert!(seen.full > 0, "{seen:?}");
}

#[test]
fn many_generations_that_end_without_a_flush() {
    survive(100, 4, 50, &Conditions { openings: 6, steps: 12, ..Conditions::fsyncs() });
}

#[test]
fn generations_after_power_cuts() {
    for (number, node_size) in [(0, 4096), (1, 16384), (2, 65536)] {
        for log_data in [0, 1] {
            let background = number == 1;
            let how = Conditions {
                node_size,
                log_data,
                background,
                generations: 8,
                steps: 8,
                ..Conditions::fsyncs()
            };
            survive(500 + 1000 * number, 2, 50, &how);
        }
    }
}

#[test]
fn commits_and_checkpoints_beside_fsyncs() {
    for (background, commits_beside) in [(false, true), (true, false), (true, true)] {
        let how = Conditions {
            background,
            commits_beside,
            commits: 0,
            checkpoints: 0,
            openings: 2,
            ..Conditions::fsyncs()
        };
        let seen = survive(300, 2, 50, &how);
        println!("{seen:?}");
    }
}

/// Rings that become longer when they fill, and longer or shorter whenever a call says so: between two steps, and beside them.
#[test]
fn rings_whose_lengths_change() {
    let short = Conditions { ring_room: 256, checkpoints: 0, ..Conditions::fsyncs() };
    let turned = |first, how: &Conditions| {
        let seen = survive(first, 2, 50, how);
        println!("{seen:?}");
        assert!(seen.turned > 0, "{seen:?}");
    };
    let fills = Conditions { commits: 0, steps: 60, ..short.clone() };
    turned(700, &fills);
    turned(710, &Conditions { turns: 6, steps: 60, ..short.clone() });
    turned(720, &Conditions { turns: 3, openings: 6, steps: 12, ..short.clone() });
    turned(730, &Conditions { turns: 2, generations: 8, steps: 10, log_data: 1, ..short.clone() });
    let beside = Conditions { turns_beside: true, commits_beside: true, rests: 3, ..short.clone() };
    turned(740, &beside);
    turned(750, &Conditions { turns: 4, copies: true, ring_room: 144, steps: 30, ..short });
}

#[test]
fn recovery_cut_at_every_call_of_every_image() {
    survive(400, 1, 1, &Conditions { steps: 8, ..Conditions::fsyncs() });
}
