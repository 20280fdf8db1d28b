//! Accidents: whatever is lost of a volume, a file that is said to be whole is as it was, and of others each byte was there.

use holdfast_base::BLOCK_SIZE;
use holdfast_base::prng::Prng;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_device::{Device, DeviceError, MemoryDevice, forward};
use holdfast_salvage::{Choice, CopyOptions, Counts, FileNote, SalvageError, Scan, Tolerant};

use crate::common::{Files, Made, Memory, World};

/// What was salvaged of one tree.
pub(crate) struct Outcome {
    pub(crate) memory: Memory,
    pub(crate) counts: Counts,
    pub(crate) by: String,
    pub(crate) notes: Vec<String>,
}

impl Outcome {
    /// Whether this is the last state. A commit or batch that is torn at the very end is no damage, and not known to be missing.
    fn is_last(&self, world: &World) -> bool {
        self.notes.is_empty() && self.by == world.by
    }
}

pub(crate) fn salvage(
    device: &dyn Device,
    tree: &str,
    choice: &Choice,
) -> Result<Outcome, SalvageError> {
    let tolerant = Tolerant::new(device);
    let scan = Scan::read(&tolerant, &|_| ());
    let salvaged = scan.open(&tolerant, choice)?;
    let mut memory = Memory::default();
    let counts = salvaged.copy(salvaged.tree(tree)?, &mut memory, &CopyOptions::default())?;
    let (by, notes) = (salvaged.by.clone(), salvaged.notes.clone());
    Ok(Outcome { memory, counts, by, notes })
}

pub(crate) fn read(device: &MemoryDevice, block: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_SIZE];
    device.read(block * BLOCK_BYTES, &mut bytes).unwrap();
    bytes
}

pub(crate) fn zero(device: &MemoryDevice, start: u64, end: u64) {
    let len = end.min(device.len()) - start;
    device.write(start, &vec![0; len as usize]).unwrap();
}

/// First blocks of nodes of a tree, at and above a level.
pub(crate) fn nodes(device: &MemoryDevice, tree: u8, level: u8) -> Vec<u64> {
    let is_node = |block: &u64| {
        let bytes = read(device, *block);
        bytes.starts_with(b"hfNd") && bytes[5] == tree && bytes[4] >= level
    };
    (256..device.len() / BLOCK_BYTES).filter(is_node).collect()
}

pub(crate) fn lose_superblocks(device: &MemoryDevice) {
    for block in [16, 48, device.len() / BLOCK_BYTES - 16] {
        zero(device, block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES);
    }
}

/// Damages some blocks in some way. Returns which.
fn damage(device: &MemoryDevice, prng: &mut Prng) -> Vec<u64> {
    let blocks = device.len() / BLOCK_BYTES;
    let used: Vec<u64> =
        (0..blocks).filter(|block| read(device, *block).iter().any(|byte| *byte != 0)).collect();
    let nodes: Vec<u64> =
        used.iter().copied().filter(|block| read(device, *block).starts_with(b"hfNd")).collect();
    let most = *prng.pick(&[1, 5, 50, 500]);
    let hit: Vec<u64> = (0..1 + prng.below(most))
        .map(|_| if prng.one_in(3) { *prng.pick(&used) } else { *prng.pick(&nodes) })
        .collect();
    for block in &hit {
        let mut bytes = read(device, *block);
        match prng.below(4) {
            0 => bytes.fill(0),
            1 => bytes[prng.below(BLOCK_BYTES) as usize] ^= 1 << prng.below(8),
            2 => bytes = read(device, *prng.pick(&used)),
            _ => prng.fill(&mut bytes[1000..1500]),
        }
        device.write(block * BLOCK_BYTES, &bytes).unwrap();
    }
    hit
}

