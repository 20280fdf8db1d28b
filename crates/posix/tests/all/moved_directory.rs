//! fsync of a file whose directory was renamed: the file is reachable by its present path (P1).

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_posix::{Caller, FileSystem, OpenFlags, RenameFlags};

use crate::common::{mount, new_volume, quiet};

const ROOT: InodeNo = InodeNo::ROOT;

fn lookup(fs: &FileSystem, path: &[&str]) -> Option<InodeNo> {
    let mut at = ROOT;
    for name in path {
        at = fs.lookup(&Caller::root(), at, name.as_bytes()).ok()?.inode;
    }
    Some(at)
}

#[test]
fn an_fsync_keeps_the_names_above_the_file() {
    let device = new_volume(32 << 20, 4096);
    let caller = Caller::root();
    let fs = mount(&device, &quiet());
    let old = fs.mkdir(&caller, ROOT, b"old", 0o755).unwrap().inode;
    let below = fs.mkdir(&caller, old, b"below", 0o755).unwrap().inode;
    let flags = OpenFlags::READ | OpenFlags::WRITE;
    let (_, file) = fs.create(&caller, below, b"file", 0o644, flags, true).unwrap();
    fs.fsync(&file, false).unwrap();
    fs.rename(&caller, ROOT, b"old", ROOT, b"new", RenameFlags::empty()).unwrap();
    fs.fsync(&file, false).unwrap();
    // The power fails: only what was made durable is there.
    drop(file);
    let after = Arc::new(device.snapshot());
    drop(fs);
    let fs = mount(&after, &quiet());
    assert!(lookup(&fs, &["new", "below", "file"]).is_some(), "the file is not at its new path");
    assert!(lookup(&fs, &["old"]).is_none());
    fs.unmount().unwrap();
}
