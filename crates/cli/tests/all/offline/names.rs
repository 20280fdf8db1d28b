//! `mkdir`, `mv`, `ln`, `chmod` and `chown` of volumes: at rest, and by the daemon of a mount while programs look.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

use rustix::process::getuid;

use crate::common::{TestMount, can_mount};

/// Makes a small tree by commands alone.
fn make(place: &TestMount) {
    let at = |path: &str| place.inside(path);
    place.run(&["mkdir", &at("/a"), &at("/b")]).fine();
    place.run(&["mkdir", "-p", "-m", "711", &at("/deep/er/est")]).fine();
    place.run(&["mkdir", "-p", &at("/deep/er")]).fine();
    place.run(&["mkdir", &at("/a")]).fails(1, "/a: ");
    place.run(&["mkdir", &at("/no/such")]).fails(1, "/no/such: ");
    place.run(&["mkdir", "-m", "9", &at("/x")]).fails(2, "octal");
    fs::write(place.path("file"), "content").unwrap();
    place.run(&["cp", &place.path("file"), &at("/a/f")]).fine();
    place.run(&["cp", &place.path("file"), &at("/a/g")]).fine();
    // Into a directory, to a name, and over one.
    place.run(&["mv", &at("/a/f"), &at("/b")]).fine();
    place.run(&["mv", "-n", &at("/a/g"), &at("/b/f")]).fails(1, "/a/g: ");
    place.run(&["mv", &at("/a/g"), &at("/b/f"), &at("/deep")]).fine();
    place.run(&["mv", "-T", &at("/deep/er"), &at("/a")]).fine();
    place
        .run(&["mv", &at("/deep/g"), &at("/deep/f"), &at("/nothing")])
        .fails(1, "/nothing is no directory");
    place.run(&["mv", &at("/deep"), &at("/deep/est")]).fails(1, "/deep: ");
    place.run(&["mv", &at("/"), &at("/b")]).fails(1, "root of the branch");
    place.run(&["mv", &at("/deep/g"), "elsewhere"]).fails(1, "in no volume");
    // Links of both kinds.
    place.run(&["ln", &at("/deep/f"), &at("/hard")]).fine();
    place.run(&["ln", &at("/deep/g"), &at("/hard")]).fails(1, "-f replaces it");
    place.run(&["ln", "-f", &at("/deep/g"), &at("/hard")]).fine();
    place.run(&["ln", &at("/deep"), &at("/dir")]).fails(1, "a directory has one name");
    place.run(&["ln", "-s", "deep/g", &at("/soft")]).fine();
    place.run(&["ln", "-s", "a/est", &at("/b")]).fine();
    place.run(&["ln", "-sf", "deep/f", &at("/soft")]).fine();
    place.run(&["ln", "-s", "x", &at("/soft")]).fails(1, "-f replaces it");
    // Attributes; a link is followed, but not on the way down.
    place.run(&["chmod", "640", &at("/soft")]).fine();
    place.run(&["chmod", "-R", "700", &at("/b")]).fine();
    place.run(&["chmod", "600", &at("/none"), &at("/hard")]).fails(1, "/none: ");
    place.run(&["chmod", "-R", "u=rwX,g=u-w,o=", &at("/a")]).fine();
    place.run(&["chmod", "-w", &at("/soft")]).fine();
    place.run(&["chmod", "u+w", &at("/deep/f")]).fine();
    place.run(&["chmod", "u+k", &at("/deep/f")]).fails(2, "u+rwX,go-w");
    if getuid().is_root() {
        place.run(&["chown", "-R", "1234:5678", &at("/b"), &at("/deep")]).fine();
        place.run(&["chown", ":7", &at("/soft")]).fine();
    }
}

/// Holds what [`make`] has made against what a mount shows.
fn judge(place: &TestMount) {
    let at = |path: &str| place.dir.join(path);
    let found = |path: &str| fs::symlink_metadata(at(path)).unwrap();
    let bits = |path: &str| found(path).mode() & 0o7777;
    assert_eq!((bits("a"), bits("a/est")), (0o750, 0o750));
    assert!(!at("b/f").exists() && !at("deep/er").exists() && !at("nothing").exists());
    assert_eq!(fs::read(at("deep/g")).unwrap(), b"content");
    assert_eq!(found("hard").ino(), found("deep/g").ino());
    assert_eq!((found("hard").nlink(), found("deep/f").nlink()), (2, 1));
    assert_eq!(fs::read_link(at("soft")).unwrap(), Path::new("deep/f"));
    assert_eq!(fs::read_link(at("b/est")).unwrap(), Path::new("a/est"));
    assert_eq!((bits("deep/f"), bits("b"), bits("hard")), (0o640, 0o700, 0o600));
    if getuid().is_root() {
        let owner = |path: &str| (found(path).uid(), found(path).gid());
        assert_eq!((owner("b"), owner("b/est"), owner("a")), ((1234, 5678), (1234, 5678), (0, 0)));
        assert_eq!((owner("deep/f"), owner("soft"), owner("a/est")), ((1234, 7), (0, 0), (0, 0)));
    }
}

#[test]
fn names_of_a_volume_at_rest_change_without_a_mount() {
    let place = TestMount::with_volume();
    make(&place);
    place.fsck();
    if can_mount() {
        place.mount();
        judge(&place);
    }
}

#[test]
fn names_of_a_volume_in_use_change_under_those_who_look() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    // What the kernel believes from now on: that there is nothing.
    for name in ["a", "b", "deep", "hard", "soft"] {
        assert!(!place.dir.join(name).exists());
    }
    make(&place);
    judge(&place);
    // By the paths that programs use, and what they see of it at once.
    let at = |path: &str| format!("{}/{path}", place.dir());
    let mut open = fs::File::open(place.dir.join("hard")).unwrap();
    place.run(&["mkdir", &at("new")]).fine();
    place.run(&["mv", &at("hard"), &at("new/name")]).fine();
    assert!(!place.dir.join("hard").exists());
    assert_eq!(fs::read(place.dir.join("new/name")).unwrap(), b"content");
    assert_eq!(std::io::read_to_string(&mut open).unwrap(), "content");
    if getuid().is_root() {
        // A directory that gives its group to what is made in it.
        chown(place.dir.join("new"), None, Some(55)).unwrap();
        place.run(&["chmod", "2755", &at("new")]).fine();
        place.run(&["mkdir", &at("new/below")]).fine();
        let below = fs::metadata(place.dir.join("new/below")).unwrap();
        assert_eq!((below.gid(), below.mode() & 0o2000), (55, 0o2000));
    }
    drop(open);
    place.umount();
    place.fsck();
}
