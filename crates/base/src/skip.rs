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

/// For tests: whether the kernel is of this version or a later one.
pub fn kernel_is(major: u32, minor: u32) -> bool {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(major), Some(minor))
}

#[cfg(test)]
mod tests {
    use super::kernel_is;

    #[test]
    fn versions_are_compared_by_number() {
        assert!(kernel_is(2, 6) && !kernel_is(1000, 0) && !kernel_is(999, 10));
    }
}
