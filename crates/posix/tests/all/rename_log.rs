//! `rename_log=directory` beside `names`: more work, the same tree (M2).

use std::collections::BTreeMap;

use holdfast_base::InodeNo;
use holdfast_base::prng::Prng;
use holdfast_base::switch::RenameLog;
use holdfast_format::item::FileType;
use holdfast_posix::{Caller, FileSystem, MountOptions, NewNode, RenameFlags};

use crate::common::{mount, new_volume, quiet, seed};

const STEPS: usize = 400;
const DIRS: [&str; 2] = ["one", "two"];
const FILE: NewNode = NewNode { file_type: FileType::Regular, perm: 0o644, rdev: 0 };

fn with(rename_log: RenameLog) -> MountOptions {
    MountOptions { rename_log, ..quiet() }
}

fn dirs(fs: &FileSystem) -> Vec<InodeNo> {
    let find = |name: &str| fs.lookup(&Caller::root(), InodeNo::ROOT, name.as_bytes());
    DIRS.iter().map(|name| find(name).expect("the directory is there").inode).collect()
}

/// Directory and name of every entry, and where it leads.
fn tree(fs: &FileSystem) -> BTreeMap<(InodeNo, String), InodeNo> {
    let mut tree = BTreeMap::new();
    for dir in dirs(fs) {
        fs.readdir(dir, 0, &mut |entry| {
            let name = String::from_utf8(entry.name.to_vec()).expect("our names are text");
            tree.insert((dir, name), entry.inode);
            true
        })
        .expect("readdir");
    }
    tree
}

/// What changes names, by chance. Many of these fail, under both positions alike.
fn step(fs: &FileSystem, prng: &mut Prng) {
    let root = Caller::root();
    let dirs = dirs(fs);
    let (from, to) = (*prng.pick(&dirs), *prng.pick(&dirs));
    let name = |prng: &mut Prng| format!("f{}", prng.below(12)).into_bytes();
    let (old, new) = (name(prng), name(prng));
    let flags = [RenameFlags::empty(), RenameFlags::EXCHANGE, RenameFlags::WHITEOUT];
    match prng.below(8) {
        0 | 1 => drop(fs.mknod(&root, from, &old, FILE)),
        2 => drop(fs.unlink(&root, from, &old)),
        3 => {
            if let Ok(attr) = fs.lookup(&root, from, &old) {
                let _ = fs.link(&root, attr.inode, to, &new);
            }
        }
        4 => {
            let _ = fs.fsync_inode(from).expect("fsync of a directory");
        }
        5 if prng.one_in(6) => {
            let _ = fs.sync().expect("sync");
        }
        6 if prng.one_in(10) => fs.checkpoint().expect("checkpoint"),
        _ => drop(fs.rename(&root, from, &old, to, &new, *prng.pick(&flags))),
    }
}

#[test]
fn both_positions_leave_the_same_tree_after_a_crash() {
    let seed = seed();
    let mut trees = Vec::new();
    for switch in RenameLog::ALL {
        let device = new_volume(64 << 20, 4096);
        let fs = mount(&device, &with(*switch));
        for name in DIRS {
            fs.mkdir(&Caller::root(), InodeNo::ROOT, name.as_bytes(), 0o755).expect("mkdir");
        }
        let mut prng = Prng::seeded(seed);
        for _ in 0..STEPS {
            step(&fs, &mut prng);
        }
        fs.sync().expect("sync");
        let before = tree(&fs);
        drop(fs);
        let fs = mount(&device, &with(*switch));
        assert_eq!(tree(&fs), before, "rename_log={switch}");
        trees.push(before);
        fs.unmount().expect("unmount");
    }
    assert_eq!(trees[0], trees[1]);
}

