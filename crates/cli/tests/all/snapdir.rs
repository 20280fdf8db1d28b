//! `.snapshots` of mounts that may not change it, of other users, and beside other mounts of the volume.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use crate::common::{self, NOBODY, Nobody, TestMount, can_mount};

/// A volume with a file that is another one in each of the snapshots `s` and `t`, and in the branch.
fn volume() -> TestMount {
    let place = TestMount::with_volume();
    place.mount();
    for name in ["s", "t", "now"] {
        fs::write(place.dir.join("f"), name).unwrap();
        if name != "now" {
            fs::create_dir(place.dir.join(".snapshots").join(name)).unwrap();
        }
    }
    place.umount();
    place
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn text(path: PathBuf) -> String {
    fs::read_to_string(path).unwrap()
}

/// What shows without a right to change: it can be listed and read, and not a name in it becomes another.
fn only_shows(dir: &Path) {
    let snapshots = dir.join(".snapshots");
    assert_eq!(names(&snapshots), ["s", "t"]);
    for name in ["s", "t"] {
        assert_eq!(text(snapshots.join(name).join("f")), name);
        assert!(fs::read_dir(snapshots.join(name).join(".snapshots")).is_err());
    }
    let kinds = [
        fs::create_dir(snapshots.join("u")),
        fs::remove_dir(snapshots.join("s")),
        fs::rename(snapshots.join("s"), snapshots.join("u")),
        fs::write(snapshots.join("s/f"), "x"),
    ];
    for done in kinds {
        assert_eq!(done.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    }
    assert_eq!(names(&snapshots), ["s", "t"]);
}

#[test]
fn a_mount_that_is_only_read_shows_snapshots_and_changes_none() {
    if !can_mount() {
        return;
    }
    let place = volume();
    for (what, options, now) in
        [("", "ro", "now"), ("@s", "rw", "s"), ("", "ro,nodefault_permissions", "now")]
    {
        let image = format!("{}{what}", place.image());
        place.run(&["mount", "-o", options, &image, place.dir()]).fine();
        assert_eq!(text(place.dir.join("f")), now);
        only_shows(&place.dir);
        place.umount();
    }
    place.fsck();
}

/// What programs have looked at is not mounted: lists do not say so, and prune does not keep them for that.
#[test]
fn what_was_looked_at_is_not_kept_by_a_prune() {
    if !can_mount() {
        return;
    }
    let place = volume();
    place.mount();
    let look = || {
        for name in ["s", "t"] {
            assert_eq!(text(place.dir.join(".snapshots").join(name).join("f")), name);
        }
    };
    look();
    common::wait_for("what was read is shown as mounted", || {
        let list = place.run(&["snapshot", "list", "--json", place.dir()]).fine();
        list.matches("\"mounted\":false").count() == 2
    });
    look();
    common::wait_for("what was read is kept", || {
        place.run(&["prune", "--all-names", "--keep", "1y:1y", place.dir()]).fine();
        names(&place.dir.join(".snapshots")) == ["t"]
    });
    place.umount();
    place.fsck();
}

/// Whichever mount deletes it, what a program uses of a snapshot it goes on using.
#[test]
fn what_another_mount_shows_can_be_deleted() {
    if !can_mount() {
        return;
    }
    let place = volume();
    place.mount();
    let other = place.root.path().join("other");
    fs::create_dir(&other).unwrap();
    let at = other.to_str().unwrap();
    place.run(&["mount", &format!("{}@t", place.image()), at]).fine();
    let (here, there) = (place.dir.join(".snapshots"), other.join(".snapshots"));
    assert_eq!(text(there.join("s/f")), "s");
    assert_eq!(names(&there), ["s", "t"]);
    let open = fs::File::open(there.join("s/f")).unwrap();
    fs::remove_dir(here.join("s")).unwrap();
    assert_eq!((names(&here), names(&there)), (vec!["t".to_owned()], vec!["t".to_owned()]));
    assert_eq!(std::io::read_to_string(open).unwrap(), "s");
    // One that is mounted by itself is in use.
    assert_eq!(fs::remove_dir(here.join("t")).unwrap_err().kind(), ErrorKind::ResourceBusy);
    // What the directory says of itself is what it has, whichever way that changed.
    assert_eq!(fs::metadata(&there).unwrap().size(), 1);
    let before = fs::metadata(&there).unwrap().modified().unwrap();
    place.run(&["snapshot", "create", place.dir(), "u"]).fine();
    let now = fs::metadata(&there).unwrap();
    assert!(now.size() == 2 && now.modified().unwrap() > before);
    place.run(&["umount", at]).fine();
    place.umount();
    place.fsck();
}

#[test]
fn another_user_changes_none_but_of_a_directory_of_its_own() {
    let place = volume();
    let Some(nobody) = Nobody::at(&place) else { return };
    place.mount();
    let at = |name: &str| format!("{}/.snapshots/{name}", place.dir());
    assert_eq!(nobody.sh(&format!("cat {}", at("s/f"))).fine(), "s");
    for script in [
        format!("mkdir {}", at("u")),
        format!("rmdir {}", at("s")),
        format!("mv {} {}", at("s"), at("u")),
    ] {
        let said = nobody.sh(&script);
        assert!(said.code != 0 && said.err.contains("Permission denied"), "{said:?}");
    }
    // The directory is that of the root directory's owner.
    chown(&place.dir, Some(NOBODY), None).unwrap();
    nobody.sh(&format!("mkdir {} && rmdir {}", at("u"), at("s"))).fine();
    assert_eq!(names(&place.dir.join(".snapshots")), ["t", "u"]);
    place.umount();

    // Where the kernel checks nothing, the daemon does.
    chown(place.root.path(), Some(NOBODY), None).unwrap();
    chown(&place.dir, Some(NOBODY), None).unwrap();
    fs::set_permissions(&place.image, fs::Permissions::from_mode(0o666)).unwrap();
    let mounted = nobody.run(&["mount", "-o", "nodefault_permissions", place.image(), place.dir()]);
    if mounted.code != 0 {
        return holdfast_base::skip::skipped(&mounted.err);
    }
    nobody.sh(&format!("mkdir {} && cat {}", at("v"), at("t/f"))).fine();
    nobody.run(&["umount", place.dir()]).fine();
    place.mount();
    chown(&place.dir, Some(0), None).unwrap();
    place.umount();
    chown(&place.dir, Some(NOBODY), None).unwrap();
    nobody.run(&["mount", "-o", "nodefault_permissions", place.image(), place.dir()]).fine();
    assert_eq!(nobody.sh(&format!("cat {}", at("t/f"))).fine(), "t");
    for script in [format!("mkdir {}", at("w")), format!("rmdir {}", at("t"))] {
        let said = nobody.sh(&script);
        assert!(said.code != 0 && said.err.contains("Permission denied"), "{said:?}");
    }
    nobody.run(&["umount", place.dir()]).fine();
    place.fsck();
}
