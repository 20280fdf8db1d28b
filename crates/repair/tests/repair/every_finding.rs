//! Every finding has a volume that has it: the repair leaves nothing of it, or says why not and writes nothing.

use std::sync::{Arc, Mutex};

use holdfast_base::BlockRange;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_check::{Issue, Options as CheckOptions, Report, check};
use holdfast_device::{Device, DeviceError, MemoryDevice, forward};
use holdfast_repair::{Planned, RepairError, RepairOptions, is_repaired, plan, why_not};

use crate::common::broken::{Image, provoke};

/// A device of which some blocks do not read until they are written.
#[derive(Debug)]
pub(crate) struct Healing {
    device: Arc<MemoryDevice>,
    bad: Mutex<Vec<u64>>,
}

impl Healing {
    fn of(image: &Image) -> Healing {
        let bad = image.rotten.map_or(0..0, |BlockRange { start, count }| start.0..start.0 + count);
        let device = Arc::new(image.device.snapshot());
        Healing::with(device, bad.collect())
    }

    pub(crate) fn with(device: Arc<MemoryDevice>, bad: Vec<u64>) -> Healing {
        Healing { device, bad: Mutex::new(bad) }
    }

    /// What is written, also where it does not read.
    pub(crate) fn written(&self) -> &MemoryDevice {
        &self.device
    }

    fn meets(at: u64, len: usize, block: u64) -> bool {
        at < (block + 1) * BLOCK_BYTES && at + len as u64 > block * BLOCK_BYTES
    }
}

impl Device for Healing {
    forward!(device: flush, discard, len, room, take_room, sector_size, reach, stats);

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let bad = self.bad.lock().expect("no thread panics with it");
        if bad.iter().any(|block| Healing::meets(at, into.len(), *block)) {
            let source = std::io::Error::other("the sector is gone");
            return Err(DeviceError::Io { call: "read", at, len: into.len() as u64, source });
        }
        self.device.read(at, into)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let mut bad = self.bad.lock().expect("no thread panics with it");
        bad.retain(|block| !Healing::meets(at, bytes.len(), *block));
        self.device.write(at, bytes)
    }
}

pub(crate) const LOSS: RepairOptions = RepairOptions { data: true, accept_loss: true };

pub(crate) fn found(device: &dyn Device) -> Report {
    check(device, &CheckOptions { data: true, progress: None }).expect("there is a volume")
}

pub(crate) fn planned(
    device: &dyn Device,
    options: &RepairOptions,
) -> Result<Planned, RepairError> {
    plan(device, &found(device), options)
}

#[test]
fn every_finding_is_repaired_or_refused() {
    for &issue in Issue::ALL {
        let name = issue.slug();
        let (image, _) = provoke(issue);
        let device = Healing::of(&image);
        let before = device.device.to_image();
        let done = planned(&device, &LOSS);
        assert_eq!(device.device.to_image(), before, "{name}: a plan writes nothing");
        // The far copy may stand for a lost superblock.
        let may_be = issue == Issue::NoSuperblock && done.is_ok();
        if why_not(issue).is_some() && !may_be {
            assert!(matches!(done, Err(RepairError::Refused(_))), "{name}: {done:?}");
            continue;
        }
        let done = done.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(
            done.repairs.iter().any(|it| it.issue == issue) || stays(issue),
            "{name}: {:#?}",
            done.repairs
        );
        done.write(&device).expect("memory takes it");
        let after = found(&device);
        assert!(is_repaired(&after), "{name}: {:#?}", after.findings);
        let plain = check(&device, &CheckOptions::default()).expect("there is a volume");
        assert!(plain.is_clean(), "{name}: {:#?}", plain.findings);
        // What was right stays right, and the engine takes it.
        if issue != Issue::DataUnreadable {
            drop(crate::common::branches::open(&device.device));
        }
    }
}

/// Findings that a repair leaves, as nothing is there to put in place.
fn stays(issue: Issue) -> bool {
    let data = [Issue::DataDamaged, Issue::DataUnreadable, Issue::Fault, Issue::SettingUnknown];
    data.contains(&issue)
}

/// What was durable is given up only by who says so.
#[test]
fn what_may_come_back_needs_a_second_word() {
    for issue in [
        Issue::NodeUnreadable,
        Issue::JournalDamaged,
        Issue::JournalWiped,
        Issue::LogDamaged,
        Issue::LogWiped,
    ] {
        let device = Healing::of(&provoke(issue).0);
        let options = RepairOptions { accept_loss: false, ..LOSS };
        let refused = planned(&device, &options).expect_err("it loses something");
        assert!(refused.to_string().contains("--accept-loss"), "{refused}");
    }
}

/// Damaged data stays, however many runs of it there are: more than a report keeps.
#[test]
fn a_volume_with_much_damaged_data_is_repaired() {
    let device = Arc::new(MemoryDevice::new(32 << 20));
    let target: Arc<dyn Device> = device.clone();
    holdfast::CreateOptions::new().format(&target).expect("it is large enough");
    let volume = holdfast::VolumeOptions::new().open_device(target).expect("it was made");
    let count = 2 * 1000 + 100;
    let block = |index: u64| [index.to_le_bytes(); 512].concat();
    let content: Vec<u8> = (1..=count).flat_map(block).collect();
    volume.write("/file", &content).and_then(|()| volume.close()).expect("there is room");
    let image = device.to_image();
    for (at, bytes) in (0..).step_by(4096).zip(image.chunks(4096)) {
        let index = u64::from_le_bytes(*bytes.first_chunk().expect("a block has more"));
        if index % 2 == 1 && bytes == block(index) {
            device.write(at, &[0xff; 4096]).expect("memory takes it");
        }
    }
    let before = found(&*device);
    assert!(before.omitted > 0, "{} findings", before.findings.len());
    let plan = planned(&*device, &LOSS).expect("damaged data is no reason not to");
    plan.write(&*device).expect("memory takes it");
    assert!(is_repaired(&found(&*device)));
}
