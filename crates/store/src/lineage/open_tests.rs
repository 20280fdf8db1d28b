//! How long the trees of branches and snapshots stay open.

use holdfast_base::{InodeNo, Timestamp};
use holdfast_format::{ItemKind, Key};

use super::lies_tests::made;
use crate::{Branch, Need, Store, Transaction};

fn put(branch: &Branch, no: u64, value: u64) {
    let mut room = branch.reserve(Need::Grow { changes: 1, blocks: 0 }).unwrap();
    let mut transaction = Transaction::new();
    transaction.put(Key::inode(InodeNo(no)), value.to_le_bytes());
    branch.apply(transaction, &mut room).unwrap();
}

fn get(branch: &Branch, no: u64) -> Option<u64> {
    let value = branch.get(&Key::inode(InodeNo(no))).unwrap();
    value.map(|value| u64::from_le_bytes(value.try_into().unwrap()))
}

fn count(store: &Store) -> usize {
    store.inner.forest.read().trees.count()
}

fn name(number: u64) -> Vec<u8> {
    format!("fork {number}").into_bytes()
}

/// A thousand forks are opened one after the other, changed and closed: those of the last commits are open, and each has
/// what was written to it when it is opened once more.
#[test]
fn forks_that_are_closed_take_no_memory() {
    let (_, store) = made();
    let now = Timestamp::default();
    put(&Branch::main(store.clone()), 20, 0);
    let snapshot = store.snapshot(1, b"s", now).unwrap();
    let mut most = 0;
    for number in 0..1000 {
        store.fork(snapshot, &name(number), now).unwrap();
        let fork = Branch::open(store.clone(), &name(number), None).unwrap();
        put(&fork, 20, number + 1);
        put(&fork, 30 + number, number);
        drop(fork);
        if number % 10 == 9 {
            store.checkpoint().unwrap();
        }
        most = most.max(count(&store));
    }
    assert!(most < 60, "{most} trees were open");
    for number in (0..1000).rev() {
        let fork = Branch::open(store.clone(), &name(number), None).unwrap();
        let found = [20, 30 + number, 29 + number].map(|no| get(&fork, no));
        assert_eq!(found, [Some(number + 1), Some(number), None]);
        most = most.max(count(&store));
    }
    assert!(most < 60, "{most} trees were open");
    store.give_back_memory();
    assert_eq!(count(&store), 2, "the space tree and main");
    store.invariants();
}

/// Branches are opened, changed and closed while a list is read: what it says of them is what they are then.
#[test]
fn a_list_has_the_heads_of_branches_that_were_opened_while_it_was_read() {
    let (_, store) = made();
    let now = Timestamp::default();
    let snapshot = store.snapshot(1, b"s", now).unwrap();
    for number in 0..300 {
        store.fork(snapshot, &name(number), now).unwrap();
    }
    store.checkpoint().unwrap();
    store.give_back_memory();
    let look = store.inner.lineage.lock().look_begins();
    let list = store.inner.list(&look).unwrap();
    for number in 0..300 {
        let fork = Branch::open(store.clone(), &name(number), None).unwrap();
        (0..200).for_each(|no| put(&fork, 20 + no, number));
    }
    store.checkpoint().unwrap();
    store.give_back_memory();
    assert_eq!(count(&store), 2, "all are closed");
    let listed = store.inner.list_of_now(list, look).unwrap();
    for of in listed {
        let now = store.tree_info(of.number).unwrap();
        assert_eq!(of.referenced_blocks, now.referenced_blocks, "{:?}", of.item.name);
    }
}

