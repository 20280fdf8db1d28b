//! A volume whose journal is damaged, read: it shows a moment before its last one, and each command says so, in words and by its exit code.

use std::fs;

use holdfast::VolumeOptions;

use crate::common::{Said, TestMount, can_mount};

const BLOCK: usize = 4096;
/// What is read is not the whole last state.
const NOT_WHOLE: i32 = 4;

/// A volume that crashed behind three commits, each with a file, of which the second is gone.
fn damaged() -> TestMount {
    let place = TestMount::with_volume();
    let volume = VolumeOptions::new().commit_secs(0).open(&place.image).unwrap();
    for name in ["first", "second", "third"] {
        volume.write(format!("/{name}"), name).unwrap();
        volume.commit().unwrap();
    }
    volume.abandon();
    let mut image = fs::read(&place.image).unwrap();
    let number = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().unwrap());
    let frames = (0..image.len()).step_by(BLOCK).filter(|at| image[*at..].starts_with(b"hfJf"));
    let mut commits: Vec<(u64, usize)> = frames.map(|at| (number(at + 40), at)).collect();
    commits.sort_unstable();
    let (_, at) = commits[commits.len() - 2];
    image[at + 200] ^= 1;
    fs::write(&place.image, image).unwrap();
    place
}

#[track_caller]
fn is_not_whole(said: &Said) {
    assert_eq!(said.code, NOT_WHOLE, "{said:?}");
    assert_eq!(
        said.err.matches("its last state is not whole: the journal is damaged").count(),
        1,
        "{said:?}"
    );
    assert_eq!(said.err.lines().count(), 1, "{said:?}");
}

/// Each way to read files of what `of` names.
fn read(place: &TestMount, of: &str) {
    let inside = |path: &str| format!("{of}:{path}");
    let listed = place.run(&["ls", &inside("/")]);
    is_not_whole(&listed);
    assert_eq!(listed.out, "first\n");
    let printed = place.run(&["cat", &inside("/first")]);
    is_not_whole(&printed);
    assert_eq!(printed.out, "first");
    let exported = place.run(&["export", "--tar", of]);
    is_not_whole(&exported);
    assert!(exported.out.contains("first") && !exported.out.contains("third"));
    let out = place.path("out");
    is_not_whole(&place.run(&["cp", &inside("/first"), &out]));
    assert_eq!(fs::read_to_string(&out).unwrap(), "first");
    let copied = place.run(&["cp", &inside("/first"), "-"]);
    is_not_whole(&copied);
    assert_eq!(copied.out, "first");
}

#[test]
fn what_is_read_of_a_volume_at_rest_says_that_it_is_not_whole() {
    let place = damaged();
    read(&place, place.image());
    let branches = place.run(&["branch", "list", place.image()]);
    assert!(
        branches.code == 0 && branches.err.contains("its last state is not whole"),
        "{branches:?}"
    );
    let info = place.run(&["info", place.image()]).fine();
    assert!(info.contains("refused, but for reading: commit "), "{info}");
    // What is written meets the refusal.
    place
        .run(&["cp", &place.path("out"), &place.inside("/new")])
        .fails(1, "the journal is damaged");
}

#[test]
fn a_mount_for_reading_says_that_it_is_not_whole() {
    if !can_mount() {
        return;
    }
    let place = damaged();
    let mounted = place.run(&["mount", "-o", "ro", place.image(), place.dir()]);
    assert_eq!(mounted.code, 0, "it is mounted: {mounted:?}");
    assert!(
        mounted.err.contains("its last state is not whole: the journal is damaged"),
        "{mounted:?}"
    );
    let info = place.run(&["info", place.dir()]).fine();
    let damage = info.lines().find(|line| line.starts_with("damage")).unwrap();
    assert!(damage.contains("its last state is not whole: the journal is damaged"), "{info}");
    assert!(
        place.run(&["info", "--json", place.dir()]).fine().contains("\"missing\":\"the journal")
    );
    read(&place, place.dir());
    place.umount();
}

