//! What `make install` puts elsewhere: the unit for systemd, and the links under which system programs look for this one.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{TestMount, can_mount, said, signal, wait_until_ended};

/// The top of the repository.
fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The unit as `make install` writes it, for a program below `prefix`.
fn unit(prefix: &str) -> String {
    installed("holdfast@.service.in", prefix)
}

fn installed(name: &str, prefix: &str) -> String {
    let unit = fs::read_to_string(top().join("packaging").join(name)).unwrap();
    let unit = unit.replace("@PREFIX@", prefix);
    let other = |line: &&str| line.contains('@') && !line.ends_with("=holdfast@%i.service");
    let rest: Vec<&str> = unit.lines().filter(other).collect();
    assert!(rest.iter().all(|line| line.starts_with('#')), "{rest:?}");
    unit
}

/// The program's arguments in the unit's line `key`, with the variables of a volume in their places.
fn arguments(unit: &str, key: &str, place: &TestMount, options: &str) -> Vec<String> {
    let line = unit.lines().find_map(|line| line.strip_prefix(&format!("{key}="))).unwrap();
    let line = line.replace("${VOLUME}", place.image()).replace("${DIR}", place.dir());
    let line = line.replace("${OPTIONS}", options).replace('"', "");
    line.split(' ').skip(1).map(String::from).collect()
}

#[test]
fn systemd_understands_the_unit_and_boots_with_it() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        holdfast_base::skip::skipped("there is no systemd-analyze here");
        return;
    }
    let place = TestMount::new();
    let bin = place.root.path().join("bin");
    fs::create_dir(&bin).unwrap();
    symlink(env!("CARGO_BIN_EXE_holdfast"), bin.join("holdfast")).unwrap();
    let units = place.root.path().join("units");
    let own = units.join("holdfast@data.service.d");
    fs::create_dir_all(&own).unwrap();
    fs::write(units.join("holdfast@.service"), unit(place.root.path().to_str().unwrap())).unwrap();
    symlink("holdfast@.service", units.join("holdfast@data.service")).unwrap();
    let volume = "[Unit]\nRequiresMountsFor=/srv/data.holdfast /mnt/data\n[Service]\n\
        Environment=VOLUME=/srv/data.holdfast DIR=/mnt/data OPTIONS=noatime\n";
    fs::write(own.join("volume.conf"), volume).unwrap();
    for what in ["prune", "scrub"] {
        let root = place.root.path().to_str().unwrap();
        let service = installed(&format!("holdfast-{what}@.service.in"), root);
        fs::write(units.join(format!("holdfast-{what}@.service")), service).unwrap();
        let timer = format!("holdfast-{what}@.timer");
        fs::copy(top().join("packaging").join(&timer), units.join(&timer)).unwrap();
        for kind in ["service", "timer"] {
            let one = format!("holdfast-{what}@data.{kind}");
            symlink(format!("holdfast-{what}@.{kind}"), units.join(one)).unwrap();
        }
    }
    for name in [
        "holdfast@.service",
        "holdfast@data.service",
        "holdfast-prune@data.service",
        "holdfast-prune@data.timer",
        "holdfast-scrub@data.service",
        "holdfast-scrub@data.timer",
    ] {
        // It puts the unit into the boot of this machine, as far as that has units.
        let mut verify = Command::new("systemd-analyze");
        let verified =
            said(verify.args(["verify", "--man=no"]).arg(units.join(name)).output().unwrap());
        assert!(
            !verified.err.contains("holdfast") && !verified.err.contains("cycle"),
            "{verified:?}"
        );
        assert_eq!(verified.code, 0, "{verified:?}");
    }
}

#[test]
fn what_the_unit_runs_works_also_after_a_daemon_that_was_killed() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    let unit = unit("/opt/holdfast");
    let run = |key: &str| {
        let args = arguments(&unit, key, &place, "noatime");
        place.run(&args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let start = || {
        run("ExecStartPre").fine();
        let args = arguments(&unit, "ExecStart", &place, "noatime");
        let socket = std::os::unix::net::UnixDatagram::bind(place.path("notify")).unwrap();
        let mut server = place.command(&args.iter().map(String::as_str).collect::<Vec<_>>());
        server.env("NOTIFY_SOCKET", place.path("notify")).stderr(std::process::Stdio::null());
        let server = server.spawn().unwrap();
        let mut word = [0; 64];
        let length = socket.recv(&mut word).unwrap();
        assert_eq!(&word[..length], b"READY=1");
        fs::remove_file(place.path("notify")).unwrap();
        assert!(place.mount_line().unwrap().contains("noatime"));
        server
    };
    let mut server = start();
    fs::write(place.dir.join("file"), "content").unwrap();
    place.run(&["sync", place.dir()]).fine();
    signal(server.id(), "KILL");
    wait_until_ended(server.id());
    server.wait().unwrap();
    assert!(place.is_mounted(), "it is in the way");
    let mut server = start();
    assert_eq!(fs::read_to_string(place.dir.join("file")).unwrap(), "content");
    run("ExecStop").fine();
    assert_eq!(server.wait().unwrap().code(), Some(0));
    assert!(!place.is_mounted());
}

#[test]
fn what_the_timer_runs_prunes() {
    let place = TestMount::with_volume();
    place.run(&["snapshot", "create", place.image(), "one"]).fine();
    let unit = installed("holdfast-prune@.service.in", "/opt/holdfast");
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let variables = unit.lines().find_map(|line| line.strip_prefix("Environment=")).unwrap();
    let mut line = line.replace("${DIR}", place.image()).replace('"', "");
    for variable in variables.split(' ') {
        let (name, value) = variable.split_once('=').unwrap();
        line = line.replace(&format!("${{{name}}}"), value);
    }
    let args: Vec<&str> = line.split(' ').skip(1).collect();
    assert_eq!(place.run(&args).fine(), "", "a young snapshot stays");
}

#[test]
fn what_the_timer_runs_scrubs() {
    let place = TestMount::with_volume();
    let unit = installed("holdfast-scrub@.service.in", "/opt/holdfast");
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    for rate in ["", "--rate=50M "] {
        let line = line.replace("$SCRUB ", rate).replace("\"${DIR}\"", place.image());
        let args: Vec<&str> = line.split(' ').skip(1).collect();
        let mut scrub = place.command(&args);
        let said = said(scrub.env("XDG_STATE_HOME", place.path("state")).output().unwrap());
        assert!(said.fine().contains("nothing is damaged"));
    }
}

#[test]
fn every_name_with_a_page_is_linked() {
    let place = TestMount::new();
    let pages = place.root.path().join("man");
    fs::create_dir(&pages).unwrap();
    place.run(&["man", "--links", pages.to_str().unwrap()]).fine();
    let mut names: Vec<String> = fs::read_dir(&pages)
        .unwrap()
        .map(|page| page.unwrap().file_name().into_string().unwrap().replace(".8", ""))
        .collect();
    names.sort();
    let makefile = fs::read_to_string(top().join("Makefile")).unwrap();
    let line = makefile.lines().find_map(|line| line.strip_prefix("LINKS := ")).unwrap();
    let mut linked: Vec<&str> = line.split(' ').collect();
    linked.sort_unstable();
    assert_eq!(linked, names);
}
