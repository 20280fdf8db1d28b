//! Daemons whose mounts cannot be reached any more: the mount namespace in which they have mounted lives on in them alone.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use super::processes::{command_of, mount_namespace};

/// Commands of the program that a daemon starts, and its own.
const OF_A_DAEMON: [&[u8]; 3] = [b"mount", b"watchdog", b"door"];

/// Has the daemon of a volume end, with all its mounts, if no other process is in its mount namespace. False: one is, the daemon is in that
/// of this process, or it is not known.
pub fn end(volume: &Path) -> bool {
    let Some(pid) = holdfast_device::holding_process(volume) else { return false };
    let pid = pid.to_string();
    let (Some(of_daemon), own) = (mount_namespace(&pid), mount_namespace("self")) else {
        return false;
    };
    if Some(&of_daemon) == own.as_ref() || !is_of_a_daemon(&pid) {
        return false;
    }
    let is_there = |process: &str| mount_namespace(process).as_ref() == Some(&of_daemon);
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    let names = processes.flatten().map(|entry| entry.file_name());
    let mut numbers = names.filter(|name| name.as_bytes().iter().all(u8::is_ascii_digit));
    let is_other = |name: &str| is_there(name) && !is_of_a_daemon(name);
    if numbers.any(|name| name.to_str().is_some_and(is_other)) {
        return false;
    }
    let pid = pid.parse().ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| kill_process(pid, Signal::TERM).is_ok())
}

fn is_of_a_daemon(process: &str) -> bool {
    command_of(process).is_some_and(|command| OF_A_DAEMON.contains(&&*command))
}
