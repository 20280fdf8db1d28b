//! Every state of the model within its bounds: all promises hold, and everything happens that should.
//!
//! `HOLDFAST_PROTOCOL=operations,commits,crashes,files,log,journal,reserved,twice` explores other bounds than the
//! first test does: how many batches and commits the rings hold, four at most, with the marker of a recovery, 1 if blocks are reserved and written
//! in place, and 1 if the rings stand twice and one place may rot.

use std::env;
use std::thread::available_parallelism;

use holdfast_protocol::{Bounds, FILLED, HOLDS, Protocol, ROTTEN, Rings, UNWRITTEN};
use stateright::{Checker, Model};

fn bounds(text: &str) -> Bounds {
    let numbers: Vec<u8> = text.split(',').filter_map(|part| part.trim().parse().ok()).collect();
    let [
        operations,
        commits,
        crashes,
        files @ 1..=2,
        log @ 1..=4,
        journal @ 1..=4,
        reserved @ 0..=1,
        twice @ 0..=1,
    ] = numbers[..]
    else {
        let wanted = "operations,commits,crashes,files,log,journal,reserved,twice";
        panic!("HOLDFAST_PROTOCOL={text}: {wanted} are wanted");
    };
    let rings = Rings { log, journal, twice: twice == 1 };
    Bounds { operations, commits, crashes, files, rings, reserved: reserved == 1 }
}

/// Explores all states, and fails with the shortest way to a bad one.
fn explore(bounds: Bounds) -> impl Checker<Protocol> {
    let threads = available_parallelism().map_or(1, |threads| threads.get());
    let checker = Protocol { bounds, broken: None }.checker().threads(threads).spawn_bfs().join();
    println!(
        "{bounds:?}: {} transitions, {} states, depth {}",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth()
    );
    if let Some(path) = checker.discovery(HOLDS) {
        let why = path.last_state().violation().expect("it was found by this");
        let steps: Vec<String> =
            path.into_actions().iter().map(|action| format!("{action:?}")).collect();
        panic!("{why}:\n  {}", steps.join("\n  "));
    }
    checker
}

/// P1, P3, P5, P6, and with them R1, R2, R5, R7.
#[test]
fn every_promise_holds_in_every_state() {
    let asked = env::var("HOLDFAST_PROTOCOL");
    let checker = explore(bounds(asked.as_deref().unwrap_or("2,2,1,2,3,3,0,0")));
    if asked.is_err() {
        checker.assert_properties();
    }
}

/// The same with rings that are full at once, and with power cuts in recoveries of what power cuts left.
#[test]
fn small_rings_and_recoveries_that_are_cut_lose_nothing() {
    explore(bounds("2,2,1,2,2,2,0,0"));
    explore(bounds("2,1,2,2,3,2,0,0"));
}

/// Blocks that a file has reserved, or had data in before, are written in place: zeros or the new bytes, and no recovery
/// misses what was there before.
#[test]
fn reserved_blocks_are_written_in_place() {
    explore(bounds("2,2,1,1,3,3,1,0"));
    let checker = explore(bounds("3,1,1,1,2,2,1,0"));
    for what in [FILLED, UNWRITTEN] {
        assert!(checker.discovery(what).is_some(), "it never happened: {what}");
    }
}

/// R11: batches and commits stand twice, both places before the one flush. Whatever a power cut leaves of either, and with one
/// of them lost as a whole or in a part (P1).
#[test]
fn rings_that_stand_twice_lose_nothing_with_one_place() {
    let checker = explore(bounds("2,1,1,1,3,3,0,1"));
    assert!(checker.discovery(ROTTEN).is_some(), "it never happened: {ROTTEN}");
    explore(bounds("1,1,2,1,3,2,0,1"));
}
