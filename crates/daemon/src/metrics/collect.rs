//! Asks mounts what they have counted.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use holdfast_service::outcome::shown;
use rustix::process::geteuid;

use crate::ask_all::ask_all;
use crate::mounts::{self, Mount};
use crate::report::{self, Report};

/// How long all of them get: a scraper does not wait for ever.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a mount said.
#[derive(Debug)]
pub struct Sample {
    pub(super) mount: Mount,
    /// Nothing if no answer came, or none that makes sense.
    pub(super) report: Option<Report>,
}

/// Asks the mounts of this user; as root those of all users, as far as they let root ask.
///
/// # Errors
/// The system does not say what is mounted.
pub fn all() -> io::Result<Vec<Sample>> {
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

/// Asks one mount.
pub fn of(mount: &Mount) -> io::Result<Sample> {
    let report = report::ask(mount)?;
    Ok(Sample { mount: mount.clone(), report: Some(report) })
}

fn ask(mounts: Vec<Mount>) -> Vec<Sample> {
    let answers = ask_all(mounts, PATIENCE).into_iter();
    let told = answers.filter_map(|(mount, answer)| match answer {
        Ok(report) => Some(Sample { mount, report: Some(report) }),
        // It is another user's, and none of ours to tell of.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
        Err(_) => Some(Sample { mount, report: None }),
    });
    told.collect()
}
