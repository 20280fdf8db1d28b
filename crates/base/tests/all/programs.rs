//! The tests of a crate are one program, `tests/all`: each program is linked by itself, and runs when the one before has
//! ended. The head of any other one says why it stands alone.

use std::fs;
use std::path::{Path, PathBuf};

/// How the reason begins.
const REASON: &str = "\n//! A program of its own: ";
/// What so few files hold need not be one program.
const FEW: usize = 2;

/// The programs in a folder of tests, by their first file.
fn programs(tests: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(tests).into_iter().flatten();
    let paths = entries.map(|entry| entry.expect("an entry can be read").path());
    let first = |path: PathBuf| if path.is_dir() { path.join("main.rs") } else { path };
    let is_program =
        |path: &PathBuf| path.is_file() && path.extension().is_some_and(|it| it == "rs");
    paths.map(first).filter(is_program).collect()
}

/// Those that are neither `all` nor say why they stand alone, if these are more than a few.
fn without_reason(programs: Vec<(PathBuf, String)>) -> Vec<PathBuf> {
    let has_all = programs.iter().any(|(path, _)| path.ends_with("all/main.rs"));
    let is_silent = |(path, text): &(PathBuf, String)| {
        let head = text.split("\n\n").next().unwrap_or_default();
        !path.ends_with("all/main.rs") && !head.contains(REASON)
    };
    let silent: Vec<_> = programs.into_iter().filter(is_silent).map(|(path, _)| path).collect();
    if has_all || silent.len() > FEW { silent } else { Vec::new() }
}

#[test]
fn a_crate_has_one_program_of_tests_and_others_say_why() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut merged = 0;
    let mut found = Vec::new();
    for entry in fs::read_dir(crates).expect("the crates are there") {
        let tests = entry.expect("a folder can be read").path().join("tests");
        let read = |path: PathBuf| {
            let text = fs::read_to_string(&path).expect("a source file is text");
            (path, text)
        };
        merged += usize::from(tests.join("all/main.rs").exists());
        found.extend(without_reason(programs(&tests).into_iter().map(read).collect()));
    }
    assert!(merged > 10, "only {merged} crates were found");
    assert!(
        found.is_empty(),
        "{found:?}: a test belongs into tests/all; one that changes its whole process says so: {REASON}"
    );
}

/// The source files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let paths = entries.map(|entry| entry.expect("an entry can be read").path());
    paths.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

/// Each program is linked by itself, also one without a test: where none is built, none may be written, as it would never run.
#[test]
fn what_is_built_without_tests_has_none() {
    let mut manifests = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    manifests.retain(|path| path.ends_with("Cargo.toml"));
    let mut without = 0;
    for manifest in manifests {
        let text = fs::read_to_string(&manifest).expect("a manifest is text");
        for section in text.split("\n[").filter(|section| section.contains("\ntest = false")) {
            let is_library = section.starts_with("lib]");
            let source = manifest.with_file_name("src");
            for path in sources(&source) {
                let text = fs::read_to_string(&path).expect("a source file is text");
                let is_built = is_library == (path != source.join("main.rs"));
                assert!(
                    !is_built || !text.contains("#[test]"),
                    "{path:?}: {manifest:?} says `test = false`"
                );
            }
            without += 1;
        }
    }
    assert!(without > 5, "only {without} were found");
}

#[test]
fn the_alarm_rings() {
    let all = ("tests/all/main.rs", "//! All.");
    let said =
        ("tests/a.rs", "//! A.\n//!\n//! A program of its own: it sets variables.\n\nfn a() {}");
    let late = ("tests/b.rs", "//! B.\n\nfn b() {}\n//! A program of its own: it does not.");
    let other = ("tests/c/main.rs", "//! C.");
    let count = |programs: &[(&str, &str)]| {
        let owned = programs.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_string()));
        without_reason(owned.collect()).len()
    };
    assert_eq!(count(&[all, said]), 0);
    assert_eq!(count(&[all, said, late]), 1);
    assert_eq!(count(&[all, other]), 1);
    assert_eq!(count(&[late, other]), 0);
    assert_eq!(count(&[late, other, ("tests/d.rs", "")]), 3);
}
