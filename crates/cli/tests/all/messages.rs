//! What commands say of a slip, and that a slip changes nothing.

use std::fs;
use std::os::unix::fs::FileExt;

use crate::common::{TestMount, can_mount, said, signal, wait_for};

#[test]
fn a_slip_in_the_arguments_is_told_with_what_to_write() {
    let place = TestMount::with_volume();
    let image = place.image();
    place.run(&["run", image, "ls"]).fails(125, "write -- before the command");
    place.run(&["run", "--typo", image]).fails(125, "unexpected argument '--typo'");
    let astray = format!("{image}:f");
    place.run(&["cat", &astray]).fails(1, &format!("write {image}:/f"));
    let (below, archive) = (place.inside("/d"), place.path("a.tar"));
    fs::write(&archive, [0; 1024]).unwrap();
    let words = "name the volume or a branch, not a path in it";
    place.run(&["export", "--tar", &below]).fails(1, words);
    place.run(&["import", "--tar", &below, &archive]).fails(1, words);
    place.run(&["mkfs", "--size", "4k", &place.path("x")]).fails(1, "at least 8 MiB");
    for command in ["fsck", "mount", "umount"] {
        let help = place.run(&[command, "--help"]).fine();
        assert!(help.contains("\nExit code"), "{help}");
    }
}

#[test]
fn of_several_snapshots_none_goes_if_one_is_of_another_branch() {
    let place = TestMount::with_volume();
    let (image, main) = (place.image(), format!("{}:main", place.image()));
    place.run(&["snapshot", "create", image, "s"]).fine();
    place.run(&["snapshot", "delete", &main, "s", "work@s"]).fails(2, "work@s of work");
    place.run(&["snapshot", "show", image, "s"]).fine();
    place.run(&["snapshot", "delete", &main, "s"]).fine();
}

#[test]
fn lost_superblocks_are_told_alike_and_what_is_none_once() {
    let place = TestMount::with_volume();
    let file = fs::File::options().write(true).open(&place.image).unwrap();
    file.write_all_at(&vec![0; 1 << 20], 0).unwrap();
    let words = "the far copy is whole: `holdfast fsck -y` writes it back";
    for command in ["ls", "info"] {
        place.run(&[command, place.image()]).fails(1, words);
    }
    let none = place.path("none");
    fs::File::create(&none).unwrap().set_len(64 << 20).unwrap();
    let said = place.run(&["ls", &format!("{none}:/")]);
    assert_eq!((said.code, said.err.matches("the magic is missing").count()), (1, 1), "{said:?}");
}

#[test]
fn the_limit_of_a_branch_is_no_quota_of_the_host() {
    let place = TestMount::with_volume();
    place.run(&["branch", "limit", place.image(), "main", "4M"]).fine();
    let large = place.path("large");
    fs::write(&large, vec![7; 8 << 20]).unwrap();
    let said = place.run(&["cp", &large, &place.inside("/large")]);
    said.fails(1, "the branch has reached its limit; see `holdfast branch limit`");
}

#[test]
fn a_mounted_directory_stands_for_its_volume_and_branch() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    let (image, main) = (place.image(), place.dir());
    place.mount();
    fs::write(place.dir.join("f"), "of main").unwrap();
    fs::create_dir(place.dir.join("d")).unwrap();
    place.run(&["snapshot", "create", main, "s"]).fine();
    place.run(&["fork", main, "work"]).fine();
    let [work, third] = [place.path("work"), place.path("third")];
    for dir in [&work, &third] {
        fs::create_dir(dir).unwrap();
    }

    // Where the file is wanted, and where a directory in a mount is no volume.
    for words in [&["mkfs"][..], &["salvage", "--list"]] {
        let said = place.run(&[words, &[main]].concat());
        said.fails(if words[0] == "mkfs" { 1 } else { 8 }, "name the volume, ");
    }
    let below = format!("{main}/d");
    place.run(&["umount", &below]).fails(32, &format!("lies in the mount {main}; name that"));

    // A branch of the mount around, and a snapshot of the branch that is mounted.
    let inside = |args: &[&str]| said(place.command(args).current_dir(main).output().unwrap());
    inside(&["mount", ":work", &work]).fine();
    fs::write(format!("{work}/f"), "of work").unwrap();
    place.run(&["snapshot", "create", &work, "w"]).fine();
    place.run(&["mount", &format!("{work}@w"), &third]).fine();
    assert_eq!(fs::read_to_string(format!("{third}/f")).unwrap(), "of work");
    let to = format!("{third}:/");
    place.run(&["cp", &format!("{main}/f"), &to]).fails(1, "never changes");
    place.run(&["umount", &third]).fine();

    // Without a branch in the place, that of the directory.
    let files = [main, &work].map(|dir| format!("{dir}:/f"));
    assert_eq!(place.run(&["cp", &files[0], &files[1], "-"]).fine(), "of mainof work");
    place.run(&["cp", &files[0], &files[1]]).fine();
    assert_eq!(fs::read_to_string(format!("{work}/f")).unwrap(), "of main");

    // What is below `.snapshots` is of a snapshot, unless it is a directory of the volume.
    fs::write(place.dir.join("f"), "later").unwrap();
    let snapshot = format!("{main}/.snapshots/s");
    assert_eq!(place.run(&["ls", &snapshot]).fine(), "d\nf\n");
    assert_eq!(place.run(&["cat", &format!("{snapshot}/f")]).fine(), "of main");
    place.run(&["umount", main]).fine();
    place.run(&["mount", "-o", "snapdir=off", image, main]).fine();
    fs::create_dir_all(&snapshot).unwrap();
    fs::write(format!("{snapshot}/f"), "of the directory").unwrap();
    assert_eq!(place.run(&["cat", &format!("{snapshot}/f")]).fine(), "of the directory");

    // A branch that is mounted to be read is not the volume.
    place.run(&["umount", &work]).fine();
    place.run(&["mount", "-o", "ro", &format!("{image}:work"), &work]).fine();
    let words = "`work` is mounted read-only";
    place.run(&["snapshot", "create", &format!("{image}:work"), "x"]).fails(1, words);
    place.run(&["umount", &work]).fine();
    place.umount();
    place.fsck();
}

#[test]
fn a_dead_daemon_is_told_once() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    let daemon = place.daemon();
    signal(daemon, "KILL");
    wait_for("the daemon lives", || fs::read_dir(&place.dir).is_err());
    let dead = place.run(&["snapshot", "delete", place.dir(), "a", "b", "c"]);
    dead.fails(1, "run: holdfast umount");
    place.run(&["umount", place.dir()]).fine();
}
