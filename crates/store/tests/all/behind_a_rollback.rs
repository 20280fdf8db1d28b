//! What comes behind a rollback is not durable before it: see `held_back`.

use crate::held_back;

#[test]
fn an_fsync_waits_for_the_rollback_before_it() {
    held_back::an_fsync_waits_for_the_rollback_before_it().unwrap();
}
