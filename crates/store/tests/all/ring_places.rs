//! Rings that stand twice: what one place of a frame or a batch has lost is read from the other, and costs no flush.

use std::sync::Arc;

use holdfast_base::BlockRange;
use holdfast_base::counters::Counters;
use holdfast_base::units::{BLOCK_BYTES, BlockNo};
use holdfast_check::{Issue, Options};
use holdfast_device::sim::images::Policy;
use holdfast_device::sim::{Action, Call, Faults, When};
use holdfast_device::{Device, MemoryDevice, SimDevice};
use holdfast_format::Geometry;
use holdfast_format::journal::FrameHeader;
use holdfast_format::log::LogHeader;
use holdfast_sim::agree_on_log;
use holdfast_store::{Branch, OpenOptions, Store};

use crate::small;

pub(crate) const COMMITTED: u64 = 40;
pub(crate) const LOGGED: u64 = 24;

pub(crate) fn geometry() -> Geometry {
    let plain = small::geometry().with_ring_blocks(512, 256);
    plain.with_copies().unwrap()
}

/// A volume in use: some commits in the journal, a batch for each of the last operations in the log, all acknowledged.
pub(crate) fn in_use_as(geometry: Geometry) -> (Arc<MemoryDevice>, Branch) {
    let device = small::formatted_as(geometry);
    let store = small::open(&device);
    for number in 0..COMMITTED {
        small::put(&store, number..number + 1, 7, 9);
        if number % 10 == 9 {
            store.commit().unwrap();
        }
    }
    for number in COMMITTED..COMMITTED + LOGGED {
        small::put(&store, number..number + 1, 7, 9);
        small::sync(&store);
    }
    assert_eq!(store.counters().checkpoints.get(), 0, "the journal is behind a superblock");
    (device, store)
}

/// The same when it has lost power.
pub(crate) fn crashed_as(geometry: Geometry) -> MemoryDevice {
    let (device, store) = in_use_as(geometry);
    let left = device.snapshot();
    drop(store);
    left
}

/// Everything that was acknowledged is there, for readers and writers, and the check sees the same.
fn is_whole(device: &MemoryDevice, what: &str) {
    agree_on_log(device).unwrap_or_else(|why| panic!("{what}: {why}"));
    let options = OpenOptions { read_only: true, threads: false, ..OpenOptions::default() };
    for read_only in [true, false] {
        let image = Arc::new(device.snapshot());
        let options = OpenOptions { read_only, ..options.clone() };
        let store = Store::open(image.clone(), &options, Arc::new(Counters::default()))
            .unwrap_or_else(|error| panic!("{what}: {error}"))
            .into_main();
        for number in 0..COMMITTED + LOGGED {
            assert_eq!(small::first(&store, number), Some(7), "{what}: value {number}");
        }
        if !read_only {
            // And it goes on from there.
            small::put(&store, 0..10, 8, 8);
            small::sync(&store);
            let left = image.snapshot();
            drop(store);
            let again = small::open(&Arc::new(left));
            assert_eq!(small::first(&again, 9), Some(8), "{what}");
        }
    }
}

/// Where batches of the log and frames of the journal begin in their first places, and their bytes, in the order of their numbers. Markers are
/// none.
pub(crate) fn batches_and_frames(image: &MemoryDevice) -> [Vec<(u64, u64)>; 2] {
    let mut found = [Vec::new(), Vec::new()];
    let read = |zone: BlockRange| {
        let mut bytes = vec![0; zone.bytes().unwrap() as usize];
        image.read(zone.start.0 * BLOCK_BYTES, &mut bytes).unwrap();
        bytes
    };
    let start = |zone: BlockRange| zone.start.0 * BLOCK_BYTES;
    let log = geometry().log();
    for (at, unit) in (0..).step_by(512).zip(read(log).chunks(512)) {
        if let Ok(header) = LogHeader::decode(unit)
            && header.address == at
            && header.records > 0
        {
            found[0].push((start(log) + at, header.bytes.into()));
        }
    }
    let journal = geometry().journal();
    for (at, block) in (start(journal)..).step_by(4096).zip(read(journal).chunks(4096)) {
        if let Ok(header) = FrameHeader::decode(block)
            && header.len > 0
        {
            found[1].push((at, header.blocks() * BLOCK_BYTES));
        }
    }
    found
}

