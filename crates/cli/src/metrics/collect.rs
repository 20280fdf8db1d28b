//! Asks mounts what they have counted: several at once, so that one that does not answer holds nobody up.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use holdfast_base::clock::Deadline;
use parking_lot::Mutex;
use rustix::process::geteuid;

use crate::daemon::control::{self, Report};
use crate::mounts::{self, Mount};
use crate::outcome::printable;

/// How long all of them get.
const PATIENCE: Duration = Duration::from_secs(5);
/// Mounts that are asked at once. Each takes a process, which does nothing but wait.
const AT_ONCE: usize = 16;

/// What a mount said.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(super) mount: Mount,
    /// Nothing if no answer came, or none that makes sense.
    pub(super) report: Option<Report>,
}

/// Asks the mounts of this user; as root those of all users, as far as they let root ask.
///
/// # Errors
/// The system does not say what is mounted.
pub(crate) fn all() -> io::Result<Vec<Sample>> {
    let user = geteuid();
    let mut mounts = mounts::list()?;
    mounts.retain(|mount| user.is_root() || mount.owner == user.as_raw());
    // The newest one at a directory is the one that programs see; a second directory of the same mount tells nothing new. By what is
    // shown of a directory, since two that are shown alike would be one series told twice, and all would be refused.
    let seen: BTreeMap<_, Mount> = mounts.into_iter().map(|it| (shown(&it.dir), it)).collect();
    let once: BTreeMap<_, Mount> =
        seen.into_values().rev().map(|it| (it.device.clone(), it)).collect();
    let mut mounts: Vec<Mount> = once.into_values().collect();
    // This user's first: those of others may take all the time there is.
    mounts.sort_by(|a, b| {
        let of = |it: &Mount| (it.owner != user.as_raw(), it.dir.clone());
        of(a).cmp(&of(b))
    });
    Ok(ask(mounts))
}

/// A path as it stands in a label.
pub(super) fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

/// Asks one mount.
pub(crate) fn of(mount: &Mount) -> io::Result<Sample> {
    let report = control::ask(mount)?;
    Ok(Sample { mount: mount.clone(), report: Some(report) })
}

fn ask(mounts: Vec<Mount>) -> Vec<Sample> {
    let next = AtomicUsize::new(0);
    let answers = Mutex::new(Vec::new());
    // For all of them together: a scraper does not wait for ever.
    let until = Deadline::after(PATIENCE);
    let work = || {
        while let Some((at, mount)) = take(&mounts, &next) {
            let report = match control::ask_within(mount, until.left()) {
                Ok(report) => Some(report),
                // It is another user's, and none of ours to tell of.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => continue,
                Err(_) => None,
            };
            answers.lock().push((at, Sample { mount: mount.clone(), report }));
        }
    };
    thread::scope(|scope| {
        for _ in 1..AT_ONCE.min(mounts.len()) {
            // Where no thread can be had there are fewer.
            if thread::Builder::new().name("holdfast-ask".into()).spawn_scoped(scope, work).is_err()
            {
                break;
            }
        }
        work();
    });
    let mut answers = answers.into_inner();
    answers.sort_by_key(|(at, _)| *at);
    answers.into_iter().map(|(_, sample)| sample).collect()
}

fn take<'m>(mounts: &'m [Mount], next: &AtomicUsize) -> Option<(usize, &'m Mount)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    mounts.get(at).map(|mount| (at, mount))
}
