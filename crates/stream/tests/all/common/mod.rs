//! Volumes in memory, all that a snapshot holds, and streams between them.

#![allow(missing_docs, clippy::unwrap_used, dead_code, unreachable_pub)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use holdfast::device::{Device, MemoryDevice};
use holdfast::{CreateOptions, FileType, Snapshot, Volume, VolumeOptions};
use holdfast_stream::{Received, Receiving, Result, Sending, send};

/// All of a file but its names.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    pub kind: FileType,
    pub mode: u32,
    pub nlink: u32,
    pub owner: (u32, u32),
    pub modified: std::time::SystemTime,
    pub created: std::time::SystemTime,
    pub rdev: u64,
    pub content: Vec<u8>,
    /// Where a file has data.
    pub data: Vec<(u64, u64)>,
    pub xattrs: BTreeMap<String, Vec<u8>>,
}

/// Each file with all its paths.
pub type Listing = BTreeMap<BTreeSet<PathBuf>, File>;

pub fn listing(volume: &Volume) -> Listing {
    let mut names: BTreeMap<u64, BTreeSet<PathBuf>> = BTreeMap::new();
    let mut files = BTreeMap::new();
    let mut todo = vec![(PathBuf::from("/"), 1)];
    while let Some((path, no)) = todo.pop() {
        names.entry(no).or_default().insert(path.clone());
        if files.contains_key(&no) {
            continue;
        }
        let of = volume.symlink_metadata(&path).unwrap();
        let (mut content, mut data) = (Vec::new(), Vec::new());
        match of.file_type() {
            FileType::Regular => {
                let file = volume.open_file(&path).unwrap();
                content = vec![0; of.len() as usize];
                file.read_exact_at(&mut content, 0).unwrap();
                let mut at = 0;
                while let Some(start) = file.seek_data(at).unwrap() {
                    at = file.seek_hole(start).unwrap();
                    data.push((start, at));
                }
            }
            FileType::Symlink => {
                content = volume.read_link(&path).unwrap().into_os_string().into_encoded_bytes();
            }
            FileType::Directory => {
                for entry in volume.read_dir(&path).unwrap() {
                    let entry = entry.unwrap();
                    todo.push((entry.path(), entry.ino()));
                }
            }
            _ => {}
        }
        let mut xattrs = BTreeMap::new();
        for name in volume.xattrs(&path).unwrap() {
            let name = name.into_string().unwrap();
            xattrs.insert(name.clone(), volume.xattr(&path, &name).unwrap());
        }
        let file = File {
            kind: of.file_type(),
            mode: of.mode(),
            nlink: of.nlink(),
            owner: (of.uid(), of.gid()),
            modified: of.modified(),
            created: of.created(),
            rdev: of.rdev(),
            content,
            data,
            xattrs,
        };
        files.insert(no, file);
    }
    files.into_iter().map(|(no, file)| (names.remove(&no).unwrap(), file)).collect()
}

pub fn listing_of(snapshot: &Snapshot) -> Listing {
    let open = snapshot.open().unwrap();
    let found = listing(&open);
    open.close().unwrap();
    found
}

/// Fails with what differs, and nothing else.
pub fn expect_same(wanted: &Listing, found: &Listing, what: &str) {
    if wanted == found {
        return;
    }
    for (names, file) in wanted {
        let other = found.get(names);
        assert_eq!(other.map(brief), Some(brief(file)), "{what}: {names:?}");
    }
    let more: Vec<_> = found.keys().filter(|names| !wanted.contains_key(*names)).collect();
    panic!("{what}: more than was sent: {more:?}");
}

/// Without where there is data: zeros that were written where a hole was are no change.
pub fn bytes_alone(mut of: Listing) -> Listing {
    of.values_mut().for_each(|file| file.data.clear());
    of
}

fn brief(file: &File) -> File {
    let content = file.content.iter().take(64).copied().collect();
    File { content, ..file.clone() }
}

pub fn device(bytes: u64) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(bytes));
    let any: Arc<dyn Device> = device.clone();
    CreateOptions::new().node_size(4096).format(&any).unwrap();
    device
}

pub fn open(device: &Arc<MemoryDevice>) -> Volume {
    let device: Arc<dyn Device> = device.clone();
    VolumeOptions::new().commit_secs(0).open_device(device).unwrap()
}

pub fn sent(volume: &Volume, what: Sending) -> Vec<u8> {
    let mut bytes = Vec::new();
    send(volume, what, &mut bytes, &mut |_| {}).unwrap();
    bytes
}

pub fn receive(volume: &Volume, bytes: &[u8], branch: Option<&str>) -> Result<Received> {
    Receiving::begin(volume, bytes, branch)?.run(&mut |_| {})
}

/// A snapshot by a name like `main@s`.
pub fn snapshot(volume: &Volume, name: &str) -> Snapshot {
    let (branch, name) = name.split_once('@').unwrap();
    volume.branch(branch).unwrap().snapshot_named(name).unwrap()
}

pub fn expect_clean(device: &MemoryDevice, what: &str) {
    let report = holdfast_check::check(device, &holdfast_check::Options::default()).unwrap();
    assert!(report.is_clean(), "{what}: {:#?}", report.findings);
}
