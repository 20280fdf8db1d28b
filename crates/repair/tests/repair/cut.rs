//! A log of which a batch is lost: what lies behind it comes back as far as it can; what cannot is named, also branches that were made there
//! and what was changed in them.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast::{CreateOptions, Volume, VolumeOptions};
use holdfast_check::reading::VolumeReading;
use holdfast_device::{Device, MemoryDevice};
use holdfast_repair::{Planned, Repair, RepairError, RepairOptions, is_repaired};

use crate::every_finding::{LOSS, found, planned};

/// A file whose content is durable when it returns.
fn synced(volume: &Volume, path: &str) {
    volume.write(path, path).expect("there is room");
    volume.open_file(path).and_then(|file| file.sync_all()).expect("memory takes it");
}

/// A byte of the batch that was written between the two.
fn changed_in_log(before: &MemoryDevice, after: &MemoryDevice) -> u64 {
    let reading = VolumeReading::open(after, false).expect("there is a volume");
    let zone = reading.superblock().geometry.log();
    let (start, end) = (zone.start.0 * 4096, (zone.start.0 + zone.count) * 4096);
    let (before, after) = (before.to_image(), after.to_image());
    let differs = |at: &u64| before[*at as usize] != after[*at as usize];
    (start..end).filter(differs).nth(60).expect("a batch was written")
}

/// What rots of the log of a volume that crashed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rotten {
    /// A batch that made a file, on which nothing rests.
    File,
    /// The batch that made a fork, whose name and files were changed behind it.
    Fork,
}

/// A volume that crashed: behind a batch of the log that rots a fork was made, and files changed in it and in `main`.
fn damaged(what: Rotten) -> MemoryDevice {
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
    let monday = main.snapshot("monday").expect("there is room");
    volume.commit().expect("memory takes it");
    let before_file = device.snapshot();
    synced(&volume, "/dir/rotten");
    let of_file = changed_in_log(&before_file, &device.snapshot());
    synced(&volume, "/dir/behind");
    let before_fork = device.snapshot();
    let mut work = monday.fork("work").expect("there is room");
    let of_fork = changed_in_log(&before_fork, &device.snapshot());
    let at = if what == Rotten::File { of_file } else { of_fork };
    work.rename("later").expect("there is room");
    let fork = work.open().expect("it is there");
    synced(&fork, "/dir/two");
    synced(&fork, "/dir/new");
    let other = monday.fork("other").expect("there is room").open().expect("it is there");
    synced(&other, "/dir/new");
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

/// What the losses of a plan name.
fn named(plan: &Planned) -> BTreeSet<String> {
    let losses = plan.repairs.iter().filter(|it| it.loses);
    let name = |it: &Repair| match (&it.tree, &it.path) {
        (tree, Some(path)) => Some(format!("{}:{path}", tree.as_deref().unwrap_or("main"))),
        (tree, None) => tree.clone(),
    };
    losses.filter_map(name).collect()
}

/// Asserts that each of these files holds its own name, or is not there.
fn holds(device: &MemoryDevice, branch: &str, files: &[&str], gone: &[&str]) {
    let device: Arc<dyn Device> = Arc::new(device.snapshot());
    let volume = VolumeOptions::new().branch(branch).open_device(device).expect("it is repaired");
    for path in files {
        assert_eq!(volume.read(path).expect(path), path.as_bytes(), "{branch}:{path}");
    }
    for path in gone {
        assert!(volume.read(path).is_err(), "{branch}:{path}");
    }
}

/// Only what the lost batch held is lost.
#[test]
fn what_lies_behind_a_lost_batch_comes_back() {
    let device = damaged(Rotten::File);
    let careful = RepairOptions { accept_loss: false, ..LOSS };
    let Err(RepairError::Refused(why)) = planned(&device, &careful) else {
        panic!("a file is lost");
    };
    assert!(!why.contains("later") && why.contains("--accept-loss"), "{why}");
    let plan = planned(&device, &LOSS).expect("it is accepted");
    assert!(
        plan.repairs.iter().any(|it| it.loses && it.what.contains("what lies behind it counts"))
    );
    plan.write(&device).expect("memory takes it");
    assert!(is_repaired(&found(&device)));
    holds(&device, "main", &["/dir/behind", "/dir/one", "/dir/two", "/dir/last"], &["/dir/rotten"]);
    holds(&device, "later", &["/dir/one", "/dir/two", "/dir/new"], &["/dir/behind"]);
    holds(&device, "other", &["/dir/one", "/dir/two", "/dir/new"], &["/dir/behind"]);
}

/// A batch that cannot be without the lost one is left out alone, and what it held is named.
#[test]
fn branches_that_are_lost_are_named_and_each_name_of_a_file() {
    let device = damaged(Rotten::Fork);
    let careful = RepairOptions { accept_loss: false, ..LOSS };
    let Err(RepairError::Refused(why)) = planned(&device, &careful) else {
        panic!("a fork is lost");
    };
    assert!(why.contains("later would be lost") && why.contains("holdfast salvage"), "{why}");
    let plan = planned(&device, &LOSS).expect("it is accepted");
    let named = named(&plan);
    for name in ["later", "later:/dir/two", "later:/dir/new"] {
        assert!(named.contains(name), "{name}: {named:#?}");
    }
    plan.write(&device).expect("memory takes it");
    assert!(is_repaired(&found(&device)));
    holds(&device, "main", &["/dir/rotten", "/dir/behind", "/dir/one", "/dir/last"], &[]);
    holds(&device, "other", &["/dir/one", "/dir/two", "/dir/new"], &["/dir/behind"]);
}
