//! The second reader, `tools/readvolume.py`, which was written from docs/FORMAT.md alone and shares no code with the
//! filesystem: it must read every volume as the library does, and say what is damaged instead of showing it.
//!
//! Golden volumes, and what power cuts leave of random scripts: with commits in the journal and batches in the log that it
//! has to replay. A failure says which image it was.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use holdfast::{CreateOptions, Dir, FileType, Metadata, Volume, VolumeOptions};
use holdfast_base::prng::Prng;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, InodeNo, Timestamp};
use holdfast_device::sim::{self, SimDevice};
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::checksum::{crc64, crc64_with_hole};
use holdfast_format::item::InodeItem;
use holdfast_format::journal::FrameHeader;
use holdfast_format::journal::frame::{KIND_COMMIT, KIND_END};
use holdfast_format::superblock::VERSION;
use holdfast_format::{Geometry, Key};
use holdfast_script::{Profile, Script, Target, generate};
use holdfast_sim::{Engine, Setup};
use holdfast_store::{Branch, Need, OpenOptions, Store, Transaction};

use crate::golden_image;
use crate::seeds::seeds;

const SMALLEST: u64 = 8 << 20;

/// An image as a file, for the reader.
struct Image(tempfile::NamedTempFile);

impl Image {
    fn new(bytes: &[u8]) -> Image {
        let mut file = tempfile::NamedTempFile::new().expect("there is room for an image");
        file.write_all(bytes).expect("there is room for an image");
        Image(file)
    }

    /// What the reader says; `None` if there is no Python.
    fn read(&self, arguments: &[&str]) -> Option<Output> {
        let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/readvolume.py");
        let mut python = Command::new("python3");
        match python.arg("-BIS").arg(tool).arg(self.0.path()).args(arguments).output() {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(!said.contains("Traceback"), "{arguments:?}: {said}");
                Some(output)
            }
            Err(error) => {
                holdfast_base::skip::skipped(format_args!("python3: {error}"));
                None
            }
        }
    }

    /// What it says of a volume in which it finds nothing wrong.
    fn read_sound(&self, what: &str, arguments: &[&str]) -> Option<String> {
        let output = self.read(arguments)?;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{what}: {arguments:?}: {said}");
        Some(String::from_utf8(output.stdout).expect("it is text"))
    }

    /// What it says of a volume in which it must find something: its output and its findings.
    fn read_damaged(&self, arguments: &[&str]) -> Option<(Vec<u8>, String)> {
        let output = self.read(arguments)?;
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        Some((output.stdout, String::from_utf8(output.stderr).expect("it is text")))
    }
}

/// The letter of a type in a listing.
fn letter(file_type: FileType) -> char {
    match file_type {
        FileType::Regular => 'f',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::CharDevice => 'c',
        FileType::BlockDevice => 'b',
    }
}

fn mtime(metadata: &Metadata) -> i128 {
    match metadata.modified().duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_nanos() as i128,
        Err(before) => -(before.duration().as_nanos() as i128),
    }
}

/// The content of a regular file, the target of a link.
fn content(dir: &Dir, path: &Path, metadata: &Metadata) -> Option<Vec<u8>> {
    match metadata.file_type() {
        FileType::Regular => Some(dir.read(path).expect("it can be read")),
        FileType::Symlink => {
            let target = dir.read_link(path).expect("it has a target");
            Some(target.as_os_str().as_bytes().to_vec())
        }
        _ => None,
    }
}

/// The sum of all attributes: names and values, each behind its length.
fn attributes(dir: &Dir, path: &Path) -> String {
    let mut names = dir.xattrs(path).expect("it has a list");
    names.sort();
    let mut bytes = Vec::new();
    for name in &names {
        let value = dir.xattr(path, name.to_str().expect("it is text")).expect("it has a value");
        bytes.extend((name.len() as u32).to_le_bytes());
        bytes.extend((value.len() as u32).to_le_bytes());
        bytes.extend(name.as_bytes());
        bytes.extend(value);
    }
    if names.is_empty() { "-".into() } else { format!("{:016x}", crc64(&bytes)) }
}