pub(crate) fn distance() -> u64 {
    geometry().ring_distance * BLOCK_BYTES
}

pub(crate) fn fill(image: &MemoryDevice, at: u64, len: u64, with: u8) {
    image.write(at, &vec![with; len as usize]).unwrap();
}

/// Both rings, in the first place or the second.
fn place(second: bool) -> (u64, u64) {
    let rings = (geometry().log_blocks + geometry().journal_blocks) * BLOCK_BYTES;
    let start = geometry().log().start.0 * BLOCK_BYTES;
    (if second { start + distance() } else { start }, rings)
}

#[test]
fn both_places_have_the_same() {
    let image = crashed_as(geometry());
    let [batches, frames] = batches_and_frames(&image);
    assert!(batches.len() >= LOGGED as usize && frames.len() >= 4, "{batches:?} {frames:?}");
    let bytes = |second: bool| {
        let (at, len) = place(second);
        let mut bytes = vec![0; len as usize];
        image.read(at, &mut bytes).unwrap();
        bytes
    };
    assert!(bytes(false) == bytes(true));
    is_whole(&image, "nothing is damaged");
}

/// P1: one place may lose everything, whichever it is and however.
#[test]
fn whichever_place_is_lost_everything_acknowledged_is_there() {
    let sound = crashed_as(geometry());
    for second in [false, true] {
        for with in [0, 0xff] {
            let image = sound.snapshot();
            let (at, len) = place(second);
            fill(&image, at, len, with);
            is_whole(&image, &format!("second {second}, filled with {with}"));
        }
    }
}

/// Of each batch and each frame another place is bad than of the one before.
#[test]
fn the_places_serve_by_turns_and_the_check_says_which_are_bad() {
    let sound = crashed_as(geometry());
    for first in [0, 1] {
        let image = sound.snapshot();
        for (index, (at, len)) in (first..).zip(batches_and_frames(&sound).concat()) {
            fill(&image, at + distance() * (index % 2), len.min(512), 0xaa);
        }
        is_whole(&image, "by turns");
        let report = holdfast_check::check(&image, &Options::default()).unwrap();
        let is_place = |issue: &u16| {
            [Issue::FramePlaceBad, Issue::BatchPlaceBad].iter().any(|it| it.number() == *issue)
        };
        let found: Vec<u16> = report.findings.iter().map(|finding| finding.id).collect();
        // The values here are no items, which it says as well.
        let found: Vec<u16> = found.into_iter().filter(is_place).collect();
        let batches = found.iter().filter(|it| **it == Issue::BatchPlaceBad.number()).count();
        // Nothing says of the last one that it was durable: a crash may leave it so.
        assert_eq!(batches as u64, LOGGED - 1);
        assert!(found.len() > batches, "{found:?}");
    }
}

#[test]
fn what_a_device_does_not_read_is_read_from_the_other_place() {
    let sound = crashed_as(geometry());
    for second in [false, true] {
        let (start, len) = place(second);
        let inside = When::Inside { start, end: start + len, skip: 0, times: u64::MAX };
        let faults = Faults::none().with(Call::Read, inside, Action::Fail);
        let store = small::open(&Arc::new(SimDevice::with_faults(&sound, faults)));
        for number in 0..COMMITTED + LOGGED {
            assert_eq!(small::first(&store, number), Some(7), "second {second}: value {number}");
        }
    }
}

/// P3: what both places have lost is missed, whichever place has the proof.
#[test]
fn a_hole_in_both_places_is_found_by_either() {
    let sound = crashed_as(geometry());
    for (kind, of) in batches_and_frames(&sound).iter().enumerate() {
        let (at, len) = of[of.len() / 2];
        for second in [false, true] {
            let image = sound.snapshot();
            fill(&image, at, len, 0);
            fill(&image, at + distance(), len, 0);
            // What lies behind it is left in one place only.
            let (start, rings) = place(second);
            let shift = if second { distance() } else { 0 };
            fill(&image, at + shift, start + rings - (at + shift), 0);
            let refused = small::try_open(&Arc::new(image.snapshot()));
            assert!(refused.is_err(), "kind {kind}, second place {second}");
            let report = holdfast_check::check(&image, &Options::default()).unwrap();
            let issue = [Issue::LogDamaged, Issue::JournalDamaged][kind];
            let mut numbers = report.findings.iter().map(|finding| finding.id);
            assert!(numbers.any(|it| it == issue.number()), "kind {kind}, second {second}");
        }
    }
}

