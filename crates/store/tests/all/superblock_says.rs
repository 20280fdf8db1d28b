//! What superblocks say beside the trees, with power cut at every write: an id and a label, the reason of a stop, a slot that
//! is written back; and features that this program is too old for.

use std::sync::Arc;

use holdfast_base::BlockNo;
use holdfast_device::sim::Policy;
use holdfast_device::{Device, MemoryDevice, SimDevice};
use holdfast_format::checksum::crc64_with_hole;
use holdfast_format::geometry::{SUPERBLOCK_SLOTS, far_copy};
use holdfast_format::{ItemKind, Superblock};
use holdfast_store::{Identity, restore_superblock};

use crate::small::{first, formatted, formatted_on_512e, open, put, sync, try_open};

const POLICY: Policy = Policy { seed: 3, exhaustive: 3, each: 3, samples: 3, torn: 3 };

fn block(device: &dyn Device, at: BlockNo) -> [u8; 4096] {
    let mut bytes = [0; 4096];
    device.read(at.byte_offset().unwrap(), &mut bytes).unwrap();
    bytes
}

fn slots(device: &dyn Device) -> Vec<Superblock> {
    let mut found: Vec<_> = SUPERBLOCK_SLOTS
        .into_iter()
        .filter_map(|slot| Superblock::decode(&block(device, slot), slot).ok())
        .collect();
    found.sort_by_key(|slot| slot.epoch);
    found
}

/// Each image that a power cut may leave of what `sim` was told.
fn at_every_cut(sim: &SimDevice, mut judge: impl FnMut(&str, Arc<MemoryDevice>)) -> usize {
    let recording = sim.recording();
    let mut cut = recording.start();
    let mut known = std::collections::HashSet::new();
    for event in recording.events.iter() {
        cut.advance(event);
        if !event.changes_images() {
            continue;
        }
        for image in cut.images(&POLICY) {
            if known.insert(image.fingerprint()) {
                let what = format!("cut {}: {}", cut.index(), image.describe());
                judge(&what, Arc::new(image.device()));
            }
        }
    }
    known.len()
}

/// A volume with operations that only the log has.
fn lived_in(base: &Arc<MemoryDevice>) {
    let store = open(base);
    put(&store, 0..40, 1, 9);
    store.checkpoint().unwrap();
    put(&store, 40..44, 2, 9);
    sync(&store);
}

/// P5: `holdfast tune` opens, recovers, changes both slots and closes.
#[test]
fn an_id_and_a_label_change_together_whenever_power_fails() {
    for base in [formatted(), formatted_on_512e()] {
        lived_in(&base);
        let sim = Arc::new(SimDevice::new(&base));
        let new = uuid::Uuid::from_u128(77);
        let store = open(&sim);
        let to = Identity { uuid: Some(new), label: Some("new".into()), clear_fault: false };
        store.change_identity(&to).unwrap();
        store.close().unwrap();
        let (mut old, mut changed) = (0, 0);
        at_every_cut(&sim, |what, device| {
            let store = open(&device);
            let said = store.superblock();
            match (said.uuid == new, said.label.as_str()) {
                (false, "") => old += 1,
                (true, "new") => changed += 1,
                (_, label) => panic!("{what}: {} with the label {label:?}", said.uuid),
            }
            let kept = |number, fill| first(&store, number) == Some(fill);
            assert!((0..40).all(|n| kept(n, 1)) && (40..44).all(|n| kept(n, 2)), "{what}");
        });
        assert!(old > 5 && changed > 5, "{old} {changed}");
        assert!(slots(&*sim).iter().all(|slot| slot.uuid == new && slot.label == "new"));
    }
}

/// P5: the write of a slot from the far copy, with both slots lost and with the newer one.
#[test]
fn a_slot_comes_back_from_the_far_copy_whenever_power_fails() {
    for both in [true, false] {
        let base = formatted_on_512e();
        lived_in(&base);
        let newest = slots(&*base).pop().unwrap();
        for (number, slot) in (0..).zip(SUPERBLOCK_SLOTS) {
            if both || newest.epoch.0 % 2 == number {
                base.write(slot.byte_offset().unwrap(), &[0x55; 4096]).unwrap();
            }
        }
        let sim = Arc::new(SimDevice::new(&base));
        let far = far_copy(base.len() / 4096);
        let copy = block(&*base, far);
        assert_eq!(restore_superblock(&*sim).unwrap().epoch, newest.epoch);
        let cuts = at_every_cut(&sim, |what, device| {
            assert!(block(&*device, far) == copy, "{what}: the only whole copy was touched");
            // Cut in the middle, it is done once more.
            if slots(&*device).last().is_none_or(|slot| slot.epoch < newest.epoch) {
                restore_superblock(&*device).unwrap();
            }
            let store = open(&device);
            assert!((0..40).all(|number| first(&store, number) == Some(1)), "{what}");
            assert!((40..44).all(|number| first(&store, number) == Some(2)), "{what}");
        });
        assert!(cuts >= 2, "{cuts}");
        assert!(restore_superblock(&*sim).is_err(), "the slot counts again");
    }
}

