//! System calls that daemons of root, and the doors of daemons, give up. Programs that they start do not get them back.
//!
//! The kernel refuses such a call with EPERM and ends no process: what a later version of the C library calls in place of
//! another may be missing in a list.

use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::io;

use libc::c_long;
use seccompiler::{BpfProgram, Error, SeccompAction, SeccompFilter, apply_filter};

/// What no daemon calls: another kernel, its modules and settings; memory of other processes; keys; programs in the kernel; files by number
/// instead of by path; other namespaces and roots. That is what a program which has taken over a process of root would do next.
const OF_THE_SYSTEM: [c_long; 35] = [
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_move_pages,
    libc::SYS_open_by_handle_at,
    libc::SYS_perf_event_open,
    libc::SYS_personality,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];

/// What a door calls: it hands on messages and descriptors and looks at these; its memory, its waits and its end.
const OF_A_DOOR: [c_long; 35] = [
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getsockopt,
    libc::SYS_gettid,
    libc::SYS_ioctl,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_sendmsg,
    libc::SYS_setsockopt,
    libc::SYS_sigaltstack,
    libc::SYS_write,
];

const REFUSED: SeccompAction = SeccompAction::Errno(libc::EPERM.cast_unsigned());

/// What a daemon of root gives up.
pub(super) fn of_daemon() -> io::Result<()> {
    give_up(&OF_THE_SYSTEM, REFUSED, SeccompAction::Allow)
}

/// What a door gives up: all but its own.
pub(super) fn of_door() -> io::Result<()> {
    let mut own = OF_A_DOOR.to_vec();
    // Newer machines have only the one with a mask.
    #[cfg(target_arch = "x86_64")]
    own.push(libc::SYS_poll);
    own.push(libc::SYS_statx);
    give_up(&own, SeccompAction::Allow, REFUSED)
}

/// Has the kernel treat these calls in one way and all others in the other, of this thread and what it starts, which must be set to get no
/// new rights. Nothing changes where the kernel has no filters, and on machines that the filter's crate does not know.
fn give_up(calls: &[c_long], these: SeccompAction, others: SeccompAction) -> io::Result<()> {
    let Ok(machine) = ARCH.try_into() else { return Ok(()) };
    let rules: BTreeMap<i64, Vec<_>> = calls.iter().map(|call| (*call, Vec::new())).collect();
    let filter = SeccompFilter::new(rules, others, these, machine).map_err(io::Error::other)?;
    let program: BpfProgram = filter.try_into().map_err(io::Error::other)?;
    match apply_filter(&program) {
        Ok(()) => Ok(()),
        Err(Error::Seccomp(why) | Error::Prctl(why)) if has_no_filters(&why) => Ok(()),
        Err(why) => Err(io::Error::other(why)),
    }
}

fn has_no_filters(why: &io::Error) -> bool {
    matches!(why.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS))
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;
    use rustix::process::{Pid, getpgid, getpid};
    use rustix::system::sethostname;
    use rustix::thread::set_no_new_privs;

    use super::*;

    fn in_a_thread(judge: impl FnOnce() + Send + 'static) {
        std::thread::spawn(judge).join().unwrap();
    }

    #[test]
    fn a_daemon_is_refused_what_is_of_the_system() {
        in_a_thread(|| {
            set_no_new_privs(true).unwrap();
            of_daemon().unwrap();
            // As root it would be for its length.
            assert_eq!(sethostname(&[b'x'; 4096]), Err(Errno::PERM));
            assert!(getpgid(Some(getpid())).is_ok());
        });
    }

    #[test]
    fn a_door_is_refused_all_but_its_own() {
        in_a_thread(|| {
            set_no_new_privs(true).unwrap();
            of_door().unwrap();
            assert!(Pid::as_raw(Some(getpid())) > 0);
            assert_eq!(getpgid(Some(getpid())), Err(Errno::PERM));
            assert!(std::fs::File::open("/dev/null").is_err());
        });
    }
}
