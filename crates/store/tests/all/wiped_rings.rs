//! Rings that were used and hold nothing any more: a volume is not taken for one that ended with its last checkpoint, and no crash
//! makes one look so.

use std::sync::Arc;

use holdfast_base::counters::Counters;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo, BlockRange};
use holdfast_check::{Issue, Options};
use holdfast_device::sim::Policy;
use holdfast_device::{Device, MemoryDevice, SimDevice};
use holdfast_format::Geometry;
use holdfast_format::journal::FrameHeader;
use holdfast_format::log::LogHeader;
use holdfast_store::{OpenOptions, Store};

use crate::ring_places::{crashed_as, fill, geometry};
use crate::small;

/// Both shapes of rings: with one place, and with two.
fn shapes() -> [Geometry; 2] {
    [small::geometry().with_ring_blocks(512, 256), geometry()]
}

/// What is found of the rings: the values of these tests are no files.
fn issues(device: &MemoryDevice) -> Vec<u16> {
    let report = holdfast_check::check(device, &Options::default()).unwrap();
    let of_rings = 800..1000;
    report.findings.iter().map(|it| it.id).filter(|id| of_rings.contains(id)).collect()
}

fn wipe(device: &MemoryDevice, of: &Geometry, ring: BlockRange, with: u8) {
    for distance in of.ring_places() {
        fill(device, (ring.start.0 + distance) * BLOCK_BYTES, ring.bytes().unwrap(), with);
    }
}

/// It says that it was wiped, and can be read.
fn is_refused(device: &MemoryDevice, issue: Issue, what: &str) {
    assert_eq!(issues(device), [issue.number()], "{what}");
    let image = Arc::new(device.snapshot());
    let error = Store::open(image.clone(), &OpenOptions::default(), Arc::default()).unwrap_err();
    assert!(error.to_string().contains("wiped"), "{what}: {error}");
    let options = OpenOptions { read_only: true, threads: false, ..OpenOptions::default() };
    let store = Store::open(image, &options, Arc::new(Counters::default())).unwrap();
    assert!(store.missing().is_some_and(|why| why.contains("wiped")), "{what}");
}

#[test]
fn a_ring_that_was_wiped_is_missed() {
    for geometry in shapes() {
        for with in [0, 0xa5] {
            let crashed = crashed_as(geometry);
            let journal = crashed.snapshot();
            wipe(&journal, &geometry, geometry.journal(), with);
            is_refused(&journal, Issue::JournalWiped, "the journal");
            let log = crashed.snapshot();
            wipe(&log, &geometry, geometry.log(), with);
            is_refused(&log, Issue::LogWiped, "the log");
            wipe(&log, &geometry, geometry.journal(), with);
            is_refused(&log, Issue::JournalWiped, "both");
        }
    }
}

/// Behind a recovery the rings hold nothing that is needed but what the marks name.
#[test]
fn a_ring_that_is_wiped_behind_a_recovery_is_missed() {
    for geometry in shapes() {
        let recovered = Arc::new(crashed_as(geometry));
        let left = {
            let store = small::open(&recovered);
            let left = recovered.snapshot();
            drop(store);
            left
        };
        assert_eq!(issues(&left), [0; 0]);
        for (ring, issue) in
            [(geometry.journal(), Issue::JournalWiped), (geometry.log(), Issue::LogWiped)]
        {
            let image = left.snapshot();
            wipe(&image, &geometry, ring, 0);
            is_refused(&image, issue, "behind a recovery");
        }
    }
}

/// One that was closed has nothing in its rings that could be missed.
#[test]
fn a_volume_that_was_closed_needs_no_log() {
    let geometry = small::geometry();
    let device = small::formatted_as(geometry);
    let store = small::open(&device);
    small::put(&store, 0..10, 7, 9);
    small::sync(&store);
    store.close().unwrap();
    wipe(&device, &geometry, geometry.log(), 0);
    assert_eq!(issues(&device), [0; 0]);
    // And from then on it has a marker there.
    let store = small::open(&device);
    let left = device.snapshot();
    drop(store);
    assert_eq!(issues(&left), [0; 0]);
    wipe(&left, &geometry, geometry.log(), 0);
    is_refused(&left, Issue::LogWiped, "wiped twice");
}

