//! What daemons of root, and the doors of daemons, give up of what they were started with. Programs that they start do not get it back.
//!
//! A daemon of another user keeps what it has, which is little: the setuid helper that unmounts for it must be able to become root.

use std::fs;
use std::io;

use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use rustix::process::{
    DumpableBehavior, geteuid, set_dumpable_behavior, setpriority_process, setsid,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs,
};

use crate::seccomp;

/// What a daemon of root needs: to mount and unmount, and abort connections; to open volumes, logs and homes of others; to tell who
/// asks, whose processes may have more rights; doors that become others, and to end them; limits, memory that rings lock, and to be spared when memory runs out.
const OF_A_DAEMON: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::IPC_LOCK);
/// The last in each queue for a processor.
const LAST: i32 = 19;

/// What a daemon gives up. Before it has other threads, each of which would keep its own.
pub(super) fn of_daemon() {
    if geteuid().is_root()
        && let Err(error) = keep(OF_A_DAEMON).and_then(|()| seccomp::of_daemon())
    {
        tracing::warn!("this process keeps rights that it does not need: {error}");
    }
}

/// What a door gives up: the user and all rights of the daemon, its session, and its share of the processors. It becomes the stranger for
/// whom it works, who may end it and may not look into it.
///
/// # Errors
/// It keeps rights.
pub(super) fn of_door(user: Uid, group: Gid) -> io::Result<()> {
    // The scheduler shares by sessions first, where it does. What is refused is no reason to do without the door.
    let _ = setsid();
    let _ = fs::write("/proc/self/autogroup", LAST.to_string());
    let _ = setpriority_process(None, LAST);
    // It is not spared as the daemon is.
    let _ = fs::write("/proc/self/oom_score_adj", "0");
    // A namespace may have no number for the stranger.
    let _ = setgroups(&[]).and_then(|()| setresgid(group, group, group));
    let _ = setresuid(user, user, user);
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    keep(CapabilitySet::empty())?;
    seccomp::of_door()
}

/// Keeps no other rights than these, now and in all programs that this thread starts.
fn keep(kept: CapabilitySet) -> io::Result<()> {
    set_no_new_privs(true)?;
    let kept = capabilities(None)?.permitted & kept;
    let inheritable = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })?;
    Ok(())
}
