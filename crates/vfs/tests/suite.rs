//! The suite that the vfs crate has for its own filesystems, and what a volume promises beyond it.

#![allow(missing_docs, clippy::unwrap_used, clippy::useless_vec, reason = "the suite is a macro")]

use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use holdfast::Volume;
use holdfast_vfs::HoldfastFs;
use vfs::VfsPath;
use vfs::error::VfsErrorKind;

fn volume() -> Arc<Volume> {
    Arc::new(Volume::in_memory(64 << 20).unwrap())
}

mod whole_volume {
    vfs::test_vfs!({
        let volume = std::sync::Arc::new(holdfast::Volume::in_memory(64 << 20).unwrap());
        holdfast_vfs::HoldfastFs::new(volume)
    });
}

mod one_directory {
    vfs::test_vfs!({
        let volume = std::sync::Arc::new(holdfast::Volume::in_memory(64 << 20).unwrap());
        volume.create_dir_all("a/b").unwrap();
        holdfast_vfs::HoldfastFs::in_directory(volume, "a/b").unwrap()
    });
}

/// A move that meets something loses nothing.
#[test]
fn a_move_replaces_nothing() {
    let fs = HoldfastFs::new(volume());
    let (file, other, dir) = ("/a", "/b", "/d");
    fs.volume().write("a", "a").unwrap();
    fs.volume().write("b", "b").unwrap();
    fs.volume().create_dir("d").unwrap();
    let moved = |to| vfs::FileSystem::move_file(&fs, file, to).unwrap_err();
    assert!(matches!(moved(other).kind(), VfsErrorKind::FileExists));
    assert!(matches!(moved(dir).kind(), VfsErrorKind::DirectoryExists));
    assert_eq!(fs.volume().read("b").unwrap(), b"b");
}

/// An open file is read on after its name was removed. No symbolic link leads to files of the host.
#[test]
fn files_are_files_of_the_volume() {
    let volume = volume();
    let root: VfsPath = HoldfastFs::new(volume.clone()).into();
    let path = root.join("log").unwrap();
    path.create_file().unwrap().write_all(b"one").unwrap();
    path.append_file().unwrap().write_all(b" two").unwrap();
    assert_eq!(volume.read("log").unwrap(), b"one two");
    let mut open = path.open_file().unwrap();
    path.remove_file().unwrap();
    open.seek(SeekFrom::Start(4)).unwrap();
    let mut rest = String::new();
    open.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "two");
    volume.symlink("/etc/passwd", "link").unwrap();
    assert!(root.join("link").unwrap().open_file().is_err(), "no way out of the volume");
}

/// A link to a directory is no directory: what is removed here leaves what is elsewhere.
#[test]
fn what_is_removed_is_here() {
    let volume = volume();
    volume.create_dir_all("elsewhere/kept").unwrap();
    volume.create_dir_all("here/dir").unwrap();
    volume.symlink("../../elsewhere", "here/dir/link").unwrap();
    volume.symlink("..", "here/dir/up").unwrap();
    volume.symlink("nowhere", "here/dir/lost").unwrap();
    let root: VfsPath = HoldfastFs::in_directory(volume.clone(), "here").unwrap().into();
    root.join("dir").unwrap().remove_dir_all().unwrap();
    assert!(volume.exists("elsewhere/kept").unwrap());
    assert!(!volume.exists("here/dir").unwrap());
}
