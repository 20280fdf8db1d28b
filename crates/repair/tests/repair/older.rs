//! Nodes whose older versions, or whose own leaves, are still on the device: what comes back is right, or said to be of an older version, and
//! then it is what it was at one time; and so much of it comes back.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;
use std::sync::Arc;

use holdfast::{CreateOptions, Discard, OpenOptions, Volume, VolumeOptions};
use holdfast_base::prng::Prng;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo, Epoch, TreeId};
use holdfast_check::reading::{NodePlace, VolumeReading};
use holdfast_device::sim::images::Policy;
use holdfast_device::{Device, MemoryDevice, SimDevice};
use holdfast_format::item::{Extent, InodeItem};
use holdfast_format::node::{self, Expected};
use holdfast_format::{ItemKind, Key, NodePointer, NodeView};
use holdfast_repair::{Planned, Undo, is_repaired};

use crate::accidents::{Files, Listing, open_tree, some_work, walked};
use crate::every_finding::{LOSS, found, planned};

/// A volume that was closed many times: each time a checkpoint wrote its nodes anew.
struct Old {
    image: MemoryDevice,
    /// What was there at each closing; the last is what is there.
    states: Vec<Files>,
    /// Snapshots, and what they hold.
    snapshots: BTreeMap<String, Files>,
}

fn opened(device: &Arc<MemoryDevice>) -> Volume {
    let options = VolumeOptions::new().commit_secs(0).discard(Discard::Off);
    options.open_device(device.clone()).expect("it is whole")
}

impl Old {
    fn new(seed: u64, mib: u64, rounds: u64, snapshot_at: Option<u64>) -> Old {
        let mut prng = Prng::seeded(seed);
        let device = Arc::new(MemoryDevice::new(mib << 20));
        let target: Arc<dyn Device> = device.clone();
        CreateOptions::new().node_size(4096).format(&target).expect("it is large enough");
        let (mut files, mut states) = (Files::new(), Vec::new());
        let mut snapshots = BTreeMap::new();
        for round in 0..rounds {
            let volume = opened(&device);
            some_work(&volume, &mut files, &mut prng, if round == 0 { 60 } else { 4 });
            if snapshot_at == Some(round) {
                volume.branch_here().and_then(|main| main.snapshot("one")).expect("there is room");
                snapshots.insert("main@one".to_string(), files.clone());
            }
            volume.close().expect("memory takes it");
            states.push(files.clone());
        }
        assert!(found(&*device).is_clean());
        Old { image: device.snapshot(), states, snapshots }
    }

    fn now(&self) -> &Files {
        self.states.last().expect("it was closed")
    }
}

fn bytes_at(device: &MemoryDevice, block: u64) -> [u8; BLOCK_SIZE] {
    let mut bytes = [0; BLOCK_SIZE];
    device.read(block * BLOCK_BYTES, &mut bytes).expect("memory reads");
    bytes
}

/// What trees reach: nodes of files, with their places, and blocks of data.
#[derive(Default)]
pub(crate) struct Reached {
    pub(crate) nodes: BTreeMap<u64, NodePlace>,
    data: BTreeSet<u64>,
}

impl Reached {
    pub(crate) fn of(device: &MemoryDevice) -> Reached {
        let reading = VolumeReading::open(device, false).expect("there is a volume");
        let mut reached = Reached::default();
        for tree in reading.trees() {
            reached.below(&reading, &tree.place());
        }
        reached
    }

    fn below(&mut self, reading: &VolumeReading<'_>, place: &NodePlace) {
        let mut buffer = Vec::new();
        let Ok(node) = reading.node(TreeId::Files, place, None, &mut buffer) else { return };
        self.nodes.insert(place.pointer.block.0, *place);
        for at in 0..node.count() {
            if place.level > 0 {
                let high = (at + 1 < node.count()).then(|| node.key(at + 1)).or(place.high);
                let (pointer, level, low) = (node.child(at), place.level - 1, node.key(at));
                self.below(reading, &NodePlace { pointer, level, low, high });
            } else if node.key(at).kind == ItemKind::Extent {
                let extent = Extent::decode(node.value(at)).expect("it is sound");
                let start = extent.blocks.start.0;
                self.data.extend(start..start + extent.blocks.count);
            }
        }
    }
}

/// What becomes of a repair.
struct Outcome {
    plan: Planned,
    found: Listing,
    device: Arc<MemoryDevice>,
}