/// The line of `list`, as the library has the file.
fn line(dir: &Dir, path: &Path) -> String {
    let at = dir.symlink_metadata(path).expect("it is there");
    let sum = content(dir, path, &at).map_or("-".into(), |bytes| format!("{:016x}", crc64(&bytes)));
    let mut name = String::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'!'..=b'~' if *byte != b'%' => name.push(char::from(*byte)),
            _ => write!(name, "%{byte:02X}").expect("it is a string"),
        }
    }
    format!(
        "{} {:04o} {} {} {} {} {} {} {sum} {} {name}",
        letter(at.file_type()),
        at.mode() & 0o7777,
        at.uid(),
        at.gid(),
        at.len(),
        mtime(&at),
        at.nlink(),
        at.rdev(),
        attributes(dir, path),
    )
}

/// All paths of a volume.
fn paths(dir: &Dir) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![PathBuf::from("/")];
    while let Some(path) = pending.pop() {
        if dir.symlink_metadata(&path).expect("it is there").is_dir() {
            let entries = dir.read_dir(&path).expect("it can be read");
            pending.extend(entries.map(|entry| path.join(entry.expect("it is one").file_name())));
        }
        found.push(path);
    }
    found
}

fn open(bytes: &[u8]) -> Volume {
    open_tree(bytes, "main")
}

/// A branch, or a snapshot of one.
fn open_tree(bytes: &[u8], tree: &str) -> Volume {
    let device = Arc::new(MemoryDevice::from_image(bytes));
    let options = VolumeOptions::new().read_only(true);
    let options = match tree.split_once('@') {
        Some((branch, snapshot)) => options.branch(branch).snapshot(snapshot),
        None => options.branch(tree),
    };
    options.open_device(device).expect("the library opens it")
}

/// What the library lists, sorted.
fn listed(bytes: &[u8]) -> Vec<String> {
    listed_in(bytes, "main")
}

fn listed_in(bytes: &[u8], tree: &str) -> Vec<String> {
    let volume = open_tree(bytes, tree);
    let dir: &Dir = &volume;
    let mut lines: Vec<String> = paths(dir).iter().map(|path| line(dir, path)).collect();
    lines.sort();
    lines
}

/// What the reader had to replay.
#[derive(Debug, Default, PartialEq)]
struct Replayed {
    commits: u64,
    batches: u64,
    /// Blocks whose data lay inside of batches, and blocks that batches named by sums.
    inside: u64,
    named: u64,
}

impl Replayed {
    fn add(&mut self, more: &Replayed) {
        self.commits += more.commits;
        self.batches += more.batches;
        self.inside += more.inside;
        self.named += more.named;
    }
}

/// The reader lists what the library lists, and finds nothing wrong. What it replayed, if there is Python.
fn compare(what: &str, bytes: &[u8]) -> Option<Replayed> {
    let image = Image::new(bytes);
    let text = image.read_sound(what, &["list"])?;
    let mut found: Vec<String> = text.lines().map(String::from).collect();
    found.sort();
    let expected = listed(bytes);
    assert!(found == expected, "{what}: expected\n{expected:#?}\nfound\n{found:#?}");
    // "14 inodes, 4 commits, 3 batches, 1 blocks inside, 2 named: 0 findings"
    let said = image.read_sound(what, &["check"])?;
    let numbers: Vec<u64> =
        said.split([' ', ',', ':']).filter_map(|word| word.parse().ok()).collect();
    let [_, commits, batches, inside, named, 0] = numbers[..] else { panic!("{what}: {said}") };
    Some(Replayed { commits, batches, inside, named })
}

