//! A device that reads nothing any more is told as such, and not as damage of everything.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast_base::{BlockNo, InodeNo};
use holdfast_device::{Device, DeviceError, MemoryDevice, forward};
use holdfast_format::node::{ADDRESS_AT, MAGIC};
use holdfast_format::{ItemKind, Key, NodeView};
use holdfast_store::{
    BadRing, Branch, Damaged, Listener, Need, Scrub, Scrubbed, StoreError, Transaction,
};

use crate::ring_places::batches_and_frames;
use crate::small;

const ITEMS: u64 = 600;

/// A device that reads nothing while it is gone, and some blocks never.
#[derive(Debug)]
struct Failing {
    inner: MemoryDevice,
    is_gone: AtomicBool,
    /// The last place that is read before it is gone for good.
    reads_left: AtomicU64,
    unreadable: Mutex<BTreeSet<u64>>,
    failed: Mutex<BTreeSet<u64>>,
}

impl Failing {
    fn of(inner: MemoryDevice) -> Failing {
        Failing {
            inner,
            is_gone: AtomicBool::new(false),
            reads_left: AtomicU64::new(u64::MAX),
            unreadable: Mutex::default(),
            failed: Mutex::default(),
        }
    }
}

impl Device for Failing {
    forward!(inner: write, flush, discard, room, take_room, len, sector_size, reach, stats);

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let left = self.reads_left.load(Ordering::Relaxed);
        match left {
            u64::MAX => {}
            0 => self.is_gone.store(true, Ordering::Relaxed),
            _ => self.reads_left.store(left - 1, Ordering::Relaxed),
        }
        let len = into.len() as u64;
        let blocks = at / 4096..(at + len).div_ceil(4096);
        let is_bad = self.unreadable.lock().unwrap().range(blocks).next().is_some();
        if is_bad || self.is_gone.load(Ordering::Relaxed) {
            self.failed.lock().unwrap().insert(at / 4096);
            let source = std::io::Error::from_raw_os_error(5);
            return Err(DeviceError::Io { call: "read", at, len, source });
        }
        self.inner.read(at, into)
    }
}

#[derive(Default)]
struct Heard {
    nodes: Vec<BlockNo>,
    rings: Vec<BadRing>,
    bytes: u64,
    most: Option<u64>,
}

impl Listener for Heard {
    fn has_read(&mut self, _: &Scrub, bytes: u64, _: Duration) -> bool {
        self.bytes += bytes;
        self.most.is_none_or(|most| self.bytes < most)
    }

    fn is_damaged(&mut self, what: Damaged, why: String) {
        let Damaged::Node { block, .. } = what else { panic!("{what:?}: {why}") };
        assert_eq!(why, format!("node at block {block}: it does not read: Input/output error"));
        self.nodes.push(block);
    }

    fn has_bad_place(&mut self, block: BlockNo, _: bool, why: String) {
        panic!("{block}: {why}");
    }

    fn has_bad_ring(&mut self, bad: BadRing) {
        self.rings.push(bad);
    }
}

/// A volume with some hundred leaves.
fn volume() -> (Arc<Failing>, Branch) {
    let device = small::formatted();
    let store = small::open(&device);
    for number in 0..ITEMS {
        let mut batch = Transaction::new();
        batch.put(Key::new(InodeNo(20), ItemKind::Xattr, number), vec![number as u8; 900]);
        let need = Need::Grow { changes: batch.changes(), blocks: 0 };
        let mut room = store.reserve(need).unwrap();
        store.apply(batch, &mut room).unwrap();
    }
    store.close().unwrap();
    let device = Arc::new(Failing::of(device.snapshot()));
    let store = small::open(&device);
    (device, store)
}

fn run(store: &Branch, scrub: &mut Scrub, heard: &mut Heard) -> Result<Scrubbed, StoreError> {
    assert_eq!(store.scrub_superblocks()?, None);
    if store.scrub_space_tree(scrub, heard)? == Scrubbed::Stopped {
        return Ok(Scrubbed::Stopped);
    }
    let pin = store.pin(b"main", None).unwrap();
    store.scrub_tree(scrub, &pin, heard)
}

fn begin(store: &Branch, from: Option<&[u8]>, heard: &mut Heard) -> Scrub {
    store.begin_scrub(from, heard).unwrap().unwrap()
}

