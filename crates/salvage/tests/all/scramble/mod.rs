//! A copy of metadata with other names: fsck finds in it what it finds in the volume, it can be used, and no name is left in it.

#[path = "../../../../check/tests/common/mod.rs"]
mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast::{CreateOptions, Volume, VolumeOptions};
use holdfast_base::BLOCK_SIZE;
use holdfast_base::prng::Prng;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_check::{Issue, Options, check};
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::checksum::block_sum;
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::{NodeView, Superblock};
use holdfast_salvage::{Choice, HowMuch, SalvageError, Scan, Tolerant, image};

fn copied(device: &dyn Device, kept: HowMuch) -> Result<MemoryDevice, SalvageError> {
    let tolerant = Tolerant::new(device);
    let scan = Scan::read(&tolerant, &|_| ());
    let copy = MemoryDevice::new(device.len());
    let mut write = |block: u64, bytes: &[u8]| {
        copy.write(block * BLOCK_BYTES, bytes).map_err(std::io::Error::other)
    };
    image(&tolerant, &scan, &Choice::default(), kept, &|_| (), &mut write)?;
    Ok(copy)
}

fn copy(device: &dyn Device, kept: HowMuch) -> MemoryDevice {
    copied(device, kept).unwrap()
}

/// Findings: what, and of which inode. `None`: it is no volume.
fn findings(device: &dyn Device) -> Option<Vec<(u16, Option<u64>)>> {
    let report = check(device, &Options::default()).ok()?;
    let found = report.findings.iter().map(|it| (it.id, it.inode.map(|inode| inode.0)));
    let mut found: Vec<_> = found.collect();
    found.sort_unstable();
    Some(found)
}

fn superblock(device: &dyn Device) -> Superblock {
    let read = |slot: &holdfast_base::BlockNo| {
        let mut bytes = [0; BLOCK_SIZE];
        device.read(slot.0 * BLOCK_BYTES, &mut bytes).unwrap();
        Superblock::decode(&bytes, *slot).ok()
    };
    SUPERBLOCK_SLOTS.iter().filter_map(read).max_by_key(|it| it.epoch).unwrap()
}

fn holds(device: &MemoryDevice, words: &[u8]) -> bool {
    let image = device.to_image();
    let mut begins = (0..image.len()).filter(|at| image[*at] == words[0]);
    begins.any(|at| image[at..].starts_with(words))
}

fn format(device: &Arc<MemoryDevice>) {
    let target: Arc<dyn Device> = device.clone();
    CreateOptions::new().node_size(4096).label("secret-label").format(&target).unwrap();
}

fn open(device: &Arc<MemoryDevice>) -> Volume {
    VolumeOptions::new().commit_secs(0).open_device(device.clone()).unwrap()
}

const DATA: [u8; BLOCK_SIZE] = [0xa7; BLOCK_SIZE];

/// Names of all lengths, links, attributes, branches, snapshots and data; at last names that only the log has.
fn filled(is_closed: bool) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    format(&device);
    let volume = open(&device);
    let mut prng = Prng::seeded(5);
    for dir in 0..4 {
        let dir = format!("/secret-dir-{dir}");
        volume.create_dir(&dir).unwrap();
        for file in 0..300 {
            let more = "y".repeat(prng.below(if file % 50 == 0 { 230 } else { 12 }) as usize);
            volume.write(format!("{dir}/secret-{file}{more}"), b"secret content").unwrap();
        }
        volume.symlink("/secret-target/of/a/link", format!("{dir}/secret-link")).unwrap();
        volume.hard_link(format!("{dir}/secret-link"), format!("{dir}/secret-hard")).unwrap();
    }
    volume.create_dir("/secret-short").unwrap();
    for name in ('a'..='z').map(String::from).chain((0..1200).map(|number| number.to_string())) {
        volume.write(format!("/secret-short/{name}"), b"").unwrap();
    }
    volume.write("/secret-large", DATA.repeat(9)).unwrap();
    let file = volume.open_file("/secret-large").unwrap();
    for name in ["user.secret-one", "user.secret-two", "user.a", "user.b", "trusted.secret-three"] {
        file.set_xattr(name, b"secret-value").unwrap();
    }
    file.set_xattr("user.secret-long", &b"secret-value".repeat(900)).unwrap();
    let main = volume.branch_here().unwrap();
    main.snapshot("secret-snapshot").unwrap();
    main.snapshot("t").unwrap();
    let fork = main.fork("secret-fork").unwrap();
    let inside = fork.open().unwrap();
    inside.write("/secret-in-fork", b"secret").unwrap();
    inside.remove_file("/secret-dir-0/secret-link").unwrap();
    inside.close().unwrap();
    volume.rename("/secret-dir-1/secret-hard", "/secret-dir-2/secret-moved").unwrap();
    volume.close().unwrap();
    let volume = open(&device);
    volume.write("/secret-dir-3/secret-in-log", b"secret").unwrap();
    volume.rename("/secret-large", "/secret-renamed").unwrap();
    if is_closed {
        volume.close().unwrap();
    } else {
        volume.sync_all().unwrap();
    }
    Arc::new(device.snapshot())
}

#[test]
fn no_name_is_left_in_it() {
    for is_closed in [true, false] {
        let device = filled(is_closed);
        assert!(holds(&device, b"secret-in-log"));
        let plain = copy(&*device, HowMuch::Names);
        let sum = block_sum(&DATA).to_le_bytes();
        let seed = superblock(&*device).hash_seed.to_le_bytes();
        for words in [&b"secret-dir-0"[..], b"secret-fork", b"secret-label", &sum, &seed] {
            assert!(holds(&plain, words), "the test can fail: {words:?}");
        }
        let other = copy(&*device, HowMuch::Shape);
        for words in [&b"ecret"[..], &sum, &seed] {
            assert!(!holds(&other, words), "{words:?} is left");
        }
        assert_eq!(findings(&other), Some(Vec::new()));
        assert_eq!(findings(&*device), Some(Vec::new()));
    }
}

