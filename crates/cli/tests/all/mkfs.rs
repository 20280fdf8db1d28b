//! mkfs overwrites nothing that could be in use.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::common;
use crate::common::TestMount;
use crate::common::loop_device::LoopDevice;

#[test]
fn a_missing_file_needs_a_size_and_is_made() {
    let place = TestMount::new();
    place.run(&["mkfs", place.image()]).fails(1, "give a --size");
    assert!(!place.image.exists());
    let said = place.run(&["mkfs", "--size", "64M", "-L", "letters", place.image()]).fine();
    assert!(said.contains("64.0 MiB") && said.contains("letters"), "{said}");
    assert_eq!(place.image.metadata().unwrap().len(), 64 << 20);
    let info = place.run(&["info", place.image()]).fine();
    assert!(info.contains("letters") && info.contains("not mounted"), "{info}");
    assert!(info.contains("phys. sector"), "what may be lost together is said: {info}");
    place.fsck();
}

#[test]
fn a_failure_leaves_no_file_behind() {
    let place = TestMount::new();
    place.run(&["mkfs", "--size", "1M", place.image()]).fails(1, "");
    assert!(!place.image.exists());
}

#[test]
fn what_is_there_needs_force() {
    let place = TestMount::with_volume();
    let before = std::fs::read(&place.image).unwrap();
    place.run(&["mkfs", place.image()]).fails(1, "Holdfast volume");
    place.run(&["mkfs", "--size", "32M", place.image()]).fails(1, "--force");
    assert!(std::fs::read(&place.image).unwrap() == before, "a refusal changed something");
    place.run(&["mkfs", "-q", "-f", "--size", "32M", place.image()]).fine();
    assert_eq!(place.image.metadata().unwrap().len(), 32 << 20);
    place.fsck();
}

#[test]
fn a_letter_is_no_filesystem_and_still_not_overwritten() {
    let place = TestMount::new();
    std::fs::write(&place.image, "Dear reader,").unwrap();
    place.run(&["mkfs", "--size", "64M", place.image()]).fails(1, "not empty");
    assert_eq!(std::fs::read(&place.image).unwrap(), b"Dear reader,");
}

#[test]
fn foreign_filesystems_are_named() {
    let place = TestMount::new();
    let made =
        std::process::Command::new("mkfs.ext4").arg("-q").arg(&place.image).arg("16M").output();
    if !made.is_ok_and(|output| output.status.success()) {
        holdfast_base::skip::skipped("no mkfs.ext4 here");
        return;
    }
    place.run(&["mkfs", place.image()]).fails(1, "ext");
    // Nor do other commands take it for a volume, or change it.
    let before = std::fs::read(&place.image).unwrap();
    place.run(&["ls", place.image()]).fails(1, "not a Holdfast volume");
    place.run(&["info", place.image()]).fails(1, "not a Holdfast volume");
    place.run(&["fsck", place.image()]).fails(8, "not a Holdfast volume");
    place.run(&["mount", place.image(), place.dir()]).fails(32, "not a Holdfast volume");
    assert!(std::fs::read(&place.image).unwrap() == before);
}

#[test]
fn an_empty_sparse_file_is_taken_without_force() {
    let place = TestMount::new();
    std::fs::File::create(&place.image).unwrap().set_len(64 << 20).unwrap();
    place.run(&["mkfs", "-q", place.image()]).fine();
    place.fsck();
}

#[test]
fn an_empty_file_needs_a_size_and_gets_it() {
    let place = TestMount::new();
    std::fs::write(&place.image, "").unwrap();
    place.run(&["mkfs", place.image()]).fails(1, "--size");
    place.run(&["mkfs", "-q", "-s", "64M", place.image()]).fine();
    assert_eq!(place.image.metadata().unwrap().len(), 64 << 20);
    place.fsck();
}