fn repaired(device: MemoryDevice, when: &str) -> Outcome {
    let device = Arc::new(device);
    let plan = planned(&*device, &LOSS).unwrap_or_else(|error| panic!("{when}: {error}"));
    plan.write(&*device).expect("memory takes it");
    let after = found(&*device);
    assert!(is_repaired(&after), "{when}: {:#?}", after.findings);
    let volume = opened(&device);
    let found = walked(&volume);
    volume.close().unwrap_or_else(|error| panic!("{when}: {error}"));
    Outcome { plan, found, device }
}

impl Outcome {
    /// Whether a path is said to be of an older version, or lost, or to lie in something that is.
    fn is_said(&self, path: &str) -> bool {
        let losses = self.plan.repairs.iter().filter(|it| it.loses && it.tree.is_none());
        let mut paths = losses.filter_map(|it| it.path.as_deref());
        paths.any(|of| path == of || path.starts_with(&format!("{}/", of.trim_end_matches('/'))))
    }

    /// Holds everything against what was there. Returns how many files are as they were.
    fn right(&self, old: &Old, when: &str) -> usize {
        let mut right = 0;
        for (path, there) in &self.found {
            let Ok(content) = &there.content else {
                assert!(self.is_said(path), "{when}: {path} does not read, and nobody says so");
                continue;
            };
            if path.starts_with("/lost+found") {
                let is_of = |of: &Option<Vec<u8>>| {
                    let (now, was) = (content.as_deref(), of.as_deref());
                    is_padded(now, was) || has_holes(now, was)
                };
                let was = |files: &Files| files.values().any(is_of);
                let is_content = content.is_none() || old.states.iter().any(was);
                assert!(is_content, "{when}: {path} never had that content");
                continue;
            }
            if old.now().get(path) == Some(content) {
                right += 1;
                continue;
            }
            assert!(self.is_said(path), "{when}: {path} is another: {:#?}", self.plan.repairs);
            let was = |files: &Files| files.get(path) == Some(content);
            assert!(old.states.iter().any(was), "{when}: {path} never was that");
        }
        for path in old.now().keys().filter(|path| !self.found.contains_key(*path)) {
            assert!(self.plan.loses(), "{when}: {path} is gone");
        }
        for (name, files) in &old.snapshots {
            let volume = opened(&self.device);
            let tree = open_tree(&volume, name).expect("it is there");
            for (path, there) in walked(&tree) {
                if let (Ok(content), false) = (&there.content, path.starts_with("/lost+found")) {
                    let is_older = self.plan.repairs.iter().any(|it| {
                        it.loses
                            && it.tree.as_ref() == Some(name)
                            && it.path.as_ref() == Some(&path)
                    });
                    assert!(is_older || files.get(&path) == Some(content), "{when}: {name}:{path}");
                }
            }
            tree.close().expect("memory takes it");
            volume.close().expect("memory takes it");
        }
        right
    }
}

/// Whether something is what was, up to the end of its last block: of a file without its inode no one knows where it ended.
fn is_padded(now: Option<&[u8]>, was: Option<&[u8]>) -> bool {
    let (Some(now), Some(was)) = (now, was) else { return now == was };
    let is_longer = now.len() == was.len() || now.len() == was.len().next_multiple_of(BLOCK_SIZE);
    is_longer && now.starts_with(was) && now[was.len()..].iter().all(|byte| *byte == 0)
}

/// Whether something is what was, but for holes: what a file without its inode has lost is told by that, and has no name.
fn has_holes(now: Option<&[u8]>, was: Option<&[u8]>) -> bool {
    let (Some(now), Some(was)) = (now, was) else { return false };
    let mut blocks = now.chunks(BLOCK_SIZE).zip(was.chunks(BLOCK_SIZE));
    let is_part = |(now, was): (&[u8], &[u8])| now == was || now.iter().all(|byte| *byte == 0);
    now.len() <= was.len() && blocks.all(is_part)
}

pub(crate) fn rot(device: &MemoryDevice, block: u64) {
    let mut bytes = bytes_at(device, block);
    bytes[1000] ^= 1;
    device.write(block * BLOCK_BYTES, &bytes).expect("memory takes it");
}

/// Nothing is left of nodes but those that trees reach: what a repair had before it looked for others.
fn forget_others(device: &MemoryDevice, reached: &Reached) {
    for block in 0..device.len() / BLOCK_BYTES {
        let is_other = !reached.nodes.contains_key(&block);
        let bytes = bytes_at(device, block);
        if is_other && bytes.starts_with(b"hfNd") && bytes[5] == 1 {
            device.write(block * BLOCK_BYTES, &[0; BLOCK_SIZE]).expect("memory takes it");
        }
    }
}

