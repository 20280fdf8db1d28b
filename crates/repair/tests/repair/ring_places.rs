//! Rings that stand twice: a place that lacks what a recovery reads gets it back from the other one, and the volume stays what it is.

use std::collections::BTreeSet;
use std::io::Cursor;
use std::sync::Arc;

use holdfast::{CreateOptions, VolumeOptions};
use holdfast_base::BLOCK_SIZE;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_check::{Facts, Issue};
use holdfast_device::{Device, MemoryDevice, SimDevice};
use holdfast_format::Geometry;
use holdfast_format::journal::FrameHeader;
use holdfast_format::log::LogHeader;
use holdfast_repair::{RepairOptions, Undo};

use crate::every_finding::{Healing, found, planned};
use crate::power_cuts::each_cut;

const BYTES: u64 = 16 << 20;
const FILES: usize = 12;
const CAREFUL: RepairOptions = RepairOptions { data: true, accept_loss: false };

fn geometry() -> Geometry {
    let plain = Geometry::for_device(BYTES, 4096).expect("it is large enough");
    plain.with_copies().expect("it is large enough for copies")
}

fn distance() -> u64 {
    geometry().ring_distance * BLOCK_BYTES
}

fn content_of(number: usize) -> Vec<u8> {
    vec![number as u8; 700 * number]
}

/// A volume that lost power with commits in its journal and batches in its log.
fn crashed() -> MemoryDevice {
    let device = Arc::new(MemoryDevice::new(BYTES));
    let target: Arc<dyn Device> = device.clone();
    let options = CreateOptions::new().node_size(4096).metadata_copies(2);
    options.format(&target).expect("it is large enough");
    let volume = VolumeOptions::new().commit_secs(0).open_device(target).expect("it is sound");
    for number in 0..3 {
        volume.write(format!("/early-{number}"), [7; 300]).expect("there is room");
        volume.commit().expect("memory takes it");
    }
    for number in 0..FILES {
        let mut file = volume.create(format!("/file-{number}")).expect("there is room");
        std::io::Write::write_all(&mut file, &content_of(number)).expect("there is room");
        file.sync_all().expect("memory takes it");
    }
    let left = device.snapshot();
    drop(volume);
    let facts = found(&left).facts;
    assert!(facts.journal_commits >= 3 && facts.log_batches >= FILES as u64, "{facts:#?}");
    left
}

/// All that was acknowledged is there.
fn is_whole(device: &MemoryDevice, what: &str) {
    let device: Arc<dyn Device> = Arc::new(device.snapshot());
    let volume = VolumeOptions::new().commit_secs(0).open_device(device);
    let volume = volume.unwrap_or_else(|error| panic!("{what}: {error}"));
    for number in 0..FILES {
        let read = volume.read(format!("/file-{number}")).expect("it was synced");
        assert!(read == content_of(number), "{what}: file {number}");
    }
}

/// The batches of the log, and the frames of the journal, that a recovery may read: where they begin in their first places, and bytes.
fn parts(image: &MemoryDevice) -> [Vec<(u64, u64)>; 2] {
    let mut bytes = vec![0; BYTES as usize];
    image.read(0, &mut bytes).expect("it is inside");
    let (log, journal) = (geometry().log(), geometry().journal());
    let start = log.start.0 * BLOCK_BYTES;
    let units = (0..log.count * BLOCK_BYTES).step_by(512);
    let batch = |at: u64| {
        let header = LogHeader::decode(&bytes[(start + at) as usize..][..512]).ok()?;
        let is_there = header.address == at && header.records > 0;
        is_there.then_some((start + at, u64::from(header.bytes)))
    };
    let blocks = journal.start.0..journal.start.0 + journal.count;
    let frame = |block: u64| {
        let at = block * BLOCK_BYTES;
        let header = FrameHeader::decode(&bytes[at as usize..][..BLOCK_SIZE]).ok()?;
        let is_there = header.address == block && header.len > 0;
        is_there.then_some((at, header.blocks() * BLOCK_BYTES))
    };
    [units.filter_map(batch).collect(), blocks.filter_map(frame).collect()]
}

