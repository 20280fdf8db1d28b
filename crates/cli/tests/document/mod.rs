//! Commands of a document: all its blocks of shell commands, run as one script.

use std::path::Path;
use std::process::Command;

use crate::common::{PROGRAM, TestMount, said};

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// All blocks, with a line before each that says under which heading it stands.
fn commands(document: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(document);
    let (mut script, mut heading, mut inside) = (String::new(), String::new(), false);
    for line in std::fs::read_to_string(path).unwrap().lines() {
        match line {
            line if line.starts_with("```sh") => {
                // Programs that not every machine has stand behind it.
                let missing = line.split(' ').skip(1).find(|program| !is_there(program));
                inside = missing.is_none();
                if let Some(program) = missing {
                    holdfast_base::skip::skipped(format_args!("no {program} here: {heading}"));
                }
                script += &format!("echo '## {heading}'\n");
            }
            "```" => inside = false,
            line if inside => script += &format!("{line}\n"),
            line => heading = line.strip_prefix("## ").map_or(heading, str::to_owned),
        }
    }
    script
}

/// Runs them in an empty directory `work`. What they print.
pub(crate) fn run(document: &str, place: &TestMount) -> String {
    let root = place.root.path();
    let bin = root.join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(PROGRAM, bin.join("holdfast")).unwrap();
    let work = root.join("work");
    std::fs::create_dir(&work).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("bash");
    shell.args(["-e", "-o", "pipefail", "-c", &commands(document)]);
    let output = shell.current_dir(&work).env("PATH", path).output().unwrap();
    let (success, said) = (output.status.success(), said(output));
    assert!(success, "a command fails under the last heading of:\n{}\n{}", said.out, said.err);
    said.out
}

/// What the blocks under a heading print.
pub(crate) fn under(out: &str, heading: &str) -> String {
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
