//! `holdfast salvage` and `holdfast image` on real directories: attributes, links, reports, exit codes, and names that are to lead astray.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use crate::common::TestMount;
use crate::common::loop_device::LoopDevice;
use crate::common::users::{OTHER, USER, as_user, place_of_user};

/// A tree of all kinds of files, in a volume that was closed.
fn filled() -> TestMount {
    let place = TestMount::with_volume();
    let source = place.root.path().join("source");
    fs::create_dir_all(source.join("deep/er/still")).unwrap();
    fs::write(source.join("small"), "small\n").unwrap();
    fs::write(source.join("deep/large"), vec![7; 300_000]).unwrap();
    fs::set_permissions(source.join("small"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::hard_link(source.join("small"), source.join("deep/er/linked")).unwrap();
    symlink("../small", source.join("deep/link")).unwrap();
    let sparse = fs::File::create(source.join("deep/er/still/sparse")).unwrap();
    sparse.write_all_at(b"in the middle", 5 << 20).unwrap();
    sparse.set_len(10 << 20).unwrap();
    // Where the host has none, none is compared.
    let _ = rustix::fs::setxattr(
        source.join("small"),
        "user.note",
        b"kept",
        rustix::fs::XattrFlags::empty(),
    );
    let time = rustix::fs::Timespec { tv_sec: 1_000_000_000, tv_nsec: 5 };
    let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
    let flags = rustix::fs::AtFlags::empty();
    rustix::fs::utimensat(rustix::fs::CWD, source.join("deep"), &times, flags).unwrap();
    place.run(&["cp", "-a", &place.path("source"), &place.inside("/")]).fine();
    place
}

/// What cannot be is said, with the code for it, and before the volume is read.
#[test]
fn a_salvage_that_cannot_be_says_so_in_a_list_and_for_all_trees() {
    let place = filled();
    let list = ["salvage", "--list", "--root", "3", place.image()];
    place.run(&list).fails(8, "no root was found");
    let said = place.run(&[&list[..], &["--json"]].concat());
    assert!(said.code == 8 && said.err.contains("no root was found"), "{said:?}");
    let out = place.root.path().join("out");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("mine"), "mine").unwrap();
    for all in [&[][..], &["--all"]] {
        let salvage = ["salvage", place.image(), out.to_str().unwrap()];
        place.run(&[&salvage[..], all].concat()).fails(8, "not empty");
    }
    assert_eq!(fs::read_dir(&out).unwrap().count(), 1);
    fs::remove_file(out.join("mine")).unwrap();
    if rustix::process::geteuid().is_root() {
        chown(&out, Some(USER), Some(USER)).unwrap();
        let salvage = ["salvage", "--all", place.image(), out.to_str().unwrap()];
        place.run(&salvage).fails(8, "another user");
        chown(&out, Some(0), Some(0)).unwrap();
    }
    place.run(&["salvage", "--all", place.image(), out.to_str().unwrap()]).fine();
    compare(&place.root.path().join("source"), &out.join("main/source"));
}

/// Everything below two directories is the same.
fn compare(one: &Path, two: &Path) {
    let mut names: Vec<_> =
        fs::read_dir(one).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let mut others: Vec<_> =
        fs::read_dir(two).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    others.sort();
    assert_eq!(names, others, "{}", two.display());
    for name in names {
        let (one, two) = (one.join(&name), two.join(&name));
        let (a, b) = (one.symlink_metadata().unwrap(), two.symlink_metadata().unwrap());
        let what = two.display();
        assert_eq!((a.mode(), a.uid(), a.gid()), (b.mode(), b.uid(), b.gid()), "{what}");
        assert_eq!((a.mtime(), a.mtime_nsec()), (b.mtime(), b.mtime_nsec()), "{what}");
        if a.is_dir() {
            compare(&one, &two);
        } else if a.is_symlink() {
            assert_eq!(fs::read_link(&one).unwrap(), fs::read_link(&two).unwrap(), "{what}");
        } else {
            assert_eq!(a.nlink(), b.nlink(), "{what}");
            assert!(fs::read(&one).unwrap() == fs::read(&two).unwrap(), "{what}");
            let note = |path: &Path| {
                let mut value = Vec::with_capacity(100);
                let room = rustix::buffer::spare_capacity(&mut value);
                rustix::fs::getxattr(path, "user.note", room).is_ok().then_some(value)
            };
            assert_eq!(note(&one), note(&two), "{what}");
        }
    }
}

fn zero(image: &str, at: u64, len: usize) {
    let file = fs::File::options().write(true).open(image).unwrap();
    file.write_all_at(&vec![0; len], at).unwrap();
}

#[test]
fn a_tree_comes_out_as_it_was_without_a_superblock() {
    let place = filled();
    zero(place.image(), 0, 1 << 20);
    zero(place.image(), (64 << 20) - (64 << 10), 64 << 10);
    let source = place.root.path().join("source");
    let said = place.run(&["salvage", place.image(), &place.path("out")]);
    // What was changed behind the last checkpoint cannot be known.
    assert_eq!((said.code, said.err.as_str()), (1, ""), "{said:?}");
    assert!(said.out.contains("perhaps not of the last version; state: the root at"), "{said:?}");
    compare(&source, &place.root.path().join("out/source"));
    let sparse = place.root.path().join("out/source/deep/er/still/sparse").metadata().unwrap();
    assert!(sparse.blocks() * 512 < 1 << 20, "holes stay holes");
    // What is there stays.
    place.run(&["salvage", place.image(), &place.path("out")]).fails(8, "out");
    let list = place.run(&["salvage", "--list", place.image()]).fine();
    assert!(list.contains("no superblock") && list.contains("root at"), "{list}");
    let json = place.run(&["salvage", "--list", "--json", place.image()]).fine();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["state"]["trees"][0]["name"], "main", "{json}");
}

