//! Volumes that lie: every structure well-formed and summed, and not true (P10).
//!
//! A test builds a good volume, changes what a few bytes say, sums again, and
//! uses the volume for reading and writing. Errors are welcome; a panic, a
//! hang or an endless walk is not.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use holdfast_base::counters::Counters;
use holdfast_base::prng::Prng;
use holdfast_base::{BLOCK_SIZE, BlockNo, Epoch, InodeNo};
use holdfast_device::memory::MemoryDevice;
use holdfast_device::{Device, DeviceError, DeviceStats, Discards, Flushed};
use holdfast_format::codec::Reader;
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::item::group::GroupItem;
use holdfast_format::journal::SEARCH_BLOCKS_MAX;
use holdfast_format::node::{EPOCH_AT, MAGIC, NodeHeader};
use holdfast_format::{Geometry, ItemKind, Key, NodePointer, NodeView, Superblock, node};
use holdfast_store::{
    Branch, CreateOptions, Need, OpenOptions, Result, Store, Transaction, replay,
};

const NODE: usize = 4096;
const BYTES: u64 = 32 << 20;

fn key(number: u64) -> Key {
    Key::new(InodeNo(20 + number / 8), ItemKind::Extent, number % 8)
}

fn options() -> CreateOptions {
    CreateOptions {
        geometry: Geometry::for_device(BYTES, NODE).unwrap(),
        uuid: uuid::Uuid::from_u128(7),
        label: "test".into(),
        hash_seed: 1,
        node_tag: *b"of nodes",
        created: Default::default(),
    }
}

/// A volume whose files tree has `count` items of 900 bytes: three levels from 400 on.
fn volume(count: u64) -> MemoryDevice {
    let device = Arc::new(MemoryDevice::new(BYTES));
    let shared: Arc<dyn Device> = device.clone();
    Store::create(&shared, &options()).unwrap();
    let store = open(&shared).unwrap();
    for number in 0..count {
        put(&store, &[key(number)], 900).unwrap();
    }
    store.close().unwrap();
    device.snapshot()
}

fn open(device: &Arc<dyn Device>) -> Result<Branch> {
    let options = OpenOptions { read_only: false, cache_bytes: 1 << 20, ..OpenOptions::default() };
    Store::open(device.clone(), &options, Arc::new(Counters::default())).map(Store::into_main)
}

fn put(store: &Branch, keys: &[Key], len: usize) -> Result<()> {
    let mut transaction = Transaction::new();
    keys.iter().for_each(|key| transaction.put(*key, vec![1; len]));
    let mut room = store.reserve(Need::Grow { changes: transaction.changes(), blocks: 0 })?;
    store.apply(transaction, &mut room).map(drop)
}

fn delete(store: &Branch, keys: &[Key]) -> Result<()> {
    let mut transaction = Transaction::new();
    keys.iter().for_each(|key| transaction.delete(*key));
    let mut room = store.reserve(Need::Shrink { changes: transaction.changes() })?;
    store.apply(transaction, &mut room).map(drop)
}

/// Visits everything both ways. A walk of a tree of this size that sees more than so many items is endless.
fn walk(store: &Branch) -> Result<()> {
    for back in [false, true] {
        let mut seen = 0;
        let visit = |_: Key, _: &[u8]| {
            seen += 1;
            assert!(seen < 1_000_000, "the walk does not end");
            ControlFlow::Continue(())
        };
        match back {
            false => store.scan(&Key::MIN, &Key::MAX, visit)?,
            true => store.scan_back(&Key::MIN, &Key::MAX, visit)?,
        }
    }
    Ok(())
}

