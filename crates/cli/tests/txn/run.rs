//! `holdfast run`: commands in forks of their own, which are thrown away or kept.

use std::fs;
use std::path::Path;

use crate::common::{Said, TestMount, said};
use crate::{can_run, lineage, mounted, names, text};

#[test]
fn a_command_runs_in_a_fork_of_its_own() {
    if !can_run() {
        return;
    }
    let place = mounted();
    let (dir, image) = (place.dir(), place.image());
    place.run(&["snapshot", "create", dir, "s"]).fine();
    fs::write(place.dir.join("file"), "two\n").unwrap();
    let sh = |args: &[&str], script: &str| {
        place.run(&[&["run"], args, &["--", "sh", "-c", script]].concat())
    };
    let at = sh(&[dir], "cat file; echo changed > file; pwd").fine();
    let (file, at) = at.split_once('\n').unwrap();
    assert_eq!(file, "two");
    assert!(!Path::new(at.trim_end()).exists(), "{at}");
    assert_eq!(sh(&["--fork", "@s", image], "cat file; exit 0").fine(), "one\n");
    assert_eq!(sh(&[&format!("{image}@s")], "cat file").fine(), "one\n");
    assert_eq!(sh(&[dir], "exit 7").code, 7);
    sh(&["--fork", "none", dir], "true")
        .fails(125, "there is no branch `none`; a snapshot is written @none");
    sh(&["--fork", "@s", &format!("{dir}@s")], "true").fails(125, "once");
    // At a place that is chosen, where others see what they saw.
    let other = place.path("other");
    fs::create_dir(&other).unwrap();
    let said = sh(&["--at", &other, "--keep", "kept", dir], "echo kept > file; pwd; exit 5");
    assert_eq!((said.code, said.out, said.err.as_str()), (5, format!("{other}\n"), ""));
    assert!(names(Path::new(&other)).is_empty());
    assert_eq!(text(&place, "file"), "two\n");
    // No branch is kept in which nothing ran, and mount's exit codes are none of this.
    let unkept = |at: &str, command: &str| {
        place.run(&["run", "--keep", "unkept", "--at", at, dir, "--", command])
    };
    unkept("/no/such", "true").fails(125, "/no/such");
    unkept(&other, "/no/such").fails(127, "/no/such");
    sh(&["--keep", "kept", dir], "touch ran").fails(125, "kept");
    assert_eq!(lineage(&place).0, ["main", "kept"]);
    // Without a place, it is the mount around the working directory.
    let args = ["run", "--fork", "kept", "--", "cat", "file"];
    let here = said_in(&place, &args);
    assert_eq!(here.fine(), "kept\n");
    assert_eq!(lineage(&place).0, ["main", "kept"]);
    place.umount();
    place.fsck();
}

fn said_in(place: &TestMount, args: &[&str]) -> Said {
    said(place.command(args).current_dir(&place.dir).output().unwrap())
}
