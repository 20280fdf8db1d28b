//! A volume at rest becomes smaller: what it is told that it can have it can have, with all that was in it, and works there.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, BlockRange, InodeNo, Timestamp};
use holdfast_device::sim::HostedDevice;
use holdfast_device::{Device, DeviceError, Flushed, MemoryDevice, forward};
use holdfast_format::item::Extent;
use holdfast_format::{Geometry, ItemKind, Key};
use holdfast_store::{Branch, Need, NewSize, StoreError, Transaction};

use crate::small;

const MIB: u64 = 1 << 20;

fn key(number: u64) -> Key {
    Key::new(InodeNo(50), ItemKind::Extent, number)
}

/// Writes files of so many blocks, each ninth of which is reserved alone; fewer where the volume has no more space. Says how many there are.
fn add(store: &Branch, numbers: Range<u64>, want: u64) -> u64 {
    for number in numbers.clone() {
        let mut room = match store.reserve(Need::Grow { changes: 1, blocks: want }) {
            Ok(room) => room,
            Err(StoreError::NoSpace) => return number,
            Err(error) => panic!("{error}"),
        };
        let mut transaction = Transaction::new();
        let placed = store.allocate(&mut room, want, None).unwrap();
        let extent = if number % 9 == 8 {
            transaction.publish_unwritten(placed)
        } else {
            let bytes = vec![number as u8; (placed.blocks().count * BLOCK_BYTES) as usize];
            transaction.publish(store.write(placed, &bytes).unwrap())
        };
        transaction.put(key(number), extent.encode());
        store.apply(transaction, &mut room).unwrap();
    }
    numbers.end
}

fn extent(store: &Branch, number: u64) -> Extent {
    Extent::decode(&store.get(&key(number)).unwrap().unwrap()).unwrap()
}

fn remove(store: &Branch, number: u64) {
    let gone = extent(store, number);
    let mut room = store.reserve(Need::Shrink { changes: 40 }).unwrap();
    let mut transaction = Transaction::new();
    transaction.delete(key(number));
    transaction.free(gone.blocks, gone.birth, key(number));
    store.apply(transaction, &mut room).unwrap();
}

fn are_there(store: &Branch, device: &MemoryDevice, numbers: impl Iterator<Item = u64>) {
    for number in numbers {
        let Extent { blocks, sums, .. } = extent(store, number);
        if sums.is_empty() {
            continue;
        }
        let mut bytes = vec![0; (blocks.count * BLOCK_BYTES) as usize];
        device.read(blocks.start.0 * BLOCK_BYTES, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == number as u8), "{number} at {blocks:?}");
    }
}

fn shrink(device: &Arc<MemoryDevice>, bytes: u64) -> Result<u64, StoreError> {
    holdfast_store::shrink(&(device.clone() as Arc<dyn Device>), bytes, &mut |_| ())
}

/// The size that a refusal names.
fn named(refused: StoreError) -> u64 {
    let why = refused.to_string();
    let named = why.split("it can have about ").nth(1).and_then(|rest| rest.split(' ').next());
    named.and_then(|mib| mib.parse::<u64>().ok()).unwrap_or_else(|| panic!("{why}")) * MIB
}

fn shapes(bytes: u64, node_size: usize) -> [Geometry; 3] {
    let once = Geometry::for_device(bytes, node_size).unwrap();
    [once, once.with_root_copies().unwrap(), once.with_node_copies().unwrap()]
}

/// Data lies where what is stored twice has to go: it moves out of there, and no more of it than has to.
#[test]
fn data_moves_out_of_the_places_that_pairs_need() {
    for geometry in shapes(64 * MIB, 16384) {
        let device = small::formatted_as(geometry);
        let store = small::open(&device);
        assert_eq!(add(&store, 0..600, 16), 600, "37.5 MiB");
        let before: Vec<_> = (0..600).map(|number| extent(&store, number).blocks).collect();
        store.close().unwrap();
        assert_eq!(shrink(&device, 52 * MIB).unwrap(), 52 * MIB);
        let store = small::open(&device);
        are_there(&store, &device, 0..600);
        let has_moved = |number: &u64| extent(&store, *number).blocks != before[*number as usize];
        let moved = (0..600).filter(has_moved).count();
        assert!(moved < 200, "{moved} have moved");
        remove(&store, 7);
        store.close().unwrap();
    }
}

/// A device that does nothing more after so many flushes.
#[derive(Debug)]
struct Stops {
    memory: MemoryDevice,
    flushes: AtomicU64,
}

impl Stops {
    fn works(&self) -> Result<(), DeviceError> {
        match self.flushes.load(Ordering::SeqCst) {
            0 => {
                let source = std::io::Error::other("the power is off");
                Err(DeviceError::Io { call: "write", at: 0, len: 0, source })
            }
            _ => Ok(()),
        }
    }
}