#[test]
fn what_is_whole_ends_with_0_and_nothing_with_8() {
    let place = filled();
    place.run(&["snapshot", "create", place.image(), "s"]).fine();
    place.run(&["fork", place.image(), "work"]).fine();
    let said = place.run(&["salvage", "--all", place.image(), &place.path("out")]).fine();
    assert!(said.contains("the superblock of epoch"), "{said}");
    for tree in ["main", "main@s", "work"] {
        let tree = place.root.path().join("out").join(tree).join("source");
        compare(&place.root.path().join("source"), &tree);
    }
    place.run(&["salvage", "--branch", "none", place.image(), &place.path("o")]).fails(8, "none");
    let one = place
        .run(&["salvage", "--branch", "main@s", "--json", place.image(), &place.path("o")])
        .fine();
    let one: serde_json::Value = serde_json::from_str(&one).unwrap();
    assert_eq!(one["whole"], one["found"], "{one}");
    fs::write(place.path("empty"), vec![0; 1 << 20]).unwrap();
    place
        .run(&["salvage", &place.path("empty"), &place.path("p")])
        .fails(8, "nothing of a Holdfast volume");
    place
        .run(&["salvage", "--list", &place.path("empty")])
        .fails(8, "nothing of a Holdfast volume");
    place.run(&["salvage", &place.path("missing"), &place.path("p")]).fails(8, "missing");
}

/// Whatever path leads to the image.
#[test]
fn a_report_is_never_written_over_what_is_salvaged() {
    let place = filled();
    let (image, before) = (place.image(), fs::read(place.image()).unwrap());
    let names = [place.path("hard"), place.path("link"), place.path("deep/../volume.img")];
    fs::create_dir(place.path("deep")).unwrap();
    fs::hard_link(image, &names[0]).unwrap();
    symlink(image, &names[1]).unwrap();
    for report in names.iter().map(String::as_str).chain([image]) {
        let said = place.run(&["salvage", "--report", report, image, &place.path("out")]);
        said.fails(8, "is there already");
        assert!(fs::read(image).unwrap() == before, "{report}");
    }
    fs::remove_file(&names[0]).unwrap();
    assert!(!Path::new(&place.path("out")).exists(), "nothing was made");
    let Some(device) = LoopDevice::over(image) else { return };
    let device = device.path.as_str();
    let args = ["salvage", "--report", image, device, &place.path("out")];
    place.run(&args).fails(8, "is there already");
    let args = ["salvage", "--report", device, image, &place.path("out")];
    place.run(&args).fails(8, "is there already");
    assert!(fs::read(image).unwrap() == before);
}

/// Nor over the report of an earlier salvage; and one that makes nothing leaves no report.
#[test]
fn a_salvage_that_is_refused_leaves_every_report_as_it_was() {
    let place = filled();
    let (report, out) = (place.path("report"), place.path("out"));
    place.run(&["salvage", "--report", &report, place.image(), &out]).fine();
    let before = fs::read(&report).unwrap();
    let again = place.path("again");
    place.run(&["salvage", "--report", &report, place.image(), &again]).fails(8, "already");
    assert!(fs::read(&report).unwrap() == before && !Path::new(&again).exists());
    let second = place.path("second");
    place.run(&["salvage", "--report", &second, place.image(), &out]).fails(8, "not empty");
    let args = ["salvage", "--branch", "none", "--report", &second, place.image(), &again];
    place.run(&args).fails(8, "none");
    assert!(!Path::new(&second).exists(), "a report of nothing");
}

