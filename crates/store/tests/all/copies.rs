//! Nodes that are stored twice: what is bad in one place is read from the other, and written again from it.

use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use holdfast_base::counters::Counters;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, Epoch, InodeNo};
use holdfast_device::sim::images::Policy;
use holdfast_device::sim::{Action, Call, Faults, When};
use holdfast_device::{Device, DeviceError, MemoryDevice, SimDevice, forward};
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::limits::COUNTER_MAX;
use holdfast_format::node::{ADDRESS_AT, MAGIC};
use holdfast_format::{Geometry, ItemKind, Key, NodePointer, NodeView, Stored, Superblock, node};
use holdfast_store::{
    BadRing, Branch, Damaged, Listener, Need, OpenOptions, Scrub, Scrubbed, Store, StoreError,
    Transaction,
};

use crate::small;

const ITEMS: u64 = 300;

fn geometry() -> Geometry {
    small::geometry().with_copies().unwrap()
}

/// A closed volume with some hundred nodes.
fn image() -> MemoryDevice {
    small::scattered(geometry(), ITEMS)
}

fn block_of(image: &MemoryDevice, block: BlockNo) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_BYTES as usize];
    image.read(block.0 * BLOCK_BYTES, &mut bytes).unwrap();
    bytes
}

/// Every node that stands in its place, older ones included.
fn nodes(image: &MemoryDevice) -> Vec<BlockNo> {
    let blocks = (0..geometry().volume_blocks)
        .map(BlockNo)
        .filter(|at| geometry().holds_node(*at, Stored::Twice));
    let is_node = |at: &BlockNo| {
        let bytes = block_of(image, *at);
        bytes.starts_with(&MAGIC) && bytes[ADDRESS_AT..ADDRESS_AT + 8] == at.0.to_le_bytes()
    };
    blocks.filter(is_node).collect()
}

fn write(image: &MemoryDevice, block: BlockNo, bytes: &[u8]) {
    image.write(block.0 * BLOCK_BYTES, bytes).unwrap();
}

/// Reads everything.
fn is_whole(store: &Branch) -> Result<(), StoreError> {
    let mut seen = Vec::new();
    let (from, to) = Key::span(InodeNo(20), ItemKind::Extent);
    store.scan(&from, &to, &mut |key: Key, _: &[u8]| {
        seen.push(key.offset);
        ControlFlow::Continue(())
    })?;
    assert_eq!(seen, (0..ITEMS).collect::<Vec<_>>());
    Ok(())
}

fn copies_used(store: &Branch) -> (u64, u64, u64) {
    let counters: &Counters = store.counters();
    let Counters { copies_used, copies_mended, copies_unmendable, .. } = counters;
    (copies_used.get(), copies_mended.get(), copies_unmendable.get())
}

#[test]
fn every_node_has_a_copy() {
    let image = image();
    let nodes = nodes(&image);
    assert!(nodes.len() > 100, "too few nodes to say anything: {}", nodes.len());
    for block in nodes {
        let copy = geometry().copy_of(block, Stored::Twice).unwrap();
        assert!(block_of(&image, copy) == block_of(&image, block), "the node at {block}");
    }
}

/// What becomes of the bytes of a place.
type Damage<'a> = &'a dyn Fn(&mut Vec<u8>);

