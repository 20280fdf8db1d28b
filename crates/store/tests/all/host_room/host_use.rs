//! What a volume takes of its host, by what is in it: the same at any size, and whatever is stored twice.

use std::sync::Arc;
use std::time::Duration;

use holdfast_base::counters::Counters;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_device::Device;
use holdfast_device::sim::HostedDevice;
use holdfast_store::{Delayed, Need, OpenOptions, Store, StoreError, Transaction};

use super::given_before::{add, key, remove};
use super::{formatted_as, open, shapes};

const FILES: u64 = 1000;
const BLOCKS: u64 = 5;

/// While files wait to be written, the host gives room for all nodes that they may need. What they did not need goes back, and
/// nearly all else when they are removed.
#[test]
fn what_files_needed_only_while_they_waited_goes_back() {
    for geometry in [1 << 30, 4 << 30].into_iter().flat_map(shapes) {
        let geometry = geometry.with_first_rings();
        let host = Arc::new(HostedDevice::new(&formatted_as(geometry), 1 << 30));
        let options =
            OpenOptions { threads: false, discard_delay: Duration::ZERO, ..OpenOptions::default() };
        let device: Arc<dyn Device> = host.clone();
        let store =
            Store::open(device, &options, Arc::new(Counters::default())).unwrap().into_main();
        let delayed = Delayed { runs: 1, pages: BLOCKS };
        let need = Need::Delay { blocks: BLOCKS, growth: BLOCKS, delayed };
        let waiting: Vec<_> = (0..FILES).map(|_| store.reserve(need).unwrap()).collect();
        let most = host.given();
        let mut files = Vec::new();
        for mut room in waiting {
            while room.blocks() > 0 {
                let placed = store.allocate(&mut room, BLOCKS, None).unwrap();
                let bytes = vec![7; placed.blocks().bytes().unwrap() as usize];
                let written = store.write(placed, &bytes).map_err(StoreError::from).unwrap();
                let mut transaction = Transaction::new();
                let extent = transaction.publish(written);
                files.push(extent.blocks);
                transaction.put(key(files.len() as u64), extent.encode());
                transaction.count_inodes(1);
                let mut nodes = store.reserve(Need::Writeback { changes: 1 }).unwrap();
                store.apply(transaction, &mut nodes).unwrap();
            }
        }
        store.checkpoint().unwrap();
        drop(store.reserve(Need::Shrink { changes: 1 }).unwrap());
        let full = host.given();
        (1..).zip(&files).for_each(|(number, blocks)| remove(&store, number, *blocks));
        store.close().unwrap();
        println!("{most} while they wait, {full} written, {} removed", host.given());
        assert!(full <= FILES * BLOCKS * BLOCK_BYTES + (12 << 20), "{full}");
        assert!(host.given() <= 4 << 20, "{}", host.given());
    }
}

/// What a volume that was filled and emptied takes of its host at rest, trimmed or not: hardly more than a new one, and nothing that
/// its reserve was given for that.
#[test]
fn a_volume_that_was_filled_and_emptied_gives_the_room_back() {
    for (geometry, trims) in shapes(300 << 20).into_iter().zip([false, true, true]) {
        let geometry = geometry.with_first_rings();
        let host = Arc::new(HostedDevice::new(&formatted_as(geometry), 1 << 30));
        let store = open(host.clone());
        // The root, and 85 MB.
        add(&store, &host, 0, 1);
        let files: Vec<_> =
            (1..86).map(|number| (number, add(&store, &host, number, 244))).collect();
        store.checkpoint().unwrap();
        assert!(host.given() > 64 << 20, "{}", host.given());
        files.into_iter().for_each(|(number, blocks)| remove(&store, number, blocks));
        if trims {
            store.checkpoint().unwrap();
            store.trim(0, |_| true).unwrap();
        }
        store.close().unwrap();
        println!("{} bytes, trimmed: {trims}", host.given());
        assert!(host.given() <= 4 << 20, "{}", host.given());
    }
}
