//! An image on a host that is full: what the host has no room for is refused when it is written, what was accepted is
//! never lost, and the same mount goes on when there is room again.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use crate::common::{TestMount, can_mount};
use crate::host;
use crate::host::SmallHost;

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
    if can_mount() {
        SmallHost::tmpfs(40).into_iter().for_each(|host| is_filled_from_outside(&host));
    }
}

#[test]
fn on_a_full_ext4_writes_are_refused_in_time_and_what_was_accepted_stays() {
    if can_mount() {
        SmallHost::ext4(60).into_iter().for_each(|host| is_filled_from_outside(&host));
    }
}

/// A volume with holes lives on a host that others fill, and make room on again.
fn is_filled_from_outside(host: &SmallHost) {
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
    let left = host.room();
    assert!(available() <= held + left, "{} while the host has {left}", available());

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
    let Some(host) = SmallHost::tmpfs(40) else { return };
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
    let Some(host) = SmallHost::tmpfs(120) else { return };
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
            assert!((2 << 20..12 << 20).contains(&held()), "for one small file: {}", held());
        }
        place.umount();
        place.fsck();
    }
}

/// Bytes that a file has of its host.
fn held(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

/// A volume that was filled and emptied, by files and by a snapshot that is deleted, takes hardly more of its host than an
/// empty one: what is not used goes back, to be had by others; and comes again.
#[test]
fn what_is_freed_goes_back_to_the_host() {
    if !can_mount() {
        return;
    }
    let Some(host) = SmallHost::tmpfs(300) else { return };
    let place = host::volume(Some(host.path("volume.img")));
    place.mount();
    let sync = || place.run(&["sync", place.dir()]).fine();
    let trim = || place.run(&["trim", place.dir()]).fine();
    fs::write(place.dir.join("first"), "x").unwrap();
    sync();
    trim();
    let empty = held(&place.image);
    let most = empty + (256 << 20) / 50;
    for round in 0..2 {
        let byte = round + 1;
        for number in 0..4 {
            fs::write(place.dir.join(format!("f{number}")), vec![byte; 16 << 20]).unwrap();
        }
        sync();
        let full = held(&place.image);
        assert!(full > 64 << 20, "{full}");
        if round == 1 {
            place.run(&["snapshot", "create", place.dir(), "s"]).fine();
        }
        for number in 0..4 {
            fs::remove_file(place.dir.join(format!("f{number}"))).unwrap();
        }
        if round == 1 {
            sync();
            trim();
            assert!(held(&place.image) > 64 << 20, "the snapshot has it");
            place.run(&["snapshot", "delete", place.dir(), "s"]).fine();
            let left = || place.run(&["stats", "--json", place.dir()]).fine();
            while !left().contains("\"deletions_left\":0") {
                std::thread::yield_now();
            }
        }
        sync();
        let said = trim();
        assert!(said.contains("less of its host"), "{said}");
        let now = held(&place.image);
        // The kernel passes on what fstrim(8) asks for.
        match Command::new("fstrim").arg("-v").arg(&place.dir).output() {
            Err(error) => holdfast_base::skip::skipped(format_args!("no fstrim: {error}")),
            Ok(done) => assert!(done.status.success(), "{done:?}"),
        }
        println!("round {round}: {empty} bytes empty, {full} full, {now} emptied");
        assert!(now <= most, "{now} bytes, {empty} when it was empty");
    }
    place.umount();
    assert!(held(&place.image) <= most);
    place.fsck();
    // At rest: what a mount with nodiscard has left.
    place.run(&["mount", "-o", "nodiscard", place.image(), place.dir()]).fine();
    fs::write(place.dir.join("f"), vec![9; 30 << 20]).unwrap();
    sync();
    fs::remove_file(place.dir.join("f")).unwrap();
    place.umount();
    assert!(held(&place.image) > most, "it stays");
    place.run(&["trim", place.image()]).fine();
    assert!(held(&place.image) <= most, "{} bytes", held(&place.image));
    place.run(&["trim", &format!("{}:main", place.image())]).fails(2, "name the volume alone");
    place.fsck();
}

/// All of an image is there from the beginning, and stays: a host that fills up later is no concern of it.
#[test]
fn an_image_that_was_allocated_has_its_space_on_a_full_host() {
    if !can_mount() {
        return;
    }
    let Some(host) = SmallHost::tmpfs(200) else { return };
    let mut place = TestMount::new();
    place.image = host.path("volume.img");
    place.run(&["mkfs", "-q", "--allocate", "--size", "300M", place.image()]).fails(1, "");
    assert!(!place.image.exists(), "nothing is left of one that the host has no room for");
    place.run(&["mkfs", "-q", "--allocate", "--size", "128M", place.image()]).fine();
    let all = held(&place.image);
    assert!(all >= 128 << 20, "{all}");
    let _ballast = host.fill();
    place.mount();
    for byte in 1..4 {
        fs::write(place.dir.join("f"), vec![byte; 30 << 20]).unwrap();
        File::open(place.dir.join("f")).unwrap().sync_all().unwrap();
        fs::remove_file(place.dir.join("f")).unwrap();
        place.run(&["sync", place.dir()]).fine();
    }
    place.umount();
    assert_eq!(held(&place.image), all, "it gives nothing back by itself");
    place.run(&["mount", "-o", "discard", place.image(), place.dir()]).fine();
    place.umount();
    place.fsck();
}

/// A volume of the size from which on metadata stands twice is filled and emptied again: at rest its image has hardly more than a new one.
#[test]
fn a_volume_that_was_filled_and_emptied_gives_the_room_back() {
    if !can_mount() {
        return;
    }
    let Some(host) = SmallHost::tmpfs(200) else { return };
    for trims in [false, true] {
        let place = host::volume(Some(host.path(if trims { "trimmed" } else { "left" })));
        place.mount();
        for number in 0..85 {
            fs::write(place.dir.join(format!("f{number}")), vec![7; 1_000_000]).unwrap();
        }
        place.run(&["sync", place.dir()]).fine();
        assert!(held(&place.image) > 85_000_000);
        for number in 0..85 {
            fs::remove_file(place.dir.join(format!("f{number}"))).unwrap();
        }
        if trims {
            place.run(&["sync", place.dir()]).fine();
            place.run(&["trim", place.dir()]).fine();
        }
        place.umount();
        println!("{} bytes, trimmed: {trims}", held(&place.image));
        assert!(held(&place.image) <= 4 << 20, "{} bytes", held(&place.image));
        place.fsck();
    }
}

/// What removals need on a full host stays with an image that is trimmed, be it mounted or at rest.
#[test]
fn files_are_removed_on_a_full_host_behind_a_trim() {
    if !can_mount() {
        return;
    }
    for (at_rest, size) in
        [(false, "200M"), (true, "200M"), (true, "64M"), (false, "300M"), (true, "8G")]
    {
        let Some(host) = SmallHost::tmpfs(40) else { return };
        let mut place = TestMount::new();
        place.image = host.path("volume.img");
        place.run(&["mkfs", "-q", "--size", size, place.image()]).fine();
        place.mount();
        for number in 0..20 {
            fs::write(place.dir.join(format!("f{number}")), vec![7; 20_000]).unwrap();
        }
        if at_rest {
            place.umount();
        }
        place.run(&["trim", if at_rest { place.image() } else { place.dir() }]).fine();
        if !at_rest {
            place.umount();
        }
        let _ballast = host.fill();
        place.mount();
        for number in 0..20 {
            fs::remove_file(place.dir.join(format!("f{number}"))).unwrap();
        }
        place.umount();
        place.fsck();
    }
}

/// An image without a write takes nothing for a trim, and a size that its host has no room for leaves it as long as it was.
#[test]
fn what_a_host_has_no_room_for_changes_no_image() {
    let Some(host) = SmallHost::tmpfs(20) else { return };
    let mut place = TestMount::new();
    place.image = host.path("volume.img");
    place.run(&["mkfs", "-q", "--size", "64M", place.image()]).fine();
    let made = held(&place.image);
    place.run(&["trim", place.image()]).fine();
    assert!(held(&place.image) <= made, "{} of {made}", held(&place.image));
    let _ballast = host.fill();
    for size in ["256M", "8T"] {
        place.run(&["resize", place.image(), size]).fails(1, "host");
        assert_eq!(fs::metadata(&place.image).unwrap().len(), 64 << 20, "{size}");
    }
}

/// Files are missing there then: that is neither that nothing was found, nor that all is whole.
#[test]
fn a_salvage_to_a_full_host_has_a_code_of_its_own() {
    if !can_mount() {
        return;
    }
    let Some(host) = SmallHost::tmpfs(8) else { return };
    let place = host::volume(None);
    place.mount();
    fs::write(place.dir.join("large"), vec![1; 1_000_000]).unwrap();
    place.umount();
    let spare = host.path("spare");
    fs::write(&spare, vec![1; 100_000]).unwrap();
    let _ballast = host.fill();
    fs::remove_file(spare).unwrap();
    let out = host.path("out");
    place.run(&["salvage", "-q", place.image(), out.to_str().unwrap()]).fails(4, "No space");
}

/// A smaller size for which the host has no room leaves the volume as it is, to be written on.
#[test]
fn a_smaller_size_on_a_full_host_leaves_a_volume_that_can_be_written() {
    let Some(host) = SmallHost::tmpfs(48) else { return };
    let mut place = TestMount::new();
    place.image = host.path("volume.img");
    place.run(&["mkfs", "-q", "--size", "300M", place.image()]).fine();
    fs::write(place.path("f"), vec![7; 500_000]).unwrap();
    place.run(&["cp", &place.path("f"), &place.inside("/f")]).fine();
    let ballast = host.fill();
    place.run(&["resize", place.image(), "200M"]).fails(1, "host has no room");
    assert_eq!(fs::metadata(&place.image).unwrap().len(), 300 << 20);
    place.run(&["rm", &place.inside("/f")]).fine();
    fs::remove_file(ballast).unwrap();
    place.run(&["resize", place.image(), "200M"]).fine();
    place.run(&["cp", &place.path("f"), &place.inside("/g")]).fine();
    place.fsck();
}