impl Device for Stops {
    forward!(memory: read, discard, room, take_room, len, sector_size, reach, stats);

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.works().and_then(|()| self.memory.write(at, bytes))
    }

    fn flush(&self) -> Result<Flushed, DeviceError> {
        self.works()?;
        self.flushes.fetch_sub(1, Ordering::SeqCst);
        self.memory.flush()
    }
}

/// Where the host gives only a part of what would be written, nothing is, and the volume is what it was.
#[test]
fn a_full_host_refuses_before_anything_is_written() {
    for geometry in shapes(64 * MIB, 16384) {
        let device = small::formatted_as(geometry);
        let store = small::open(&device);
        assert_eq!(add(&store, 0..600, 16), 600, "37.5 MiB");
        let gone: Vec<_> = (0..200).map(|number| extent(&store, number).blocks).collect();
        (0..200).for_each(|number| remove(&store, number));
        store.close().unwrap();
        for BlockRange { start, count } in gone {
            device.write(start.0 * BLOCK_BYTES, &vec![0; (count * BLOCK_BYTES) as usize]).unwrap();
        }
        let size = named(shrink(&device, 8 * MIB).unwrap_err());
        let mut refusals = 0;
        for left in (0..).step_by(128 << 10) {
            let host = Arc::new(HostedDevice::new(&device, left));
            let done =
                holdfast_store::shrink(&(host.clone() as Arc<dyn Device>), size, &mut |_| ());
            let image = Arc::new(host.image());
            let store = small::open(&image);
            are_there(&store, &image, 200..600);
            assert_eq!(host.refused(), 0, "a write is refused with {left}");
            match done {
                Ok(_) => break,
                Err(StoreError::Refused(why)) if why.contains("the host has no room") => {}
                Err(error) => panic!("{left}: {error}"),
            }
            refusals += 1;
        }
        assert!(refusals > 2, "{refusals}");
    }
}

/// Not one pair is free in front of the new end: what needs them goes there in a second pass. Whenever it ends, all is there, and the next
/// one comes to the end.
#[test]
fn where_no_pair_is_free_all_is_there_whenever_it_ends() {
    let geometry = Geometry::for_device(256 * MIB, 16384).unwrap().with_root_copies().unwrap();
    let device = small::formatted_as(geometry);
    let store = small::open(&device);
    assert_eq!(add(&store, 0..600, 64), 600, "150 MiB");
    store.close().unwrap();
    let before = device.snapshot();
    let (mut sizes, mut is_done) = (Vec::new(), false);
    for flushes in 1.. {
        let stops = Stops { memory: before.snapshot(), flushes: AtomicU64::new(flushes) };
        let device = Arc::new(stops);
        let shared: Arc<dyn Device> = device.clone();
        is_done |= holdfast_store::shrink(&shared, 200 * MIB, &mut |_| ()).is_ok();
        let left = Arc::new(device.memory.snapshot());
        let store = small::open(&left);
        are_there(&store, &left, 0..600);
        sizes.push(store.space_use().total);
        store.close().unwrap();
        if is_done {
            break;
        }
        if *sizes.last().unwrap() == sizes[0] {
            assert_eq!(shrink(&left, 200 * MIB).unwrap(), 200 * MIB, "behind {flushes} flushes");
            are_there(&small::open(&left), &left, 0..600);
        }
    }
    assert!(sizes.len() > 6 && sizes.is_sorted_by(|one, next| one >= next), "{sizes:?}");
}

/// At many a fill, in one piece or with holes: what is named is not what was asked for, and can be.
#[test]
fn the_size_that_is_named_can_be() {
    let mut is_named = 0;
    for node_size in [4096, 16384] {
        for geometry in shapes(64 * MIB, node_size) {
            for (files, blocks) in [(60, 40), (300, 16), (2500, 5), (4000, 3), (u64::MAX, 64)] {
                for holes in [0, 2, 5] {
                    is_named += u32::from(ask_and_shrink(geometry, (files, blocks), holes));
                }
            }
        }
    }
    assert!(is_named > 70, "of 90 {is_named}");
}

