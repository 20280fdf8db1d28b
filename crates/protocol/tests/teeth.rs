//! With each rule of the protocol broken on purpose, the checker finds a way to lose something.

use std::thread::available_parallelism;

use holdfast_protocol::{Bounds, Breakage, HOLDS, Protocol, Rings};
use stateright::{Checker, Model};

/// Operations, commits, crashes, and the size of the rings.
const BOUNDS: [(u8, u8, u8, u8, u8); 6] = [
    (1, 1, 1, 2, 2),
    (2, 1, 1, 1, 1),
    (2, 2, 1, 2, 1),
    (3, 1, 1, 2, 2),
    (2, 1, 2, 2, 1),
    (3, 2, 1, 2, 1),
];

/// The search of one of them ends after so many.
const STATES_MAX: usize = 2_000_000;

/// Tries larger and larger bounds, and returns what was found with the number of states that it took.
fn find(broken: Breakage) -> Option<(usize, Vec<String>)> {
    let threads = available_parallelism().map_or(1, |threads| threads.get());
    let mut states = 0;
    for (operations, commits, crashes, log, journal) in BOUNDS {
        let rings = Rings { log, journal };
        let bounds = Bounds { operations, commits, crashes, rings };
        let protocol = Protocol { bounds, broken: Some(broken) };
        let checker = protocol.checker().threads(threads).target_state_count(STATES_MAX);
        let checker = checker.spawn_bfs().join();
        states += checker.state_count();
        if let Some(path) = checker.discovery(HOLDS) {
            let why = path.last_state().violation().expect("it was found by this");
            let mut steps: Vec<String> =
                path.into_actions().iter().map(|action| format!("{action:?}")).collect();
            steps.push(format!("-> {why}"));
            return Some((states, steps));
        }
    }
    None
}

#[test]
fn every_breakage_is_found() {
    let mut missed = Vec::new();
    for broken in Breakage::ALL {
        match find(*broken) {
            Some((states, steps)) => println!(
                "{broken:?} ({}): {}\n  found after {states} states:\n    {}",
                broken.rule(),
                broken.sentence(),
                steps.join("\n    ")
            ),
            None => missed.push(broken),
        }
    }
    assert!(missed.is_empty(), "nothing was lost with {missed:?}");
}
