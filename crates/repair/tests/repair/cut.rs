//! A log that is cut: what is lost by that is named, also branches that were made behind the cut, what was changed in them, and each name of a
//! file.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast::{CreateOptions, Volume, VolumeOptions};
use holdfast_check::reading::VolumeReading;
use holdfast_device::{Device, MemoryDevice};
use holdfast_repair::{RepairError, RepairOptions, is_repaired};

use crate::every_finding::{LOSS, found, planned};

/// A file whose content is durable when it returns.
fn synced(volume: &Volume, path: &str) {
    volume.write(path, path).expect("there is room");
    volume.open_file(path).and_then(|file| file.sync_all()).expect("memory takes it");
}

/// The first byte of the log that differs, behind the header of a batch.
fn changed_in_log(before: &MemoryDevice, after: &MemoryDevice) -> u64 {
    let reading = VolumeReading::open(after, false).expect("there is a volume");
    let zone = reading.superblock().geometry.log();
    let (start, end) = (zone.start.0 * 4096, (zone.start.0 + zone.count) * 4096);
    let (before, after) = (before.to_image(), after.to_image());
    let differs = |at: &u64| before[*at as usize] != after[*at as usize];
    (start..end).filter(differs).nth(200).expect("a batch was written")
}

/// A volume that crashed: behind a batch of the log that rots a fork was made, and files changed in it and in `main`.
fn damaged() -> MemoryDevice {
    let device = Arc::new(MemoryDevice::new(24 << 20));
    let target: Arc<dyn Device> = device.clone();
    CreateOptions::new().format(&target).expect("it is large enough");
    let volume = VolumeOptions::new().commit_secs(0).open_device(target).expect("it was made");
    volume.create_dir("/dir").expect("there is room");
    for name in ["/dir/one", "/dir/two"] {
        volume.write(name, name).expect("there is room");
    }
    volume.hard_link("/dir/one", "/dir/other").expect("there is room");
    let main = volume.branch_here().expect("it is open");
    let snapshot = main.snapshot("monday").expect("there is room");
    volume.commit().expect("memory takes it");
    let before = device.snapshot();
    for number in 0..4 {
        synced(&volume, &format!("/dir/rotten-{number}"));
    }
    let at = changed_in_log(&before, &device.snapshot());
    let fork = snapshot.fork("work").expect("there is room").open().expect("it is there");
    synced(&fork, "/dir/two");
    synced(&fork, "/dir/new");
    synced(&volume, "/dir/one");
    synced(&volume, "/dir/last");
    let crashed = device.snapshot();
    let (block, within) = (at / 4096 * 4096, (at % 4096) as usize);
    let mut bytes = [0; 4096];
    crashed.read(block, &mut bytes).expect("memory reads");
    bytes[within] ^= 0xff;
    crashed.write(block, &bytes).expect("memory takes it");
    crashed
}

#[test]
fn branches_that_are_lost_are_named_and_each_name_of_a_file() {
    let device = damaged();
    let careful = RepairOptions { accept_loss: false, ..LOSS };
    let Err(RepairError::Refused(why)) = planned(&device, &careful) else {
        panic!("a fork is lost");
    };
    assert!(why.contains("work would be lost") && why.contains("holdfast salvage"), "{why}");
    let plan = planned(&device, &LOSS).expect("it is accepted");
    let losses = plan.repairs.iter().filter(|it| it.loses);
    let named: BTreeSet<String> = losses
        .filter_map(|it| match (&it.tree, &it.path) {
            (tree, Some(path)) => Some(format!("{}:{path}", tree.as_deref().unwrap_or("main"))),
            (tree, None) => tree.clone(),
        })
        .collect();
    for name in [
        "work",
        "work:/dir/two",
        "work:/dir/new",
        "main:/dir/one",
        "main:/dir/other",
        "main:/dir/rotten-2",
    ] {
        assert!(named.contains(name), "{name}: {named:#?}");
    }
    // All that was ever of this one is in batches behind the hole.
    let last = plan.repairs.iter().find(|it| it.path.as_deref() == Some("/dir/last"));
    assert!(last.is_some_and(|it| !it.loses && it.tree.is_none()), "{:#?}", plan.repairs);
    plan.write(&device).expect("memory takes it");
    assert!(is_repaired(&found(&device)));
    let device: Arc<dyn Device> = Arc::new(device);
    let volume = VolumeOptions::new().open_device(device).expect("it is repaired");
    assert_eq!(volume.read("/dir/last").expect("it is there"), b"/dir/last");
}
