//! Steps of an opening behind which no other one stands: see `last_lock`.

use crate::last_lock;

#[test]
fn a_superblock_that_was_not_flushed() {
    last_lock::a_superblock_that_was_not_flushed().unwrap();
}

#[test]
fn a_batch_of_another_history() {
    last_lock::a_batch_of_another_history().unwrap();
}

#[test]
fn a_commit_that_was_given_up() {
    last_lock::a_commit_that_was_given_up().unwrap();
}