/// Sets bits of a feature word in a superblock.
fn set_features(device: &dyn Device, at: BlockNo, offset: usize) {
    let mut bytes = block(device, at);
    bytes[offset + 6] |= 1;
    let sum = crc64_with_hole(&bytes, 16);
    bytes[16..24].copy_from_slice(&sum.to_le_bytes());
    device.write(at.byte_offset().unwrap(), &bytes).unwrap();
}

/// A program that is too old for the newer superblock does not go on from the one before it.
#[test]
fn a_newer_superblock_with_an_unknown_feature_is_obeyed() {
    const INCOMPAT: usize = 64;
    let base = formatted();
    lived_in(&base);
    let newest = slots(&*base).pop().unwrap().epoch.0 % 2;
    let slot = |newer: bool| SUPERBLOCK_SLOTS[(newest ^ u64::from(!newer)) as usize];
    let device = Arc::new(base.snapshot());
    set_features(&*device, slot(true), INCOMPAT);
    let before = device.snapshot();
    let error = try_open(&device).unwrap_err().to_string();
    assert!(
        error.contains("needs a newer program: it has the features 0x1000000000000"),
        "{error}"
    );
    assert!(restore_superblock(&*device).unwrap_err().to_string().contains("newer program"));
    assert_eq!(before.to_image(), device.to_image(), "nothing was written");
    // One that has given the feature up since counts.
    let device = Arc::new(base.snapshot());
    set_features(&*device, slot(false), INCOMPAT);
    assert_eq!(first(&open(&device), 40), Some(2));
    // Also if only the far copy of that one is left.
    let lost = slot(true).byte_offset().unwrap();
    let device = Arc::new(base.snapshot());
    set_features(&*device, slot(false), INCOMPAT);
    device.write(lost, &[0x55; 4096]).unwrap();
    assert_eq!(restore_superblock(&*device).unwrap().epoch.0 % 2, newest);
    assert_eq!(first(&open(&device), 40), Some(2));
    // But not if that far copy is of another volume.
    let (device, other) = (Arc::new(base.snapshot()), formatted());
    lived_in(&other);
    device.write(lost, &[0x55; 4096]).unwrap();
    device.write(slot(false).byte_offset().unwrap(), &block(&*other, slot(false))).unwrap();
    assert_eq!(slots(&*device).len(), 1);
    set_features(&*device, slot(false), INCOMPAT);
    let before = device.snapshot();
    assert!(restore_superblock(&*device).unwrap_err().to_string().contains("newer program"));
    assert_eq!(before.to_image(), device.to_image(), "nothing was written");
}

/// The far copy is where the volume ends, which may be before the device does.
#[test]
fn a_slot_comes_back_on_a_device_that_is_larger_than_the_volume() {
    let base = formatted();
    lived_in(&base);
    let newest = slots(&*base).pop().unwrap();
    let image = base.to_image();
    let larger = Arc::new(MemoryDevice::new(image.len() as u64 + (3 << 20)));
    larger.write(0, &image).unwrap();
    larger.write(newest.slot().byte_offset().unwrap(), &[0x55; 4096]).unwrap();
    assert_eq!(restore_superblock(&*larger).unwrap(), newest);
    assert_eq!(first(&open(&larger), 40), Some(2));
}

/// Unknown kinds of items under an unknown compat bit, and bytes behind the superblock's fields, stay what they are.
#[test]
fn what_a_feature_has_brought_is_carried_through_batches_commits_checkpoints_and_recovery() {
    use holdfast_base::InodeNo;
    use holdfast_format::Key;
    use holdfast_store::{Need, Transaction};
    const COMPAT: usize = 48;
    let base = formatted();
    for slot in SUPERBLOCK_SLOTS {
        let mut bytes = block(&*base, slot);
        bytes[4000..4010].fill(7);
        base.write(slot.byte_offset().unwrap(), &bytes).unwrap();
        set_features(&*base, slot, COMPAT);
    }
    let sim = Arc::new(SimDevice::new(&base));
    let strange = ItemKind::from_raw(70).unwrap();
    let of = |number| Key::new(InodeNo(20), strange, number);
    let store = open(&sim);
    let mut transaction = Transaction::new();
    transaction.put(of(1), b"a later program");
    let mut room = store.reserve(Need::Grow { changes: 1, blocks: 0 }).unwrap();
    store.apply(transaction, &mut room).unwrap();
    drop(room);
    sync(&store);
    put(&store, 0..30, 1, 9);
    store.commit().unwrap();
    put(&store, 0..300, 2, 9);
    store.checkpoint().unwrap();
    put(&store, 30..40, 3, 9);
    sync(&store);
    drop(store);
    let store = open(&sim);
    assert_eq!(store.get(&of(1)).unwrap().as_deref(), Some(&b"a later program"[..]));
    store.close().unwrap();
    for slot in SUPERBLOCK_SLOTS {
        assert_eq!(block(&*sim, slot)[4000..4011], [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0]);
    }
}
