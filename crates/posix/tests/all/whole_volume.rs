//! What is promised of the volume holds for all of its branches, by whichever it is asked for.

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_device::sim::{Action, Call, Faults, When};
use holdfast_device::{Device, MemoryDevice, SimDevice};
use holdfast_posix::{Caller, FileSystem, MkfsOptions, OpenFlags};

use crate::common::*;

const BYTES: &[u8] = &[7; 30_000];

type Act = fn(&FileSystem);

/// Calls that make everything durable.
const CALLS: [(&str, Act); 2] =
    [("sync", |fs| assert!(fs.sync().is_ok())), ("commit", |fs| fs.commit().unwrap())];

/// What a kill or a power cut leaves.
fn left(device: &MemoryDevice) -> FileSystem {
    mount(&Arc::new(device.snapshot()), &quiet())
}

fn is_there(fs: &FileSystem, name: &str) -> bool {
    read(fs, &open(fs, name, OpenFlags::READ), 0, BYTES.len()).unwrap() == BYTES
}

#[test]
fn each_call_makes_all_branches_durable_by_whichever_it_is_made() {
    for (call, make) in CALLS {
        for by in ["main", "fork", "snapshot"] {
            let device = new_volume(64 * MIB, 4096);
            let main = mount(&device, &quiet());
            main.snapshot(b"s").unwrap();
            main.fork(b"fork", Some(b"s")).unwrap();
            let fork = main.open_branch(b"fork", quiet()).unwrap();
            let snapshot = main.open_snapshot(b"main", b"s", quiet()).unwrap();
            for (fs, name) in [(&main, "m"), (&fork, "f")] {
                write_all(fs, &create(fs, name), 0, BYTES);
            }
            match by {
                "main" => make(&main),
                "fork" => make(&fork),
                // A commit of what is only read is none.
                _ if call == "commit" => continue,
                _ => make(&snapshot),
            }
            let after = left(&device);
            assert!(is_there(&after, "m"), "{call} by {by}");
            assert!(is_there(&after.open_branch(b"fork", quiet()).unwrap(), "f"), "{call} by {by}");
        }
    }
}

/// Each branch hears of it once, and what is whole is durable.
#[test]
fn a_loss_in_one_branch_is_reported_by_a_sync_of_each() {
    let memory = MemoryDevice::new(64 * MIB);
    let sim = Arc::new(SimDevice::new(&memory));
    let device: Arc<dyn Device> = sim.clone();
    FileSystem::mkfs(&device, &MkfsOptions { node_size: 4096, ..MkfsOptions::default() }).unwrap();
    let main = mount(&sim, &quiet());
    main.fork(b"fork", None).unwrap();
    let fork = main.open_branch(b"fork", quiet()).unwrap();
    write_all(&main, &create(&main, "m"), 0, BYTES);
    let start = main.superblock().geometry.first_data_block().byte_offset().unwrap();
    let of_data = When::Inside { start, end: u64::MAX, skip: 0, times: u64::MAX };
    sim.set_faults(Faults::none().with(Call::Write, of_data, Action::Fail));
    // As the background does it. What can be appended is, all the same.
    main.mkdir(&Caller::root(), InodeNo::ROOT, b"d", 0o755).unwrap();
    assert_eq!(main.rest().unwrap_err().errno(), libc::EIO);
    assert!(left(&sim.image()).lookup(&Caller::root(), InodeNo::ROOT, b"d").is_ok());
    sim.set_faults(Faults::none());
    write_all(&fork, &create(&fork, "f"), 0, BYTES);
    for fs in [&fork, &main] {
        assert_eq!(fs.sync().unwrap_err().errno(), libc::EIO);
        fs.sync().expect("it was told here");
    }
    let after = left(&sim.image());
    assert!(is_there(&after.open_branch(b"fork", quiet()).unwrap(), "f"));
}
