//! `holdfast-dev crashtest`: what it counts, that a seed means the same again, and cases from their folders.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn crashtest(args: &[&str], folder: &Path) -> Output {
    let program = env!("CARGO_BIN_EXE_holdfast-dev");
    Command::new(program).arg("crashtest").args(args).current_dir(folder).output().unwrap()
}

/// The lines of `--json`.
fn rows(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_seed_does_the_same_again_and_nothing_is_saved_when_all_is_well() {
    let folder = tempfile::tempdir().unwrap();
    let run = |workers: &str| {
        let args = ["--families=weaken,reuse", "--sample", "2", "--count", "8", "--seed", "5"];
        let args = [&args[..], &["--json", "--workers", workers]].concat();
        let output = crashtest(&args, folder.path());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        rows(&output)
    };
    let (one, two) = (run("1"), run("2"));
    let names: Vec<&Value> = one.iter().map(|row| &row["scripts"]).collect();
    assert_eq!(names, ["some of length 2", "families", "total"]);
    for (one, two) in one.iter().zip(&two) {
        for field in ["workloads", "cuts", "violations"] {
            assert_eq!(one[field], two[field], "{field}");
        }
        assert!(one["states"].as_u64().unwrap() > 100, "{one}");
        assert_eq!(one["violations"], 0);
    }
    assert!(one[2]["states_per_second"].as_f64().unwrap() > 0.0);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn cases_run_again_from_their_folders() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sim/cases");
    let case = cases.join("exchanged-directories");
    let output = crashtest(&["--replay", case.to_str().unwrap()], Path::new("/"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("exchanged-directories"));
    // A folder that holds something else.
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    let output = crashtest(&["--replay", "."], folder.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("case.toml"), "{output:?}");
}

#[test]
fn wrong_arguments_are_told_in_a_sentence() {
    for args in [["--exhaustive", "4"], ["--sector", "1000"], ["--families=nothing", "--json"]] {
        let output = crashtest(&args, Path::new("/"));
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("crashtest --help"), "{output:?}");
    }
}
