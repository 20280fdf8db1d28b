//! The leaf of the space tree rots that has all branches and snapshots: they come back from an older version of it, and what may be older is named.

use std::sync::Arc;

use holdfast::VolumeOptions;
use holdfast_check::reading::VolumeReading;
use holdfast_format::item::lineage::child_key;
use holdfast_repair::{RepairError, RepairOptions};

use crate::accidents::open_tree;
use crate::common::branches::{joined, open};
use crate::every_finding::{LOSS, found, planned};
use crate::older::rot;
use crate::shared::grown;

#[test]
fn branches_and_snapshots_come_back_from_an_older_version() {
    let mut world = grown(11, [10, 5], 5);
    let device = Arc::new(world.image.snapshot());
    let volume = VolumeOptions::new().commit_secs(0).open_device(device.clone());
    let volume = volume.expect("it is whole");
    volume.write("/more", b"more").expect("there is room");
    volume.close().expect("memory takes it");
    let main = world.trees.get_mut("main").expect("it is there");
    main.insert("/more".into(), Some(b"more".to_vec()));
    let reading = VolumeReading::open(&*device, false).expect("there is a volume");
    let (root, level) = (reading.superblock().space, reading.superblock().space_level);
    assert_eq!(level, 0, "the volume is small");
    drop(reading);
    rot(&device, root.block.0);
    let before = device.to_image();
    let careful = RepairOptions { accept_loss: false, ..LOSS };
    let Err(RepairError::Refused(why)) = planned(&*device, &careful) else {
        panic!("branches are as they were");
    };
    for words in ["fork-one is as of epoch", "fork-two is as of epoch", "holdfast salvage"] {
        assert!(why.contains(words), "{words}: {why}");
    }
    assert_eq!(device.to_image(), before, "nothing is written");
    let plan = planned(&*device, &LOSS).expect("it is accepted");
    world.behind(&device, &plan, "space tree");
    let volume = VolumeOptions::new().open_device(device).expect("it is whole");
    for fork in ["main", "fork-one", "fork-two"] {
        open_tree(&volume, fork).and_then(holdfast::Volume::close).expect("it is there");
    }
    // `behind` has deleted the snapshots, which were there.
    let back =
        plan.repairs.iter().filter(|it| it.what.contains("comes back from an older version"));
    assert_eq!(back.filter(|it| it.what.starts_with("main@")).count(), 2, "{:#?}", plan.repairs);
}

/// A snapshot that has joined a branch, as its fork was promoted, is one of it behind a repair of something else.
#[test]
fn what_has_joined_a_branch_has_followed() {
    let volume = joined();
    volume.patch(|items| drop(items.remove(&child_key(2, 4))));
    let plan = planned(&*volume.device, &LOSS).expect("nothing is lost");
    plan.write(&*volume.device).expect("memory takes it");
    let after = found(&*volume.device);
    assert!(after.is_clean(), "{:#?}", after.findings);
    let store = open(&volume.device);
    assert_eq!(store.find_tree(b"main", Some(b"kept")).expect("it is there"), 4);
}