#[test]
fn golden_volumes_are_read_as_the_library_reads_them() {
    let current = golden_image::volumes().into_iter().filter(|(version, _)| *version == VERSION);
    for (_, folder) in current.chain([(VERSION, golden_image::grown())]) {
        let bytes = golden_image::load(&folder.join("image")).to_image();
        let what = folder.display().to_string();
        let Some(replayed) = compare(&what, &bytes) else { return };
        assert!(replayed.commits > 1 && replayed.batches > 1, "{what}: {replayed:?}");
        extracted(&bytes, "main");
    }
}

/// Every branch and snapshot of the golden volume with branches, with a log and deletions on their way.
#[test]
fn branches_of_a_golden_volume_are_read_as_the_library_reads_them() {
    let bytes = golden_image::load(&golden_image::branches().join("image")).to_image();
    let image = Image::new(&bytes);
    let Some(said) = image.read_sound("check", &["check"]) else { return };
    assert!(said.ends_with(": 0 findings\n"), "{said}");
    let mut trees = Vec::new();
    let volume = open(&bytes);
    for branch in volume.branches().expect("they are read") {
        trees.push(branch.name().to_owned());
        let snapshots = branch.snapshots().expect("they are read");
        trees.extend(snapshots.iter().map(|of| format!("{}@{}", branch.name(), of.name())));
    }
    volume.close().expect("nothing is written");
    let listing = image.read_sound("trees", &["--list-trees"]).expect("there is Python");
    for tree in &trees {
        assert!(listing.lines().any(|line| line.ends_with(&format!(" {tree}"))), "{listing}");
        let text = listed_of(&image, tree).expect("there is Python");
        let mut found: Vec<String> = text.lines().map(String::from).collect();
        found.sort();
        let expected = listed_in(&bytes, tree);
        assert!(found == expected, "{tree}: expected\n{expected:#?}\nfound\n{found:#?}");
    }
    assert!(trees.len() >= 11, "{trees:?}");
    // A snapshot, and a branch that is in the log alone.
    ["main@first", "young"].iter().for_each(|tree| extracted(&bytes, tree));
}

/// What the reader writes to the host is what the library has.
fn extracted(bytes: &[u8], tree: &str) {
    let folder = tempfile::tempdir().expect("there is room for files");
    let target = folder.path().join("files");
    let image = Image::new(bytes);
    image
        .read_sound("extract", &["--tree", tree, "extract", target.to_str().expect("it is text")])
        .expect("it ran");
    let volume = open_tree(bytes, tree);
    let dir: &Dir = &volume;
    for path in paths(dir) {
        let here = target.join(path.strip_prefix("/").expect("it begins there"));
        let host = std::fs::symlink_metadata(&here).expect("it is there");
        let at = dir.symlink_metadata(&path).expect("it is there");
        assert_eq!(host.mode(), at.mode(), "{}", path.display());
        let links = host.nlink() == u64::from(at.nlink());
        assert!(at.is_dir() || links, "{}", path.display());
        let time = i128::from(host.mtime()) * 1_000_000_000 + i128::from(host.mtime_nsec());
        assert_eq!(time, mtime(&at), "{}", path.display());
        match at.file_type() {
            FileType::Regular => {
                assert_eq!(
                    std::fs::read(&here).expect("it is read"),
                    dir.read(&path).expect("read")
                );
            }
            FileType::Symlink => {
                assert_eq!(
                    std::fs::read_link(&here).expect("read"),
                    dir.read_link(&path).expect("read")
                );
            }
            _ => {}
        }
        let cat = Image::new(bytes)
            .read(&["--tree", tree, "cat", path.to_str().expect("it is text")])
            .expect("it ran");
        match content(dir, &path, &at) {
            Some(content) => assert!(cat.status.success() && cat.stdout == content),
            None => assert_eq!(cat.status.code(), Some(1)),
        }
    }
}

