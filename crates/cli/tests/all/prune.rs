//! `holdfast prune`: what the program has named goes by rules, and what people have named stays.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::common::TestMount;

const TRANSACTION: &str = "txn-2026-11-24T141003.123Z";
/// As the unit of systemd calls it, but that one stays of steps in which no test begins and ends on both sides.
const BY_TIMER: [&str; 3] = ["--keep", "10000d:10000d", "--prefix="];

fn prune(place: &TestMount, more: &[&str]) -> String {
    place.run(&[&["prune", place.image()], more].concat()).fine()
}

fn list(place: &TestMount, what: &str) -> Vec<String> {
    let list = place.run(&[what, "list", "--json", place.image()]).fine();
    let list: Value = serde_json::from_str(&list).unwrap();
    let list = list[["snapshots", "branches"][usize::from(what == "branch")]].as_array().unwrap();
    list.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
}

fn take(place: &TestMount, name: &[&str]) {
    place.run(&[&["snapshot", "create", place.image()], name].concat()).fine();
}

#[test]
fn what_people_have_named_and_what_makes_undone_stays() {
    let place = TestMount::with_volume();
    take(&place, &["before-upgrade"]);
    place.run(&["snapshot", "rollback", place.image(), "before-upgrade"]).fine();
    place.run(&["fork", place.image(), "try"]).fine();
    place.run(&["branch", "promote", place.image(), "try"]).fine();
    for _ in 0..3 {
        take(&place, &[]);
    }
    let before: BTreeSet<String> = list(&place, "snapshot").into_iter().collect();
    assert_eq!(prune(&place, &BY_TIMER).lines().count(), 2);
    let after: BTreeSet<String> = list(&place, "snapshot").into_iter().collect();
    let gone: Vec<_> = before.difference(&after).collect();
    assert!(gone.len() == 2 && gone.iter().all(|name| name.starts_with("20")), "{gone:?}");
    assert!(after.contains("before-upgrade") && after.len() == 4, "{after:?}");
    // What makes undone has its own time, and a name of people is judged where it is asked for.
    let said = prune(&place, &["--keep", "1h:1h", "--keep-undo", "0s"]);
    assert!(said.matches("deleted  main@before-rollback-").count() == 1, "{said}");
    assert!(said.matches("deleted  main@before-promote-").count() == 1, "{said}");
    let said = prune(&place, &["--keep", "1h:1h", "--all-names"]);
    assert!(said.contains("deleted  main@before-upgrade"), "{said}");
    assert_eq!(list(&place, "snapshot").len(), 1);
    place.fsck();
}

#[test]
fn old_snapshots_go_and_held_ones_stay() {
    let place = TestMount::with_volume();
    for name in ["one", "two", "three"] {
        take(&place, &[name]);
    }
    place.run(&["snapshot", "hold", place.image(), "one"]).fine();
    let prune = |more: &[&str]| prune(&place, &[&["--keep", "10000d:10000d"], more].concat());
    let would = prune(&["--all-names", "--dry-run"]);
    assert!(would.contains("goes     main@two, taken "), "{would}");
    assert!(would.contains("stays    main@one, taken ") && would.contains("it is held"), "{would}");
    assert!(!would.contains("main@three"), "{would}");
    assert_eq!(prune(&["--prefix", "tw"]), "");
    assert_eq!(prune(&[]), "");
    let json = prune(&["--all-names", "--json"]);
    assert!(json.contains("\"fate\":\"deleted\"") && json.contains("\"fate\":\"held\""), "{json}");
    assert_eq!(list(&place, "snapshot"), ["one", "three"]);
    place.fsck();
}

/// What a refused transaction has left goes with its branch.
#[test]
fn a_refused_transaction_leaves_nothing_behind_its_branch() {
    let place = TestMount::with_volume();
    let image = place.image();
    let at = format!("main@{TRANSACTION}");
    let refused = || {
        take(&place, &[TRANSACTION]);
        place.run(&["fork", image, "--from", &at, TRANSACTION]).fine();
    };
    refused();
    assert_eq!(prune(&place, &BY_TIMER).lines().count(), 1, "it stays, and that is said");
    place.run(&["branch", "delete", image, TRANSACTION]).fine();
    assert_eq!((list(&place, "branch").len(), list(&place, "snapshot").len()), (1, 0));
    // Other branches have grown out of it.
    refused();
    place.run(&["fork", image, "--from", &at, "other"]).fine();
    place.run(&["branch", "delete", image, TRANSACTION]).fine();
    assert_eq!(list(&place, "snapshot"), [TRANSACTION]);
    place.run(&["branch", "delete", image, "other"]).fine();
    assert!(prune(&place, &BY_TIMER).starts_with(&format!("deleted  {at}")));
    // A snapshot that was named, and a branch of the same name.
    take(&place, &["mine"]);
    place.run(&["fork", image, "--from", "main@mine", "mine"]).fine();
    place.run(&["branch", "delete", image, "mine"]).fine();
    assert_eq!(list(&place, "snapshot"), ["mine"]);
    place.fsck();
}
