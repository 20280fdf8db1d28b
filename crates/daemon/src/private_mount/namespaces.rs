//! A mount namespace of this process's own, and a user namespace where that is what allows it.

use std::fs;
use std::io;
use std::path::Path;

use holdfast_service::outcome::{Failure, plain_words};
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::process::{getegid, geteuid};

/// How this process gets its own mounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Isolation {
    /// It has them: root needs nothing else.
    Entered,
    /// By a user namespace, in which only this user is known.
    AsUser,
}

/// Gives root a mount namespace of its own. Others, and root where it may not, need [`enter_as_user`], after which this
/// process cannot tell owners apart any more.
pub(super) fn enter_as_root() -> Result<Isolation, Failure> {
    if !geteuid().is_root() {
        return Ok(Isolation::AsUser);
    }
    match unshare(CloneFlags::CLONE_NEWNS) {
        Ok(()) => hide_mounts().map(|()| Isolation::Entered),
        Err(nix::errno::Errno::EPERM) => Ok(Isolation::AsUser),
        Err(error) => Err(refused(&error.into())),
    }
}

/// Gives this process, which must have one thread, a user namespace and a mount namespace of its own.
pub(super) fn enter_as_user() -> Result<(), Failure> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)
        .map_err(io::Error::from)
        // Without it the kernel takes no map of groups from an ordinary user.
        .and_then(|()| fs::write("/proc/self/setgroups", "deny"))
        .and_then(|()| fs::write("/proc/self/uid_map", format!("{user} {user} 1")))
        .and_then(|()| fs::write("/proc/self/gid_map", format!("{group} {group} 1")))
        .map_err(|error| refused(&error))?;
    hide_mounts()
}

/// What is mounted here is not seen elsewhere. What others unmount goes here as well, so nothing of theirs stays in use.
fn hide_mounts() -> Result<(), Failure> {
    let flags = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", flags).map_err(|error| refused(&error.into()))
}

/// Takes the mount at `dir` away here, where it would be covered: a process that the command leaves behind would keep it in
/// use, and an unmount would wait. Not where the kernel takes it away with that of the others: then what is mounted in its place
/// would go as well. An ordinary user may not, and it stays covered.
pub(super) fn let_go_of(dir: &Path) {
    if is_told_of(dir) == Some(false) {
        let _ = unmount(dir, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    }
}

/// Whether what others unmount at `dir` is unmounted here.
fn is_told_of(dir: &Path) -> Option<bool> {
    let found = statx(CWD, dir, AtFlags::NO_AUTOMOUNT, StatxFlags::MNT_ID).ok()?;
    let is_known = found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    let text = holdfast_base::proc::list("/proc/self/mountinfo").ok()?;
    let mounts: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
    let of = |id: &str| mounts.iter().find(|mount| mount.first() == Some(&id));
    let id = is_known.then(|| found.stx_mnt_id.to_string())?;
    let parent = of(of(&id)?.get(1)?)?;
    // `shared:N`, `master:N` and the like stand up to a dash.
    let mut tags = parent.iter().skip(6).take_while(|word| **word != "-");
    Some(tags.any(|tag| tag.starts_with("master:") || tag.starts_with("shared:")))
}

fn refused(error: &io::Error) -> Failure {
    let why = plain_words(error);
    let advice = match geteuid().is_root() {
        true => "the system lets no process here have mounts of its own",
        false => {
            "an ordinary user needs user namespaces for it, which this system does not allow; run it as root"
        }
    };
    Failure::new(super::FAILED, format!("no private mount can be made ({why}): {advice}"))
}