/// Runs a script, commits behind each `commits`-th operation, and compares what power cuts may leave on the way.
fn cut(
    seed: u64,
    node_size: usize,
    (commits, cuts): (usize, usize),
    script: &Script,
) -> Option<Replayed> {
    cut_as(seed, Setup::new(node_size, 16), (commits, cuts), script)
}

fn cut_as(
    seed: u64,
    setup: Setup,
    (commits, cuts): (usize, usize),
    script: &Script,
) -> Option<Replayed> {
    let mut sum = Replayed::default();
    let twice = setup.mkfs.metadata_copies == 2;
    let plain = Geometry::for_device(SMALLEST, setup.mkfs.node_size);
    let twice = twice.then(|| plain.and_then(Geometry::with_copies).expect("it is large enough"));
    let device = Arc::new(SimDevice::new(&MemoryDevice::new(SMALLEST)));
    let under: Arc<dyn Device> = device.clone();
    let mut engine = Engine::create(under, setup).expect("it is made");
    let policy = sim::Policy { seed, exhaustive: 0, each: 1, samples: 1, torn: 1 };
    for (index, op) in script.ops().enumerate() {
        // What a random script asks may be refused.
        let _ = engine.apply(op);
        if index % commits == commits - 1 {
            engine.filesystem().expect("it is mounted").commit().expect("the device works");
        }
        if index % cuts != cuts - 1 {
            continue;
        }
        let cut = device.cut();
        for image in cut.images(&policy) {
            let number = image.number();
            let what = format!("seed {seed}, operation {index}, image {number}");
            let left = image.device();
            if let Some(geometry) = &twice {
                let rings = geometry.log_blocks + geometry.journal_blocks;
                let place = geometry.log().start.0 + geometry.ring_distance * (number as u64 % 2);
                let lost = vec![0x55; rings as usize * BLOCK_SIZE];
                left.write(place * BLOCK_BYTES, &lost).expect("memory takes it");
            }
            let replayed = compare(&what, &left.to_image())?;
            sum.add(&replayed);
        }
    }
    Some(sum)
}

fn profile() -> Profile {
    Profile { ops: 48, syncs: 40, far: 3 << 20, evicts: 0, ..Profile::default() }
}

#[test]
fn what_power_cuts_leave_is_replayed_from_journal_and_log() {
    let mut sum = Replayed::default();
    for seed in seeds(0..3) {
        let Some(replayed) = cut(seed, 4096, (11, 6), &generate(seed, &profile())) else { return };
        println!("seed {seed}: {replayed:?}");
        sum.add(&replayed);
    }
    assert!(sum.commits > 10 && sum.batches > 5, "{sum:?}");
}

/// The same where rings stand twice, and one of the places is lost.
#[test]
fn what_one_place_of_the_rings_has_lost_is_read_from_the_other() {
    let mut sum = Replayed::default();
    for seed in seeds(20..22) {
        let mut setup = Setup::new(4096, 16);
        setup.mkfs.metadata_copies = 2;
        let script = generate(seed, &profile());
        let Some(replayed) = cut_as(seed, setup, (11, 6), &script) else { return };
        sum.add(&replayed);
    }
    assert!(sum.commits > 0 && sum.batches > 0, "{sum:?}");
}

/// Data inside of batches over data inside of batches; what is freed and taken again; named data; a hole in steps.
const LOGGED: &str = "mkfile /a; write /a 0 20k 1; fsync /a; write /a 4100 10 2; fsync /a; write /a 4100 20 3; fsync /a; \
     write /a 4000 200 4; mkfile /b; fsync /b; write /a 4090 4 5; fsync /a; punch /a 4096 4096; fsync /a; \
     write /a 4096 100 6; fsync /a; unlink /a; fsyncdir /; write /b 0 4000 7; fsync /b; write /b 0 60k 8; fsync /b; \
     setxattr /b user.x 3000 3; link /b /c; fsync /c; truncate /b 30001; fsync /b; tmpfile t / 600; write @t 0 4096 4; \
     fsync @t; utimes /b 5 6; fsync /b";

