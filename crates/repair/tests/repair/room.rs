//! The host of an image is asked for room before anything is written.

use std::sync::Arc;

use holdfast_check::Issue;
use holdfast_device::{Device, DeviceError, MemoryDevice, forward};
use holdfast_repair::RepairError;

use crate::common::broken::provoke;
use crate::every_finding::{LOSS, planned};

/// An image of holes alone, on a host that has so much left.
#[derive(Debug)]
struct OnHost {
    device: Arc<MemoryDevice>,
    room: u64,
}

impl Device for OnHost {
    forward!(device: write, flush, discard, len, take_room, sector_size, reach, stats);

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read(at, into)
    }

    fn given(&self) -> u64 {
        0
    }

    fn room(&self) -> Option<u64> {
        Some(self.room)
    }

    fn data_from(&self, at: u64) -> u64 {
        // What is read is there all the same.
        at.saturating_add(1 << 20)
    }
}

#[test]
fn a_host_without_room_is_asked_first() {
    let image = provoke(Issue::LinkCount).0;
    let device = |room| OnHost { device: Arc::new(image.device.snapshot()), room };
    let full = device(4096);
    let Err(RepairError::Refused(why)) = planned(&full, &LOSS) else { panic!("it is full") };
    assert!(why.contains("of the host"), "{why}");
    let roomy = device(64 << 20);
    let plan = planned(&roomy, &LOSS).expect("there is room");
    assert!(plan.bytes() > 4096);
}

/// A damaged volume does not become larger: the way out is another one.
#[test]
fn where_nothing_is_free_salvage_is_named() {
    let why = holdfast_repair::RepairError::NoSpace(8).to_string();
    assert!(why.contains("`holdfast salvage`") && !why.contains("larger"), "{why}");
}
