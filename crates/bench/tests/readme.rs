//! The README's tables are what was kept in bench-results, so that no figure in them comes from elsewhere.

#![allow(missing_docs)]

use std::path::Path;

use holdfast_bench::result::{Stored, render};

#[test]
fn the_tables_of_the_readme_are_those_of_the_kept_results() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("README.md")).unwrap();
    let stored = Stored::read(&root.join("bench-results")).expect("kept results can be read");
    let rendered = render(&text, &stored).expect("every table was kept");
    assert!(rendered == text, "run: holdfast bench render README.md");
}
