//! The last commit of a journal: it counts only if the data it names has arrived, and what a
//! recovery has once given up never comes back (P3, P9).

use std::sync::Arc;

use holdfast_base::counters::Counters;
use holdfast_base::{BLOCK_SIZE, BlockNo, BlockRange, InodeNo};
use holdfast_device::memory::MemoryDevice;
use holdfast_device::sim::Event;
use holdfast_device::{Device, SimDevice};
use holdfast_format::item::Extent;
use holdfast_format::{Geometry, ItemKind, Key};
use holdfast_sim::{Verdict, agree, agree_on_log};
use holdfast_store::{Branch, Need, OpenOptions, Store, Transaction};

use crate::small;

const BYTES: u64 = 8 << 20;

fn formatted() -> MemoryDevice {
    small::formatted_as(Geometry::for_device(BYTES, 4096).unwrap()).snapshot()
}

fn open(device: Arc<dyn Device>) -> Branch {
    Store::open(device, &OpenOptions::default(), Arc::new(Counters::default()))
        .map(Store::into_main)
        .unwrap()
}

fn key(number: u64) -> Key {
    Key::new(InodeNo(20 + number), ItemKind::Extent, 0)
}

/// Writes blocks of `fill` at `at`, and publishes them under a key if one is given.
fn write(store: &Branch, at: BlockNo, count: u64, fill: u8, publish: Option<Key>) {
    let mut room = store.reserve(Need::Grow { changes: 1, blocks: count }).unwrap();
    let placed = store.allocate(&mut room, count, Some(at)).unwrap();
    assert_eq!(placed.blocks(), BlockRange::new(at, count), "the blocks are free");
    let bytes = vec![fill; placed.blocks().bytes().unwrap() as usize];
    let written = store.write(placed, &bytes).unwrap();
    let Some(key) = publish else { return };
    let mut transaction = Transaction::new();
    let value = transaction.publish(written).encode();
    transaction.put(key, value);
    store.apply(transaction, &mut room).unwrap();
}

fn free(store: &Branch, blocks: BlockRange, put: Option<Vec<u8>>) {
    let mut transaction = Transaction::new();
    transaction.free(blocks, Extent::UNBORN, key(0));
    match put {
        Some(value) => transaction.put(key(1), value),
        None => transaction.delete(key(1)),
    }
    let mut room = store.reserve(Need::Shrink { changes: 1 }).unwrap();
    store.apply(transaction, &mut room).unwrap();
}

/// A place for data that nothing has used.
fn place(store: &Branch) -> BlockNo {
    BlockNo(store.geometry().first_data_block().0 + 512)
}

#[test]
fn data_that_its_own_commit_frees_may_be_reused_after_it() {
    for kept in [0, 1, 2] {
        let image = formatted();
        let sim = Arc::new(SimDevice::new(&image));
        let store = open(sim.clone());
        let at = place(&store);
        write(&store, at, 3, 1, Some(key(1)));
        let value = store.get(&key(1)).unwrap().unwrap();
        let put = (kept > 0).then(|| {
            let sums = Extent::decode(&value).unwrap().sums[..kept as usize].to_vec();
            Extent::new(BlockRange::new(at, kept), sums).encode()
        });
        free(&store, BlockRange::new(BlockNo(at.0 + kept), 3 - kept), put);
        store.commit().unwrap();
        let durable = store.durable();
        // The commit is durable, so the blocks may be given away; and it is still the last one.
        write(&store, BlockNo(at.0 + kept), 3 - kept, 2, None);
        drop(store);
        let left = sim.image();
        assert_eq!(agree(&left), Ok(Verdict::Whole(1)), "{kept} of 3 blocks kept");
        assert_eq!(open(Arc::new(left)).latest(), durable, "{kept} of 3 blocks kept");
    }
}

#[test]
fn a_commit_that_was_given_up_never_comes_back() {
    let sim = Arc::new(SimDevice::new(&formatted()));
    let store = open(sim.clone());
    let before = store.latest();
    let at = place(&store);
    write(&store, at, 2, 1, Some(key(1)));
    store.commit().unwrap();
    drop(store);
    // The frame arrived, the data did not: the flush had not returned.
    let left = Arc::new(sim.image());
    let data = sim.recording().events.into_iter().find_map(|event| match event {
        Event::Write { at: place, bytes, .. } if place == at.byte_offset().unwrap() => Some(bytes),
        _ => None,
    });
    left.write(at.byte_offset().unwrap(), &vec![0; data.unwrap().len()]).unwrap();
    assert_eq!(agree(&*left), Ok(Verdict::Whole(0)));
    let store = open(left.clone());
    assert_eq!(store.latest(), before, "the commit lacks its data");
    // The same program writes the same data to the same place, and power fails again.
    write(&store, at, 2, 1, None);
    drop(store);
    assert_eq!(agree(&*left), Ok(Verdict::Whole(0)));
    let store = open(left);
    assert_eq!((store.latest(), store.get(&key(1)).unwrap()), (before, None));
}

/// Once something calls a commit durable, data of it that does not match has rotted: that costs a file, and no history (P6).
#[test]
fn data_that_rots_in_a_confirmed_commit_costs_neither_the_commit_nor_the_log() {
    let sim = Arc::new(SimDevice::new(&formatted()));
    let store = open(sim.clone());
    let at = place(&store);
    write(&store, at, 3, 1, Some(key(1)));
    store.commit().unwrap();
    assert!(store.confirm().unwrap(), "nothing else says that it was durable");
    let mut room = store.reserve(Need::Grow { changes: 1, blocks: 0 }).unwrap();
    let mut transaction = Transaction::new();
    transaction.put(key(2), vec![2; 40]);
    store.apply(transaction, &mut room).unwrap();
    store.sync(store.latest(), InodeNo(22)).unwrap();
    let durable = store.latest();
    drop((room, store));
    let left = Arc::new(sim.image());
    left.write(BlockNo(at.0 + 2).byte_offset().unwrap(), &[7; BLOCK_SIZE]).unwrap();
    assert_eq!(agree(&*left), Ok(Verdict::Whole(1)));
    assert_eq!(agree_on_log(&left), Ok(Verdict::Whole(1)));
    let store = open(left.clone());
    assert_eq!(store.latest(), durable);
    assert_eq!(store.get(&key(2)).unwrap().map(|value| value.len()), Some(40));
    let extent = Extent::decode(&store.get(&key(1)).unwrap().unwrap()).unwrap();
    assert_eq!(extent.blocks, BlockRange::new(at, 3));
    // Nothing is put in its place: the sums go on to say that it is wrong.
    let mut block = [0; BLOCK_SIZE];
    left.read(BlockNo(at.0 + 2).byte_offset().unwrap(), &mut block).unwrap();
    assert_eq!(block, [7; BLOCK_SIZE]);
}
