//! Accidents on a volume with a tree, branches, snapshots and a used log: behind a repair each file of each tree is bit for bit what it was, or
//! a loss names it; and that stays so when snapshots are deleted and the volume is filled up anew.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use holdfast::{CreateOptions, Volume, VolumeOptions};
use holdfast_base::BLOCK_SIZE;
use holdfast_base::prng::Prng;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_check::{Issue, Options as CheckOptions, Report, check};
use holdfast_device::{Device, MemoryDevice};
use holdfast_repair::{Planned, Repair, RepairError, RepairOptions, is_repaired};

use crate::every_finding::{LOSS, found, planned};

/// Paths of regular files with their content, and of directories with nothing.
pub(crate) type Files = BTreeMap<String, Option<Vec<u8>>>;

/// A crashed volume, and what its trees hold.
pub(crate) struct World {
    pub(crate) image: MemoryDevice,
    pub(crate) trees: BTreeMap<String, Files>,
}

/// Makes a file, or changes one.
fn write(volume: &Volume, files: &mut Files, prng: &mut Prng, path: String) {
    let most = *prng.pick(&[200, 5_000, 40_000, 200_000]);
    let mut bytes = vec![0; 1 + prng.below(most) as usize];
    prng.fill(&mut bytes);
    volume.write(&path, &bytes).expect("there is room");
    files.insert(path, Some(bytes));
}

