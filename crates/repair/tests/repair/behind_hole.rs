//! Files that come back behind a hole of the log, where something else has used their blocks since.

use std::io::Read;
use std::sync::Arc;

use holdfast::{CreateOptions, Volume, VolumeOptions};
use holdfast_base::units::BLOCK_BYTES;
use holdfast_check::reading::{Gaps, VolumeReading};
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::ItemKind;
use holdfast_format::item::Extent;
use holdfast_repair::{Planned, RepairOptions, is_repaired};

use crate::every_finding::{LOSS, found, planned};
use crate::lost_seal::{Held, Hold};
use crate::ring_sweep::{batches, last_batch, middle_of_batch};

const OLD: &[u8] = &[b'o'; 40_000];
const NEW: &[u8] = &[b'n'; 70_000];
const CONFIG: &str = "/config";

fn open(device: Arc<dyn Device>) -> Volume {
    VolumeOptions::new().commit_secs(0).open_device(device).expect("it is sound")
}

pub(crate) fn synced(volume: &Volume, path: &str, content: &[u8]) {
    volume.write(path, content).expect("there is room");
    volume.open_file(path).and_then(|file| file.sync_all()).expect("memory takes it");
}

/// A volume that crashed, where the batch of `/lost` is a hole of the log; `before` and `behind` are what is done there.
fn with_hole(before: impl FnOnce(&Volume), behind: impl FnOnce(&Volume)) -> MemoryDevice {
    let (crashed, at) = crashed(before, behind);
    change(&crashed, at);
    crashed
}

/// The same before the hole, and the byte at which that is.
pub(crate) fn crashed(
    before: impl FnOnce(&Volume),
    behind: impl FnOnce(&Volume),
) -> (MemoryDevice, u64) {
    let device = Arc::new(MemoryDevice::new(24 << 20));
    let target: Arc<dyn Device> = device.clone();
    let options = CreateOptions::new().node_size(4096).ring_copies(1).log_size(1 << 20);
    options.format(&target).expect("it is large enough");
    let volume = open(target);
    volume.write(CONFIG, OLD).expect("there is room");
    volume.close().expect("memory takes it");
    let held = Held::over(device.clone());
    let volume = open(held.clone());
    let hold = Hold::of(&held);
    before(&volume);
    synced(&volume, "/lost", b"lost");
    let lost = last_batch(&device);
    // What this one follows is not known: it says which inodes are older.
    synced(&volume, "/next", b"next");
    behind(&volume);
    synced(&volume, "/end", b"end");
    let crashed = device.snapshot();
    drop(hold);
    let at = middle_of_batch(&batches(&crashed)[&lost]);
    (crashed, at)
}

/// Changes a byte.
fn change(device: &MemoryDevice, at: u64) {
    let mut block = vec![0; BLOCK_BYTES as usize];
    let start = at / BLOCK_BYTES * BLOCK_BYTES;
    device.read(start, &mut block).expect("memory reads");
    block[(at - start) as usize] ^= 0x40;
    device.write(start, &block).expect("memory takes it");
}

/// The file is made behind the hole and takes the name of an older one.
fn saved_behind_hole() -> MemoryDevice {
    with_hole(
        |_| (),
        |volume| {
            synced(volume, "/fresh", NEW);
            volume.rename("/fresh", CONFIG).expect("it is there");
            volume.open_file(CONFIG).and_then(|file| file.sync_all()).expect("memory takes it");
        },
    )
}

/// Blocks of `/config` as it comes back.
fn blocks_of_config(device: &MemoryDevice) -> Vec<u64> {
    let reading = VolumeReading::open_over(device, false, Gaps::Cross).expect("there is a volume");
    let main = &reading.trees()[0];
    let made = reading.made_later().keys();
    let mut made = made.filter(|(_, inode)| reading.later_path(main, *inode) == CONFIG);
    let inode = made.next().expect("it comes back").1;
    let extents = reading
        .changes(main.id)
        .iter()
        .filter(|(key, _)| (key.inode, key.kind) == (inode, ItemKind::Extent));
    let extents = extents.filter_map(|(_, change)| Extent::decode(change.value.as_ref()?).ok());
    let blocks = extents.map(|of| of.blocks).flat_map(|of| of.start.0..of.start.0 + of.count);
    blocks.collect()
}

/// The lines of a plan about `/config`, with whether each is a loss, and the volume behind it.
fn repaired(device: &MemoryDevice, options: &RepairOptions) -> (Vec<(String, bool)>, Volume) {
    let plan: Planned = planned(device, options).expect("it is possible");
    let of_config = plan.repairs.iter().filter(|it| it.path.as_deref() == Some(CONFIG));
    let lines = of_config.map(|it| (it.what.clone(), it.loses)).collect();
    plan.write(device).expect("memory takes it");
    assert!(is_repaired(&found(device)), "{:?}", found(device).findings);
    (lines, open(Arc::new(device.snapshot())))
}

const FAST: RepairOptions = RepairOptions { data: false, ..LOSS };

/// What is left of it is there, and the plan says what does not read, also without a look at all data. What had its name is in `lost+found`.
#[test]
fn a_file_that_lost_some_blocks_since_comes_back_without_them() {
    let device = saved_behind_hole();
    let blocks = blocks_of_config(&device);
    assert!(blocks.len() >= 17, "{blocks:?}");
    change(&device, (blocks[blocks.len() - 1]) * BLOCK_BYTES);
    let (lines, volume) = repaired(&device, &FAST);
    let line = format!("of its {} blocks 1 hold other data, and 0 do not read", blocks.len());
    assert!(lines.iter().any(|(what, loses)| what.contains(&line) && *loses), "{lines:?}");
    assert!(volume.read(CONFIG).is_err());
    let mut start = vec![0; 60_000];
    volume.open_file(CONFIG).and_then(|mut file| file.read_exact(&mut start)).expect("it reads");
    assert!(NEW.starts_with(&start));
    assert_eq!(found(&device).findings.len(), 1, "{:?}", found(&device).findings);
}

/// A name without data helps no reader: the older file keeps it.
#[test]
fn a_file_of_which_nothing_is_left_stays_away() {
    let device = saved_behind_hole();
    for block in blocks_of_config(&device) {
        change(&device, block * BLOCK_BYTES);
    }
    let (lines, volume) = repaired(&device, &FAST);
    assert!(lines.iter().any(|(what, loses)| what.contains("as it was before") && *loses));
    assert_eq!(volume.read(CONFIG).expect("it reads"), OLD);
    assert_eq!(volume.read("/end").expect("it was made behind the hole"), b"end");
    assert!(found(&device).is_clean(), "{:?}", found(&device).findings);
}

/// Nothing changed since: the file that was saved last is there.
#[test]
fn a_file_that_is_whole_comes_back_over_an_older_one() {
    let device = saved_behind_hole();
    let (lines, volume) = repaired(&device, &FAST);
    assert!(lines.iter().any(|(what, loses)| what.contains("as the log has it last") && !loses));
    assert_eq!(volume.read(CONFIG).expect("it reads"), NEW);
    assert!(found(&device).is_clean());
}
