//! Branches and snapshots by the thousands, on volumes that are full: what deletes them always finds room (P8), and looks at
//! what it changes only (P15).

use std::sync::Arc;

use holdfast_base::{BlockNo, InodeNo};
use holdfast_device::sim::HostedDevice;
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::{ItemKind, Key, NodeView};
use holdfast_store::{
    Allocated, Branch, Delayed, LineageError, Need, OpenOptions, Store, StoreError, Transaction,
};

use crate::branches::{make, now, open};

/// A name so long that a few hundred of them fill many nodes.
fn name(number: u64) -> Vec<u8> {
    format!("{number:0>200}").into_bytes()
}

/// Changes something, if there is room for that.
fn put(branch: &Branch, inode: u64, need: Need) -> Result<(), StoreError> {
    let mut room = branch.reserve(need)?;
    let mut transaction = Transaction::new();
    transaction.put(Key::inode(InodeNo(inode)), [7; 8]);
    branch.apply(transaction, &mut room).map(drop)
}

/// Takes all blocks that data can have.
fn fill(branch: &Branch) {
    for want in [512, 64, 8, 1] {
        for number in 0.. {
            let mut room = match branch.reserve(Need::Grow { changes: 1, blocks: want }) {
                Ok(room) => room,
                Err(StoreError::NoSpace) => break,
                Err(error) => panic!("{error}"),
            };
            let mut transaction = Transaction::new();
            let key = Key::new(InodeNo(50 + want), ItemKind::Extent, number * 4096 * want);
            let placed = branch.allocate(&mut room, want, Some(BlockNo(0))).unwrap();
            let extent = transaction.publish_unwritten(placed);
            transaction.put(key, extent.encode());
            match branch.apply(transaction, &mut room) {
                Ok(_) => {}
                Err(StoreError::NoSpace) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn is_running(store: &Store) {
    assert_eq!(store.stop_reason(), None);
}

/// P8: the nodes of the lineage are many times the floor of commits. All deletions begin and end, without a commit of the
/// caller's between them.
#[test]
fn a_full_volume_gets_rid_of_its_snapshots() {
    let device: Arc<dyn Device> = make(8192, 4096);
    let store = open(&device);
    let main = Branch::main(store.clone());
    put(&main, 20, Need::Grow { changes: 1, blocks: 0 }).unwrap();
    store.checkpoint().unwrap();
    let empty = store.space_use();
    let taken: Vec<u64> =
        (0..5000).map(|number| store.snapshot(1, &name(number), now()).unwrap()).collect();
    store.checkpoint().unwrap();
    let lineage = empty.free - store.space_use().free;
    fill(&main);
    let full = store.space_use();
    for number in &taken {
        store.delete_snapshot(*number).unwrap();
        is_running(&store);
    }
    // The steps copy every node anew.
    store.checkpoint().unwrap();
    while store.work_off_deletions(5000).unwrap() {}
    is_running(&store);
    assert_eq!(store.trees().unwrap().len(), 1, "only main is left");
    for _ in 0..3 {
        store.checkpoint().unwrap();
    }
    let left = store.space_use();
    println!("{lineage} nodes of the lineage; empty {empty:?}, full {full:?}, in the end {left:?}");
    assert!(lineage > 300 && left.free + 20 > full.free + lineage, "{lineage}: {full:?}, {left:?}");
    put(&main, 21, Need::Grow { changes: 1, blocks: 8 }).unwrap();
}

/// P8: a deletion that waits when a sparse image is opened finds no node free: it asks the host.
#[test]
fn a_deletion_goes_on_at_the_mount_of_a_sparse_image() {
    let image = make(8192, 4096);
    let device: Arc<dyn Device> = image.clone();
    let store = open(&device);
    let main = Branch::main(store.clone());
    for inode in 0..600 {
        put(&main, 20 + inode, Need::Grow { changes: 1, blocks: 0 }).unwrap();
    }
    let snapshot = store.snapshot(1, b"s", now()).unwrap();
    for inode in 0..600 {
        put(&main, 20 + inode, Need::Grow { changes: 1, blocks: 0 }).unwrap();
    }
    store.delete_snapshot(snapshot).unwrap();
    // As a kill leaves it.
    let image: MemoryDevice = image.snapshot();
    let hosted: Arc<dyn Device> = Arc::new(HostedDevice::new(&image, 64 << 20));
    let store = open(&hosted);
    while store.work_off_deletions(1).unwrap() {}
    store.commit_deletions().unwrap();
    is_running(&store);
    assert_eq!(store.trees().unwrap().len(), 1);
}

/// P15: of deletions that wait, because two trees have grown out of each of their snapshots, a step looks at none; and it looks its own
/// up once.
#[test]
fn deletions_that_wait_cost_a_step_nothing() {
    let looks = |forks: u64| {
        let device: Arc<dyn Device> = make(16384, 4096);
        let store = open(&device);
        let main = Branch::main(store.clone());
        for number in 0..forks {
            put(&main, 20, Need::Grow { changes: 1, blocks: 0 }).unwrap();
            store.fork(1, format!("f{number}").as_bytes(), now()).unwrap();
        }
        // What waits is looked at once.
        while store.work_off_deletions(100).unwrap() {}
        let before = store.counters().deletions_looked_at.get();
        let mut steps = 0;
        for number in 0..20 {
            put(&main, 20, Need::Grow { changes: 1, blocks: 0 }).unwrap();
            let snapshot = store.snapshot(1, format!("s{number}").as_bytes(), now()).unwrap();
            put(&main, 20, Need::Grow { changes: 1, blocks: 0 }).unwrap();
            store.delete_snapshot(snapshot).unwrap();
            while store.work_off_deletions(1).unwrap() {
                steps += 1;
            }
        }
        assert_eq!(store.counters().deletions_left.get(), forks, "they wait");
        (steps, store.counters().deletions_looked_at.get() - before)
    };
    let (few, (steps, looks)) = (looks(3), looks(300));
    assert_eq!(few, (steps, looks));
    // At the end of each deletion those beside it are looked at: they may have waited for that.
    assert!(looks >= steps && looks <= steps + 2 * 20, "{looks} looks, {steps} steps");
}

/// P15: what did not change is passed in a few steps, however many nodes of one parent that is.
#[test]
fn a_deletion_passes_what_did_not_change() {
    let steps = |inodes: u64| {
        let device: Arc<dyn Device> = make(32768, 4096);
        let store = open(&device);
        let main = Branch::main(store.clone());
        let need = Need::Grow { changes: 1, blocks: 0 };
        for inode in 0..inodes {
            put(&main, 20 + inode, need).unwrap();
        }
        let mut steps = 0;
        // Without a parent, and the child has the rest; then in the middle.
        for name in ["a", "b", "c"] {
            let snapshot = store.snapshot(1, name.as_bytes(), now()).unwrap();
            put(&main, 20 + inodes / 2, need).unwrap();
            if name != "b" {
                store.delete_snapshot(snapshot).unwrap();
            }
            while store.work_off_deletions(1).unwrap() {
                steps += 1;
            }
        }
        assert_eq!(store.trees().unwrap().len(), 2);
        steps
    };
    let (few, many) = (steps(200), steps(20_000));
    println!("{few} steps for 200 inodes, {many} for 20,000");
    assert!(many <= few + 8, "{few} and {many}");
}

/// When all but one of the forks go, what waited for that goes on.
#[test]
fn a_deletion_goes_on_when_one_tree_is_left() {
    let device: Arc<dyn Device> = make(8192, 4096);
    let store = open(&device);
    let main = Branch::main(store.clone());
    put(&main, 20, Need::Grow { changes: 1, blocks: 0 }).unwrap();
    let forks: Vec<u64> = (0..3u64)
        .map(|number| store.fork(1, format!("f{number}").as_bytes(), now()).unwrap())
        .collect();
    while store.work_off_deletions(1).unwrap() {}
    assert!(store.counters().deletions_left.get() > 0);
    for fork in forks {
        store.delete_branch(fork, now()).unwrap();
        while store.work_off_deletions(1).unwrap() {}
    }
    assert_eq!(store.trees().unwrap().len(), 1);
    assert_eq!(store.counters().deletions_left.get(), 0);
}

/// A handle of a branch that is deleted changes nothing any more: its blocks are free, or will be.
#[test]
fn a_handle_of_a_deleted_branch_is_refused() {
    let device: Arc<dyn Device> = make(8192, 4096);
    let store = open(&device);
    let fork = store.fork(1, b"f", now()).unwrap();
    let branch = Branch::open(store.clone(), b"f", None).unwrap();
    let need = Need::Grow { changes: 1, blocks: 0 };
    put(&branch, 20, need).unwrap();
    store.delete_branch(fork, now()).unwrap();
    let refused = put(&branch, 21, need);
    assert!(matches!(refused, Err(StoreError::Lineage(LineageError::Gone(_)))), "{refused:?}");
    while store.work_off_deletions(100).unwrap() {}
    assert!(put(&branch, 21, need).is_err());
    store.checkpoint().unwrap();
    is_running(&store);
}

/// P10: two extents of a snapshot name the same blocks. Its deletion comes to an answer, and not to an assert.
#[test]
fn blocks_that_a_snapshot_names_twice_are_an_answer() {
    let device: Arc<dyn Device> = make(8192, 4096);
    let store = open(&device);
    let main = Branch::main(store.clone());
    let keys = [0, 65536].map(|offset| Key::new(InodeNo(20), ItemKind::Extent, offset));
    let mut room = main.reserve(Need::Grow { changes: 2, blocks: 4 }).unwrap();
    let mut transaction = Transaction::new();
    let placed = main.allocate(&mut room, 4, None).unwrap();
    let blocks = placed.blocks();
    let extent = transaction.publish_unwritten(placed);
    keys.iter().for_each(|key| transaction.put(*key, extent.encode()));
    main.apply(transaction, &mut room).unwrap();
    let snapshot = store.snapshot(1, b"s", now()).unwrap();
    let mut transaction = Transaction::new();
    keys.iter().for_each(|key| transaction.delete(*key));
    let mut room = main.reserve(Need::Shrink { changes: 2 }).unwrap();
    main.apply(transaction, &mut room).unwrap();
    store.delete_snapshot(snapshot).unwrap();
    assert!(!store.work_off_deletions(100).unwrap(), "nothing can go on");
    let failed = store.failed_deletions();
    assert_eq!((failed.len(), failed[0].0), (1, snapshot));
    assert!(failed[0].1.contains(&format!("{:?}", blocks)), "{failed:?}");
    assert_eq!(store.counters().deletions_failed.get(), 1);
    is_running(&store);
}

/// Fills the inodes anew, so that no leaf is what it was.
fn change_all(branch: &Branch) {
    for inode in 0..600 {
        put(branch, 20 + inode, Need::Grow { changes: 1, blocks: 0 }).unwrap();
    }
}

/// Two snapshots are deleted, and a leaf of one is damaged: the other goes, whatever their order, also on a full volume, where
/// what it frees is what a writer waits for.
#[test]
fn a_deletion_that_fails_is_set_aside() {
    for (rotten, is_full) in [(0, false), (2, false), (0, true), (2, true)] {
        let image = make(8192, 4096);
        let device: Arc<dyn Device> = image.clone();
        let store = open(&device);
        let main = Branch::main(store.clone());
        let taken: Vec<u64> = (0..4u64)
            .map(|number| {
                change_all(&main);
                store.snapshot(1, &name(number), now()).unwrap()
            })
            .collect();
        change_all(&main);
        let root = store.tree(taken[rotten]).unwrap();
        assert!(root.level > 0);
        if is_full {
            fill(&main);
        }
        drop(main);
        Arc::into_inner(store).unwrap().close().unwrap();
        let mut bytes = vec![0; 4096];
        image.read(root.root.block.byte_offset().unwrap(), &mut bytes).unwrap();
        let leaf = NodeView::trusted(&bytes).child(2).block.byte_offset().unwrap();
        image.write(leaf, &[0; 4096]).unwrap();

        let store = open(&device);
        let main = Branch::main(store.clone());
        store.delete_snapshot(taken[0]).unwrap();
        store.delete_snapshot(taken[2]).unwrap();
        let before = store.space_use();
        while store.work_off_deletions(1).unwrap() {}
        store.commit_deletions().unwrap();
        let failed = store.failed_deletions();
        assert_eq!((failed.len(), failed[0].0), (1, taken[rotten]), "{failed:?}");
        let counters = store.counters();
        assert_eq!((counters.deletions_left.get(), counters.deletions_failed.get()), (1, 1));
        let gone = taken[2 - rotten];
        assert!(store.tree(gone).is_err(), "it has ended");
        assert_eq!(store.trees().unwrap().len(), 4);
        // What only that had is free again, and a writer goes on.
        store.checkpoint().unwrap();
        assert!(store.space_use().free > before.free + 5, "{before:?}, {:?}", store.space_use());
        put(&main, 900, Need::Grow { changes: 1, blocks: 8 }).unwrap();
        // One more begins and ends, which does not stand beside the one that failed.
        let last = store.snapshot(1, b"last", now()).unwrap();
        put(&main, 901, Need::Grow { changes: 1, blocks: 0 }).unwrap();
        store.delete_snapshot(last).unwrap();
        while store.work_off_deletions(9).unwrap() {}
        assert!(store.tree(last).is_err());
        is_running(&store);
        // A neighbour waits: what both have passed would not be known.
        store.delete_snapshot(taken[1]).unwrap();
        while store.work_off_deletions(9).unwrap() {}
        assert!(store.tree(taken[1]).is_ok());
        store.checkpoint().unwrap();
        assert!(store.superblock().fault.is_some(), "the next superblock says it");
        // At the next opening it is tried again.
        drop(main);
        drop(store);
        let store = open(&device);
        while store.work_off_deletions(9).unwrap() {}
        assert_eq!(store.failed_deletions().len(), 1);
        assert!(store.tree(taken[1]).is_ok());
        is_running(&store);
    }
}

/// Deletions of neighbours come one after the other, whatever has begun.
#[test]
fn two_deletions_side_by_side_have_not_both_begun() {
    let device: Arc<dyn Device> = make(8192, 4096);
    let store = open(&device);
    let main = Branch::main(store.clone());
    let mut taken = Vec::new();
    for number in 0..3u64 {
        change_all(&main);
        taken.push(store.snapshot(1, &name(number), now()).unwrap());
    }
    change_all(&main);
    for number in &taken {
        store.delete_snapshot(*number).unwrap();
        assert!(store.work_off_deletions(1).unwrap());
    }
    while store.work_off_deletions(1).unwrap() {}
    assert_eq!(store.failed_deletions(), []);
    assert_eq!(store.trees().unwrap().len(), 1);
}

/// Takes data, which no tree has yet, for as long as any is given.
fn take_all(branch: &Branch) -> Vec<Allocated> {
    let mut taken = Vec::new();
    for want in [64, 8, 1] {
        while let Ok(mut room) = branch.reserve(Need::Grow { changes: 1, blocks: want }) {
            while room.blocks() > 0 {
                let placed = branch.allocate(&mut room, want, Some(BlockNo(0))).unwrap();
                taken.push(placed);
            }
        }
    }
    taken
}

/// P8: a commit carries the roots of thousands of branches that have changed, each in a leaf of its own nearly. What it needs
/// for that is not given to others.
#[test]
fn a_full_volume_carries_the_roots_of_many_branches() {
    let device: Arc<dyn Device> = make(8192, 4096);
    // Few commits but those that are asked for.
    let recover = std::time::Duration::from_secs(3600);
    let options = OpenOptions { threads: false, recover, ..OpenOptions::default() };
    let store = Arc::new(Store::open(device, &options, Arc::default()).unwrap());
    let main = Branch::main(store.clone());
    put(&main, 20, Need::Grow { changes: 1, blocks: 0 }).unwrap();
    let snapshot = store.snapshot(1, b"s", now()).unwrap();
    let mut forks = Vec::new();
    for number in 0..6000u64 {
        let name = format!("{number:0>255}").into_bytes();
        store.fork(snapshot, &name, now()).unwrap();
        // The others make the leaves of the lineage many.
        if number % 5 == 0 {
            forks.push(Branch::open(store.clone(), &name, None).unwrap());
        }
    }
    let change = |inode: u64| {
        for fork in &forks {
            put(fork, inode, Need::Grow { changes: 1, blocks: 0 }).unwrap();
        }
    };
    change(30);
    for _ in 0..3 {
        store.checkpoint().unwrap();
    }
    let commits = store.counters().commits.get();
    change(31);
    println!("{} commits meanwhile", store.counters().commits.get() - commits);
    let taken = take_all(&main);
    assert!(taken.len() > 10);
    store.commit().unwrap();
    is_running(&store);
    println!("{} taken, {} commits", taken.len(), store.counters().commits.get() - commits);
    drop(taken);
    store.checkpoint().unwrap();
    is_running(&store);
    put(&main, 21, Need::Grow { changes: 1, blocks: 8 }).unwrap();
}

/// P8: what delayed data of a deep branch may need is kept, also from a shallow one that wants space after it.
#[test]
fn a_shallow_branch_leaves_what_a_deep_one_may_need() {
    let device: Arc<dyn Device> = make(16384, 4096);
    let store = open(&device);
    let main = Branch::main(store.clone());
    store.fork(1, b"deep", now()).unwrap();
    let deep = Branch::open(store.clone(), b"deep", None).unwrap();
    for inode in 0..1500u64 {
        let mut room = deep.reserve(Need::Grow { changes: 4, blocks: 0 }).unwrap();
        let mut transaction = Transaction::new();
        for part in 0..4 {
            let key = Key::new(InodeNo(20 + inode), ItemKind::XattrPiece, part);
            transaction.put(key, [7; 900]);
        }
        deep.apply(transaction, &mut room).unwrap();
    }
    for _ in 0..3 {
        store.checkpoint().unwrap();
    }
    let delayed = Delayed { runs: 300, pages: 300 };
    let accepted = deep.reserve(Need::Delay { blocks: 0, growth: 0, delayed }).unwrap();
    let taken = take_all(&main);
    assert!(taken.len() > 10);
    // Each run in a leaf that is full, and nodes above it that are.
    let room = deep.reserve(Need::Writeback { changes: 470 }).unwrap();
    drop((room, accepted, taken));
    is_running(&store);
}

/// P15: the deletion of a branch reads what it needs, and not all that there is, but for the first one of an opening.
#[test]
fn deleting_a_branch_reads_nothing_of_others() {
    let reads = |others: u64| {
        let device: Arc<dyn Device> = make(16384, 4096);
        let store = open(&device);
        let main = Branch::main(store.clone());
        put(&main, 20, Need::Grow { changes: 1, blocks: 0 }).unwrap();
        let first = store.snapshot(1, b"s", now()).unwrap();
        let forks: Vec<u64> = [b"a", b"b", b"c"]
            .map(|name| store.fork(first, name, now()).unwrap())
            .into_iter()
            .inspect(|fork| {
                // Snapshots before the list was made, and behind it below.
                store.snapshot(*fork, b"one", now()).unwrap();
            })
            .collect();
        for number in 0..others {
            store.snapshot(1, &name(number), now()).unwrap();
        }
        store.delete_branch(forks[0], now()).unwrap();
        let last = store.snapshot(forks[1], b"two", now()).unwrap();
        while store.work_off_deletions(100).unwrap() {}
        // Nothing of the lineage stays in memory.
        for inode in 0..20_000 {
            put(&main, 100 + inode, Need::Grow { changes: 1, blocks: 0 }).unwrap();
        }
        store.checkpoint().unwrap();
        for inode in 0..20_000 {
            main.get(&Key::inode(InodeNo(100 + inode))).unwrap();
        }
        let before = store.counters().nodes_read.get();
        store.delete_branch(forks[1], now()).unwrap();
        let reads = store.counters().nodes_read.get() - before;
        while store.work_off_deletions(100).unwrap() {}
        assert!(store.tree(last).is_err(), "its snapshots went with it");
        // The other and its snapshot, main and its.
        assert_eq!(store.trees().unwrap().len() as u64, 2 + 2 + others);
        let held = store.fork(store.find_tree(b"c", Some(b"one")).unwrap(), b"d", now());
        held.unwrap();
        let refused = store.delete_branch(forks[2], now());
        assert!(matches!(refused, Err(StoreError::Lineage(LineageError::HasForks { .. }))));
        reads
    };
    let (few, many) = (reads(20), reads(2000));
    println!("{few} nodes read beside 20 snapshots, {many} beside 2000");
    assert!(many < few + 60, "{few} nodes read beside 20 snapshots, {many} beside 2000");
}