/// The lines of a listing of a branch or snapshot.
fn listed_of(image: &Image, tree: &str) -> Option<String> {
    image.read_sound(tree, &["--tree", tree, "list"])
}

/// A snapshot, and a branch that grew out of it: in trees and commits, and all of it in the log.
#[test]
fn branches_and_snapshots_are_read() {
    for is_closed in [true, false] {
        let device = Arc::new(MemoryDevice::from_image(&closed()));
        let options = OpenOptions { threads: false, ..OpenOptions::default() };
        let under = Arc::clone(&device) as Arc<dyn Device>;
        let store = Store::open(under, &options, Arc::default()).expect("it is sound");
        let store = Arc::new(store);
        let now = Timestamp { secs: 7, nanos: 0 };
        let snapshot = store.snapshot(1, b"before", now).expect("it can be taken");
        store.fork(snapshot, b"agent", now).expect("it can be made");
        let root = Key::inode(InodeNo::ROOT);
        let mut lines = Vec::new();
        for (name, uid) in [(&b"agent"[..], 5), (b"main", 6)] {
            let branch = Branch::open(Arc::clone(&store), name, None).expect("it is there");
            let value = branch.get(&root).expect("it reads").expect("it is there");
            let item = InodeItem::decode(&value).expect("it is sound");
            let mut room = branch.reserve(Need::Shrink { changes: 1 }).expect("there is room");
            let mut transaction = Transaction::new();
            transaction.put(root, InodeItem { uid, ..item }.encode());
            branch.apply(transaction, &mut room).expect("memory does not fail");
            lines.push((String::from_utf8_lossy(name).into_owned(), uid));
        }
        if is_closed {
            let store = Arc::into_inner(store).expect("nothing else has it");
            store.close().expect("memory does not fail");
        } else {
            store.sync(store.latest(), InodeNo::ROOT).expect("memory does not fail");
        }
        let image = Image::new(&device.to_image());
        let Some(trees) = image.read_sound("trees", &["--list-trees"]) else { return };
        let names: Vec<_> = trees.lines().map(|line| line.rsplit(' ').next()).collect();
        assert_eq!(names, [Some("main"), Some("main@before"), Some("agent")], "{trees}");
        let said = image.read_sound("check", &["check"]).expect("there is Python");
        assert!(said.ends_with(": 0 findings\n"), "{said}");
        let before = listed_of(&image, "main@before").expect("there is Python");
        for (name, uid) in lines {
            let now = listed_of(&image, &name).expect("there is Python");
            let differ: Vec<_> =
                now.lines().zip(before.lines()).filter(|(one, two)| one != two).collect();
            assert_eq!(now.lines().count(), before.lines().count());
            assert_eq!(differ.len(), 1, "{name}: {differ:?}");
            assert!(differ[0].0.split(' ').nth(2) == Some(&uid.to_string()), "{differ:?}");
        }
        let (_, said) = image.read_damaged(&["--tree", "none", "list"]).expect("there is Python");
        assert!(said.contains("no such branch"), "{said}");
    }
}

#[test]
fn data_inside_of_batches_is_read() {
    let script: Script = LOGGED.parse().expect("it is a script");
    let mut sum = Replayed::default();
    for (node_size, commits) in [(4096, 100), (65536, 9)] {
        let Some(replayed) = cut(1, node_size, (commits, 4), &script) else { return };
        println!("nodes of {node_size}: {replayed:?}");
        sum.add(&replayed);
    }
    assert!(sum.inside > 10 && sum.named > 10 && sum.commits > 0, "{sum:?}");
}

#[test]
fn large_nodes_and_long_attributes_are_read() {
    let profile = Profile { xattr_max: 20_000, remounts: 3, ..profile() };
    for seed in seeds(10..12) {
        let Some(replayed) = cut(seed, 16384, (7, 8), &generate(seed, &profile)) else { return };
        println!("seed {seed}: {replayed:?}");
    }
}

