//! A volume at rest becomes smaller: what it is told that it can have it can have, with all that was in it, and works there.

use std::ops::Range;
use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::item::Extent;
use holdfast_format::{Geometry, ItemKind, Key};
use holdfast_store::{Branch, Need, StoreError, Transaction};

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

/// At many a fill, in one piece or with holes: what is named is not what was asked for, and can be.
#[test]
fn the_size_that_is_named_can_be() {
    for node_size in [4096, 16384] {
        for geometry in shapes(64 * MIB, node_size) {
            for (files, blocks) in
                [(60, 40), (300, 16), (3000, 3), (2500, 5), (4000, 3), (u64::MAX, 64)]
            {
                for holes in [0, 2, 5] {
                    ask_and_shrink(geometry, (files, blocks), holes);
                }
            }
        }
    }
}

fn ask_and_shrink(geometry: Geometry, (files, blocks): (u64, u64), holes: u64) {
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
        Err(StoreError::Refused(why)) if why.ends_with("no smaller size than it has") => return,
        refused => named(refused.expect_err(&what)),
    };
    assert!(asked < size && size < 64 * MIB, "{what}: {size}");
    let made = shrink(&device, size).unwrap_or_else(|error| panic!("{what}, {size}: {error}"));
    assert_eq!(made, size, "{what}");
    println!("{what}: {} MiB", size / MIB);
    let store = small::open(&device);
    are_there(&store, &device, (0..files).filter(is_left));
    let first = (0..files).find(is_left).unwrap();
    remove(&store, first);
    store.checkpoint().unwrap();
    add(&store, first..first + 1, 1);
    are_there(&store, &device, (0..files).filter(is_left));
    store.close().unwrap();
}