/// Uses a volume in every way; errors are fine. Panics in time if that does not end.
fn use_it(what: &str, device: MemoryDevice, seed: u64) {
    let (done, wait) = channel();
    let work = std::thread::spawn(move || {
        let device: Arc<dyn Device> = Arc::new(device);
        let mut prng = Prng::seeded(seed);
        for round in 0..2 {
            let Ok(store) = open(&device) else { break };
            let some = |prng: &mut Prng| {
                let keys = (0..6).map(|_| key(prng.below(500)));
                keys.collect::<Vec<Key>>()
            };
            for _ in 0..6 {
                let _ = store.get(&key(prng.below(500)));
            }
            if round == 0 || prng.one_in(2) {
                let _ = walk(&store);
            }
            for step in 0..12 {
                let keys = some(&mut prng);
                let _ = match prng.below(3) {
                    0 => delete(&store, &keys),
                    _ => put(&store, &keys, prng.below(1000) as usize),
                };
                if step % 5 == 4 {
                    let _ = store.commit();
                }
            }
            let _ = walk(&store);
            let reason = store.stop_reason().unwrap_or_default();
            assert!(!reason.contains("panicked"), "{reason}");
            let _ = store.close();
        }
        let _ = done.send(());
    });
    match wait.recv_timeout(Duration::from_secs(200)) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("{what}: it hangs"),
        _ => work.join().unwrap_or_else(|_| panic!("{what}: a thread panicked")),
    }
}

fn superblock(device: &MemoryDevice) -> (BlockNo, Superblock) {
    let found = SUPERBLOCK_SLOTS.into_iter().filter_map(|slot| {
        let mut block = [0; BLOCK_SIZE];
        device.read(slot.byte_offset().unwrap(), &mut block).unwrap();
        Superblock::decode(&block, slot).ok().map(|superblock| (slot, superblock))
    });
    found.max_by_key(|(_, superblock)| superblock.epoch).unwrap()
}

fn set_superblock(device: &MemoryDevice, change: impl FnOnce(&mut Superblock)) {
    let (slot, mut superblock) = superblock(device);
    change(&mut superblock);
    device.write(slot.byte_offset().unwrap(), &superblock.encode(slot)[..]).unwrap();
}

fn read_node(device: &MemoryDevice, block: BlockNo) -> Vec<u8> {
    let mut bytes = vec![0; NODE];
    device.read(block.byte_offset().unwrap(), &mut bytes).unwrap();
    bytes
}

fn write_node(device: &MemoryDevice, block: BlockNo, bytes: &mut [u8]) {
    node::seal(bytes);
    device.write(block.byte_offset().unwrap(), bytes).unwrap();
}

fn change_node(device: &MemoryDevice, block: BlockNo, change: impl FnOnce(&mut [u8])) {
    let mut bytes = read_node(device, block);
    change(&mut bytes);
    write_node(device, block, &mut bytes);
}

fn child(device: &MemoryDevice, block: BlockNo, index: usize) -> NodePointer {
    NodeView::trusted(&read_node(device, block)).child(index)
}

fn set_child(device: &MemoryDevice, block: BlockNo, index: usize, to: NodePointer) {
    change_node(device, block, |bytes| {
        let at = NodeView::trusted(bytes).record(index).0 + Key::SIZE;
        bytes[at..at + 16].copy_from_slice(&to.encode());
    });
}

/// The root of a files tree with three levels.
fn tall() -> (MemoryDevice, BlockNo) {
    let device = volume(500);
    let (_, superblock) = superblock(&device);
    assert_eq!(superblock.files_level, 2);
    (device, superblock.files.block)
}

#[test]
fn a_pointer_into_the_other_tree_or_level() {
    let (device, root) = tall();
    let (_, superblock) = superblock(&device);
    let lies =
        [superblock.space, superblock.files, child(&device, child(&device, root, 0).block, 0)];
    for (number, to) in lies.into_iter().enumerate() {
        let device = device.snapshot();
        set_child(&device, root, 0, to);
        use_it(&format!("lie {number}"), device, number as u64);
    }
}

