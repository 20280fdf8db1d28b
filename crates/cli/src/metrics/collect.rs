//! Asks mounts what they have counted: several at once, so that one that does not answer holds nobody up.

use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustix::process::geteuid;

use crate::daemon::control::{self, Report};
use crate::mounts::{self, Mount};

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
    // The newest one at a directory is the one that programs see; a second directory of the same mount tells nothing new.
    let seen: BTreeMap<_, Mount> = mounts.into_iter().map(|it| (it.dir.clone(), it)).collect();
    let once: BTreeMap<_, Mount> =
        seen.into_values().rev().map(|it| (it.device.clone(), it)).collect();
    let mut mounts: Vec<Mount> = once.into_values().collect();
    mounts.sort_by(|a, b| a.dir.cmp(&b.dir));
    Ok(ask(mounts))
}

/// Asks one mount.
pub(crate) fn of(mount: &Mount) -> io::Result<Sample> {
    let report = control::ask(mount)?;
    Ok(Sample { mount: mount.clone(), report: Some(report) })
}

fn ask(mounts: Vec<Mount>) -> Vec<Sample> {
    let next = AtomicUsize::new(0);
    let answers = Mutex::new(Vec::new());
    let work = || {
        while let Some((at, mount)) = take(&mounts, &next) {
            let report = match control::ask(mount) {
                Ok(report) => Some(report),
                // It is another user's, and none of ours to tell of.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => continue,
                Err(_) => None,
            };
            let mut answers = answers.lock().unwrap_or_else(|panicked| panicked.into_inner());
            answers.push((at, Sample { mount: mount.clone(), report }));
        }
    };
    thread::scope(|scope| {
        for _ in 1..AT_ONCE.min(mounts.len()) {
            // Where no thread can be had there are fewer.
            if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    let mut answers = answers.into_inner().unwrap_or_else(|panicked| panicked.into_inner());
    answers.sort_by_key(|(at, _)| *at);
    answers.into_iter().map(|(_, sample)| sample).collect()
}

fn take<'m>(mounts: &'m [Mount], next: &AtomicUsize) -> Option<(usize, &'m Mount)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    mounts.get(at).map(|mount| (at, mount))
}
