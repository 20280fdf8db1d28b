//! The tables of README, docs/MECHANISMS and docs/MEASURED are what was kept in bench-results, so that no figure in them comes from elsewhere.

#![allow(missing_docs)]

use std::path::Path;

use holdfast_bench::result::{Stored, render};

#[test]
fn the_tables_of_the_documents_are_those_of_the_kept_results() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let stored = Stored::read(&root.join("bench-results")).expect("kept results can be read");
    for document in ["README.md", "docs/MECHANISMS.md", "docs/MEASURED.md"] {
        let text = std::fs::read_to_string(root.join(document)).unwrap();
        let rendered = render(&text, &stored).expect("every table was kept");
        assert!(rendered == text, "run: holdfast-dev bench render {document}");
    }
}
