//! From the sender of a request to the caller of the filesystem.
//!
//! The kernel tells user and group, but not the other groups. They are needed
//! only when the kernel does not check permissions itself, and are then read
//! from the status file of the process.

use holdfast_posix::Caller;

use crate::ops::Request;

/// The caller. `trusted`: the kernel has checked permissions (`default_permissions`).
pub(crate) fn caller(request: &Request, trusted: bool) -> Caller {
    Caller {
        uid: request.uid,
        gid: request.gid,
        groups: match trusted || request.uid == 0 {
            true => Vec::new(),
            false => groups_of(request.pid),
        },
        trusted,
    }
}

/// Supplementary groups of a thread; none if it is gone or cannot be seen.
fn groups_of(pid: u32) -> Vec<u32> {
    if pid == 0 {
        return Vec::new();
    }
    match std::fs::read_to_string(format!("/proc/{pid}/status")) {
        Ok(status) => parse_groups(&status),
        Err(_) => Vec::new(),
    }
}

fn parse_groups(status: &str) -> Vec<u32> {
    status
        .lines()
        .find_map(|line| line.strip_prefix("Groups:"))
        .map(|list| list.split_ascii_whitespace().filter_map(|group| group.parse().ok()).collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_come_from_the_status_file() {
        assert_eq!(
            parse_groups("Name:\tx\nUid:\t1\t1\t1\t1\nGroups:\t4 24 1000 \nNStgid:\t5\n"),
            [4, 24, 1000]
        );
        assert!(parse_groups("Name:\tx\n").is_empty());
        assert!(parse_groups("Groups:\t \n").is_empty());
    }

    #[test]
    fn only_untrusted_users_cost_a_look_into_proc() {
        let me = Request { uid: 1000, gid: 7, pid: std::process::id() };
        assert!(caller(&me, true).groups.is_empty());
        assert!(caller(&me, true).trusted);
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        assert_eq!(caller(&me, false).groups, parse_groups(&status));
    }
}
