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

use holdfast_device::{Device, MemoryDevice, SimDevice, sim};
use holdfast_script::{Target, Trees};

use crate::moments::visit_time;
use crate::opened::{clean, quiet, same};
use crate::used_on::use_on;
use crate::{Engine, Setup, Verdict, agree, agree_on_log};

/// What is in the image, or what is wrong with it. With a seed in `on`, a copy of it is used on and emptied.
pub(crate) fn visit(image: MemoryDevice, setup: &Setup, on: Option<u64>) -> Result<Trees, String> {
    let _pinned = visit_time();
    without_panic(|| {
        let seen = unwritten(&image, setup)?;
        if let Some(seed) = on {
            use_on(&image, setup, seed).map_err(|why| format!("used on: {why}"))?;
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
) -> Result<(Trees, u64), String> {
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
                0 | 1 => visit(image.device(), setup, None),
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

/// What can be seen without writing a byte.
fn unwritten(image: &MemoryDevice, setup: &Setup) -> Result<Trees, String> {
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

fn look(device: &Arc<dyn Device>, setup: &Setup) -> Result<Trees, String> {
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

fn mount_and_walk(device: &Arc<dyn Device>, setup: &Setup) -> Result<Trees, String> {
    let mut engine = Engine::open(Arc::clone(device), setup.clone())
        .map_err(|error| format!("mount: {error}"))?;
    let trees = engine.walk_all()?;
    engine.unmount().map_err(|error| format!("unmount: {error}"))?;
    Ok(trees)
}

/// The commits of the journal, in which both replays must agree and nothing durable may be missing.
fn whole(device: &dyn Device) -> Result<u64, String> {
    match agree(device)? {
        Verdict::Whole(commits) => Ok(commits),
        other => Err(format!("the journal is not whole: {other:?}")),
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
