//! A node that commits and batches build on is damaged: it is lost, and the history behind it is not.

use std::sync::Arc;

use holdfast_base::BLOCK_SIZE;
use holdfast_check::Issue;
use holdfast_device::Device;
use holdfast_repair::RepairOptions;

use crate::accidents::World;
use crate::every_finding::{LOSS, found, planned};

#[test]
fn a_damaged_base_costs_no_history() {
    for seed in [0, 1, 2, 10] {
        let world = World::new(seed);
        let (mut bases, mut unasked) = (0, 0);
        let image = world.image.to_image();
        for (at, block) in (0..).step_by(BLOCK_SIZE).zip(image.chunks(BLOCK_SIZE)) {
            if !block.starts_with(b"hfNd") {
                continue;
            }
            let device = Arc::new(world.image.snapshot());
            let mut bytes = block.to_vec();
            bytes[1000] ^= 1;
            device.write(at, &bytes).expect("memory takes it");
            let report = found(&*device);
            if !report.findings.iter().any(|it| it.issue() == Issue::CommitBaseLost) {
                continue;
            }
            bases += 1;
            let when = format!("seed {seed}, the node at byte {at}");
            let is_cut = |id: &u16| (800..1000).contains(id) && *id != 808;
            let numbers: Vec<u16> = report.findings.iter().map(|it| it.id).collect();
            assert!(!numbers.iter().any(is_cut), "{when}: {numbers:?}");
            let plan = planned(&*device, &LOSS).unwrap_or_else(|why| panic!("{when}: {why}"));
            let options = RepairOptions { accept_loss: false, ..LOSS };
            match planned(&*device, &options) {
                Ok(_) => unasked += 1,
                Err(why) => assert!(plan.loses(), "{when}: nothing is lost, but {why}"),
            }
            world.behind(&device, &plan, &when);
        }
        assert!(bases > 2 && unasked > 2, "seed {seed}: {bases}, {unasked}");
    }
}
