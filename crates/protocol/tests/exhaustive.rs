//! Every state of the model within its bounds: all promises hold, and everything happens that should.
//!
//! `HOLDFAST_PROTOCOL=operations,commits,crashes` explores further.

use std::env;
use std::thread::available_parallelism;

use holdfast_protocol::{Bounds, Protocol};
use stateright::{Checker, Model};

fn bounds() -> Bounds {
    let Ok(text) = env::var("HOLDFAST_PROTOCOL") else {
        return Bounds { operations: 3, commits: 2, crashes: 1 };
    };
    let numbers: Vec<u8> = text.split(',').filter_map(|part| part.parse().ok()).collect();
    let [operations, commits, crashes] = numbers[..] else {
        panic!("HOLDFAST_PROTOCOL={text}: three numbers are wanted: operations,commits,crashes");
    };
    Bounds { operations, commits, crashes }
}

fn explore(bounds: Bounds) {
    let threads = available_parallelism().map_or(1, |threads| threads.get());
    let checker = Protocol { bounds, broken: None }.checker().threads(threads).spawn_bfs().join();
    println!(
        "{bounds:?}: {} states, {} of them different, depth {}",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth()
    );
    if let Some(path) = checker.discovery(holdfast_protocol::HOLDS) {
        let why = path.last_state().violation();
        let steps: Vec<String> =
            path.into_actions().iter().map(|action| format!("{action:?}")).collect();
        panic!("{why:?}\n  {}", steps.join("\n  "));
    }
    checker.assert_properties();
}

/// P1, P3, P5, P6, and with them R1, R2, R5, R7.
#[test]
fn every_promise_holds_in_every_state() {
    explore(bounds());
}

/// The same with power cuts in recoveries of what power cuts left.
#[test]
fn recoveries_that_are_cut_lose_nothing() {
    explore(Bounds { operations: 2, commits: 1, crashes: 2 });
}
