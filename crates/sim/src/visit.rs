//! Opens one image and says what is in it.
//!
//! An image is good if `check` finds nothing wrong and replays journal and log
//! as the engine does, a read-only mount shows a tree without an error, a
//! mount for writing shows the same and unmounts, `check` still finds nothing,
//! and a second mount shows the same tree. Now and then the volume is used on
//! and emptied, and must be whole then too. A panic is a finding like others.
//!
//! What is wrong begins with the promise that it breaks: P9, because a state
//! that was acknowledged cannot be reached; P10 for a panic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use holdfast_check::Options;
use holdfast_device::{Device, MemoryDevice, SimDevice, sim};
use holdfast_script::{Errno, Kind, Op, Outcome, Script, Target, Tree};

use crate::moments::visit_time;
use crate::{Checkpoints, Engine, Setup, Verdict, agree, agree_on_log, judge};

/// What is in the image, or what is wrong with it. With `on`, a copy of it is used on and emptied.
pub(crate) fn visit(image: MemoryDevice, setup: &Setup, on: bool) -> Result<Tree, String> {
    let _pinned = visit_time();
    without_panic(|| {
        let seen = unwritten(&image, setup)?;
        if on {
            use_on(&image, setup).map_err(|why| format!("used on: {why}"))?;
        }
        let device: Arc<dyn Device> = Arc::new(image);
        let tree = look(&device, setup)?;
        same(&tree, &seen).map_err(|why| format!("read-only: {why}"))?;
        Ok(tree)
    })
    .map_err(unreachable_state)
}

/// A finding with its promise.
fn unreachable_state(what: String) -> String {
    match what.starts_with("P10: ") {
        true => what,
        false => format!("P9: {what}"),
    }
}

/// As [`visit`], and power fails again at every call that this makes, `deep` times one inside the
/// other: nothing may change. Gives the number of images that this visited as well.
pub(crate) fn visit_recovery(
    image: &MemoryDevice,
    setup: &Setup,
    policy: &sim::Policy,
    deep: u32,
) -> Result<(Tree, u64), String> {
    let _pinned = visit_time();
    let device = Arc::new(SimDevice::new(image));
    let under: Arc<dyn Device> = Arc::clone(&device) as Arc<dyn Device>;
    let tree = without_panic(|| {
        let seen = unwritten(image, setup)?;
        let tree = look(&under, setup)?;
        same(&tree, &seen).map_err(|why| format!("read-only: {why}"))?;
        Ok(tree)
    })
    .map_err(unreachable_state)?;
    let recording = device.recording();
    let mut cut = recording.start();
    let mut seen = std::collections::HashSet::new();
    let mut inside = 0;
    for event in &recording.events {
        cut.advance(event);
        if !event.changes_images() {
            continue;
        }
        for image in cut.images(policy) {
            if !seen.insert(image.fingerprint()) {
                continue;
            }
            let place = |why: String| {
                let (index, lost) = (cut.index(), image.describe());
                match why.split_once(": ") {
                    Some((promise, why)) if promise.starts_with('P') => {
                        format!("{promise}: cut again at event {index} ({lost}): {why}")
                    }
                    _ => format!("P9: cut again at event {index} ({lost}): {why}"),
                }
            };
            let again = match deep {
                0 | 1 => visit(image.device(), setup, false),
                _ => visit_recovery(&image.device(), setup, policy, deep - 1).map(
                    |(tree, images)| {
                        inside += images;
                        tree
                    },
                ),
            };
            let again = again.map_err(place)?;
            same(&tree, &again).map_err(place)?;
        }
    }
    Ok((tree, seen.len() as u64 + inside))
}

/// Commits and checkpoints that the simulator adds are no part of a recovery; and thousands of threads for
/// thousands of images cost more than all the rest.
fn quiet(setup: &Setup) -> Setup {
    let mut setup = Setup { checkpoints: Checkpoints::Never, ..setup.clone() };
    setup.mount.threads = false;
    setup
}

/// What can be seen without writing a byte.
fn unwritten(image: &MemoryDevice, setup: &Setup) -> Result<Tree, String> {
    match agree_on_log(image)? {
        Verdict::Whole(_) => {}
        other => return Err(format!("the log is not whole: {other:?}")),
    }
    let device: Arc<dyn Device> = Arc::new(image.snapshot());
    let mut setup = quiet(setup);
    setup.mount.read_only = true;
    let tree = mount_and_walk(&device, &setup).map_err(|why| format!("read-only: {why}"))?;
    match device.stats().writes {
        0 => Ok(tree),
        writes => Err(format!("a read-only mount wrote {writes} times")),
    }
}

