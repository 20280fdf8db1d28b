//! From the sender of a request to the caller of the filesystem.
//!
//! The kernel tells user and group, but not the other groups. They are needed only when the kernel does not check
//! permissions itself, and are then read from the status file of the process.
//!
//! Where mounts may have other owners than the volume, the kernel tells user and group only for requests that make
//! inodes. Whether another caller is root is hardly ever needed, and then read there as well.

use holdfast_posix::Caller;

use crate::interface::{NO_ID, Request};

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

/// What root may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capability {
    /// Change a file and leave its set-id bits (CAP_FSETID).
    KeepSetId = 4,
    /// See attributes whose names begin with `trusted.`, and what a mount says of itself (CAP_SYS_ADMIN).
    Administer = 21,
}

/// Whether the caller has a capability. A process that cannot be seen has none, and one of another user namespace is
/// root only there.
pub(crate) fn is_capable(request: &Request, capability: Capability) -> bool {
    if request.uid != NO_ID {
        return request.uid == 0;
    }
    let namespace = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/user")).ok();
    let pid = request.pid.to_string();
    let is_ours = namespace("self").is_some_and(|ours| namespace(&pid) == Some(ours));
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
    is_ours && status.is_ok_and(|status| parse_effective(&status) & 1 << capability as u32 != 0)
}

/// Whether the caller is root or `owner`, the user of the mount.
pub(crate) fn is_owner(request: &Request, owner: u32) -> bool {
    (request.uid == owner && owner != NO_ID) || is_capable(request, Capability::Administer)
}

fn parse_effective(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
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
    fn a_process_of_root_is_found_where_the_kernel_names_no_user() {
        let status =
            "Groups:\t4\nCapInh:\t0000000000000000\nCapEff:\t0000000000200010\nCapBnd:\t1\n";
        assert_eq!(parse_effective(status), 1 << 4 | 1 << 21);
        assert_eq!(parse_effective("Name:\tx\n"), 0);
        let of = |uid, pid| {
            let request = Request { uid, gid: NO_ID, pid };
            [Capability::KeepSetId, Capability::Administer].map(|which| is_capable(&request, which))
        };
        assert_eq!((of(0, 0), of(1000, std::process::id())), ([true; 2], [false; 2]));
        assert_eq!(of(NO_ID, 0), [false; 2], "nobody who can be seen");
        let mine = parse_effective(&std::fs::read_to_string("/proc/self/status").unwrap());
        let expected = [mine & 1 << 4 != 0, mine & 1 << 21 != 0];
        assert_eq!(of(NO_ID, std::process::id()), expected);
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
