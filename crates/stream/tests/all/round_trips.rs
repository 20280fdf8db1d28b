//! What was sent is what was received: random trees, whole and by what changed.

mod merges;

use std::sync::Arc;

use holdfast::device::{Device, MemoryDevice};
use holdfast::{FileTimes, FileType, OpenOptions, Permissions, RenameFlags, Volume, XattrFlags};
use holdfast_script::{Profile, Target, generate};
use holdfast_sim::{Engine, Setup};
use holdfast_stream::Sending;

use crate::common::{
    Listing, bytes_alone, device, expect_clean, expect_same, listing, listing_of, open, receive,
    sent, snapshot,
};

/// A volume with snapshots of what a script has made.
fn scripted(seed: u64) -> (Arc<MemoryDevice>, Vec<String>) {
    let profile = Profile { ops: 120, far: 0, names: 4, remounts: 2, ..Profile::default() };
    let script = generate(seed, &profile);
    let device = Arc::new(MemoryDevice::new(48 << 20));
    let any: Arc<dyn Device> = device.clone();
    let mut engine = Engine::create(any, Setup::new(4096, 8)).unwrap();
    let mut names = Vec::new();
    for (index, step) in script.steps.iter().enumerate() {
        engine.apply(&step.op);
        if index % 30 == 29 {
            let name = format!("s{index}");
            engine.filesystem().unwrap().snapshot(name.as_bytes()).unwrap();
            names.push(name);
        }
    }
    drop(engine);
    (device, names)
}

fn run(seed: u64) {
    let (source, names) = scripted(seed);
    let source = open(&source);
    let target = device(48 << 20);
    let volume = open(&target);
    let of = |name: &String| snapshot(&source, &format!("main@{name}"));
    // Each by what changed since the one before.
    let mut before: Option<&String> = None;
    for name in &names {
        let what = format!("seed {seed}, {before:?} to {name}");
        let stream = match before {
            None => sent(&source, Sending::Whole(of(name))),
            Some(before) => sent(&source, Sending::Changes(of(before), of(name))),
        };
        let received =
            receive(&volume, &stream, None).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(received.snapshot, format!("main@{name}"), "{what}");
        assert_eq!(received.kept, None, "{what}");
        let judge = |found: Listing, what: &str| match before {
            None => expect_same(&listing_of(&of(name)), &found, what),
            Some(_) => {
                expect_same(&bytes_alone(listing_of(&of(name))), &bytes_alone(found), what);
            }
        };
        judge(listing_of(&snapshot(&volume, &received.snapshot)), &what);
        judge(listing(&volume), &format!("{what}, the branch"));
        before = Some(name);
    }
    // And back: from the last to the first, in another branch.
    let (first, last) = (&names[0], names.last().unwrap());
    let what = format!("seed {seed}, {last} back to {first}");
    let other = sent(&source, Sending::Changes(of(last), of(first)));
    let error = receive(&volume, &other, None);
    assert!(error.is_err() || error.as_ref().is_ok_and(|it| it.was_here), "{what}: {error:?}");
    volume.close().unwrap();
    expect_clean(&target, &what);
    // In a volume that has the last alone.
    let target = device(48 << 20);
    let volume = open(&target);
    receive(&volume, &sent(&source, Sending::Whole(of(last))), None).unwrap();
    let received =
        receive(&volume, &other, Some("old")).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = listing_of(&snapshot(&volume, &received.snapshot));
    expect_same(&bytes_alone(listing_of(&of(first))), &bytes_alone(found), &what);
    let names: Vec<_> = volume.branches().unwrap().iter().map(|of| of.name().to_owned()).collect();
    assert_eq!(names, ["main", "old"], "{what}");
    volume.close().unwrap();
    expect_clean(&target, &what);
}

