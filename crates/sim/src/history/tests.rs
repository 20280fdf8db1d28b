//! The judge lets through what is allowed, and nothing else.

use super::*;
use holdfast_script::{Script, Trees};

pub(super) fn history(script: &str) -> History {
    let script: Script = script.parse().unwrap();
    let (mut history, mut model) = (History::new(), VolumeModel::new());
    for op in script.ops() {
        let answer = model.apply(op);
        history.push(op, &answer).unwrap();
    }
    history
}

pub(super) fn tree(script: &str) -> Trees {
    let script: Script = script.parse().unwrap();
    let mut model = VolumeModel::new();
    script.ops().for_each(|op| drop(model.apply(op)));
    model.walk_all().unwrap()
}

/// Judges what `found` makes after all of `script`.
pub(super) fn judge(script: &str, found: &str) -> Result<usize, String> {
    let history = history(script);
    history.judge(&tree(found), history.len(), history.len())
}

#[test]
fn every_state_since_the_last_fsync_is_allowed_and_no_earlier_one() {
    let script = "mkdir /a; fsync /a; mkdir /b; mkdir /c";
    assert_eq!(judge(script, "mkdir /a"), Ok(2));
    assert_eq!(judge(script, "mkdir /a; mkdir /b"), Ok(3));
    assert_eq!(judge(script, "mkdir /a; mkdir /b; mkdir /c"), Ok(4));
    assert!(judge(script, "chmod / 755").unwrap_err().contains("it is state 0"));
    // Not in this order.
    assert!(judge(script, "mkdir /a; mkdir /c").is_err());
}

#[test]
fn an_operation_under_way_may_be_there_and_one_to_come_may_not() {
    let history = history("mkdir /a; mkdir /b");
    let both = tree("mkdir /a; mkdir /b");
    assert_eq!(history.judge(&both, 1, 2), Ok(2));
    assert!(history.judge(&both, 1, 1).is_err());
}

#[test]
fn late_writes_may_be_missing_from_the_end_but_not_from_the_middle() {
    let write = |text, at| format!("write /f {at} \"{text}\"");
    let script = format!("mkfile /f; {}; {}; mkdir /d", write("one", 0), write("two", 3));
    assert_eq!(judge(&script, "mkfile /f; mkdir /d"), Ok(4));
    assert_eq!(judge(&script, "mkfile /f; write /f 0 \"one\"; mkdir /d"), Ok(4));
    assert_eq!(judge(&script, "mkfile /f; write /f 0 \"onetwo\"; mkdir /d"), Ok(4));
    assert!(judge(&script, "mkfile /f; write /f 3 \"two\"; mkdir /d").is_err());
    // A size that covers what was never written (P5).
    assert!(judge(&script, "mkfile /f; truncate /f 6; mkdir /d").is_err());
    // Writes by name do not move names.
    assert!(judge(&script, "mkdir /d").is_err());
}

#[test]
fn synced_writes_may_not_be_missing() {
    for sync in ["fsync /f", "fdatasync /f", "sync", "remount"] {
        let script = format!("mkfile /f; write /f 0 \"one\"; {sync}; write /f 3 \"two\"");
        assert!(judge(&script, "mkfile /f").is_err(), "{sync}");
        assert!(judge(&script, "mkfile /f; write /f 0 \"one\"").is_ok(), "{sync}");
    }
    // Another file's fsync holds history, not this file's data.
    let script = "mkfile /f; write /f 0 \"one\"; mkfile /g; fsync /g";
    assert_eq!(judge(script, "mkfile /f; mkfile /g"), Ok(4));
    assert!(judge(script, "mkfile /f").is_err());
    let script = "open h /f write,create,dsync; write @h 0 \"one\"; mkdir /d";
    assert!(judge(script, "mkfile /f").is_err());
    assert!(judge(script, "mkfile /f; write /f 0 \"one\"").is_ok());
}

#[test]
fn a_file_that_replaced_another_has_its_data() {
    let script = "mkfile /f; fsync /f; mkfile /g; write /g 0 \"new\"; rename /g /f";
    assert!(judge(script, "mkfile /f").is_ok());
    assert!(judge(script, "mkfile /f; mkfile /g").is_ok());
    assert!(judge(script, "mkfile /f; write /f 0 \"new\"").is_ok());
    // With a mode of its own, the new file differs from the empty one that it replaced.
    let script = "mkfile /f; fsync /f; mkfile /g 600; write /g 0 \"new\"; rename /g /f";
    assert!(judge(script, "mkfile /f 600").is_err());
}

#[test]
fn a_truncation_is_history_but_may_cut_what_never_came() {
    let script = "mkfile /f; write /f 0 \"abcdef\"; truncate /f 3; mkdir /d";
    for found in ["write /f 0 \"abc\"", "truncate /f 0", "truncate /f 3"] {
        assert_eq!(judge(script, &format!("mkfile /f; {found}; mkdir /d")), Ok(4), "{found}");
    }
    for found in ["write /f 0 \"abcdef\"", "truncate /f 6", "write /f 0 \"ab\""] {
        assert!(judge(script, &format!("mkfile /f; {found}; mkdir /d")).is_err(), "{found}");
    }
    // One that grows is there, whatever was lost before it.
    let script = "mkfile /f; write /f 0 \"abc\"; truncate /f 10; mkdir /d";
    assert!(judge(script, "mkfile /f; truncate /f 10; mkdir /d").is_ok());
    assert!(judge(script, "mkfile /f; mkdir /d").is_err());
}

