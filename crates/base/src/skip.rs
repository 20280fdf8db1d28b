//! Tests that cannot be done here say so where it is seen.

use std::fmt::Display;
use std::io::Write;

/// For tests: says on standard error that the calling test does nothing, and why. The test harness keeps what tests print
/// by `println!` and `eprintln!` to itself if they pass; `scripts/test.sh` counts and lists these lines.
pub fn skipped(why: impl Display) {
    let thread = std::thread::current();
    let line = format!("SKIPPED {}: {why}\n", thread.name().unwrap_or("unnamed"));
    // Straight to the descriptor, and in one piece beside other threads.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}