pub(crate) fn some_work(volume: &Volume, files: &mut Files, prng: &mut Prng, count: u64) {
    for _ in 0..count {
        let dir = format!("/d{}", prng.below(6));
        if !files.contains_key(&dir) {
            volume.create_dir(&dir).expect("there is room");
            files.insert(dir.clone(), None);
        }
        let path = format!("{dir}/f{}", prng.below(12));
        match prng.below(8) {
            0 if files.contains_key(&path) => {
                volume.remove_file(&path).expect("it is there");
                files.remove(&path);
            }
            1 if files.contains_key(&path) => {
                let to = format!("{dir}/moved{}", prng.below(5));
                volume.rename(&path, &to).expect("it is there");
                let content = files.remove(&path).expect("it is there");
                files.insert(to, content);
            }
            2 if files.contains_key(&path) => {
                let to = format!("/link{}", prng.below(4));
                if !files.contains_key(&to) {
                    volume.hard_link(&path, &to).expect("it is there");
                    // Both change together from now on: the new one stays alone.
                    volume.remove_file(&path).expect("it is there");
                    let content = files.remove(&path).expect("it is there");
                    files.insert(to, content);
                }
            }
            _ => write(volume, files, prng, path),
        }
    }
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let mut prng = Prng::seeded(seed);
        let device = Arc::new(MemoryDevice::new(24 << 20));
        let target: Arc<dyn Device> = device.clone();
        CreateOptions::new().node_size(4096).format(&target).expect("it is large enough");
        let options = VolumeOptions::new().commit_secs(0);
        let volume = options.open_device(target).expect("it was made");
        let (mut files, mut trees) = (Files::new(), BTreeMap::new());
        some_work(&volume, &mut files, &mut prng, 50);
        let main = volume.branch_here().expect("it is open");
        let first = main.snapshot("one").expect("there is room");
        trees.insert("main@one".into(), files.clone());
        some_work(&volume, &mut files, &mut prng, 25);
        main.snapshot("two").expect("there is room");
        trees.insert("main@two".into(), files.clone());
        let fork = first.fork("fork").expect("there is room").open().expect("it is there");
        let mut of_fork = trees["main@one"].clone();
        some_work(&fork, &mut of_fork, &mut prng, 15);
        fork.sync().expect("memory takes it");
        some_work(&volume, &mut files, &mut prng, 15);
        volume.commit().expect("memory takes it");
        some_work(&volume, &mut files, &mut prng, 6);
        volume.sync_all().expect("memory takes it");
        for (path, content) in &files {
            if content.is_some() {
                volume.open_file(path).and_then(|file| file.sync_all()).expect("it is there");
            }
        }
        // The last batch names no data: whether that arrived is no question.
        volume.create_dir("/end").and_then(|()| volume.sync_all()).expect("memory takes it");
        files.insert("/end".into(), None);
        let image = device.snapshot();
        trees.insert("fork".into(), of_fork);
        trees.insert("main".into(), files);
        World { image, trees }
    }

    /// The same volume, left in order.
    pub(crate) fn rested(&self) -> MemoryDevice {
        let device = Arc::new(self.image.snapshot());
        let volume = VolumeOptions::new().commit_secs(0).open_device(device.clone());
        volume.and_then(Volume::close).expect("it is whole");
        device.snapshot()
    }

    /// Carries a repair out, and holds what is there against what was and what was said; also when the snapshots are gone and the volume is full.
    pub(crate) fn behind(&self, device: &Arc<MemoryDevice>, plan: &Planned, when: &str) {
        plan.write(&**device).expect("memory takes it");
        let after = found(&**device);
        assert!(is_repaired(&after), "{when}: {:#?}", after.findings);
        let plain = check(&**device, &CheckOptions::default()).expect("there is a volume");
        assert!(plain.is_clean(), "{when}: {:#?}", plain.findings);
        let target: Arc<dyn Device> = device.clone();
        let options = VolumeOptions::new().commit_secs(0);
        let volume = options.open_device(target).unwrap_or_else(|error| panic!("{when}: {error}"));
        // Behind rings that end early there is an older state.
        let goes_on = [Issue::FramePlaceBad, Issue::BatchPlaceBad, Issue::CommitBaseLost];
        let cuts =
            |issue: Issue| (800..1000).contains(&issue.number()) && !goes_on.contains(&issue);
        let is_cut = plan.repairs.iter().any(|it| cuts(it.issue));
        let of_lineage = |it: &Repair| {
            let says = it.issue.number() > 1000 || it.what.starts_with("branches, snapshots");
            it.loses && it.tree.is_none() && it.path.is_none() && says
        };
        let mut before = BTreeMap::new();
        for (name, files) in &self.trees {
            let Ok(tree) = open_tree(&volume, name) else {
                let given_up = |it: &Repair| {
                    it.issue == Issue::RootAge && it.loses && it.tree.as_ref() == Some(name)
                };
                let is_said = plan.repairs.iter().any(|it| of_lineage(it) || given_up(it));
                assert!(is_cut || is_said, "{when}: {name} is gone: {:#?}", plan.repairs);
                continue;
            };
            let found = walked(&tree);
            if !is_cut {
                let said = ToldOfTree::of(&plan.repairs, &after, name);
                compare(&found, files, &said, &format!("{when}, {name}"));
                for path in &said.older {
                    let Some(There { content: Ok(now), .. }) = found.get(*path) else { continue };
                    // What has another path now had that content somewhere.
                    let is_moved = path.starts_with("/lost+found/");
                    let was = |files: &Files| match is_moved {
                        true => files.values().any(|content| content == now),
                        false => files.get(*path) == Some(now),
                    };
                    assert!(self.trees.values().any(was), "{when}: {name}:{path} never was that");
                }
            }
            tree.close().expect("memory takes it");
            before.insert(&**name, found);
        }
        // It goes on, and no block is freed twice or kept when the snapshots go.
        for name in self.trees.keys().filter(|name| name.contains('@')) {
            let (branch, snapshot) = name.split_once('@').expect("it was looked for");
            let branch = volume.branch(branch).expect("it is there");
            if let Ok(snapshot) = branch.snapshot_named(snapshot) {
                snapshot.delete().unwrap_or_else(|error| panic!("{when}: {error}"));
                before.remove(&**name);
            }
        }
        volume.close().unwrap_or_else(|error| panic!("{when}: {error}"));
        let volume = VolumeOptions::new().commit_secs(0).open_device(device.clone());
        let volume = volume.unwrap_or_else(|error| panic!("{when}: {error}"));
        fill(&volume);
        let _ = volume.sync_all();
        for (name, was) in &before {
            let tree = open_tree(&volume, name).unwrap_or_else(|error| panic!("{when}: {error}"));
            unchanged(was, &walked(&tree), &format!("{when}, {name}, filled up"));
            tree.close().expect("memory takes it");
        }
        volume.close().unwrap_or_else(|error| panic!("{when}: {error}"));
        let last = found(&**device);
        let leaks =
            [Issue::BlocksLeaked.number(), Issue::DataDamaged.number(), Issue::Fault.number()];
        let wrong: Vec<_> = last.findings.iter().filter(|it| !leaks.contains(&it.id)).collect();
        assert!(
            wrong.iter().all(|it| it.severity == holdfast_check::Severity::Note),
            "{when}: {wrong:#?}"
        );
    }
}

