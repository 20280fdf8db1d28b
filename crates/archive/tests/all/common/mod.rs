//! Random volumes, and what is in one, to be compared.

#![allow(dead_code, clippy::unwrap_used, unreachable_pub)]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use holdfast::device::{Device, MemoryDevice};
use holdfast::{FileType, Volume, VolumeOptions};
use holdfast_base::Timestamp;
use holdfast_script::{Profile, Target, generate};
use holdfast_sim::{Engine, Setup};

/// A volume on which a random script has worked, with snapshots between.
pub fn random_volume(seed: u64, ops: usize) -> Volume {
    let profile = Profile { ops, far: 0, names: 5, ..Profile::default() };
    let script = generate(seed, &profile);
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    let mut engine = Engine::create(device.clone(), Setup::new(4096, 8)).unwrap();
    for (index, step) in script.steps.iter().enumerate() {
        engine.apply(&step.op);
        if index % 50 == 49 {
            engine.filesystem().unwrap().snapshot(format!("s{index}").as_bytes()).unwrap();
        }
    }
    drop(engine);
    VolumeOptions::new().open_device(device).unwrap()
}

/// The names of the snapshots.
pub fn snapshots(volume: &Volume) -> Vec<String> {
    let all = volume.branch("main").unwrap().snapshots().unwrap();
    all.iter().map(|of| of.name().to_owned()).collect()
}

/// All of a file but its names, its inode number and the times that no call sets.
#[derive(Debug, PartialEq)]
pub struct FileLooks {
    file_type: FileType,
    mode: u32,
    owner: (u32, u32),
    rdev: u64,
    mtime: (i64, u32),
    nlink: u32,
    content: Vec<u8>,
    holes: Vec<(u64, u64)>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first path of the same file.
    same_as: PathBuf,
}

/// What is at each path; sockets are left out.
pub fn listing(of: &Volume) -> BTreeMap<PathBuf, FileLooks> {
    let mut all = BTreeMap::new();
    let mut first: BTreeMap<u64, PathBuf> = BTreeMap::new();
    let mut todo = vec![PathBuf::from(".")];
    let mut paths = Vec::new();
    while let Some(path) = todo.pop() {
        if of.symlink_metadata(&path).unwrap().is_dir() {
            todo.extend(of.read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        paths.push(path);
    }
    paths.sort();
    for path in paths {
        let found = of.symlink_metadata(&path).unwrap();
        let file_type = found.file_type();
        if file_type == FileType::Socket {
            continue;
        }
        let (mut content, mut holes) = (Vec::new(), Vec::new());
        match file_type {
            FileType::Regular => {
                content = of.read(&path).unwrap();
                let file = of.open_file(&path).unwrap();
                let mut at = 0;
                while at < found.len()
                    && let Some(start) = file.seek_data(at).unwrap()
                {
                    at = file.seek_hole(start).unwrap();
                    holes.push((start, at.min(found.len())));
                }
            }
            FileType::Symlink => {
                content = of.read_link(&path).unwrap().as_os_str().as_bytes().to_vec();
            }
            _ => {}
        }
        let names = of.xattrs(&path).unwrap();
        let xattr = |name: &std::ffi::OsString| {
            let value = of.xattr(&path, OsStr::new(name)).unwrap();
            (name.as_bytes().to_vec(), value)
        };
        let mtime = Timestamp::from(found.modified());
        let same_as = first.entry(found.ino()).or_insert_with(|| path.clone()).clone();
        let what = FileLooks {
            file_type,
            mode: found.mode(),
            owner: (found.uid(), found.gid()),
            rdev: found.rdev(),
            mtime: (mtime.secs, mtime.nanos),
            nlink: if found.is_dir() { 0 } else { found.nlink() },
            content,
            holes,
            xattrs: names.iter().map(xattr).collect(),
            same_as,
        };
        all.insert(path, what);
    }
    all
}

/// Fails with the paths at which two volumes differ; holes count only if `holes` says so: a difference does not tell them.
#[track_caller]
pub fn assert_same(found: &Volume, wanted: &Volume, holes: bool, what: &str) {
    let (mut found, mut wanted) = (listing(found), listing(wanted));
    if !holes {
        found.values_mut().chain(wanted.values_mut()).for_each(|of| of.holes.clear());
    }
    let paths: std::collections::BTreeSet<_> = found.keys().chain(wanted.keys()).collect();
    for path in paths {
        let (found, wanted) = (found.get(path), wanted.get(path));
        let short = |of: Option<&FileLooks>| {
            of.map(|of| {
                (
                    of.mode,
                    of.owner,
                    of.mtime,
                    of.nlink,
                    of.content.len(),
                    of.holes.clone(),
                    of.xattrs.len(),
                    of.same_as.clone(),
                )
            })
        };
        assert!(
            found == wanted,
            "{what}, {}: {:?} should be {:?}",
            path.display(),
            short(found),
            short(wanted)
        );
    }
}
