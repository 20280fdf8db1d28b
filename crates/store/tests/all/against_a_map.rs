//! The store against a `BTreeMap`: random batches, scans, checkpoints, reopening and crashes.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use holdfast_base::counters::Counters;
use holdfast_base::prng::Prng;
use holdfast_base::{Epoch, InodeNo, Lsn};
use holdfast_device::Device;
use holdfast_format::{Geometry, ItemKind, Key};
use holdfast_store::{Branch, Need, OpenOptions, Store, StoreError, Transaction};

use crate::small;

type Map = BTreeMap<Key, Vec<u8>>;

fn device(bytes: u64, node_size: usize) -> Arc<dyn Device> {
    device_of(Geometry::for_device(bytes, node_size).unwrap())
}

fn device_of(geometry: Geometry) -> Arc<dyn Device> {
    small::formatted_as(geometry)
}

fn open(device: &Arc<dyn Device>, cache_bytes: usize) -> Branch {
    let options = OpenOptions { read_only: false, cache_bytes, ..OpenOptions::default() };
    Store::open(device.clone(), &options, Arc::new(Counters::default()))
        .map(Store::into_main)
        .unwrap()
}

fn invariants(store: &Branch) {
    #[cfg(debug_assertions)]
    store.invariants();
    let _ = store;
}

fn contents(store: &Branch) -> Map {
    let mut map = Map::new();
    store
        .scan(&Key::MIN, &Key::MAX, |key, value| {
            assert!(map.insert(key, value.to_vec()).is_none());
            ControlFlow::Continue(())
        })
        .unwrap();
    map
}

fn random_key(prng: &mut Prng) -> Key {
    let kinds = [ItemKind::Inode, ItemKind::Dentry, ItemKind::Extent];
    let inode = if prng.one_in(4) { prng.below(1 << 40) } else { prng.below(40) };
    Key::new(InodeNo(inode), *prng.pick(&kinds), prng.below(60))
}

fn random_value(prng: &mut Prng, max: usize) -> Vec<u8> {
    let len = match prng.below(10) {
        0 => 0,
        1 => max,
        2 => prng.below(max as u64 + 1) as usize,
        _ => prng.below(120) as usize,
    };
    let mut value = vec![0; len];
    prng.fill(&mut value);
    value
}

fn apply(store: &Branch, transaction: Transaction) -> Lsn {
    let mut room = store.reserve(Need::Grow { changes: transaction.changes(), blocks: 0 }).unwrap();
    store.apply(transaction, &mut room).unwrap()
}