fn ask_and_shrink(geometry: Geometry, (files, blocks): (u64, u64), holes: u64) -> bool {
    let device = small::formatted_as(geometry);
    let store = small::open(&device);
    let files = add(&store, 0..files, blocks);
    let is_left = |number: &u64| holes == 0 || !number.is_multiple_of(holes);
    (0..files).filter(|number| !is_left(number)).for_each(|number| remove(&store, number));
    store.close().unwrap();
    let what = format!(
        "nodes of {}, {:?}, {files} files of {blocks}, holes {holes}",
        geometry.node_size,
        geometry.node_copies()
    );
    let asked = 8 * MIB;
    let size = match shrink(&device, asked) {
        Err(StoreError::Refused(why)) if why.ends_with("no smaller size than it has") => {
            return false;
        }
        refused => named(refused.expect_err(&what)),
    };
    assert!(asked < size && size < 64 * MIB, "{what}: {size}");
    let made = shrink(&device, size).unwrap_or_else(|error| panic!("{what}, {size}: {error}"));
    assert_eq!(made, size, "{what}");
    let store = small::open(&device);
    are_there(&store, &device, (0..files).filter(is_left));
    let first = (0..files).find(is_left).unwrap();
    remove(&store, first);
    store.checkpoint().unwrap();
    add(&store, first..first + 1, 1);
    are_there(&store, &device, (0..files).filter(is_left));
    store.close().unwrap();
    true
}

/// As small as it can be it has the pairs that its reserve wants, and what it gains then holds none: it takes more all the same.
#[test]
fn what_became_smaller_can_become_larger() {
    for (mib, node_size) in [(100, 16384), (158, 4096), (158, 16384), (230, 65536), (300, 16384)] {
        let geometry = Geometry::for_device(400 * MIB, node_size).unwrap();
        let device = small::formatted_as(geometry.with_root_copies().unwrap());
        let store = small::open(&device);
        let files = mib * MIB / (24 * BLOCK_BYTES);
        assert_eq!(add(&store, 0..files, 24), files);
        store.close().unwrap();
        let smallest = named(shrink(&device, mib * MIB).unwrap_err());
        shrink(&device, smallest).unwrap();
        let what = format!("{mib} MiB in {smallest} bytes, nodes of {node_size}");
        let store = small::open(&device);
        store.resize(NewSize::More(30 * MIB)).unwrap();
        // As a rename over a file.
        let renamed = store.reserve(Need::Grow { changes: 18, blocks: 0 });
        renamed.unwrap_or_else(|error| panic!("{what}: {error}"));
        let more = add(&store, files..files + 10_000, 24) - files;
        let part = more * 24 * BLOCK_BYTES * 100 / (30 * MIB);
        assert!(part >= 80, "{what}: {part} % of 30 MiB more");
        are_there(&store, &device, 0..files + more);
        (0..files + more).for_each(|number| remove(&store, number));
        store.close().unwrap();
    }
}

/// `main` names but the first blocks of an extent of a snapshot, in front of the new end, and nothing else there: these move with the others.
#[test]
fn a_part_of_what_moves_moves_with_it() {
    let geometry = Geometry::for_device(128 * MIB, 4096).unwrap();
    let device = small::formatted_as(geometry);
    let store = small::open(&device);
    assert_eq!(add(&store, 0..600, 24), 600, "56 MiB");
    (0..200).for_each(|number| remove(&store, number));
    store.snapshot(1, b"all", Timestamp { secs: 1, nanos: 0 }).unwrap();
    let starts: BTreeMap<_, _> =
        (200..600).map(|number| (extent(&store, number).blocks.start.0, number)).collect();
    // The data zone ends at a multiple of 16 blocks, here in the midst of an extent.
    let is_cut = |(start, number): &(&u64, &u64)| *start % 16 == 8 && **number % 9 != 8;
    let (start, cut) = starts.iter().skip(350).find(is_cut).unwrap();
    for number in starts.range(start..).map(|(_, number)| *number) {
        if number != *cut {
            remove(&store, number);
            continue;
        }
        let mut whole = extent(&store, number);
        let BlockRange { start: BlockNo(first), count } = whole.blocks;
        let mut room = store.reserve(Need::Shrink { changes: 40 }).unwrap();
        let mut transaction = Transaction::new();
        let rest = BlockRange::new(BlockNo(first + 5), count - 5);
        transaction.free(rest, whole.birth, key(number));
        whole.blocks.count = 5;
        whole.sums.truncate(5);
        transaction.put(key(number), whole.encode());
        store.apply(transaction, &mut room).unwrap();
    }
    store.close().unwrap();
    let end = start + 8;
    let blocks =
        (end..).find(|blocks| Geometry { volume_blocks: *blocks, ..geometry }.far_copy().0 == end);
    let bytes = blocks.unwrap() * BLOCK_BYTES;
    assert_eq!(shrink(&device, bytes).unwrap(), bytes);
    let store = small::open(&device);
    assert!(extent(&store, *cut).blocks.start.0 < *start, "it has moved");
    add(&store, 1000..2000, 24);
    let kept = starts.range(..=start).map(|(_, number)| *number);
    are_there(&store, &device, kept);
    store.close().unwrap();
}
