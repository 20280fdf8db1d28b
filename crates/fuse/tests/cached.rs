//! What the kernel believes for hours stays true: nothing that stat shows changes without a request.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use holdfast_base::InodeNo;
use holdfast_posix::FileSystem;
use holdfast_script::{Host, Profile, Target, generate};

use common::{Mount, can_mount};

/// Scripts set the umask of their process, so these tests have one of their own.
#[path = "mount/common.rs"]
#[allow(dead_code, reason = "these tests use a part of it")]
mod common;

/// Everything of `stat` that the kernel keeps.
#[derive(Debug, PartialEq, Eq)]
struct Believed {
    mode: u32,
    nlink: u64,
    owner: (u32, u32),
    size: u64,
    blocks: u64,
    atime: (i64, i64),
    mtime: (i64, i64),
    ctime: (i64, i64),
}

fn kernel(path: &Path) -> (u64, Believed) {
    let meta = fs::symlink_metadata(path).unwrap();
    let believed = Believed {
        mode: meta.mode() & 0o7777,
        nlink: meta.nlink(),
        owner: (meta.uid(), meta.gid()),
        size: meta.size(),
        blocks: meta.blocks(),
        atime: (meta.atime(), meta.atime_nsec()),
        mtime: (meta.mtime(), meta.mtime_nsec()),
        ctime: (meta.ctime(), meta.ctime_nsec()),
    };
    (meta.ino(), believed)
}

fn server(fs: &FileSystem, inode: u64) -> Believed {
    let attr = fs.getattr(InodeNo(inode)).unwrap();
    let time = |time: holdfast_base::Timestamp| (time.secs, i64::from(time.nanos));
    Believed {
        mode: attr.perm,
        nlink: attr.nlink.into(),
        owner: (attr.uid, attr.gid),
        size: attr.size,
        blocks: attr.blocks,
        atime: time(attr.atime),
        mtime: time(attr.mtime),
        ctime: time(attr.ctime),
    }
}

/// Asks the kernel for everything below `dir`, so that it knows, and compares.
fn compare(fs: &FileSystem, dir: &Path, what: &str) {
    let mut found = BTreeMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if fs::symlink_metadata(&path).unwrap().is_dir() {
                dirs.push(path.clone());
            }
            found.insert(path, ());
        }
        found.insert(dir, ());
    }
    for path in found.into_keys() {
        let (inode, believed) = kernel(&path);
        assert_eq!(believed, server(fs, inode), "{what}: {}", path.display());
    }
}

/// What a script does through the kernel, and what the volume does by itself in between.
#[test]
fn the_kernel_believes_what_the_server_says() {
    if !can_mount() {
        return;
    }
    let profile = Profile { ops: 100, remounts: 0, crashes: 0, evicts: 0, ..Profile::default() };
    for seed in 0..6 {
        let mount = Mount::fresh();
        let volume = mount.fs();
        let mut host = Host::new(mount.dir.path()).unwrap();
        for (at, op) in generate(seed, &profile).ops().enumerate() {
            host.apply(op);
            let what = format!("seed {seed}, step {at}: {op}");
            compare(&volume, mount.dir.path(), &what);
            match at % 3 {
                0 => drop(volume.sync().unwrap()),
                1 => volume.commit().unwrap(),
                _ => {}
            }
            compare(&volume, mount.dir.path(), &format!("{what}, and behind the kernel"));
        }
    }
}

/// Reading and copying set a time, and the kernel is not asked which user reads.
#[test]
fn the_kernel_hears_of_access_times() {
    if !can_mount() {
        return;
    }
    let mount = Mount::fresh();
    let (volume, dir) = (mount.fs(), mount.dir.path());
    fs::write(mount.path("from"), [7; 100_000]).unwrap();
    let (from, to) =
        (File::open(mount.path("from")).unwrap(), File::create(mount.path("to")).unwrap());
    compare(&volume, dir, "made");
    rustix::fs::copy_file_range(&from, None, &to, None, 50_000).unwrap();
    compare(&volume, dir, "copied");
    fs::write(mount.path("from"), [8; 100_000]).unwrap();
    rustix::fs::fadvise(&from, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    compare(&volume, dir, "written");
    from.read_exact_at(&mut [0; 10], 0).unwrap();
    compare(&volume, dir, "read");
}

/// tar takes a file of 0 blocks for one hole, without looking.
#[test]
fn tar_saves_data_in_holes_and_in_small_files() {
    if !can_mount() {
        return;
    }
    let mount = Mount::fresh();
    let file = OpenOptions::new().write(true).create_new(true).open(mount.path("sparse")).unwrap();
    file.set_len(1 << 20).unwrap();
    file.write_all_at(&[7; 4096], 8192).unwrap();
    assert_eq!(file.metadata().unwrap().blocks(), 8);
    fs::write(mount.path("small"), [5; 1900]).unwrap();
    let saved = |when: &str| {
        let archive = tempfile::tempdir().unwrap();
        let made = archive.path().join("saved.tar");
        let mut tar = Command::new("tar");
        tar.arg("-cSf").arg(&made).args(["sparse", "small"]).current_dir(mount.dir.path());
        assert!(tar.status().unwrap().success());
        let tar = Command::new("tar").arg("-xf").arg(&made).current_dir(archive.path()).status();
        assert!(tar.unwrap().success());
        for name in ["sparse", "small"] {
            let (there, here) = (fs::read(archive.path().join(name)), fs::read(mount.path(name)));
            assert!(there.unwrap() == here.unwrap(), "{name}, {when}");
        }
    };
    saved("delayed");
    file.sync_all().unwrap();
    File::open(mount.path("small")).unwrap().sync_all().unwrap();
    assert_eq!(file.metadata().unwrap().blocks(), 8);
    saved("durable");
}
