//! What one crash has torn, another does not mend (P3).
//!
//! A program starts again and does nearly the same: its batch, or its commit, goes to the place of the one
//! that the first crash has torn, or behind the marker that lies there now, and is torn itself. Where the first one kept what the second one lost, and
//! the rest is equal, the first one would be whole again, and what was seen to be gone would be back.

use std::sync::Arc;

use holdfast_base::{BlockRange, Lsn};
use holdfast_device::MemoryDevice;
use holdfast_format::Geometry;
use holdfast_store::Branch;

use crate::small::{
    after_a_commit_without_room, first, formatted, geometry, open, put_one_transaction, sectors,
    sync, write_sectors,
};

/// Values that differ in their beginning alone, if `rest` is the same, made durable.
fn work(store: &Branch, fill: u8, rest: u8, durable: fn(&Branch)) {
    put_one_transaction(store, 0..1, fill, rest);
    put_one_transaction(store, 1..8, rest, rest);
    durable(store);
}

fn commit(store: &Branch) {
    store.commit().unwrap();
}

/// The work is torn on the volume that `begin` makes, behind all that its opening writes.
fn stays_torn(
    begin: fn() -> (Arc<MemoryDevice>, Branch),
    zone: fn(&Geometry) -> BlockRange,
    durable: fn(&Branch),
) {
    let (device, store) = begin();
    let zone = zone(&geometry());
    let before: Lsn = store.latest();
    let value = first(&store, 0);
    let base = device.snapshot();
    work(&store, 1, 7, durable);
    let one = sectors(&device, zone);
    drop(store);
    let other = Arc::new(base.snapshot());
    let store = open(&other);
    work(&store, 2, 7, durable);
    let two = sectors(&other, zone);
    drop(store);
    let empty = sectors(&base, zone);
    let all = 0..empty.len();
    let mut differ: Vec<usize> = all.clone().filter(|&at| one[at] != two[at]).collect();
    let mut same: Vec<usize> =
        all.filter(|at| !differ.contains(at) && one[*at] != empty[*at]).collect();
    if same.is_empty() {
        // A marker has moved the second one on: what the first one lacks is its end.
        let last = differ.iter().rposition(|at| one[*at] != empty[*at]).unwrap();
        same.push(differ.remove(last));
    }
    assert!(differ.len() > 1, "{} and {}", differ.len(), same.len());

    let left = Arc::new(base.snapshot());
    write_sectors(&left, zone, &one, &differ);
    let store = open(&left);
    assert_eq!(store.latest(), before, "it is torn");
    let opened = left.snapshot();
    work(&store, 2, 7, durable);
    let two = sectors(&left, zone);
    drop(store);
    // Of the second one only that arrives which the first one lacks.
    let opened = Arc::new(opened);
    write_sectors(&opened, zone, &two, &same);
    let store = open(&opened);
    assert_eq!(store.latest(), before, "what was gone is back");
    assert_eq!(first(&store, 0), value);
}

fn empty() -> (Arc<MemoryDevice>, Branch) {
    let device = formatted();
    let store = open(&device);
    (device, store)
}

/// A commit stands in the journal already.
fn committed() -> (Arc<MemoryDevice>, Branch) {
    let (device, store) = empty();
    work(&store, 3, 9, commit);
    (device, store)
}

#[test]
fn a_torn_batch_stays_torn() {
    for begin in [empty, committed, after_a_commit_without_room] {
        stays_torn(begin, Geometry::log, sync);
    }
}

#[test]
fn a_torn_commit_stays_torn() {
    for begin in [empty, committed] {
        stays_torn(begin, Geometry::journal, commit);
    }
}
