//! Branches and snapshots: random histories with power cuts, and writers beside takers of snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_base::counters::Counters;
use holdfast_device::Device;
use holdfast_format::Key;
use holdfast_store::{Branch, Need, OpenOptions, Store, Transaction};

use crate::branches::{cut, history, make, now, open};

#[test]
fn power_cuts_leave_one_moment_of_all_branches() {
    let mut images = 0;
    for seed in 0..24 {
        println!("cut({seed}, 60)");
        images += cut(seed, 60);
    }
    println!("{images} images");
}

#[test]
fn branches_and_snapshots_are_what_they_were() {
    for seed in 0..12 {
        println!("history({seed}, 1500, 4096)");
        history(seed, 1500, 4096);
    }
    history(100, 2500, 16384);
}

/// With the store's threads, and several writers beside takers of snapshots: each snapshot is one moment.
#[test]
fn snapshots_beside_writers_are_of_one_moment() {
    let device: Arc<dyn Device> = make(16384, 4096);
    let options = OpenOptions { cache_bytes: 1 << 20, ..OpenOptions::default() };
    let store = Store::open(device.clone(), &options, Arc::new(Counters::default())).unwrap();
    let store = Arc::new(store);
    const ROUNDS: u32 = 3000;
    std::thread::scope(|scope| {
        // Each writer puts the same number under its keys, in one transaction.
        for writer in 0..3 {
            let branch = Branch::main(store.clone());
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let mut transaction = Transaction::new();
                    let mut room = branch.reserve(Need::Grow { changes: 8, blocks: 0 }).unwrap();
                    for at in 0..8 {
                        let key = Key::inode(InodeNo(100 + writer * 1000 + at * 37));
                        transaction.put(key, round.to_le_bytes());
                    }
                    let lsn = branch.apply(transaction, &mut room).unwrap();
                    if round % 16 == 0 {
                        branch.sync(lsn, InodeNo(1)).unwrap();
                    }
                }
            });
        }
        scope.spawn(|| {
            for number in 0..60 {
                store.snapshot(1, format!("s{number}").as_bytes(), now()).unwrap();
            }
        });
    });
    let mut last = BTreeMap::new();
    for number in 0..60 {
        let name = format!("s{number}").into_bytes();
        let snapshot = Branch::open(store.clone(), b"main", Some(&name)).unwrap();
        for writer in 0..3u64 {
            let seen: Vec<_> = (0..8)
                .map(|at| {
                    snapshot.get(&Key::inode(InodeNo(100 + writer * 1000 + at * 37))).unwrap()
                })
                .collect();
            assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "{name:?}: {seen:?}");
            let round = seen[0]
                .as_deref()
                .map_or(0, |bytes| u32::from_le_bytes(bytes.try_into().unwrap()) + 1);
            let before = last.insert(writer, round).unwrap_or(0);
            assert!(before <= round, "a later snapshot is of a later moment");
        }
    }
    Arc::into_inner(store).unwrap().close().unwrap();
    let store = open(&device);
    assert_eq!(store.trees().unwrap().len(), 61);
}
