//! The far copy of the superblock: a volume whose first MiB was overwritten, at any moment, comes back as its slots would
//! have led to it (FORMAT: the far copy).
//!
//! Power fails at every write and flush of a life with batches, commits, checkpoints and an opening after a crash. Each
//! image is opened as it is; then its first MiB is lost, the far copy is written back, and it is opened again. So it is around changes of
//! the size, on a device that is longer, where what looks like a later superblock lies at every place at which one could be sought.

use std::collections::HashSet;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use holdfast_base::{Epoch, InodeNo};
use holdfast_device::sim::Policy;
use holdfast_device::{Device, MemoryDevice, SimDevice};
use holdfast_format::geometry::{SIGNPOST, SUPERBLOCK_SLOTS, far_copy};
use holdfast_format::{Geometry, ItemKind, Key, Signpost, Superblock};
use holdfast_store::{Branch, Need, NewSize, Transaction, restore_superblock};

use crate::small::{
    formatted, formatted_on, formatted_on_512e, open, put, put_one_transaction, sync, try_open,
};

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
fn repaired(image: &MemoryDevice) -> Option<(Arc<MemoryDevice>, Superblock)> {
    let left = Arc::new(image.snapshot());
    left.write(0, &vec![0; MIB]).unwrap();
    let error = try_open(&left).expect_err("no mount begins from the far copy by itself");
    let found = restore_superblock(&*left).ok();
    assert_eq!(found.is_some(), error.to_string().contains("`holdfast fsck -y`"), "{error}");
    found.map(|found| (left, found))
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

fn at_any_moment(base: &MemoryDevice, live: impl Fn(&Arc<SimDevice>)) -> Seen {
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
            let Some((left, far)) = repaired(&device) else {
                seen.torn += 1;
                // The slots do not need it, and an opening writes it again.
                let device = Arc::new(device);
                drop(open(&device));
                assert!(repaired(&device).is_some(), "{what}: it is still torn");
                continue;
            };
            let slots =
                SUPERBLOCK_SLOTS.into_iter().filter_map(|slot| superblock_at(&device, slot));
            let newest = slots.map(|slot| slot.epoch).max();
            seen.older += u32::from(Some(far.epoch) < newest);
            assert!(shown(&Arc::new(device)) == shown(&left), "{what}: another moment");
            seen.same += 1;
        }
    }
    seen
}

#[test]
fn at_any_moment_the_far_copy_leads_to_what_the_slots_lead_to() {
    let seen = at_any_moment(&formatted(), live);
    assert!(seen.same > 60 && seen.older > 0, "{seen:?}");
    // What changes of a superblock lies in its first sector, which does not tear.
    assert_eq!(seen.torn, 0, "{seen:?}");
}

#[test]
fn a_torn_far_copy_does_no_harm_and_is_written_again() {
    let seen = at_any_moment(&formatted_on_512e(), live);
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

/// Values that name no blocks: a walk of all trees takes them as they are.
fn put_values(store: &Branch, numbers: Range<u64>, fill: u8) {
    let mut transaction = Transaction::new();
    for number in numbers {
        transaction.put(Key::new(InodeNo(20), ItemKind::Xattr, number), vec![fill; 900]);
    }
    let growth = Need::Grow { changes: transaction.changes(), blocks: 0 };
    store.apply(transaction, &mut store.reserve(growth).unwrap()).unwrap();
}

/// A volume of so many MiB on a device of 32.
fn longer(mib: u64, device: MemoryDevice) -> Arc<MemoryDevice> {
    let geometry = Geometry::for_device(mib << 20, 4096).unwrap().with_ring_blocks(512, 64);
    let device = formatted_on(device, geometry);
    let store = open(&device);
    put_values(&store, 0..200, 1);
    store.close().unwrap();
    device
}

/// Puts at the end of volumes of other sizes what a volume of before may have left, or a file may hold: a later superblock that is valid there.
fn with_lies(base: &MemoryDevice, own: u64, sizes: &[u64]) {
    let own = far_copy(own << 8);
    let superblock = superblock_at(base, own).unwrap();
    for mib in sizes {
        let geometry = Geometry { volume_blocks: mib << 8, ..superblock.geometry };
        let epoch = Epoch(superblock.epoch.0 + 1001);
        let lie = Superblock { geometry, epoch, ..superblock.clone() };
        let at = geometry.far_copy();
        base.write(at.byte_offset().unwrap(), &lie.encode(at)[..]).unwrap();
        assert!(superblock_at(base, at).is_some());
    }
}

fn grow(device: &Arc<SimDevice>) {
    let store = open(device);
    put_values(&store, 0..3, 2);
    sync(&store);
    store.resize(NewSize::Bytes(24 << 20)).unwrap();
    put_values(&store, 0..40, 3);
    store.commit().unwrap();
    // Its far copy stays where it is.
    store.resize(NewSize::More(8 << 10)).unwrap();
    put_values(&store, 0..40, 4);
    store.checkpoint().unwrap();
    put_values(&store, 0..200, 5);
    store.checkpoint().unwrap();
    drop(store);
    open(device).close().unwrap();
}

fn shrink(device: &Arc<SimDevice>) {
    let shared: Arc<dyn Device> = device.clone();
    holdfast_store::shrink(&shared, 16 << 20, &mut |_| ()).unwrap();
    let store = open(device);
    put_values(&store, 0..40, 3);
    store.commit().unwrap();
    put_values(&store, 0..200, 4);
    store.close().unwrap();
}

/// The MiB of a volume, other sizes at whose ends lies lie, and what is done.
type Life = (u64, &'static [u64], fn(&Arc<SimDevice>));

#[test]
fn of_a_volume_that_changes_its_size_the_newest_far_copy_is_found_on_a_longer_device() {
    let lives: [Life; 2] = [(16, &[20, 24, 32], grow), (24, &[16, 20, 32], shrink)];
    for (mib, others, live) in lives {
        let base = longer(mib, MemoryDevice::new(32 << 20));
        with_lies(&base, mib, others);
        let seen = at_any_moment(&base, live);
        assert!(seen.same > 30 && seen.torn == 0, "{mib} MiB: {seen:?}");
    }
}

#[test]
fn where_blocks_tear_as_a_whole_a_change_of_size_leads_to_the_newest_far_copy_or_to_none() {
    let lives: [Life; 2] = [(16, &[20, 24], grow), (24, &[16, 20], shrink)];
    for (mib, others, live) in lives {
        let base = longer(mib, MemoryDevice::with_sector_sizes(32 << 20, 512, 4096));
        with_lies(&base, mib, others);
        let seen = at_any_moment(&base, live);
        assert!(seen.same > 30 && seen.torn > 0, "{mib} MiB: {seen:?}");
    }
}

#[test]
fn a_lost_signpost_does_no_harm_and_is_written_again() {
    let base = longer(16, MemoryDevice::new(32 << 20));
    let sound = base.snapshot();
    for bytes in
        [[0; 4096], [0x55; 4096], *Signpost { node_tag: *b"of nodes", sizes: [8192; 2] }.encode()]
    {
        base.write(SIGNPOST.byte_offset().unwrap(), &bytes).unwrap();
        assert!(repaired(&base).is_none(), "nothing leads to it");
        drop(open(&base));
        assert!(repaired(&base).is_some());
    }
    let read = |device: &MemoryDevice| {
        let mut bytes = [0; 4096];
        device.read(SIGNPOST.byte_offset().unwrap(), &mut bytes).unwrap();
        bytes
    };
    assert_eq!(read(&base), read(&sound));
}
