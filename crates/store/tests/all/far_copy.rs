//! The far copy of the superblock: a volume whose first MiB was overwritten, at any moment, comes back as its slots would
//! have led to it (FORMAT: the far copy).
//!
//! Power fails at every write and flush of a life with batches, commits, checkpoints and an opening after a crash. Each
//! image is opened as it is; then its first MiB is lost, the far copy is written back, and it is opened again.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use holdfast_device::sim::Policy;
use holdfast_device::{Device, MemoryDevice, SimDevice};
use holdfast_format::geometry::{SUPERBLOCK_SLOTS, far_copy};
use holdfast_format::{Key, Superblock};
use holdfast_store::{Branch, restore_superblock};

use crate::small::{formatted, formatted_on_512e, open, put, put_one_transaction, sync, try_open};

const MIB: usize = 1 << 20;

/// Batches, commits and checkpoints, and blocks that are used again.
fn live(device: &Arc<SimDevice>) {
    let store = open(device);
    for round in 0..6u8 {
        put(&store, 0..3, 1 + round, 9);
        sync(&store);
        put_one_transaction(&store, 0..40, 50 + round, 9);
        match round % 3 {
            0 => store.commit().unwrap(),
            1 => store.checkpoint().unwrap(),
            _ => sync(&store),
        }
    }
    drop(store);
    // A recovery, and a close.
    let store = open(device);
    put(&store, 3..5, 100, 9);
    sync(&store);
    store.close().unwrap();
}

/// Its last operation, and all that it holds.
fn shown(device: &Arc<MemoryDevice>) -> (u64, Vec<(Key, Vec<u8>)>) {
    let store: Branch = open(device);
    let mut items = Vec::new();
    let visit = |key, value: &[u8]| {
        items.push((key, value.to_vec()));
        ControlFlow::Continue(())
    };
    store.scan(&Key::MIN, &Key::MAX, visit).unwrap();
    (store.latest().0, items)
}

fn superblock_at(device: &MemoryDevice, block: holdfast_base::BlockNo) -> Option<Superblock> {
    let mut bytes = [0; 4096];
    device.read(block.byte_offset().unwrap(), &mut bytes).unwrap();
    Superblock::decode(&bytes, block).ok()
}

/// Loses the first MiB and writes the far copy back.
fn repaired(image: &MemoryDevice) -> Option<Arc<MemoryDevice>> {
    let left = Arc::new(image.snapshot());
    left.write(0, &vec![0; MIB]).unwrap();
    match try_open(&left) {
        Ok(_) => panic!("no mount begins from the far copy by itself"),
        Err(error) => {
            let is_whole = superblock_at(image, far_copy(image.len() / 4096)).is_some();
            assert_eq!(is_whole, error.to_string().contains("`holdfast fsck -y`"), "{error}");
        }
    }
    restore_superblock(&*left).ok().map(|_| left)
}

/// Images by what became of the far copy in them.
#[derive(Debug, Default)]
struct Seen {
    /// It led where the slots lead.
    same: u32,
    /// Of those: it was older than the newer slot.
    older: u32,
    /// It was being written.
    torn: u32,
}

fn at_any_moment(base: &MemoryDevice) -> Seen {
    let sim = Arc::new(SimDevice::new(base));
    live(&sim);
    let policy = Policy { seed: 5, exhaustive: 3, each: 3, samples: 3, torn: 3 };
    let recording = sim.recording();
    let mut cut = recording.start();
    let mut known = HashSet::new();
    let mut seen = Seen::default();
    for event in recording.events.iter() {
        cut.advance(event);
        if !event.changes_images() {
            continue;
        }
        for image in cut.images(&policy) {
            if !known.insert(image.fingerprint()) {
                continue;
            }
            let device = image.device();
            let what = format!("cut {}: {}", cut.index(), image.describe());
            let far = superblock_at(&device, far_copy(device.len() / 4096));
            let Some(left) = repaired(&device) else {
                // Only while it is being written.
                assert_eq!(far, None, "{what}");
                seen.torn += 1;
                // The slots do not need it, and an opening writes it again.
                let device = Arc::new(device);
                drop(open(&device));
                let far = superblock_at(&device, far_copy(device.len() / 4096));
                assert!(far.is_some(), "{what}: it is still torn");
                continue;
            };
            let slots =
                SUPERBLOCK_SLOTS.into_iter().filter_map(|slot| superblock_at(&device, slot));
            let newest = slots.map(|slot| slot.epoch).max();
            seen.older += u32::from(far.map(|far| far.epoch) < newest);
            assert!(shown(&Arc::new(device)) == shown(&left), "{what}: another moment");
            seen.same += 1;
        }
    }
    seen
}

#[test]
fn at_any_moment_the_far_copy_leads_to_what_the_slots_lead_to() {
    let seen = at_any_moment(&formatted());
    assert!(seen.same > 60 && seen.older > 0, "{seen:?}");
    // What changes of a superblock lies in its first sector, which does not tear.
    assert_eq!(seen.torn, 0, "{seen:?}");
}

#[test]
fn a_torn_far_copy_does_no_harm_and_is_written_again() {
    let seen = at_any_moment(&formatted_on_512e());
    assert!(seen.same > 60 && seen.older > 0 && seen.torn > 0, "{seen:?}");
    assert!(seen.torn * 10 < seen.same, "{seen:?}");
}

#[test]
fn nothing_is_restored_over_a_slot_or_out_of_nothing() {
    let base = formatted();
    assert!(restore_superblock(&*base).is_err(), "both slots are whole");
    base.write(0, &vec![0; MIB]).unwrap();
    let far = far_copy(base.len() / 4096);
    let whole = base.snapshot();
    base.write(far.byte_offset().unwrap(), &[0; 4096]).unwrap();
    assert!(restore_superblock(&*base).is_err(), "there is no far copy");
    let found = restore_superblock(&whole).unwrap();
    assert_eq!(superblock_at(&whole, SUPERBLOCK_SLOTS[(found.epoch.0 % 2) as usize]), Some(found));
}