/// What a recovery takes from the rings.
fn recovered(facts: &Facts) -> (u64, u64, u64, u64) {
    (facts.journal_commits, facts.journal_bytes_used, facts.log_batches, facts.log_bytes_used)
}

/// Which place is bad: the first, the second, or one and the other by turns.
const WHICH: [[u64; 2]; 4] = [[0, 0], [1, 1], [0, 1], [1, 0]];

fn damaged(
    sound: &MemoryDevice,
    ring: usize,
    which: [u64; 2],
    damage: impl Fn(&mut Vec<u8>),
) -> MemoryDevice {
    let image = sound.snapshot();
    for (index, (at, len)) in parts(sound)[ring].iter().enumerate() {
        let at = at + distance() * which[index % 2];
        let mut bytes = vec![0; *len as usize];
        image.read(at, &mut bytes).expect("it is inside");
        damage(&mut bytes);
        image.write(at, &bytes).expect("it is inside");
    }
    image
}

/// Behind a repair each place of the ring has all of it: the other one may go.
fn each_place_is_enough(device: &MemoryDevice, ring: usize, what: &str) {
    for place in 0..2 {
        // What nothing proves to be durable may be in one place alone, as before.
        let half = damaged(device, ring, [place; 2], |bytes| bytes.fill(0xff));
        is_whole(&half, &format!("{what}, without place {place}"));
    }
}

#[test]
fn a_bad_place_is_written_again_from_the_other_one() {
    let sound = crashed();
    let before = recovered(&found(&sound).facts);
    for (ring, issue) in [Issue::BatchPlaceBad, Issue::FramePlaceBad].into_iter().enumerate() {
        for which in WHICH {
            for with in [0, 1, 2] {
                let what = format!("ring {ring}, places {which:?}, damage {with}");
                let device = damaged(&sound, ring, which, |bytes| match with {
                    0 => bytes.fill(0),
                    1 => bytes[70] ^= 1,
                    _ => bytes.reverse(),
                });
                let report = found(&device);
                let plan = planned(&device, &CAREFUL).unwrap_or_else(|why| panic!("{what}: {why}"));
                assert_eq!(plan.repairs.len(), 1, "{what}: {:#?}", plan.repairs);
                assert!(plan.repairs[0].issue == issue && !plan.loses(), "{what}");
                let said = plan.repairs[0].to_string();
                assert!(said.contains("written again from the other one"), "{said}");
                assert!(plan.write(&device).expect("memory takes it").is_empty());
                let after = found(&device);
                assert!(after.findings.is_empty(), "{what}: {:#?}", after.findings);
                assert_eq!(recovered(&after.facts), before, "{what}");
                assert!(
                    report.findings.iter().all(|it| it.issue() == issue),
                    "{what}: {report:#?}"
                );
                // What nothing proves to be durable, the last of each, may be in one place as before.
                let left: BTreeSet<u64> = differing(&sound, &device, ring);
                assert!(left.len() <= 1, "{what}: {left:?} of {:?}", parts(&sound)[ring]);
                is_whole(&device, &what);
            }
        }
    }
}

/// Where batches or frames begin that differ in their places.
fn differing(sound: &MemoryDevice, device: &MemoryDevice, ring: usize) -> BTreeSet<u64> {
    let of = parts(sound)[ring].clone();
    let read = |at: u64, len: u64| {
        let mut bytes = vec![0; len as usize];
        device.read(at, &mut bytes).expect("it is inside");
        bytes
    };
    let differs = |(at, len): &(u64, u64)| read(*at, *len) != read(at + distance(), *len);
    of.iter().filter(|part| differs(part)).map(|(at, _)| *at).collect()
}

