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

#[test]
fn the_first_steps_of_the_readme_work() {
    if !can_mount() {
        return;
    }
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
    // No write where the machine was so busy that the volume had come to rest before.
    let one = ["in 1 write and 1 flush", "in 0 writes and 1 flush"];
    assert!(one.iter().any(|one| out.contains(one)), "an fsync is one write and one flush: {out}");
    assert!(out.contains("work.img: clean"), "{out}");
    assert_eq!(std::fs::read_to_string(place.path("out")).unwrap(), "held fast\n");
    assert!(!place.is_mounted());
}
