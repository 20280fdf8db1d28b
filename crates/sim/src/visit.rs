//! Opens one image and says what is in it.
//!
//! An image is good if `check` finds nothing wrong and replays the journal as
//! the engine does, the engine mounts it, shows
//! a tree without an error, unmounts, `check` still finds nothing, and a second
//! mount shows the same tree. A panic of the engine is a finding like others.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use holdfast_check::Options;
use holdfast_device::{Device, MemoryDevice, SimDevice, sim};
use holdfast_script::{Target, Tree};

use crate::{Checkpoints, Engine, Setup, Verdict, agree};

/// What is in the image, or what is wrong with it.
pub(crate) fn visit(image: MemoryDevice, setup: &Setup) -> Result<Tree, String> {
    let device: Arc<dyn Device> = Arc::new(image);
    without_panic(|| look(&device, setup))
}

/// As [`visit`], and power fails again at every call that this makes, `deep` times one inside the
/// other: nothing may change. Gives the number of images that this visited as well.
pub(crate) fn visit_recovery(
    image: &MemoryDevice,
    setup: &Setup,
    policy: &sim::Policy,
    deep: u32,
) -> Result<(Tree, u64), String> {
    let device = Arc::new(SimDevice::new(image));
    let under: Arc<dyn Device> = Arc::clone(&device) as Arc<dyn Device>;
    let tree = without_panic(|| look(&under, setup))?;
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
            let place = || format!("cut again at event {} ({})", cut.index(), image.describe());
            let again = match deep {
                0 | 1 => visit(image.device(), setup),
                _ => visit_recovery(&image.device(), setup, policy, deep - 1).map(
                    |(tree, images)| {
                        inside += images;
                        tree
                    },
                ),
            };
            let again = again.map_err(|why| format!("{}: {why}", place()))?;
            same(&tree, &again).map_err(|why| format!("{}: {why}", place()))?;
        }
    }
    Ok((tree, seen.len() as u64 + inside))
}

fn look(device: &Arc<dyn Device>, setup: &Setup) -> Result<Tree, String> {
    // Checkpoints of the torture's own are no part of a recovery.
    let setup = &Setup { checkpoints: Checkpoints::Never, ..setup.clone() };
    clean(device, "as power left it")?;
    whole(device.as_ref())?;
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
        Err(format!("panic: {}", text.unwrap_or("without words")))
    })
}
