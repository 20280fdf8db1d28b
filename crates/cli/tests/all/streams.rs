//! `holdfast send` and `holdfast receive`, as pipes have them.

use std::fs::File;
use std::process::Stdio;

use holdfast::Volume;

use crate::common::{self, TestMount, said};

/// A volume with the snapshots `monday` and `tuesday`, and one with nothing.
fn two() -> (TestMount, TestMount) {
    let (from, to) = (TestMount::with_volume(), TestMount::with_volume());
    let volume = Volume::open(from.image()).unwrap();
    volume.write("/notes", vec![b'x'; 100_000]).unwrap();
    volume.branch("main").unwrap().snapshot("monday").unwrap();
    volume.rename("/notes", "/old").unwrap();
    volume.write("/new", vec![b'y'; 50_000]).unwrap();
    volume.branch("main").unwrap().snapshot("tuesday").unwrap();
    volume.close().unwrap();
    (from, to)
}

/// Runs a command with a file as its input or output.
fn to_file(place: &TestMount, args: &[&str], file: &str) {
    let out = File::create(file).unwrap();
    said(place.command(args).stdout(out).stderr(Stdio::piped()).output().unwrap()).fine();
}

fn from_file(place: &TestMount, args: &[&str], file: &str) -> common::Said {
    let input = File::open(file).unwrap();
    said(place.command(args).stdin(input).output().unwrap())
}

#[test]
fn snapshots_go_through_pipes_and_cut_ones_go_on() {
    let (from, to) = two();
    let (image, backup) = (from.image(), to.image());
    let at = |snapshot: &str| format!("{image}@{snapshot}");
    let file = to.path("stream");
    to_file(&from, &["send", &at("tuesday"), "-i", "@monday"], &file);
    // The base is missing, and the sentence names it.
    from_file(&to, &["receive", backup], &file).fails(1, "continues main@monday");
    to_file(&from, &["send", &at("monday")], &file);
    assert_eq!(from_file(&to, &["receive", backup], &file).fine(), "main@monday\n");
    assert_eq!(to.run(&["cat", &format!("{backup}:/notes")]).fine().len(), 100_000);
    to.run(&["receive", "--resume-token", backup]).fails(1, "no stream was cut");
    // Cut in the middle.
    to_file(&from, &["send", &at("tuesday"), "-i", "@monday"], &file);
    let cut = to.path("cut");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&cut, &bytes[..bytes.len() - 30_000]).unwrap();
    from_file(&to, &["receive", backup], &cut).fails(1, "before its end");
    assert!(to.run(&["branch", "list", backup]).fine().contains(".receiving-"));
    assert_eq!(to.run(&["cat", &format!("{backup}:/notes")]).fine().len(), 100_000);
    let token = to.run(&["receive", "--resume-token", backup]).fine();
    to_file(&from, &["send", "--resume", token.trim(), image], &cut);
    assert_eq!(from_file(&to, &["receive", backup], &cut).fine(), "main@tuesday\n");
    assert!(!to.run(&["branch", "list", backup]).fine().contains(".receiving-"));
    assert_eq!(to.run(&["cat", &format!("{backup}:/new")]).fine().len(), 50_000);
    to.run(&["cat", &format!("{backup}:/notes")]).fails(1, "/notes");
    // What is here is here.
    let again = from_file(&to, &["receive", backup], &file);
    assert!(again.code == 0 && again.err.contains("is here already"), "{again:?}");
    to.fsck();
    // A branch as it is: what was taken for it goes.
    to_file(&from, &["send", image], &file);
    let said = from_file(&to, &["receive", backup, "--branch", "now"], &file).fine();
    assert!(said.starts_with("now@sent-"), "{said}");
    assert_eq!(to.run(&["cat", &format!("{backup}:now:/new")]).fine().len(), 50_000);
    assert_eq!(from.run(&["snapshot", "list", image]).fine().matches("sent-").count(), 0);
    to.fsck();
    from.fsck();
    // What is asked for wrongly is said.
    from.run(&["send", &at("friday")]).fails(1, "friday");
    from.run(&["send", &at("monday"), "-i", "@monday"]).fails(1, "same snapshot");
    from_file(&to, &["receive", backup], backup).fails(1, "");
}