/// A handle keeps its tree, whatever is opened meanwhile; so does what the last commit does not have.
#[test]
fn what_is_held_or_not_committed_stays_open() {
    let (_, store) = made();
    let now = Timestamp::default();
    put(&Branch::main(store.clone()), 20, 0);
    let snapshot = store.snapshot(1, b"s", now).unwrap();
    let held = Branch::open(store.clone(), b"main", Some(b"s")).unwrap();
    let kept = held.clone();
    let pin = store.pin_number(snapshot).unwrap();
    for number in 0..50 {
        store.fork(snapshot, &name(number), now).unwrap();
        put(&Branch::open(store.clone(), &name(number), None).unwrap(), 20, number);
    }
    assert_eq!(count(&store), 3 + 50, "no commit has any of them");
    drop(held);
    store.checkpoint().unwrap();
    store.give_back_memory();
    assert_eq!(count(&store), 3);
    assert_eq!(get(&kept, 20), Some(0));
    drop(kept);
    store.give_back_memory();
    assert_eq!(count(&store), 3, "it is pinned");
    drop(pin);
    store.give_back_memory();
    assert_eq!(count(&store), 2);
}

/// A number that is given once more brings nothing of the tree that had it: neither leaf hints nor what was prepared, nor what was
/// promised.
#[test]
fn a_number_that_is_used_again_is_of_another_tree() {
    let (_, store) = made();
    let now = Timestamp::default();
    let snapshot = store.snapshot(1, b"s", now).unwrap();
    for number in 0..3 {
        store.fork(snapshot, &name(number), now).unwrap();
    }
    let number_of = |number: u64| {
        let fork = Branch::open(store.clone(), &name(number), None).unwrap();
        put(&fork, 20, number);
        let no = store.inner.forest.read().trees.find(fork.number()).unwrap();
        let Some(room) = fork.reserve_now(Need::Grow { changes: 1, blocks: 5 }).unwrap() else {
            panic!("there is room")
        };
        (no, room)
    };
    let (first, room) = number_of(0);
    store.checkpoint().unwrap();
    store.give_back_memory();
    let (second, other) = number_of(1);
    assert_ne!(first, second, "blocks are promised to the first");
    drop((room, other));
    store.checkpoint().unwrap();
    store.give_back_memory();
    let (third, _room) = number_of(2);
    assert_eq!(third, first);
    for number in 0..3 {
        let fork = Branch::open(store.clone(), &name(number), None).unwrap();
        assert_eq!(get(&fork, 20), Some(number));
    }
    store.invariants();
}

/// A branch whose deletion has begun, and snapshots that go, leave nothing open behind.
#[test]
fn what_is_deleted_is_closed() {
    let (_, store) = made();
    let now = Timestamp::default();
    for number in 0..20 {
        put(&Branch::main(store.clone()), 20, number);
        let fork = store.fork(1, &name(number), now).unwrap();
        let branch = Branch::open(store.clone(), &name(number), None).unwrap();
        put(&branch, 21, number);
        store.delete_branch(fork, now).unwrap();
        drop(branch);
        while store.work_off_deletions(9).unwrap() {}
        store.commit_deletions().unwrap();
    }
    store.checkpoint().unwrap();
    store.give_back_memory();
    assert_eq!(count(&store), 2);
    assert_eq!(get(&Branch::main(store.clone()), 20), Some(19));
}

/// Blocks that were taken for one branch and that another publishes: what was promised to the first is given back to it.
#[test]
fn growth_goes_back_to_the_branch_that_it_was_promised_to() {
    let (_, store) = made();
    let main = Branch::main(store.clone());
    store.fork(1, b"fork", Timestamp::default()).unwrap();
    let fork = Branch::open(store.clone(), b"fork", None).unwrap();
    let mut room = main.reserve(Need::Grow { changes: 1, blocks: 3 }).unwrap();
    let mut other = fork.reserve(Need::Grow { changes: 1, blocks: 1 }).unwrap();
    let mut transaction = Transaction::new();
    let placed = main.allocate(&mut room, 3, None).unwrap();
    let extent = transaction.publish_unwritten(placed);
    transaction.put(Key::new(InodeNo(20), ItemKind::Extent, 0), extent.encode());
    fork.apply(transaction, &mut other).unwrap();
    drop((room, other));
    let tree = |number| store.inner.forest.read().trees.find(number).unwrap().number();
    let trees = [1, fork.number()].map(tree);
    let left = trees.map(|tree| store.inner.space.lock().promises.growth_of(tree));
    assert_eq!(left, [0, 0]);
}