/// Whether a file, but for its holes, is made of what it held at some time: each block as in one of its versions.
fn is_made_of(content: &[u8], found: &FileNote, versions: &[Vec<u8>]) -> bool {
    let is_hole =
        |at: u64| found.holes.ranges.iter().any(|(start, end)| (*start..*end).contains(&at));
    (0..content.len()).step_by(BLOCK_SIZE).all(|at| {
        let block = &content[at..content.len().min(at + BLOCK_SIZE)];
        let as_in = |version: &Vec<u8>| {
            let old = &version[version.len().min(at)..version.len().min(at + BLOCK_SIZE)];
            let len = old.len().min(block.len());
            block[..len] == old[..len] && block[len..].iter().all(|byte| *byte == 0)
        };
        if is_hole(at as u64) {
            // The rest of a block of the end may not be in it.
            return block.iter().all(|byte| *byte == 0);
        }
        versions.iter().any(as_in)
    })
}

/// What must hold of all that was salvaged.
fn judge(world: &World, tree: &str, outcome: &Outcome, when: &str) {
    let last = &world.trees[tree];
    let nothing = Vec::new();
    for found in &outcome.memory.found {
        let path = format!("/{}", String::from_utf8_lossy(&found.path));
        let Some(Made::File(content)) = outcome.memory.made.get(&path) else {
            if found.is_whole()
                && outcome.is_last(world)
                && path != "/"
                && !path.starts_with("/lost+found/")
            {
                assert!(last.contains_key(&path), "{when}: {path} is no more");
            }
            continue;
        };
        let versions = world.versions.get(&found.inode).unwrap_or(&nothing);
        // A directory without a name may hold files that are whole.
        let is_in_place = !path.starts_with("/lost+found/");
        if found.is_whole() {
            if outcome.is_last(world) && is_in_place {
                assert!(
                    last.get(&path) == Some(&Some(content.clone())),
                    "{when}: {path} is whole and another: {found:?}"
                );
            }
            assert!(versions.contains(content), "{when}: {path} never was so: {found:?}");
            let named = (path.clone(), found.inode);
            let is_known = world.names.contains(&named) || !is_in_place;
            assert!(is_known, "{when}: {path} never was called so");
        } else {
            assert!(
                is_made_of(content, found, versions),
                "{when}: {path} has wrong bytes: {found:?}"
            );
        }
    }
    let whole = outcome.memory.found.iter().filter(|found| found.is_whole()).count() as u64;
    assert_eq!(outcome.counts.whole, whole, "{when}");
}

/// How many regular files of a tree were salvaged as they are in it.
fn rescued(files: &Files, outcome: &Outcome) -> usize {
    let is_same = |(path, content): &(&String, &Option<Vec<u8>>)| matches!((content, outcome.memory.made.get(*path)), (Some(old), Some(Made::File(new))) if old == new);
    files.iter().filter(is_same).count()
}

/// Regular files that are not as they were, or were not.
fn others(files: &Files, outcome: &Outcome) -> Vec<String> {
    let wrong = |path: &&String| {
        let old = files.get(*path).and_then(Option::as_ref);
        let new = match outcome.memory.made.get(*path) {
            Some(Made::File(content)) => Some(content),
            _ => None,
        };
        old != new
    };
    let all = files.keys().chain(outcome.memory.made.keys()).filter(wrong);
    let whole =
        |path: &&String| outcome.memory.found(path).is_none_or(|found| found.holes.is_empty());
    let shown = |path: &String| {
        let differs = match (files.get(path), outcome.memory.made.get(path)) {
            (Some(Some(old)), Some(Made::File(new))) => {
                let zero = |at: &usize| {
                    new[*at..new.len().min(at + BLOCK_SIZE)].iter().all(|byte| *byte == 0)
                };
                let wrong = |at: &usize| {
                    new[*at..new.len().min(at + BLOCK_SIZE)]
                        != old[(*at).min(old.len())..old.len().min(at + BLOCK_SIZE)]
                };
                (0..new.len())
                    .step_by(BLOCK_SIZE)
                    .filter(wrong)
                    .map(|at| format!("{}{}", at / BLOCK_SIZE, if zero(&at) { "z" } else { "" }))
                    .collect::<Vec<_>>()
                    .join(",")
            }
            (old, new) => format!("{} {}", old.is_some(), new.is_some()),
        };
        format!("{path}: blocks {differs}: {:?}", outcome.memory.found(path))
    };
    all.filter(whole).map(shown).collect()
}

