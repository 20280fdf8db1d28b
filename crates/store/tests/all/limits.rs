//! Limits of branches: what a tree refers to, and what is promised to it, is never more than it may have.

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_device::Device;
use holdfast_format::{ItemKind, Key};
use holdfast_store::{Branch, Delayed, Need, Reservation, Store, StoreError, Transaction};

use crate::branches::{make, now, open};

fn main_of(device: &Arc<dyn Device>) -> (Arc<Store>, Branch) {
    let store = open(device);
    (store.clone(), Branch::main(store))
}

fn volume() -> Arc<dyn Device> {
    make(4096, 4096)
}

fn grow(branch: &Branch, blocks: u64) -> Result<Reservation, StoreError> {
    branch.reserve(Need::Grow { changes: 2, blocks })
}

fn key(at: u64) -> Key {
    Key::new(InodeNo(30), ItemKind::Extent, at * 4096)
}

/// Puts reserved blocks at block `at` of a file.
fn put(branch: &Branch, at: u64, blocks: u64) -> Result<(), StoreError> {
    let mut room = grow(branch, blocks)?;
    let placed = branch.allocate(&mut room, blocks, None)?;
    assert_eq!(placed.blocks().count, blocks);
    let mut transaction = Transaction::new();
    let extent = transaction.publish_unwritten(placed);
    transaction.put(key(at), extent.encode());
    branch.apply(transaction, &mut room).map(drop)
}

#[test]
fn a_branch_refers_to_no_more_than_its_limit_and_promises_count() {
    let device = volume();
    let (store, main) = main_of(&device);
    put(&main, 0, 10).unwrap();
    let used = main.referenced_blocks();
    store.limit(1, used + 20).unwrap();
    assert_eq!((main.space_use().total, main.space_use().available), (used + 20, 20));
    let mut first = grow(&main, 12).unwrap();
    assert_eq!(main.space_use().available, 8);
    assert!(matches!(grow(&main, 9), Err(StoreError::Limit)));
    // Parts of a reservation, and what is allocated out of it, count as it did.
    let part = first.split(5);
    let mut merged = first.split(2);
    merged.merge(part);
    let placed = main.allocate(&mut merged, 4, None).unwrap();
    assert!(matches!(grow(&main, 9), Err(StoreError::Limit)));
    merged.reclaim(placed);
    drop(first);
    assert!(matches!(grow(&main, 14), Err(StoreError::Limit)), "seven are promised still");
    let placed = main.allocate(&mut merged, 3, None).unwrap();
    drop((merged, placed));
    assert_eq!(main.space_use().available, 20);
    put(&main, 100, 20).unwrap();
    assert_eq!((main.referenced_blocks(), main.space_use().free), (used + 20, 0));
    assert!(matches!(put(&main, 200, 1), Err(StoreError::Limit)));

    // What takes the place of other blocks, carries out what was accepted, or shrinks is not asked.
    let delayed = Delayed { runs: 1, pages: 5 };
    drop(main.reserve(Need::Delay { blocks: 5, growth: 0, delayed }).unwrap());
    let half = main.reserve(Need::Delay { blocks: 5, growth: 1, delayed });
    assert!(matches!(half, Err(StoreError::Limit)));
    drop(main.reserve(Need::Change { changes: 3, blocks: 5 }).unwrap());
    drop(main.reserve(Need::Writeback { changes: 3 }).unwrap());
    store.limit(1, 3).unwrap();
    let mut room = main.reserve(Need::Shrink { changes: 1 }).unwrap();
    let mut transaction = Transaction::new();
    let extent = main.get(&key(100)).unwrap().unwrap();
    let extent = holdfast_format::item::Extent::decode(&extent).unwrap();
    transaction.free(extent.blocks, extent.birth, key(100));
    transaction.delete(key(100));
    main.apply(transaction, &mut room).unwrap();
    assert_eq!(main.referenced_blocks(), used);
    assert!(matches!(grow(&main, 0), Err(StoreError::Limit)), "it has more than it may");
    store.limit(1, 0).unwrap();
    drop(grow(&main, 50).unwrap());
}

#[test]
fn a_full_volume_is_no_limit() {
    let device = volume();
    let (store, main) = main_of(&device);
    store.limit(1, 1 << 40).unwrap();
    assert!(matches!(grow(&main, 1 << 20), Err(StoreError::NoSpace)));
    assert!(main.space_use().total < 4096, "no more than the volume has");
}

#[test]
fn limits_and_counts_survive_the_log_commits_checkpoints_forks_and_rollbacks() {
    let device = volume();
    let (store, main) = main_of(&device);
    put(&main, 0, 10).unwrap();
    let snapshot = store.snapshot(1, b"s", now()).unwrap();
    let work = store.fork(snapshot, b"work", now()).unwrap();
    let branch = Branch::open(store.clone(), b"work", None).unwrap();
    assert_eq!(branch.referenced_blocks(), main.referenced_blocks());
    put(&branch, 50, 7).unwrap();
    let used = branch.referenced_blocks();
    assert_eq!(used, main.referenced_blocks() + 7);
    store.limit(work, used + 2).unwrap();
    let judge = |store: &Arc<Store>, why: &str| {
        let branch = Branch::open(store.clone(), b"work", None).unwrap();
        let left = branch.space_use().available;
        assert_eq!((branch.referenced_blocks(), left), (used, 2), "{why}");
        assert!(matches!(grow(&branch, 3), Err(StoreError::Limit)), "{why}");
        drop(grow(&branch, 2).unwrap());
        let listed = store.trees().unwrap().into_iter().find(|of| of.number == work).unwrap();
        assert_eq!((listed.referenced_blocks, listed.item.limit), (used, used + 2), "{why}");
        assert_eq!(store.tree_info(work).unwrap().referenced_blocks, used, "{why}");
    };
    judge(&store, "in memory");
    store.sync(store.latest(), InodeNo(1)).unwrap();
    drop((branch, main, store));
    let store = open(&device);
    judge(&store, "by the log");
    store.commit().unwrap();
    drop(store);
    let store = open(&device);
    judge(&store, "by the journal");
    store.checkpoint().unwrap();
    drop(store);
    let store = open(&device);
    // Listed before it is opened.
    let listed = store.trees().unwrap().into_iter().find(|of| of.number == work).unwrap();
    assert_eq!(listed.referenced_blocks, used);
    judge(&store, "by a checkpoint");
    let branch = Branch::open(store.clone(), b"work", None).unwrap();
    store.roll_back(work, snapshot, None, now()).unwrap();
    assert_eq!(branch.referenced_blocks(), used - 7);
    assert_eq!(branch.space_use().available, 9, "the limit stays");
    assert_eq!(store.tree(snapshot).unwrap().referenced_blocks, used - 7);
}
