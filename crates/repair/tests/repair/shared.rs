//! Trees that share nodes, of which all inner nodes rot: their leaves are still there. What is proven to be whose comes back as it was, the rest is as
//! of the snapshot that a tree grew out of, and is named.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast::{CreateOptions, VolumeOptions};
use holdfast_base::prng::Prng;
use holdfast_device::sim::images::Policy;
use holdfast_device::{Device, MemoryDevice, SimDevice};
use holdfast_repair::{RepairError, RepairOptions, is_repaired};

use crate::accidents::{Files, World, open_tree, some_work, walked};
use crate::every_finding::{LOSS, found, planned};
use crate::older::{Reached, rot};

const CAREFUL: RepairOptions = RepairOptions { data: true, accept_loss: false };

/// A volume left in order, with two snapshots of `main` and a fork of each; work in `main` behind each, and in the forks.
pub(crate) fn grown(seed: u64, work: [u64; 2], in_forks: u64) -> World {
    let mut prng = Prng::seeded(seed);
    let device = Arc::new(MemoryDevice::new(24 << 20));
    let target: Arc<dyn Device> = device.clone();
    CreateOptions::new().node_size(4096).format(&target).expect("it is large enough");
    let volume = VolumeOptions::new().commit_secs(0).open_device(target).expect("it was made");
    let (mut files, mut trees) = (Files::new(), BTreeMap::new());
    some_work(&volume, &mut files, &mut prng, 60);
    for (name, work) in ["one", "two"].into_iter().zip(work) {
        let main = volume.branch_here().expect("it is open");
        let snapshot = main.snapshot(name).expect("there is room");
        trees.insert(format!("main@{name}"), files.clone());
        let fork = snapshot.fork(&format!("fork-{name}")).expect("there is room");
        let fork = fork.open().expect("it is there");
        let mut of_fork = files.clone();
        some_work(&fork, &mut of_fork, &mut prng, in_forks);
        fork.close().expect("memory takes it");
        trees.insert(format!("fork-{name}"), of_fork);
        some_work(&volume, &mut files, &mut prng, work);
    }
    volume.close().expect("memory takes it");
    trees.insert("main".into(), files);
    assert!(found(&*device).is_clean());
    World { image: device.snapshot(), trees }
}

/// The volume without its inner nodes.
fn without_inner(world: &World) -> MemoryDevice {
    let device = world.image.snapshot();
    let reached = Reached::of(&device);
    let inner: Vec<u64> =
        reached.nodes.iter().filter(|(_, of)| of.level > 0).map(|(block, _)| *block).collect();
    assert!(inner.len() > 1, "the trees are too small");
    inner.iter().for_each(|block| rot(&device, *block));
    device
}

#[test]
fn leaves_come_back_where_trees_share() {
    for (seed, work) in [[20, 15], [1, 30], [0, 3], [40, 0]].into_iter().enumerate() {
        let world = grown(seed as u64, work, 0);
        let device = Arc::new(without_inner(&world));
        let when = format!("seed {seed}");
        let plan = planned(&*device, &CAREFUL).unwrap_or_else(|error| panic!("{when}: {error}"));
        assert!(!plan.loses(), "{when}: {:#?}", plan.repairs);
        world.behind(&device, &plan, &when);
    }
}

/// Of a leaf that is younger than a snapshot it is not known which of the trees that grew out of it has it.
#[test]
fn what_may_be_of_several_trees_is_as_of_their_snapshot() {
    for seed in 0..4 {
        let world = grown(seed, [20, 15], 6);
        let device = Arc::new(without_inner(&world));
        let when = format!("seed {seed}");
        let plan = planned(&*device, &LOSS).unwrap_or_else(|error| panic!("{when}: {error}"));
        let is_whole = |tree: &str| {
            !plan.repairs.iter().any(|it| it.loses && it.tree.as_deref() == Some(tree))
        };
        assert!(is_whole("main@one"), "{when}: {:#?}", plan.repairs);
        let rootless = plan.repairs.iter().any(|it| it.what.starts_with("the root directory"));
        assert!(!rootless, "{when}: {:#?}", plan.repairs);
        world.behind(&device, &plan, &when);
        let volume = VolumeOptions::new().open_device(device.clone()).expect("it is whole");
        for (name, files) in world.trees.iter().filter(|(name, _)| !name.contains('@')) {
            let tree = open_tree(&volume, name).expect("it is there");
            let there = walked(&tree);
            let back = files.keys().filter(|path| there.contains_key(*path)).count();
            assert!(2 * back > files.len(), "{when}, {name}: {back} of {}", files.len());
            tree.close().expect("memory takes it");
        }
    }
}

/// Leaves that are whole are what tells of the others: where one is lost as well, nothing is taken for what it may not be.
#[test]
fn a_leaf_that_is_lost_too_is_missed() {
    let world = grown(5, [20, 15], 0);
    let reached = Reached::of(&world.image);
    let leaves = reached.nodes.iter().filter(|(_, of)| of.level == 0).map(|(block, _)| *block);
    for block in leaves.step_by(3) {
        let device = Arc::new(without_inner(&world));
        rot(&device, block);
        let when = format!("leaf {block}");
        match planned(&*device, &LOSS) {
            Ok(plan) => world.behind(&device, &plan, &when),
            Err(RepairError::Refused(_)) => {}
            Err(error) => panic!("{when}: {error}"),
        }
    }
}

/// Power fails at each write: the volume is as it was or as it is repaired, and a second repair brings back the same.
#[test]
fn a_cut_leaves_what_proves_whose_leaves_are() {
    let world = grown(6, [4, 3], 0);
    let image = without_inner(&world);
    let whole = planned(&image, &CAREFUL).expect("all leaves are there");
    let device = SimDevice::new(&image);
    whole.write(&device).expect("memory takes it");
    let recording = device.recording();
    let mut cut = recording.start();
    for index in 0..=recording.events.len() {
        for left in cut.images(&Policy::default()) {
            let left = Arc::new(left.device());
            let when = format!("call {index}");
            if is_repaired(&found(&*left)) {
                continue;
            }
            let plan = planned(&*left, &CAREFUL).unwrap_or_else(|error| panic!("{when}: {error}"));
            assert!(!plan.loses(), "{when}: {:#?}", plan.repairs);
            world.behind(&left, &plan, &when);
        }
        if let Some(event) = recording.events.get(index) {
            cut.advance(event);
        }
    }
}
