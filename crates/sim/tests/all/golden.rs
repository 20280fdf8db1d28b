//! Golden images: whatever is written by a released format is readable for ever.
//!
//! Each mounts read-only without a write, is replayed read-write, shows its tree
//! both times, is clean for the second opinion, and can be used on. The current
//! format version must have one: see golden/README.md.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Once};

use holdfast_check::{Options, Subject, check, dump};
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::Key;
use holdfast_format::superblock::VERSION;
use holdfast_posix::{FileSystem, MountOptions};
use holdfast_script::{Op, Outcome, Script, Target};
use holdfast_sim::{Engine, Setup, judge};
use holdfast_store::{OpenOptions, Store};

use crate::golden_image::{self, is_update, load, save, volumes};

/// Size of the golden volume: the smallest that holds all zones with room to spare.
const BYTES: u64 = 8 << 20;
/// No release has written the current version yet. The release that does sets this to false: its images stay for ever.
const IN_THE_MAKING: bool = true;

fn setup(read_only: bool) -> Setup {
    let mut setup = Setup::new(4096, 64);
    setup.mount.read_only = read_only;
    setup
}

fn apply(engine: &mut Engine, op: &Op) {
    let outcome = engine.apply(op);
    assert!(matches!(outcome, Outcome::Ok(_)), "{op}: {outcome}");
}

/// Runs the script and takes the device away without an unmount.
fn make(folder: &Path) {
    make_on(folder, BYTES);
}

/// The same on a device that has more than the volume, which grows by its script.
fn make_grown(folder: &Path) {
    make_on(folder, BYTES / 2 * 3);
}

fn make_on(folder: &Path, bytes: u64) {
    let script = fs::read_to_string(folder.join("script")).expect("the script is there");
    let script: Script = script.parse().expect("the script is one");
    let device = Arc::new(MemoryDevice::new(bytes));
    let mut setup = setup(false);
    setup.mkfs.bytes = Some(BYTES);
    let mut engine = Engine::create(device.clone(), setup).expect("the volume can be made");
    let syncs = script.steps.iter().rposition(|step| step.op.to_string() == "sync");
    for (index, step) in script.steps.iter().enumerate() {
        apply(&mut engine, &step.op);
        let filesystem = engine.filesystem().expect("it is mounted");
        if index % 4 == 3 && Some(index) <= syncs || Some(index) == syncs {
            filesystem.commit().expect("the device works");
        }
    }
    engine.kill();
    save(&folder.join("image"), &device);
    let _ = fs::remove_file(folder.join("tree"));
}

/// The same for a volume with branches, whose commits are those of its snapshots. When its script remounts it,
/// the snapshot `large` is deleted, and its deletion goes a few steps.
fn make_branches(folder: &Path) {
    let script = fs::read_to_string(folder.join("script")).expect("the script is there");
    let script: Script = script.parse().expect("the script is one");
    let device: Arc<MemoryDevice> = Arc::new(MemoryDevice::new(BYTES));
    let mut engine = Engine::create(device.clone(), setup(false)).expect("the volume can be made");
    for step in &script.steps {
        if step.op != Op::Remount {
            apply(&mut engine, &step.op);
            continue;
        }
        engine.unmount().expect("the device works");
        let options = OpenOptions { threads: false, ..OpenOptions::default() };
        let store = Store::open(device.clone(), &options, Arc::default()).expect("it is sound");
        let large = store.find_tree(b"main", Some(b"large")).expect("it was taken");
        store.delete_snapshot(large).expect("the device works");
        store.work_off_deletions(6).expect("the device works");
        assert!(store.counters().deletions_left.get() > 0, "something is left");
        store.commit_deletions().expect("the device works");
        store.close().expect("the device works");
        engine.mount_on(device.clone()).expect("it is sound");
    }
    engine.kill();
    save(&folder.join("image"), &device);
    let _ = fs::remove_file(folder.join("trees"));
}

/// Compares a tree with the expected text.
fn expect_tree(folder: &Path, engine: &mut Engine) {
    let tree = engine.walk().expect("the tree can be walked").to_string() + "\n";
    expect_text(&folder.join("tree"), &tree);
}

/// The same for all branches and snapshots.
fn expect_trees(folder: &Path, engine: &mut Engine) {
    let trees = engine.walk_all().expect("all trees can be walked").to_string();
    expect_text(&folder.join("trees"), &trees);
}

fn expect_text(path: &Path, tree: &str) {
    if is_update() || !path.exists() {
        fs::write(path, tree).expect("the text can be written");
    }
    let expected = fs::read_to_string(path).expect("the text is there");
    assert!(tree == expected, "{}: expected\n{expected}found\n{tree}", path.display());
}

/// Makes the images of the current version that are to be made: those that are not there, or both anew. Each test that reads
/// one comes through here first.
fn images_made() {
    static MADE: Once = Once::new();
    MADE.call_once(|| {
        let anew = is_update() && IN_THE_MAKING;
        for (folder, make) in [
            (golden_image::folder().join(format!("volume-{VERSION}")), make as fn(&Path)),
            (golden_image::branches(), make_branches),
            (golden_image::grown(), make_grown),
        ] {
            let is_missing = !folder.join("image").exists();
            if anew || is_missing && std::env::var_os("GOLDEN_MAKE").is_some() {
                make(&folder);
            }
        }
    });
}