/// A reader needs no bitmaps, and the root of `main` stands in the superblock.
#[test]
fn a_volume_without_its_space_tree_is_read() {
    let place = TestMount::with_volume();
    fs::write(place.path("file"), "kept").unwrap();
    place.run(&["cp", &place.path("file"), &place.inside("/file")]).fine();
    let mut image = fs::read(&place.image).unwrap();
    let epoch = |at: &usize| u64::from_le_bytes(image[at + 24..at + 32].try_into().unwrap());
    let leaves = (0..image.len()).step_by(BLOCK);
    let leaves = leaves.filter(|at| image[*at..].starts_with(b"hfNd\x00\x02"));
    let newest = leaves.max_by_key(epoch).unwrap();
    image[newest + 1000] ^= 1;
    fs::write(&place.image, image).unwrap();
    let is_said = |said: &Said| said.code == NOT_WHOLE && said.err.contains("bitmaps");
    let listed = place.run(&["ls", &place.inside("/")]);
    assert!(is_said(&listed) && listed.out == "file\n", "{listed:?}");
    let copied = place.run(&["cp", &place.inside("/file"), "-"]);
    assert!(is_said(&copied) && copied.out == "kept", "{copied:?}");
    let branches = place.run(&["branch", "list", place.image()]);
    assert!(branches.code == 0 && branches.err.contains("bitmaps"), "{branches:?}");
    place.run(&["rm", &place.inside("/file")]).fails(1, "damaged");
    if !can_mount() {
        return;
    }
    place.run(&["mount", place.image(), place.dir()]).fails(32, "damaged");
    let mounted = place.run(&["mount", "-o", "ro", place.image(), place.dir()]);
    assert!(mounted.code == 0 && mounted.err.contains("bitmaps"), "{mounted:?}");
    assert_eq!(fs::read_to_string(place.dir.join("file")).unwrap(), "kept");
    assert!(place.run(&["info", place.dir()]).fine().contains("bitmaps"));
    place.umount();
}

/// Log and journal of a volume that crashed are written over as a whole. What was durable behind the last checkpoint is gone, and no
/// command takes the volume for one that ended there.
#[test]
fn rings_that_were_wiped_are_missed() {
    let place = TestMount::with_volume();
    let volume = VolumeOptions::new().commit_secs(0).open(&place.image).unwrap();
    volume.write("/first", "first").unwrap();
    volume.close().unwrap();
    let volume = VolumeOptions::new().commit_secs(0).open(&place.image).unwrap();
    volume.write("/second", "second").unwrap();
    volume.open_file("/second").and_then(|file| file.sync_all()).unwrap();
    volume.abandon();
    let mut image = fs::read(&place.image).unwrap();
    let number = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().unwrap());
    let blocks = number(16 * BLOCK + 160) + number(16 * BLOCK + 168);
    image[272 * BLOCK..][..blocks as usize * BLOCK].fill(0);
    fs::write(&place.image, image).unwrap();
    let checked = place.run(&["fsck", "-n", place.image()]);
    assert!(checked.code == 4 && checked.out.contains("error 807 journal-wiped"), "{checked:?}");
    place.run(&["rm", &place.inside("/first")]).fails(1, "`holdfast fsck -y --accept-loss`");
    let listed = place.run(&["ls", &place.inside("/")]);
    assert_eq!((listed.code, &*listed.out), (NOT_WHOLE, "first\n"), "{listed:?}");
    let refused = place.run(&["fsck", "-y", place.image()]);
    assert!(refused.err.contains("--accept-loss"), "{refused:?}");
    let repaired = place.run(&["fsck", "-y", "--accept-loss", place.image()]);
    assert!(repaired.code == 1 && repaired.out.contains("loss 807"), "{repaired:?}");
    assert_eq!(place.run(&["ls", &place.inside("/")]).fine(), "first\n");
    place.run(&["rm", &place.inside("/first")]).fine();
    place.fsck();
}
