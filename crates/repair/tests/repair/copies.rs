//! Nodes that are stored twice: whichever places are bad, as long as one of each node is sound nothing is lost, and nobody is asked
//! whether anything may be.

use std::collections::BTreeSet;
use std::io::Cursor;
use std::sync::Arc;

use holdfast::{CreateOptions, Volume, VolumeOptions};
use holdfast_base::BlockNo;
use holdfast_base::prng::Prng;
use holdfast_base::units::{BLOCK_BYTES, BLOCK_SIZE};
use holdfast_check::Issue;
use holdfast_check::report::KEPT_MAX;
use holdfast_device::sim::{Action, Call, Faults, When};
use holdfast_device::{Device, DeviceError, MemoryDevice, SimDevice, forward};
use holdfast_format::node::{ADDRESS_AT, MAGIC};
use holdfast_format::{Geometry, Stored};
use holdfast_repair::{RepairOptions, Undo, is_repaired};

use crate::every_finding::{found, planned};

const BYTES: u64 = 16 << 20;
const CAREFUL: RepairOptions = RepairOptions { data: true, accept_loss: false };

fn geometry() -> Geometry {
    let plain = Geometry::for_device(BYTES, 4096).expect("it is large enough");
    plain.with_copies().expect("it is large enough for copies")
}

fn open(device: Arc<dyn Device>) -> Volume {
    VolumeOptions::new().commit_secs(0).open_device(device).expect("it is sound")
}

/// Some hundred files, in a branch and a snapshot.
fn image() -> MemoryDevice {
    let device = Arc::new(MemoryDevice::new(BYTES));
    let target: Arc<dyn Device> = device.clone();
    let options = CreateOptions::new().node_size(4096).metadata_copies(2);
    options.format(&target).expect("it is large enough");
    let volume = open(target);
    for number in 0..300 {
        volume.write(format!("/file-{number:03}"), [number as u8; 300]).expect("there is room");
    }
    volume.branch_here().expect("it is open").snapshot("one").expect("there is room");
    for number in (0..300).step_by(3) {
        volume.write(format!("/file-{number:03}"), [9; 400]).expect("there is room");
    }
    volume.close().expect("memory takes it");
    device.snapshot()
}

fn block_of(image: &MemoryDevice, block: BlockNo) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_SIZE];
    image.read(block.0 * BLOCK_BYTES, &mut bytes).expect("it is inside");
    bytes
}

/// What stands at places of nodes, in use or not.
fn nodes(image: &MemoryDevice) -> Vec<BlockNo> {
    let blocks = (0..geometry().volume_blocks).map(BlockNo);
    let is_node = |at: &BlockNo| {
        let bytes = block_of(image, *at);
        bytes.starts_with(&MAGIC) && bytes[ADDRESS_AT..ADDRESS_AT + 8] == at.0.to_le_bytes()
    };
    blocks.filter(|at| geometry().holds_node(*at, Stored::Twice)).filter(is_node).collect()
}

/// All that a caller sees.
fn content(device: &MemoryDevice) -> Vec<(String, Vec<u8>)> {
    let volume = open(Arc::new(device.snapshot()));
    let mut files = Vec::new();
    for number in 0..300 {
        let path = format!("/file-{number:03}");
        let bytes = volume.read(&path).expect("it is there");
        files.push((path, bytes));
    }
    files
}

#[test]
fn a_sound_place_of_each_node_is_enough() {
    let sound = image();
    assert!(is_repaired(&found(&sound)) && found(&sound).findings.is_empty());
    let told = content(&sound);
    let nodes = nodes(&sound);
    assert!(nodes.len() > 60, "{} nodes say too little", nodes.len());
    for seed in 0..6 {
        let mut prng = Prng::seeded(seed);
        let damaged = sound.snapshot();
        let mut bad = BTreeSet::new();
        for block in &nodes {
            // The node, its copy, or none of them; all nodes, or all copies.
            let copy = geometry().copy_of(*block, Stored::Twice).expect("it has copies");
            let place = match seed {
                0 => *block,
                1 => copy,
                _ if prng.one_in(3) => continue,
                _ => *prng.pick(&[*block, copy]),
            };
            let mut bytes = block_of(&damaged, place);
            match prng.below(3) {
                0 => bytes.fill(0),
                1 => bytes[70] ^= 1,
                _ => bytes = block_of(&sound, *prng.pick(&nodes)),
            }
            damaged.write(place.0 * BLOCK_BYTES, &bytes).expect("it is inside");
            bad.insert(place);
        }
        let report = found(&damaged);
        let wrong = report.findings.iter().find(|it| it.issue() != Issue::NodeCopyBad);
        assert!(wrong.is_none(), "seed {seed}: {wrong:?}");
        assert!(!report.findings.is_empty(), "seed {seed}");
        assert!(report.findings.iter().all(|it| bad.contains(&it.block.expect("it names it"))));
        let plan = planned(&damaged, &CAREFUL).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert!(!plan.loses(), "seed {seed}: {:#?}", plan.repairs);
        plan.write(&damaged).expect("memory takes it");
        let after = found(&damaged);
        assert!(after.findings.is_empty(), "seed {seed}: {:#?}", after.findings);
        assert!(content(&damaged) == told, "seed {seed}");
    }
}

