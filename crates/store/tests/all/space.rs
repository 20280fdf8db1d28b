//! Accounting of space at the edges: tiny and huge volumes, all node sizes, big batches, full volumes.

use std::sync::Arc;

use holdfast_base::counters::Counters;
use holdfast_base::prng::Prng;
use holdfast_base::{BlockRange, Epoch, InodeNo};
use holdfast_device::Device;
use holdfast_device::memory::MemoryDevice;
use holdfast_device::sim::HostedDevice;
use holdfast_format::{Geometry, ItemKind, Key};
use holdfast_store::{
    Branch, CreateOptions, Discard, Need, NewSize, OpenOptions, Store, StoreError, Transaction,
};

/// Which nodes are stored twice.
#[derive(Clone, Copy, Debug)]
enum Twice {
    Nothing,
    Roots,
    All,
}

/// Bytes of a node, and which have copies.
#[derive(Clone, Copy, Debug)]
struct Nodes(usize, Twice);

const NODES: [Nodes; 9] = [
    Nodes(4096, Twice::Nothing),
    Nodes(16384, Twice::Nothing),
    Nodes(65536, Twice::Nothing),
    Nodes(4096, Twice::Roots),
    Nodes(16384, Twice::Roots),
    Nodes(65536, Twice::Roots),
    Nodes(4096, Twice::All),
    Nodes(16384, Twice::All),
    Nodes(65536, Twice::All),
];

/// Without copies.
const PLAIN_4K: Nodes = Nodes(4096, Twice::Nothing);

fn store(bytes: u64, nodes: Nodes) -> Branch {
    store_on(&(Arc::new(MemoryDevice::new(bytes)) as Arc<dyn Device>), bytes, nodes)
}

fn shape(bytes: u64, Nodes(size, twice): Nodes) -> Geometry {
    let plain = Geometry::for_device(bytes, size).unwrap();
    // The smallest with the largest nodes is too small for them.
    match twice {
        Twice::Nothing => plain,
        Twice::Roots => plain.with_root_copies().unwrap_or(plain),
        Twice::All => plain.with_copies().unwrap_or(plain),
    }
}

/// On a device that may have more.
fn store_on(device: &Arc<dyn Device>, bytes: u64, nodes: Nodes) -> Branch {
    let options = CreateOptions {
        geometry: shape(bytes, nodes),
        uuid: uuid::Uuid::from_u128(7),
        label: "test".into(),
        hash_seed: 1,
        node_tag: *b"of nodes",
        created: Default::default(),
    };
    Store::create(device, &options).unwrap();
    open(device)
}

fn open(device: &Arc<dyn Device>) -> Branch {
    let options = OpenOptions { read_only: false, cache_bytes: 32 << 20, ..OpenOptions::default() };
    let opened = Store::open(device.clone(), &options, Arc::new(Counters::default()));
    opened.map(Store::into_main).unwrap()
}

fn file(inode: u64, offset: u64) -> Key {
    Key::new(InodeNo(inode), ItemKind::Extent, offset)
}

/// Puts values with nothing reserved but what the store itself thinks of them.
fn put(store: &Branch, items: &[(Key, usize)]) -> Result<(), StoreError> {
    let mut transaction = Transaction::new();
    items.iter().for_each(|(key, len)| transaction.put(*key, vec![3; *len]));
    let mut room = store.reserve(Need::Grow { changes: transaction.changes(), blocks: 0 })?;
    store.apply(transaction, &mut room).map(drop)
}

fn shrink(store: &Branch, keys: &[Key], freed: &[BlockRange]) -> Result<(), StoreError> {
    let mut transaction = Transaction::new();
    keys.iter().for_each(|key| transaction.delete(*key));
    freed.iter().for_each(|range| {
        transaction.free(*range, Epoch(1), Key::new(InodeNo(9), ItemKind::Extent, 0))
    });
    let mut room = store.reserve(Need::Shrink { changes: transaction.changes() })?;
    store.apply(transaction, &mut room).map(drop)
}

