//! A volume that is reached by another name than the one it is open by, and a program that has another name.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::common::{self, PROGRAM, TestMount, can_mount, said, wait_until_ended};

/// An overlay of two directories, which shows what is in the upper one.
struct Overlay(PathBuf);

impl Overlay {
    fn at(place: &TestMount) -> Option<Overlay> {
        let [lower, upper, work, merged] =
            ["lower", "upper", "work", "merged"].map(|name| place.path(name));
        for dir in [&lower, &upper, &work, &merged] {
            fs::create_dir(dir).unwrap();
        }
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
        let mut mount = Command::new("mount");
        mount.args(["-t", "overlay", "-o", &options, "overlay", &merged]);
        if !mount.stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
            holdfast_base::skip::skipped("no overlay can be mounted here");
            return None;
        }
        Some(Overlay(merged.into()))
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Each of the two names has locks of its own: the guard tells.
#[test]
fn a_file_that_is_open_by_an_overlay_is_not_opened_in_place() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    let Some(_overlay) = Overlay::at(&place) else { return };
    fs::rename(&place.image, place.path("upper/v")).unwrap();
    let (shown, in_place) = (place.path("merged/v"), place.path("upper/v"));
    let other = place.path("other");
    fs::create_dir(&other).unwrap();
    place.run(&["mount", &shown, place.dir()]).fine();
    fs::write(place.dir.join("f"), "1").unwrap();
    let refused = place.run(&["mount", &in_place, &other]);
    refused.fails(32, "in use");
    fs::write(place.dir.join("g"), "2").unwrap();
    place.umount();
    // One that was left in order has no owner.
    place.run(&["mount", &in_place, &other]).fine();
    assert_eq!(fs::read_to_string(format!("{other}/g")).unwrap(), "2");
    place.run(&["umount", &other]).fine();
    place.run(&["fsck", "-n", &in_place]).fine();
}

/// umount(8) returns before the daemon has written everything, and what comes behind it waits, whatever the program is called.
#[test]
fn a_program_of_any_name_waits_for_its_daemon() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    let program = place.path("hx");
    common::copy_program(PROGRAM, &program);
    let run = |args: &[&str]| {
        said(Command::new(&program).args(args).stdin(Stdio::null()).output().unwrap())
    };
    for round in 0..2 {
        run(&["mount", place.image(), place.dir()]).fine();
        let daemon = place.daemon();
        fs::write(place.dir.join(round.to_string()), vec![7; 16 << 20]).unwrap();
        // Its daemon has that still to write.
        common::wait_for("it stays busy", || {
            let mut umount = Command::new("umount");
            umount.args(["-i", place.dir()]).stderr(Stdio::null()).status().unwrap().success()
        });
        run(&["fsck", place.image()]).fine();
        wait_until_ended(daemon);
    }
}
