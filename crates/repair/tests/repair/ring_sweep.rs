//! Each frame of the journal and each batch of the log of a crashed volume is hit once: behind a repair, and in what a salvage copies, each file is
//! as it was at one moment; what is lost is said; and files that were made behind the hole are there.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use holdfast::{CreateOptions, OpenOptions, Volume, VolumeOptions};
use holdfast_base::units::BLOCK_BYTES;
use holdfast_check::reading::VolumeReading;
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::journal::FrameHeader;
use holdfast_format::log::LogHeader;
use holdfast_repair::{RepairError, RepairOptions, is_repaired};
use holdfast_salvage::{Choice, CopyOptions, Scan, Tolerant};

use crate::every_finding::{Healing, LOSS, found, planned};
use crate::lost_seal::{Held, Hold};
use crate::salvaged::{Made, Memory};

/// A path of a branch.
type At = (&'static str, String);

/// What changes the lineage in the midst of it all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seal {
    RollBack,
    Promotion,
    Snapshot,
}

/// A crashed volume, and all that it ever was.
struct World {
    device: Arc<MemoryDevice>,
    /// Of frames and batches.
    places: u64,
    trees: Vec<(&'static str, Volume)>,
    /// Each content that a path had.
    versions: BTreeMap<At, BTreeSet<Vec<u8>>>,
    /// What paths hold in the end, and the last batch before each was touched first, and the last one that touched it.
    last: BTreeMap<At, (Vec<u8>, u64, u64)>,
    /// Paths that are not as that, as `main` has become another tree since.
    turned: BTreeSet<At>,
    /// The last batch before each commit, by its number.
    commits: BTreeMap<u64, u64>,
    /// The number that the change of the lineage left out.
    sealed: u64,
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
        self.turned.remove(&at);
        self.last.insert(at, (content.to_vec(), first, last_batch(&self.device)));
    }

    /// Appends a little, which lies in the log over what was there.
    fn append(&mut self, tree: &'static str, path: &str, more: &[u8]) {
        let before = last_batch(&self.device);
        let volume = self.volume(tree);
        let mut content = volume.read(path).expect("it reads");
        let mut file =
            volume.open_with(path, &OpenOptions::new().append(true)).expect("it is there");
        file.write_all(more).expect("there is room");
        content.extend(more);
        self.note(tree, path, content.clone());
        self.sync(tree, path, before, &content);
    }

    fn commit(&mut self) {
        let batch = last_batch(&self.device);
        self.volume("main").commit().expect("memory takes it");
        self.commits.insert(self.last_commit(), batch);
    }

    fn last_commit(&self) -> u64 {
        let last = frames(&self.device).into_values().map(|(_, of)| of.commit).max();
        last.expect("there is one")
    }

    /// Some work of each kind.
    fn round(&mut self, round: u64) {
        let text = |what: &str| format!("{what} of round {round} ").repeat(20).into_bytes();
        self.write("main", &format!("/dir/new-{round}"), &text("new"));
        self.write("work", &format!("/dir/new-{round}"), &text("new in work"));
        self.write("main", "/dir/one", &text("one"));
        self.append("main", "/dir/log", &text("log"));
        self.write("work", "/dir/two", &text("two"));
        let dir = format!("/made-{round}");
        self.volume("main").create_dir(&dir).expect("there is room");
        self.write("main", &format!("{dir}/large"), &text("large").repeat(200));
        self.write("main", &format!("{dir}/small"), b"small");
        self.append("main", &format!("{dir}/small"), b", and larger");
        let before = last_batch(&self.device);
        let volume = self.volume("main");
        volume.write("/dir/fresh", text("config")).expect("there is room");
        volume.open_file("/dir/fresh").and_then(|of| of.sync_all()).expect("memory takes it");
        volume.rename("/dir/fresh", "/dir/config").expect("it is there");
        self.note("main", "/dir/fresh", text("config"));
        self.note("main", "/dir/config", text("config"));
        self.sync("main", "/dir/config", before, &text("config"));
        self.write("work", &format!("/dir/more-{round}"), &text("more").repeat(30));
        self.append("work", &format!("/dir/more-{round}"), &text("and more"));
    }