/// Whatever a place holds instead of its node, and whichever of the two it is.
#[test]
fn what_is_bad_in_one_place_is_written_again_from_the_other() {
    let sound = image();
    let nodes = nodes(&sound);
    let other = block_of(&sound, nodes[nodes.len() / 2]);
    let damages: [Damage<'_>; 4] =
        [&|node| node[100] ^= 4, &|node| node.fill(0), &|node| node.clone_from(&other), &|node| {
            node.fill(0xff)
        }];
    for (which, damage) in damages.iter().enumerate() {
        let damaged = Arc::new(sound.snapshot());
        let mut bad = Vec::new();
        for block in &nodes {
            let mut bytes = block_of(&damaged, *block);
            damage(&mut bytes);
            write(&damaged, *block, &bytes);
            bad.push((*block, bytes));
        }
        let store = small::open(&damaged);
        is_whole(&store).unwrap_or_else(|error| panic!("damage {which}: {error}"));
        let (used, mended, unmendable) = copies_used(&store);
        assert!(used > 100 && unmendable == 0, "damage {which}: {used} {mended} {unmendable}");
        drop(store);
        // What was read is in its place again: nothing is read from a copy any more.
        let store = small::open(&damaged);
        is_whole(&store).unwrap();
        assert_eq!(copies_used(&store), (0, 0, 0), "damage {which}");
        assert!(mended > 0 && mended <= used, "damage {which}: {mended} of {used}");
        // And what was written is what was there; older nodes, which no reader needs, are left as they are.
        for (block, bad) in &bad {
            let now = block_of(&damaged, *block);
            assert!(now == *bad || now == block_of(&sound, *block), "damage {which}: {block}");
        }
    }
}

#[test]
fn without_a_sound_place_a_node_is_damaged() {
    let damaged = Arc::new(image());
    let store = small::open(&damaged);
    store.close().unwrap();
    for block in nodes(&damaged) {
        for at in [block, geometry().copy_of(block, Stored::Twice).unwrap()] {
            let mut bytes = block_of(&damaged, at);
            // Of the leaves of the files tree: the volume can be opened.
            if bytes[4] == 0 && bytes[5] == 1 {
                bytes[200] ^= 1;
                write(&damaged, at, &bytes);
            }
        }
    }
    let store = small::open(&damaged);
    assert!(matches!(is_whole(&store), Err(StoreError::Node { .. })));
    assert_eq!(copies_used(&store), (0, 0, 0));
}

/// P7, P10: a reader does not mend.
#[test]
fn a_reader_mends_nothing() {
    let damaged = Arc::new(image());
    nodes(&damaged).into_iter().for_each(|block| write(&damaged, block, &[0; 4096]));
    let before = damaged.stats().writes;
    let options = OpenOptions { read_only: true, threads: false, ..OpenOptions::default() };
    let store = Store::open(damaged.clone(), &options, Arc::new(Counters::default())).unwrap();
    let store = store.into_main();
    is_whole(&store).unwrap();
    let (used, mended, _) = copies_used(&store);
    assert!(used > 100 && mended == 0, "{used} and {mended}");
    assert_eq!(damaged.stats().writes, before);
}

/// A place that the device does not read is bad, and one that it does not write stays so: nothing is lost by either.
#[test]
fn what_the_device_does_not_read_or_write_is_read_from_the_copy() {
    let image = image();
    for (fails, mends) in [(false, true), (true, false)] {
        let sim = Arc::new(SimDevice::new(&image));
        let store = small::open(&sim);
        // The lower one of each two stretches of the data zone, where nodes are and no copies.
        let far = 1 << geometry().copy_mask.ilog2();
        let first = geometry().first_data_block().0;
        let stretches = (0..geometry().volume_blocks).step_by(2 * far as usize);
        let mut faults = Faults::none();
        for (start, end) in stretches.map(|at| (at.max(first), at + far)) {
            let [start, end] = [start, end].map(|block| block * BLOCK_BYTES);
            let inside = || When::Inside { start, end, skip: 0, times: u64::MAX };
            if start < end {
                faults = faults.with(Call::Read, inside(), Action::Fail);
            }
            if start < end && fails {
                faults = faults.with(Call::Write, inside(), Action::Fail);
            }
        }
        assert!(nodes(&image).iter().all(|at| at.0 & far == 0));
        sim.set_faults(faults);
        is_whole(&store).unwrap();
        let (used, mended, unmendable) = copies_used(&store);
        assert!(used > 100, "{used}");
        assert_eq!((mended > 0, unmendable > 0), (mends, fails));
        assert_eq!(store.stop_reason(), None);
    }
}

/// R10: a place that may be another's by now is not written.
#[test]
fn the_place_of_a_node_that_is_gone_is_left_alone() {
    let damaged = Arc::new(image());
    let nodes = nodes(&damaged);
    nodes.iter().for_each(|block| write(&damaged, *block, &[0; 4096]));
    let store = small::open(&damaged);
    // Everything moves, again and again, while what is read is mended.
    for round in 0..20u8 {
        for number in (0..ITEMS).step_by(7) {
            small::put(&store, number..number + 1, round, round);
        }
        store.commit().unwrap();
        #[cfg(debug_assertions)]
        store.invariants();
    }
    store.close().unwrap();
    let store = small::open(&damaged);
    is_whole(&store).unwrap();
    for number in (0..ITEMS).step_by(7) {
        assert_eq!(small::first(&store, number), Some(19));
    }
}

/// What each step writes: bytes, writes and flushes.
fn cost(geometry: Geometry) -> [(&'static str, [u64; 3]); 5] {
    let device = small::formatted_as(geometry);
    let stats = |device: &MemoryDevice| {
        let stats = device.stats();
        [stats.written_bytes, stats.writes, stats.flushes]
    };
    let mkfs = stats(&device);
    let store = small::open(&device);
    small::put(&store, 0..200, 1, 1);
    small::sync(&store);
    store.checkpoint().unwrap();
    let mut before = stats(&device);
    let mut since = |device: &MemoryDevice| {
        let now = stats(device);
        let more = [0, 1, 2].map(|at| now[at] - before[at]);
        before = now;
        more
    };
    small::put(&store, 7..8, 2, 2);
    small::sync(&store);
    let fsync = since(&device);
    small::put(&store, 50..60, 3, 3);
    store.commit().unwrap();
    let commit = since(&device);
    store.checkpoint().unwrap();
    let checkpoint = since(&device);
    small::put(&store, 0..200, 4, 4);
    store.checkpoint().unwrap();
    let large = since(&device);
    store.close().unwrap();
    let steps = ["mkfs", "fsync", "commit", "checkpoint of few nodes", "of all nodes"];
    let costs = [mkfs, fsync, commit, checkpoint, large];
    std::array::from_fn(|at| (steps[at], costs[at]))
}

/// An fsync and a commit are written twice, and nothing costs a flush more. `--nocapture` shows the figures of docs/MEASURED.md.
#[test]
fn copies_cost_writes_and_no_flush() {
    for node_size in [4096, 16384, 65536] {
        let plain = Geometry::for_device(64 << 20, node_size).unwrap();
        let (once, twice) = (cost(plain), cost(plain.with_copies().unwrap()));
        for ((step, one), (_, two)) in once.into_iter().zip(twice) {
            println!("nodes of {node_size}, {step}: {one:?}, with copies {two:?}");
            assert_eq!(one[2], two[2], "{step}: flushes");
            match step {
                "fsync" => assert_eq!([2 * one[0], 2 * one[1]], two[..2], "{step}"),
                // The copies of the nodes that it makes have bits in the bitmaps as well.
                "commit" => {
                    assert!(two[0] < one[0] * 3 && two[1] == 2 * one[1], "{one:?} {two:?}");
                }
                _ => assert!(two[0] > one[0] && two[0] < 2 * one[0], "{step}: {one:?} {two:?}"),
            }
        }
    }
}

/// Copies of what is near the roots are a checkpoint's alone: fsync and commit write what they write without.
#[test]
fn copies_of_roots_cost_a_checkpoint_and_nothing_else() {
    for node_size in [4096, 16384, 65536] {
        let plain = Geometry::for_device(64 << 20, node_size).unwrap();
        let (once, roots) = (cost(plain), cost(plain.with_root_copies().unwrap()));
        for ((step, one), (_, two)) in once.into_iter().zip(roots) {
            println!("nodes of {node_size}, {step}: {one:?}, with copies of roots {two:?}");
            assert_eq!(one[2], two[2], "{step}: flushes");
            match step {
                "fsync" | "commit" => assert_eq!(one, two, "{step}"),
                _ => assert!(two[0] > one[0] && two[0] < 2 * one[0], "{step}: {one:?} {two:?}"),
            }
        }
    }
}

/// A cut amid mends leaves a sound place of each node.
#[test]
fn power_that_fails_amid_mends_takes_nothing() {
    let damaged = image();
    nodes(&damaged).into_iter().for_each(|block| write(&damaged, block, &[0; 4096]));
    let device = Arc::new(SimDevice::new(&damaged));
    let store = small::open(&device);
    is_whole(&store).unwrap();
    assert!(copies_used(&store).1 > 50);
    drop(store);
    let recording = device.recording();
    let mut cut = recording.start();
    let mut looked = 0;
    for index in 0..=recording.events.len() {
        if index % 11 == 0 {
            for left in cut.images(&Policy { exhaustive: 2, each: 2, samples: 1, torn: 2, seed: 1 })
            {
                let store = small::open(&Arc::new(left.device()));
                is_whole(&store)
                    .unwrap_or_else(|error| panic!("call {index}: {}: {error}", left.describe()));
                looked += 1;
            }
        }
        if let Some(event) = recording.events.get(index) {
            cut.advance(event);
        }
    }
    assert!(looked > 20, "{looked}");
}

/// P9: what is refused in the end, behind reads of bad places, is left as it was.
#[test]
fn an_opening_that_is_refused_mends_nothing() {
    let base = Arc::new(image());
    let store = small::open(&base);
    small::put(&store, 0..3, 1, 1);
    small::sync(&store);
    drop(store);
    let opened = Arc::new(base.snapshot());
    nodes(&opened).into_iter().for_each(|block| write(&opened, block, &[0; 4096]));
    let refused = Arc::new(opened.snapshot());
    let slots = SUPERBLOCK_SLOTS.map(|slot| {
        let bytes: [u8; 4096] = block_of(&refused, slot).try_into().unwrap();
        Superblock::decode(&bytes, slot).ok()
    });
    let newest = slots.into_iter().flatten().max_by_key(|slot| slot.epoch).unwrap();
    let slot = newest.slot();
    // It has counted so far that it is read and no more written.
    let epoch = Epoch(COUNTER_MAX / 2 + 1 + (COUNTER_MAX / 2 + 1 + newest.epoch.0) % 2);
    write(&refused, slot, &Superblock { epoch, ..newest }.encode(slot)[..]);
    let before = refused.to_image();
    match small::try_open(&refused) {
        Ok(_) => panic!("it is opened"),
        Err(why) => assert!(why.to_string().contains("counted"), "{why}"),
    }
    assert!(refused.to_image() == before, "it was written to");
    // The same volume is mended when it is opened.
    let store = small::open(&opened);
    let (used, mended, _) = copies_used(&store);
    assert!(used > 0 && mended > 0, "{used} {mended}");
}

/// A device that waits in the first write of a checkpoint until it may go on, and in each mend until a commit is done.
#[derive(Debug)]
struct Waits {
    device: MemoryDevice,
    sound: MemoryDevice,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waits: bool,
    in_checkpoint: bool,
    may_go_on: bool,
    mends: u64,
    is_committed: bool,
    has_waited_in_vain: bool,
}

impl Waits {
    fn until(&self, mut state: MutexGuard<'_, State>, is_so: impl Fn(&State) -> bool) {
        while !is_so(&state) {
            let (next, time) = self.changed.wait_timeout(state, Duration::from_secs(600)).unwrap();
            state = next;
            if time.timed_out() {
                state.has_waited_in_vain = true;
                return;
            }
        }
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }
}

impl Device for Waits {
    forward!(device: read, flush, discard, len, room, take_room, sector_size, reach, stats);

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let is_node = at >= geometry().first_data_block().0 * BLOCK_BYTES;
        let is_mend = is_node
            && bytes.len() == 4096
            && bytes == block_of(&self.sound, BlockNo(at / BLOCK_BYTES));
        let mut state = self.state.lock().unwrap();
        if state.waits && is_mend {
            state.mends += 1;
            self.changed.notify_all();
            self.until(state, |state| state.is_committed || state.has_waited_in_vain);
        } else if state.waits && is_node && !state.in_checkpoint {
            state.in_checkpoint = true;
            self.changed.notify_all();
            self.until(state, |state| state.may_go_on);
        }
        self.device.write(at, bytes)
    }
}

/// Mends that were found while a checkpoint was written hold up no commit, on which an fsync may wait; and the checkpoint makes few.
#[test]
fn a_commit_waits_for_no_mend() {
    let sound = image();
    let damaged = sound.snapshot();
    let device = Arc::new(Waits {
        device: damaged,
        sound,
        state: Mutex::default(),
        changed: Condvar::new(),
    });
    let store = small::open(&device);
    small::put(&store, 0..1, 1, 1);
    nodes(&device.sound).into_iter().for_each(|block| write(&device.device, block, &[0; 4096]));
    device.set(|state| state.waits = true);
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| store.checkpoint().unwrap());
        device.until(device.state.lock().unwrap(), |state| state.in_checkpoint);
        is_whole(&store).unwrap();
        assert!(copies_used(&store).0 > 50, "they wait");
        device.set(|state| state.may_go_on = true);
        device.until(device.state.lock().unwrap(), |state| state.mends > 0);
        small::put(&store, 1..2, 1, 1);
        store.commit().unwrap();
        device.set(|state| state.is_committed = true);
        checkpoint.join().unwrap();
    });
    let state = device.state.lock().unwrap();
    assert!(!state.has_waited_in_vain, "the commit had to wait");
    assert!((1..20).contains(&state.mends), "{} mends under one lock", state.mends);
}