/// Damages blocks of the data zone, mostly nodes. Returns which.
fn damage(device: &MemoryDevice, prng: &mut Prng, first: u64) -> Vec<u64> {
    let blocks = device.len() / BLOCK_BYTES - 16;
    let read = |block: u64| {
        let mut bytes = vec![0; BLOCK_SIZE];
        device.read(block * BLOCK_BYTES, &mut bytes).expect("memory reads");
        bytes
    };
    let used: Vec<u64> =
        (first..blocks).filter(|block| read(*block).iter().any(|b| *b != 0)).collect();
    let nodes: Vec<u64> =
        used.iter().copied().filter(|block| read(*block).starts_with(b"hfNd")).collect();
    let count = 1 + prng.below(*prng.clone().pick(&[1, 3, 20, 100]));
    let mut hit = Vec::new();
    for _ in 0..count {
        let block = if prng.one_in(3) { *prng.pick(&used) } else { *prng.pick(&nodes) };
        let mut bytes = read(block);
        match prng.below(4) {
            0 => bytes.fill(0),
            1 => bytes[prng.below(BLOCK_SIZE as u64) as usize] ^= 1 << prng.below(8),
            2 => bytes = read(*prng.pick(&used)),
            _ => prng.fill(&mut bytes[1000..1500]),
        }
        device.write(block * BLOCK_BYTES, &bytes).expect("memory takes it");
        hit.push(block);
    }
    hit
}

/// What a path leads to now.
#[derive(Debug)]
pub(crate) struct There {
    inode: u64,
    /// Of a regular file its content.
    pub(crate) content: io::Result<Option<Vec<u8>>>,
}

pub(crate) type Listing = BTreeMap<String, There>;

/// All of a tree.
fn walk(volume: &Volume, dir: &str, out: &mut Listing) {
    for entry in volume.read_dir(dir).expect("directories read") {
        let entry = entry.expect("directories read");
        let path = format!("{}/{}", dir.trim_end_matches('/'), entry.file_name().to_string_lossy());
        let metadata = entry.metadata().expect("inodes read");
        let content = match metadata.is_dir() {
            true => Ok(None),
            false => volume.read(&path).map(Some),
        };
        if metadata.is_dir() {
            walk(volume, &path, out);
        }
        out.insert(path, There { inode: metadata.ino(), content });
    }
}

pub(crate) fn walked(volume: &Volume) -> Listing {
    let mut found = Listing::new();
    walk(volume, "/", &mut found);
    found
}

/// What a repair has said of one tree.
struct ToldOfTree<'s> {
    /// Paths that losses name.
    losses: BTreeSet<&'s str>,
    /// Those that are as they were before.
    older: BTreeSet<&'s str>,
    /// Inodes whose data is damaged: trees that share it do not name it each.
    damaged: BTreeSet<u64>,
}

impl ToldOfTree<'_> {
    fn of<'s>(repairs: &'s [Repair], after: &Report, tree: &str) -> ToldOfTree<'s> {
        let of_tree = |it: &&Repair| it.loses && it.tree.as_deref().unwrap_or("main") == tree;
        let losses = repairs.iter().filter(of_tree).filter_map(|it| it.path.as_deref()).collect();
        let is_older = |it: &&Repair| it.what.starts_with("it is as of epoch");
        let older = repairs.iter().filter(of_tree).filter(is_older);
        let older = older.filter_map(|it| it.path.as_deref()).collect();
        let bad = [Issue::DataDamaged, Issue::DataUnreadable].map(Issue::number);
        let findings = after.findings.iter().filter(|it| bad.contains(&it.id));
        let damaged = findings.filter_map(|it| it.inode).map(|inode| inode.0).collect();
        ToldOfTree { losses, older, damaged }
    }

    /// Whether it is said that a path is not there: it is named, or what of it is not there first, or the directory that is.
    fn is_gone(&self, path: &str, found: &Listing) -> bool {
        let ends = path.char_indices().skip(1).filter(|(_, c)| *c == '/').map(|(at, _)| at);
        let mut last = "/";
        for part in ends.map(|at| &path[..at]).chain([path]) {
            if !found.contains_key(part) {
                return self.losses.contains(part) || self.losses.contains(last);
            }
            last = part;
        }
        false
    }
}

/// Compares a tree with what it was, and with what was said of it. Returns how much is lost of it.
fn compare(found: &Listing, files: &Files, said: &ToldOfTree<'_>, when: &str) -> usize {
    let mut lost = 0;
    for (path, content) in files {
        match found.get(path) {
            None => {
                assert!(said.is_gone(path, found), "{when}: {path} is gone: {:?}", said.losses);
                lost += 1;
            }
            Some(There { inode, content: Err(error) }) => {
                let is_said = said.losses.contains(&**path) || said.damaged.contains(inode);
                assert!(is_said, "{when}: {path}: {error}: {:?}", said.losses);
                lost += 1;
            }
            Some(There { content: Ok(now), .. }) => {
                let is_older = said.older.contains(&**path);
                assert!(is_older || now == content, "{when}: {path} has another content");
            }
        }
    }
    for path in found.keys() {
        let is_known = files.contains_key(path) || path.starts_with("/lost+found");
        let is_older = said.older.contains(&**path);
        assert!(is_known || is_older, "{when}: {path} was not there");
    }
    lost
}