fn regular(files: &Files) -> usize {
    files.values().flatten().count()
}

fn seeds(usual: u64) -> Vec<u64> {
    match std::env::var("SEEDS") {
        Ok(list) => list.split(',').map(|seed| seed.parse().unwrap()).collect(),
        Err(_) => (0..usual).collect(),
    }
}

#[test]
fn a_sound_volume_is_whole() {
    for is_closed in [true, false] {
        let world = World::new(1, is_closed);
        for (tree, files) in &world.trees {
            let outcome = salvage(&world.image, tree, &Choice::default()).unwrap();
            let when = format!("{tree}, closed: {is_closed}");
            assert!(outcome.is_last(&world), "{when}: {} {:?}", outcome.by, outcome.notes);
            judge(&world, tree, &outcome, &when);
            assert!(outcome.counts.is_whole(), "{when}: {:?}", outcome.counts);
            assert_eq!(rescued(files, &outcome), regular(files), "{when}");
            assert_eq!(outcome.memory.made.len(), files.len(), "{when}");
        }
    }
}

#[test]
fn no_superblock_is_needed() {
    let world = World::new(2, true);
    let device = world.image.snapshot();
    lose_superblocks(&device);
    let outcome = salvage(&device, "main", &Choice::default()).unwrap();
    assert!(outcome.by.starts_with("the root"), "{}", outcome.by);
    judge(&world, "main", &outcome, "no superblock");
    let files = &world.trees["main"];
    assert_eq!(rescued(files, &outcome), regular(files));
    let one = salvage(&device, "main@one", &Choice::default()).unwrap();
    assert_eq!(rescued(&world.trees["main@one"], &one), regular(&world.trees["main@one"]));
    // A volume that was not closed goes back to its last checkpoint.
    let world = World::new(2, false);
    let device = world.image.snapshot();
    lose_superblocks(&device);
    let outcome = salvage(&device, "main", &Choice::default()).unwrap();
    judge(&world, "main", &outcome, "no superblock, not closed");
    let wrong = world.states.iter().map(|state| others(state, &outcome)).min_by_key(Vec::len);
    assert_eq!(wrong, Some(Vec::new()), "it is none of the checkpoints: {}", outcome.by);
}

#[test]
fn leaves_alone_are_enough() {
    for seed in 0..3 {
        let world = World::new(10 + seed, true);
        let files = &world.trees["main"];
        let sound = salvage(&world.image, "main", &Choice::default()).unwrap();
        assert_eq!(others(files, &sound), Vec::<String>::new(), "seed {seed}");
        for superblocks in [true, false] {
            let device = world.image.snapshot();
            let inner = nodes(&device, 1, 1);
            assert!(inner.len() > 5, "{} inner nodes", inner.len());
            inner
                .iter()
                .for_each(|block| zero(&device, block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES));
            if !superblocks {
                lose_superblocks(&device);
            }
            let when = format!("seed {seed}, superblocks: {superblocks}");
            let outcome = salvage(&device, "main", &Choice::default()).unwrap();
            judge(&world, "main", &outcome, &when);
            assert_eq!(outcome.counts.whole, 0, "{when}: nothing leads to a leaf");
            let wrong = others(files, &outcome);
            assert_eq!(rescued(files, &outcome), regular(files), "{when}: {wrong:#?}");
        }
    }
}