/// Fills what is left with data, in pieces of up to 16 blocks, one item each.
fn fill(store: &Branch, inode: u64) -> Vec<(Key, BlockRange)> {
    let mut extents = Vec::new();
    for want in [16, 1] {
        loop {
            let mut room = match store.reserve(Need::Grow { changes: 1, blocks: want }) {
                Ok(room) => room,
                Err(StoreError::NoSpace) => break,
                Err(error) => panic!("{error}"),
            };
            let placed = store.allocate(&mut room, want, None).expect("it was reserved");
            let mut transaction = Transaction::new();
            let key = file(inode, extents.len() as u64);
            let extent = transaction.publish_unwritten(placed);
            transaction.put(key, extent.encode());
            store.apply(transaction, &mut room).unwrap();
            extents.push((key, extent.blocks));
        }
    }
    extents
}

#[test]
fn batches_of_many_long_values_find_their_nodes_until_the_volume_is_full() {
    for nodes in NODES {
        for bytes in [8 << 20, 16 << 20, 64 << 20] {
            for seed in 0..3 {
                let store = store(bytes, nodes);
                let mut prng = Prng::seeded(seed);
                let max = store.value_max();
                for round in 0..200u64 {
                    let items: Vec<(Key, usize)> = (0..1 + prng.below(300))
                        .map(|number| match seed {
                            // Random, upwards, downwards.
                            0 => {
                                (file(prng.below(1 << 30), 0), prng.below(max as u64 + 1) as usize)
                            }
                            1 => (file(round + 1, number), max),
                            _ => (file(1000 - round, 1000 - number), max),
                        })
                        .collect();
                    match put(&store, &items) {
                        Ok(()) => {}
                        Err(StoreError::NoSpace) => break,
                        Err(error) => panic!("{error}"),
                    }
                    if prng.one_in(5) {
                        store.commit().unwrap();
                    }
                }
                #[cfg(debug_assertions)]
                store.invariants();
                assert_eq!(store.stop_reason(), None);
                store.close().unwrap();
            }
        }
    }
}

