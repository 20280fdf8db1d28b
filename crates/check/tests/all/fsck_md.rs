//! docs/FSCK.md lists every pass and finding; docs/FORMAT.md refers only to findings that exist.
//!
//! `UPDATE_DOCS=1` writes the lists into the document instead of comparing.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use holdfast_check::Issue;
use holdfast_check::pass::PASSES;

fn document(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

fn passes() -> String {
    let mut out = String::from("| number | pass | needs | does |\n|---|---|---|---|\n");
    for pass in PASSES {
        let needs = pass.needs.join(", ");
        let row = format!("| {} | {} | {needs} | {} |", pass.number, pass.name, pass.sentence);
        writeln!(out, "{row}").expect("writing into a String cannot fail");
    }
    out
}

fn issues() -> String {
    let mut out = String::from("| number | name | severity | meaning |\n|---|---|---|---|\n");
    for issue in Issue::ALL {
        let severity = format!("{:?}", issue.severity()).to_lowercase();
        let (number, slug) = (issue.number(), issue.slug());
        writeln!(out, "| {number} | {slug} | {severity} | {} |", issue.sentence())
            .expect("writing into a String cannot fail");
    }
    out
}

#[test]
fn the_lists_are_those_of_the_code() {
    let path = document("FSCK.md");
    let old = std::fs::read_to_string(&path).expect("docs/FSCK.md exists");
    let mut new = old.clone();
    for (name, text) in [("passes", passes()), ("issues", issues())] {
        let marker = format!("<!-- table: {name} -->\n");
        let start = new.find(&marker).expect("the marker is there") + marker.len();
        let end = new[start..].find("<!-- end -->").expect("each marker has an end") + start;
        new.replace_range(start..end, &text);
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, new).expect("the document can be written");
        return;
    }
    assert!(old == new, "docs/FSCK.md is out of date; run with UPDATE_DOCS=1");
}

#[test]
fn the_format_refers_to_findings_that_exist() {
    let text = std::fs::read_to_string(document("FORMAT.md")).expect("docs/FORMAT.md exists");
    let numbers = text.split('[').skip(1).filter_map(|part| part.split_once(']')?.0.parse().ok());
    let mut named: Vec<u16> = numbers.collect();
    for number in &named {
        assert!(Issue::from_number(*number).is_some(), "[{number}] is no finding");
    }
    named.sort_unstable();
    named.dedup();
    // All but what is no rule of the format: a device that does not read, unknown features, bad data.
    let unnamed: Vec<_> = Issue::ALL
        .iter()
        .filter(|issue| !named.contains(&issue.number()))
        .map(|issue| issue.slug())
        .collect();
    let expected = [
        "features-unknown",
        "node-unreadable",
        "kind-misfit",
        "data-damaged",
        "data-unreadable",
        "journal-unreadable",
        "log-unreadable",
    ];
    assert_eq!(unnamed, expected);
}