fn number(bytes: &[u8], at: usize) -> usize {
    let number = u64::from_le_bytes(bytes[at..at + 8].try_into().expect("it has eight bytes"));
    number.try_into().expect("it is small")
}

/// The byte at which the newest superblock begins.
fn newest(bytes: &[u8]) -> usize {
    let slots = [16 * BLOCK_SIZE, 48 * BLOCK_SIZE];
    slots.into_iter().max_by_key(|slot| number(bytes, slot + 32)).expect("there are two")
}

/// The byte at which the root of the files tree begins in a volume that was closed.
fn files_root(bytes: &[u8]) -> usize {
    number(bytes, newest(bytes) + 184) * BLOCK_SIZE
}

/// The bytes at which the children of a node begin.
fn children(bytes: &[u8], node: usize) -> Vec<usize> {
    assert_eq!(bytes[node + 4], 1, "it is right above the leaves");
    let pair =
        |at: usize| usize::from(u16::from_le_bytes([bytes[node + at], bytes[node + at + 1]]));
    let records = (0..pair(6)).map(|slot| pair(64 + 4 * slot));
    records.map(|record| number(bytes, node + record + 24) * BLOCK_SIZE).collect()
}

/// A closed volume with 60 files, one of them with three blocks of data; nodes of 4 KiB.
fn closed() -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(SMALLEST));
    let under: Arc<dyn Device> = device.clone();
    CreateOptions::new().node_size(BLOCK_SIZE).format(&under).expect("it is made");
    let volume = VolumeOptions::new().open_device(under).expect("it is opened");
    volume.write("/data", content_of_data()).expect("it is written");
    for number in 0..60 {
        volume.write(format!("/inline-{number}"), "a few bytes").expect("it is written");
    }
    volume.close().expect("it is closed");
    device.to_image()
}

fn content_of_data() -> Vec<u8> {
    [b'1', b'2', b'3'].iter().flat_map(|byte| [*byte; BLOCK_SIZE]).collect()
}

#[test]
fn a_damaged_node_is_said_and_what_it_held_is_not_shown() {
    let sound = closed();
    assert!(compare("sound", &sound).is_none_or(|replayed| replayed == Replayed::default()));
    let names = listed(&sound);
    let leaves = children(&sound, files_root(&sound));
    assert!(leaves.len() > 2, "{leaves:?}");
    for at in leaves {
        // The last byte belongs to a record.
        let mut bytes = sound.clone();
        bytes[at + BLOCK_SIZE - 1] ^= 1;
        let Some((shown, said)) = Image::new(&bytes).read_damaged(&["list"]) else { return };
        let block = at / BLOCK_SIZE;
        let finding = format!("node at block {block}: its sum does not match [202]");
        assert!(said.contains(&finding), "{said}");
        let shown = String::from_utf8(shown).expect("it is text");
        let whole = shown.lines().filter(|line| !line.contains(" damaged ")).collect::<Vec<_>>();
        assert!(whole.len() < names.len(), "{shown}");
        assert!(whole.iter().all(|line| names.iter().any(|name| name == line)), "{shown}");
    }
}

