//! With each rule of the protocol broken on purpose, the checker finds a way to lose something.
//!
//! The shortest way is printed, and the number of states before it was found.

use std::thread::available_parallelism;

use holdfast_protocol::{Bounds, HOLDS, Mutant, Protocol, Rings};
use stateright::{Checker, Model};

/// Small bounds within which it is found: operations, commits, crashes, files, and the sizes of the rings.
fn bounds(broken: Mutant) -> Bounds {
    use Mutant::*;
    let [operations, commits, crashes, files, log, journal] = match broken {
        LogFlushDropped
        | AppendedAnswered
        | ConfirmedAsHistory
        | CommitFlushDropped
        | NodesFlushDropped
        | PublishFlushDropped
        | SlotsDoNotAlternate
        | LogResidentNotWritten
        | LogResidentWrittenLate
        | LogResidentNotNamed
        | LogDataNotVerified
        | CommitDataNotVerified
        | NotPinned => [1, 1, 1, 1, 3, 3],
        DeadLeaderStopsNothing | DeadCommitterStopsNothing | DeadCheckpointerStopsNothing => {
            [2, 2, 1, 1, 3, 3]
        }
        NodeReusedAtSeal | NodeReusedAtThaw => [2, 2, 1, 1, 3, 3],
        // Where the log is short, commits come soon.
        JournalReleasedAtSeal => [3, 3, 1, 1, 2, 3],
        BatchOverFreeze | FreedDataNamed | AppendedCalledDurable => [2, 1, 1, 1, 3, 3],
        LogReleasedAtFreeze => [3, 1, 1, 1, 3, 3],
        DataReusedAtOnce | DataReusedAtFreeze | PendingForgotten => [3, 1, 1, 1, 3, 3],
        NotMadeDurable | FoundDataNotWritten => [2, 1, 2, 1, 3, 3],
        GivenUpBatchKept | GivenUpEpochKept => [2, 1, 2, 2, 3, 3],
        BatchPlaceWrittenLate | CommitPlaceWrittenLate | SecondPlaceNotRead => [1, 1, 1, 1, 3, 3],
        OnePlaceForAll => [2, 1, 1, 1, 3, 3],
        SecondPlaceNotChained => [2, 1, 2, 2, 3, 3],
        MarkNotRenewed | MarkerWrittenLate | FoundMarkKept => [2, 1, 2, 1, 3, 3],
        MarkerCallsDurable => [2, 1, 2, 1, 3, 3],
        MarkerWithoutRoom => [2, 1, 1, 1, 2, 2],
        BatchBeforeMarkReused | FrameBeforeMarkReused => [1, 1, 2, 1, 2, 2],
        EarlierMarkNotLookedAt => [2, 1, 1, 1, 3, 3],
        WipedNotLookedFor | RottenCountsAsWiped => [1, 1, 1, 1, 3, 3],
        InPlaceNotFlushed => [2, 1, 1, 1, 3, 3],
        UnwrittenEarly | UnwrittenAfterLog => [3, 1, 1, 1, 3, 3],
        UnwrittenNamed => [2, 1, 1, 1, 3, 3],
    };
    let reserved =
        matches!(broken, InPlaceNotFlushed | UnwrittenEarly | UnwrittenAfterLog | UnwrittenNamed);
    let twice = broken.rule() == "R11";
    let rings = Rings { log, journal, twice };
    Bounds { operations, commits, crashes, files, rings, reserved }
}

/// What was found, with the number of states that it took.
fn find(broken: Mutant) -> (usize, Option<Vec<String>>) {
    let threads = available_parallelism().map_or(1, |threads| threads.get());
    let protocol = Protocol { bounds: bounds(broken), broken: Some(broken) };
    let checker = protocol.checker().threads(threads).spawn_bfs().join();
    let found = checker.discovery(HOLDS).map(|path| {
        let why = path.last_state().violation().expect("it was found by this");
        let actions = path.into_actions();
        let mut steps: Vec<String> = actions.iter().map(|action| format!("{action:?}")).collect();
        steps.push(format!("-> {why}"));
        steps
    });
    (checker.unique_state_count(), found)
}

#[test]
fn every_mutant_is_found() {
    let mut missed = Vec::new();
    for broken in Mutant::ALL {
        let (states, found) = find(*broken);
        println!("{broken:?} ({}): {}", broken.rule(), broken.sentence());
        match found {
            Some(steps) => println!("  found in {states} states:\n    {}", steps.join("\n    ")),
            None => {
                println!("  NOT FOUND in {states} states");
                missed.push(broken);
            }
        }
    }
    assert!(missed.is_empty(), "nothing was lost with {missed:?}");
}
