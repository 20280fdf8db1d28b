//! A repair that gives up a whole branch or snapshot, its root directory or all that it has is refused until that is accepted, and names each.

use std::sync::Arc;

use holdfast_base::BLOCK_SIZE;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_device::{Device, MemoryDevice};
use holdfast_repair::{RepairError, RepairOptions, is_repaired};

use crate::accidents::World;
use crate::every_finding::{LOSS, found, planned};

/// Nothing is left of any node of files.
fn without_nodes(image: &MemoryDevice) -> MemoryDevice {
    let device = image.snapshot();
    for at in (0..device.len()).step_by(BLOCK_SIZE) {
        let mut bytes = [0; BLOCK_SIZE];
        device.read(at, &mut bytes).expect("memory reads");
        if at >= 256 * BLOCK_BYTES && bytes.starts_with(b"hfNd") && bytes[5] == 1 {
            device.write(at, &[0; BLOCK_SIZE]).expect("memory takes it");
        }
    }
    device
}

#[test]
fn trees_without_a_root_directory_are_given_up_only_by_who_says_so() {
    let world = World::new(3);
    let device = Arc::new(without_nodes(&world.image));
    let before = device.to_image();
    // Of a crashed volume the journal is damaged by it as well: that is accepted, and the rest is what is left.
    let plan = planned(&*device, &LOSS).expect("it is accepted");
    plan.write(&*device).expect("memory takes it");
    assert!(is_repaired(&found(&*device)));
    let crashed = MemoryDevice::new(device.len());
    crashed.write(0, &before).expect("memory takes it");
    let careful = RepairOptions { accept_loss: false, ..LOSS };
    let Err(RepairError::Refused(_)) = planned(&crashed, &careful) else {
        panic!("all is lost");
    };

    let rested = world.rested();
    let device = without_nodes(&rested);
    let before = device.to_image();
    let Err(RepairError::Refused(why)) = planned(&device, &careful) else {
        panic!("all is lost");
    };
    for tree in ["main", "fork", "main@one", "main@two"] {
        let clause = format!("{tree} would be without its root directory");
        assert!(why.split("; ").any(|part| part.starts_with(&clause)), "{tree}: {why}");
    }
    assert!(why.contains("holdfast salvage") && why.contains("--accept-loss"), "{why}");
    assert_eq!(device.to_image(), before, "nothing is written");
}