#[test]
fn a_child_of_the_future() {
    let (device, root) = tall();
    let (_, superblock) = superblock(&device);
    for ahead in 1..4 {
        let device = device.snapshot();
        let middle = child(&device, root, 0).block;
        let leaf = child(&device, middle, 0);
        let epoch = Epoch(superblock.epoch.0 + ahead);
        change_node(&device, leaf.block, |bytes| {
            bytes[EPOCH_AT..EPOCH_AT + 8].copy_from_slice(&epoch.0.to_le_bytes());
        });
        set_child(&device, middle, 0, NodePointer { epoch, ..leaf });
        use_it(&format!("{ahead} epochs ahead"), device.snapshot(), ahead);
        let device: Arc<dyn Device> = Arc::new(device);
        let store = open(&device).unwrap();
        assert!(put(&store, &[key(0)], 10).is_err());
    }
}

#[test]
fn two_parents_share_a_child() {
    let (device, root) = tall();
    let count = NodeView::trusted(&read_node(&device, root)).count();
    for from in 0..count {
        for to in 0..count {
            let device = device.snapshot();
            set_child(&device, root, to, child(&device, root, from));
            use_it(&format!("{from} is {to} as well"), device, from as u64);
        }
    }
}

/// Two leaves without items at one place: what each parent says of it is true.
#[test]
fn two_parents_share_an_empty_leaf_in_one_batch() {
    let (device, root) = tall();
    let middle = child(&device, root, 0).block;
    let leaf = child(&device, middle, 1);
    let (first, second) = {
        let bytes = read_node(&device, middle);
        let view = NodeView::trusted(&bytes);
        (view.key(1), view.key(2))
    };
    change_node(&device, leaf.block, |bytes| {
        bytes[6..8].fill(0);
        bytes[40..44].copy_from_slice(&(NODE as u32).to_le_bytes());
        bytes[44..48].fill(0);
    });
    set_child(&device, middle, 2, leaf);
    let device: Arc<dyn Device> = Arc::new(device);
    let store = open(&device).unwrap();
    let error = put(&store, &[first, second], 10).unwrap_err();
    assert!(store.stop_reason().unwrap().contains("share"), "{error}");
}

#[test]
fn walking_back_through_a_shared_child_ends() {
    let (device, root) = tall();
    set_child(&device, root, 0, child(&device, root, 1));
    let second = NodeView::trusted(&read_node(&device, root)).key(1);
    let (done, wait) = channel();
    std::thread::spawn(move || {
        let device: Arc<dyn Device> = Arc::new(device);
        let store = open(&device).unwrap();
        store.get(&second).unwrap();
        let _ = walk(&store);
        done.send(()).unwrap();
    });
    wait.recv_timeout(Duration::from_secs(200)).expect("the walk does not end");
}

#[test]
fn group_records_that_lie() {
    let device = volume(100);
    let (_, superblock) = superblock(&device);
    for node_blocks in [0, 1, 7] {
        let device = device.snapshot();
        change_node(&device, superblock.space.block, |bytes| {
            let view = NodeView::trusted(bytes);
            let index = (0..view.count()).find(|&at| view.key(at).kind == ItemKind::Group).unwrap();
            let item = GroupItem::decode(view.value(index)).unwrap();
            let at = view.record(index).0 + Key::SIZE;
            bytes[at..at + 16].copy_from_slice(&GroupItem { node_blocks, ..item }.encode());
        });
        use_it(&format!("{node_blocks} blocks of nodes"), device.snapshot(), 1);
        let device: Arc<dyn Device> = Arc::new(device);
        let Ok(store) = open(&device) else { continue };
        for number in 0..100 {
            let _ = delete(&store, &[key(number)]);
        }
        let _ = store.close();
    }
}

#[test]
fn items_of_the_space_tree_with_reserved_bytes_are_refused() {
    let device = volume(10);
    let (_, superblock) = superblock(&device);
    change_node(&device, superblock.space.block, |bytes| {
        let view = NodeView::trusted(bytes);
        let at = view.record(view.count() - 1).0 + 16;
        bytes[at] = 1;
    });
    let device: Arc<dyn Device> = Arc::new(device);
    assert!(open(&device).is_err());
}