#[test]
fn a_device_that_goes_ends_the_scrub_which_goes_on_when_it_is_back() {
    let (device, store) = volume();
    let mut heard = Heard::default();
    let mut scrub = begin(&store, None, &mut heard);
    assert_eq!(run(&store, &mut scrub, &mut heard).unwrap(), Scrubbed::Whole);
    drop(scrub);
    let whole = heard.bytes;
    assert!(whole > 100 * 4096 && heard.nodes.is_empty(), "{whole}, {:?}", heard.nodes);
    for reads in [0, 1, 2, 3, 5, 20, 100, 140] {
        let mut heard = Heard::default();
        let mut scrub = begin(&store, None, &mut heard);
        device.reads_left.store(reads, Ordering::Relaxed);
        match run(&store, &mut scrub, &mut heard) {
            Err(error @ StoreError::NoAnswer { .. }) => {
                assert!(error.to_string().contains("does not answer"), "{error}");
            }
            other => panic!("{reads}: {other:?}"),
        }
        assert_eq!(heard.nodes, [], "{reads}: that is no damage");
        assert_eq!(store.counters().scrub_damages.get(), 0, "{reads}");
        let verified = scrub.verified_bytes();
        let bytes = scrub.to_bytes();
        drop(scrub);
        // While it is away nothing begins, and nothing is said of anything.
        device.reads_left.store(u64::MAX, Ordering::Relaxed);
        device.is_gone.store(false, Ordering::Relaxed);
        let mut heard = Heard::default();
        let mut scrub = begin(&store, Some(&bytes), &mut heard);
        assert_eq!(scrub.verified_bytes(), verified);
        assert_eq!(run(&store, &mut scrub, &mut heard).unwrap(), Scrubbed::Whole);
        assert_eq!(heard.nodes, [], "{reads}");
        if reads >= 100 {
            assert!(verified > 80 * 4096 && heard.bytes < whole - 80 * 4096, "{reads}");
        }
    }
}

/// Leaves that follow each other in the tree are unreadable, and the rest of the device is not.
#[test]
fn many_places_in_a_row_that_are_unreadable_are_damage() {
    for (most, is_stopped) in [(None, false), (Some(60 * 4096), true)] {
        let (device, store) = volume();
        let image = device.inner.to_image();
        let leaves = image.chunks_exact(4096).zip(0u64..).filter(|(node, block)| {
            node.starts_with(&MAGIC)
                && node[ADDRESS_AT..ADDRESS_AT + 8] == block.to_le_bytes()
                && NodeView::trusted(node).level() == 0
        });
        let in_row = leaves.filter(|(leaf, _)| {
            let first = NodeView::trusted(leaf).key(0);
            first.kind == ItemKind::Xattr && (100..400).contains(&first.offset)
        });
        let blocks: BTreeSet<u64> = in_row.map(|(_, block)| block).collect();
        let mut heard = Heard { most, ..Heard::default() };
        let mut scrub = begin(&store, None, &mut heard);
        *device.unreadable.lock().unwrap() = blocks;
        device.failed.lock().unwrap().clear();
        let done = run(&store, &mut scrub, &mut heard).unwrap();
        let failed = std::mem::take(&mut *device.failed.lock().unwrap());
        let told: BTreeSet<u64> = heard.nodes.iter().map(|block| block.0).collect();
        assert_eq!(told, failed, "all of it is told");
        assert_eq!(told.len(), heard.nodes.len(), "and once");
        assert_eq!(store.counters().scrub_damages.get(), told.len() as u64);
        assert_eq!(done == Scrubbed::Stopped, is_stopped);
        assert!(is_stopped || told.len() >= 40, "{}", told.len());
    }
}

/// Where only the rings are to be read first, a device that is away is no damage of them either.
#[test]
fn a_device_that_is_away_is_no_damage_of_the_rings() {
    let (device, store) = volume();
    small::put(&store, 0..5, 1, 1);
    small::sync(&store);
    device.is_gone.store(true, Ordering::Relaxed);
    let mut heard = Heard::default();
    let done = store.begin_scrub(None, &mut heard);
    assert!(matches!(done, Err(StoreError::NoAnswer { .. })), "{done:?}");
    assert_eq!(heard.rings, []);
    assert_eq!(store.stop_reason(), None);
}

/// The number of an error helps no user.
#[test]
fn a_batch_that_does_not_read_is_told_in_words() {
    let (device, store) = volume();
    for number in 0..3 {
        small::put(&store, number..number + 1, 1, 1);
        small::sync(&store);
    }
    let [batches, _] = batches_and_frames(&device.inner);
    let (at, _) = batches[batches.len() - 1];
    device.unreadable.lock().unwrap().insert(at / 4096);
    let mut heard = Heard::default();
    begin(&store, None, &mut heard);
    let [bad] = &heard.rings[..] else { panic!("{:?}", heard.rings) };
    let words = ": it does not read: Input/output error; no place holds it; ";
    assert!(bad.why.contains(words) && bad.is_mended, "{bad:?}");
}
