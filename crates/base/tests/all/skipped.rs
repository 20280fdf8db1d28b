//! A test that is skipped is seen although it passes.

use std::process::Command;

const SKIP: &str = "HOLDFAST_TEST_SKIP";

#[test]
fn a_test_that_is_skipped_says_so_past_the_harness() {
    if std::env::var_os(SKIP).is_some() {
        println!("kept by the harness");
        eprintln!("kept as well");
        return holdfast_base::skip::skipped("the test wants it");
    }
    let test = "skipped::a_test_that_is_skipped_says_so_past_the_harness";
    let mut again = Command::new(std::env::current_exe().unwrap());
    let said = again.args(["--exact", test]).env(SKIP, "1").output().unwrap();
    assert!(said.status.success());
    let printed = String::from_utf8(said.stderr).unwrap();
    assert_eq!(printed, format!("SKIPPED {test}: the test wants it\n"));
    assert!(!String::from_utf8(said.stdout).unwrap().contains("kept by the harness"));
}
