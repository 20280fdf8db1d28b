//! Rot behind the last fsync or the last commit: missed once the volume has rested and confirmed what was
//! durable, and until then taken for what a power cut tore (P6).

use std::sync::Arc;

use holdfast_base::BlockRange;
use holdfast_device::{Device, MemoryDevice, SimDevice, sim};
use holdfast_sim::{Verdict, agree, agree_on_log};
use holdfast_store::Branch;

use crate::small::{
    first, formatted, geometry, open, put_one_transaction, sectors, sync, try_open,
};

const SECTOR: u64 = 512;

/// A volume after three steps that `durably` made durable, the program killed; and which sectors of `zone` the last
/// step wrote.
fn killed(zone: BlockRange, durably: fn(&Branch), rests: bool) -> (MemoryDevice, Vec<u64>) {
    let device = formatted();
    let store = open(&device);
    for number in 0..2 {
        put_one_transaction(&store, number..number + 1, 1 + number as u8, 0);
        durably(&store);
    }
    let before = sectors(&device, zone);
    put_one_transaction(&store, 2..3, 3, 0);
    durably(&store);
    let after = sectors(&device, zone);
    let start = zone.start.byte_offset().unwrap();
    let written = (0..before.len()).filter(|&at| before[at] != after[at]);
    let written = written.map(|at| start + at as u64 * SECTOR).collect();
    if rests {
        assert!(store.confirm().unwrap(), "something was durable and nothing said so");
    }
    drop(store);
    (device.snapshot(), written)
}

/// The image with one bit of the byte at `at` turned over.
fn rotten(image: &MemoryDevice, at: u64) -> Arc<MemoryDevice> {
    let image = image.snapshot();
    let sector = at / SECTOR * SECTOR;
    let mut bytes = [0; SECTOR as usize];
    image.read(sector, &mut bytes).unwrap();
    bytes[(at - sector) as usize] ^= 1 << (at % 8);
    image.write(sector, &bytes).unwrap();
    Arc::new(image)
}

/// In how many positions of those sectors a bit may rot so that durable data is gone unnoticed, and in how many the
/// loss is noticed.
fn rot(image: &MemoryDevice, written: &[u64]) -> (usize, usize) {
    let (mut silent, mut noticed) = (0, 0);
    for at in written.iter().flat_map(|&sector| (sector..sector + SECTOR).step_by(3)) {
        match try_open(&rotten(image, at)) {
            Ok(store) if first(&store, 2) == Some(3) => {}
            Ok(_) => silent += 1,
            Err(error) => {
                let words = error.to_string();
                assert!(words.contains("is damaged"), "{words}");
                noticed += 1;
            }
        }
    }
    (silent, noticed)
}

#[test]
fn rot_of_the_last_batch_is_missed_once_it_is_confirmed() {
    let zone = geometry().log();
    let (image, written) = killed(zone, sync, false);
    let (silent, noticed) = rot(&image, &written);
    assert!(silent > 100 && noticed == 0, "nothing follows it: {silent} {noticed}");

    let (image, written) = killed(zone, sync, true);
    assert_eq!(agree_on_log(&image), Ok(Verdict::Whole(3)), "a confirmation is no history");
    assert_eq!(rot(&image, &written), (0, silent));
    let gone = rotten(&image, written[0]);
    assert!(matches!(agree_on_log(&gone), Ok(Verdict::Hole(_))), "check says the same");
}

#[test]
fn rot_of_the_last_commit_is_missed_once_it_is_confirmed() {
    let zone = geometry().journal();
    let commit = |store: &Branch| store.commit().unwrap();
    let (image, written) = killed(zone, commit, false);
    let (silent, noticed) = rot(&image, &written);
    assert!(silent > 100 && noticed == 0, "nothing follows it: {silent} {noticed}");

    let (image, written) = killed(zone, commit, true);
    assert_eq!(agree(&image), Ok(Verdict::Whole(3)), "a confirmation is no history");
    assert_eq!(rot(&image, &written), (0, silent));
    assert!(matches!(agree(&*rotten(&image, written[0])), Ok(Verdict::Hole(_))));
}

/// One write and one flush for each time that something became durable and nothing followed.
#[test]
fn a_volume_that_rests_is_written_to_once() {
    let device = formatted();
    let store = open(&device);
    let cost = |wanted: bool| {
        let before = device.stats();
        assert_eq!(store.confirm().unwrap(), wanted);
        let after = device.stats();
        let bytes = after.written_bytes - before.written_bytes;
        (after.writes - before.writes, after.flushes - before.flushes, bytes)
    };
    assert_eq!(cost(false), (0, 0, 0), "nothing was done yet");
    for _ in 0..2 {
        put_one_transaction(&store, 0..1, 1, 0);
        assert_eq!(cost(false), (0, 0, 0), "nothing of it is durable");
        sync(&store);
        assert_eq!(cost(true), (1, 1, 512));
        assert_eq!(cost(false), (0, 0, 0), "it was said");
        store.commit().unwrap();
        assert_eq!(cost(true), (1, 1, 4096), "the commit holds what the log does");
        assert_eq!(cost(false), (0, 0, 0));
    }
    put_one_transaction(&store, 0..1, 1, 0);
    sync(&store);
    put_one_transaction(&store, 0..1, 2, 0);
    store.append().unwrap();
    assert_eq!(cost(false), (0, 0, 0), "the batch behind it says so");
    store.checkpoint().unwrap();
    assert_eq!(cost(false), (0, 0, 0), "a superblock says it");
    store.close().unwrap();
    let before = device.stats().writes;
    drop(open(&device));
    // The superblock once more, its far copy, and what takes the mark of the end away.
    assert_eq!(device.stats().writes - before, 3, "there is nothing to recover");
}

/// What was appended costs the fsync behind it a flush, and no second write.
#[test]
fn what_was_appended_needs_a_flush_alone() {
    let image = formatted();
    let device = Arc::new(SimDevice::new(&image));
    let store = open(&device);
    put_one_transaction(&store, 0..1, 1, 0);
    let before = device.stats();
    store.append().unwrap();
    store.append().unwrap();
    let appended = device.stats();
    assert_eq!((appended.writes - before.writes, appended.flushes - before.flushes), (1, 0));
    assert!(store.durable() < store.latest(), "power may take it");
    // The program is killed, and what it wrote can be read.
    let killed = open(&Arc::new(device.image()));
    assert_eq!(first(&killed, 0), Some(1), "a program that is killed loses none of it");
    drop(killed);
    // Power takes it.
    let lost = device.cut().images(&sim::Policy::whole_only()).next().unwrap().device();
    assert_eq!(first(&open(&Arc::new(lost)), 0), None);

    sync(&store);
    let durable = device.stats();
    assert_eq!((durable.writes - appended.writes, durable.flushes - appended.flushes), (0, 1));
    assert_eq!(store.durable(), store.latest());
    for image in device.cut().images(&sim::Policy::default()) {
        assert_eq!(first(&open(&Arc::new(image.device())), 0), Some(1));
    }
}
