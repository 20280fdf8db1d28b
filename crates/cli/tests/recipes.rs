//! The commands of README, docs/GUIDE.md and docs/RECIPES.md work as they stand there, from the first to the last.
//!
//! A program of its own: its transactions make mount namespaces, which keep the mounts of all others until they end. So do
//! those of its tests, which run one after the other.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;
mod document;

use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{TestMount, can_mount};

/// Held by the test that runs.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The volumes that the recipes make: none of them stays mounted when a recipe fails.
struct Place(TestMount);

impl Drop for Place {
    fn drop(&mut self) {
        for image in
            ["work.img", "backup.img", "image.img", "cache.img", "service.img", "appliance.img"]
        {
            self.0.run(&["umount", &self.0.path(&format!("work/{image}"))]);
        }
    }
}

/// What installs the program there is a block of `bash`, which is not run.
#[test]
fn the_first_steps_of_the_readme_work() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place(TestMount::new());
    let said = document::run("../README.md", &place.0);
    let start = document::under(&said, "Start");
    assert!(start.contains("gone\nheld fast\n"), "a fork and a transaction: {start}");
    assert!(start.contains("+more\n"), "a difference: {start}");
    assert!(start.contains("held fast\nwork.img: clean, "), "a rollback: {start}");
}

#[test]
fn the_guide_works_as_it_stands() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place(TestMount::new());
    let said = document::run("GUIDE.md", &place.0);
    let said = document::under(&said, "Ten minutes");
    assert!(said.contains("ann\nben\nlist\nplan\n"), "two transactions at once: {said}");
    assert!(said.contains("one\ntwo\nthree\n"), "a promotion: {said}");
    assert!(said.contains("work.img: clean, "), "the end: {said}");
}

#[test]
fn the_recipes_work_as_they_stand() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place(TestMount::new());
    let said = document::run("RECIPES.md", &place.0);
    let of = |heading| document::under(&said, heading);
    let tasks = of("A workspace for each task");
    assert!(tasks.contains("task-3"), "{tasks}");
    let transaction = of("A command that happens as a whole or not at all");
    assert!(transaction.contains("nothing has happened\nanswer.c\napp.c\n"), "{transaction}");
    assert!(transaction.ends_with("answer.c\napp.c\nmore.c\nann\nben\n"), "{transaction}");
    assert!(of("Undo for a tree that is in use").contains("app.c"), "{said}");
    assert!(of("A backup on another machine").contains("more\n"), "{said}");
    let layers = of("Archives, and layers of OCI images");
    assert!(layers.contains("notes"), "{layers}");
    let cache = of("A cache for continuous integration");
    assert!(cache.contains("compiled\n") && cache.ends_with("app.o\nby-18\n"), "{cache}");
    let service = of("A service that keeps its data in SQLite");
    assert!(service.is_empty() || service.ends_with("ok\n1\n2\n"), "{service}");
    let lines = of("The root of an appliance");
    let versions: Vec<_> = lines.lines().filter(|line| line.starts_with("version ")).collect();
    assert_eq!(versions, ["version 1", "version 2", "version 1"], "{lines}");
    assert_eq!(of("The end").matches(": clean").count(), 2, "{said}");
    assert_eq!(
        std::fs::read_dir(place.0.root.path().join("work/main")).unwrap().count(),
        0,
        "it is unmounted"
    );
}