/// P8: nodes find places after the volume became smaller, as if mkfs had made it so.
#[test]
fn a_volume_becomes_no_smaller_than_its_copies_have_places() {
    let large = Geometry::for_device(192 << 20, 4096).unwrap().with_copies().unwrap();
    let device = small::formatted_as(large);
    let store = small::open(&device);
    let put = |store: &Branch, numbers: std::ops::Range<u64>| {
        for number in numbers {
            let mut batch = Transaction::new();
            batch.put(Key::new(InodeNo(20), ItemKind::Xattr, number), vec![7; 900]);
            let need = Need::Grow { changes: batch.changes(), blocks: 0 };
            let mut room = store.reserve(need).unwrap();
            store.apply(batch, &mut room).unwrap();
        }
    };
    put(&store, 0..ITEMS);
    store.close().unwrap();
    let device: Arc<dyn Device> = device;
    // Few of its blocks are in use. But only a third of so small a one has a block that is the copy's.
    let why = holdfast_store::shrink(&device, 80 << 20, &mut |_| ()).unwrap_err().to_string();
    let size = why.split("about ").nth(1).and_then(|rest| rest.strip_suffix(" MiB"));
    let size: u64 = size.unwrap_or_else(|| panic!("{why}")).parse().unwrap();
    let shape = |mib: u64| Geometry { volume_blocks: (mib << 20) / BLOCK_BYTES, ..large };
    assert!(shape(size).has_places_for_copies() && !shape(size - 1).has_places_for_copies());
    assert!(holdfast_store::shrink(&device, (size - 1) << 20, &mut |_| ()).is_err());
    assert_eq!(holdfast_store::shrink(&device, size << 20, &mut |_| ()).unwrap(), size << 20);
    let options = OpenOptions { threads: false, ..OpenOptions::default() };
    let store = Store::open(device, &options, Arc::new(Counters::default())).unwrap().into_main();
    put(&store, ITEMS..4000);
    let value = |number| store.get(&Key::new(InodeNo(20), ItemKind::Xattr, number)).unwrap();
    assert!((0..4000).all(|number| value(number) == Some(vec![7; 900])));
    store.close().unwrap();
}

