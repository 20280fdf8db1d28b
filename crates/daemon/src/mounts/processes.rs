//! Processes of this program, as /proc shows them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// The command that a process of this program was started with: the first word behind its name. `None`: it is another program.
pub(crate) fn command_of(process: &str) -> Option<Vec<u8>> {
    let words = fs::read(format!("/proc/{process}/cmdline")).ok()?;
    let mut words = words.split(|byte| *byte == 0);
    let path = words.next()?;
    // The very program may have any name; another version of it, or one of another user, is known by its own.
    let is_ours =
        path.ends_with(b"holdfast") || path.ends_with(b"holdfast-dev") || is_this(process);
    words.next().filter(|_| is_ours).map(<[u8]>::to_vec)
}

/// Whether a process runs the same file as this one, as far as this user may know.
fn is_this(process: &str) -> bool {
    let program = |of: &str| {
        fs::metadata(format!("/proc/{of}/exe")).ok().map(|found| (found.dev(), found.ino()))
    };
    program(process).is_some_and(|it| Some(it) == program("self"))
}

/// Whether a process is just ending: its memory is gone, its descriptors go next. One that was not asked for its end has none any more.
pub(crate) fn is_ending(process: u32) -> bool {
    let words = fs::read(format!("/proc/{process}/cmdline"));
    let has_none = words.is_ok_and(|words| words.is_empty());
    has_none && state(process).is_some_and(|state| !matches!(state, b'Z' | b'X'))
}

/// Whether a process does nothing until it gets SIGCONT, or a debugger lets it go on.
pub fn is_stopped(process: u32) -> bool {
    matches!(state(process), Some(b'T' | b't'))
}

fn state(process: u32) -> Option<u8> {
    let stat = fs::read(format!("/proc/{process}/stat")).ok()?;
    // It stands behind the name, which may have any bytes.
    stat.rsplit(|byte| *byte == b')').next()?.get(1).copied()
}

/// The mount namespace of a process, if this user may know it.
pub(crate) fn mount_namespace(process: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{process}/ns/mnt")).ok()
}