/// Files that were, and those that are as they were: before, and with older versions; over each node of one kind that rots in turn.
fn shares(old: &Old, is_inner: bool) -> (usize, usize, usize) {
    let reached = Reached::of(&old.image);
    let (mut all, mut before, mut now) = (0, 0, 0);
    for (block, _) in reached.nodes.iter().filter(|(_, place)| (place.level > 0) == is_inner) {
        let damaged = || {
            let device = old.image.snapshot();
            rot(&device, *block);
            device
        };
        let when = format!("block {block}");
        let without = damaged();
        forget_others(&without, &Reached::of(&without));
        all += old.now().len();
        before += repaired(without, &when).right(old, &when);
        now += repaired(damaged(), &when).right(old, &when);
    }
    (all, before, now)
}

/// The measurement: `--nocapture` prints the figures.
#[test]
fn more_comes_back_than_without_older_versions() {
    let old = Old::new(11, 24, 8, None);
    for is_inner in [false, true] {
        let (all, before, now) = shares(&old, is_inner);
        let kind = if is_inner { "inner nodes" } else { "leaves" };
        let (was, is) = (all - before, all - now);
        println!(
            "{kind}: of {all} files {was} are not as they were without older versions, {is} with"
        );
        assert!(now > before, "{kind}: {before}, then {now} of {all}");
    }
}

/// Files whose data goes to reserved blocks, and in which ranges move: births of extents do not tell when that was. Whichever leaf is lost,
/// nothing is put together of two moments.
#[test]
fn reserved_blocks_that_are_filled_and_ranges_that_move_are_of_one_moment() {
    const BLOCKS: u64 = 1600;
    let device = Arc::new(MemoryDevice::new(48 << 20));
    let target: Arc<dyn Device> = device.clone();
    CreateOptions::new().node_size(4096).format(&target).expect("it is large enough");
    let mut prng = Prng::seeded(14);
    let (mut files, mut states) = (Files::new(), Vec::new());
    let contents = |files: &mut Files, path: &str, bytes: &[u8]| {
        files.insert(path.into(), Some(bytes.to_vec()));
    };
    let (mut whole, mut moved) = (vec![0; (BLOCKS * BLOCK_BYTES) as usize], vec![0; 400 << 12]);
    prng.fill(&mut moved);
    for round in 0..4 {
        let volume = opened(&device);
        let open = |path: &str| match round {
            0 => volume.create(path),
            _ => volume.open_with(path, &OpenOptions::new().read(true).write(true)),
        };
        let (db, tape) = (open("/db").expect("it opens"), open("/tape").expect("it opens"));
        match round {
            0 => {
                db.allocate(0, whole.len() as u64).expect("there is room");
                tape.write_all_at(&moved, 0).expect("there is room");
            }
            1 => {
                // From its end on, so that there are many extents.
                for at in (0..BLOCKS as usize).rev().map(|block| block * BLOCK_SIZE) {
                    prng.fill(&mut whole[at..at + BLOCK_SIZE]);
                    db.write_all_at(&whole[at..at + BLOCK_SIZE], at as u64)
                        .expect("it is reserved");
                }
                tape.insert_range(100 << 12, 3 << 12).expect("there is room");
                moved.splice(100 << 12..100 << 12, vec![0; 3 << 12]);
            }
            2 => {
                db.zero_range(40 << 12, 900 << 12).expect("there is room");
                whole[40 << 12..940 << 12].fill(0);
                tape.collapse_range(7 << 12, 5 << 12).expect("there is room");
                moved.drain(7 << 12..12 << 12);
            }
            _ => {
                prng.fill(&mut whole[..200 << 12]);
                db.write_all_at(&whole[..200 << 12], 0).expect("there is room");
            }
        }
        contents(&mut files, "/db", &whole);
        contents(&mut files, "/tape", &moved);
        some_work(&volume, &mut files, &mut prng, 3);
        drop((db, tape));
        volume.close().expect("memory takes it");
        states.push(files.clone());
    }
    let old = Old { image: device.snapshot(), states, snapshots: BTreeMap::new() };
    for block in Reached::of(&old.image).nodes.keys() {
        let device = old.image.snapshot();
        rot(&device, *block);
        let when = format!("block {block}");
        repaired(device, &when).right(&old, &when);
    }
}