/// `HOLDFAST_SEEDS=20` runs twenty times as many scripts.
#[test]
fn random_trees_arrive_as_they_are() {
    let times = std::env::var("HOLDFAST_SEEDS").ok().and_then(|times| times.parse().ok());
    for seed in 0..40 * times.unwrap_or(1) {
        run(seed);
    }
}

/// Makes what the first snapshot shows.
fn before(volume: &Volume) {
    for dir in ["/a", "/a/b", "/a/b/c", "/x", "/y", "/stays", "/goes", "/goes/below"] {
        volume.create_dir(dir).unwrap();
    }
    volume.write("/a/b/c/deep", b"deep").unwrap();
    volume.write("/x/of-x", b"x").unwrap();
    volume.write("/y/of-y", b"y").unwrap();
    volume.write("/goes/below/file", b"goes").unwrap();
    volume.write("/goes/saved", b"saved").unwrap();
    volume.write("/was-file", b"file").unwrap();
    volume.create_dir("/was-directory").unwrap();
    volume.write("/was-directory/in", b"in").unwrap();
    volume.write("/one", b"one").unwrap();
    volume.write("/two", b"two").unwrap();
    volume.write("/three", b"three").unwrap();
    volume.write("/linked", b"linked").unwrap();
    volume.hard_link("/linked", "/a/linked-too").unwrap();
    volume.write("/links-all-change", b"all").unwrap();
    volume.hard_link("/links-all-change", "/links-all-change-2").unwrap();
    volume.write("/large", vec![7; 3 << 20]).unwrap();
    volume.symlink("where", "/link").unwrap();
    volume.create_node("/null", FileType::CharDevice, 0o666, 0x103).unwrap();
    volume.create_node("/fifo", FileType::Fifo, 0o600, 0).unwrap();
    volume.create_node("/socket", FileType::Socket, 0o755, 0).unwrap();
    volume.set_xattr("/one", "user.long", &[5; 60_000], XattrFlags::empty()).unwrap();
    volume.set_xattr("/one", "user.goes", b"x", XattrFlags::empty()).unwrap();
    // What is made below inherits it, and with it other bits.
    let acl = [
        2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 7, 0, 5, 0, 0, 0, 4, 0, 5, 0, 255, 255,
        255, 255, 16, 0, 7, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
    ];
    let flags = XattrFlags::empty();
    volume.set_xattr("/stays", "system.posix_acl_default", &acl, flags).unwrap();
    volume.set_xattr("/two", "system.posix_acl_access", &acl, flags).unwrap();
    volume.set_permissions("/stays", Permissions::from_mode(0o2775)).unwrap();
    volume.chown("/stays", Some(10), Some(20)).unwrap();
}

