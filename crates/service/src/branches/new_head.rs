//! What is said of a branch that has another head.

use crate::outcome::Failure;

/// The exit code where the branch has its new head, and the kernel still remembers some of what was.
const NOT_FORGOTTEN: u8 = 3;

/// The branch has its new head, and a program may not see it. `what` says what has happened.
pub fn not_forgotten(what: &str) -> Failure {
    let sentence = format!(
        "{what}, but the kernel has not yet forgotten everything that was, and programs \
         may still see some of it; it goes on to be told, and waits for a program that is reading or writing there"
    );
    Failure::new(NOT_FORGOTTEN, sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_still_shows_is_no_success_and_no_failure() {
        let failure = not_forgotten("main is rolled back to main@s");
        assert_eq!(failure.code, NOT_FORGOTTEN);
        assert!(failure.sentence.starts_with("main is rolled back to main@s, but "));
    }
}