#[test]
fn modes_links_and_attributes_belong_to_the_namespace() {
    let script = "mkfile /f; link /f /g; chmod /f 600; setxattr /f user.a \"1\"; fsync /f";
    let all = "mkfile /f; link /f /g; chmod /f 600; setxattr /f user.a \"1\"";
    assert_eq!(judge(script, all), Ok(5));
    assert!(judge(script, "mkfile /f; link /f /g; chmod /f 600").is_err());
    assert!(judge(script, "mkfile /f 600; mkfile /g 600; setxattr /f user.a \"1\"").is_err());
}

#[test]
fn an_engine_that_answers_wrongly_is_told_so_and_a_full_one_changes_nothing() {
    let mut history = history("mkfile /f");
    let op: Op = "write /f 0 \"abc\"".parse::<Script>().unwrap().steps[0].op.clone();
    assert!(history.push(&op, &Outcome::Err(Errno::EIO)).is_err());
    history.push(&op, &Outcome::Err(Errno::ENOSPC)).unwrap();
    assert!(history.judge(&tree("mkfile /f"), 2, 2).is_ok());
    assert!(history.judge(&tree("mkfile /f; write /f 0 \"abc\""), 2, 2).is_err());
}

#[test]
fn an_fsync_that_found_nothing_to_do_promises_its_own_file_with_all_ancestors() {
    let quiet = |script: &str| {
        let mut history = history(script);
        history.found_nothing_undurable();
        history
    };
    let done = quiet("mkdir /a; mkfile /a/f; fsync /a/f; mkdir /b; fsync /a/f");
    assert_eq!(done.judge(&tree("mkdir /a; mkfile /a/f"), 5, 5), Ok(3));
    assert!(done.judge(&tree("mkdir /a"), 5, 5).is_err());
    let moved = quiet("mkdir /a; mkfile /a/f; fsync /a/f; rename /a /b; fsync /b/f");
    assert!(moved.judge(&tree("mkdir /a; mkfile /a/f"), 5, 5).is_err());
    assert!(moved.judge(&tree("mkdir /b; mkfile /b/f"), 5, 5).is_ok());
    let entries = quiet("mkdir /a; mkfile /a/f; fsync /; mkfile /a/g; fsyncdir /a");
    assert!(entries.judge(&tree("mkdir /a; mkfile /a/f"), 5, 5).is_err());
}

#[test]
fn a_finding_begins_with_the_promise_that_is_broken() {
    let cites = |script: &str, found: &str| {
        let wrong = judge(script, found).unwrap_err();
        wrong.split_once(':').expect("a promise stands first").0.to_owned()
    };
    // A whole state, too old.
    assert_eq!(cites("mkfile /f; write /f 0 \"abc\"; fsync /f", "chmod / 755"), "P1");
    assert_eq!(cites("mkdir /d; mkfile /d/f; fsyncdir /d", "mkdir /d"), "P2");
    assert_eq!(cites("mkdir /d; sync", "chmod / 755"), "P3");
    // One file's bytes.
    assert_eq!(
        cites("mkfile /f; write /f 0 \"abc\"; fsync /f; mkdir /d", "mkfile /f; mkdir /d"),
        "P1"
    );
    let replaced = "mkfile /f; mkfile /g 600; write /g 0 \"new\"; rename /g /f; mkdir /d";
    assert_eq!(cites(replaced, "mkfile /f 600; mkdir /d"), "P4");
    let never = "mkfile /f; write /f 0 \"abc\"; mkdir /d";
    assert_eq!(cites(never, "mkfile /f; truncate /f 3; mkdir /d"), "P5");
    // Moments are mixed: names, attributes.
    assert_eq!(cites("mkdir /a; mkdir /b", "mkdir /b"), "P3");
    assert_eq!(
        cites(
            "mkfile /f; chmod /f 600; setxattr /f user.a \"1\"",
            "mkfile /f; setxattr /f user.a \"1\""
        ),
        "P3"
    );
}

#[test]
fn a_write_that_found_not_room_for_all_may_be_found_up_to_a_block_and_no_other_may() {
    let script = "mkfile /f; truncate /f 12k; write /f 100 9000 1";
    let part = |bytes: usize| format!("mkfile /f; truncate /f 12k; write /f 100 {bytes} 1");
    let in_steps = || {
        let mut history = history(script);
        history.was_accepted_in_steps();
        history
    };
    let first_block = 4096 - 100;
    assert!(judge(script, &part(first_block)).is_err());
    assert_eq!(in_steps().judge(&tree(&part(first_block)), 3, 3), Ok(3));
    assert!(in_steps().judge(&tree(&part(4096)), 3, 3).is_err());
}
