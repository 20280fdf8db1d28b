//! The table of threads in ARCHITECTURE.md names each file that starts some, and each name that is given there.

use std::fs;
use std::path::{Path, PathBuf};

/// Crates whose threads are those of a mount. What measures or simulates starts its own.
const CRATES: [&str; 8] = ["base", "cli", "daemon", "device", "fuse", "posix", "service", "store"];
/// What starts threads.
const DOORS: [&str; 5] =
    ["holdfast_sync::start(", "threads::start(", "on_threads(", "Builder::new()", "thread::spawn("];
/// Doors themselves, and commands, which are no mount.
const OTHERS: [&str; 5] = [
    "fuse/src/threads.rs",
    "posix/src/threads.rs",
    "cli/src/cmd/",
    "daemon/src/ask_all.rs",
    "daemon/src/metrics/",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("the folder is there").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
}

/// The source without its tests.
fn program(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("it is text");
    text.split("#[cfg(test)]\nmod").next().unwrap_or_default().to_owned()
}

#[test]
fn every_thread_stands_in_the_table() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("it is there");
    let (_, table) = text.split_once("## Threads\n").expect("there is a section of threads");
    let (table, _) = table.split_once("\n## ").expect("another one follows");
    let mut files = Vec::new();
    for one in CRATES {
        sources(&root().join("crates").join(one).join("src"), &mut files);
    }
    let mut starts = 0;
    for file in files {
        let short = file.strip_prefix(root().join("crates")).expect("it lies there");
        let short = short.to_str().expect("it is text");
        let text = program(&file);
        let is_test = short.ends_with("tests.rs") || short.contains("/tests/");
        let is_other = OTHERS.iter().any(|other| short.starts_with(other));
        if is_test || is_other || !DOORS.iter().any(|door| text.contains(door)) {
            continue;
        }
        starts += 1;
        assert!(table.contains(&format!("`{short}`")), "{short} starts threads");
        for name in text.split("\"holdfast-").skip(1) {
            let name = name.split(['"', '{']).next().unwrap_or_default();
            let is_there = table.contains(&format!("`holdfast-{name}"));
            assert!(is_there, "{short} starts holdfast-{name}");
        }
    }
    assert!(starts >= 12, "{starts} files start threads");
    for path in table.split('`').filter(|word| word.ends_with(".rs")) {
        let text = program(&root().join("crates").join(path));
        let is_true = DOORS.iter().any(|door| text.contains(door)) || path.starts_with("base/");
        assert!(is_true, "{path} starts no thread");
    }
}