/// Free blocks hold other data by now: what comes back is never a wrong byte.
#[test]
fn data_that_was_written_over_never_comes_back() {
    let old = Old::new(12, 24, 8, None);
    let reached = Reached::of(&old.image);
    let mut prng = Prng::seeded(3);
    let summary = holdfast_check::probe(&old.image).expect("there is a volume");
    let first = 272 + (summary.log_ring_bytes + summary.journal_ring_bytes) / BLOCK_BYTES;
    let mut older = 0;
    for block in reached.nodes.keys() {
        let device = old.image.snapshot();
        for other in first..device.len() / BLOCK_BYTES - 16 {
            let is_free = !reached.data.contains(&other) && !reached.nodes.contains_key(&other);
            let mut bytes = bytes_at(&device, other);
            if is_free && !bytes.starts_with(b"hfNd") && bytes.iter().any(|byte| *byte != 0) {
                prng.fill(&mut bytes);
                device.write(other * BLOCK_BYTES, &bytes).expect("memory takes it");
            }
        }
        rot(&device, *block);
        let when = format!("block {block}");
        let done = repaired(device, &when);
        older += done.plan.repairs.iter().filter(|it| it.what.contains("as of epoch")).count();
        done.right(&old, &when);
    }
    assert!(older > 0, "nothing was taken from an older version");
}

/// All nodes of files that a device holds, reached or not.
fn all_nodes(device: &MemoryDevice) -> Vec<u64> {
    let is_node = |block: &u64| {
        let bytes = bytes_at(device, *block);
        bytes.starts_with(b"hfNd") && bytes[5] == 1
    };
    (0..device.len() / BLOCK_BYTES).filter(is_node).collect()
}

/// Nodes that are younger than the parent says, or of another volume, or that are not at their place, count for nothing.
#[test]
fn forged_nodes_count_for_nothing() {
    let old = Old::new(13, 24, 6, None);
    let reached = Reached::of(&old.image);
    let reading = VolumeReading::open(&old.image, false).expect("there is a volume");
    let nodes = reading.superblock().nodes();
    let newest = reading.superblock().epoch;
    let free: Vec<u64> = { all_nodes(&old.image).into_iter() }
        .filter(|block| !reached.nodes.contains_key(block))
        .collect();
    for (block, place) in reached.nodes.iter().filter(|(_, place)| place.level == 0) {
        let plain = old.image.snapshot();
        rot(&plain, *block);
        // The node as it is, with other values, in place of old ones.
        let device = plain.snapshot();
        let mut bytes = bytes_at(&old.image, *block);
        let view = NodeView::trusted(&bytes);
        let inodes = (0..view.count()).filter(|at| view.key(*at).kind == ItemKind::Inode);
        let items: Vec<Vec<u8>> =
            inodes.map(|at| [&view.key(at).encode()[..], view.value(at)].concat()).collect();
        for item in &items {
            let at = bytes.windows(item.len()).position(|part| part == item);
            // Its owner.
            bytes[at.expect("it is there") + Key::SIZE + 4] ^= 1;
        }
        let pick = |which: usize| free.get(which).copied().expect("old nodes are there");
        let kinds: [(u64, Epoch, [u8; 8]); 3] = [
            (pick(0), Epoch(place.pointer.epoch.0 + 1), nodes.tag),
            (pick(1), Epoch(newest.0 + 5), nodes.tag),
            (pick(2), place.pointer.epoch, *b"another!"),
        ];
        let wiped = plain.snapshot();
        for (at, epoch, tag) in kinds {
            let mut forged = bytes;
            forged[node::ADDRESS_AT..node::ADDRESS_AT + 8].copy_from_slice(&at.to_le_bytes());
            forged[node::EPOCH_AT..node::EPOCH_AT + 8].copy_from_slice(&epoch.0.to_le_bytes());
            forged[32..40].copy_from_slice(&tag);
            node::seal(&mut forged);
            let volume = holdfast_format::node::OfVolume { tag, ..nodes };
            let pointer = NodePointer { block: BlockNo(at), epoch };
            let expected = Expected { pointer, tree: TreeId::Files, level: 0, volume };
            NodeView::open(&forged, &expected).expect("a forged node is sound");
            device.write(at * BLOCK_BYTES, &forged).expect("memory takes it");
            wiped.write(at * BLOCK_BYTES, &[0; BLOCK_SIZE]).expect("memory takes it");
        }
        let when = format!("block {block}");
        let says = |device: MemoryDevice| repaired(device, &when).plan.repairs;
        assert_eq!(says(device), says(wiped), "{when}");
    }
}