/// Where the frame and the batch begin that the marks of the newest superblock name, on the device, and their bytes.
fn before_marks(device: &MemoryDevice, store: &Store) -> [(u64, u64); 2] {
    let superblock = store.superblock();
    let (journal, log) = (superblock.journal, superblock.log);
    let geometry = superblock.geometry;
    let mut found = [(0, 0); 2];
    let mut unit = [0; BLOCK_SIZE];
    for block in geometry.journal().start.0..journal.next.0 {
        device.read(block * BLOCK_BYTES, &mut unit).unwrap();
        if FrameHeader::decode(&unit).is_ok_and(|it| it.sum == journal.sum) {
            found[0] = (block * BLOCK_BYTES, (journal.next.0 - block) * BLOCK_BYTES);
        }
    }
    let start = geometry.log().start.0 * BLOCK_BYTES;
    for at in (0..log.next).step_by(512) {
        device.read(start + at, &mut unit[..512]).unwrap();
        if LogHeader::decode(&unit[..512]).is_ok_and(|it| it.sum == log.sum) {
            found[1] = (start + at, log.next - at);
        }
    }
    assert!(found.iter().all(|(at, _)| *at != 0), "{found:?}");
    found
}

/// A byte that rots in what lies before a mark, with nothing behind it, costs nothing. More may hide what followed.
#[test]
fn a_byte_that_rots_before_a_mark_is_no_wiped_ring() {
    for is_marker in [true, false] {
        let device = small::formatted_as(small::geometry().with_ring_blocks(512, 256));
        let store = small::open(&device);
        if !is_marker {
            small::put(&store, 0..40, 7, 9);
            small::sync(&store);
            store.commit().unwrap();
            store.checkpoint().unwrap();
        }
        let image = device.snapshot();
        let places = before_marks(&image, store.store());
        drop(store);
        assert_eq!(issues(&image), [0; 0]);
        let all = [Issue::JournalWiped, Issue::LogWiped];
        for ((from, len), issue) in places.into_iter().zip(all) {
            let header = (0..112).chain((112..len).step_by(509));
            for at in header.map(|at| from + at) {
                let what = format!("{issue:?}, byte {at} of {from} and {len}");
                let rotten = image.snapshot();
                change(&rotten, at);
                assert_eq!(issues(&rotten), [0; 0], "{what}");
                let rotten = Arc::new(rotten);
                let options = OpenOptions { threads: false, ..OpenOptions::default() };
                let opened = Store::open(rotten.clone(), &options, Arc::default());
                drop(opened.unwrap_or_else(|error| panic!("{what}: {error}")));
            }
            let rotten = image.snapshot();
            change(&rotten, from + 12);
            change(&rotten, from + 40);
            is_refused(&rotten, issue, "two bytes have changed");
        }
    }
}

fn change(device: &MemoryDevice, at: u64) {
    let (sector, byte) = (at / 512 * 512, (at % 512) as usize);
    let mut bytes = [0; 512];
    device.read(sector, &mut bytes).unwrap();
    bytes[byte] ^= 0x24;
    device.write(sector, &bytes).unwrap();
}

/// Power takes a batch that no caller waited for and leaves the commit behind it, whose mark names that batch; then it fails again, at
/// every write of the recovery (P9).
#[test]
fn a_recovery_without_the_batch_of_its_mark_is_no_wiped_log() {
    for geometry in shapes() {
        let device = small::formatted_as(geometry);
        let store = small::open(&device);
        small::put(&store, 0..10, 7, 9);
        small::sync(&store);
        store.commit().unwrap();
        small::put(&store, 10..20, 7, 9);
        let before = small::sectors(&device, geometry.log());
        store.append().unwrap();
        let after = small::sectors(&device, geometry.log());
        store.commit().unwrap();
        let upto = store.latest();
        let left = device.snapshot();
        drop(store);
        let lost: Vec<usize> = (0..before.len()).filter(|&at| before[at] != after[at]).collect();
        assert!(!lost.is_empty());
        for distance in geometry.ring_places() {
            let start = BlockNo(geometry.log().start.0 + distance);
            let ring = BlockRange::new(start, geometry.log().count);
            small::write_sectors(&left, ring, &before, &lost);
        }
        assert_eq!(issues(&left), [0; 0]);
        let sim = Arc::new(SimDevice::new(&left));
        let options = OpenOptions { threads: false, ..OpenOptions::default() };
        drop(Store::open(sim.clone(), &options, Arc::default()).unwrap());
        let recording = sim.recording();
        let (mut cut, mut images) = (recording.start(), 0);
        for event in recording.events.iter().filter(|event| event.changes_images()) {
            cut.advance(event);
            for image in
                cut.images(&Policy { exhaustive: 3, each: 3, samples: 2, torn: 2, seed: 1 })
            {
                let what = format!("at {}: {}", cut.index(), image.describe());
                let image = image.device();
                assert_eq!(issues(&image), [0; 0], "{what}");
                let opened = Store::open(Arc::new(image), &options, Arc::default());
                let store = opened.unwrap_or_else(|error| panic!("{what}: {error}")).into_main();
                assert_eq!(store.latest(), upto, "{what}");
                images += 1;
            }
        }
        assert!(images > 10, "{images}");
    }
}
