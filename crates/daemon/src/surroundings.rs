//! What a daemon that serves others' files drops of the environment of the program that started it.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Limits that a caller sets for its own work. The daemon works for all that use the mount.
const LIMITS: [Resource; 6] = [
    Resource::Cpu,
    Resource::Fsize,
    Resource::Nofile,
    Resource::Nproc,
    Resource::As,
    Resource::Data,
];
/// Where a process tells the kernel how soon to kill it when memory runs out.
const OOM: &str = "/proc/self/oom_score_adj";
/// One of the last. Without the daemon the files cannot be reached, and what was written in the last seconds without
/// fsync is lost; but the daemon is not spared if nothing else is left to kill (-1000).
const SPARED: &str = "-900";
/// As any other program: what may be asked for without privilege, if the caller is to be killed before others.
const ORDINARY: &str = "0";

/// Raises limits as far as this user may, and asks to be spared when memory runs out.
pub(super) fn leave() {
    for resource in LIMITS {
        let limit = getrlimit(resource);
        if limit.current != limit.maximum {
            // What is refused stays as it was.
            let _ = setrlimit(resource, Rlimit { current: limit.maximum, ..limit });
        }
    }
    let score = fs::read_to_string(OOM).ok().and_then(|text| text.trim().parse::<i32>().ok());
    let above = |least: i32| score.is_some_and(|score| score > least);
    // Less than that is a decision of an administrator.
    let refused = above(-900) && fs::write(OOM, SPARED).is_err();
    if refused && above(0) {
        let _ = fs::write(OOM, ORDINARY);
    }
}