#[test]
fn the_current_version_has_an_image() {
    images_made();
    let path = golden_image::folder().join(format!("volume-{VERSION}"));
    assert!(
        path.join("image").exists() && path.join("script").exists(),
        "format version {VERSION} has no golden image: see golden/README.md"
    );
}

#[test]
fn the_current_version_has_an_image_with_branches_and_one_that_has_grown() {
    images_made();
    for path in [golden_image::branches(), golden_image::grown()] {
        assert!(
            path.join("image").exists() && path.join("script").exists(),
            "format version {VERSION} lacks the golden image {}: see golden/README.md",
            path.display()
        );
    }
}

/// The number of items and trees that fsck's dump shows of the lineage and that hold `word`.
fn lineage_with(image: &MemoryDevice, word: &str) -> usize {
    let mut lines = Vec::new();
    dump(image, &Subject::Lineage, &mut lines).expect("it reads");
    String::from_utf8_lossy(&lines).lines().filter(|line| line.contains(word)).count()
}

/// S1 to S9 of a volume that an earlier program wrote: all branches and snapshots are read and written on, and removed.
#[test]
fn branches_of_an_image_are_read_used_on_and_removed() {
    images_made();
    let folder = golden_image::branches();
    let image = load(&folder.join("image"));
    let before = image.to_image();
    let report = judge(&*image).expect("the volume is clean");
    let facts = &report.facts;
    assert!(facts.journal_commits > 1 && facts.log_batches > 3, "{facts:?}");
    assert!(facts.branches == 5 && facts.snapshots >= 8, "{facts:?}");
    // One has begun, one waits.
    assert_eq!(lineage_with(&image, " deleted_before="), 2);
    let start = format!(" deleted_before={:?}, behind nodes of level 0 ", Key::MIN);
    assert_eq!(lineage_with(&image, &start), 1);

    let mut engine = Engine::open(image.clone(), setup(true)).expect("it mounts read-only");
    expect_trees(&folder, &mut engine);
    engine.unmount().expect("nothing is written");
    assert!(image.to_image() == before, "a read-only mount wrote");

    let device: Arc<dyn Device> = image.clone();
    let mut engine = Engine::open(device, setup(false).checked()).expect("it is recovered");
    expect_trees(&folder, &mut engine);
    engine.finish_removals().expect("there is room");
    expect_trees(&folder, &mut engine);
    engine.unmount().expect("it is clean");
    let image = engine.device().clone();
    let mut engine = Engine::open(image, setup(false).checked()).expect("it is clean");
    expect_trees(&folder, &mut engine);
    let script: Script = "rmbranch young; switch side; mkfile /after; write /after 0 9k 1; fsync /after; rollback there; \
                          switch main; rmbranch deeper; rmbranch side; unhold first; rmsnapshot first; rmsnapshot before; \
                          rollback undone; rmsnapshot undone; rmbranch now; remount"
        .parse()
        .expect("it is a script");
    for step in &script.steps {
        apply(&mut engine, &step.op);
    }
    engine.finish_removals().expect("there is room");
    engine.unmount().expect("it is clean");
}

/// No release wrote them: they are refused, with what to do, in one sentence, by the engine and by fsck.
#[test]
fn volumes_of_older_versions_are_refused_with_what_to_do() {
    let mut seen = 0;
    for (version, folder) in volumes() {
        if version >= VERSION {
            continue;
        }
        seen += 1;
        let sentence = format!(
            "the volume has format {version}, and this program reads format {VERSION}: copy its files out with the \
             program that wrote it (`holdfast cp`), and make a new volume"
        );
        let image = load(&folder.join("image"));
        let before = image.to_image();
        let checked = check(&*image, &Options::default()).expect_err("fsck knows nothing of it");
        assert_eq!(checked.to_string(), sentence);
        for read_only in [true, false] {
            let options = MountOptions { read_only, ..MountOptions::default() };
            let Err(error) = FileSystem::mount(image.clone(), options) else {
                panic!("{version}: it was mounted");
            };
            assert_eq!(error.to_string(), sentence);
        }
        assert!(image.to_image() == before, "{version}: something was written");
    }
    assert!(seen > 0, "there is a volume of version 4");
}

#[test]
fn each_image_is_read_replayed_and_used_on() {
    images_made();
    let current = volumes().into_iter().filter(|(version, _)| *version >= VERSION);
    for (version, folder) in current.chain([(VERSION, golden_image::grown())]) {
        let image = load(&folder.join("image"));
        let before = image.to_image();
        let report = judge(&*image).expect("the volume is clean");
        let facts = &report.facts;
        assert!(facts.journal_commits > 1 && facts.log_batches > 1, "{version}: {facts:?}");
        println!(
            "version {version}: {} commits, {} batches, {} files",
            facts.journal_commits, facts.log_batches, facts.files
        );

        let mut engine = Engine::open(image.clone(), setup(true)).expect("it mounts read-only");
        expect_tree(&folder, &mut engine);
        engine.unmount().expect("nothing is written");
        assert!(image.to_image() == before, "a read-only mount wrote");

        let device: Arc<dyn Device> = image.clone();
        let mut engine = Engine::open(device, setup(false).checked()).expect("it is recovered");
        expect_tree(&folder, &mut engine);
        let script: Script =
            "mkdir /after; mkfile /after/f; write /after/f 0 100k 1; fsync /after/f; remount
            sum /after/f; unlink /after/f; rmdir /after; remount"
                .parse()
                .expect("it is a script");
        for step in &script.steps {
            apply(&mut engine, &step.op);
        }
        engine.unmount().expect("it is clean");
    }
}