/// What does not read is no reason to ask for a loss, if the other place does.
#[test]
fn a_place_that_does_not_read_loses_nothing() {
    let sound = image();
    let told = content(&sound);
    let device = SimDevice::new(&sound);
    // The half of the zone where nodes are.
    let start = geometry().first_data_block().0 * BLOCK_BYTES;
    let nodes = nodes(&sound);
    let last = nodes.iter().max().expect("there are some");
    let inside = When::Inside { start, end: (last.0 + 1) * BLOCK_BYTES, skip: 0, times: u64::MAX };
    let data = RepairOptions { data: false, ..CAREFUL };
    device.set_faults(Faults::none().with(Call::Read, inside, Action::Fail));
    let report = holdfast_check::check(&device, &Default::default()).expect("there is a volume");
    assert!(report.findings.iter().all(|it| it.issue() == Issue::NodeCopyBad), "{report:#?}");
    assert!(!report.findings.is_empty());
    let plan = holdfast_repair::plan(&device, &report, &data).expect("nothing is lost");
    device.set_faults(Faults::none());
    plan.write(&device).expect("memory takes it");
    assert!(found(&device).findings.is_empty());
    assert!(content(&device.image()) == told);
}

/// More places than a report lists, all of them in one repair, which keeps none of their bytes.
#[test]
fn all_second_places_may_be_bad() {
    let plain = Geometry::for_device(128 << 20, 4096).expect("it is large enough");
    let geometry = plain.with_copies().expect("it is large enough for copies");
    let device = Arc::new(MemoryDevice::new(128 << 20));
    let target: Arc<dyn Device> = device.clone();
    let options = CreateOptions::new().node_size(4096).metadata_copies(2);
    options.format(&target).expect("it is large enough");
    let volume = open(target);
    for number in 0..17_000 {
        volume.write(format!("/{number}"), [7; 700]).expect("there is room");
    }
    volume.close().expect("memory takes it");
    let before = found(&*device);
    assert!(before.facts.node_blocks > 2 * 6 * KEPT_MAX, "{} blocks", before.facts.node_blocks);
    let is_node = |block: &BlockNo| {
        let bytes = block_of(&device, *block);
        bytes.starts_with(&MAGIC) && bytes[ADDRESS_AT..ADDRESS_AT + 8] == block.0.to_le_bytes()
    };
    for block in (0..geometry.volume_blocks).map(BlockNo).filter(is_node) {
        let copy = geometry.copy_of(block, Stored::Twice).expect("it has copies");
        device.write(copy.0 * BLOCK_BYTES, &[0; BLOCK_SIZE]).expect("it is inside");
    }
    let report = found(&*device);
    assert!(report.findings.iter().all(|it| it.issue() == Issue::NodeCopyBad));
    assert!(report.omitted > 5 * KEPT_MAX - 1000, "{} more", report.omitted);
    let plan = planned(&*device, &CAREFUL).expect("it can be repaired");
    assert!(!plan.loses());
    let left = plan.write(&*device).expect("memory takes it");
    assert!(left.is_empty());
    let after = found(&*device);
    assert!(after.findings.is_empty(), "{:#?}", after.findings);
}

/// A device that does not take writes of one block, and may not read it.
#[derive(Debug)]
struct Refuses {
    device: MemoryDevice,
    block: BlockNo,
    reads: bool,
}

impl Refuses {
    fn judge(&self, call: &'static str, at: u64, len: u64) -> Result<(), DeviceError> {
        let block = self.block.0 * BLOCK_BYTES;
        if at <= block && block < at + len {
            let source = std::io::Error::other("the sector is gone");
            return Err(DeviceError::Io { call, at, len, source });
        }
        Ok(())
    }
}

impl Device for Refuses {
    forward!(device: flush, discard, len, room, take_room, sector_size, reach, stats);

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        if !self.reads {
            self.judge("read", at, into.len() as u64)?;
        }
        self.device.read(at, into)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.judge("write", at, bytes.len() as u64)?;
        self.device.write(at, bytes)
    }
}

/// A place that the device does not take is said, and the others are mended. An undo puts all others back.
#[test]
fn a_place_that_does_not_write_fails_nothing_else() {
    let sound = image();
    let told = content(&sound);
    let damaged = sound.snapshot();
    for block in nodes(&sound) {
        damaged.write(block.0 * BLOCK_BYTES, &[0; BLOCK_SIZE]).expect("it is inside");
    }
    let bad: Vec<BlockNo> =
        found(&damaged).findings.iter().filter_map(|finding| finding.block).collect();
    let stays = bad[bad.len() / 2];
    for reads in [true, false] {
        let device = Refuses { device: damaged.snapshot(), block: stays, reads };
        let plan = planned(&device, &CAREFUL).expect("nothing is lost");
        let mut kept = Vec::new();
        plan.keep(&device, &mut kept).expect("memory takes it");
        let left = plan.write(&device).expect("the others are written");
        assert_eq!(left.iter().map(|of| of.block).collect::<Vec<_>>(), [stays]);
        let after = found(&device).findings;
        assert_eq!(after.len(), 1, "{after:#?}");
        assert_eq!((after[0].issue(), after[0].block), (Issue::NodeCopyBad, Some(stays)));
        assert!(content(&device.device) == told);
        let undo = Undo::open(Cursor::new(kept)).expect("it is whole");
        let undone = undo.write(&device).expect("the others are put back");
        assert_eq!((undone.unread, undone.unwritten), (0, u64::from(!reads)));
        assert!(device.device.to_image() == damaged.to_image(), "bit for bit");
    }
}
