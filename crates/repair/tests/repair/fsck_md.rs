//! docs/FSCK.md says of each finding what a repair does about it: a row for all with one answer.
//!
//! `UPDATE_DOCS=1` writes the list into the document instead of comparing.

use std::fmt::Write;
use std::path::Path;

use holdfast_check::Issue;
use holdfast_repair::answer;

#[test]
fn the_list_is_that_of_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/FSCK.md");
    let old = std::fs::read_to_string(&path).expect("docs/FSCK.md exists");
    let mut rows: Vec<(String, Vec<String>)> = Vec::new();
    for &issue in Issue::ALL {
        let (number, answer) = (issue.number().to_string(), answer(issue));
        match rows.iter_mut().find(|(known, _)| *known == answer) {
            Some((_, numbers)) => numbers.push(number),
            None => rows.push((answer, vec![number])),
        }
    }
    let mut table = String::from("| findings | what a repair does |\n|---|---|\n");
    for (answer, numbers) in rows {
        let numbers = numbers.join(", ");
        writeln!(table, "| {numbers} | {answer} |").expect("a String takes it");
    }
    let marker = "<!-- table: repairs -->\n";
    let start = old.find(marker).expect("the marker is there") + marker.len();
    let end = old[start..].find("<!-- end -->").expect("each marker has an end") + start;
    let mut new = old.clone();
    new.replace_range(start..end, &table);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, new).expect("the document can be written");
        return;
    }
    assert!(old == new, "docs/FSCK.md is out of date; run with UPDATE_DOCS=1");
}
