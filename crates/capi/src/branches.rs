//! Branches and snapshots. Each call is durable when it returns, and happens as a whole or not at all.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;

use holdfast::Branch;

use crate::border::{InCall, call, done, handle, invalid, made, name, name_or_none};
use crate::volume::holdfast_volume;

/// What is called with each name; another answer than 0 ends the list. It must not throw nor jump out.
#[expect(non_camel_case_types, reason = "this is its name in C")]
pub type holdfast_name_fn =
    Option<extern "C" fn(context: *mut c_void, name: *const c_char) -> c_int>;

/// The branch of a name, or the one that is open.
fn branch_of(volume: &InCall<'_, holdfast_volume>, name: Option<&str>) -> io::Result<Branch> {
    name.map_or_else(|| volume.0.branch_here(), |name| volume.0.branch(name))
}

/// Tells a caller each of `names`. Returns what ended it, or 0.
fn tell(
    names: impl Iterator<Item = String>,
    each: holdfast_name_fn,
    context: *mut c_void,
) -> io::Result<c_int> {
    let each = each.ok_or_else(|| invalid("NULL where a function must be"))?;
    for name in names {
        let name = CString::new(name).map_err(|_| invalid("a name with a 0 in it"))?;
        match each(context, name.as_ptr()) {
            0 => {}
            ended => return Ok(ended),
        }
    }
    Ok(0)
}

/// Opens another branch, or with `snapshot` a snapshot of it, beside what is open: both share the host file. EBUSY if
/// the branch is open. Of a volume that is reached through a mount it is one more handle of the mount that shows it, and
/// EOPNOTSUPP if none does.
///
/// # Safety
/// `volume` is NULL or a handle of this library; each text is NULL, or ends with a 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_open_branch(
    volume: *const holdfast_volume,
    branch: *const c_char,
    snapshot: *const c_char,
) -> *mut holdfast_volume {
    made(|| {
        // SAFETY: as the caller says.
        let (volume, branch, snapshot) =
            unsafe { (handle(volume)?, name_or_none(branch)?, name_or_none(snapshot)?) };
        let branch = branch_of(&volume, branch)?;
        let opened = match snapshot {
            None => branch.open()?,
            Some(snapshot) => branch.snapshot_named(snapshot)?.open()?,
        };
        Ok(holdfast_volume(opened))
    })
}

/// Takes a snapshot of a branch, NULL for the one that is open. It costs the same for any tree.
///
/// # Safety
/// As holdfast_open_branch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_snapshot(
    volume: *const holdfast_volume,
    branch: *const c_char,
    snapshot: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: as the caller says.
        let (volume, branch, snapshot) =
            unsafe { (handle(volume)?, name_or_none(branch)?, name(snapshot)?) };
        branch_of(&volume, branch)?.snapshot(snapshot).map(drop)
    })
}

/// Makes the branch `fork` out of a branch, NULL for the one that is open, or out of its snapshot if that is not NULL.
///
/// # Safety
/// As holdfast_open_branch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_fork(
    volume: *const holdfast_volume,
    branch: *const c_char,
    snapshot: *const c_char,
    fork: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: as the caller says.
        let (volume, fork) = unsafe { (handle(volume)?, name(fork)?) };
        // SAFETY: as the caller says.
        let (branch, snapshot) = unsafe { (name_or_none(branch)?, name_or_none(snapshot)?) };
        let branch = branch_of(&volume, branch)?;
        match snapshot {
            None => branch.fork(fork),
            Some(snapshot) => branch.snapshot_named(snapshot)?.fork(fork),
        }
        .map(drop)
    })
}

/// Takes a branch, NULL for the one that is open, back to its snapshot. What it was is kept as the snapshot `keep`, or
/// deleted with NULL.
///
/// # Safety
/// As holdfast_open_branch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_rollback(
    volume: *const holdfast_volume,
    branch: *const c_char,
    snapshot: *const c_char,
    keep: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: as the caller says.
        let (volume, snapshot) = unsafe { (handle(volume)?, name(snapshot)?) };
        // SAFETY: as the caller says.
        let (branch, keep) = unsafe { (name_or_none(branch)?, name_or_none(keep)?) };
        let branch = branch_of(&volume, branch)?;
        branch.rollback_to(&branch.snapshot_named(snapshot)?, keep)
    })
}

/// Makes a branch, NULL for the one that is open, what its fork is, in one step; the fork is a branch no more. What the
/// branch was is kept as the snapshot `keep`, or deleted with NULL. EAGAIN if the branch has changed since the fork was
/// made: nothing has happened. EBUSY if the fork is open.
///
/// # Safety
/// As holdfast_open_branch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_promote(
    volume: *const holdfast_volume,
    branch: *const c_char,
    fork: *const c_char,
    keep: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: as the caller says.
        let (volume, fork) = unsafe { (handle(volume)?, name(fork)?) };
        // SAFETY: as the caller says.
        let (branch, keep) = unsafe { (name_or_none(branch)?, name_or_none(keep)?) };
        let fork = branch_of(&volume, Some(fork))?;
        branch_of(&volume, branch)?.promote(fork, keep)
    })
}

/// Deletes the snapshot of a branch, NULL for the one that is open; or, with `snapshot` NULL, the branch with its
/// snapshots. Its space comes back in the background. EBUSY if it is open, or another branch has grown out of it.
///
/// # Safety
/// As holdfast_open_branch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_delete(
    volume: *const holdfast_volume,
    branch: *const c_char,
    snapshot: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: as the caller says.
        let (volume, branch, snapshot) =
            unsafe { (handle(volume)?, name_or_none(branch)?, name_or_none(snapshot)?) };
        if branch.is_none() && snapshot.is_none() {
            return Err(invalid("NULL where a name must be"));
        }
        let branch = branch_of(&volume, branch)?;
        match snapshot {
            None => branch.delete(),
            Some(snapshot) => branch.snapshot_named(snapshot)?.delete(),
        }
    })
}

/// Calls `each` with the name of each branch, in the order in which they were made. Returns 0, or what `each` has ended
/// it with.
///
/// # Safety
/// `volume` is NULL or a handle of this library; `each` is NULL or a function that may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_branches(
    volume: *const holdfast_volume,
    each: holdfast_name_fn,
    context: *mut c_void,
) -> c_int {
    call(-1, || {
        // SAFETY: as the caller says.
        let all = unsafe { handle(volume) }?.0.branches()?;
        tell(all.iter().map(|branch| branch.name().to_string()), each, context)
    })
}

/// As holdfast_branches, for the snapshots of a branch, NULL for the one that is open.
///
/// # Safety
/// As holdfast_branches; `branch` is NULL, or ends with a 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_snapshots(
    volume: *const holdfast_volume,
    branch: *const c_char,
    each: holdfast_name_fn,
    context: *mut c_void,
) -> c_int {
    call(-1, || {
        // SAFETY: as the caller says.
        let (volume, branch) = unsafe { (handle(volume)?, name_or_none(branch)?) };
        let all = branch_of(&volume, branch)?.snapshots()?;
        tell(all.iter().map(|snapshot| snapshot.name().to_string()), each, context)
    })
}
