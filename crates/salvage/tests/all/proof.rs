//! Which state counts: a node with a forged epoch hides no state that roots prove, with a superblock and without any.

use std::sync::Arc;

use holdfast_base::BlockNo;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_check::sweep::Claim;
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::{Carried, Superblock};
use holdfast_salvage::{Choice, Scan, Tolerant};

use crate::accidents::{lose_superblocks, nodes, read, salvage, zero};
use crate::common::{Made, World};

/// The first sound leaf of a files tree. What a ring holds of one, whole or not, is not in its place.
fn sound_leaf(device: &MemoryDevice) -> u64 {
    let is_sound = |block: &u64| {
        let bytes = read(device, *block);
        let claim = Claim::read(*block, &bytes).filter(|claim| claim.level == 0);
        let is_in_place = |claim: &Claim| claim.distance == 0;
        claim.filter(is_in_place).is_some_and(|claim| {
            claim.prove(*block, &bytes, bytes.len(), Carried::NOTHING).is_some()
        })
    };
    nodes(device, 1, 0).into_iter().find(is_sound).unwrap()
}

/// Puts a leaf of a files tree on a free block, as if a later checkpoint had written it.
fn forge(device: &MemoryDevice, epoch: u64) {
    let leaf = sound_leaf(device);
    let is_free = |block: &u64| read(device, *block).iter().all(|byte| *byte == 0);
    let to = (256..device.len() / BLOCK_BYTES - 16).rev().find(is_free).unwrap();
    let mut bytes = read(device, leaf);
    bytes[16..24].copy_from_slice(&to.to_le_bytes());
    bytes[24..32].copy_from_slice(&epoch.to_le_bytes());
    holdfast_format::node::seal(&mut bytes);
    device.write(to * BLOCK_BYTES, &bytes).unwrap();
}

#[test]
fn a_node_of_a_forged_epoch_does_not_hide_the_state_of_a_superblock() {
    for is_closed in [true, false] {
        let world = World::new(61, is_closed);
        let slots = [16, 48].map(|slot| {
            Superblock::decode(read(&world.image, slot)[..].try_into().unwrap(), BlockNo(slot))
        });
        let newest = slots.iter().flatten().map(|slot| slot.epoch.0).max().unwrap();
        for epoch in [newest + 5, 1 << 61] {
            let device = world.image.snapshot();
            forge(&device, epoch);
            let outcome = salvage(&device, "main", &Choice::default()).unwrap();
            assert_eq!(outcome.by, world.by);
            assert!(outcome.counts.is_whole(), "{:?}", outcome.counts);
            let told = |note: &String| note.contains(&format!("nodes up to epoch {epoch}"));
            assert!(outcome.notes.iter().any(told), "{:?}", outcome.notes);
            for (path, content) in &world.trees["main"] {
                if let Some(content) = content {
                    let made = &outcome.memory.made[path];
                    assert!(matches!(made, Made::File(found) if found == content), "{path}");
                }
            }
        }
    }
}

#[test]
fn a_younger_state_that_is_proven_is_taken_before_that_of_an_old_superblock() {
    let device = std::sync::Arc::new(MemoryDevice::new(16 << 20));
    let target: std::sync::Arc<dyn Device> = device.clone();
    holdfast::CreateOptions::new().node_size(4096).format(&target).unwrap();
    let open = || holdfast::VolumeOptions::new().open_device(device.clone()).unwrap();
    let volume = open();
    volume.write("/old", b"old").unwrap();
    volume.close().unwrap();
    let blocks = [16, 48, device.len() / BLOCK_BYTES - 16];
    let old = blocks.map(|block| read(&device, block));
    for round in 0..3 {
        let volume = open();
        volume.write("/new", format!("new {round}").as_bytes()).unwrap();
        volume.close().unwrap();
    }
    for (block, bytes) in blocks.iter().zip(&old) {
        device.write(block * BLOCK_BYTES, bytes).unwrap();
    }
    for is_forged in [false, true] {
        let device = device.snapshot();
        let choice = Choice::default();
        if is_forged {
            // Of the epoch of the last checkpoint: not proven, and not in the way.
            let tolerant = Tolerant::new(&device);
            let epochs = Scan::read(&tolerant, &|_| ()).open(&tolerant, &choice).unwrap().epochs();
            forge(&device, epochs[0].epoch - 1);
        }
        let outcome = salvage(&device, "main", &choice).unwrap();
        assert!(outcome.by.contains("the root at"), "{}", outcome.by);
        let new = outcome.memory.made.get("/new");
        assert!(matches!(new, Some(Made::File(found)) if found == b"new 2"), "{new:?}");
    }
}

