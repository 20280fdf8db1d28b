//! Every state of the model of branches within its bounds, and each of its mutants.
//!
//! `HOLDFAST_LINEAGE=operations,crashes,keys` explores other bounds.

use std::env;
use std::thread::available_parallelism;

use holdfast_protocol::HOLDS;
use holdfast_protocol::lineage::{Bounds, Lineage, Mutant};
use stateright::{Checker, Model};

fn explore(bounds: Bounds, broken: Option<Mutant>) -> impl Checker<Lineage> {
    let threads = available_parallelism().map_or(1, |threads| threads.get());
    Lineage { bounds, broken }.checker().threads(threads).spawn_bfs().join()
}

/// The shortest way to a violation.
fn way(checker: &impl Checker<Lineage>) -> Option<String> {
    let path = checker.discovery(HOLDS)?;
    let why = path.last_state().violation().expect("it was found by this");
    let steps: Vec<String> = path.into_actions().iter().map(|step| format!("{step:?}")).collect();
    Some(format!("{}\n    -> {why}", steps.join("\n    ")))
}

fn holds(bounds: Bounds) -> impl Checker<Lineage> {
    let checker = explore(bounds, None);
    println!("{bounds:?}: {} states, depth {}", checker.unique_state_count(), checker.max_depth());
    if let Some(way) = way(&checker) {
        panic!("{bounds:?}:\n    {way}");
    }
    checker
}

/// P13, P14, S9, and by them S1 to S6a.
#[test]
fn every_branch_and_snapshot_holds_what_it_must() {
    if let Ok(asked) = env::var("HOLDFAST_LINEAGE") {
        let numbers: Vec<u8> =
            asked.split(',').filter_map(|part| part.trim().parse().ok()).collect();
        let [operations, crashes, keys @ 1..=2] = numbers[..] else {
            panic!("HOLDFAST_LINEAGE={asked}: operations,crashes,keys are wanted");
        };
        holds(Bounds { operations, crashes, keys: keys.into() });
        return;
    }
    holds(Bounds { operations: 5, crashes: 1, keys: 1 }).assert_properties();
    holds(Bounds { operations: 5, crashes: 0, keys: 2 });
    holds(Bounds { operations: 4, crashes: 1, keys: 2 });
    holds(Bounds { operations: 4, crashes: 2, keys: 1 });
}

/// A rule that can be broken without a counterexample is not needed, or not modelled.
#[test]
fn every_mutant_of_the_rules_is_found() {
    let mut missed = Vec::new();
    for broken in Mutant::ALL {
        println!("{broken:?} ({}): {}", broken.rule(), broken.sentence());
        let crashes = u8::from(matches!(
            broken,
            Mutant::CursorKeptInMemory
                | Mutant::FreedReusedAtOnce
                | Mutant::FilledBeforeDurable
                | Mutant::SharedUnwritten
        ));
        // The smallest bounds first: most need little.
        let found = (1..=5).find_map(|operations| {
            let bounds = Bounds { operations, crashes, keys: 1 };
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
