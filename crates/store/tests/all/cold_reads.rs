//! Nodes are read together with their neighbours: fewer reads, and no read fails for a neighbour's damage.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{InodeNo, TreeId};
use holdfast_device::sim::{Action, Call, Faults, When};
use holdfast_device::{Device, MemoryDevice, SimDevice};
use holdfast_format::node::EPOCH_AT;
use holdfast_format::{ItemKind, Key, NodeView};
use holdfast_store::{Branch, StoreError};

use crate::small;

const ITEMS: u64 = 300;

/// A volume whose leaves were split again and again, so that they lie in no order.
fn image() -> MemoryDevice {
    small::scattered(small::geometry(), ITEMS)
}

fn keys_of(store: &Branch) -> Vec<u64> {
    let mut seen = Vec::new();
    let (from, to) = Key::span(InodeNo(20), ItemKind::Extent);
    let mut visit = |key: Key, _: &[u8]| {
        seen.push(key.offset);
        ControlFlow::Continue(())
    };
    store.scan(&from, &to, &mut visit).unwrap();
    seen
}

/// Where a leaf lies and the numbers of its items.
struct Leaf {
    at: u64,
    epoch: u64,
    items: BTreeSet<u64>,
}

/// A leaf that nothing but the numbered items is in and that lies between others.
fn some_leaf(image: &MemoryDevice) -> Leaf {
    let geometry = small::geometry();
    let mut leaves = Vec::new();
    for block in geometry.first_data_block().0..geometry.volume_blocks {
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        image.read(block * BLOCK_BYTES, &mut bytes).unwrap();
        let node = NodeView::trusted(&bytes);
        if bytes.starts_with(b"hfNd") && node.level() == 0 && node.tree() == TreeId::Files as u8 {
            let keys: Vec<Key> = (0..node.count()).map(|index| node.key(index)).collect();
            if keys.iter().all(|key| key.kind == ItemKind::Extent) {
                let items = keys.iter().map(|key| key.offset).collect();
                let epoch = &bytes[EPOCH_AT..EPOCH_AT + 8];
                let epoch = u64::from_le_bytes(epoch.try_into().unwrap());
                leaves.push(Leaf { at: block * BLOCK_BYTES, epoch, items });
            }
        }
    }
    // Older copies of leaves are still there, with items that later copies gave away.
    let newest = leaves.into_iter().max_by_key(|leaf| (leaf.epoch, leaf.items.len()));
    newest.unwrap()
}

#[test]
fn a_cold_scan_reads_several_nodes_at_once() {
    let device = Arc::new(image());
    let store = small::open(&device);
    let (nodes, reads) = (store.counters().nodes_read.get(), device.stats().reads);
    assert_eq!(keys_of(&store), (0..ITEMS).collect::<Vec<_>>());
    let nodes = store.counters().nodes_read.get() - nodes;
    let reads = device.stats().reads - reads;
    assert!(nodes > 100, "too few nodes to say anything: {nodes}");
    assert!(reads * 4 < nodes, "{reads} reads for {nodes} nodes");
    let before = device.stats().reads;
    assert_eq!(keys_of(&store).len() as u64, ITEMS);
    assert_eq!(device.stats().reads, before, "what was read stays in memory");
}

/// One search is one hit or one miss, however many nodes are read for it.
#[test]
fn each_search_is_a_hit_or_a_miss() {
    let device = Arc::new(image());
    let store = small::open(&device);
    let counters = store.counters();
    let counted = || (counters.node_hits.get(), counters.node_misses.get());
    let (hits, misses) = counted();
    store.get(&small::key(7)).unwrap().unwrap();
    assert_eq!(counted(), (hits, misses + 1));
    assert!(counters.nodes_read.get() > misses + 1, "no neighbour was read");
    store.get(&small::key(7)).unwrap().unwrap();
    assert_eq!(counted(), (hits + 1, misses + 1));

    let (hits, misses) = counted();
    keys_of(&store);
    let (cold_hits, cold_misses) = counted();
    let cold = (cold_hits - hits, cold_misses - misses);
    assert!(cold.0 > 0 && cold.1 > 0, "{cold:?}");
    keys_of(&store);
    let (warm_hits, warm_misses) = counted();
    assert_eq!((warm_hits - cold_hits, warm_misses - cold_misses), (cold.0 + cold.1, 0));

    // Changes search as well, and of a warm tree all are hits.
    let (hits, misses) = counted();
    small::put(&store, 0..50, 1, 0);
    assert_eq!(counted(), (hits + 50, misses));
    drop(store);
    let store = small::open(&Arc::new(image()));
    let misses = store.counters().node_misses.get();
    small::put(&store, 7..8, 1, 0);
    assert_eq!(store.counters().node_misses.get(), misses + 1);
}

/// R5: damage of a node is reported to the callers that ask for it, and to no other.
#[test]
fn damage_of_a_neighbour_fails_reads_of_the_neighbour_only() {
    let image = image();
    let leaf = some_leaf(&image);
    image.write(leaf.at + BLOCK_BYTES - 512, &[0x5a; 512]).unwrap();
    judge(&small::open(&Arc::new(image)), &leaf, |error| matches!(error, StoreError::Node { .. }));
}

/// P7: sectors that cannot be read hide what lies in them, and nothing beside them.
#[test]
fn a_neighbour_that_cannot_be_read_hides_no_other() {
    let image = image();
    let leaf = some_leaf(&image);
    let sim = Arc::new(SimDevice::new(&image));
    let store = small::open(&sim);
    let inside =
        When::Inside { start: leaf.at, end: leaf.at + BLOCK_BYTES, skip: 0, times: u64::MAX };
    sim.set_faults(Faults::none().with(Call::Read, inside, Action::Fail));
    judge(&store, &leaf, |error| matches!(error, StoreError::Device(_)));
    sim.set_faults(Faults::none());
    assert_eq!(keys_of(&store).len() as u64, ITEMS, "a read that failed is tried again");
}

/// Each item of the leaf is refused as expected, all others are there.
fn judge(store: &Branch, leaf: &Leaf, is_expected: impl Fn(&StoreError) -> bool) {
    for number in 0..ITEMS {
        match store.get(&small::key(number)) {
            Ok(value) => {
                assert!(!leaf.items.contains(&number), "{number} lies in the bad leaf");
                assert_eq!(value.unwrap()[0], number as u8);
            }
            Err(error) => {
                assert!(leaf.items.contains(&number), "{number} lies elsewhere: {error}");
                assert!(is_expected(&error), "{number}: {error}");
            }
        }
    }
}