/// Makes `files` files and a commit of them, one more file and an fsync of the directory; then what each
/// rename with an fsync of the directory put into the log: records and bytes. Also how often the whole
/// directory was logged.
fn renames(switch: RenameLog, files: u64) -> (Vec<(u64, u64)>, u64) {
    // So large that no ring fills up and asks for a commit, which would begin anew.
    let device = new_volume(1 << 30, 4096);
    let fs = mount(&device, &with(switch));
    let root = Caller::root();
    let dir = fs.mkdir(&root, InodeNo::ROOT, b"dir", 0o755).expect("mkdir").inode;
    let create = |name: String| {
        fs.mknod(&root, dir, name.as_bytes(), FILE).expect("mknod");
    };
    let rename = |number: u64| {
        let (old, new) = (format!("old{number:04}"), format!("new{number:04}"));
        let flags = RenameFlags::empty();
        fs.rename(&root, dir, old.as_bytes(), dir, new.as_bytes(), flags).expect("rename");
    };
    (0..files).for_each(|number| create(format!("old{number:04}")));
    fs.checkpoint().expect("checkpoint");
    create("more".into());
    let sync = || {
        fs.fsync_inode(dir).expect("fsync");
    };
    sync();
    let logged = || {
        let counters = fs.counters();
        (counters.log_records.get(), counters.log_bytes_written.get())
    };
    let commits = fs.counters().commits.get();
    let mut costs = Vec::new();
    for number in 0..files {
        let before = logged();
        rename(number);
        sync();
        let after = logged();
        costs.push((after.0 - before.0, after.1 - before.1));
    }
    let counters = fs.counters();
    assert_eq!(counters.commits.get(), commits);
    assert_eq!((counters.log_full.get(), counters.log_too_large.get()), (0, 0));
    (costs, counters.log_directories.get())
}

#[test]
fn a_rename_costs_the_same_in_any_directory_but_not_before() {
    let (small, none) = renames(RenameLog::Names, 30);
    let (large, _) = renames(RenameLog::Names, 300);
    // Two names, the file and the directory, and nothing else: one sector.
    for cost in small.iter().chain(&large) {
        assert_eq!(*cost, (4, 512), "rename_log=names");
    }
    assert_eq!(none, 0);
    let (small, times) = renames(RenameLog::Directory, 30);
    let (large, _) = renames(RenameLog::Directory, 300);
    assert_eq!(times, 30);
    for (costs, files) in [(small, 30), (large, 300)] {
        // Two names that changed for each rename, and the one more.
        for (number, (records, _)) in (0..files).zip(&costs) {
            assert_eq!(*records, 4 + 2 * number + 1, "rename {number} of {files}");
        }
        assert!(costs[files as usize - 1].1 > 30 * files, "bytes: {costs:?}");
    }
}

#[test]
fn a_commit_ends_what_was_changed_before_it() {
    let device = new_volume(64 << 20, 4096);
    let fs = mount(&device, &with(RenameLog::Directory));
    let root = Caller::root();
    let rename = |old: &str, new: &str| {
        let (old, new, dir) = (old.as_bytes(), new.as_bytes(), InodeNo::ROOT);
        fs.rename(&root, dir, old, dir, new, RenameFlags::empty()).expect("rename");
        fs.counters().log_directories.get()
    };
    fs.mknod(&root, InodeNo::ROOT, b"a", FILE).expect("mknod");
    assert_eq!(rename("a", "b"), 0, "no fsync has logged the directory");
    let sync = || {
        fs.fsync_inode(InodeNo::ROOT).expect("fsync");
    };
    sync();
    assert_eq!(rename("b", "c"), 1);
    fs.checkpoint().expect("checkpoint");
    assert_eq!(rename("c", "d"), 1, "the commit has everything");
    sync();
    let inode = fs.lookup(&root, InodeNo::ROOT, b"d").expect("it is there").inode;
    fs.link(&root, inode, InodeNo::ROOT, b"e").expect("link");
    assert_eq!(fs.counters().log_directories.get(), 2, "a link is a new name as well");
}
