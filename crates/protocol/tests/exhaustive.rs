//! Every state of the model within its bounds: all promises hold, and everything happens that should.
//!
//! `HOLDFAST_PROTOCOL=operations,commits,crashes,files,log,journal` explores other bounds than the first
//! test does: the last two are how many batches and commits the rings hold, three at most.

use std::env;
use std::thread::available_parallelism;

use holdfast_protocol::{Bounds, HOLDS, Protocol, Rings};
use stateright::{Checker, Model};

fn bounds(text: &str) -> Bounds {
    let numbers: Vec<u8> = text.split(',').filter_map(|part| part.trim().parse().ok()).collect();
    let [operations, commits, crashes, files @ 1..=2, log @ 1..=3, journal @ 1..=3] = numbers[..]
    else {
        panic!("HOLDFAST_PROTOCOL={text}: operations,commits,crashes,files,log,journal are wanted");
    };
    Bounds { operations, commits, crashes, files, rings: Rings { log, journal } }
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
    let checker = explore(bounds(asked.as_deref().unwrap_or("2,2,1,2,2,2")));
    if asked.is_err() {
        checker.assert_properties();
    }
}

/// The same with rings that are full at once, and with power cuts in recoveries of what power cuts left.
#[test]
fn small_rings_and_recoveries_that_are_cut_lose_nothing() {
    explore(bounds("2,2,1,2,1,1"));
    explore(bounds("2,1,2,2,2,1"));
}