#[test]
fn a_new_volume_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let place = TestMount::with_volume();
    assert_eq!(place.image.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_dry_run_writes_nothing() {
    let place = TestMount::new();
    let said = place.run(&["mkfs", "-n", "--size", "64M", place.image()]).fine();
    assert!(said.contains("would make"), "{said}");
    assert!(!place.image.exists());
}

#[test]
fn bad_usage_is_one_sentence_and_code_1() {
    let place = TestMount::new();
    place.run(&["mkfs"]).fails(1, "--help");
    place.run(&["mkfs", "--node-size", "5k", place.image()]).fails(1, "--node-size");
    place.run(&["mkfs", "--size", "many", place.image()]).fails(1, "size");
    place.run(&["mkfs", "--size", "64M", "-U", "x", place.image()]).fails(1, "--help");
}

#[test]
fn node_sizes_and_uuid_are_what_was_asked() {
    let place = TestMount::new();
    let uuid = "5f6c1e2a-9f5b-4c8e-8f3e-0d2b6a7c9e11";
    for size in ["4k", "16k", "64k"] {
        let args = ["mkfs", "-q", "-f", "--size", "64M", "--node-size", size, "-U", uuid];
        place.run(&[&args[..], &[place.image()]].concat()).fine();
        let info = place.run(&["info", "--json", place.image()]).fine();
        let kib = size.trim_end_matches('k').parse::<u64>().unwrap();
        assert!(info.contains(&format!("\"node_size\":{}", kib * 1024)), "{info}");
        assert!(info.contains(uuid), "{info}");
        place.fsck();
    }
}

#[test]
fn metadata_is_stored_twice_if_it_is_asked_for() {
    let place = TestMount::new();
    let asked: [(&[&str], &str); 8] = [
        (&["--size", "64M"], "metadata=1"),
        (&["--size", "64M", "--copies", "metadata=2"], "metadata=2"),
        (&["--size", "64M", "--copies", "nodes=2"], "nodes=2"),
        (&["--size", "64M", "--copies", "rings=2"], "rings=2"),
        (&["--size", "64M", "--copies", "roots=2"], "roots=2"),
        (&["--size", "255M"], "metadata=1"),
        (&["--size", "256M"], "roots=2"),
        (&["--size", "1G", "--copies", "metadata=1"], "metadata=1"),
    ];
    for (args, copies) in asked {
        place.run(&[&["mkfs", "-q", "-f"], args, &[place.image()]].concat()).fine();
        let info = place.run(&["info", "--json", place.image()]).fine();
        is_told(&info, copies);
        let info = place.run(&["info", place.image()]).fine();
        assert!(info.contains(copies), "{args:?}: {info}");
        place.fsck();
    }
    for wrong in ["metadata=3", "data=2", "2"] {
        place.run(&["mkfs", "-f", "--copies", wrong, place.image()]).fails(1, "metadata=1");
    }
}

#[test]
fn the_root_directory_is_whose_it_is_said_to_be() {
    let place = TestMount::new();
    let own = fs::metadata(place.root.path()).unwrap();
    let asked = [
        (&["--owner", "1234:567", "--mode", "1777"][..], (1234, 567, 0o1777)),
        (&["--owner", "1234", "--mode", "700"], (1234, own.gid(), 0o700)),
        (&["--owner", ":567"], (own.uid(), 567, 0o755)),
        (&[], (own.uid(), own.gid(), 0o755)),
    ];
    for (args, wanted) in asked {
        place
            .run(&[&["mkfs", "-q", "-f", "--size", "64M"], args, &[place.image()]].concat())
            .fine();
        let volume = holdfast::Volume::open(place.image()).unwrap();
        let found = volume.metadata("/").unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), wanted, "{args:?}");
        volume.close().unwrap();
        place.fsck();
    }
    for wrong in [["--owner", "no-such-user-here"], ["--owner", ":"], ["--mode", "8"]] {
        place.run(&[&["mkfs", "-f"], &wrong[..], &[place.image()]].concat()).fails(1, wrong[0]);
    }
}

/// Whether `info --json` says how often nodes and rings are stored.
fn is_told(info: &str, copies: &str) {
    let (roots, leaves, rings) = match copies {
        "metadata=1" => (1, 1, 1),
        "roots=2" => (2, 1, 1),
        "rings=2" => (2, 1, 2),
        "nodes=2" => (2, 2, 1),
        _ => (2, 2, 2),
    };
    for (what, times) in [("metadata", roots), ("leaf", leaves), ("ring", rings)] {
        let told = format!("\"{what}_copies\":{times},");
        assert!(info.contains(&told), "{copies}: {info}");
    }
}

/// A device has by default the copies that an image of its size has.
#[test]
fn a_block_device_has_the_copies_of_an_image() {
    for (size, args, copies) in [
        (64 << 20, &[][..], "metadata=1"),
        (256 << 20, &[], "roots=2"),
        (64 << 20, &["--copies", "nodes=2"], "nodes=2"),
        (64 << 20, &["--copies", "metadata=1"], "metadata=1"),
        (64 << 20, &["--copies", "metadata=2"], "metadata=2"),
        (8 << 20, &["--node-size", "64k"], "metadata=1"),
    ] {
        let place = TestMount::new();
        fs::File::create(place.image()).unwrap().set_len(size).unwrap();
        let Some(device) = LoopDevice::over(place.image()) else { return };
        let made = place.run(&[&["mkfs", "-f"], args, &[&device.path]].concat()).fine();
        let info = place.run(&["info", "--json", &device.path]).fine();
        let checked = place.run(&["fsck", "-n", &device.path]);
        drop(device);
        assert!(made.contains(copies), "{size} {args:?}: {made}");
        is_told(&info, copies);
        checked.fine();
    }
}

/// Whatever the loop device is used for, and with --force.
#[test]
fn a_file_behind_a_loop_device_is_not_overwritten() {
    let place = TestMount::with_volume();
    let Some(device) = LoopDevice::over(place.image()) else { return };
    let before = fs::read(place.image()).unwrap();
    let said = place.run(&["mkfs", "--force", place.image()]);
    let same = fs::read(place.image()).unwrap() == before;
    said.fails(1, &format!("run: losetup -d {}", device.path));
    assert!(same);
    drop(device);
    // It may be let go a moment later, when it has no view any more.
    common::wait_for("the loop device to be gone", || {
        place.run(&["mkfs", "-q", "--force", place.image()]).code == 0
    });
}

#[test]
fn the_link_named_mkfs_holdfast_is_mkfs() {
    let place = TestMount::new();
    let said = place.run_as("mkfs.holdfast", &["--size", "64M", place.image()]);
    assert!(said.fine().contains("made a Holdfast volume"));
}

#[test]
fn what_is_refused_stays_as_it_was() {
    let place = TestMount::new();
    place.run(&["mkfs", "-q", "--size", "64M", place.image()]).fine();
    for how in [&["mkfs", "-f"][..], &["mkfs", "-n", "-f"]] {
        let refused = place.run(&[how, &["--size", "1M", place.image()]].concat());
        assert_ne!(refused.code, 0, "{how:?}");
        assert_eq!(std::fs::metadata(place.image()).unwrap().len(), 64 << 20);
        place.run(&["fsck", place.image()]).fine();
    }
}