/// Blocks that begin like a node.
fn nodes(device: &MemoryDevice) -> Vec<BlockNo> {
    let geometry = options().geometry;
    let first = geometry.first_data_block().0;
    (first..geometry.volume_blocks)
        .map(BlockNo)
        .filter(|block| {
            let mut magic = [0; 4];
            device.read(block.byte_offset().unwrap(), &mut magic).unwrap();
            magic == MAGIC
        })
        .collect()
}

/// Whether an earlier lie left a node that can be taken apart, and something in it.
fn is_sound(bytes: &[u8]) -> bool {
    let header = NodeHeader::read(&mut Reader::new("node", bytes)).unwrap();
    NodeView::trusted(bytes).check_body(&header, holdfast_format::Carried::NOTHING).is_ok()
        && header.count > 0
}

/// Changes one thing that a node says.
fn lie(device: &MemoryDevice, nodes: &[BlockNo], prng: &mut Prng) {
    let (_, superblock) = superblock(device);
    let any = |prng: &mut Prng| {
        let block = *prng.pick(nodes);
        let bytes = read_node(device, block);
        let mut epoch = [0; 8];
        epoch.copy_from_slice(&bytes[EPOCH_AT..EPOCH_AT + 8]);
        NodePointer { block, epoch: Epoch(u64::from_le_bytes(epoch)) }
    };
    // The nodes that the volume reaches are more fun than those it left behind.
    let mut block = any(prng).block;
    if prng.one_in(2) {
        block = if prng.one_in(2) { superblock.files.block } else { superblock.space.block };
        for _ in 0..prng.below(4) {
            let bytes = read_node(device, block);
            let view = NodeView::trusted(&bytes);
            if !is_sound(&bytes) || view.level() == 0 {
                break;
            }
            let next = view.child(prng.below(view.count() as u64) as usize).block;
            if !options().geometry.holds_some_node(next) {
                break;
            }
            block = next;
        }
    }
    let other = any(prng);
    let mut bytes = read_node(device, block);
    if !is_sound(&bytes) {
        return;
    }
    let view = NodeView::trusted(&bytes);
    let count = view.count();
    let (at, len) = view.record(prng.below(count as u64) as usize);
    let (is_leaf, number) = (view.level() == 0, prng.next_u64() >> prng.below(64));
    match prng.below(6) {
        0 | 1 if !is_leaf => bytes[at + 24..at + 40].copy_from_slice(&other.encode()),
        2 if !is_leaf => bytes[at + 32..at + 40].copy_from_slice(&number.to_le_bytes()),
        0..=2 if len > 25 => {
            let place = at + 24 + prng.below(len as u64 - 24) as usize;
            bytes[place] ^= 1 << prng.below(8);
        }
        3 => bytes[at + prng.below(24) as usize] ^= 1 << prng.below(8),
        4 => {
            bytes[6..8].fill(0);
            bytes[40..44].copy_from_slice(&(NODE as u32).to_le_bytes());
            bytes[44..48].fill(0);
        }
        _ => bytes[prng.below(64) as usize] ^= 1 << prng.below(8),
    }
    write_node(device, block, &mut bytes);
}

