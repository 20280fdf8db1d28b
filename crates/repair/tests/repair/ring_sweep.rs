//! Each frame of the journal and each batch of the log of a crashed volume is hit once: behind a repair, and in what a salvage copies, each file is
//! as it was at one moment; what is lost is said; and files that were made behind the hole are there.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use holdfast::{CreateOptions, Volume, VolumeOptions};
use holdfast_base::units::BLOCK_BYTES;
use holdfast_check::reading::VolumeReading;
use holdfast_check::{Issue, Severity};
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::journal::FrameHeader;
use holdfast_format::log::LogHeader;
use holdfast_repair::{RepairError, RepairOptions, is_repaired};
use holdfast_salvage::{Choice, CopyOptions, Scan, Tolerant};

use crate::every_finding::{Healing, LOSS, found, planned};
use crate::salvaged::{Made, Memory};

/// A path of a branch.
type At = (&'static str, String);

/// A crashed volume, and all that it ever was.
struct World {
    device: Arc<MemoryDevice>,
    trees: Vec<(&'static str, Volume)>,
    /// Each content that a path had.
    versions: BTreeMap<At, BTreeSet<Vec<u8>>>,
    /// What paths hold in the end, and the last batch before each was touched first, and the last one that touched it.
    last: BTreeMap<At, (Vec<u8>, u64, u64)>,
    /// The last batch before each commit, by its number.
    commits: BTreeMap<u64, u64>,
}

impl World {
    fn volume(&self, tree: &str) -> &Volume {
        &self.trees.iter().find(|(name, _)| *name == tree).expect("it is open").1
    }

    fn note(&mut self, tree: &'static str, path: &str, content: Vec<u8>) {
        let versions = self.versions.entry((tree, path.into())).or_default();
        // It is made, or cut, before it is written.
        versions.extend([Vec::new(), content]);
    }

    /// Writes a file, which is durable when this returns.
    fn write(&mut self, tree: &'static str, path: &str, content: &[u8]) {
        let before = last_batch(&self.device);
        self.volume(tree).write(path, content).expect("there is room");
        self.note(tree, path, content.to_vec());
        self.sync(tree, path, before, content);
    }

    fn sync(&mut self, tree: &'static str, path: &str, before: u64, content: &[u8]) {
        let file = self.volume(tree).open_file(path).expect("it is there");
        file.sync_all().expect("memory takes it");
        let at = (tree, path.to_string());
        let first = self.last.get(&at).map_or(before, |(_, first, _)| *first);
        self.last.insert(at, (content.to_vec(), first, last_batch(&self.device)));
    }

    fn commit(&mut self) {
        let batch = last_batch(&self.device);
        self.volume("main").commit().expect("memory takes it");
        let last = frames(&self.device).into_values().map(|(_, of)| of.commit).max();
        self.commits.insert(last.expect("there is one"), batch);
    }

    /// Some work of each kind.
    fn round(&mut self, round: u64) {
        let text = |what: &str| format!("{what} of round {round} ").repeat(20).into_bytes();
        self.write("main", &format!("/dir/new-{round}"), &text("new"));
        self.write("work", &format!("/dir/new-{round}"), &text("new in work"));
        self.write("main", "/dir/one", &text("one"));
        self.write("work", "/dir/two", &text("two"));
        let dir = format!("/made-{round}");
        self.volume("main").create_dir(&dir).expect("there is room");
        self.write("main", &format!("{dir}/large"), &text("large").repeat(200));
        self.write("main", &format!("{dir}/small"), b"small");
        let before = last_batch(&self.device);
        let volume = self.volume("main");
        volume.write("/dir/fresh", text("config")).expect("there is room");
        volume.open_file("/dir/fresh").and_then(|of| of.sync_all()).expect("memory takes it");
        volume.rename("/dir/fresh", "/dir/config").expect("it is there");
        self.note("main", "/dir/fresh", text("config"));
        self.note("main", "/dir/config", text("config"));
        self.sync("main", "/dir/config", before, &text("config"));
        self.write("work", &format!("/dir/more-{round}"), &text("more").repeat(30));
    }

    fn new() -> World {
        let device = Arc::new(MemoryDevice::new(24 << 20));
        let target: Arc<dyn Device> = device.clone();
        CreateOptions::new().node_size(4096).format(&target).expect("it is large enough");
        let volume = VolumeOptions::new().commit_secs(0).open_device(target).expect("it was made");
        volume.create_dir("/dir").expect("there is room");
        for name in ["/dir/one", "/dir/two", "/dir/config"] {
            volume.write(name, name).expect("there is room");
        }
        let monday = volume.branch_here().and_then(|main| main.snapshot("monday"));
        let work = monday.and_then(|monday| monday.fork("work")).expect("there is room");
        let work = work.open().expect("it is there");
        volume.commit().expect("memory takes it");
        let (versions, last, commits) = Default::default();
        let trees = vec![("main", volume), ("work", work)];
        let mut world = World { device, trees, versions, last, commits };
        for tree in ["main", "work"] {
            for name in ["/dir/one", "/dir/two", "/dir/config"] {
                world.note(tree, name, name.into());
            }
        }
        for round in 0..6 {
            world.round(round);
            if round == 1 || round == 2 {
                // Not every operation is in the log.
                let path = format!("/dir/unlogged-{round}");
                world.volume("main").write(&path, "unlogged").expect("there is room");
                world.note("main", &path, b"unlogged".into());
                world.commit();
            }
        }
        world
    }

    /// Whether all that ever was of a file lies between these batches; the second one is not among them.
    fn is_between(&self, at: &At, from: u64, to: u64) -> bool {
        let (_, first, last) = &self.last[at];
        *first >= from && *last < to
    }
}

/// Where each valid batch lies, by its number.
fn batches(device: &MemoryDevice) -> BTreeMap<u64, (u64, LogHeader)> {
    let reading = VolumeReading::open(device, false).expect("there is a volume");
    let (zone, tag) = (reading.superblock().geometry.log(), reading.superblock().ring_tag);
    let mut ring = vec![0; (zone.count * BLOCK_BYTES) as usize];
    let start = zone.start.0 * BLOCK_BYTES;
    device.read(start, &mut ring).expect("memory reads");
    let headers = (start..).step_by(512).zip(ring.chunks(512));
    let headers = headers.filter_map(|(at, bytes)| Some((at, LogHeader::decode(bytes).ok()?)));
    let own = headers.filter(|(_, header)| header.volume == tag && header.records > 0);
    own.map(|(at, header)| (header.number, (at, header))).collect()
}

/// Where each frame of a commit lies.
fn frames(device: &MemoryDevice) -> BTreeMap<u64, (u64, FrameHeader)> {
    let reading = VolumeReading::open(device, false).expect("there is a volume");
    let (zone, tag) = (reading.superblock().geometry.journal(), reading.superblock().ring_tag);
    let mut found = BTreeMap::new();
    for block in zone.start.0..zone.start.0 + zone.count {
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        device.read(block * BLOCK_BYTES, &mut bytes).expect("memory reads");
        if let Ok(header) = FrameHeader::decode(&bytes)
            && header.volume == tag
            && header.len > 0
        {
            found.insert(block, (block * BLOCK_BYTES, header));
        }
    }
    found
}

fn last_batch(device: &MemoryDevice) -> u64 {
    batches(device).into_keys().max().unwrap_or(0)
}

/// The volume with a byte changed.
fn hit(device: &MemoryDevice, at: u64) -> MemoryDevice {
    let device = device.snapshot();
    let (block, within) = (at / BLOCK_BYTES * BLOCK_BYTES, (at % BLOCK_BYTES) as usize);
    let mut bytes = vec![0; BLOCK_BYTES as usize];
    device.read(block, &mut bytes).expect("memory reads");
    bytes[within] ^= 0x40;
    device.write(block, &bytes).expect("memory takes it");
    device
}

/// All files of a tree, with their content.
fn files(volume: &Volume) -> BTreeMap<String, io::Result<Vec<u8>>> {
    let (mut files, mut pending) = (BTreeMap::new(), vec![PathBuf::from("/")]);
    while let Some(dir) = pending.pop() {
        for entry in volume.read_dir(&dir).expect("it reads") {
            let path = dir.join(entry.expect("it reads").file_name());
            match volume.symlink_metadata(&path).expect("it is there").is_dir() {
                true => pending.push(path),
                false => drop(files.insert(path.display().to_string(), volume.read(&path))),
            }
        }
    }
    files
}

/// What came of a tree by a repair or a salvage.
type Came = BTreeMap<String, io::Result<Vec<u8>>>;

/// Each file was so at one moment.
fn judge(world: &World, tree: &'static str, came: &Came, when: &str) {
    for (path, content) in came {
        let content = content.as_ref().unwrap_or_else(|error| panic!("{when}: {path}: {error}"));
        let versions = world.versions.get(&(tree, path.clone()));
        let of_any = || world.versions.values().any(|of| of.contains(content));
        let was_so = match path.starts_with("/lost+found/") {
            true => of_any(),
            false => versions.is_some_and(|of| of.contains(content)),
        };
        assert!(was_so, "{when}: {tree}:{path} never was so");
    }
}

/// A volume of which something was hit.
struct Hit<'h> {
    device: &'h dyn Device,
    /// What is written of it.
    written: &'h MemoryDevice,
    /// Batches from the first up to the second: what lies in one of these with all of its history is there.
    ranges: Vec<(u64, u64)>,
    /// The batches that are lost, from the first to the last.
    lost: (u64, u64),
    when: String,
}

/// Files that were made in one of these ranges are there, and what is not as it was is said.
fn expect(world: &World, tree: &'static str, came: &Came, hit: &Hit<'_>, said: &str) -> usize {
    let (mut back, when) = (0, &hit.when);
    for (at, (content, _, last)) in world.last.iter().filter(|(at, _)| at.0 == tree) {
        let is_there = came.get(&at.1).is_some_and(|of| of.as_ref().is_ok_and(|of| of == content));
        let is_between = |range: &(u64, u64)| world.is_between(at, range.0, range.1);
        // Its directory may be older than what is known.
        let name = at.1.rsplit('/').next().unwrap_or_default();
        let nameless = came.iter().filter(|(path, _)| path.starts_with("/lost+found/"));
        let mut below = nameless.filter(|(path, _)| path.ends_with(&format!("/{name}")));
        let is_below = below.any(|(_, of)| of.as_ref().is_ok_and(|of| of == content));
        if hit.ranges.iter().any(is_between) && !at.1.contains("config") {
            assert!(is_there || is_below, "{when}: {at:?} was made behind it; {said}");
            back += 1;
        }
        let is_said = said.contains(&at.1) || said.contains(&format!("?/{name} "));
        // Of what the lost batch alone named, nothing is known.
        let is_said = is_said || (hit.lost.0..=hit.lost.1).contains(last);
        assert!(is_there || is_below || is_said, "{when}: {at:?} is lost and not named: {said}");
    }
    back
}

/// Repairs, and judges what is there then; salvages, and judges that. Returns how many files came back.
fn mended(world: &World, hit: &Hit<'_>) -> usize {
    let Hit { device, written, when, .. } = hit;
    let tolerant = Tolerant::new(*device);
    let salvaged = Scan::read(&tolerant, &|_| ()).open(&tolerant, &Choice::default());
    let salvaged = salvaged.expect("there is a volume");
    let notes = salvaged.notes.join("\n");
    for tree in ["main", "work"] {
        let mut memory = Memory::default();
        let of = salvaged.tree(tree).expect("it is there");
        salvaged.copy(of, &mut memory, &CopyOptions::default()).expect("memory takes it");
        let content = |made| if let Made::File(content) = made { Some(Ok(content)) } else { None };
        let made = memory.made.into_iter();
        let came: Came = made.filter_map(|(path, made)| Some((path, content(made)?))).collect();
        judge(world, tree, &came, when);
        expect(world, tree, &came, hit, &notes);
    }
    let careful = RepairOptions { accept_loss: false, ..LOSS };
    let Err(RepairError::Refused(why)) = planned(*device, &careful) else {
        panic!("{when}: something durable is lost");
    };
    assert!(why.contains("holdfast salvage"), "{when}: {why}");
    let plan = planned(*device, &LOSS).unwrap_or_else(|error| panic!("{when}: {error}"));
    let losses = plan.repairs.iter().filter(|it| it.loses);
    let said: Vec<String> = losses.map(ToString::to_string).collect();
    plan.write(*device).expect("memory takes it");
    let after = found(*device);
    assert!(is_repaired(&after), "{when}: {:?}", after.findings);
    let is_rotten = |issue: Issue| issue.number() / 100 == 7;
    let rotten = after.findings.iter().filter(|it| it.severity > Severity::Note);
    assert_eq!(rotten.filter(|it| is_rotten(it.issue())).count(), 0, "{when}");
    let mut back = 0;
    for tree in ["main", "work"] {
        let device: Arc<dyn Device> = Arc::new(written.snapshot());
        let volume = VolumeOptions::new().branch(tree).open_device(device).expect("it is repaired");
        let came = files(&volume);
        judge(world, tree, &came, when);
        back += expect(world, tree, &came, hit, &said.join("\n"));
    }
    back
}

/// The volume with a byte changed; and with the block of that byte, which does not read until it is written.
fn damaged(sound: &MemoryDevice, at: u64) -> (MemoryDevice, Healing) {
    let unreadable = Healing::with(Arc::new(sound.snapshot()), vec![at / BLOCK_BYTES]);
    (hit(sound, at), unreadable)
}

#[test]
fn each_batch_is_hit_once() {
    let world = World::new();
    let sound = world.device.snapshot();
    let dead = world.commits.values().max().copied().unwrap_or(0);
    let (last, all) = (last_batch(&sound), batches(&sound));
    let (mut hits, mut back) = (0, 0);
    for (number, (at, header)) in &all {
        let middle = at + LogHeader::SIZE as u64 + u64::from(header.len) / 2;
        let (device, unreadable) = damaged(&sound, middle);
        // Nothing says that the last one was durable; and what a commit holds needs no batch.
        if *number <= dead || *number == last {
            assert!(is_repaired(&found(&device)), "batch {number}");
            continue;
        }
        let hit = Hit {
            device: &device,
            written: &device,
            ranges: vec![(number + 1, u64::MAX)],
            lost: (*number, *number),
            when: format!("batch {number}"),
        };
        (hits, back) = (hits + 1, back + mended(&world, &hit));
        let block = middle / BLOCK_BYTES * BLOCK_BYTES;
        let meets = |(at, of): &(u64, LogHeader)| {
            *at < block + BLOCK_BYTES && at + u64::from(of.bytes) > block
        };
        let met: Vec<u64> = all.iter().filter(|(_, of)| meets(of)).map(|(at, _)| *at).collect();
        let lost = (met[0], met[met.len() - 1]);
        if number % 3 == 0 && lost.0 > dead && lost.1 < last {
            let (device, written) = (&unreadable, unreadable.written());
            let (ranges, when) = (vec![(lost.1 + 1, u64::MAX)], format!("block of batch {number}"));
            back += mended(&world, &Hit { device, written, ranges, lost, when });
        }
    }
    assert!(hits > 15 && back > 3 * hits, "{hits} hits, {back} files");
}

#[test]
fn each_frame_is_hit_once() {
    let world = World::new();
    let sound = world.device.snapshot();
    let (mut hits, mut back) = (0, 0);
    for (block, (at, header)) in frames(&sound) {
        let middle = at + FrameHeader::SIZE as u64 + u64::from(header.len) / 2;
        let (device, unreadable) = damaged(&sound, middle);
        // A commit that a checkpoint holds is needed no more.
        if is_repaired(&found(&device)) {
            continue;
        }
        // The log goes on up to the lost commit; behind it, and each later one, chains begin.
        let mut begin = world.commits.range(header.commit..).map(|(_, batch)| *batch).peekable();
        let mut ranges = vec![(0, begin.peek().map_or(0, |batch| batch + 1))];
        while let Some(batch) = begin.next() {
            ranges.push((batch + 1, begin.peek().map_or(u64::MAX, |next| next + 1)));
        }
        let (lost, when) = ((0, 0), format!("commit {}, block {block}", header.commit));
        let (of, when_unread) = (ranges.clone(), format!("{when}, which does not read"));
        let hit = Hit { device: &device, written: &device, ranges, lost, when };
        (hits, back) = (hits + 1, back + mended(&world, &hit));
        let (device, written) = (&unreadable, unreadable.written());
        back += mended(&world, &Hit { device, written, ranges: of, lost, when: when_unread });
    }
    assert!(hits > 1 && back > 3 * hits, "{hits} hits, {back} files");
}
