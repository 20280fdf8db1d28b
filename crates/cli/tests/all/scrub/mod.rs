//! `scrub` of a volume that is mounted, by its daemon, and of one at rest: what it prints, how it stops and goes on.

mod rings;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::{Child, Stdio};

use crate::common::{Said, TestMount, can_mount, number, said, signal, wait_for};

/// A volume whose commands keep what they remember beside it.
fn mounted() -> TestMount {
    let place = TestMount::with_volume();
    mount(&place);
    place
}

fn mount(place: &TestMount) {
    run(place, &["mount", place.image(), place.dir()]).fine();
}

fn run(place: &TestMount, args: &[&str]) -> Said {
    said(place.command(args).env("XDG_STATE_HOME", place.path("state")).output().unwrap())
}

/// Bytes that stand nowhere else.
fn pattern(seed: u32, blocks: u32) -> Vec<u8> {
    let byte = |at: u32| {
        let at = u64::from(at) | u64::from(seed) << 32;
        (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8
    };
    (0..blocks * 4096).map(byte).collect()
}

/// Flips a bit in each block of the image that is like these bytes, under the daemon.
fn rot(place: &TestMount, block: &[u8]) {
    let image = fs::read(place.image()).unwrap();
    let places: Vec<usize> = (0..image.len() / 4096).map(|at| at * 4096).collect();
    let hit: Vec<usize> = places.into_iter().filter(|at| image[*at..].starts_with(block)).collect();
    assert!(!hit.is_empty(), "the data is in the image");
    let file = OpenOptions::new().write(true).open(place.image()).unwrap();
    for at in hit {
        file.write_all_at(&[image[at + 77] ^ 16], at as u64 + 77).unwrap();
    }
    file.sync_all().unwrap();
}

/// Flips a bit in each leaf of the image that holds these bytes.
fn rot_leaf_with(place: &TestMount, bytes: &[u8]) {
    let image = fs::read(place.image()).unwrap();
    let file = OpenOptions::new().write(true).open(place.image()).unwrap();
    let mut hit = 0;
    for (index, node) in image.chunks_exact(16384).enumerate() {
        if node.starts_with(b"hfNd") && node.windows(bytes.len()).any(|at| at == bytes) {
            file.write_all_at(&[node[77] ^ 16], index as u64 * 16384 + 77).unwrap();
            hit += 1;
        }
    }
    assert!(hit > 0, "a leaf is in the image");
    file.sync_all().unwrap();
}

#[test]
fn what_rots_under_a_mount_is_told_by_path() {
    if !can_mount() {
        return;
    }
    let place = mounted();
    let image = place.image();
    fs::create_dir(place.dir.join("a")).unwrap();
    fs::write(place.dir.join("a/b"), pattern(1, 30)).unwrap();
    fs::hard_link(place.dir.join("a/b"), place.dir.join("a/c")).unwrap();
    fs::write(place.dir.join("whole"), pattern(2, 30)).unwrap();
    run(&place, &["snapshot", "create", place.dir(), "monday"]).fine();
    run(&place, &["fork", place.dir(), "try"]).fine();
    run(&place, &["scrub", "-n", place.dir()]).fails(8, "without -n");
    let clean = run(&place, &["scrub", place.dir()]).fine();
    assert!(clean.contains("nothing is damaged"), "{clean}");
    fs::remove_file(place.dir.join("a/b")).unwrap();
    fs::remove_file(place.dir.join("a/c")).unwrap();
    rot(&place, &pattern(1, 30)[4096..8192]);
    let found = run(&place, &["scrub", place.dir()]);
    assert_eq!((found.code, found.err.as_str()), (4, ""), "{found:?}");
    let dir = place.dir();
    for tree in ["main@monday", "try"] {
        for name in ["b", "c"] {
            let line =
                format!("{dir}: {tree}:/a/{name}, bytes 4096 to 8191: it fails its checksum");
            assert!(found.out.contains(&line), "{line}: {found:?}");
        }
    }
    // One block, which two trees have.
    assert!(found.out.contains("1 damage found, 0 mended"), "{found:?}");
    assert!(!found.out.contains("whole"), "{found:?}");
    // As JSON, and of the volume at rest the same.
    let json = run(&place, &["scrub", "--json", place.dir()]);
    assert_eq!(json.code, 4);
    let lines: Vec<serde_json::Value> =
        json.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 5, "{json:?}");
    assert_eq!(lines[0]["kind"], "data");
    let paths = [&lines[0]["path"], &lines[1]["path"]];
    assert!(paths.contains(&&"/a/b".into()) && paths.contains(&&"/a/c".into()), "{paths:?}");
    assert_eq!(lines[0]["bytes"], serde_json::json!([4096, 8192]));
    assert_eq!((&lines[4]["kind"], &lines[4]["damages"]), (&"end".into(), &1.into()));
    place.umount();
    let rest = run(&place, &["scrub", "-n", image]);
    assert_eq!(rest.code, 4, "{rest:?}");
    assert!(rest.out.contains(&format!("{image}: try:/a/b, bytes 4096 to 8191")), "{rest:?}");
    assert!(rest.out.contains(&format!("{image}: try:/a/c, bytes 4096 to 8191")), "{rest:?}");
    // The superblock says it.
    let info = run(&place, &["info", image]).out;
    assert!(info.contains("a/b, bytes") || info.contains("a/c, bytes"), "{info}");
}

