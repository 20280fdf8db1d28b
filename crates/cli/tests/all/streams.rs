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
    from_file(&to, &["receive", backup], &cut).fails(1, "damaged, or was cut, before byte");
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
    let again = from_file(&to, &["receive", backup, "--branch", "main"], &file);
    assert!(again.code == 0 && again.err.contains("is here already"), "{again:?}");
    let again = from_file(&to, &["receive", backup, "--branch", "new"], &file);
    again.fails(1, "is here already, and was not received into new");
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

#[test]
fn one_pipe_asks_for_the_token_and_goes_on_with_what_was_cut() {
    let (from, to) = two();
    let file = to.path("stream");
    to_file(&from, &["send", &format!("{}@tuesday", from.image())], &file);
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 30_000]).unwrap();
    from_file(&to, &["receive", to.image()], &file).fails(1, "damaged, or was cut, before byte");
    // The right side is there first, and must not have the volume by then.
    let script =
        "{ sleep 1; $H send $A --resume \"$($H receive --resume-token $B)\"; } | $H receive $B";
    let mut sh = std::process::Command::new("sh");
    sh.args(["-c", script]).env("H", common::PROGRAM);
    sh.env("A", from.image()).env("B", to.image()).stdin(Stdio::null());
    assert_eq!(said(sh.output().unwrap()).fine(), "main@tuesday\n");
    if common::can_mount() {
        to.mount();
        let script = "$H send $A@monday | $H receive --branch other $B";
        let mut sh = std::process::Command::new("sh");
        sh.args(["-c", script]).env("H", common::PROGRAM);
        sh.env("A", from.image()).env("B", to.dir()).stdin(Stdio::null());
        assert_eq!(said(sh.output().unwrap()).fine(), "other@monday\n");
        to.run(&["receive", to.dir()]).fails(1, "the stream is empty");
        to.umount();
    }
    to.fsck();
}

#[test]
fn an_empty_stream_and_one_that_cannot_be_written_are_told_in_a_sentence() {
    let (from, to) = two();
    to.run(&["receive", to.image()]).fails(1, "the stream is empty");
    to.run(&["receive", to.image(), "/dev/null"]).fails(1, "the stream is empty");
    to.run(&["receive", "missing.img"]).fails(1, "missing.img: No such file");
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let send = |place: &str| from.command(&["send", place]).stdout(full()).output().unwrap();
    said(send(&format!("{}@tuesday", from.image()))).fails(1, "the stream: No space left");
    if common::can_mount() {
        from.mount();
        said(send(&format!("{}@tuesday", from.dir()))).fails(1, "the stream: No space left");
    }
}