/// P8: with metadata of many nodes and no room left, everything can be removed again, one by one.
#[test]
fn a_full_volume_can_be_emptied_item_by_item() {
    for nodes in NODES {
        for (bytes, names) in [(8 << 20, 100), (16 << 20, 1500), (64 << 20, 6000)] {
            let store = store(bytes, nodes);
            let mut prng = Prng::seeded(1);
            let mut keys: Vec<Key> = Vec::new();
            for number in 0..names {
                let key = Key::new(InodeNo(20 + number / 50), ItemKind::Dentry, prng.next_u64());
                match put(&store, &[(key, 200)]) {
                    Ok(()) => keys.push(key),
                    Err(StoreError::NoSpace) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            let extents = fill(&store, 9_000_000);
            let what = format!("{bytes} bytes, {nodes:?}");
            assert!(extents.len() > 10, "{what}: {} extents", extents.len());
            prng.shuffle(&mut keys);
            for keys in keys.chunks(3) {
                shrink(&store, keys, &[]).unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            for (key, blocks) in extents {
                shrink(&store, &[key], &[blocks]).unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            #[cfg(debug_assertions)]
            store.invariants();
            store.close().unwrap();
        }
    }
}

/// Data takes every free block that is not kept whole, however the free blocks are scattered.
#[test]
fn scattered_free_blocks_keep_what_was_promised() {
    for nodes in NODES {
        let store = store(24 << 20, nodes);
        let mut prng = Prng::seeded(5);
        let mut extents = fill(&store, 50);
        for round in 0..6 {
            prng.shuffle(&mut extents);
            let half = extents.split_off(extents.len() / 2);
            for (key, blocks) in half {
                shrink(&store, &[key], &[blocks]).unwrap();
            }
            // Promises that wait while others come and go.
            let mut held = Vec::new();
            while let Ok(room) = store.reserve(Need::Grow { changes: 1, blocks: 7 }) {
                held.push(room);
                let _settling = store.reserve(Need::Writeback { changes: 2 });
            }
            assert!(!held.is_empty(), "round {round}");
            for (number, mut room) in held.into_iter().enumerate() {
                while room.blocks() > 0 {
                    let placed = store.allocate(&mut room, 7, None).expect("it was promised");
                    let mut transaction = Transaction::new();
                    let key = file(100 + round, (number * 7) as u64 + room.blocks());
                    let extent = transaction.publish_unwritten(placed);
                    transaction.put(key, extent.encode());
                    store.apply(transaction, &mut room).unwrap();
                    extents.push((key, extent.blocks));
                }
            }
        }
        assert_eq!(store.stop_reason(), None);
        store.close().unwrap();
    }
}

#[test]
fn a_huge_volume_opens_and_works() {
    for nodes in NODES {
        let store = store(1 << 40, nodes);
        for number in 0..50 {
            let mut room = store.reserve(Need::Grow { changes: 1, blocks: 100_000 }).unwrap();
            let placed = store.allocate(&mut room, 100_000, None).unwrap();
            let mut transaction = Transaction::new();
            let extent = transaction.publish_unwritten(placed);
            transaction.put(file(20, number), extent.encode());
            store.apply(transaction, &mut room).unwrap();
        }
        store.commit().unwrap();
        assert!(store.reserve(Need::Grow { changes: 1, blocks: u64::MAX }).is_err());
        let _ = store.reserve(Need::Grow { changes: u32::MAX, blocks: 0 });
        let space = store.space_use();
        assert!(space.available > space.total / 10 * 9, "{space:?}");
        store.close().unwrap();
    }
}

/// Items that arrive downwards behind a full leaf share nodes like those that arrive upwards.
#[test]
fn items_that_arrive_downwards_do_not_take_a_node_each() {
    // One of these numbers fills the first leaf to the last record.
    for count in 100..135 {
        let store = store(16 << 20, Nodes(16384, Twice::All));
        for number in 0..count {
            put(&store, &[(file(20, number), 100)]).unwrap();
        }
        put(&store, &[(file(5000, 0), 100)]).unwrap();
        store.commit().unwrap();
        let before = store.space_use().free;
        for number in (0..100).rev() {
            put(&store, &[(file(30, number), 100)]).unwrap();
        }
        store.commit().unwrap();
        let nodes = (before - store.space_use().free) / store.geometry().slot_blocks();
        assert!(nodes <= 3, "100 items behind {count} others took {nodes} nodes");
    }
}

/// P8 for several threads at once: a thread that comes while others hold their share waits for it.
#[test]
fn many_threads_empty_a_full_volume() {
    for nodes in NODES {
        let store = store(16 << 20, nodes);
        let mut parts: Vec<Vec<Key>> = (0..8).map(|_| Vec::new()).collect();
        for number in 0..800u64 {
            let key = Key::new(InodeNo(20 + number), ItemKind::Dentry, number);
            if put(&store, &[(key, 200)]).is_ok() {
                parts[number as usize % 8].push(key);
            }
        }
        let extents = fill(&store, 9_000_000);
        assert!(!extents.is_empty());
        std::thread::scope(|scope| {
            for keys in &parts {
                let store = &store;
                scope.spawn(move || {
                    for key in keys {
                        shrink(store, &[*key], &[]).unwrap();
                    }
                });
            }
        });
        assert_eq!(store.stop_reason(), None);
        store.close().unwrap();
    }
}

/// Data that was accepted is promised its blocks until it is published: a batch that is too large for what is left
/// can be tried again with less (P8).
#[test]
fn a_batch_that_is_refused_leaves_its_blocks_promised() {
    let store = store(16 << 20, PLAIN_4K);
    let mut own = store.reserve(Need::Grow { changes: 0, blocks: 4 }).unwrap();
    let mut held = Vec::new();
    for changes in [1000, 100, 10, 1] {
        while let Ok(taken) = store.reserve(Need::Writeback { changes }) {
            held.push(taken);
        }
    }
    let publish = |changes: u64, own: &mut holdfast_store::Reservation| {
        let placed = store.allocate(own, 4, None).expect("it was promised");
        let mut transaction = Transaction::new();
        transaction.publish_unwritten(placed);
        (0..changes).for_each(|n| transaction.put(file(20 + n, 0), vec![3; 900]));
        store.apply(transaction, own).map(drop)
    };
    for _ in 0..3 {
        assert!(!store.has_room_for(2000, &own), "so many changes");
        assert!(matches!(publish(2000, &mut own), Err(StoreError::NoSpace)));
        assert_eq!(own.blocks(), 4, "promised as before");
        assert!(store.reserve(Need::Grow { changes: 0, blocks: 1 }).is_err(), "to nobody else");
    }
    drop(held);
    publish(1, &mut own).unwrap();
    store.close().unwrap();
}

/// What the host has given to an image stays usable when it has no more, also behind a new opening, which knows
/// nothing of what is given and not in use (P8).
#[test]
fn what_a_full_host_has_given_before_is_promised_again() {
    const BLOCKS: u64 = 6000;
    let bytes = 128 << 20;
    let memory = MemoryDevice::new(bytes);
    let device = Arc::new(HostedDevice::new(&memory, 64 << 20));
    let shared: Arc<dyn Device> = device.clone();
    let options = CreateOptions {
        geometry: Geometry::for_device(bytes, 4096).unwrap(),
        uuid: uuid::Uuid::from_u128(7),
        label: "test".into(),
        hash_seed: 1,
        node_tag: *b"of nodes",
        created: Default::default(),
    };
    Store::create(&shared, &options).unwrap();
    let open = || {
        // As a mount with nodiscard: otherwise it goes back when it is closed.
        let options = OpenOptions { discard: Discard::Off, ..OpenOptions::default() };
        Store::open(shared.clone(), &options, Arc::new(Counters::default()))
            .map(Store::into_main)
            .unwrap()
    };
    let need = Need::Grow { changes: 1, blocks: BLOCKS };
    let store = open();
    drop(store.reserve(need).unwrap());
    store.close().unwrap();
    device.exhaust();
    let store = open();
    // Of what the host has given of a piece in part nothing is known.
    assert!(store.space_use().available + 1024 >= BLOCKS, "{:?}", store.space_use());
    drop(store.reserve(need).unwrap());
    put(&store, &[(file(3, 0), 100)]).unwrap();
    let too_much = Need::Grow { changes: 1, blocks: 4 * BLOCKS };
    assert!(matches!(store.reserve(too_much), Err(StoreError::NoSpace)));
    store.close().unwrap();
}

/// A volume grows over, up to and beyond the borders of groups, by little and by much, empty and full: its free blocks are those of a
/// volume that was made so large, and each can be used.
#[test]
fn a_volume_grows_by_any_number_of_blocks() {
    const GROUP: u64 = 128 << 20;
    const STEP: u64 = 64 << 10;
    let sizes = [
        GROUP - 2 * STEP,
        GROUP - STEP,
        GROUP,
        // The far copy lies at the border, and behind it.
        GROUP + STEP,
        GROUP + STEP + 4096,
        GROUP + 2 * STEP,
        2 * GROUP + STEP,
        4 * GROUP - 4096,
    ];
    for nodes in NODES {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(4 * GROUP));
        let mut store = store_on(&device, 40 << 20, nodes);
        let mut extents = fill(&store, 50);
        for (at, bytes) in sizes.into_iter().enumerate() {
            let what = format!("{bytes} bytes, {nodes:?}");
            assert_eq!(store.resize(NewSize::Bytes(bytes)).unwrap(), bytes / 4096 * 4096, "{what}");
            let geometry = store.geometry();
            assert_eq!(geometry.volume_blocks, bytes / 4096, "{what}");
            let space = store.space_use();
            assert_eq!(space.total, geometry.data_blocks(), "{what}");
            match put(&store, &[(file(60 + at as u64, 0), 100)]) {
                Ok(()) => {}
                // Of a full volume the new part has slots only where the other places are new as well.
                Err(StoreError::NoSpace) if matches!(nodes.1, Twice::All) && bytes < 2 * GROUP => {}
                Err(error) => panic!("{what}: {error}"),
            }
            if at % 3 == 2 {
                extents.extend(fill(&store, 100 + at as u64));
            }
            if at % 2 == 1 {
                // As a crash leaves it, and as it is closed.
                store.sync(store.latest(), InodeNo(50)).unwrap();
                match at % 4 {
                    1 => store.close().unwrap(),
                    _ => drop(store),
                }
                store = open(&device);
                assert_eq!(store.space_use().total, space.total, "{what}");
            }
        }
        extents.extend(fill(&store, 200));
        let end = extents.iter().map(|(_, blocks)| blocks.end().unwrap()).max();
        let far = store.geometry().far_copy();
        // The rest is kept for commits and removals: so many nodes, of whatever size.
        let part = if nodes.0 == 65536 { 14 } else { 20 };
        assert!(end.is_some_and(|end| far.0 - end.0 < far.0 / part), "{end:?} of {far}");
        #[cfg(debug_assertions)]
        store.invariants();
        for (key, blocks) in extents {
            shrink(&store, &[key], &[blocks]).unwrap();
        }
        assert_eq!(store.stop_reason(), None);
        store.close().unwrap();
        assert_eq!(open(&device).geometry().far_copy(), far);
    }
}

/// What a full volume gains is too little to hold pairs of places, and still takes data and its nodes; then all can be removed.
#[test]
fn a_full_volume_that_grows_a_little_takes_more() {
    const MIB: u64 = 1 << 20;
    let sizes = [(130, 16384), (130, 4096), (256, 4096), (256, 16384), (256, 65536), (300, 65536)];
    for (mib, node_size) in sizes.into_iter().chain([(300, 16384), (512, 16384), (768, 65536)]) {
        // Of nodes of 64 KiB more is kept of each MiB between 512 and 1024.
        let more = if mib == 768 { 60 } else { 20 };
        for twice in [Twice::Nothing, Twice::Roots] {
            let what = format!("{mib} MiB, nodes of {node_size}, {twice:?}");
            let device: Arc<dyn Device> = Arc::new(MemoryDevice::new((mib + 2 * more) * MIB));
            let store = store_on(&device, mib * MIB, Nodes(node_size, twice));
            let mut extents = fill(&store, 50);
            for inode in [51, 52] {
                store.resize(NewSize::More(more * MIB)).unwrap();
                let grow = store.reserve(Need::Grow { changes: 18, blocks: 100 });
                grow.unwrap_or_else(|error| panic!("{what}: {error}"));
                let gained = fill(&store, inode);
                let blocks: u64 = gained.iter().map(|(_, blocks)| blocks.count).sum();
                let part = blocks * 4096 * 100 / (more * MIB);
                assert!(part >= 80, "{what}: {part} % of what is gained");
                extents.extend(gained);
            }
            #[cfg(debug_assertions)]
            store.invariants();
            // As a hole over many extents.
            let hole = store.reserve(Need::Shrink { changes: 65 });
            hole.unwrap_or_else(|error| panic!("{what}: {error}"));
            for (key, blocks) in extents {
                shrink(&store, &[key], &[blocks]).unwrap();
            }
            store.close().unwrap();
        }
    }
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let memory = Arc::new(MemoryDevice::new(64 << 20));
    let device: Arc<dyn Device> = memory.clone();
    let store = store_on(&device, 32 << 20, PLAIN_4K);
    let refused = |to: NewSize, word: &str| {
        let before = memory.to_image();
        match store.resize(to) {
            Err(StoreError::Refused(why)) => assert!(why.contains(word), "{to:?}: {why}"),
            other => panic!("{to:?}: {other:?}"),
        }
        assert!(memory.to_image() == before, "{to:?} wrote something");
    };
    refused(NewSize::Bytes(31 << 20), "at rest only");
    refused(NewSize::Bytes(65 << 20), "cannot have");
    refused(NewSize::More(33 << 20), "cannot have");
    refused(NewSize::More(u64::MAX), "TiB");
    refused(NewSize::Bytes(u64::MAX), "TiB");
    let writes = memory.stats().writes;
    assert_eq!(store.resize(NewSize::Bytes((32 << 20) + 4095)).unwrap(), 32 << 20);
    assert_eq!(memory.stats().writes, writes, "it has that size");
    assert_eq!(store.resize(NewSize::Device).unwrap(), 64 << 20);
    assert_eq!(store.resize(NewSize::Device).unwrap(), 64 << 20);
    store.close().unwrap();
}

/// P8: a host that has no room for the far copy of a larger volume is told apart before anything changes; what it has room for is no more
/// than it has, and what was accepted can be removed when it is full.
#[test]
fn a_larger_volume_in_a_sparse_image_promises_no_more_than_its_host_has() {
    for nodes in NODES {
        let image = MemoryDevice::new(4 << 30);
        let under: Arc<dyn Device> = Arc::new(image.snapshot());
        store_on(&under, 64 << 20, nodes).close().unwrap();
        let mut bytes = vec![0; 64 << 20];
        under.read(0, &mut bytes).unwrap();
        bytes
            .chunks(1 << 20)
            .zip((0..).step_by(1 << 20))
            .for_each(|(part, at)| image.write(at, part).unwrap());
        let hosted = Arc::new(HostedDevice::new(&image, 40 << 20));
        let device: Arc<dyn Device> = hosted.clone();
        let store = open(&device);
        let mut extents = fill(&store, 50);
        let what = format!("{nodes:?}");
        assert!(hosted.room().unwrap() < 8 << 20, "{what}: the host is full");
        hosted.exhaust();
        match store.resize(NewSize::Device) {
            Err(StoreError::Refused(why)) => assert!(why.contains("the host has no room"), "{why}"),
            other => panic!("{what}: {other:?}"),
        }
        assert_eq!(store.geometry().volume_blocks, 64 << 8, "{what}");
        put(&store, &[]).unwrap();
        hosted.give(300 << 20);
        store.resize(NewSize::Device).unwrap();
        let space = store.space_use();
        assert_eq!(space.total, store.geometry().data_blocks(), "{what}");
        assert!(space.available < 300 << 8, "{what}: {space:?}");
        extents.extend(fill(&store, 51));
        hosted.exhaust();
        assert_eq!(hosted.refused(), 0, "{what}");
        for (key, blocks) in extents {
            shrink(&store, &[key], &[blocks]).unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        assert_eq!((hosted.refused(), store.stop_reason()), (0, None), "{what}");
        store.close().unwrap();
    }
}

/// Threads fsync and fill while others make it larger.
#[test]
fn a_volume_grows_beside_work_and_beside_another_growth() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 30));
    let store = store_on(&device, 16 << 20, PLAIN_4K);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..12 {
                    store.resize(NewSize::More(4 << 20)).unwrap();
                }
            });
        }
        for thread in 0..2 {
            let store = &store;
            scope.spawn(move || {
                for round in 0..150 {
                    match put(store, &[(file(100 + thread, round), 900)]) {
                        Ok(()) => {}
                        Err(error) => panic!("{error}"),
                    }
                    store.sync(store.latest(), InodeNo(100 + thread)).unwrap();
                }
            });
        }
    });
    assert_eq!(store.geometry().volume_blocks, (16 + 24 * 4) << 8);
    drop(store);
    let store = open(&device);
    assert_eq!(store.geometry().volume_blocks, (16 + 24 * 4) << 8);
    assert!(store.get(&file(101, 149)).unwrap().is_some());
    store.close().unwrap();
}