#[test]
fn damaged_data_is_said_and_not_shown() {
    let mut bytes = closed();
    let second = bytes.chunks(BLOCK_SIZE).position(|block| block == [b'2'; BLOCK_SIZE]);
    let second = second.expect("it is there");
    bytes[second * BLOCK_SIZE + 1000] ^= 4;
    let image = Image::new(&bytes);
    let finding = format!("block {second}: its sum does not match");
    let Some((shown, said)) = image.read_damaged(&["list"]) else { return };
    let shown = String::from_utf8(shown).expect("it is text");
    assert!(said.lines().count() == 1 && said.contains(&finding), "{said}");
    let damaged = |line: &&str| line.contains(" damaged ");
    assert!(shown.lines().filter(damaged).all(|line| line.ends_with(" /data")), "{shown}");
    assert_eq!(shown.lines().filter(damaged).count(), 1, "{shown}");

    let (shown, said) = image.read_damaged(&["cat", "/data"]).expect("it ran");
    assert!(said.contains(&finding), "{said}");
    assert!(shown == [b'1'; BLOCK_SIZE], "{} bytes", shown.len());

    let folder = tempfile::tempdir().expect("there is room for files");
    let target = folder.path().to_str().expect("it is text");
    let (_, said) = image.read_damaged(&["extract", target]).expect("it ran");
    assert!(said.contains(&finding), "{said}");
    let mut expected = content_of_data();
    expected[BLOCK_SIZE..2 * BLOCK_SIZE].fill(0);
    assert!(std::fs::read(folder.path().join("data")).expect("it is there") == expected);
    assert!(image.read_damaged(&["check"]).expect("it ran").1.contains(&finding));
}

#[test]
fn a_volume_is_read_from_the_far_copy_when_both_slots_are_lost() {
    let sound = closed();
    let Some(listing) = Image::new(&sound).read_sound("sound", &["list"]) else { return };
    let mut bytes = sound;
    for slot in [16, 48] {
        bytes[slot * BLOCK_SIZE + 40] ^= 1;
    }
    let image = Image::new(&bytes);
    let (shown, said) = image.read_damaged(&["list"]).expect("it ran");
    assert!(shown.is_empty() && said.contains("no superblock is valid"), "{said}");
    assert_eq!(image.read_sound("far", &["--far", "list"]).expect("it ran"), listing);
}

#[test]
fn history_that_was_durable_and_is_gone_is_said() {
    let folder = golden_image::folder().join(format!("volume-{VERSION}"));
    let sound = golden_image::load(&folder.join("image")).to_image();
    let superblock = newest(&sound);
    let commit = number(&sound, superblock + 272) * BLOCK_SIZE;
    // The first batch behind the last commit lies somewhere behind the one that the superblock names.
    let batches = (272 * BLOCK_SIZE..336 * BLOCK_SIZE).step_by(512);
    let last = batches
        .filter(|at| &sound[*at..at + 4] == b"hfLb")
        .max_by_key(|at| number(&sound, at + 32));
    let before = number(&sound, last.expect("there is one") + 40);
    let first = (272 * BLOCK_SIZE..336 * BLOCK_SIZE)
        .step_by(512)
        .find(|at| &sound[*at..at + 4] == b"hfLb" && number(&sound, at + 32) == before);
    for (at, finding) in [(commit, "[801]"), (first.expect("there is one"), "[901]")] {
        let mut bytes = sound.clone();
        bytes[at + 100] ^= 1;
        let Some((_, said)) = Image::new(&bytes).read_damaged(&["list"]) else { return };
        assert!(said.contains(finding), "{said}");
    }
}

/// Writes behind the last commit of an image that it was durable, as a volume at rest does.
fn confirm(bytes: &mut [u8]) {
    let headers = bytes.chunks(BLOCK_SIZE).map(FrameHeader::decode).enumerate();
    let frames = headers.filter_map(|(at, header)| Some((at, header.ok()?)));
    let frames = frames.filter(|(_, header)| header.kind == KIND_COMMIT);
    let last = frames.max_by_key(|(_, header)| (header.commit, header.index));
    let (at, last) = last.expect("there is a commit");
    let address = at as u64 + last.blocks();
    let (commit, durable, prior) = (last.commit + 1, last.commit, !last.sum);
    let (kind, index, frames) = (KIND_END, 0, 1);
    let header = FrameHeader { kind, address, commit, durable, prior, index, frames, ..last };
    let mut frame = Vec::new();
    header.encode(&[], &mut frame);
    bytes[address as usize * BLOCK_SIZE..][..frame.len()].copy_from_slice(&frame);
}

