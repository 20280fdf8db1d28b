//! A commit that changes the lineage is the last one, and a batch of the log follows it. Its frame rots before anything confirms it: no
//! reader applies the batch to the trees from before, by whatever kind of change they differ.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};

use holdfast::{CreateOptions, Volume, VolumeOptions};
use holdfast_base::units::BLOCK_BYTES;
use holdfast_check::Issue;
use holdfast_check::reading::VolumeReading;
use holdfast_device::{Device, DeviceError, MemoryDevice, forward};
use holdfast_format::journal::FrameHeader;
use holdfast_repair::{RepairError, RepairOptions, is_repaired};

use crate::every_finding::{LOSS, found, planned};

/// A device whose superblocks wait while it is held: what a commit seals stays in the journal.
#[derive(Debug)]
pub(crate) struct Held {
    device: Arc<MemoryDevice>,
    is_held: Mutex<bool>,
    let_go: Condvar,
}

impl Held {
    pub(crate) fn over(device: Arc<MemoryDevice>) -> Arc<Held> {
        Arc::new(Held { device, is_held: Mutex::new(false), let_go: Condvar::new() })
    }
}

/// Superblocks wait as long as this is there.
pub(crate) struct Hold(Arc<Held>);

impl Hold {
    pub(crate) fn of(held: &Arc<Held>) -> Hold {
        *held.is_held.lock().expect("no thread panics with it") = true;
        Hold(held.clone())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        *self.0.is_held.lock().expect("no thread panics with it") = false;
        self.0.let_go.notify_all();
    }
}

impl Device for Held {
    forward!(device: read, flush, discard, len, room, take_room, sector_size, reach, stats);

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        if [16, 48].contains(&(at / BLOCK_BYTES)) {
            let held = self.is_held.lock().expect("no thread panics with it");
            drop(self.let_go.wait_while(held, |held| *held).expect("no thread panics with it"));
        }
        self.device.write(at, bytes)
    }
}

/// Writes a file, which is durable when this returns.
fn synced(volume: &Volume, path: &str, content: &str) {
    volume.write(path, content).expect("there is room");
    volume.open_file(path).and_then(|file| file.sync_all()).expect("memory takes it");
}

/// Changes of the lineage, of which the last one's commit rots. `main` and `work` have a snapshot each, and have changed since.
type Change = fn(&Volume);

const CHANGES: [(&str, Change); 10] = [
    ("a snapshot", |volume| snapshot(volume, "main")),
    ("a rollback", |volume| roll_back(volume, "main", None)),
    ("a rollback that keeps", |volume| roll_back(volume, "main", Some("kept"))),
    ("a rollback of another branch", |volume| roll_back(volume, "work", None)),
    ("a promotion", |volume| {
        let (main, work) = (branch(volume, "main"), branch(volume, "work"));
        main.replace_by(work, Some("was")).expect("it is possible");
    }),
    ("a fork", |volume| drop(branch(volume, "main").fork("young").expect("there is room"))),
    ("a new branch", |volume| drop(volume.create_branch("young").expect("there is room"))),
    ("a deletion", |volume| branch(volume, "work").delete().expect("it is possible")),
    ("a snapshot, then a rollback", |volume| {
        snapshot(volume, "work");
        roll_back(volume, "main", None);
    }),
    ("a rollback, then a new branch", |volume| {
        roll_back(volume, "main", None);
        drop(volume.create_branch("young").expect("there is room"));
    }),
];

fn branch(volume: &Volume, name: &str) -> holdfast::Branch {
    volume.branch(name).expect("it is there")
}

fn snapshot(volume: &Volume, name: &str) {
    branch(volume, name).snapshot("new").expect("there is room");
}

fn roll_back(volume: &Volume, name: &str, keep: Option<&str>) {
    let branch = branch(volume, name);
    let base = branch.snapshot_named(&format!("base of {name}")).expect("it is there");
    branch.rollback_to(&base, keep).expect("it is possible");
}

/// All files of all branches, with their content, and their snapshots' names.
type Listing = BTreeMap<String, Vec<u8>>;

