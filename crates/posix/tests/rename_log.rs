//! `rename_log=directory` beside `names`: more work, the same tree (M2).

mod common;

use std::collections::BTreeMap;

use common::{mount, new_volume, quiet, seed};
use holdfast_base::InodeNo;
use holdfast_base::prng::Prng;
use holdfast_base::switch::RenameLog;
use holdfast_posix::{Caller, FileSystem, MountOptions, NewNode, RenameFlags};

const STEPS: usize = 400;
const DIRS: [&str; 2] = ["one", "two"];

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
    let file =
        NewNode { file_type: holdfast_format::item::FileType::Regular, perm: 0o644, rdev: 0 };
    let flags = [RenameFlags::empty(), RenameFlags::EXCHANGE, RenameFlags::WHITEOUT];
    match prng.below(8) {
        0 | 1 => drop(fs.mknod(&root, from, &old, file)),
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