#[test]
fn a_node_of_a_forged_epoch_hides_no_state_that_roots_prove() {
    for is_closed in [true, false] {
        let world = World::new(62, is_closed);
        let device = world.image.snapshot();
        lose_superblocks(&device);
        let wanted = salvage(&device, "main", &Choice::default()).unwrap();
        let epochs = {
            let tolerant = Tolerant::new(&device);
            Scan::read(&tolerant, &|_| ()).open(&tolerant, &Choice::default()).unwrap().epochs()
        };
        let newest = epochs[0].epoch;
        for epoch in [newest, newest + 1, newest + 5, 1 << 61] {
            let device = device.snapshot();
            forge(&device, epoch);
            let outcome = salvage(&device, "main", &Choice::default()).unwrap();
            assert_eq!(outcome.by, wanted.by, "{epoch}");
            let told = |note: &String| note.contains(&format!("nodes up to epoch {epoch}"));
            // The bitmaps may be of a later checkpoint than the last change of a file.
            if epoch == newest || epoch == 1 << 61 {
                assert_eq!(outcome.notes.iter().any(told), epoch > newest, "{:?}", outcome.notes);
            }
            assert!(outcome.memory.made == wanted.memory.made, "{epoch}");
        }
    }
}

/// A volume with so many files, each written in three rounds, and what a salvage without superblocks and without some nodes of the last
/// checkpoint makes of it.
struct Rounds {
    device: Arc<MemoryDevice>,
    newest: u64,
}

impl Rounds {
    fn new(files: usize) -> Rounds {
        let device = Arc::new(MemoryDevice::new(64 << 20));
        let target: Arc<dyn Device> = device.clone();
        holdfast::CreateOptions::new().node_size(4096).format(&target).unwrap();
        for round in 0..3 {
            let volume = holdfast::VolumeOptions::new().open_device(target.clone()).unwrap();
            for file in 0..(if round == 0 { files } else { 1 }) {
                volume.write(format!("/{file}"), format!("in round {round}").as_bytes()).unwrap();
            }
            volume.close().unwrap();
        }
        let newest = nodes(&device, 2, 0).into_iter().map(|block| epoch(&device, block)).max();
        Rounds { device, newest: newest.unwrap() }
    }

    /// Nodes of a tree that the last checkpoint has written, from a level on.
    fn young(&self, tree: u8, level: u8) -> Vec<u64> {
        let all = nodes(&self.device, tree, level).into_iter();
        all.filter(|block| epoch(&self.device, *block) == self.newest).collect()
    }

    /// What `/0` has then, and the notes.
    fn without(&self, lost: &[u64]) -> (String, Vec<String>) {
        let device = self.device.snapshot();
        lose_superblocks(&device);
        for block in lost {
            zero(&device, block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES);
        }
        let outcome = salvage(&device, "main", &Choice::default()).unwrap();
        match &outcome.memory.made["/0"] {
            Made::File(found) => (String::from_utf8_lossy(found).into_owned(), outcome.notes),
            _ => panic!("/0 is no file"),
        }
    }
}

fn epoch(device: &MemoryDevice, block: u64) -> u64 {
    u64::from_le_bytes(read(device, block)[24..32].try_into().unwrap())
}

/// The bitmaps of the last checkpoint are lost: those before it prove the files tree that grew out of theirs, however high it is.
#[test]
fn a_files_tree_that_is_all_there_and_grew_out_of_what_is_proven_counts() {
    let has = |notes: &[String], words: &str| notes.iter().any(|note| note.contains(words));
    for (files, levels) in [(400, 2), (6000, 3)] {
        let rounds = Rounds::new(files);
        assert_eq!(rounds.young(1, levels - 1).len(), 1, "{files} files");
        let space = rounds.young(2, 0);
        let (found, notes) = rounds.without(&space);
        assert_eq!(found, "in round 2", "{files} files: {notes:?}");
        assert!(!has(&notes, "nodes up to") && has(&notes, "which root"), "{notes:?}");
        // Without one of its leaves it is not all there.
        let leaf = *rounds.young(1, 0).last().unwrap();
        let (found, notes) = rounds.without(&[&space[..], &[leaf]].concat());
        assert_eq!(found, "in round 1", "{files} files: {notes:?}");
        assert!(has(&notes, "nodes up to"), "{notes:?}");
    }
}