#[test]
fn whole_regions_may_be_lost() {
    type Lose = fn(&MemoryDevice);
    const MIB: u64 = 1 << 20;
    let accidents: [(&str, bool, Lose); 4] = [
        ("the first MiB", true, |device| zero(device, 0, MIB)),
        ("the last MiB", true, |device| zero(device, device.len() - MIB, device.len())),
        ("every second MiB", false, |device| {
            (0..device.len() / MIB)
                .step_by(2)
                .for_each(|at| zero(device, at * MIB, (at + 1) * MIB));
        }),
        ("every other second MiB", false, |device| {
            (1..device.len() / MIB)
                .step_by(2)
                .for_each(|at| zero(device, at * MIB, (at + 1) * MIB));
        }),
    ];
    for is_closed in [true, false] {
        let world = World::new(20, is_closed);
        let files = &world.trees["main"];
        for (what, is_all, lose) in accidents {
            let device = world.image.snapshot();
            lose(&device);
            let when = format!("{what}, closed: {is_closed}");
            let outcome = salvage(&device, "main", &Choice::default()).unwrap();
            judge(&world, "main", &outcome, &when);
            let rescued = rescued(files, &outcome);
            eprintln!(
                "{when}: {rescued} of {} files; {:?}; {}",
                regular(files),
                outcome.counts,
                outcome.by
            );
            assert!(!is_all || rescued == regular(files), "{when}: {rescued} files");
            // In a volume so small all nodes may lie in one MiB.
            assert!(rescued > 0 || what == "every other second MiB", "{when}");
        }
    }
}

/// The number of the block in which a node says that it stands.
fn address(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[16..24].try_into().unwrap())
}