/// The first things that a user does with a volume after a crash; what they leave is killed again. Then
/// everything is removed.
fn use_on(image: &MemoryDevice, setup: &Setup) -> Result<(), String> {
    const WORK: &str = "mkdir /used-on 700; mkfile /used-on/a; write /used-on/a 0 5000 1; fsync /used-on/a; mkfile /used-on/b; \
        write /used-on/b 0 100 2; rename /used-on/b /used-on/c; fsyncdir /used-on; write /used-on/a 100 50 3; fsync /used-on/a; \
        append /used-on/c 9000 4; fsync /used-on/c; link /used-on/a /used-on/d; setxattr /used-on/a user.x 300 5; sync; crash; \
        append /used-on/a 3000 6; fsync /used-on/a; unlink /used-on/d";
    let device: Arc<dyn Device> = Arc::new(image.snapshot());
    let mut engine = Engine::open(Arc::clone(&device), quiet(setup))
        .map_err(|error| format!("mount: {error}"))?;
    let work: Script = WORK.parse().expect("the script is well formed");
    for op in work.ops() {
        match engine.apply(op) {
            // A volume may be full, and what did not get its space is missing then.
            Outcome::Ok(_) | Outcome::Err(Errno::ENOSPC | Errno::ENOENT) => {}
            other => return Err(format!("{op} answers {other}")),
        }
    }
    let all = engine.walk()?;
    // A directory comes before what is in it.
    for (path, node) in all.0.iter().rev().filter(|(path, _)| !path.is_root()) {
        let path = path.clone();
        let op = match node.stat.kind {
            Kind::Dir => Op::Rmdir { path },
            _ => Op::Unlink { path },
        };
        if let Outcome::Err(error) = engine.apply(&op) {
            return Err(format!("{op} answers {error}"));
        }
    }
    engine.unmount().map_err(|error| format!("unmount: {error}"))?;
    clean(&device, "when it was empty")?;
    let facts = judge(&*device)?.facts;
    match (facts.orphans, facts.inodes) {
        (0, 1) => Ok(()),
        other => Err(format!("orphans and inodes when it was empty: {other:?}")),
    }
}

fn look(device: &Arc<dyn Device>, setup: &Setup) -> Result<Tree, String> {
    let setup = &quiet(setup);
    clean(device, "as power left it")?;
    let tree = mount_and_walk(device, setup)?;
    clean(device, "after a mount and an unmount")?;
    match whole(device.as_ref())? {
        0 => {}
        commits => return Err(format!("an unmount left {commits} commits in the journal")),
    }
    let again = mount_and_walk(device, setup).map_err(|why| format!("second time: {why}"))?;
    same(&tree, &again)?;
    Ok(tree)
}

fn mount_and_walk(device: &Arc<dyn Device>, setup: &Setup) -> Result<Tree, String> {
    let mut engine = Engine::open(Arc::clone(device), setup.clone())
        .map_err(|error| format!("mount: {error}"))?;
    let tree = engine.walk()?;
    engine.unmount().map_err(|error| format!("unmount: {error}"))?;
    Ok(tree)
}

/// The commits of the journal, in which both replays must agree and nothing durable may be missing.
fn whole(device: &dyn Device) -> Result<u64, String> {
    match agree(device)? {
        Verdict::Whole(commits) => Ok(commits),
        other => Err(format!("the journal is not whole: {other:?}")),
    }
}

/// Asks the second opinion.
fn clean(device: &Arc<dyn Device>, when: &str) -> Result<(), String> {
    let options = Options { data: true, ..Options::default() };
    let report = holdfast_check::check(device.as_ref(), &options)
        .map_err(|error| format!("check {when}: {error}"))?;
    if report.is_clean() {
        return Ok(());
    }
    let findings: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    Err(format!("check {when}:\n{}", findings.join("\n")))
}

fn same(first: &Tree, second: &Tree) -> Result<(), String> {
    let differences = first.differences(second);
    match differences.is_empty() {
        true => Ok(()),
        false => Err(format!("another mount shows something else:\n{}", differences.join("\n"))),
    }
}

/// Turns a panic into a finding. What it leaves behind is not used again.
pub(crate) fn without_panic<T>(act: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("P10: panic: {}", text.unwrap_or("without words")))
    })
}