/// The root of the last space tree is lost, and its leaves are there: none of them is taken for a tree, which would have a part of the
/// branches and snapshots.
#[test]
fn a_leaf_of_a_space_tree_without_its_root_is_no_space_tree() {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    let target: Arc<dyn Device> = device.clone();
    holdfast::CreateOptions::new().node_size(4096).format(&target).unwrap();
    let open = || holdfast::VolumeOptions::new().open_device(target.clone()).unwrap();
    let volume = open();
    for number in 0..60 {
        volume.write("/file", format!("{number}").as_bytes()).unwrap();
        volume.branch_here().unwrap().snapshot(&format!("snapshot-{number}")).unwrap();
    }
    volume.branch_here().unwrap().fork("work").unwrap();
    volume.close().unwrap();
    let volume = open();
    volume.write("/file", b"last").unwrap();
    volume.close().unwrap();
    let space = nodes(&device, 2, 0);
    let newest = space.iter().map(|block| epoch(&device, *block)).max().unwrap();
    let is_root = |block: &&u64| epoch(&device, **block) == newest && read(&device, **block)[4] > 0;
    let roots: Vec<u64> = space.iter().filter(is_root).copied().collect();
    assert_eq!(roots.len(), 1, "the space tree has two levels");
    lose_superblocks(&device);
    zero(&device, roots[0] * BLOCK_BYTES, (roots[0] + 1) * BLOCK_BYTES);
    let tolerant = Tolerant::new(&*device);
    let salvaged = Scan::read(&tolerant, &|_| ()).open(&tolerant, &Choice::default()).unwrap();
    let names: Vec<String> = salvaged.trees().iter().map(|tree| tree.name.clone()).collect();
    for wanted in ["main", "work", "main@snapshot-0", "main@snapshot-59"] {
        assert!(names.iter().any(|name| name == wanted), "{wanted}: {names:?}");
    }
    assert!(salvaged.notes.iter().any(|note| note.contains("which root")), "{:?}", salvaged.notes);
}

/// Where an inner node of `main` is lost, leaves that only a fork has are not taken for its own, however new they are; and what may be
/// of another branch is told so.
#[test]
fn what_is_of_a_fork_is_not_mixed_into_main() {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    let target: Arc<dyn Device> = device.clone();
    holdfast::CreateOptions::new().node_size(4096).format(&target).unwrap();
    let volume = holdfast::VolumeOptions::new().open_device(target.clone()).unwrap();
    let fill = |of: &holdfast::Volume, what: &str| {
        for number in 0..300 {
            of.write(format!("/{number}"), format!("{what} {number}")).unwrap();
        }
    };
    fill(&volume, "main");
    let fork = volume.branch_here().unwrap().fork("work").unwrap().open().unwrap();
    fill(&fork, "work");
    drop(fork);
    // The root of `main` is not older than leaves of the fork.
    volume.write("/0", "main 0").unwrap();
    volume.close().unwrap();
    let reading = holdfast_check::reading::VolumeReading::open(&*device, false).unwrap();
    let root = reading.superblock().files;
    assert!(reading.superblock().files_level > 0, "it has inner nodes");
    zero(&device, root.block.0 * BLOCK_BYTES, (root.block.0 + 1) * BLOCK_BYTES);
    let outcome = salvage(&*device, "main", &Choice::default()).unwrap();
    let mut right = 0;
    for number in 0..300 {
        let Some(Made::File(content)) = outcome.memory.made.get(&format!("/{number}")) else {
            continue;
        };
        assert_eq!(content, format!("main {number}").as_bytes());
        right += 1;
    }
    assert!(right > 290, "{right} of 300");
    let said = outcome.memory.found.iter().filter_map(|found| found.version);
    assert!(said.into_iter().any(|version| version.to_string().contains("another branch")));
}