fn state(device: &MemoryDevice) -> Listing {
    let mut state = Listing::new();
    let open = |name: &str| {
        let device: Arc<dyn Device> = Arc::new(device.snapshot());
        let options = VolumeOptions::new().read_only(true).branch(name);
        options.open_device(device).expect("a reader opens it")
    };
    for of in open("main").branches().expect("they read") {
        for of_it in of.snapshots().expect("they read") {
            state.insert(format!("{}@{}", of.name(), of_it.name()), Vec::new());
        }
        let volume = open(of.name());
        let mut dirs = vec![PathBuf::from("/")];
        while let Some(dir) = dirs.pop() {
            for entry in volume.read_dir(&dir).expect("it reads") {
                let path = dir.join(entry.expect("it reads").file_name());
                let name = format!("{}:{}", of.name(), path.display());
                match volume.symlink_metadata(&path).expect("it is there").is_dir() {
                    true => dirs.push(path),
                    false => drop(state.insert(name, volume.read(&path).expect("it reads"))),
                }
            }
        }
    }
    state
}

/// A closed volume with what the changes need, and so many places of each ring.
fn prepared(rings: u8) -> MemoryDevice {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    let target: Arc<dyn Device> = device.clone();
    CreateOptions::new()
        .node_size(4096)
        .ring_copies(rings)
        .format(&target)
        .expect("it is large enough");
    let volume = VolumeOptions::new().commit_secs(0).open_device(target).expect("it was made");
    volume.write("/file", "first ".repeat(300)).expect("there is room");
    let base = branch(&volume, "main").snapshot("base of main").expect("there is room");
    let work = base.fork("work").and_then(|work| work.open()).expect("there is room");
    work.write("/file", "of work ".repeat(300)).expect("there is room");
    branch(&volume, "work").snapshot("base of work").expect("there is room");
    work.write("/file", "later in work ".repeat(300)).expect("there is room");
    volume.write("/file", "later ".repeat(900)).expect("there is room");
    volume.write("/late", "late").expect("there is room");
    work.close().expect("memory takes it");
    volume.close().expect("memory takes it");
    device.snapshot()
}

/// What a crash leaves: before the change, behind it, and with a batch behind that. Either something changed since the last checkpoint, so
/// that the change ends an epoch, or nothing did.
fn crashed(change: Change, has_changed: bool, rings: u8) -> [MemoryDevice; 3] {
    let held = Held::over(Arc::new(prepared(rings)));
    let volume = VolumeOptions::new().commit_secs(0);
    let volume = volume.open_device(held.clone()).expect("it was closed");
    if has_changed {
        synced(&volume, "/file", &"changed ".repeat(400));
        volume.commit().expect("memory takes it");
        synced(&volume, "/new", "new");
    }
    let hold = Hold::of(&held);
    let before = held.device.snapshot();
    change(&volume);
    let behind = held.device.snapshot();
    let file = holdfast::OpenOptions::new().append(true);
    let mut file = volume.open_with("/file", &file).expect("it is there");
    std::io::Write::write_all(&mut file, b"appended").expect("there is room");
    file.sync_all().expect("memory takes it");
    synced(&volume, "/newest", "newest");
    let after = held.device.snapshot();
    drop((hold, file));
    [before, behind, after]
}

/// The volume without its last commit: of each of its frames a byte has rotted.
pub(crate) fn rotten(device: &MemoryDevice) -> MemoryDevice {
    let left = device.snapshot();
    let reading = VolumeReading::open(device, false).expect("there is a volume");
    let superblock = reading.superblock();
    let zone = superblock.geometry.journal();
    let mut frames = Vec::new();
    let blocks = zone.start.0..zone.start.0 + zone.count;
    let places = superblock.geometry.ring_places();
    for block in places.flat_map(|distance| blocks.clone().map(move |block| block + distance)) {
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        device.read(block * BLOCK_BYTES, &mut bytes).expect("memory reads");
        match FrameHeader::decode(&bytes) {
            Ok(header) if header.volume == superblock.ring_tag && header.len > 0 => {
                frames.push((header.commit, block * BLOCK_BYTES, bytes));
            }
            _ => {}
        }
    }
    let last = frames.iter().map(|(commit, ..)| *commit).max().expect("there is a commit");
    for (_, at, mut bytes) in frames.into_iter().filter(|(commit, ..)| *commit == last) {
        bytes[200] ^= 0x40;
        left.write(at, &bytes).expect("memory takes it");
    }
    left
}

/// What `tools/readvolume.py` finds, if there is Python.
pub(crate) fn second_reader(device: &MemoryDevice) -> Option<String> {
    let image = tempfile::NamedTempFile::new().expect("there is room for an image");
    std::fs::write(image.path(), device.to_image()).expect("there is room for an image");
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/readvolume.py");
    match Command::new("python3").arg("-BIS").arg(tool).arg(image.path()).arg("check").output() {
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => {
            holdfast_base::skip::skipped(format_args!("python3: {error}"));
            None
        }
    }
}