/// Makes what the second one shows.
fn after(volume: &Volume) {
    // Directories change places: each in the other's, and one into what was below it.
    volume.rename_with("/x", volume, "/y", RenameFlags::EXCHANGE).unwrap();
    volume.rename("/a/b/c", "/c").unwrap();
    volume.rename("/a", "/c/a").unwrap();
    volume.create_dir("/new").unwrap();
    volume.rename("/c/a/b", "/new/b").unwrap();
    // Names go round.
    volume.rename("/one", "/tmp").unwrap();
    volume.rename("/three", "/one").unwrap();
    volume.rename("/two", "/three").unwrap();
    volume.rename("/tmp", "/two").unwrap();
    volume.rename("/goes/saved", "/new/saved").unwrap();
    volume.remove_dir_all("/goes").unwrap();
    volume.create_dir("/goes").unwrap();
    volume.remove_file("/was-file").unwrap();
    volume.create_dir("/was-file").unwrap();
    volume.write("/was-file/in", b"new").unwrap();
    volume.remove_dir_all("/was-directory").unwrap();
    volume.write("/was-directory", b"new").unwrap();
    volume.hard_link("/linked", "/new/linked-three").unwrap();
    volume.remove_file("/linked").unwrap();
    volume.hard_link("/links-all-change", "/new/all").unwrap();
    volume.remove_file("/links-all-change").unwrap();
    volume.remove_file("/links-all-change-2").unwrap();
    volume.write("/new/linked-new", b"new").unwrap();
    volume.hard_link("/new/linked-new", "/linked-new").unwrap();
    let large = OpenOptions::new().write(true).open(volume, "/large").unwrap();
    large.write_all_at(b"a few bytes", 1_000_000).unwrap();
    large.punch_hole(1 << 20, 1 << 20).unwrap();
    large.set_len(5 << 20).unwrap();
    drop(large);
    volume.remove_xattr("/two", "user.goes").unwrap();
    volume.set_xattr("/two", "user.comes", b"y", XattrFlags::empty()).unwrap();
    volume.write("/stays/new", b"inherits").unwrap();
    volume.create_dir("/stays/new-directory").unwrap();
    volume.set_permissions("/c", Permissions::from_mode(0o1777)).unwrap();
    let time = std::time::UNIX_EPOCH - std::time::Duration::new(5, 7);
    volume.set_times("/link", FileTimes::new().set_modified(time).set_accessed(time)).unwrap();
    let sparse = volume.create("/sparse").unwrap();
    sparse.write_all_at(b"end", 1 << 40).unwrap();
    sparse.set_len(1 << 41).unwrap();
    sparse.allocate(0, 8192).unwrap();
    drop(sparse);
    volume.remove_file("/sparse").unwrap();
    volume.create("/holes").unwrap().set_len(1 << 20).unwrap();
}

#[test]
fn all_that_may_become_of_names_and_files() {
    let (from, to) = (device(64 << 20), device(64 << 20));
    let source = open(&from);
    let main = source.branch("main").unwrap();
    before(&source);
    let first = main.snapshot("first").unwrap();
    after(&source);
    let second = main.snapshot("second").unwrap();
    let volume = open(&to);
    let whole = sent(&source, Sending::Whole(first.clone()));
    assert_eq!(
        whole,
        sent(&source, Sending::Whole(first.clone())),
        "a stream is the same each time"
    );
    receive(&volume, &whole, None).unwrap();
    expect_same(&listing_of(&first), &listing(&volume), "first");
    let changes = sent(&source, Sending::Changes(first.clone(), second.clone()));
    receive(&volume, &changes, None).unwrap();
    expect_same(&listing_of(&second), &listing(&volume), "second");
    expect_same(&listing_of(&first), &listing_of(&snapshot(&volume, "main@first")), "unchanged");
    // Once more is no mistake.
    assert!(receive(&volume, &changes, None).unwrap().was_here);
    // The branch can be worked in, and goes on all the same: what it was is kept.
    volume.write("/mine", b"mine").unwrap();
    volume.remove_dir_all("/c").unwrap();
    source.write("/third", b"third").unwrap();
    let third = main.snapshot("third").unwrap();
    let received =
        receive(&volume, &sent(&source, Sending::Changes(second.clone(), third.clone())), None)
            .unwrap();
    let kept = snapshot(&volume, &format!("main@{}", received.kept.unwrap()));
    assert_eq!(kept.open().unwrap().read("/mine").unwrap(), b"mine");
    expect_same(&listing_of(&third), &listing(&volume), "third");
    // Back from the copy to where it came from, by what changed.
    volume.write("/back", b"back").unwrap();
    let fourth = volume.branch("main").unwrap().snapshot("fourth").unwrap();
    let copy = snapshot(&volume, "main@third");
    let back = sent(&volume, Sending::Changes(copy, fourth.clone()));
    receive(&source, &back, None).unwrap();
    expect_same(&listing_of(&fourth), &listing(&source), "back");
    // One after the other ends, and nothing is left.
    for volume in [source, volume] {
        assert_eq!(volume.branches().unwrap().len(), 1);
        volume.close().unwrap();
    }
    expect_clean(&from, "source");
    expect_clean(&to, "target");
}
