//! The difference of two trees: what it costs, and that a deletion waits for it. That it is right is judged in every history of
//! `lineage`.

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_device::Device;
use holdfast_format::Key;
use holdfast_store::{Branch, Difference, Need, Store, Transaction};

use crate::branches::{make, now, open};

fn put(branch: &Branch, inodes: impl Iterator<Item = u64>, byte: u8) {
    for inode in inodes {
        let mut room = branch.reserve(Need::Grow { changes: 1, blocks: 0 }).unwrap();
        let mut transaction = Transaction::new();
        transaction.put(Key::inode(InodeNo(inode)), vec![byte; 128]);
        branch.apply(transaction, &mut room).unwrap();
    }
}

fn differing(store: &Store, old: &[u8], new: &[u8]) -> Vec<u64> {
    let pin = |name| store.pin(b"main", Some(name)).unwrap();
    let mut walk = Difference::new(pin(old), pin(new));
    let mut found = Vec::new();
    while let Some(item) = walk.next(store).unwrap() {
        found.push(item.key.inode.0);
    }
    found
}

/// A volume with so many items, and snapshots before and after a change of some of them.
fn changed(items: u64, changes: u64) -> Arc<Store> {
    let device: Arc<dyn Device> = make(32768, 4096);
    let store = open(&device);
    let main = Branch::main(store.clone());
    put(&main, 20..20 + items, 1);
    store.snapshot(1, b"old", now()).unwrap();
    let apart = items / changes;
    put(&main, (0..changes).map(|at| 20 + at * apart), 2);
    store.snapshot(1, b"new", now()).unwrap();
    store
}

/// P15: nodes that both trees have are not looked into, however many there are.
#[test]
fn a_difference_costs_what_changed() {
    let nodes = |items, changes| {
        let store = changed(items, changes);
        let before = store.counters().nodes_compared.get();
        assert_eq!(differing(&store, b"old", b"new").len() as u64, changes);
        store.counters().nodes_compared.get() - before
    };
    let (small, large, more) = (nodes(2_000, 10), nodes(40_000, 10), nodes(40_000, 40));
    // Two trees; at each change the way down, once before it and once behind.
    let levels = 4;
    assert!(small <= 10 * 2 * 2 * levels, "{small} nodes");
    assert!(large <= 10 * 2 * 2 * levels, "{large} nodes");
    assert!(more <= 40 * 2 * 2 * levels, "{more} nodes");
    assert!(more > 2 * large, "{more} nodes for four times the changes of {large}");
}

#[test]
fn a_tree_and_itself_do_not_differ_at_all() {
    let store = changed(5_000, 10);
    let before = store.counters().nodes_compared.get();
    assert_eq!(differing(&store, b"old", b"old"), [0; 0]);
    assert_eq!(store.counters().nodes_compared.get(), before, "no node was looked into");
}

/// S4: what is looked at is not freed, though its name is gone. Without the pin the walk takes it at once.
#[test]
fn a_deletion_waits_for_those_who_look_at_the_snapshot() {
    let store = changed(5_000, 50);
    let old = store.pin(b"main", Some(b"old")).unwrap();
    let new = store.pin(b"main", Some(b"new")).unwrap();
    store.delete_snapshot(old.number()).unwrap();
    assert!(store.pin(b"main", Some(b"old")).is_err(), "its name is gone");
    assert!(!store.work_off_deletions(100).unwrap(), "nothing can be done now");
    // What branches give up meanwhile is theirs or not as ever.
    let main = Branch::main(store.clone());
    put(&main, 20..2_000, 3);
    store.checkpoint().unwrap();
    let number = old.number();
    let mut walk = Difference::new(old, new);
    let mut found = 0;
    while let Some(item) = walk.next(&store).unwrap() {
        assert_eq!(item.old.as_deref(), Some(&[1; 128][..]));
        assert_eq!(item.new.as_deref(), Some(&[2; 128][..]));
        found += 1;
    }
    assert_eq!(found, 50);
    drop(walk);
    while store.work_off_deletions(100).unwrap() {}
    assert!(store.tree(number).is_err(), "it is deleted");
    #[cfg(debug_assertions)]
    store.invariants();
}
