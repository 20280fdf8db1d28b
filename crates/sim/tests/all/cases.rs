//! Every saved case holds: what was broken once is tested each time.
//!
//! A case is a folder below `crates/sim/cases` (docs/TESTING.md says how one is added).

use std::path::PathBuf;

use holdfast_sim::Case;

fn folders() -> Vec<PathBuf> {
    let cases = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("cases");
    let entries = std::fs::read_dir(&cases).unwrap_or_else(|e| panic!("{}: {e}", cases.display()));
    let mut folders: Vec<PathBuf> =
        entries.map(|entry| entry.expect("it can be listed").path()).collect();
    folders.sort();
    folders
}

#[test]
fn every_case_holds() {
    let folders = folders();
    assert!(folders.len() >= 8, "cases are missing: {folders:?}");
    let mut images = 0;
    for folder in folders {
        let case = Case::read(&folder).unwrap_or_else(|why| panic!("{why}"));
        let stats = case.run().unwrap_or_else(|failure| panic!("{}: {failure}", folder.display()));
        assert!(stats.images > 10, "{}: {stats:?}", folder.display());
        images += stats.images;
    }
    println!("{images} states");
}
