//! Every state of the model of branches within its bounds, and each of its mutants.
//!
//! `HOLDFAST_LINEAGE=operations,crashes,keys,log` explores other bounds: 1 for a log beside commits that take time.

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

fn holds(operations: u8, crashes: u8, keys: usize, log: bool) -> impl Checker<Lineage> {
    let bounds = Bounds { operations, crashes, keys, log };
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
        let [operations, crashes, keys @ 1..=2, log @ 0..=1] = numbers[..] else {
            panic!("HOLDFAST_LINEAGE={asked}: operations,crashes,keys,log are wanted");
        };
        holds(operations, crashes, keys.into(), log == 1);
        return;
    }
    holds(5, 1, 1, false).assert_properties();
    holds(5, 0, 2, false);
    holds(4, 1, 2, false);
    holds(4, 2, 1, false);
}

/// P3, P12, P13, P14 and S9, and by them S7.
#[test]
fn every_recovery_finds_the_branches_as_they_were() {
    holds(4, 1, 1, true).assert_properties();
    holds(3, 1, 2, true);
    holds(3, 2, 1, true);
}

/// A rule that can be broken without a counterexample is not needed, or not modelled.
#[test]
fn every_mutant_of_the_rules_is_found() {
    let mut missed = Vec::new();
    let all = Mutant::ALL
        .iter()
        .flat_map(|broken| broken.found_with_log().iter().map(|log| (*broken, *log)));
    for (broken, log) in all {
        println!("{broken:?} ({}), log: {log}: {}", broken.rule(), broken.sentence());
        use Mutant::{CursorKeptInMemory, FilledBeforeDurable, FreedReusedAtOnce, SharedUnwritten};
        let crashes = u8::from(
            log || matches!(
                broken,
                CursorKeptInMemory | FreedReusedAtOnce | FilledBeforeDurable | SharedUnwritten
            ),
        );
        // The smallest bounds first: most need little.
        let found = (1..=5).find_map(|operations| {
            way(&explore(Bounds { operations, crashes, keys: 1, log }, Some(broken)))
        });
        match found {
            Some(way) => println!("    {way}"),
            None => missed.push((broken, log)),
        }
    }
    assert!(missed.is_empty(), "nothing was lost with {missed:?}");
}