/// Names whose leaf is lost come back to where they were, from an older version of it, and nothing is lost by that.
#[test]
fn names_come_back() {
    let device = Arc::new(MemoryDevice::new(24 << 20));
    let target: Arc<dyn Device> = device.clone();
    CreateOptions::new().node_size(4096).format(&target).expect("it is large enough");
    let volume = opened(&device);
    volume.create_dir("/d").expect("there is room");
    for number in 0..120 {
        let path = format!("/d/a-file-with-a-longer-name-{number}");
        volume.write(&path, format!("content {number}")).expect("there is room");
    }
    volume.close().expect("memory takes it");
    let before = Reached::of(&device);
    // One file changes, and with it its own leaf and the way to it; another name comes.
    let volume = opened(&device);
    volume.write("/d/one-more", b"new").expect("there is room");
    volume.close().expect("memory takes it");
    let now = Reached::of(&device);
    let is_of_names = |block: &u64| {
        let bytes = bytes_at(&device, *block);
        let view = NodeView::trusted(&bytes);
        let names = (0..view.count()).filter(|at| view.key(*at).kind == ItemKind::Dentry);
        view.level() == 0 && names.count() > 10
    };
    let leaf = { now.nodes.keys() }
        .find(|block| !before.nodes.contains_key(block) && is_of_names(block))
        .expect("a leaf of names was written anew");
    rot(&device, *leaf);
    let done = repaired(device.snapshot(), "names");
    let back = { done.plan.repairs.iter() }
        .filter(|it| it.what.contains("comes back from a version of epoch") && !it.loses)
        .count();
    assert!(back > 3, "{:#?}", done.plan.repairs);
    for number in 0..120 {
        let path = format!("/d/a-file-with-a-longer-name-{number}");
        let there = done.found.get(&path).unwrap_or_else(|| panic!("{path} is gone"));
        let content = there.content.as_ref().expect("it reads");
        assert_eq!(content.as_deref(), Some(format!("content {number}").as_bytes()));
    }
    let mut buffer = Vec::new();
    let reading = VolumeReading::open(&*done.device, false).expect("there is a volume");
    for place in Reached::of(&done.device).nodes.values() {
        let view = reading.node(TreeId::Files, place, None, &mut buffer).expect("it is sound");
        let inodes = (0..view.count()).filter(|at| view.key(*at).kind == ItemKind::Inode);
        let sound = { inodes }.filter(|_| place.level == 0);
        sound.for_each(|at| assert!(InodeItem::decode(view.value(at)).is_ok()));
    }
}

/// Power fails at each write of a repair that takes what is old: the volume is as it was or as it is repaired, a second repair brings back the
/// same, and an undo each byte.
#[test]
fn a_cut_leaves_what_was_found_where_it_was() {
    let old = Old::new(14, 8, 5, None);
    let reached = Reached::of(&old.image);
    let inner = reached.nodes.iter().filter(|(_, place)| place.level > 0).map(|(block, _)| *block);
    let leaves = reached.nodes.iter().filter(|(_, place)| place.level == 0);
    let leaves = leaves.map(|(block, _)| *block).step_by(reached.nodes.len() / 3);
    let mut older = 0;
    for block in inner.take(1).chain(leaves) {
        let image = old.image.snapshot();
        rot(&image, block);
        let when = format!("block {block}");
        let whole = repaired(image.snapshot(), &when);
        older += whole.plan.repairs.iter().filter(|it| it.what.contains("epoch")).count();
        let mut kept = Vec::new();
        whole.plan.keep(&image, &mut kept).expect("memory takes it");
        let device = SimDevice::new(&image);
        whole.plan.write(&device).expect("memory takes it");
        let recording = device.recording();
        let mut cut = recording.start();
        for index in 0..=recording.events.len() {
            for left in cut.images(&Policy::default()) {
                let left = left.device();
                let when = format!("{when}, call {index}");
                let undo = Undo::open(Cursor::new(kept.clone())).expect("it is whole");
                let undone = left.snapshot();
                undo.write(&undone).unwrap_or_else(|why| panic!("{when}: {why}"));
                assert!(undone.to_image() == image.to_image(), "{when}: undone");
                if is_repaired(&found(&left)) {
                    continue;
                }
                let again = repaired(left, &when);
                let paths = |of: &Outcome| of.found.keys().cloned().collect::<Vec<_>>();
                assert_eq!(paths(&again), paths(&whole), "{when}");
                again.right(&old, &when);
            }
            if let Some(event) = recording.events.get(index) {
                cut.advance(event);
            }
        }
    }
    assert!(older > 0, "nothing old was found");
}