/// Lengths of the names below a directory, of each that is found again by its name.
fn lengths(volume: &Volume, path: &str, found: &mut Vec<(usize, usize)>) {
    for entry in volume.read_dir(path).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        found.push((path.len(), name.len()));
        let below = std::path::Path::new(path).join(name);
        let metadata = volume.symlink_metadata(&below).unwrap();
        if metadata.is_dir() {
            lengths(volume, below.to_str().unwrap(), found);
        }
    }
}

#[test]
fn it_is_used_like_the_volume_that_it_was_made_of() {
    let device = filled(true);
    let other = Arc::new(copy(&*device, HowMuch::Shape));
    let shape = |device: &Arc<MemoryDevice>| {
        let volume = open(device);
        let (mut found, mut branches) = (Vec::new(), Vec::new());
        for branch in volume.branches().unwrap() {
            let snapshots = branch.snapshots().unwrap();
            let names = snapshots.iter().map(|snapshot| snapshot.name().len());
            branches.push((branch.number(), branch.name().len(), names.collect::<BTreeSet<_>>()));
            lengths(&branch.view().unwrap(), "/", &mut found);
        }
        found.sort_unstable();
        let names: BTreeSet<String> =
            volume.branches().unwrap().iter().map(|it| it.name().to_string()).collect();
        assert!(names.contains("main"));
        volume.close().unwrap();
        (found, branches)
    };
    assert_eq!(shape(&device), shape(&other));
    let volume = open(&other);
    for file in 0..500 {
        volume.write(format!("/new-{file}"), b"new").unwrap();
    }
    let branches = volume.branches().unwrap();
    for branch in branches.into_iter().filter(|branch| branch.name() != "main") {
        for snapshot in branch.snapshots().unwrap() {
            snapshot.delete().unwrap();
        }
        branch.delete().unwrap();
    }
    volume.close().unwrap();
    assert_eq!(findings(&*other), Some(Vec::new()));
}

#[test]
fn each_run_has_other_names_and_the_same_nodes() {
    let device = filled(true);
    let (one, two) = (copy(&*device, HowMuch::Shape), copy(&*device, HowMuch::Shape));
    assert!(one.to_image() != two.to_image());
    let plain = copy(&*device, HowMuch::Names);
    let (plain, one) = (plain.to_image(), one.to_image());
    let mut nodes = 0;
    for (before, after) in plain.chunks_exact(BLOCK_SIZE).zip(one.chunks_exact(BLOCK_SIZE)) {
        if before.starts_with(&holdfast_format::node::MAGIC) {
            nodes += 1;
            // All but the sum, to the end of the slots: places and lengths of all records.
            let end = 64 + 4 * NodeView::trusted(before).count();
            assert_eq!((&before[..8], &before[16..end]), (&after[..8], &after[16..end]));
        }
    }
    assert!(nodes > 100, "{nodes}");
}

#[test]
fn fsck_finds_in_it_what_it_finds_in_a_damaged_volume() {
    let device = filled(true);
    // Of data and rings, which are not copied, nothing can be found in the copy.
    let image = device.to_image();
    let blocks = image.chunks_exact(BLOCK_SIZE).zip(0u64..);
    let nodes: Vec<u64> = blocks
        .filter(|(bytes, _)| bytes.starts_with(&holdfast_format::node::MAGIC))
        .map(|(_, block)| block)
        .collect();
    for seed in 0..6 {
        let mut prng = Prng::seeded(seed);
        let damaged = device.snapshot();
        for _ in 0..1 + prng.below(10) {
            let block = nodes[prng.below(nodes.len() as u64) as usize];
            let mut bytes = vec![0; BLOCK_SIZE];
            damaged.read(block * BLOCK_BYTES, &mut bytes).unwrap();
            bytes[1000] ^= 1;
            damaged.write(block * BLOCK_BYTES, &bytes).unwrap();
        }
        let other = copy(&damaged, HowMuch::Shape);
        assert_eq!(findings(&damaged), findings(&other), "seed {seed}");
        assert!(!holds(&other, b"ecret"), "damaged nodes are not copied");
    }
}

#[test]
fn every_finding_of_fsck_is_found_in_it() {
    let mut same = 0;
    for issue in Issue::ALL {
        let (image, _) = common::broken::provoke(*issue);
        let device = image.device();
        let Ok(plain) = copied(&*device, HowMuch::Names) else { continue };
        let other = copy(&*device, HowMuch::Shape);
        assert_eq!(findings(&plain), findings(&other), "{issue:?}");
        same += usize::from(findings(&*device) == findings(&other));
    }
    // Not those of data and rings, which stay behind.
    assert!(same * 3 > Issue::ALL.len() * 2, "{same} of {}", Issue::ALL.len());
}

#[test]
fn names_that_are_all_there_are_or_too_many_are_an_error_at_most() {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    format(&device);
    let volume = open(&device);
    for byte in (1..=255u8).filter(|byte| !matches!(byte, b'.' | b'/')) {
        use std::os::unix::ffi::OsStrExt;
        volume.write(std::ffi::OsStr::from_bytes(&[b'/', byte]), b"").unwrap();
    }
    volume.close().unwrap();
    // Each name of one byte there is: in which order they come is all that could be hidden.
    let other = copy(&*device, HowMuch::Shape);
    assert_eq!(findings(&other), Some(Vec::new()));
}
