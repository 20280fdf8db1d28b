//! What a check costs, in nodes that are judged: names of a branch cost about what they do in `main`, and grow as their number does.

use std::cell::Cell;
use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_check::{Options, Progress, check};
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::item::FileType;
use holdfast_posix::{Caller, FileSystem, MkfsOptions, MountOptions, NewNode};

/// Nodes that a check judges of a volume with so many names in one directory, in `main` or in a fork of what is empty.
fn judged(names: u64, is_fork: bool) -> u64 {
    let device = Arc::new(MemoryDevice::new(96 << 20));
    let target: Arc<dyn Device> = device.clone();
    let options = MkfsOptions { node_size: 4096, ..MkfsOptions::default() };
    FileSystem::mkfs(&target, &options).expect("it is large enough");
    let options = || MountOptions { commit_secs: 0, ..MountOptions::default() };
    let main = FileSystem::mount(device.clone(), options()).expect("it was made");
    main.fork(b"fork", None).expect("there is room");
    let fork = main.open_branch(b"fork", options()).expect("it is there");
    let of = if is_fork { &fork } else { &main };
    let caller = Caller::root();
    let dir = of.mkdir(&caller, InodeNo::ROOT, b"dir", 0o755).expect("there is room").inode;
    for name in 0..names {
        let new = NewNode { file_type: FileType::Regular, perm: 0o644, rdev: 0 };
        of.mknod(&caller, dir, name.to_string().as_bytes(), new).expect("there is room");
    }
    fork.unmount().expect("memory takes it");
    main.unmount().expect("memory takes it");
    let last = Cell::new(0);
    let show = |progress: Progress| last.set(progress.judged);
    let report = check(&*device, &Options { data: false, progress: Some(&show) });
    assert_eq!(report.expect("there is a volume").findings, []);
    last.get()
}

#[test]
fn names_of_a_fork_cost_what_those_of_main_do() {
    let (few, many) = (1_000, 4_000);
    let in_main = judged(many, false);
    let in_fork = [few, many].map(|names| judged(names, true));
    println!("{many} names: {in_main} nodes in main, {in_fork:?} in forks of {few} and {many}");
    assert!(in_fork[1] < 4 * in_main, "{in_fork:?} nodes, {in_main} in main");
    assert!(in_fork[1] < 6 * in_fork[0], "{in_fork:?} nodes");
}