/// Nothing has become another thing.
fn unchanged(before: &Listing, now: &Listing, when: &str) {
    for (path, was) in before {
        let Some(is) = now.get(path) else { panic!("{when}: {path} is gone") };
        match (&was.content, &is.content) {
            (Ok(was), Ok(is)) => assert!(was == is, "{when}: {path} has become another"),
            (Err(_), Err(_)) => {}
            (was, is) => panic!("{when}: {path}: {:?}, then {:?}", was.is_ok(), is.is_ok()),
        }
    }
}

/// Takes all blocks that are free.
fn fill(volume: &Volume) {
    for size in [1 << 20, 1 << 14] {
        for number in 0.. {
            if volume.write(format!("/fill-{size}-{number}"), vec![0xaa; size]).is_err() {
                break;
            }
        }
    }
}

pub(crate) fn open_tree(volume: &Volume, name: &str) -> io::Result<Volume> {
    match name.split_once('@') {
        Some((branch, snapshot)) => volume.branch(branch)?.snapshot_named(snapshot)?.view(),
        None => volume.branch(name)?.view(),
    }
}

/// What it comes to with one seed.
fn accident(world: &World, seed: u64) -> bool {
    let device = Arc::new(world.image.snapshot());
    let mut prng = Prng::seeded(seed);
    let summary = holdfast_check::probe(&*device).expect("there is a volume");
    let first = 272 + (summary.log_ring_bytes + summary.journal_ring_bytes) / BLOCK_BYTES;
    let hit = damage(&device, &mut prng, first);
    let when = format!("seed {seed}, blocks {hit:?}");
    match planned(&*device, &LOSS) {
        Ok(plan) => world.behind(&device, &plan, &when),
        Err(RepairError::Refused(_)) => return false,
        Err(error) => panic!("{when}: {error}"),
    }
    true
}

#[test]
fn what_is_left_behind_a_repair_is_right() {
    let seeds = std::env::var("SEEDS").ok();
    let seeds: Vec<u64> = match &seeds {
        Some(list) => list.split(',').map(|seed| seed.parse().expect("numbers")).collect(),
        None => (0..60).collect(),
    };
    let of_world = std::env::var("WORLD").ok().and_then(|seed| seed.parse().ok());
    let world = World::new(of_world.unwrap_or(1));
    assert!(found(&world.image).is_clean());
    let done = seeds.iter().filter(|seed| accident(&world, **seed)).count();
    if std::env::var_os("SEEDS").is_some() {
        eprintln!("{done} of {} were repaired", seeds.len());
    }
    assert!(2 * done > seeds.len(), "only {done} of {} were repaired", seeds.len());
}

/// Branches and snapshots stand in the space tree. Where a node of it is damaged that may have held them, they are given up only by
/// who says so, and are never lost in silence.
#[test]
fn no_branch_is_lost_in_silence_with_the_space_tree() {
    let world = World::new(1);
    let blocks = world.image.len() / BLOCK_BYTES;
    let (mut refused, mut is_whole) = (0, 0);
    for block in 0..blocks {
        let device = world.image.snapshot();
        let mut bytes = vec![0; BLOCK_SIZE];
        device.read(block * BLOCK_BYTES, &mut bytes).expect("memory reads");
        let is_of_space = bytes.starts_with(b"hfNd") && bytes[5] == 2;
        if !is_of_space {
            continue;
        }
        bytes[1000] ^= 1;
        device.write(block * BLOCK_BYTES, &bytes).expect("memory takes it");
        if found(&device).is_clean() {
            // It is an old one.
            continue;
        }
        for accept_loss in [false, true] {
            let device = Arc::new(device.snapshot());
            let options = RepairOptions { data: true, accept_loss };
            let plan = match planned(&*device, &options) {
                Err(RepairError::Refused(why)) => {
                    assert!(why.contains("nothing is written"), "block {block}: {why}");
                    refused += 1;
                    continue;
                }
                plan => plan.unwrap_or_else(|error| panic!("block {block}: {error}")),
            };
            plan.write(&*device).expect("memory takes it");
            if plan.loses() {
                assert!(accept_loss, "block {block}: {:?}", plan.repairs);
                continue;
            }
            let volume = VolumeOptions::new().open_device(device.clone()).expect("it is whole");
            for (name, files) in &world.trees {
                let tree =
                    open_tree(&volume, name).unwrap_or_else(|error| panic!("{name}: {error}"));
                let said = ToldOfTree::of(&[], &plan.after, name);
                compare(&walked(&tree), files, &said, &format!("block {block}, {name}"));
            }
            is_whole += 1;
        }
    }
    assert!(refused + is_whole > 0, "no node of the space tree was found");
    assert!(refused > 0, "{is_whole} were whole");
}
