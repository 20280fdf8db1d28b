//! What a host has given before a volume was opened is found again, whatever of its pieces that is: a full host gives nothing
//! besides, and what removals need is there (P8).

use std::sync::Arc;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockRange, InodeNo};
use holdfast_device::Device;
use holdfast_device::sim::HostedDevice;
use holdfast_format::item::Extent;
use holdfast_format::limits::GROUP_BLOCKS;
use holdfast_format::{Geometry, ItemKind, Key};
use holdfast_store::{Branch, Need, StoreError, Transaction};

use super::{formatted_as, not_new, open, shapes};

/// What an unlink asks for.
pub(super) const UNLINK: Need = Need::Shrink { changes: 40 };

pub(super) fn key(number: u64) -> Key {
    Key::new(InodeNo(50), ItemKind::Extent, number)
}

/// Makes a file of so many blocks, and writes it.
pub(super) fn add(store: &Branch, host: &HostedDevice, number: u64, want: u64) -> BlockRange {
    let mut room = store.reserve(Need::Grow { changes: 1, blocks: want }).unwrap();
    let placed = store.allocate(&mut room, want, None).unwrap();
    let mut transaction = Transaction::new();
    let extent = transaction.publish_unwritten(placed);
    transaction.put(key(number), extent.encode());
    transaction.count_inodes(1);
    store.apply(transaction, &mut room).unwrap();
    let bytes = vec![7; (extent.blocks.count * BLOCK_BYTES) as usize];
    host.write(extent.blocks.start.0 * BLOCK_BYTES, &bytes).unwrap();
    extent.blocks
}

pub(super) fn remove(store: &Branch, number: u64, blocks: BlockRange) {
    let mut room = store.reserve(UNLINK).unwrap();
    let mut transaction = Transaction::new();
    transaction.delete(key(number));
    transaction.count_inodes(-1);
    transaction.free(blocks, Extent::UNBORN, key(number));
    store.apply(transaction, &mut room).unwrap();
}

/// A volume in which every second small file was removed before the host became full.
pub(super) fn on_a_full_host(geometry: Geometry) -> (Arc<HostedDevice>, Vec<(u64, BlockRange)>) {
    let host = Arc::new(HostedDevice::new(&formatted_as(geometry), 1 << 30));
    let store = open(host.clone());
    // The root: it stays.
    add(&store, &host, 400, 1);
    let files = (0..400).map(|number| (number, add(&store, &host, number, 1 + number % 13)));
    let files: Vec<_> = files.collect();
    let (gone, left) = files.into_iter().partition(|(number, _)| number % 4 != 0);
    let gone: Vec<_> = gone;
    gone.into_iter().for_each(|(number, blocks)| remove(&store, number, blocks));
    store.close().unwrap();
    host.exhaust();
    (host, left)
}

#[test]
fn files_are_removed_on_a_full_host_between_openings() {
    for geometry in shapes(300 << 20) {
        let (host, files) = on_a_full_host(geometry);
        for (number, blocks) in files {
            let store = open(host.clone());
            remove(&store, number, blocks);
            store.close().unwrap();
        }
        assert_eq!(host.refused(), 0);
    }
}

/// Every second place of a group in which nothing is in use, and its other one.
#[test]
fn single_places_are_found_in_idle_pieces() {
    for geometry in shapes(300 << 20) {
        let host = Arc::new(HostedDevice::new(&not_new(formatted_as(geometry)), 1 << 30));
        open(host.clone()).close().unwrap();
        let place = geometry.node_blocks();
        for first in (0..800).step_by(2).map(|at| GROUP_BLOCKS + at * place) {
            for start in [first, first ^ geometry.copy_mask] {
                host.take_room(start * BLOCK_BYTES, place * BLOCK_BYTES).unwrap();
            }
        }
        host.exhaust();
        let store = open(host);
        drop(store.reserve(UNLINK).unwrap());
    }
}

#[test]
fn files_are_removed_on_a_full_host_behind_a_trim() {
    for geometry in shapes(300 << 20) {
        let (host, files) = on_a_full_host(geometry);
        let store = open(host.clone());
        store.trim(0, |_| true).unwrap();
        store.close().unwrap();
        for (number, blocks) in files {
            // What goes back is another's.
            host.exhaust();
            let store = open(host.clone());
            remove(&store, number, blocks);
            store.close().unwrap();
        }
        assert_eq!(host.refused(), 0);
    }
}

/// A size that cannot be leaves what the next removal needs, and one that can be is reached when the host has room.
#[test]
fn a_volume_becomes_smaller_when_its_host_has_room() {
    for geometry in shapes(300 << 20) {
        let (host, files) = on_a_full_host(geometry);
        let device: Arc<dyn Device> = host.clone();
        let refused = holdfast_store::shrink(&device, 200 << 20, &mut |_| ()).unwrap_err();
        assert!(matches!(refused, StoreError::Refused(_)), "{refused}");
        let store = open(host.clone());
        remove(&store, files[0].0, files[0].1);
        store.close().unwrap();
        host.give(48 << 20);
        assert_eq!(holdfast_store::shrink(&device, 200 << 20, &mut |_| ()).unwrap(), 200 << 20);
        let store = open(host.clone());
        files[1..].iter().for_each(|(number, blocks)| {
            assert!(store.get(&key(*number)).unwrap().is_some(), "{blocks:?}")
        });
        add(&store, &host, 1000, 100);
        store.close().unwrap();
    }
}
