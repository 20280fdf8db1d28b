//! Two ordinary users on one machine, one of whom means harm: `OTHER` tries to read, change, end, hold up, lead astray or speak for what
//! is of `USER`, and of root. Callers of root's daemon who mean harm are in `hostile_callers.rs`.
//!
//! A program of its own: it puts sockets that never answer where each `holdfast list` of root looks, in all programs.

#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod exchanges;
mod liars;
mod mute;
mod names;
mod places;
mod table;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use common::users::{OTHER, USER, place_of_user, shell};
use common::{Said, TestMount};

/// Seconds that a command has: no other user may hold it up so long.
const PATIENCE: &str = "60";

/// A list of daemons waits for each one that never answers. So a test that starts such daemons locks this for writing, and a test that
/// lists daemons for reading.
static LISTS: RwLock<()> = RwLock::new(());

/// Lists are not held up by another test.
fn lists() -> RwLockReadGuard<'static, ()> {
    LISTS.read().unwrap_or_else(PoisonError::into_inner)
}

/// A directory of the other user.
fn their_directory(path: &str) {
    fs::create_dir(path).unwrap();
    chown(path, Some(OTHER), Some(OTHER)).unwrap();
}

/// A shell of `USER`, who has no session: a home, and an own directory for temporary files.
fn user(place: &TestMount, script: &str) -> Said {
    let home = place.path("u");
    let own = format!("unset XDG_RUNTIME_DIR; export HOME={home} TMPDIR={home}; cd {home}");
    shell(USER, &format!("{own}; {script}"))
}

/// The program as `USER` calls it, which ends.
fn run(place: &TestMount, args: &str) -> Said {
    user(place, &format!("timeout {PATIENCE} {} {args}", place.path("holdfast")))
}

/// The same, without an own directory for temporary files.
fn shared(place: &TestMount, args: &str) -> Said {
    user(place, &format!("unset TMPDIR; timeout {PATIENCE} {} {args}", place.path("holdfast")))
}

/// A volume that `USER` has mounted.
fn mounted() -> Option<TestMount> {
    let place = place_of_user()?;
    run(&place, &format!("mkfs -q --size 64M {}", place.image())).fine();
    let mounted = run(&place, &format!("mount {} {}", place.image(), place.dir()));
    assert_eq!(mounted.code, 0, "{mounted:?}");
    user(&place, &format!("echo mine >{}/secret", place.dir())).fine();
    Some(place)
}

/// The name that a user's directory of sockets may have in `/tmp`; removed again.
struct InTmp(PathBuf);

impl InTmp {
    fn of(user: u32) -> InTmp {
        let it = InTmp(PathBuf::from(format!("/tmp/holdfast-{user}")));
        it.remove();
        it
    }

    fn remove(&self) {
        let _ = fs::remove_file(&self.0);
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Drop for InTmp {
    fn drop(&mut self) {
        self.remove();
    }
}

/// A mount of `OTHER`, which goes with this, also when a test fails.
struct TheirMount(String);

impl Drop for TheirMount {
    fn drop(&mut self) {
        let mut umount = Command::new("umount");
        let _ = umount.args(["-l", &self.0]).stderr(Stdio::null()).status();
    }
}

/// A program of `OTHER` that goes on until this is dropped.
struct Hostile(Child);

impl Hostile {
    /// Python that says "ready" when it has done its worst. It becomes `OTHER` by itself, who need not be allowed to start it.
    fn start(script: &str, args: &[&str]) -> Hostile {
        let change = format!(
            "import json, os, socket, struct, subprocess, sys, threading
os.setgroups([]); os.setgid({OTHER}); os.setuid({OTHER})"
        );
        let mut python = Command::new("python3");
        python.args(["-c", &format!("{change}\n{script}")]).args(args).current_dir("/");
        let python = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut hostile = Hostile(python.unwrap());
        let mut line = String::new();
        BufReader::new(hostile.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        hostile
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