/// A user who is not root cannot give files away, and a name of an attribute may be none that the host has.
#[test]
fn attributes_that_the_host_does_not_take_are_named() {
    let Some(place) = place_of_user() else { return };
    let source = place.path("source");
    fs::create_dir(&source).unwrap();
    for (name, owner) in [("own", USER), ("given", OTHER)] {
        let path = format!("{source}/{name}");
        fs::write(&path, "content").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o604)).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
    }
    chown(&source, Some(USER), Some(USER)).unwrap();
    place.run(&["mkfs", "-q", "--size", "64M", "--owner", "1:1", place.image()]).fine();
    place.run(&["cp", "-a", &source, &place.inside("/")]).fine();
    chown(place.image(), Some(USER), Some(USER)).unwrap();
    let (report, out) = (place.path("u/report"), place.path("u/out"));
    let args = ["salvage", "--report", &report, place.image(), &out];
    let said = as_user(USER, &place.path("holdfast"), &args);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
    assert!(said.out.contains(", 1 without some attributes"), "{said:?}");
    let lines = fs::read_to_string(&report).unwrap();
    assert!(lines.contains("/source/own: whole\n"), "{lines}");
    assert!(lines.contains("/source/given: whole; not set: owner\n"), "{lines}");
    let given = fs::metadata(format!("{out}/source/given")).unwrap();
    assert_eq!((given.mode() & 0o777, given.uid()), (0o604, USER), "the rest is set");
    fs::remove_dir_all(&out).unwrap();
    fs::remove_file(&report).unwrap();
    let args = ["salvage", "--json", "--report", &report, place.image(), &out];
    let said = as_user(USER, &place.path("holdfast"), &args).fine();
    let summary: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&summary["without_attributes"], &summary["whole"]), (&1.into(), &summary["found"]));
    let lines = fs::read_to_string(&report).unwrap();
    assert!(
        lines.contains(r#""whole":true"#) && lines.contains(r#""not_set":["owner"]"#),
        "{lines}"
    );
}

#[test]
fn each_file_has_a_line_in_the_report() {
    let place = filled();
    let image = fs::read(place.image()).unwrap();
    let at = image.windows(4096).step_by(4096).position(|block| block == [7; 4096]).unwrap();
    zero(place.image(), at as u64 * 4096, 4096);
    let report = place.path("report");
    let said = place.run(&["salvage", "--report", &report, place.image(), &place.path("out")]);
    assert_eq!((said.code, said.err.as_str()), (1, ""), "{said:?}");
    let lines = fs::read_to_string(&report).unwrap();
    // By the name of it that comes first.
    let names = ["/source/small: whole\n", "/source/deep/er/linked: whole\n"];
    assert!(names.iter().any(|line| lines.contains(line)), "{lines}");
    assert!(lines.contains("/source/deep/large: 4096 bytes missing at "), "{lines}");
    let salvaged = fs::read(place.path("out/source/deep/large")).unwrap();
    let wrong = salvaged.iter().filter(|byte| **byte != 7).count();
    assert_eq!((salvaged.len(), wrong), (300_000, 4096));
    let args = ["salvage", "--json", "--unproved", place.image(), &place.path("all")];
    let said = place.run(&args);
    let line: serde_json::Value = serde_json::from_str(said.out.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&line["whole"], &line["unproved"]["bytes"]),
        (&false.into(), &4096.into()),
        "{line}"
    );
}

#[test]
fn an_image_has_the_metadata_alone() {
    let place = filled();
    let copy = place.path("copy.img");
    place.run(&["image", place.image(), &copy]).fine();
    assert!(place.run(&["fsck", "-n", &copy]).fine().contains("clean"));
    let names = place.run(&["ls", &format!("{copy}:/source/deep")]).fine();
    assert!(names.contains("large"), "{names}");
    assert!(!place.run(&["cat", &format!("{copy}:/source/small")]).out.contains("small"));
    let found = fs::metadata(&copy).unwrap();
    assert_eq!((found.len(), found.mode() & 0o777), (64 << 20, 0o600));
    assert!(found.blocks() * 512 < 1 << 20, "{} blocks", found.blocks());
    place.run(&["image", place.image(), &copy]).fails(1, "copy.img");
}

#[test]
fn a_copy_with_other_names_is_mounted_and_has_none_of_the_old_ones() {
    let place = filled();
    place.run(&["snapshot", "create", place.image(), "monday"]).fine();
    let out = place.path("out.img");
    let args = ["image", "--scramble-names", place.image(), &out];
    assert!(place.run(&args).fine().contains(" 0 damaged"));
    place.run(&["fsck", "-n", &out]).fine();
    let names = place.run(&["ls", &format!("{out}:/")]).fine();
    assert!(names.trim().len() == "source".len() && !names.contains("source"), "{names}");
    let bytes = fs::read(&out).unwrap();
    for name in [&b"source"[..], b"sparse", b"monday", b"linked", b"../small"] {
        assert!(!bytes.windows(name.len()).any(|window| window == name), "{name:?}");
    }
    let both = ["image", "--scramble-names", "--content", place.image(), &place.path("both")];
    assert_ne!(place.run(&both).code, 0, "content has names");
}
