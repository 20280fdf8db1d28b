//! `holdfast-dev dump` and the program's own help; and that every command of `holdfast` is there too.

use std::fs;

use crate::common::TestMount;

#[test]
fn dump_prints_superblocks_trees_and_files() {
    let place = TestMount::with_volume();
    fs::write(place.path("file"), "content").unwrap();
    place.run(&["cp", &place.path("file"), &place.inside("/file")]).fine();
    assert!(!place.run(&["dump", place.image()]).fine().is_empty());
    assert!(place.run(&["dump", "--tree", "files", place.image()]).fine().contains("file"));
    assert!(place.run(&["dump", "--journal", place.image()]).fine().contains("end commit="));
    assert!(place.run(&["dump", "--log", place.image()]).fine().contains("end batch="));
    assert!(!place.run(&["dump", &place.inside("/file")]).fine().is_empty());
    place.run(&["dump", &place.inside("/none")]).fails(1, "none");
    let image = place.image();
    place.run(&["snapshot", "create", image, "s"]).fine();
    place.run(&["fork", image, "work"]).fine();
    for tree in ["main", "work", "main@s"] {
        let behind = tree.strip_prefix("main@").map_or(format!(":{tree}"), |of| format!("@{of}"));
        assert!(!place.run(&["dump", &format!("{image}{behind}:/file")]).fine().is_empty());
        place.run(&["dump", &format!("{image}{behind}:/none")]).fails(1, "none");
    }
    place.run(&["dump", &format!("{image}@t:/file")]).fails(1, "there is no `main@t`");
    place.run(&["dump", "--tree", "files", &format!("{image}@s")]).fails(1, "--branch");
    place.run(&["dump", "--tree", "oak", place.image()]).fails(2, "--help");
}

#[test]
fn the_program_explains_itself() {
    let place = TestMount::new();
    let help = place.run(&["--help"]).fine();
    for command in ["bench", "crashtest", "dump"] {
        assert!(help.contains(command), "{help}");
        assert!(
            place.run(&[command, "--help"]).fine().contains("Usage: holdfast-dev"),
            "{command}"
        );
    }
    place.run(&["bench", "frobnicate"]).fails(2, "holdfast-dev bench --help");
    place.run(&["frobnicate"]).fails(2, "frobnicate");
    assert!(place.run(&["mkfs", "--help"]).fine().contains("Usage: holdfast mkfs"));
}