/// Of a node that is stored twice one place is enough, whether a superblock tells where the other is or not; and a copy is no other version.
#[test]
fn one_place_of_each_node_is_enough() {
    for is_closed in [true, false] {
        let world = World::stored(21, is_closed, 2);
        let mut prng = Prng::seeded(21);
        let blocks = || {
            (256..world.image.len() / BLOCK_BYTES)
                .filter(|block| read(&world.image, *block).starts_with(b"hfNd"))
        };
        let sound = salvage(&world.image, "main", &Choice::default()).unwrap();
        assert!(sound.counts.is_whole() && sound.is_last(&world), "{:?}", sound.counts);
        for how in 0..3 {
            let chosen: std::collections::HashSet<u64> =
                blocks().filter(|_| prng.one_in(2)).collect();
            for superblocks in [true, false] {
                let device = world.image.snapshot();
                for block in blocks() {
                    let at = address(&read(&world.image, block));
                    // First places, second ones, one of the two.
                    let is_hit =
                        [at == block, at != block, chosen.contains(&at) == (at == block)][how];
                    if is_hit {
                        zero(&device, block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES);
                    }
                }
                if !superblocks {
                    lose_superblocks(&device);
                }
                let when = format!("closed: {is_closed}, {how}, superblocks: {superblocks}");
                for (tree, files) in &world.trees {
                    let outcome = salvage(&device, tree, &Choice::default()).unwrap();
                    judge(&world, tree, &outcome, &when);
                    if is_closed || superblocks {
                        assert_eq!(rescued(files, &outcome), regular(files), "{when}, {tree}");
                        assert!(
                            outcome.counts.is_whole() || !superblocks,
                            "{when}, {tree}: {:?}",
                            outcome.counts
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn the_space_tree_is_not_needed() {
    let world = World::new(30, true);
    let device = world.image.snapshot();
    let space = nodes(&device, 2, 0);
    space.iter().for_each(|block| zero(&device, block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES));
    let outcome = salvage(&device, "main", &Choice::default()).unwrap();
    judge(&world, "main", &outcome, "no space tree");
    assert!(!outcome.notes.is_empty());
    assert_eq!(rescued(&world.trees["main"], &outcome), regular(&world.trees["main"]));
    assert!(outcome.counts.is_whole(), "{:?}", outcome.counts);
}

#[test]
fn random_blocks_may_be_lost() {
    let worlds = [World::new(40, true), World::new(41, false)];
    let mut sum = 0;
    let seeds = seeds(60);
    for &seed in &seeds {
        let world = &worlds[seed as usize % 2];
        let mut prng = Prng::seeded(seed);
        let device = world.image.snapshot();
        let mut hit = damage(&device, &mut prng);
        if prng.one_in(3) {
            lose_superblocks(&device);
            hit.push(16);
        }
        for (tree, files) in &world.trees {
            let when = format!("seed {seed}, {tree}, blocks {hit:?}");
            match salvage(&device, tree, &Choice::default()) {
                Ok(outcome) => {
                    judge(world, tree, &outcome, &when);
                    sum += rescued(files, &outcome) * 100 / regular(files);
                }
                Err(SalvageError::NoSuchTree(name)) if name != "main" => {}
                Err(error) => panic!("{when}: {error}"),
            }
        }
    }
    let mean = sum / seeds.len() / 2;
    eprintln!("{mean} of 100 files were rescued");
    // Some of the accidents take half of all nodes.
    assert!(mean > 50, "{mean} of 100");
}

/// A device of which some blocks do not read.
#[derive(Debug)]
struct Rotten {
    device: MemoryDevice,
    bad: Vec<u64>,
}

impl Device for Rotten {
    forward!(device: write, flush, discard, len, room, take_room, sector_size, reach, stats);

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let end = at + into.len() as u64;
        if self.bad.iter().any(|block| at < (block + 1) * BLOCK_BYTES && end > block * BLOCK_BYTES)
        {
            let source = std::io::Error::other("the sector is gone");
            return Err(DeviceError::Io { call: "read", at, len: into.len() as u64, source });
        }
        self.device.read(at, into)
    }
}

#[test]
fn a_device_may_not_read_everywhere_or_end_early() {
    let world = World::new(50, false);
    for seed in seeds(10) {
        let mut prng = Prng::seeded(seed);
        let blocks = world.image.len() / BLOCK_BYTES;
        let mut bad: Vec<u64> = (0..1 + prng.below(60)).map(|_| prng.below(blocks)).collect();
        if prng.one_in(2) {
            bad.extend([16, 48]);
        }
        let when = format!("seed {seed}, bad blocks {bad:?}");
        let rotten = Rotten { device: world.image.snapshot(), bad };
        let outcome = salvage(&rotten, "main", &Choice::default()).unwrap();
        judge(&world, "main", &outcome, &when);
        let mut image = world.image.to_image();
        // Not a multiple of anything.
        image.truncate((world.image.len() / 2 + prng.below(world.image.len() / 2)) as usize);
        image.truncate(image.len() / 512 * 512);
        let when = format!("seed {seed}, {} bytes", image.len());
        let cut = MemoryDevice::from_image(&image);
        let outcome = salvage(&cut, "main", &Choice::default()).unwrap();
        judge(&world, "main", &outcome, &when);
        assert!(
            outcome.notes.iter().any(|note| note.contains("ends")),
            "{when}: {:?}",
            outcome.notes
        );
    }
}

#[test]
fn earlier_checkpoints_are_listed_and_can_be_taken() {
    let world = World::new(60, true);
    let tolerant = Tolerant::new(&world.image);
    let scan = Scan::read(&tolerant, &|_| ());
    let volumes = scan.volumes();
    assert_eq!(volumes.len(), 1, "{volumes:?}");
    assert_eq!(volumes[0].superblocks.len(), 3, "{volumes:?}");
    assert_eq!(volumes[0].node_bytes, 4096);
    let salvaged = scan.open(&tolerant, &Choice::default()).unwrap();
    let epochs = salvaged.epochs();
    assert!(epochs.len() > 3, "{epochs:?}");
    assert!(epochs.windows(2).all(|two| two[0].epoch > two[1].epoch));
    let last = &epochs[0];
    assert!(last.has_superblock && !last.roots.is_empty() && last.changed.is_some(), "{last:?}");
    let mut older = 0;
    for epoch in &epochs {
        let choice = Choice { epoch: Some(epoch.epoch), ..Choice::default() };
        let outcome = salvage(&world.image, "main", &choice).unwrap();
        judge_older(&world, &outcome, &format!("epoch {}", epoch.epoch));
        older +=
            usize::from(rescued(&world.trees["main"], &outcome) < regular(&world.trees["main"]));
    }
    assert!(older > 0, "each epoch has the last state");
}

/// As [`judge`], of a state that is not the last.
fn judge_older(world: &World, outcome: &Outcome, when: &str) {
    let nothing = Vec::new();
    for found in &outcome.memory.found {
        let path = format!("/{}", String::from_utf8_lossy(&found.path));
        if let Some(Made::File(content)) = outcome.memory.made.get(&path) {
            let versions = world.versions.get(&found.inode).unwrap_or(&nothing);
            match found.is_whole() {
                true => assert!(versions.contains(content), "{when}: {path} never was so"),
                false => assert!(is_made_of(content, found, versions), "{when}: {path}: {found:?}"),
            }
        }
    }
}

#[test]
fn main_may_have_its_root_from_a_snapshot() {
    let device = std::sync::Arc::new(MemoryDevice::new(16 << 20));
    let target: std::sync::Arc<dyn Device> = device.clone();
    holdfast::CreateOptions::new().node_size(4096).format(&target).unwrap();
    let volume = holdfast::VolumeOptions::new().open_device(target).unwrap();
    let mut files = Files::new();
    for index in 0..100 {
        let content = vec![index as u8; 100 * (1 + index)];
        volume.write(format!("/{index}"), &content).unwrap();
        files.insert(format!("/{index}"), Some(content));
    }
    volume.branch_here().unwrap().snapshot("same").unwrap();
    volume.close().unwrap();
    let device = device.snapshot();
    lose_superblocks(&device);
    for tree in ["main", "main@same"] {
        let outcome = salvage(&device, tree, &Choice::default()).unwrap();
        // All is there; but no superblock says that this is the last state.
        assert!(!outcome.counts.is_whole(), "{tree}: {:?}, {}", outcome.counts, outcome.by);
        assert_eq!(rescued(&files, &outcome), files.len(), "{tree}");
    }
}

/// Each node of the files tree lost alone. A file has grown past a leaf since the version of that leaf that fills in: what the older
/// one does not have is no hole of the file, and no attribute that it never had.
#[test]
fn what_an_older_leaf_does_not_have_is_not_taken_for_nothing() {
    let device = std::sync::Arc::new(MemoryDevice::new(16 << 20));
    let target: std::sync::Arc<dyn Device> = device.clone();
    holdfast::CreateOptions::new().node_size(4096).format(&target).unwrap();
    let mut last = Files::new();
    for round in 0..4u8 {
        let volume = holdfast::VolumeOptions::new().open_device(target.clone()).unwrap();
        for (name, blocks) in [("/a", 3), ("/grows", 40), ("/z", 3)] {
            let mut content = last.remove(name).flatten().unwrap_or_default();
            let how = holdfast::OpenOptions::new().write(true).create(true);
            let file = volume.open_with(name, &how).unwrap();
            for _ in 0..blocks {
                // Each second block, or they would be one extent.
                content.resize(content.len() + BLOCK_SIZE, 0);
                file.write_all_at(&[round + 1; BLOCK_SIZE], content.len() as u64).unwrap();
                content.resize(content.len() + BLOCK_SIZE, round + 1);
            }
            drop(file);
            last.insert(name.into(), Some(content));
        }
        let small = format!("/small-{round}");
        volume.write(&small, [round; 30]).unwrap();
        last.insert(small, Some(vec![round; 30]));
        volume.close().unwrap();
    }
    let (mut whole, mut lost) = (0, 0);
    for block in nodes(&device, 1, 0) {
        let device = device.snapshot();
        zero(&device, block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES);
        let outcome = salvage(&device, "main", &Choice::default()).unwrap();
        for found in outcome.memory.found.iter().filter(|found| found.is_whole()) {
            let path = format!("/{}", String::from_utf8_lossy(&found.path));
            if let Some(Made::File(content)) = outcome.memory.made.get(&path) {
                assert_eq!(Some(content), last[&path].as_ref(), "{path}, without node {block}");
                whole += 1;
            }
        }
        lost += usize::from(!outcome.counts.is_whole());
    }
    assert!(whole > 0 && lost > 3, "{whole} files are whole, {lost} nodes were needed");
}