fn seeds() -> u64 {
    std::env::var("HOLDFAST_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(600)
}

#[test]
fn random_lies_in_nodes_and_superblocks() {
    let good = volume(500);
    let nodes = nodes(&good);
    let first = std::env::var("HOLDFAST_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in first.unwrap_or(0)..first.map_or(seeds(), |seed: u64| seed + 1) {
        let mut prng = Prng::seeded(seed);
        let device = good.snapshot();
        for _ in 0..1 + prng.below(3) {
            lie(&device, &nodes, &mut prng);
        }
        if prng.one_in(6) {
            let level = prng.below(16) as u8;
            let number = prng.next_u64() >> prng.below(64);
            set_superblock(&device, |superblock| match level % 6 {
                0 => superblock.files_level = level,
                1 => superblock.files = superblock.space,
                2 => superblock.files.epoch = Epoch(number),
                3 => superblock.lsn.0 = number,
                4 => superblock.inode_count = number,
                _ => superblock.used_blocks = number,
            });
        }
        use_it(&format!("seed {seed}"), device, seed);
    }
}

#[test]
fn the_space_tree_is_not_the_files_tree() {
    let device = volume(10);
    set_superblock(&device, |superblock| {
        std::mem::swap(&mut superblock.files, &mut superblock.space);
    });
    let device: Arc<dyn Device> = Arc::new(device);
    assert!(open(&device).is_err());
}

/// A device of any length that holds nothing but zeros.
#[derive(Debug, Default)]
struct Zeros(AtomicU64);

impl Device for Zeros {
    holdfast_device::private!();

    fn read(&self, _at: u64, into: &mut [u8]) -> std::result::Result<(), DeviceError> {
        self.0.fetch_add(into.len() as u64, Ordering::Relaxed);
        into.fill(0);
        Ok(())
    }

    fn write(&self, _at: u64, _bytes: &[u8]) -> std::result::Result<(), DeviceError> {
        unreachable!("a replay writes nothing")
    }

    fn flush(&self) -> std::result::Result<Flushed, DeviceError> {
        unreachable!("a replay writes nothing")
    }

    fn discard(&self, _at: u64, _len: u64) -> std::result::Result<(), DeviceError> {
        unreachable!("a replay writes nothing")
    }

    fn discards(&self) -> Discards {
        Discards::Refused
    }

    fn len(&self) -> u64 {
        1 << 62
    }

    fn sector_size(&self) -> u32 {
        4096
    }

    fn physical_sector_size(&self) -> u32 {
        4096
    }

    fn stats(&self) -> DeviceStats {
        DeviceStats::default()
    }
}

/// P10: a superblock may claim a journal as long as the device, of which nothing was ever written.
#[test]
fn a_ring_of_any_size_is_not_searched_without_end() {
    let device: Arc<dyn Device> = Arc::new(volume(1));
    let mut superblock = open(&device).unwrap().superblock();
    superblock.geometry.volume_blocks = 1 << 50;
    superblock.geometry.journal_blocks = 1 << 49;
    let zeros = Zeros::default();
    // Far more than any ring that mkfs makes, and an end to it.
    let most = SEARCH_BLOCKS_MAX * BLOCK_SIZE as u64 + (1 << 20);
    let replayed = replay(&zeros, &superblock).unwrap();
    assert_eq!((replayed.commits, replayed.damage), (0, None));
    assert!(zeros.0.load(Ordering::Relaxed) <= most);
}

/// P10: a ring without an end, and marks beyond any device, are answers. (No sum wraps in a program whose additions are
/// not checked, and none panics in one where they are.)
#[test]
fn a_ring_whose_end_no_number_holds_is_an_answer() {
    let device: Arc<dyn Device> = Arc::new(volume(1));
    let good = open(&device).unwrap().superblock();
    let zeros = Zeros::default();
    let changes: [fn(&mut Superblock, u64); 3] = [
        |superblock, most| superblock.geometry.journal_blocks = most,
        |superblock, most| superblock.journal.next = BlockNo(most),
        |superblock, most| {
            superblock.geometry.journal_blocks = most;
            superblock.journal.next = BlockNo(most);
        },
    ];
    for most in [u64::MAX, u64::MAX - 1, u64::MAX / 2 + 1, u64::MAX >> 12] {
        for change in changes {
            let mut superblock = good.clone();
            superblock.geometry.volume_blocks = u64::MAX;
            change(&mut superblock, most);
            let found = replay(&zeros, &superblock);
            // Nothing was ever written: whatever is said of the ring, there is no commit in it.
            assert!(
                found.as_ref().map_or(true, |found| found.commits == 0),
                "{most:#x}: {found:?}"
            );
        }
    }
}