/// The frame that says that the volume was left in order, where one place has it still and a commit follows in the other.
#[test]
fn a_frame_of_the_end_that_is_stale_ends_nothing() {
    let device = small::formatted_as(geometry());
    small::open(&device).close().unwrap();
    let closed = device.snapshot();
    let store = small::open(&device);
    small::put(&store, 0..3, 5, 5);
    store.commit().unwrap();
    let left = device.snapshot();
    drop(store);
    for second in [false, true] {
        let image = left.snapshot();
        let (at, len) = place(second);
        let mut stale = vec![0; len as usize];
        closed.read(at, &mut stale).unwrap();
        image.write(at, &stale).unwrap();
        agree_on_log(&image).unwrap();
        let store = small::open(&Arc::new(image));
        assert_eq!(small::first(&store, 2), Some(5), "second {second}");
    }
}

/// Power fails at each call; what had returned is there, and so is it when one place is lost besides. The volume goes on.
#[test]
fn power_that_fails_between_the_two_writes_takes_nothing() {
    let formatted = small::formatted_as(geometry());
    let device = Arc::new(SimDevice::new(&formatted));
    let store = small::open(&device);
    let mut acknowledged = Vec::new();
    for number in 0..6 {
        small::put(&store, number..number + 1, 7, 9);
        match number {
            3 => {
                store.commit().unwrap();
            }
            _ => small::sync(&store),
        }
        acknowledged.push(device.recording().events.len());
    }
    drop(store);
    let recording = device.recording();
    let mut cut = recording.start();
    let mut looked = 0;
    for index in 0..=acknowledged[5] {
        let durable = acknowledged.iter().filter(|at| **at <= index).count() as u64;
        let policy = Policy { exhaustive: 3, each: 3, samples: 2, torn: 3, seed: 1 };
        for left in cut.images(&policy) {
            let what = format!("call {index}: {}", left.describe());
            let image = left.device();
            agree_on_log(&image).unwrap_or_else(|why| panic!("{what}: {why}"));
            for lost in [None, Some(false), Some(true)] {
                let image = Arc::new(image.snapshot());
                if let Some(second) = lost {
                    let (at, len) = place(second);
                    fill(&image, at, len, 0);
                }
                let store = small::open(&image);
                let found = (0..6).take_while(|it| small::first(&store, *it) == Some(7)).count();
                assert!(found as u64 >= durable, "{what}, lost {lost:?}: {found} of {durable}");
                // No older batch follows from what is written now.
                small::put(&store, 20..21, 3, 3);
                small::sync(&store);
                let again = Arc::new(image.snapshot());
                drop(store);
                let again = small::open(&again);
                assert_eq!(small::first(&again, 20), Some(3), "{what}, lost {lost:?}");
                let later = (0..6).take_while(|it| small::first(&again, *it) == Some(7)).count();
                assert_eq!(later, found, "{what}, lost {lost:?}: something came back");
                looked += 1;
            }
        }
        if let Some(event) = recording.events.get(index) {
            cut.advance(event);
        }
    }
    assert!(looked > 100, "{looked}");
}

/// A volume that was made before rings stood twice keeps one place of each.
#[test]
fn a_volume_with_copies_of_nodes_alone_goes_on_working() {
    let geometry = Geometry { ring_distance: 0, ..geometry() }.with_ring_blocks(512, 256);
    assert_eq!(geometry.node_copies(), (2, 2));
    let image = crashed_as(geometry);
    is_whole(&image, "rings stand once");
    let first = BlockNo(geometry.first_data_block().0);
    assert_eq!(first, geometry.journal().end().unwrap());
}
