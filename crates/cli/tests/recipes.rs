//! The commands of docs/RECIPES.md work as they stand there, from the first to the last.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;
use std::path::Path;
use std::process::Command;

use common::{PROGRAM, TestMount, can_mount, said};

/// All blocks of shell commands, with a line before each that says under which heading it stands.
fn commands() -> String {
    let recipes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/RECIPES.md");
    let (mut script, mut heading, mut inside) = (String::new(), String::new(), false);
    for line in std::fs::read_to_string(recipes).unwrap().lines() {
        match line {
            "```sh" => {
                inside = true;
                script += &format!("echo '## {heading}'\n");
            }
            "```" => inside = false,
            line if inside => script += &format!("{line}\n"),
            line => heading = line.strip_prefix("## ").map_or(heading, str::to_owned),
        }
    }
    script
}

/// The volumes that the recipes make: none of them stays mounted when a recipe fails.
struct Place(TestMount);

impl Drop for Place {
    fn drop(&mut self) {
        for image in ["work.img", "backup.img", "image.img"] {
            self.0.run(&["umount", &self.0.path(&format!("work/{image}"))]);
        }
    }
}

/// What a recipe prints: all that is said by the blocks under its heading.
fn under(out: &str, heading: &str) -> String {
    let (mut own, mut inside) = (String::new(), false);
    for line in out.lines() {
        match line.strip_prefix("## ") {
            Some(of) => inside = of == heading,
            None if inside => own += &format!("{line}\n"),
            None => {}
        }
    }
    own
}

#[test]
fn the_recipes_work_as_they_stand() {
    if !can_mount() {
        return;
    }
    let place = Place(TestMount::new());
    let root = place.0.root.path();
    let bin = root.join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(PROGRAM, bin.join("holdfast")).unwrap();
    let work = root.join("work");
    std::fs::create_dir(&work).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("bash");
    shell.args(["-e", "-o", "pipefail", "-c", &commands()]).current_dir(&work).env("PATH", path);
    let output = shell.output().unwrap();
    let (success, said) = (output.status.success(), said(output));
    assert!(success, "a recipe fails, the last of those named: {}\n{}", said.out, said.err);
    let of = |heading| under(&said.out, heading);
    let tasks = of("A workspace for each task");
    assert!(tasks.contains("task-3"), "{tasks}");
    let transaction = of("A command that succeeds as a whole or has not been");
    assert!(transaction.contains("nothing has happened\nanswer.c\napp.c\n"), "{transaction}");
    assert!(transaction.ends_with("answer.c\napp.c\nmore.c\nann\nben\n"), "{transaction}");
    assert!(of("Undo for a tree that is in use").contains("app.c"), "{}", said.out);
    assert!(of("A backup on another machine").contains("more\n"), "{}", said.out);
    let layers = of("Archives, and layers of OCI images");
    assert!(layers.contains("notes"), "{layers}");
    assert_eq!(of("The end").matches(": clean").count(), 2, "{}", said.out);
    assert_eq!(std::fs::read_dir(work.join("main")).unwrap().count(), 0, "it is unmounted");
}