#[test]
fn a_node_that_rots_under_a_mount_is_told_with_its_files() {
    if !can_mount() {
        return;
    }
    let place = mounted();
    for index in 0..300 {
        fs::write(place.dir.join(format!("file{index:03}")), vec![index as u8; 99]).unwrap();
    }
    run(&place, &["snapshot", "create", place.dir(), "monday"]).fine();
    run(&place, &["scrub", place.dir()]).fine();
    rot_leaf_with(&place, &[150; 99]);
    let found = run(&place, &["scrub", place.dir()]);
    assert_eq!(found.code, 4, "{found:?}");
    for tree in ["main", "main@monday"] {
        let node = format!("{}: {tree}: node at block ", place.dir());
        let file = format!("{}: {tree}:/file150: ", place.dir());
        assert!(found.out.contains(&node) && found.out.contains(&file), "{found:?}");
    }
}

/// A scrub that reads some MiB in a second.
fn slow(place: &TestMount, of: &str) -> Child {
    let mut command = place.command(&["scrub", "--rate", "2M", "--json", of]);
    command.env("XDG_STATE_HOME", place.path("state"));
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn scrubbed(place: &TestMount) -> u64 {
    number(&run(place, &["stats", "--json", place.dir()]).fine(), "scrubbed_bytes")
}

/// Bytes that a process has read so far.
fn has_read(pid: u32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

#[test]
fn it_stops_with_a_word_and_goes_on_there_live_and_at_rest() {
    if !can_mount() {
        return;
    }
    let place = mounted();
    for index in 0..20 {
        fs::write(place.dir.join(format!("file{index}")), pattern(index, 256)).unwrap();
    }
    // What has no place yet is not read.
    run(&place, &["sync", place.dir()]).fine();
    let scrub = slow(&place, place.dir());
    wait_for("it reads", || scrubbed(&place) > 2 << 20);
    run(&place, &["scrub", place.dir()]).fails(8, "under way already");
    signal(scrub.id(), "INT");
    let stopped = said(scrub.wait_with_output().unwrap());
    assert_eq!((stopped.code, stopped.err.as_str()), (32, ""), "{stopped:?}");
    let first = number(&stopped.out, "read_bytes");
    assert!(first < 20 << 20 && stopped.out.contains("\"complete\":false"), "{stopped:?}");
    // The daemon ends in the middle: what it has noted is there.
    let scrub = slow(&place, place.dir());
    let before = scrubbed(&place);
    wait_for("it reads on", || scrubbed(&place) > before + (2 << 20));
    place.umount();
    let cut = said(scrub.wait_with_output().unwrap());
    assert_ne!(cut.code, 0, "{cut:?}");
    // At rest.
    let scrub = slow(&place, place.image());
    wait_for("it does not read", || has_read(scrub.id()) > 3 << 20);
    signal(scrub.id(), "TERM");
    let stopped = said(scrub.wait_with_output().unwrap());
    assert_eq!(stopped.code, 32, "{stopped:?}");
    assert!(stopped.out.contains("\"resumed\":true"), "{stopped:?}");
    let last = run(&place, &["scrub", "--json", place.image()]).fine();
    assert!(last.contains("\"complete\":true,\"resumed\":true"), "{last}");
    let sum = first + number(&stopped.out, "read_bytes") + number(&last, "read_bytes");
    assert!(sum < 20 << 20, "what was read is not read again: {sum}");
    // The next one begins anew.
    let anew = run(&place, &["scrub", "--json", place.image()]).fine();
    assert!(anew.contains("\"resumed\":false") && number(&anew, "read_bytes") > 20 << 20, "{anew}");
}

#[test]
fn a_volume_that_is_read_only_is_scrubbed_with_n() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    run(&place, &["mount", "-o", "ro", place.image(), place.dir()]).fine();
    run(&place, &["scrub", place.dir()]).fails(8, "open read-only");
    let said = run(&place, &["scrub", "-n", place.dir()]).fine();
    assert!(said.contains("nothing is damaged"), "{said}");
    let usage = run(&place, &["scrub", "--rate", "0", place.dir()]);
    usage.fails(16, "rate of 0");
    run(&place, &["scrub", "--none"]).fails(16, "--none");
    let branch = format!("{}@s", place.dir());
    run(&place, &["scrub", &branch]).fails(16, "name the volume alone");
}