    /// Two rounds of work before the change of the lineage, and two behind it; with `has_commit` another commit comes before it. No
    /// superblock has what it seals.
    fn new(seal: Seal, copies: u8, has_commit: bool) -> World {
        let device = Arc::new(MemoryDevice::new(24 << 20));
        let target: Arc<dyn Device> = device.clone();
        let options = CreateOptions::new().node_size(4096).ring_copies(copies);
        options.format(&target).expect("it is large enough");
        let volume = VolumeOptions::new().commit_secs(0).open_device(target).expect("it was made");
        volume.create_dir("/dir").expect("there is room");
        for name in BEGINNING {
            volume.write(name, name).expect("there is room");
        }
        let main = volume.branch_here().expect("it is open");
        let monday = main.snapshot("monday").expect("there is room");
        for fork in ["work", "attempt"] {
            monday.fork(fork).expect("there is room");
        }
        // What is promoted has a file that was changed, and one that was made.
        let attempt = volume.branch("attempt").and_then(|of| of.open()).expect("it is there");
        for name in ATTEMPT {
            attempt.write(name, "tried").expect("there is room");
        }
        attempt.close().expect("memory takes it");
        volume.close().expect("memory takes it");
        let held = Held::over(device.clone());
        let volume = VolumeOptions::new().commit_secs(0);
        let volume = volume.open_device(held.clone()).expect("it was closed");
        let work = volume.branch("work").and_then(|of| of.open()).expect("it is there");
        let mut world = World {
            device,
            places: u64::from(copies),
            trees: vec![("main", volume), ("work", work)],
            versions: BTreeMap::new(),
            last: BTreeMap::new(),
            turned: BTreeSet::new(),
            commits: BTreeMap::new(),
            sealed: 0,
        };
        for tree in ["main", "work"] {
            for name in BEGINNING {
                world.note(tree, name, name.into());
            }
        }
        for name in ATTEMPT {
            world.note("main", name, b"tried".into());
        }
        let _hold = Hold::of(&held);
        for round in 0..2 {
            world.round(round);
            if has_commit && round == 0 {
                // Not every operation is in the log.
                world.volume("main").write("/dir/unlogged", "unlogged").expect("there is room");
                world.note("main", "/dir/unlogged", b"unlogged".into());
                world.commit();
            }
        }
        world.seal(seal);
        for round in 2..4 {
            world.round(round);
        }
        world.device = Arc::new(world.device.snapshot());
        world
    }

    fn seal(&mut self, seal: Seal) {
        let before = last_batch(&self.device);
        let volume = self.volume("main");
        let main = volume.branch("main").expect("it is open");
        match seal {
            Seal::RollBack => {
                let monday = main.snapshot_named("monday").expect("it is there");
                main.rollback_to(&monday, Some("was")).expect("it is possible");
            }
            Seal::Promotion => {
                let attempt = volume.branch("attempt").expect("it is there");
                main.replace_by(attempt, Some("was")).expect("it is possible");
            }
            Seal::Snapshot => drop(main.snapshot("tuesday").expect("there is room")),
        }
        if seal != Seal::Snapshot {
            self.turned = self.last.keys().filter(|at| at.0 == "main").cloned().collect();
        }
        self.sealed = before + 1;
        self.commits.insert(self.last_commit(), before);
    }

    /// Whether all that ever was of a file lies between these batches; the second one is not among them.
    fn is_between(&self, at: &At, from: u64, to: u64) -> bool {
        let (_, first, last) = &self.last[at];
        *first >= from && *last < to
    }

    /// From which batches on, up to which others, files come back if these are lost: what follows a change of the lineage is known
    /// only if the batch before it is.
    fn ranges_behind(&self, lost: u64) -> Vec<(u64, u64)> {
        match self.sealed {
            sealed if lost > sealed => vec![(lost + 1, u64::MAX)],
            sealed if lost + 1 == sealed => vec![(sealed + 1, u64::MAX)],
            sealed => vec![(lost + 1, sealed), (sealed - 1, u64::MAX)],
        }
    }
}

const ATTEMPT: [&str; 2] = ["/dir/one", "/dir/tried"];
const BEGINNING: [&str; 4] = ["/dir/one", "/dir/two", "/dir/config", "/dir/log"];