/// What a scrub says of bad places; it is stopped if it does not end.
#[derive(Default)]
struct Heard {
    places: Vec<(BlockNo, bool, String)>,
    reads: u64,
}

impl Listener for Heard {
    fn has_read(&mut self, _: &Scrub, _: u64, _: Duration) -> bool {
        self.reads += 1;
        self.reads < 10_000
    }

    fn is_damaged(&mut self, what: Damaged, why: String) {
        // The values of its items are no extents.
        assert!(!matches!(what, Damaged::Node { .. }), "{what:?}: {why}");
    }

    fn has_bad_place(&mut self, block: BlockNo, is_mended: bool, why: String) {
        self.places.push((block, is_mended, why));
    }

    fn has_bad_ring(&mut self, bad: BadRing) {
        panic!("{bad:?}");
    }
}

fn first_child(image: &MemoryDevice, parent: BlockNo) -> NodePointer {
    NodeView::trusted(&block_of(image, parent)).child(0)
}

/// The tree leads to a node, in places that the bitmaps do not give to it: its first child now stands at free blocks. Returns those.
fn move_to_free_blocks(image: &MemoryDevice, parent: BlockNo) -> NodePointer {
    let copy_of = |block| geometry().copy_of(block, Stored::Twice).unwrap();
    let is_free = |at: &BlockNo| {
        let holds = geometry().holds_node(*at, Stored::Twice);
        holds && [*at, copy_of(*at)].iter().all(|at| block_of(image, *at).iter().all(|it| *it == 0))
    };
    let free = (0..geometry().volume_blocks).rev().map(BlockNo).find(is_free).unwrap();
    let child = first_child(image, parent);
    let mut bytes = block_of(image, child.block);
    bytes[ADDRESS_AT..ADDRESS_AT + 8].copy_from_slice(&free.0.to_le_bytes());
    node::seal(&mut bytes);
    let moved = NodePointer { block: free, ..child };
    let mut above = block_of(image, parent);
    let at = NodeView::trusted(&above).record(0).0 + Key::SIZE;
    above[at..at + 16].copy_from_slice(&moved.encode());
    node::seal(&mut above);
    for (block, bytes) in [(free, &bytes), (parent, &above)] {
        write(image, block, bytes);
        write(image, copy_of(block), bytes);
    }
    moved
}

