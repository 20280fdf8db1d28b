//! Every state of the model of how branches become durable, within its bounds, and each of its mutants.
//!
//! `HOLDFAST_SEALING=operations,crashes,keys` explores other bounds.

use std::env;
use std::thread::available_parallelism;

use holdfast_protocol::HOLDS;
use holdfast_protocol::sealing::{Bounds, Mutant, Sealing};
use stateright::{Checker, Model};

fn explore(bounds: Bounds, broken: Option<Mutant>) -> impl Checker<Sealing> {
    let threads = available_parallelism().map_or(1, |threads| threads.get());
    Sealing { bounds, broken }.checker().threads(threads).spawn_bfs().join()
}

/// The shortest way to a violation.
fn way(checker: &impl Checker<Sealing>) -> Option<String> {
    let path = checker.discovery(HOLDS)?;
    let why = path.last_state().violation().expect("it was found by this");
    let steps: Vec<String> = path.into_actions().iter().map(|step| format!("{step:?}")).collect();
    Some(format!("{}\n    -> {why}", steps.join("\n    ")))
}

fn holds(bounds: Bounds) -> impl Checker<Sealing> {
    let checker = explore(bounds, None);
    println!("{bounds:?}: {} states, depth {}", checker.unique_state_count(), checker.max_depth());
    if let Some(way) = way(&checker) {
        panic!("{bounds:?}:\n    {way}");
    }
    checker
}

/// P3, P12, P13, P14 and S9, and by them S7.
#[test]
fn every_recovery_finds_the_branches_as_they_were() {
    if let Ok(asked) = env::var("HOLDFAST_SEALING") {
        let numbers: Vec<u8> =
            asked.split(',').filter_map(|part| part.trim().parse().ok()).collect();
        let [operations, crashes, keys @ 1..=2] = numbers[..] else {
            panic!("HOLDFAST_SEALING={asked}: operations,crashes,keys are wanted");
        };
        holds(Bounds { operations, crashes, keys: keys.into() });
        return;
    }
    holds(Bounds { operations: 4, crashes: 1, keys: 1 }).assert_properties();
    holds(Bounds { operations: 3, crashes: 1, keys: 2 });
    holds(Bounds { operations: 3, crashes: 2, keys: 1 });
}

/// A rule that can be broken without a counterexample is not needed, or not modelled.
#[test]
fn every_mutant_of_the_rules_is_found() {
    let mut missed = Vec::new();
    for broken in Mutant::ALL {
        println!("{broken:?} ({}): {}", broken.rule(), broken.sentence());
        // The smallest bounds first: most need little.
        let found = (2..=4).find_map(|operations| {
            let bounds = Bounds { operations, crashes: 1, keys: 1 };
            let checker = explore(bounds, Some(*broken));
            way(&checker).map(|way| (checker.unique_state_count(), way))
        });
        match found {
            Some((states, way)) => println!("  found in {states} states:\n    {way}"),
            None => {
                println!("  NOT FOUND");
                missed.push(broken);
            }
        }
    }
    assert!(missed.is_empty(), "nothing was lost with {missed:?}");
}