/// A device that does not read one whole place of a ring until it is written.
#[test]
fn a_place_that_does_not_read_is_written_again() {
    let sound = crashed();
    for (ring, zone) in [geometry().log(), geometry().journal()].into_iter().enumerate() {
        for place in 0..2 {
            let what = format!("ring {ring}, place {place}");
            let blocks: BTreeSet<u64> = parts(&sound)[ring]
                .iter()
                .flat_map(|(at, len)| at / BLOCK_BYTES..(at + len).div_ceil(BLOCK_BYTES))
                .collect();
            assert!(blocks.iter().all(|block| (zone.start.0..).contains(block)));
            let bad = blocks.iter().map(|block| block + place * geometry().ring_distance);
            let device = Healing::with(Arc::new(sound.snapshot()), bad.collect());
            assert!(!found(&device).findings.is_empty(), "{what}");
            let plan = planned(&device, &CAREFUL).unwrap_or_else(|why| panic!("{what}: {why}"));
            assert!(!plan.loses(), "{what}");
            plan.write(&device).expect("memory takes it");
            assert!(found(&device).findings.is_empty(), "{what}");
            is_whole(device.written(), &what);
            each_place_is_enough(device.written(), ring, &what);
        }
    }
}

/// Power fails at each write and flush of a repair: everything is there, a second repair ends clean, and an undo brings back each byte.
#[test]
fn a_power_cut_takes_nothing_and_an_undo_brings_back_each_byte() {
    let sound = crashed();
    let expected = recovered(&found(&sound).facts);
    for ring in 0..2 {
        for which in WHICH {
            let image = damaged(&sound, ring, which, |bytes| bytes[70] ^= 1);
            let before = image.to_image();
            let plan = planned(&image, &CAREFUL).expect("nothing is lost");
            let mut kept = Vec::new();
            plan.keep(&image, &mut kept).expect("memory takes it");
            let undone = |left: &MemoryDevice, when: &str| {
                let undo = Undo::open(Cursor::new(kept.clone())).expect("it is whole");
                undo.write(left).unwrap_or_else(|why| panic!("{when}: {why}"));
                assert!(left.to_image() == before, "{when}: it is not what it was");
            };
            let device = SimDevice::new(&image);
            plan.write(&device).expect("memory takes it");
            let mut looked = 0;
            each_cut(&device, |left, when| {
                let when = format!("ring {ring}, places {which:?}, {when}");
                let now = found(left);
                assert_eq!(recovered(&now.facts), expected, "{when}");
                if !now.findings.is_empty() {
                    let again = left.snapshot();
                    let plan =
                        planned(&again, &CAREFUL).unwrap_or_else(|why| panic!("{when}: {why}"));
                    plan.write(&again).expect("memory takes it");
                    assert!(found(&again).findings.is_empty(), "{when}");
                }
                undone(left, &when);
                looked += 1;
            });
            assert!(looked > 4, "{looked}");
            let repaired = image.snapshot();
            plan.write(&repaired).expect("memory takes it");
            is_whole(&repaired, "repaired");
            undone(&repaired, "at the end");
        }
    }
}

/// Where more is wrong, journal and log go into the trees.
#[test]
fn with_another_finding_the_rings_are_empty_behind_the_repair() {
    let sound = crashed();
    let device = damaged(&sound, 0, [0, 1], |bytes| bytes.fill(0));
    let far = geometry().far_copy().0 * BLOCK_BYTES;
    device.write(far, &[0x55; BLOCK_SIZE]).expect("it is inside");
    let plan = planned(&device, &CAREFUL).expect("nothing is lost");
    assert!(!plan.loses(), "{:#?}", plan.repairs);
    assert!(plan.repairs.iter().any(|it| it.issue == Issue::BatchPlaceBad), "{:#?}", plan.repairs);
    plan.write(&device).expect("memory takes it");
    let after = found(&device);
    assert!(after.findings.is_empty(), "{:#?}", after.findings);
    assert_eq!(recovered(&after.facts), (0, 0, 0, 0));
    is_whole(&device, "repaired");
}
