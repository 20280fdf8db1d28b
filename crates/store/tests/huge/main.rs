//! A volume of 100 TiB with 10^9 blocks in use is opened with few reads and little memory, and what is changed in it reads the
//! bitmaps that it needs. Reads and bytes of the heap are counted.
//! A program of its own: the heap has nothing else in it.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod made_up;

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_base::clock::Stopwatch;
use holdfast_base::counters::Counters;
use holdfast_device::Device;
use holdfast_format::{ItemKind, Key};
use holdfast_store::{Need, OpenOptions, Store, Transaction};
use made_up::MadeUp;
use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const TIB: u64 = 1 << 40;

/// What an opening costs.
#[derive(Debug)]
struct Cost {
    reads: u64,
    bytes: u64,
    nodes: u64,
    peak: usize,
    left: usize,
}

fn opened(device: &Arc<MadeUp>, read_only: bool) -> (Store, Cost) {
    let options = OpenOptions { read_only, threads: false, ..OpenOptions::default() };
    let counters = Arc::new(Counters::default());
    let (shared, before): (Arc<dyn Device>, usize) = (device.clone(), HEAP.current_usage());
    let _ = device.take_reads();
    HEAP.reset_peak_usage();
    let time = Stopwatch::start();
    let store = Store::open(shared, &options, counters.clone()).unwrap();
    let took = time.elapsed();
    let (reads, bytes) = device.take_reads();
    let (peak, left) = (HEAP.peak_usage() - before, HEAP.current_usage() - before);
    let cost = Cost { reads, bytes, nodes: counters.nodes_read.get(), peak, left };
    println!("{:?}, {} nodes made up in {:?}: {cost:?}", took, device.made(), device.making());
    (store, cost)
}

fn holds(tib: u64) {
    let device = Arc::new(MadeUp::new(tib * TIB, tib * 10_000_000));
    let groups = tib * 8192;
    for read_only in [true, false] {
        let (store, cost) = opened(&device, read_only);
        let leaves = device.record_leaves();
        assert!(cost.nodes <= leaves + leaves / 100 + 100, "no bitmaps: {cost:?}");
        assert!(cost.bytes <= 80 * groups + (8 << 20), "the records and little else: {cost:?}");
        assert!(cost.reads <= leaves / 8 + 150, "side by side: {cost:?}");
        assert!(cost.peak <= 200 << 20, "{cost:?}");
        assert!(cost.left as u64 <= (32 << 20) + 48 * groups, "{cost:?}");
        let space = store.space_use();
        assert_eq!(space.total - space.free, device.used_blocks());
        drop(store);
    }
    // Data goes far behind the groups that an opening knows.
    let (store, _) = opened(&device, false);
    let store = Store::into_main(store);
    let mut room = store.reserve(Need::Grow { changes: 4, blocks: 4 }).unwrap();
    let placed = store.allocate(&mut room, 4, None).unwrap();
    let (blocks, (reads, _)) = (placed.blocks(), device.take_reads());
    assert!(!device.is_used(blocks), "{blocks:?}");
    assert!(reads <= 8, "the way to a bitmap: {reads}");
    drop(placed);
    let mut transaction = Transaction::new();
    transaction.put(Key::new(InodeNo(9), ItemKind::Dentry, 0), vec![1; 50]);
    let lsn = store.apply(transaction, &mut room).unwrap();
    drop(room);
    store.sync(lsn, InodeNo(9)).unwrap();
    let (reads, _) = device.take_reads();
    assert!(reads <= 40, "{reads}");
    store.close().unwrap();
    let (store, _) = opened(&device, false);
    assert!(store.superblock().fault.is_none());
}

/// One after the other: they share the heap that is counted.
#[test]
fn volumes_of_1_and_10_and_100_tebibytes() {
    [1, 10, 100].into_iter().for_each(holds);
}