#[test]
fn data_that_rots_in_the_last_commit_is_a_crash_until_that_is_confirmed() {
    let device = Arc::new(MemoryDevice::from_image(&closed()));
    let volume = VolumeOptions::new().commit_secs(0).open_device(device.clone());
    let volume = volume.expect("it is sound");
    volume.write("/rots", [b'4'; 3 * BLOCK_SIZE]).expect("there is room");
    volume.commit().expect("memory does not fail");
    volume.abandon();
    let mut bytes = device.to_image();
    let last = bytes.chunks(BLOCK_SIZE).rposition(|block| block == [b'4'; BLOCK_SIZE]);
    bytes[last.expect("it is there") * BLOCK_SIZE + 9] ^= 1;
    assert!(compare("not confirmed", &bytes).is_none_or(|replayed| replayed.commits == 0));
    assert!(!listed(&bytes).iter().any(|line| line.ends_with(" /rots")));
    confirm(&mut bytes);
    let there = open(&bytes);
    assert_eq!(there.read_dir("/").expect("it reads").count(), 62);
    assert!(there.read("/rots").is_err(), "its data is not what was written");
    let Some((shown, said)) = Image::new(&bytes).read_damaged(&["list"]) else { return };
    let shown = String::from_utf8(shown).expect("it is text");
    assert_eq!((shown.lines().count(), said.lines().count()), (63, 1), "{said}");
    let damaged: Vec<&str> = shown.lines().filter(|line| line.contains(" damaged ")).collect();
    assert!(damaged.len() == 1 && damaged[0].ends_with(" /rots"), "{damaged:?}");
}

#[test]
fn a_rotten_byte_before_a_mark_is_no_wiped_ring() {
    let device = Arc::new(MemoryDevice::from_image(&closed()));
    let options = VolumeOptions::new().commit_secs(0);
    options.open_device(device.clone()).expect("it is sound").abandon();
    let bytes = device.to_image();
    let begin = |magic: &[u8]| {
        let found = (272 * BLOCK_SIZE..400 * BLOCK_SIZE)
            .step_by(512)
            .filter(|at| bytes[*at..].starts_with(magic));
        // The youngest: frames have the number of their commit where batches have the one that is durable.
        found.max_by_key(|at| number(&bytes, at + if magic == b"hfJf" { 40 } else { 32 }))
    };
    for (magic, issue) in [(b"hfJf", "[807]"), (b"hfLb", "[907]")] {
        let at = begin(magic).expect("a mount has written markers");
        for byte in [0, 9, 17, 25, 40, if magic == b"hfJf" { 72 } else { 88 }] {
            let mut bytes = bytes.clone();
            bytes[at + byte] ^= 4;
            let Some(_) = compare(&format!("{issue}, byte {byte}"), &bytes) else { return };
            bytes[at + 44] ^= 4;
            let (_, said) = Image::new(&bytes).read_damaged(&["list"]).expect("it ran");
            assert!(said.contains(issue), "byte {byte}: {said}");
        }
    }
}

#[test]
fn hostile_nodes_do_not_confuse_it() {
    let sound = closed();
    let root = files_root(&sound);
    let mut prng = Prng::seeded(1);
    for round in 0..25 {
        let mut bytes = sound.clone();
        let node = &mut bytes[root..root + BLOCK_SIZE];
        for _ in 0..1 + round % 3 {
            // The heap lies at the end; headers and slots at the start.
            let at = if prng.one_in(2) { prng.below(200) } else { 3000 + prng.below(1096) };
            node[at as usize] = prng.below(256) as u8;
        }
        let sum = crc64_with_hole(node, 8);
        node[8..16].copy_from_slice(&sum.to_le_bytes());
        let Some(output) = Image::new(&bytes).read(&["check"]) else { return };
        assert!(matches!(output.status.code(), Some(0 | 1)), "round {round}: {output:?}");
    }
}
