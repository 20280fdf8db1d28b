//! An image on a host that is full: what the host has no room for is refused when it is written, what was accepted is
//! never lost, and the same mount goes on when there is room again.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;
mod host;

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use common::{TestMount, can_mount};
use host::Tmpfs;

/// Writes until it is refused; how many bytes were accepted.
fn write_until_full(file: &File, byte: u8, from: u64, most: u64) -> u64 {
    let mut at = from;
    while at < from + most {
        match file.write_at(&[byte; 100_000], at) {
            Ok(written) => at += written as u64,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
                break;
            }
        }
    }
    at - from
}

/// Every byte of a file, from the volume and not from the kernel's cache.
fn read(path: &Path) -> Vec<u8> {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    fs::read(path).unwrap()
}

#[test]
fn on_a_full_host_writes_are_refused_in_time_and_what_was_accepted_stays() {
    if !can_mount() {
        return;
    }
    let Some(host) = Tmpfs::new(40) else { return };
    let place = host::volume(Some(host.path("volume.img")));
    place.mount();
    let path = place.dir.join("f");
    fs::write(&path, vec![1; 1_000_000]).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    let available = || {
        let found = rustix::fs::statvfs(&place.dir).unwrap();
        found.f_bavail * found.f_frsize
    };
    let held = fs::metadata(place.image()).unwrap().blocks() * 512;
    assert!(available() <= host.room() + held, "{} of {}", available(), host.room());
    let ballast = host.fill();
    let held = fs::metadata(place.image()).unwrap().blocks() * 512;
    assert!(available() <= held, "{} while the host has nothing", available());

    // More than the file has, over it; then as much as there is.
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let over = write_until_full(&file, 2, 0, 1_500_000);
    let more = File::create(place.dir.join("more")).unwrap();
    let end = write_until_full(&more, 3, 0, 1 << 30);
    for _ in 0..2 {
        file.sync_all().expect("what was accepted finds room");
        more.sync_all().expect("what was accepted finds room");
    }
    let expected = |bytes: &[u8]| {
        let (new, old) = bytes.split_at(over as usize);
        assert!(new.iter().all(|byte| *byte == 2) && old.iter().all(|byte| *byte == 1));
        assert_eq!(bytes.len() as u64, over.max(1_000_000));
    };
    expected(&read(&path));
    assert!(read(&place.dir.join("more")) == vec![3; end as usize]);
    assert!(!place.run(&["stats", place.dir()]).out.contains("stopped"), "the volume goes on");
    // Names and removals have room as well.
    fs::remove_file(place.dir.join("more")).unwrap();
    drop(more);

    fs::remove_file(ballast).unwrap();
    let later = File::create(place.dir.join("later")).unwrap();
    let again = write_until_full(&later, 4, 0, 4_000_000);
    assert_eq!(again, 4_000_000, "the host has room again");
    later.sync_all().unwrap();
    drop((file, later));
    place.umount();
    place.fsck();
    place.mount();
    expected(&read(&path));
    assert!(read(&place.dir.join("later")) == vec![4; 4_000_000]);
}

/// What cannot be written at all is refused before anything is written.
#[test]
fn a_mount_on_a_full_host_says_what_it_lacks() {
    if !can_mount() {
        return;
    }
    let Some(host) = Tmpfs::new(40) else { return };
    let mut place = host::volume(Some(host.path("volume.img")));
    place.mount();
    fs::write(place.dir.join("f"), "x").unwrap();
    place.umount();
    // A copy that left holes where the rings are empty.
    let copy = host.path("copy.img");
    let mut cp = Command::new("cp");
    cp.arg("--sparse=always").arg(&place.image).arg(&copy);
    assert!(cp.status().unwrap().success());
    place.image = copy;
    let ballast = host.fill();
    place.run(&["mount", place.image(), place.dir()]).fails(32, "the host has no room");
    place.run(&["mount", "-o", "ro", place.image(), place.dir()]).fine();
    place.umount();
    fs::remove_file(ballast).unwrap();
    fs::remove_file(host.path("volume.img")).unwrap();
    place.mount();
    place.umount();
    place.fsck();
}

/// An empty volume takes what mkfs wrote, whatever its size, until something is changed; on a full host that is refused.
#[test]
fn an_empty_volume_takes_nothing_of_its_host() {
    if !can_mount() {
        return;
    }
    let Some(host) = Tmpfs::new(120) else { return };
    for size in ["64G", "1G"] {
        let mut place = TestMount::new();
        place.image = host.path(size);
        place.run(&["mkfs", "-q", "--size", size, place.image()]).fine();
        let held = || fs::metadata(place.image()).unwrap().blocks() * 512;
        let least = held();
        assert!(least <= 1 << 20, "mkfs wrote {least} bytes");
        for _ in 0..2 {
            place.mount();
            assert_eq!(fs::read_dir(&place.dir).unwrap().count(), 0);
            place.umount();
            assert!(held() <= least + 4096, "{size}: {} bytes, {least} before", held());
        }
        place.fsck();
        let ballast = host.fill();
        place.mount();
        let error = fs::write(place.dir.join("f"), "x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
        fs::remove_file(ballast).unwrap();
        if size == "1G" {
            fs::write(place.dir.join("f"), "x").unwrap();
            assert!(held() > 40 << 20, "both rings are taken: {}", held());
        }
        place.umount();
        place.fsck();
    }
}
