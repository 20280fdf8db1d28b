//! What killed commands have left is removed.

use std::path::Path;

use holdfast_base::Timestamp;
use holdfast_control::{Branch, Snapshot};
use holdfast_daemon::mounts;
use holdfast_service::branches::temporary::{self, Purpose};

use super::base::Base;
use super::owner::is_owned;
use crate::branches::{Ask, Name, TreeLocation};
use crate::outcome::{Context, Failure};

/// With more snapshots than these a transaction leaves it to `holdfast prune`: they would have to be listed each time.
const FEW: u64 = 200;
/// A fork that is not mounted within this time never will be.
const YOUNG_NS: i64 = 600_000_000_000;
/// Transactions within transactions that are looked into.
const DEPTH: u32 = 32;

/// Removes what transactions of a branch have left, if there can be anything. It is tried again by the next one.
pub(crate) fn before_transaction(base: &Base) {
    // Each has a snapshot with a name.
    let snapshots = base.mounted.as_ref().map_or(0, |mounted| mounted.snapshots);
    if (1..=FEW).contains(&snapshots) {
        let _ = of_transactions(&base.place(), Some(&base.mount.dir), true);
    }
}

/// Removes what killed commands have left in a volume, as far as it is of this branch or of none; or, without `remove`, only
/// looks. Returns the names.
///
/// # Errors
/// Branches or snapshots cannot be listed.
pub(crate) fn all(place: &TreeLocation, remove: bool) -> Result<Vec<Name>, Failure> {
    let mounts = mounts::find_all(&place.path).context("/proc/self/mountinfo")?;
    let mut swept = of_runs(place, !mounts.is_empty(), remove)?;
    let is_at_rest = mounts.is_empty();
    let is_of_branch = |base: &Base| {
        let mounted = base.mounted.as_ref().filter(|it| it.snapshot.is_none());
        mounted.is_some_and(|it| {
            place.branch.as_ref().is_none_or(|branch| branch.to_string() == it.branch)
        })
    };
    let mut bases = mounts.into_iter().filter_map(|mount| Base::of(mount).ok());
    let base = bases.find(is_of_branch);
    // One that is mounted where this process does not see it may have transactions on their way.
    if is_at_rest || base.is_some() {
        let mounted = base.as_ref().map(|base| base.mount.dir.as_path());
        swept.extend(of_transactions(place, mounted, remove)?);
    }
    Ok(swept)
}

/// Removes forks that `holdfast run` has left, if there can be any and they are few.
pub(crate) fn before_run(place: &TreeLocation, base: &Base) {
    let branches = base.mounted.as_ref().map_or(0, |mounted| mounted.branches);
    if (2..=FEW).contains(&branches) {
        let _ = of_runs(place, true, true);
    }
}

/// Removes forks that `holdfast run` has left; or, without `remove`, only looks. `is_mounted`: the volume may be in use, so
/// one that was made just now, and is not mounted, is left alone: it may be mounted next. Returns the names.
///
/// # Errors
/// The branches cannot be listed.
pub(crate) fn of_runs(
    place: &TreeLocation,
    is_mounted: bool,
    remove: bool,
) -> Result<Vec<Name>, Failure> {
    let now_ns = Timestamp::now().secs.saturating_mul(1_000_000_000);
    let is_left = |of: &Branch| {
        let is_run = matches!(temporary::read(&of.name), Some((Purpose::Run, _)));
        let age_ns = now_ns.saturating_sub(of.created_ns.unwrap_or(0));
        is_run && !of.mounted && (!is_mounted || age_ns > YOUNG_NS)
    };
    let (branches, _) = place.located()?.branches()?;
    let left = branches.into_iter().filter(is_left);
    // Of the number that was judged: another one may have its name by now.
    let delete =
        |of: &Branch| Ask::DeleteBranch { name: (&of.name).into(), number: Some(of.number) };
    let is_gone = |of: &Branch| !remove || place.done(&delete(of)).is_ok();
    Ok(left.filter(is_gone).map(|of| of.name).collect())
}

/// Removes what transactions of a branch have left; or, without `remove`, only looks. `mounted`: the directory at which the
/// branch is mounted. If it is not, no transaction is on its way. Returns the names.
///
/// # Errors
/// The snapshots cannot be listed.
pub(crate) fn of_transactions(
    place: &TreeLocation,
    mounted: Option<&Path>,
    remove: bool,
) -> Result<Vec<Name>, Failure> {
    let mut swept = Vec::new();
    sweep(place, mounted, remove, DEPTH, &mut swept)?;
    Ok(swept)
}

fn sweep(
    place: &TreeLocation,
    mounted: Option<&Path>,
    remove: bool,
    depth: u32,
    swept: &mut Vec<Name>,
) -> Result<(), Failure> {
    let (branch, snapshots, _) = place.located()?.snapshots()?;
    for Snapshot { number: of, name, forks, .. } in snapshots {
        let Some((Purpose::Transaction, number)) = temporary::read(&name) else { continue };
        // What cannot be known is left alone.
        if mounted.is_some_and(|dir| is_owned(dir, number).unwrap_or(true)) {
            continue;
        }
        if !remove {
            swept.push(name);
            continue;
        }
        // Processes that a killed command has left behind may keep the mount of the fork, and by it a transaction in this one
        // may still be on its way. With the mount both end.
        let release = Ask::Release { name: name.clone() };
        if forks.contains(&name) && place.done(&release).is_err() {
            continue;
        }
        if depth > 0 {
            // It may have had transactions itself. It may be gone, too.
            let fork = TreeLocation { branch: Some(name.clone()), ..place.clone() };
            let _ = sweep(&fork, None, remove, depth - 1, &mut Vec::new());
        }
        let delete = Ask::DeleteBranch { name: (&name).into(), number: None };
        if forks.contains(&name) && place.done(&delete).is_err() {
            // Other branches have grown out of it, say. By its snapshot it is found again.
            continue;
        }
        let delete = Ask::DeleteSnapshot {
            branch: Some((&branch).into()),
            name: (&name).into(),
            number: Some(of),
        };
        if place.done(&delete).is_ok() {
            swept.push(name);
        }
    }
    Ok(())
}
