//! The examples do what they say: each is run, and fails the test if it fails.

#[path = "../../examples/crash.rs"]
mod crash;
#[path = "../../examples/quickstart.rs"]
mod quickstart;
#[path = "../../examples/replace.rs"]
mod replace;

#[test]
fn quickstart_runs() {
    quickstart::main().unwrap();
}

#[test]
fn crash_runs() {
    crash::main().unwrap();
}

#[test]
fn replace_runs() {
    replace::main().unwrap();
}
