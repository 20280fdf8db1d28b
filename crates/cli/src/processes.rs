//! Processes of this program, as /proc shows them.

use std::fs;
use std::path::PathBuf;

/// The command that a process of this program was started with: the first word behind its name. `None`: it is another program.
pub(crate) fn command_of(process: &str) -> Option<Vec<u8>> {
    let words = fs::read(format!("/proc/{process}/cmdline")).ok()?;
    let mut words = words.split(|byte| *byte == 0);
    let path = words.next()?;
    let is_ours = path.ends_with(b"holdfast") || path.ends_with(b"holdfast-dev");
    words.next().filter(|_| is_ours).map(<[u8]>::to_vec)
}

/// Whether a process is just ending: its memory is gone, its descriptors go next. One that nobody has asked for its end has none any more.
pub(crate) fn is_ending(process: u32) -> bool {
    let file = |name: &str| fs::read(format!("/proc/{process}/{name}"));
    let (Ok(words), Ok(stat)) = (file("cmdline"), file("stat")) else { return false };
    // The state stands behind the name, which may have any bytes.
    let state = stat.rsplit(|byte| *byte == b')').next().unwrap_or_default();
    words.is_empty() && !state.starts_with(b" Z") && !state.starts_with(b" X")
}

/// The mount namespace of a process, if this user may know it.
pub(crate) fn mount_namespace(process: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{process}/ns/mnt")).ok()
}