fn compare_ranges(store: &Branch, map: &Map, prng: &mut Prng, seed: u64) {
    let (a, b) = (random_key(prng), random_key(prng));
    let (from, to) = if a < b { (a, b) } else { (b, a) };
    let limit = 1 + prng.below(40) as usize;
    let mut seen = Vec::new();
    let visit = |seen: &mut Vec<Key>, key| {
        seen.push(key);
        if seen.len() == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    store.scan(&from, &to, |key, _| visit(&mut seen, key)).unwrap();
    let expected: Vec<Key> = map.range(from..=to).take(limit).map(|(key, _)| *key).collect();
    assert_eq!(seen, expected, "seed {seed}: upwards from {from:?} to {to:?}");
    let mut seen = Vec::new();
    store.scan_back(&from, &to, |key, _| visit(&mut seen, key)).unwrap();
    let expected: Vec<Key> = map.range(from..=to).rev().take(limit).map(|(key, _)| *key).collect();
    assert_eq!(seen, expected, "seed {seed}: downwards from {to:?} to {from:?}");
}

fn random_run(seed: u64, node_size: usize, cache_bytes: usize, steps: usize) {
    let mut prng = Prng::seeded(seed);
    let plain = Geometry::for_device(64 << 20, node_size).unwrap();
    // Every other run with copies of nodes.
    let device =
        device_of(if seed.is_multiple_of(2) { plain } else { plain.with_copies().unwrap() });
    let mut store = open(&device, cache_bytes);
    let mut map = Map::new();
    let mut durable = (Lsn(0), Map::new());
    for step in 0..steps {
        match prng.below(40) {
            0 => {
                store.commit().unwrap();
                durable = (store.latest(), map.clone());
            }
            1 => {
                store.close().unwrap();
                store = open(&device, cache_bytes);
                durable = (store.latest(), map.clone());
            }
            2 => {
                // A crash: what was not made durable may be gone (a checkpoint of its own accord
                // may have saved it), the rest is there, and it is one moment of history.
                drop(store);
                store = open(&device, cache_bytes);
                if store.latest() == durable.0 {
                    map = durable.1.clone();
                } else {
                    map = contents(&store);
                }
                durable = (store.latest(), map.clone());
                assert_eq!(contents(&store), map, "seed {seed} step {step}: after the crash");
            }
            3..8 => compare_ranges(&store, &map, &mut prng, seed),
            _ => {
                let mut transaction = Transaction::new();
                let growing = (step / 300).is_multiple_of(2);
                for _ in 0..1 + prng.below(6) {
                    let key = match map.range(random_key(&mut prng)..).next() {
                        Some((key, _)) if prng.one_in(2) => *key,
                        _ => random_key(&mut prng),
                    };
                    if prng.below(4) < if growing { 1 } else { 3 } {
                        transaction.delete(key);
                        map.remove(&key);
                    } else {
                        let value = random_value(&mut prng, store.value_max());
                        transaction.put(key, value.clone());
                        map.insert(key, value);
                    }
                }
                apply(&store, transaction);
            }
        }
        if step % 25 == 0 {
            invariants(&store);
        }
        let key = random_key(&mut prng);
        assert_eq!(store.get(&key).unwrap(), map.get(&key).cloned(), "seed {seed} step {step}");
    }
    assert_eq!(contents(&store), map, "seed {seed}");
    store.close().unwrap();
    assert_eq!(contents(&open(&device, cache_bytes)), map, "seed {seed}: after the end");
}

#[test]
fn random_batches_agree_with_a_map() {
    for seed in 0..6 {
        for node_size in [4096, 16384, 65536] {
            random_run(seed, node_size, 64 << 20, 1500);
        }
    }
}

#[test]
fn random_batches_agree_with_a_map_when_memory_is_tight() {
    for seed in 100..106 {
        random_run(seed, 4096, 0, 1500);
    }
}

#[test]
fn emptying_the_map_gives_all_space_back() {
    for node_size in [4096, 16384, 65536] {
        let device = device(64 << 20, node_size);
        let store = open(&device, 16 << 20);
        let before = store.space_use().free;
        let mut prng = Prng::seeded(3);
        let mut keys: Vec<Key> = (0..20_000)
            .map(|n| Key::new(InodeNo(n / 10), ItemKind::Dentry, prng.next_u64()))
            .collect();
        for keys in keys.chunks(4) {
            let mut transaction = Transaction::new();
            keys.iter().for_each(|key| transaction.put(*key, vec![1; 60]));
            apply(&store, transaction);
        }
        assert!(store.space_use().free < before);
        prng.shuffle(&mut keys);
        for keys in keys.chunks(4) {
            let mut transaction = Transaction::new();
            keys.iter().for_each(|key| transaction.delete(*key));
            let mut room = store.reserve(Need::Shrink { changes: 4 }).unwrap();
            store.apply(transaction, &mut room).unwrap();
        }
        invariants(&store);
        store.commit().unwrap();
        let after = store.space_use().free;
        assert!(after + 4 * (node_size as u64 / 4096) >= before, "{before} became {after}");
    }
}

#[test]
fn blocks_come_back_when_tokens_are_dropped_and_only_after_a_checkpoint_when_freed() {
    let device = device(64 << 20, 4096);
    let store = open(&device, 16 << 20);
    let free = store.space_use().available;
    let mut room = store.reserve(Need::Grow { changes: 1, blocks: 100 }).unwrap();
    let placed = store.allocate(&mut room, 40, None).unwrap();
    assert_eq!(placed.blocks().count, 40);
    drop(placed);
    drop(room);
    assert_eq!(store.space_use().available, free);

    let mut room = store.reserve(Need::Grow { changes: 1, blocks: 40 }).unwrap();
    let placed = store.allocate(&mut room, 40, None).unwrap();
    let written = store.write(placed, &[9; 40 * 4096]).unwrap();
    let mut transaction = Transaction::new();
    let extent = transaction.publish(written);
    transaction.put(Key::new(InodeNo(20), ItemKind::Extent, 0), extent.encode());
    store.apply(transaction, &mut room).unwrap();
    store.commit().unwrap();

    let mut transaction = Transaction::new();
    transaction.free(extent.blocks, extent.birth, Key::new(InodeNo(20), ItemKind::Extent, 0));
    transaction.delete(Key::new(InodeNo(20), ItemKind::Extent, 0));
    let mut room = store.reserve(Need::Shrink { changes: 1 }).unwrap();
    store.apply(transaction, &mut room).unwrap();
    let mut room = store.reserve(Need::Grow { changes: 1, blocks: 2000 }).unwrap();
    while room.blocks() > 0 {
        let placed = store.allocate(&mut room, 2000, Some(extent.blocks.start)).unwrap();
        let (a, b) = (placed.blocks(), extent.blocks);
        let apart = a.end().unwrap() <= b.start || b.end().unwrap() <= a.start;
        assert!(apart, "{a:?} was given away while a crash still needs {b:?} (R2)");
        std::mem::forget(placed);
    }
}

#[test]
fn freeing_what_is_not_in_use_is_an_answer_and_changes_nothing() {
    let device = device(64 << 20, 4096);
    let store = open(&device, 16 << 20);
    let outside = holdfast_base::BlockRange::new(holdfast_base::BlockNo(u64::MAX - 3), 9);
    let unused = holdfast_base::BlockRange::new(holdfast_base::BlockNo(9000), 3);
    for range in [outside, unused] {
        let mut transaction = Transaction::new();
        transaction.put(Key::inode(InodeNo(99)), vec![1]);
        transaction.free(range, Epoch(1), Key::inode(InodeNo(99)));
        let mut room = store.reserve(Need::Grow { changes: 1, blocks: 0 }).unwrap();
        let error = store.apply(transaction, &mut room).unwrap_err();
        assert!(matches!(error, StoreError::Item { .. }), "{error}");
        assert_eq!(store.get(&Key::inode(InodeNo(99))).unwrap(), None);
    }
}

#[test]
fn a_full_volume_still_shrinks() {
    for node_size in [4096, 16384, 65536] {
        let device = device(24 << 20, node_size);
        let store = open(&device, 16 << 20);
        let mut extents = Vec::new();
        for number in 0.. {
            let key = Key::new(InodeNo(20 + number), ItemKind::Extent, 0);
            let mut room = match store.reserve(Need::Grow { changes: 1, blocks: 3 }) {
                Ok(room) => room,
                Err(StoreError::NoSpace) => break,
                Err(error) => panic!("{error}"),
            };
            while room.blocks() > 0 {
                let placed = store.allocate(&mut room, 3, None).unwrap();
                let bytes = vec![1; placed.blocks().bytes().unwrap() as usize];
                let written = store.write(placed, &bytes).unwrap();
                let mut transaction = Transaction::new();
                let extent = transaction.publish(written);
                let key = Key { offset: extents.len() as u64, ..key };
                transaction.put(key, extent.encode());
                store.apply(transaction, &mut room).unwrap();
                extents.push((key, extent));
            }
        }
        assert!(store.space_use().available < 64 * 16, "{:?}", store.space_use());
        for (key, extent) in extents {
            let mut transaction = Transaction::new();
            transaction.delete(key);
            transaction.free(extent.blocks, extent.birth, key);
            let mut room = store.reserve(Need::Shrink { changes: 1 }).unwrap();
            store.apply(transaction, &mut room).unwrap();
        }
        store.close().unwrap();
        let store = open(&device, 16 << 20);
        assert!(contents(&store).is_empty());
        let used = store.space_use().total - store.space_use().free;
        assert!(used <= 8 * node_size as u64 / 4096, "{used} blocks are left in use");
    }
}

#[test]
fn many_threads_change_and_read_while_checkpoints_run() {
    let device = device(256 << 20, 16384);
    let store = open(&device, 4 << 20);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let store = &store;
            scope.spawn(move || {
                for number in 0..3000u64 {
                    let key =
                        Key::new(InodeNo(100 + thread), ItemKind::Dentry, number * 7919 % 3001);
                    let mut transaction = Transaction::new();
                    transaction.put(key, vec![thread as u8; 100]);
                    transaction.put(Key::inode(InodeNo(100 + thread)), number.to_le_bytes());
                    apply(store, transaction);
                    assert_eq!(store.get(&key).unwrap(), Some(vec![thread as u8; 100]));
                }
            });
        }
        let store = &store;
        scope.spawn(move || {
            for _ in 0..60 {
                store.commit().unwrap();
            }
        });
    });
    invariants(&store);
    store.close().unwrap();
    let store = open(&device, 4 << 20);
    assert_eq!(contents(&store).len(), 4 * (3000 + 1));
    invariants(&store);
}

#[test]
fn nothing_changed_costs_nothing() {
    let device = device(64 << 20, 4096);
    let store = open(&device, 16 << 20);
    let mut transaction = Transaction::new();
    transaction.put(Key::inode(InodeNo(20)), vec![1; 100]);
    apply(&store, transaction);
    store.commit().unwrap();
    let before = device.stats();
    store.commit().unwrap();
    assert_eq!(device.stats(), before);
}
