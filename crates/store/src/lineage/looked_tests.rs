//! What others change between a look at the snapshots of a branch and the moment in which it goes.

use std::sync::Arc;

use super::going::SOME;
use super::going_tests::{exists, is_gone, now, open, with_snapshots};
use super::since::Ascent;
use crate::error::LineageError;
use crate::{Result, Store, StoreError};

fn is_kept<T: std::fmt::Debug>(answer: Result<T>) {
    assert!(
        matches!(answer, Err(StoreError::Lineage(LineageError::HasForks { .. }))),
        "{answer:?}"
    );
}

fn hold_all(store: &Store, taken: &[u64], tag: &[u8]) {
    for number in taken {
        store.inner.hold(*number, tag, now()).unwrap();
    }
}

fn unhold_all(store: &Store, taken: &[u64], tag: &[u8]) {
    for number in taken {
        store.inner.unhold(*number, tag).unwrap();
    }
}

/// What one of two looks at one branch is told of is not missed by the other.
#[test]
fn two_looks_at_a_branch_both_hear_of_a_fork() {
    let (device, work, taken) = with_snapshots(SOME as u64 + 5);
    let store = open(&device);
    let mut looks = [(); 2].map(|()| store.look_before_deletion(work).unwrap());
    let fork = store.fork(taken[7], b"fork", now()).unwrap();
    for looked in &mut looks {
        is_kept(store.delete_looked(looked, now()));
    }
    store.delete_branch(fork, now()).unwrap();
    let [mut first, mut second] = [(); 2].map(|()| store.look_before_deletion(work).unwrap());
    assert!(store.delete_looked(&mut first, now()).unwrap());
    is_gone(store.delete_looked(&mut second, now()));
}

/// Snapshots that others take and lose beside a look, and branches that go, are no matter of the branch that is looked at.
#[test]
fn what_happens_to_other_branches_keeps_no_branch() {
    let (device, work, _) = with_snapshots(5);
    let store = open(&device);
    let other = store.fork(1, b"other", now()).unwrap();
    store.snapshot(other, b"s", now()).unwrap();
    let mut looked = store.look_before_deletion(work).unwrap();
    store.snapshot(1, b"mine", now()).unwrap();
    store.fork(1, b"more", now()).unwrap();
    store.delete_branch(other, now()).unwrap();
    assert!(store.delete_looked(&mut looked, now()).unwrap());
}

/// Where the branch stands still no more than some snapshots are looked at: with more it comes again, and in the end it is done all the same.
#[test]
fn much_that_has_changed_is_looked_at_before_a_branch_stands_still() {
    let (device, work, taken) = with_snapshots(10 * SOME as u64);
    let store = open(&device);
    let mut looked = store.look_before_promotion(1, work).unwrap();
    for round in 0.. {
        hold_all(&store, &taken, b"mine");
        let before = store.inner.counters.nodes_read.get();
        let is_done = store.promote_looked(&mut looked, None, now()).unwrap();
        if is_done {
            assert_eq!(round, 4, "others have changed all of it so often");
            break;
        }
        let read = store.inner.counters.nodes_read.get() - before;
        assert!(read < 12 * SOME as u64, "{read} nodes were read");
        assert_eq!(store.find_tree(b"work", None).unwrap(), work, "nothing has happened");
        store.look_again(&mut looked).unwrap();
        unhold_all(&store, &taken, b"mine");
    }
    is_gone(store.find_tree(b"work", None));
    assert_eq!(store.find_snapshot(1, b"s7").unwrap(), taken[7]);
}

/// A name that comes between is seen, and a branch that has grown out of something else is not taken for what it was.
#[test]
fn a_look_before_a_promotion_is_judged_again() {
    let (device, work, _) = with_snapshots(5);
    let store = open(&device);
    let mut looked = store.look_before_promotion(1, work).unwrap();
    let base = looked.common_ancestor().unwrap();
    assert!(store.has_same_ancestor(&mut looked).unwrap());
    let own = store.snapshot(1, b"s3", now()).unwrap();
    assert!(!store.has_same_ancestor(&mut looked).unwrap());
    exists(store.promote_looked(&mut looked, None, now()));
    store.rename_tree(own, b"own").unwrap();
    store.look_again(&mut looked).unwrap();
    assert!(store.has_same_ancestor(&mut looked).unwrap());
    assert_eq!(looked.common_ancestor(), Some(base));
    store.new_branch(b"alone", &[], 1, now()).unwrap();
    let alone = store.find_tree(b"alone", None).unwrap();
    assert_eq!(store.look_before_promotion(1, alone).unwrap().common_ancestor(), None);
    assert!(store.promote_looked(&mut looked, None, now()).unwrap());
}

/// Snapshots go on the way through what a branch has grown out of: it goes on behind them.
#[test]
fn a_way_up_goes_on_where_a_snapshot_has_gone() {
    let (device, work, taken) = with_snapshots(6);
    let store: Arc<Store> = open(&device);
    let mut way = Ascent::of(work);
    for expected in [taken[5], taken[4], taken[3]] {
        way.up(&store.inner).unwrap();
        assert_eq!(way.at(), expected);
    }
    for gone in [taken[3], taken[4], taken[2]] {
        store.delete_snapshot(gone).unwrap();
        while store.work_off_deletions(9).unwrap() {}
        assert!(store.inner.tree_item(gone).is_err());
    }
    way.up(&store.inner).unwrap();
    assert_eq!(way.at(), taken[1]);
    assert!(store.has_grown_out_of(work, taken[0]).unwrap());
    assert!(!store.has_grown_out_of(work, taken[3]).unwrap());
    assert!(!store.has_grown_out_of(1, taken[0]).unwrap());
}
