//! One rotten block never keeps a volume from being repaired, whichever it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast::{CreateOptions, VolumeOptions};
use holdfast_base::BLOCK_SIZE;
use holdfast_base::prng::Prng;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_device::{Device, MemoryDevice};

use crate::accidents::{Files, World, some_work};
use crate::every_finding::{LOSS, found, planned};

/// Nodes of a tree that stand on a device, 1 of files, 2 of space: their blocks.
fn nodes(device: &MemoryDevice, tree: u8) -> Vec<u64> {
    let is_node = |block: &u64| {
        let mut bytes = [0; BLOCK_SIZE];
        device.read(block * BLOCK_BYTES, &mut bytes).expect("memory reads");
        bytes.starts_with(b"hfNd") && bytes[5] == tree
    };
    (0..device.len() / BLOCK_BYTES).filter(is_node).collect()
}

/// Each node rots in turn. Returns of how many something was found, and how many names came back from trees beside.
fn rot(world: &World, nodes: impl Iterator<Item = u64>) -> (usize, usize) {
    let (mut met, mut back) = (0, 0);
    for block in nodes {
        let device = Arc::new(world.image.snapshot());
        let mut bytes = [0; BLOCK_SIZE];
        device.read(block * BLOCK_BYTES, &mut bytes).expect("memory reads");
        bytes[1000] ^= 1;
        device.write(block * BLOCK_BYTES, &bytes).expect("memory takes it");
        if found(&*device).is_clean() {
            // It is an old one.
            continue;
        }
        met += 1;
        let when = format!("block {block}");
        let plan = planned(&*device, &LOSS).unwrap_or_else(|error| panic!("{when}: {error}"));
        back += plan.repairs.iter().filter(|it| it.what.ends_with("another tree has it")).count();
        world.behind(&device, &plan, &when);
    }
    (met, back)
}

/// Snapshots in a row, of which some share nodes that those around them do not have.
fn rows() -> World {
    let mut prng = Prng::seeded(7);
    let device = Arc::new(MemoryDevice::new(24 << 20));
    let target: Arc<dyn Device> = device.clone();
    CreateOptions::new().node_size(4096).format(&target).expect("it is large enough");
    let volume = VolumeOptions::new().commit_secs(0).open_device(target).expect("it was made");
    let (mut files, mut trees) = (Files::new(), BTreeMap::new());
    some_work(&volume, &mut files, &mut prng, 60);
    for (number, work) in [0, 8, 1, 1, 8].into_iter().enumerate() {
        some_work(&volume, &mut files, &mut prng, work);
        let name = format!("row-{number}");
        volume.branch_here().and_then(|main| main.snapshot(&name)).expect("there is room");
        trees.insert(format!("main@{name}"), files.clone());
    }
    some_work(&volume, &mut files, &mut prng, 8);
    volume.close().expect("memory takes it");
    trees.insert("main".into(), files);
    World { image: device.snapshot(), trees }
}

/// So many forks that what tells of them fills several nodes.
fn forks() -> World {
    let mut prng = Prng::seeded(8);
    let device = Arc::new(MemoryDevice::new(24 << 20));
    let target: Arc<dyn Device> = device.clone();
    CreateOptions::new().node_size(4096).format(&target).expect("it is large enough");
    let volume = VolumeOptions::new().commit_secs(0).open_device(target).expect("it was made");
    let (mut files, mut trees) = (Files::new(), BTreeMap::new());
    some_work(&volume, &mut files, &mut prng, 40);
    let main = volume.branch_here().expect("it is open");
    let first = main.snapshot("first").expect("there is room");
    trees.insert("main@first".into(), files.clone());
    for number in 0..24 {
        let name = format!("fork-{number}");
        let fork = first.fork(&name).and_then(|fork| fork.open()).expect("there is room");
        let mut of_fork = trees["main@first"].clone();
        some_work(&fork, &mut of_fork, &mut prng, 2);
        fork.close().expect("memory takes it");
        trees.insert(name, of_fork);
    }
    some_work(&volume, &mut files, &mut prng, 5);
    volume.close().expect("memory takes it");
    trees.insert("main".into(), files);
    World { image: device.snapshot(), trees }
}

#[test]
fn a_node_that_snapshots_in_a_row_share() {
    let world = rows();
    assert!(found(&world.image).is_clean());
    let (met, back) = rot(&world, nodes(&world.image, 1).into_iter());
    assert!(met > 10, "only {met} nodes were in use");
    assert!(back > 10, "only {back} names came back");
}

#[test]
fn a_node_of_the_space_tree_where_branches_are_known_from_others() {
    let world = forks();
    assert!(found(&world.image).is_clean());
    let (met, _) = rot(&world, nodes(&world.image, 2).into_iter());
    assert!(met > 2, "only {met} nodes were in use");
}

#[test]
fn a_node_of_a_volume_that_crashed() {
    let world = World::new(3);
    let of_files = nodes(&world.image, 1).into_iter().step_by(2);
    let (met, _) = rot(&world, of_files.chain(nodes(&world.image, 2)));
    assert!(met > 3, "only {met} nodes were in use");
}
