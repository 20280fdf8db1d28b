//! `scrub` and the rings: what it prints of them, and what its exit codes are.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;

use serde_json::Value;

use super::run;
use crate::common::{TestMount, can_mount, signal};

/// What a batch of the log and a frame of the journal begin with.
const PARTS: [&[u8]; 2] = [b"hfLb", b"hfJf"];

/// Makes the headers of all of them bad.
fn rot_rings(place: &TestMount) -> usize {
    let image = fs::read(place.image()).unwrap();
    let file = OpenOptions::new().write(true).open(place.image()).unwrap();
    let mut hit = 0;
    for (at, unit) in (0..).step_by(512).zip(image.chunks(512)) {
        if PARTS.iter().any(|magic| unit.starts_with(magic)) {
            file.write_all_at(&[0xaa; 112], at).unwrap();
            hit += 1;
        }
    }
    file.sync_all().unwrap();
    hit
}

fn write(place: &TestMount, from: u32) {
    for index in from..from + 5 {
        let mut file = fs::File::create(place.dir.join(format!("file{index}"))).unwrap();
        file.write_all(&[7; 99]).unwrap();
        file.sync_all().unwrap();
    }
}

fn lines(json: &str) -> Vec<Value> {
    json.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn what_rots_in_a_ring_under_a_mount_is_mended_and_lost_to_who_only_reads() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    // No commit comes between.
    run(&place, &["mount", "-o", "commit=1000", place.image(), place.dir()]).fine();
    write(&place, 0);
    assert!(rot_rings(&place) >= 5);
    let found = run(&place, &["scrub", "--json", place.dir()]);
    assert_eq!((found.code, found.err.as_str()), (1, ""), "{found:?}");
    let said = lines(&found.out);
    let [ring, end] = &said[..] else { panic!("{found:?}") };
    assert_eq!((&ring["kind"], &ring["mended"]), (&"log".into(), &true.into()), "{found:?}");
    for of_a_file in ["tree", "path", "inode"] {
        assert_eq!(ring[of_a_file], Value::Null, "{of_a_file}");
    }
    let start = ring["bytes"][0].as_u64().unwrap();
    assert_eq!(ring["block"].as_u64(), Some(start / 4096), "{found:?}");
    assert_eq!((&end["damages"], &end["mended"]), (&1.into(), &1.into()), "{found:?}");
    assert_eq!(end["complete"], true);
    let clean = run(&place, &["scrub", place.dir()]).fine();
    assert!(clean.contains("nothing is damaged"), "{clean}");

    // What a daemon that is killed has left is there alone.
    write(&place, 10);
    let stats = run(&place, &["stats", "--json", place.dir()]).fine();
    let stats: Value = serde_json::from_str(&stats).unwrap();
    let daemon = stats["pid"].as_u64();
    let daemon = daemon.unwrap_or_else(|| panic!("{stats}"));
    signal(daemon.try_into().unwrap(), "KILL");
    run(&place, &["umount", place.dir()]).fine();
    let image = fs::read(place.image()).unwrap();
    let batches: Vec<u64> = (0..)
        .step_by(512)
        .zip(image.chunks(512))
        .filter(|(_, unit)| unit.starts_with(PARTS[0]))
        .map(|(at, _)| at)
        .collect();
    let middle = batches[batches.len() - 3];
    let file = OpenOptions::new().write(true).open(place.image()).unwrap();
    file.write_all_at(&[0xaa; 112], middle).unwrap();
    let found = run(&place, &["scrub", "-n", "--json", place.image()]);
    assert_eq!((found.code, found.err.as_str()), (4, ""), "{found:?}");
    let said = lines(&found.out);
    assert_eq!((&said[0]["kind"], &said[0]["mended"]), (&"log".into(), &false.into()), "{said:?}");
    assert_eq!(said[0]["bytes"][0].as_u64(), Some(middle), "{said:?}");
    let text = run(&place, &["scrub", "-n", place.image()]);
    let words = format!("{}: the log, bytes {middle} to {}: ", place.image(), middle + 511);
    assert!(text.code == 4 && text.out.contains(&words), "{text:?}");
}

#[test]
fn a_device_that_reads_nothing_any_more_is_no_damage() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    run(&place, &["mount", "-o", "ro", place.image(), place.dir()]).fine();
    OpenOptions::new().write(true).open(place.image()).unwrap().set_len(0).unwrap();
    run(&place, &["scrub", "-n", place.dir()]).fails(8, "does not answer");
    let json = run(&place, &["scrub", "-n", "--json", place.dir()]);
    assert_eq!(json.code, 8, "{json:?}");
    let said = lines(&json.out);
    let end = said.last().unwrap_or_else(|| panic!("{json:?}"));
    assert_eq!((&end["kind"], &end["damages"]), (&"end".into(), &0.into()), "{json:?}");
    assert!(end["error"].as_str().unwrap().contains("does not answer"), "{json:?}");
}

/// What a mount without writers was opened from rots: that is said, and not something of the journal.
#[test]
fn a_superblock_that_rots_under_a_reader_is_named() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    run(&place, &["mount", "-o", "ro", place.image(), place.dir()]).fine();
    let image = fs::read(place.image()).unwrap();
    let is_superblock = |at: &usize| image[*at..].starts_with(b"holdfast volume\n");
    let slots: Vec<usize> = (0..1 << 20).step_by(4096).filter(is_superblock).collect();
    let file = OpenOptions::new().write(true).open(place.image()).unwrap();
    for at in slots {
        file.write_all_at(&[0xaa; 64], at as u64 + 64).unwrap();
    }
    let found = run(&place, &["scrub", "-n", "--json", place.dir()]);
    assert_eq!((found.code, found.err.as_str()), (4, ""), "{found:?}");
    let said = lines(&found.out);
    let [superblock, end] = &said[..] else { panic!("{found:?}") };
    assert_eq!(superblock["kind"], "superblock", "{found:?}");
    let why = superblock["why"].as_str().unwrap();
    assert!(why.contains("its far copy is whole: unmount, and `holdfast fsck -y`"), "{why}");
    assert_eq!((&end["damages"], &end["mended"]), (&1.into(), &0.into()), "{found:?}");
    place.umount();
    let said = run(&place, &["fsck", "-y", place.image()]);
    assert_eq!(said.code, 1, "{said:?}");
    run(&place, &["fsck", place.image()]).fine();
}
