//! The judge of several branches lets through what is allowed, and nothing else.

use holdfast_script::{Errno, Outcome};

use super::tests::{history, judge, tree};

/// The promise that a finding cites.
fn cites(script: &str, found: &str) -> String {
    let wrong = judge(script, found).unwrap_err();
    wrong.split_once(':').expect("a promise stands first").0.to_owned()
}

#[test]
fn what_has_returned_is_there_and_what_is_under_way_may_be() {
    for change in [
        "snapshot t",
        "fork c",
        "fork c s",
        "rollback s",
        "rollback s t",
        "rmsnapshot s",
        "rmbranch b",
        "mvsnapshot s t",
        "mvbranch b c",
    ] {
        let before = "mkfile /a; snapshot s; fork b; mkdir /d; sync";
        let script = format!("{before}; {change}; mkdir /e");
        assert_eq!(cites(&script, before), "P12", "{change}");
        let after = format!("{before}; {change}");
        assert_eq!(judge(&script, &after), Ok(6), "{change}");
        assert_eq!(judge(&script, &script), Ok(7), "{change}");
        let history = history(&script);
        assert_eq!(history.judge(&tree(before), 5, 6), Ok(5), "{change}");
        assert_eq!(history.judge(&tree(&after), 5, 6), Ok(6), "{change}");
        assert!(history.judge(&tree(&after), 5, 5).is_err(), "{change}");
    }
}

#[test]
fn a_hold_and_a_look_leave_nothing_to_be_seen() {
    let script = "snapshot s; hold s; look s; branches; snapshots; unhold s";
    assert_eq!(judge(script, "snapshot s"), Ok(6));
}

#[test]
fn a_snapshot_that_changed_is_named() {
    let script = "mkfile /a; snapshot s; mkdir /d";
    assert_eq!(cites(script, "mkfile /a; mkdir /d; snapshot s"), "P13");
    assert_eq!(cites(script, "snapshot s; mkfile /a; mkdir /d"), "P13");
    let script = "mkfile /a; write /a 0 \"one\"; snapshot s; write /a 0 \"two\"";
    let found = "mkfile /a; write /a 0 \"two\"; snapshot s";
    assert_eq!(cites(script, found), "P13");
    // The snapshot has what was written before it: nothing of that may be lost, there or in the branch.
    let found = "mkfile /a; snapshot s";
    assert_eq!(cites(script, found), "P13");
    let found = "mkfile /a; write /a 0 \"one\"; snapshot s; truncate /a 0";
    assert!(judge(script, found).is_err());
    assert_eq!(judge(script, "mkfile /a; write /a 0 \"one\"; snapshot s"), Ok(4));
}

#[test]
fn a_branch_shows_what_was_done_in_it_and_nothing_else() {
    let script = "mkfile /a; fork b; switch b; mkdir /x; switch main; mkdir /y";
    assert_eq!(cites(script, "mkfile /a; fork b; mkdir /x; switch b; mkdir /x"), "P14");
    let found = "mkfile /a; fork b; mkdir /y; switch b; mkdir /x; mkdir /y";
    assert_eq!(cites(script, found), "P14");
    assert_eq!(judge(script, script), Ok(6));
    // One that was never made, and one that is missing.
    assert!(judge(script, &format!("{script}; fork c")).is_err());
    assert_eq!(cites(script, "mkfile /a; mkdir /y"), "P3");
}

#[test]
fn all_branches_are_of_one_moment() {
    let script = "fork b; mkdir /x; switch b; mkdir /y; switch main; mkdir /z";
    for whole in ["fork b", "fork b; mkdir /x", "fork b; mkdir /x; switch b; mkdir /y", script] {
        assert!(judge(script, whole).is_ok(), "{whole}");
    }
    for mixed in ["fork b; switch b; mkdir /y", "fork b; mkdir /x; mkdir /z"] {
        assert_eq!(cites(script, mixed), "P3", "{mixed}");
    }
    // An fsync in one branch holds the history of all.
    let script = "fork b; mkdir /x; switch b; mkfile /y; fsync /y";
    assert!(judge(script, script).is_ok());
    assert!(judge(script, "fork b; switch b; mkfile /y").is_err());
    assert!(judge(script, "fork b; mkdir /x").is_err());
}

