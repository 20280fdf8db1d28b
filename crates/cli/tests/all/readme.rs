//! What the README tells newcomers to type works as it stands there.

use std::path::Path;
use std::process::Command;

use crate::common::{PROGRAM, TestMount, can_mount, said};

/// The first block of shell commands behind the heading.
fn commands(heading: &str) -> String {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = std::fs::read_to_string(readme).unwrap();
    let (_, section) =
        text.split_once(&format!("\n## {heading}\n")).expect("the README has the section");
    let (_, block) = section.split_once("```sh\n").expect("the section has commands");
    block.split_once("```").expect("the block ends").0.to_string()
}

/// What the first steps print, in a directory of their own.
fn first_steps() -> String {
    let place = TestMount::new();
    // The commands make it themselves.
    std::fs::remove_dir(&place.dir).unwrap();
    let bin = place.root.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(PROGRAM, bin.join("holdfast")).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("bash");
    shell.args(["-e", "-c", &commands("Start")]).current_dir(place.root.path()).env("PATH", path);
    let out = said(shell.output().unwrap()).fine();
    assert!(out.contains("work.img: clean"), "{out}");
    assert_eq!(std::fs::read_to_string(place.path("out")).unwrap(), "held fast\n");
    assert!(!place.is_mounted());
    out
}

#[test]
fn the_first_steps_of_the_readme_work() {
    if !can_mount() {
        return;
    }
    // On a busy machine the volume may have come to rest before the fsync, which has nothing to write then.
    let at_rest = |out: &String| out.contains("in 0 writes and 1 flush");
    let out =
        (0..5).map(|_| first_steps()).find(|out| !at_rest(out)).expect("an fsync that writes");
    assert!(out.contains("in 1 write and 1 flush"), "an fsync is one write and one flush: {out}");
}