/// Each reader has all of it, and a writer goes on.
fn is_sound(device: &MemoryDevice, when: &str) -> Listing {
    let report = found(device);
    assert!(report.findings.is_empty(), "{when}: {:?}", report.findings);
    assert!(second_reader(device).is_none_or(|said| said.is_empty()), "{when}");
    let shown = state(device);
    let (mut left, mut all) = (device.snapshot(), shown.clone());
    for name in ["/further", "/again"] {
        let device = Arc::new(left);
        let volume = VolumeOptions::new().commit_secs(0).open_device(device.clone());
        synced(&volume.unwrap_or_else(|error| panic!("{when}: {error}")), name, name);
        left = device.snapshot();
        all.insert(format!("main:{name}"), name.into());
        assert!(state(&left) == all, "{when}: a writer goes on behind it");
    }
    shown
}

#[test]
fn a_batch_behind_a_lost_change_of_the_lineage_is_applied_to_nothing_older() {
    for (name, change) in CHANGES {
        for rings in [1, 2] {
            // A second change waits until what the first one sealed is written.
            let changed: &[bool] = if name.contains("then") { &[false] } else { &[false, true] };
            for &has_changed in changed {
                let when = format!("{name}, changed: {has_changed}, rings: {rings}");
                let crashed = crashed(change, has_changed, rings);
                its_batch_is_left_out(crashed, name.contains("then"), &when);
            }
        }
    }
}

fn its_batch_is_left_out(crashed: [MemoryDevice; 3], are_two: bool, when: &str) {
    let [before, behind, after] = crashed;
    let shown = is_sound(&after, when);
    assert_eq!(shown.get("main:/newest").map(Vec::as_slice), Some(&b"newest"[..]), "{when}");
    is_sound(&behind, when);
    let seen = |device: &MemoryDevice| state(device).into_keys().collect::<Vec<_>>();
    // Of two changes the last one rots. No batch behind it: a crash may leave the same.
    let expected = state(&rotten(&behind));
    assert!(are_two || expected == state(&before), "{when}: {:?}", seen(&behind));
    let lost = rotten(&after);
    assert!(state(&lost) == expected, "{when}: {:?}", seen(&lost));
    let device: Arc<dyn Device> = Arc::new(lost.snapshot());
    let opened = VolumeOptions::new().open_device(device);
    let why = opened.err().unwrap_or_else(|| panic!("{when}: something durable is lost"));
    assert!(why.to_string().contains("was durable and is gone"), "{when}: {why}");
    let report = found(&lost);
    let is_said = report.findings.iter().any(|it| it.issue() == Issue::LogDamaged);
    assert!(is_said, "{when}: {:?}", report.findings);
    assert!(second_reader(&lost).is_none_or(|said| said.contains("[901]")), "{when}");
    let careful = RepairOptions { accept_loss: false, ..LOSS };
    let refused = planned(&lost, &careful);
    assert!(matches!(refused, Err(RepairError::Refused(_))), "{when}: {refused:?}");
    let plan = planned(&lost, &LOSS).unwrap_or_else(|error| panic!("{when}: {error}"));
    plan.write(&lost).expect("memory takes it");
    assert!(is_repaired(&found(&lost)), "{when}: {:?}", found(&lost).findings);
    let repaired = state(&lost);
    // All that there ever was of the newest file lies behind it.
    let mut expected = expected;
    expected.insert("main:/newest".into(), b"newest".into());
    let is_mixed = |(path, content): (&String, &Vec<u8>)| {
        !path.contains(":/lost+found/") && expected.get(path) != Some(content)
    };
    let mixed = repaired.iter().find(|it| is_mixed((it.0, it.1)));
    assert_eq!(mixed.map(|it| it.0), None, "{when}");
    assert!(expected.keys().all(|path| repaired.contains_key(path)), "{when}");
}

#[test]
fn a_change_of_the_lineage_that_is_refused_gives_its_number_back() {
    for rings in [1, 2] {
        let held = Held::over(Arc::new(prepared(rings)));
        let volume = VolumeOptions::new().commit_secs(0);
        let volume = volume.open_device(held.clone()).expect("it was closed");
        synced(&volume, "/one", "one");
        let hold = Hold::of(&held);
        for taken in ["base of main", "base of main"] {
            branch(&volume, "main").snapshot(taken).expect_err("there is one of that name");
        }
        synced(&volume, "/two", "two");
        let after = held.device.snapshot();
        drop(hold);
        let shown = is_sound(&after, "refused");
        assert!(["main:/one", "main:/two"].iter().all(|name| shown.contains_key(*name)));
    }
}
