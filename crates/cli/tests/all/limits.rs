//! A daemon at the limits of its system: no further thread, no further file, hardly any memory (P7, P11).
//!
//! Without threads and files everything works, slower, and no caller gets an error. Without memory the system kills the
//! daemon. Whatever happens, what was synced is there and the volume is whole.
//!
//! Threads and memory are limited by cgroups, version 1 or 2; where this test may make none it says so.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use rustix::fs::XattrFlags;
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::common::{self, TestMount, can_mount};
use crate::host;
use crate::host::Group;

/// Files whose attributes make more nodes than one thread writes alone: 4 MiB.
const FILES: usize = 1800;
const VALUE: usize = 3000;
/// So little memory for nodes that checkpoints are made meanwhile, and not only at the end.
const CACHE: &str = "cache=16M";

fn place() -> TestMount {
    let place = host::volume(None);
    place.run(&["mount", "-o", CACHE, place.image(), place.dir()]).fine();
    place
}

fn value(number: usize, round: u8) -> Vec<u8> {
    vec![number as u8 ^ round; VALUE]
}

/// Gives so many files an attribute, by several programs at once; each fsyncs some of them.
fn work(dir: &Path, round: u8) -> io::Result<()> {
    std::thread::scope(|scope| {
        let works: Vec<_> = (0..6)
            .map(|worker| {
                scope.spawn(move || -> io::Result<()> {
                    for number in (worker..FILES).step_by(6) {
                        let path = dir.join(format!("file-{number}"));
                        let mut file = File::options().append(true).create(true).open(&path)?;
                        let value = value(number, round);
                        rustix::fs::fsetxattr(&file, "user.a", &value, XattrFlags::empty())?;
                        if number % 64 == 0 {
                            file.write_all(&[round; 5000])?;
                            file.sync_all()?;
                        }
                    }
                    let mut large = File::create(dir.join(format!("large-{worker}")))?;
                    for _ in 0..4 {
                        large.write_all(&vec![round; 1 << 20])?;
                    }
                    large.sync_all()
                })
            })
            .collect();
        works.into_iter().try_for_each(|work| work.join().unwrap())
    })
}

/// What every file holds: of which round its attribute is.
fn look(dir: &Path, rounds: &[u8]) {
    for number in 0..FILES {
        let path = dir.join(format!("file-{number}"));
        let mut found = vec![0; VALUE];
        let len = rustix::fs::getxattr(&path, "user.a", &mut found[..])
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(len, VALUE);
        assert!(rounds.iter().any(|&round| found == value(number, round)), "file {number}");
    }
}

/// Works at the limit that `limit` sets for the daemon; everything works. `None`: it cannot be set here.
fn works_at<L>(limit: impl FnOnce(u32) -> Option<L>) {
    if !can_mount() {
        return;
    }
    let place = place();
    work(&place.dir, 1).unwrap();
    place.run(&["sync", place.dir()]).fine();
    let daemon = place.daemon();
    let Some(limit) = limit(daemon) else { return };
    for round in 2..5 {
        work(&place.dir, round).unwrap_or_else(|error| panic!("round {round}: {error}"));
        place.run(&["sync", place.dir()]).fine();
    }
    look(&place.dir, &[4]);
    // At the limit, too: the last checkpoint wants several threads.
    place.umount();
    common::wait_until_ended(daemon);
    drop(limit);
    place.fsck();
    place.mount();
    look(&place.dir, &[4]);
    place.umount();
}

#[test]
fn a_daemon_that_may_start_no_further_thread_loses_nothing_and_goes_on() {
    works_at(|daemon| {
        let group = Group::with("pids", daemon)?;
        let present = group.read("pids.current")?;
        assert!(present > 5, "the daemon has {present} threads");
        group.write("pids.max", present);
        Some(group)
    });
}

#[test]
fn a_daemon_that_may_open_no_further_file_loses_nothing_and_goes_on() {
    works_at(|daemon| {
        let open = fs::read_dir(format!("/proc/{daemon}/fd")).unwrap().count() as u64;
        let limit = Rlimit { current: Some(open), maximum: Some(open) };
        let pid = Pid::from_raw(daemon as i32).unwrap();
        match prlimit(Some(pid), Resource::Nofile, limit) {
            Ok(_) => Some(()),
            Err(error) => {
                holdfast_base::skip::skipped(format_args!(
                    "the limit of another process cannot be set here: {error}"
                ));
                None
            }
        }
    });
}

#[test]
fn a_daemon_that_gets_no_further_memory_loses_nothing_that_was_synced() {
    if !can_mount() {
        return;
    }
    let place = place();
    work(&place.dir, 1).unwrap();
    place.run(&["sync", place.dir()]).fine();
    let daemon = place.daemon();
    let Some(group) = Group::with("memory", daemon) else { return };
    // What it has is counted where it was; what it takes from now on is counted here.
    let name = ["memory.max", "memory.limit_in_bytes"]
        .into_iter()
        .find(|name| group.path.join(name).exists())
        .expect("the controller has a limit");
    group.write(name, 8 << 20);
    let done = work(&place.dir, 2);
    let is_alive = place.run(&["stats", "--json", place.dir()]).code == 0;
    println!("at the limit: {done:?}, the daemon lives: {is_alive}");
    assert!(done.is_ok() || !is_alive, "{done:?}: a daemon that lives serves all");
    group.write(name, 1 << 30);
    if is_alive {
        place.umount();
    } else {
        let umount = std::process::Command::new("umount").arg("-l").arg(&place.dir).status();
        assert!(umount.unwrap().success());
    }
    common::wait_until_ended(daemon);
    drop(group);
    place.fsck();
    place.mount();
    look(&place.dir, if is_alive { &[2] } else { &[1, 2] });
    place.umount();
}
