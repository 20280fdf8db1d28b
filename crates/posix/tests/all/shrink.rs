//! A volume at rest becomes smaller, and some of what would have to move does not read.

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_device::sim::{Action, Call, Faults, When};
use holdfast_device::{Device, MemoryDevice, SimDevice};
use holdfast_posix::{Caller, FileSystem};

use crate::common::*;

/// The sentence names the file in each tree that has the block, and what helps; without these it becomes smaller.
#[test]
fn a_block_that_does_not_read_names_its_files() {
    let device = new_volume(64 * MIB, 16384);
    let fs = mount(&device, &quiet());
    for number in 0..12_u8 {
        let file = create(&fs, &format!("f{number}"));
        write_all(&fs, &file, 0, &vec![number + 1; 4 * MIB as usize]);
        fs.fsync(&file, false).unwrap();
        if number < 7 {
            let name = format!("f{number}");
            drop(file);
            fs.unlink(&Caller::root(), InodeNo::ROOT, name.as_bytes()).unwrap();
        }
    }
    fs.snapshot(b"kept").unwrap();
    fs.unmount().unwrap();
    let image = device.to_image();
    let at = image
        .chunks_exact(BLOCK_BYTES as usize)
        .rposition(|block| block.iter().all(|byte| *byte == 12));
    let at = at.unwrap() as u64 * BLOCK_BYTES;
    let sim = Arc::new(SimDevice::new(&MemoryDevice::from_image(&image)));
    let bad = When::Inside { start: at, end: at + BLOCK_BYTES, skip: 0, times: u64::MAX };
    sim.set_faults(Faults::none().with(Call::Read, bad, Action::Fail));
    let shared: Arc<dyn Device> = sim.clone();
    let shrink = || FileSystem::shrink(&shared, 40 * MIB, &mut |_| ());
    let why = shrink().unwrap_err().to_string();
    let block = at / BLOCK_BYTES;
    for part in [&format!("block {block} does not read"), "main:/f11", "main@kept:/f11", "delete"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    assert!(!why.contains("f10"), "{why}");
    let fs = mount(&sim, &quiet());
    fs.unlink(&Caller::root(), InodeNo::ROOT, b"f11").unwrap();
    fs.delete_snapshot(b"main", b"kept").unwrap();
    fs.unmount().unwrap();
    assert_eq!(shrink().unwrap(), 40 * MIB);
}