/// P10: a scrub ends, and writes to no place that the bitmaps give to another, however the tree lies.
#[test]
fn a_scrub_mends_no_place_that_may_be_of_another() {
    let device = small::formatted_as(geometry());
    let store = small::open(&device);
    small::put(&store, 0..1000, 1, 1);
    store.close().unwrap();
    let sound = device.snapshot();
    let slots = SUPERBLOCK_SLOTS.map(|slot| {
        let bytes: [u8; 4096] = block_of(&sound, slot).try_into().unwrap();
        Superblock::decode(&bytes, slot).ok()
    });
    let newest = slots.into_iter().flatten().max_by_key(|slot| slot.epoch).unwrap();
    assert_eq!(newest.files_level, 2, "too few nodes");
    let inner = first_child(&sound, newest.files.block).block;
    // The node with the bad place is at free blocks; or what leads to it is, and a reader refuses that.
    for (parent, why) in [(inner, "fsck -y"), (newest.files.block, "what leads to it is damaged")] {
        let lies = Arc::new(sound.snapshot());
        let moved = move_to_free_blocks(&lies, parent).block;
        let bad = if parent == inner { moved } else { first_child(&lies, moved).block };
        write(&lies, bad, &[7; 4096]);
        let options = OpenOptions { threads: false, ..OpenOptions::default() };
        let store = Store::open(lies.clone(), &options, Arc::new(Counters::default())).unwrap();
        let mut heard = Heard::default();
        let mut scrub = store.begin_scrub(None, &mut heard).unwrap().unwrap();
        let pin = store.pin(b"main", None).unwrap();
        let done = store.scrub_tree(&mut scrub, &pin, &mut heard).unwrap();
        assert_eq!(done, Scrubbed::Whole, "it does not end");
        let [(block, is_mended, said)] = &heard.places[..] else { panic!("{:?}", heard.places) };
        assert!(*block == bad && !is_mended && said.contains(why), "{said}");
        assert!(block_of(&lies, bad) == [7; 4096], "it was written over");
    }
}