#[test]
fn late_writes_may_be_missing_in_one_branch_and_not_in_another() {
    let script = "mkfile /f; fork b; write /f 0 \"one\"; switch b; write /f 0 \"two\"; mkdir /d";
    let in_main = "mkfile /f; fork b; write /f 0 \"one\"; switch b; mkdir /d";
    let in_b = "mkfile /f; fork b; switch b; write /f 0 \"two\"; mkdir /d";
    for found in [in_main, in_b, "mkfile /f; fork b; switch b; mkdir /d"] {
        assert_eq!(judge(script, found), Ok(6), "{found}");
    }
    let swapped = "mkfile /f; fork b; write /f 0 \"two\"; switch b; write /f 0 \"one\"; mkdir /d";
    assert!(judge(script, swapped).is_err());
    // What is made durable is the file of that branch, which has the same number as the other's.
    let synced = format!("{script}; fsync /f");
    assert_eq!(judge(&synced, in_b), Ok(7));
    assert!(judge(&synced, in_main).is_err());
    for all in ["sync", "remount"] {
        assert!(judge(&format!("{script}; {all}"), in_b).is_err(), "{all}");
    }
}

#[test]
fn a_branch_that_went_back_has_lost_nothing_and_kept_nothing() {
    let start = "mkfile /f; write /f 0 \"one\"; snapshot s; write /f 0 \"two\"; append /f 5 1";
    let script = format!("{start}; rollback s was; mkdir /d");
    assert_eq!(judge(&script, &script), Ok(7));
    // What is kept has all writes.
    let lost = "mkfile /f; write /f 0 \"one\"; snapshot s; write /f 0 \"two\"; rollback s was";
    assert_eq!(cites(&script, lost), "P13");
    // And the branch none of them.
    assert!(judge(&script, &format!("{start}; snapshot was; mkdir /d")).is_err());
    let new = format!("{start}; rollback s; write /f 0 \"six\"; mkdir /d");
    let back = "mkfile /f; write /f 0 \"one\"; snapshot s; rollback s";
    assert_eq!(judge(&new, &format!("{back}; mkdir /d")), Ok(8));
    assert_eq!(judge(&new, &format!("{back}; write /f 0 \"six\"; mkdir /d")), Ok(8));
    assert!(judge(&new, &format!("{back}; write /f 0 \"two\"; mkdir /d")).is_err());
}

#[test]
fn a_synchronous_handle_is_one_of_its_branch() {
    let script = "mkfile /f; fork b; open h /f write,dsync; write @h 0 \"one\"; switch b; \
        open h /f write; write @h 0 \"two\"; mkdir /d";
    let none = "mkfile /f; fork b; switch b; mkdir /d";
    let main = "mkfile /f; fork b; write /f 0 \"one\"; switch b; mkdir /d";
    assert!(judge(script, none).is_err());
    assert_eq!(judge(script, main), Ok(8));
}

#[test]
fn an_fsync_that_found_nothing_to_do_promises_the_file_of_its_branch() {
    let quiet = |script: &str| {
        let mut history = history(script);
        history.found_nothing_undurable();
        history
    };
    let script = "mkfile /f; fork b; switch b; chmod /f 600; fsync /f; switch main; mkdir /x; \
        switch b; fsync /f";
    let found = "mkfile /f; fork b; switch b; chmod /f 600";
    assert_eq!(quiet(script).judge(&tree(found), 9, 9), Ok(6));
    assert!(quiet(script).judge(&tree("mkfile /f; fork b"), 9, 9).is_err());
    // Before the fork there was no such file.
    let history = quiet("mkfile /f; fork b; switch b; fsync /f");
    assert!(history.judge(&tree("mkfile /f"), 4, 4).is_err());
}

#[test]
fn a_full_volume_may_refuse_a_snapshot_and_not_a_removal() {
    let mut history = history("mkfile /f; snapshot s; fork b");
    let full = Outcome::Err(Errno::ENOSPC);
    history.push(&"snapshot t".parse().unwrap(), &full).unwrap();
    assert_eq!(history.judge(&tree("mkfile /f; snapshot s; fork b"), 4, 4), Ok(4));
    for op in ["rmsnapshot s", "rmbranch b"] {
        let wrong = history.push(&op.parse().unwrap(), &full).unwrap_err();
        assert!(wrong.starts_with("P8: "), "{wrong}");
    }
}

#[test]
fn a_change_that_failed_may_be_there_or_not() {
    let mut history = history("mkfile /f");
    history.push_failed(&"snapshot s".parse().unwrap());
    assert_eq!(history.judge(&tree("mkfile /f"), 1, 2), Ok(1));
    assert_eq!(history.judge(&tree("mkfile /f; snapshot s"), 1, 2), Ok(2));
    assert!(history.judge(&tree("snapshot s; mkfile /f"), 1, 2).is_err());
}