/// Where each valid batch lies, by its number.
pub(crate) fn batches(device: &MemoryDevice) -> BTreeMap<u64, (u64, LogHeader)> {
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
pub(crate) fn frames(device: &MemoryDevice) -> BTreeMap<u64, (u64, FrameHeader)> {
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

pub(crate) fn last_batch(device: &MemoryDevice) -> u64 {
    batches(device).into_keys().max().unwrap_or(0)
}

/// The volume with a byte changed, in each place.
fn hit(world: &World, at: u64, device: &MemoryDevice) -> MemoryDevice {
    let device = device.snapshot();
    for at in places(world, at) {
        let (block, within) = (at / BLOCK_BYTES * BLOCK_BYTES, (at % BLOCK_BYTES) as usize);
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        device.read(block, &mut bytes).expect("memory reads");
        bytes[within] ^= 0x40;
        device.write(block, &bytes).expect("memory takes it");
    }
    device
}

/// The byte of a ring in each of its places.
fn places(world: &World, at: u64) -> impl Iterator<Item = u64> {
    let reading = VolumeReading::open(&*world.device, false).expect("there is a volume");
    let distance = reading.superblock().geometry.ring_distance * BLOCK_BYTES;
    (0..world.places).map(move |place| at + place * distance)
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
        // Data that was written over reads as an error, and is said.
        let Ok(content) = content else { continue };
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
    for (at, (content, first, last)) in world.last.iter().filter(|(at, _)| at.0 == tree) {
        let is_there = came.get(&at.1).is_some_and(|of| of.as_ref().is_ok_and(|of| of == content));
        let is_between = |range: &(u64, u64)| world.is_between(at, range.0, range.1);
        // Its directory may be older than what is known.
        let name = at.1.rsplit('/').next().unwrap_or_default();
        let nameless = came.iter().filter(|(path, _)| path.starts_with("/lost+found/"));
        let mut below = nameless.filter(|(path, _)| path.ends_with(&format!("/{name}")));
        let is_below = below.any(|(_, of)| of.as_ref().is_ok_and(|of| of == content));
        let is_turned = at.1.contains("config") || world.turned.contains(at);
        if hit.ranges.iter().any(is_between) && !is_turned {
            assert!(is_there || is_below, "{when}: {at:?} was made behind it; {said}");
            back += 1;
        }
        let is_said = said.contains(&at.1) || said.contains(&format!("?/{name} "));
        // Of what the lost batch alone named, nothing is known.
        let is_said = is_said || (hit.lost.0..=hit.lost.1).contains(last);
        let is_said = is_said || world.turned.contains(at);
        // Nor of a name that it alone had.
        let is_said = is_said || (hit.lost.0..=hit.lost.1).contains(&(first + 1));
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
    assert!(!notes.is_empty(), "{when}: {:?}", found(*device).findings);
    for tree in ["main", "work"] {
        let mut memory = Memory::default();
        let of = salvaged.tree(tree).expect("it is there");
        salvaged.copy(of, &mut memory, &CopyOptions::default()).expect("memory takes it");
        let bad = memory.found.iter().filter(|found| !found.holes.is_empty());
        let bad: Vec<_> = bad.map(|found| String::from_utf8_lossy(&found.path)).collect();
        let content = |path: &str, made| match made {
            Made::File(_) if bad.iter().any(|bad| path.ends_with(&**bad)) => {
                Some(Err(io::ErrorKind::InvalidData.into()))
            }
            Made::File(content) => Some(Ok(content)),
            _ => None,
        };
        let made = memory.made.into_iter();
        let made = made.filter_map(|(path, made)| content(&path, made).map(|made| (path, made)));
        let came: Came = made.collect();
        judge(world, tree, &came, when);
        expect(world, tree, &came, hit, &format!("{notes}\n{}", bad.join("\n")));
    }
    let careful = RepairOptions { accept_loss: false, ..LOSS };
    let Err(RepairError::Refused(why)) = planned(*device, &careful) else {
        panic!("{when}: something durable is lost");
    };
    assert!(why.contains("holdfast salvage"), "{when}: {why}");
    let plan = planned(*device, &LOSS).unwrap_or_else(|error| panic!("{when}: {error}"));
    let losses = plan.repairs.iter().filter(|it| it.loses);
    let mut said: Vec<String> = losses.map(ToString::to_string).collect();
    plan.write(*device).expect("memory takes it");
    let after = found(*device);
    assert!(is_repaired(&after), "{when}: {:?}", after.findings);
    said.extend(after.findings.iter().map(|it| format!("{it} {:?}", it.path)));
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

/// A volume with a block in each place that does not read until it is written.
fn unreadable(world: &World, at: u64) -> Healing {
    let blocks = places(world, at).map(|at| at / BLOCK_BYTES).collect();
    Healing::with(Arc::new(world.device.snapshot()), blocks)
}

fn worlds() -> impl Iterator<Item = (World, String)> {
    let kinds = [
        (Seal::RollBack, 1, true),
        (Seal::Promotion, 1, false),
        (Seal::Snapshot, 1, true),
        (Seal::RollBack, 2, false),
        (Seal::Promotion, 2, true),
        (Seal::Snapshot, 2, false),
    ];
    kinds.into_iter().map(|(seal, copies, has_commit)| {
        let when = format!("{seal:?}, {copies} copies, another commit: {has_commit}");
        (World::new(seal, copies, has_commit), when)
    })
}

pub(crate) fn middle_of_batch((at, header): &(u64, LogHeader)) -> u64 {
    at + LogHeader::SIZE as u64 + u64::from(header.len) / 2
}

#[test]
fn each_batch_is_hit_once() {
    let (mut hits, mut back) = (0, 0);
    for (world, when) in worlds() {
        let sound = &*world.device;
        let (last, all) = (last_batch(sound), batches(sound));
        for (number, place) in &all {
            let middle = middle_of_batch(place);
            let device = hit(&world, middle, sound);
            let when = format!("{when}: batch {number}");
            // Nothing says that the last one was durable; and what a commit holds needs no batch.
            if *number < world.sealed || *number == last {
                assert!(is_repaired(&found(&device)), "{when}");
                continue;
            }
            let ranges = world.ranges_behind(*number);
            let lost = (*number, *number);
            let of = Hit { device: &device, written: &device, ranges, lost, when: when.clone() };
            (hits, back) = (hits + 1, back + mended(&world, &of));
            let block = middle / BLOCK_BYTES * BLOCK_BYTES;
            let meets = |(at, of): &(u64, LogHeader)| {
                *at < block + BLOCK_BYTES && at + u64::from(of.bytes) > block
            };
            let met: Vec<u64> = all.iter().filter(|(_, of)| meets(of)).map(|(at, _)| *at).collect();
            let lost = (met[0], met[met.len() - 1]);
            if number % 5 == 0 && lost.0 > world.sealed && lost.1 < last {
                let device = unreadable(&world, middle);
                let ranges = world.ranges_behind(lost.1);
                let (written, when) = (device.written(), format!("{when}, its block"));
                back += mended(&world, &Hit { device: &device, written, ranges, lost, when });
            }
        }
    }
    assert!(hits > 60 && back > 3 * hits, "{hits} hits, {back} files");
}

#[test]
fn each_frame_is_hit_once_alone_and_with_a_batch() {
    let (mut hits, mut back) = (0, 0);
    for (world, when) in worlds() {
        let all = batches(&world.device);
        for (block, (at, header)) in frames(&world.device) {
            let middle = at + FrameHeader::SIZE as u64 + u64::from(header.len) / 2;
            let device = hit(&world, middle, &world.device);
            let rotten = device.snapshot();
            // A commit that a checkpoint holds is needed no more.
            if is_repaired(&found(&device)) {
                continue;
            }
            // The log goes on up to the lost commit, if all operations are in it; behind it, and behind the change of the lineage, chains begin.
            let batch = world.commits[&header.commit];
            let is_sealing = batch + 1 == world.sealed;
            let behind = if is_sealing { vec![] } else { vec![(batch + 1, world.sealed)] };
            let ranges = [vec![(0, batch + 1), (world.sealed - 1, u64::MAX)], behind].concat();
            let when = format!("{when}: commit {}, block {block}", header.commit);
            let (lost, of, said) = ((0, 0), ranges.clone(), when.clone());
            let of = Hit { device: &device, written: &device, ranges: of, lost, when: said };
            (hits, back) = (hits + 1, back + mended(&world, &of));
            let unread = unreadable(&world, middle);
            let written = unread.written();
            let when_unread = format!("{when}, which does not read");
            let of_unread = Hit { device: &unread, written, ranges, lost, when: when_unread };
            back += mended(&world, &of_unread);
            for (number, place) in all.iter().filter(|(number, _)| **number > batch).step_by(4) {
                let device = hit(&world, middle_of_batch(place), &rotten);
                let ranges = world.ranges_behind(*number);
                let when = format!("{when}, and batch {number}");
                let lost = (*number, *number);
                let of = Hit { device: &device, written: &device, ranges, lost, when };
                (hits, back) = (hits + 1, back + mended(&world, &of));
            }
        }
    }
    assert!(hits > 12 && back > 3 * hits, "{hits} hits, {back} files");
}
